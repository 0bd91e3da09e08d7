"""The five checks: what each promises, and when there is nothing to judge."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.measures.impact import (
    CheckName,
    FileMetrics,
    Fingerprint,
    Observed,
    PartitionFiles,
    QueryRuns,
    Verdict,
    failed,
    judge,
    own_stretches,
    same_rows,
)
from regelate.core.table.table import SnapshotEntry


def metrics(files: int, size_bytes: int, rows: int = 10) -> FileMetrics:
    one = PartitionFiles(path="a=1", files=files, size_bytes=size_bytes, min_bytes=1, max_bytes=size_bytes, rows=rows)
    return FileMetrics(snapshot_id=1, partitions=(one,))


def runs(*seconds: float, rows: tuple[tuple[object, ...], ...] = ((1,),)) -> QueryRuns:
    return QueryRuns(seconds=seconds, rows=rows)


ROWS = Fingerprint(rows=10, hash_sum="42")
WELL = Observed(
    files=(metrics(10, 1000), metrics(2, 900)),
    pairs=((ROWS, ROWS),),
    queries=(runs(1.0, 1.1, 1.2), runs(0.5, 0.5, 0.5)),
    committed=True,
    fewer_files_planned=True,
)


def verdicts(observed: Observed) -> dict[CheckName, Verdict]:
    return {check.name: check.verdict for check in judge(observed)}


def test_a_good_compaction_passes_all_five() -> None:
    assert verdicts(WELL) == dict.fromkeys(CheckName, Verdict.PASSED)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"pairs": ((ROWS, replace(ROWS, rows=9)),)}, CheckName.ROWS),
        ({"pairs": ((ROWS, replace(ROWS, hash_sum="43")),)}, CheckName.ROWS),
        ({"pairs": ((ROWS, ROWS), (ROWS, replace(ROWS, hash_sum="43")))}, CheckName.ROWS),
        ({"pairs": ()}, CheckName.ROWS),
        ({"files": (metrics(10, 1000), metrics(10, 2000))}, CheckName.FILE_COUNT),
        ({"files": (metrics(10, 1000), metrics(9, 900, rows=9))}, CheckName.AVERAGE_SIZE),
        ({"queries": (runs(1.0, 1.0), runs(1.0, 1.0, rows=((2,),)))}, CheckName.QUERY_RESULT),
        ({"queries": (runs(1.0, 1.1, 1.2), runs(1.31, 1.31, 1.32))}, CheckName.QUERY_TIME),
    ],
)
def test_each_check_fails_alone_for_what_it_promises(change: dict[str, object], name: CheckName) -> None:
    assert [check.name for check in failed(judge(replace(WELL, **change)))] == [name]  # type: ignore[arg-type]


def test_a_slower_query_within_the_measured_noise_is_no_failure() -> None:
    noisy = replace(WELL, queries=(runs(1.0, 1.1, 1.2), runs(1.25, 1.3, 1.3)))
    assert verdicts(noisy)[CheckName.QUERY_TIME] is Verdict.PASSED


def test_a_few_runs_that_agree_by_chance_leave_a_tenth_of_a_second() -> None:
    close = replace(WELL, queries=(runs(0.077, 0.077), runs(0.17, 0.17)))
    assert verdicts(close)[CheckName.QUERY_TIME] is Verdict.PASSED
    slower = replace(WELL, queries=(runs(0.077, 0.077), runs(0.18, 0.18)))
    assert verdicts(slower)[CheckName.QUERY_TIME] is Verdict.FAILED


def test_a_better_encoding_is_no_failure() -> None:
    compressed = judge(replace(WELL, files=(metrics(2, 20_000), metrics(1, 2_000))))
    assert not failed(compressed)
    assert "they take less room than before" in compressed[2].detail


def test_what_was_not_planned_or_not_asked_is_not_judged() -> None:
    idle = replace(WELL, committed=False, pairs=(), queries=None, fewer_files_planned=False)
    assert verdicts(idle) == dict.fromkeys(CheckName, Verdict.NOT_APPLICABLE)
    freed = replace(WELL, deletes_applied=True, files=(metrics(10, 1000), metrics(9, 90)))
    assert verdicts(freed)[CheckName.AVERAGE_SIZE] is Verdict.NOT_APPLICABLE
    busy = verdicts(replace(WELL, foreign_commits=1, files=(metrics(10, 1000), metrics(30, 90))))
    assert busy == dict.fromkeys(CheckName, Verdict.NOT_APPLICABLE) | {CheckName.ROWS: Verdict.PASSED}


values = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats()
rows_of = st.lists(st.tuples(st.integers(0, 3), values), max_size=8)


def test_rows_are_not_judged_where_commits_of_others_cannot_be_told_from_the_jobs() -> None:
    other = Fingerprint(rows=11, hash_sum="43")
    hidden = replace(WELL, foreign_commits=1, between=True)
    assert verdicts(hidden)[CheckName.ROWS] is Verdict.PASSED
    assert verdicts(replace(hidden, pairs=((ROWS, other),)))[CheckName.ROWS] is Verdict.NOT_APPLICABLE
    assert verdicts(replace(WELL, pairs=((ROWS, other),)))[CheckName.ROWS] is Verdict.FAILED


@given(rows_of, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[tuple[object, ...]], random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert same_rows(rows, shuffled)


@given(rows_of.filter(bool), st.data())
def test_a_row_that_is_lost_doubled_or_changed_is_seen(rows: list[tuple[object, ...]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    assert not same_rows(rows, rows[:at] + rows[at + 1 :])
    assert not same_rows(rows, [*rows, rows[at]])
    assert not same_rows(rows, [*rows[:at], (99, *rows[at][1:]), *rows[at + 1 :]])


def test_floats_may_differ_by_the_order_of_addition_and_by_no_more() -> None:
    exact = math.fsum([0.1] * 10)
    assert exact != sum([0.1] * 10)
    assert same_rows([(1, exact)], [(1, sum([0.1] * 10))])
    assert not same_rows([(1, exact)], [(1, exact * (1 + 1e-6))])
    assert same_rows([(math.nan,)], [(math.nan,)])
    assert not same_rows([(1,)], [(1.0,)])
    assert not same_rows([(True,)], [(1,)])


def log(*ids: int) -> list[SnapshotEntry]:
    return [
        SnapshotEntry(
            snapshot_id=i, parent_id=i - 1 or None, sequence_number=i, timestamp_ms=i, operation="replace", summary={}
        )
        for i in ids
    ]


@pytest.mark.parametrize(
    ("own", "stretches", "foreign"),
    [
        ({3, 4}, ((2, 4),), 0),
        ({3}, ((2, 3),), 1),
        ({4}, ((3, 4),), 1),
        ((), (), 2),
    ],
)
def test_own_commits_are_compared_with_the_snapshot_just_before_them(
    own: set[int], stretches: tuple[tuple[int, int], ...], foreign: int
) -> None:
    assert own_stretches(log(1, 2, 3, 4), 2, 4, own) == (stretches, foreign)


def test_two_stretches_with_a_commit_of_others_between_are_compared_each_for_itself() -> None:
    assert own_stretches(log(1, 2, 3, 4, 5), 1, 5, {2, 4, 5}) == (((1, 2), (3, 5)), 1)


def test_a_history_that_was_cut_has_no_stretch() -> None:
    assert own_stretches(log(3, 4), 1, 4, {3, 4}) == ((), 2)
