"""The health formula, pinned; a table with nothing to do is 100."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.health import Grade, PointsLost, assess, partition_score
from regelate.core.planning.plan import plan_compaction
from regelate.core.policy.policy import MB
from regelate.core.table.table import FileScanTask, PartitionTotals
from tests.unit.core.model_table import (
    HOUR_MS,
    UNPARTITIONED,
    ModelTable,
    data_file,
    equality_delete,
    even,
    month,
    sized_policy,
)

POLICY = sized_policy(100, min_input_files=3)


def totals(*, files: int, deletes: int = 0, small: int = 0, size_bytes: int = 0) -> PartitionTotals:
    return PartitionTotals(
        partition=UNPARTITIONED,
        files=files,
        size_bytes=size_bytes,
        rows=0,
        delete_files=deletes,
        candidate_files=small,
        small_files=small,
        oldest_candidate_ms=0,
    )


@pytest.mark.parametrize(
    ("files", "deletes", "hours", "small", "score"),
    [
        (100, 0, 0.0, 0, 0.3),
        (200, 0, 0.0, 0, 0.3),
        (10, 0, 0.0, 0, 0.03),
        (10, 5, 0.0, 0, 0.03 + 0.15),
        (10, 20, 0.0, 0, 0.03 + 0.3),
        (10, 0, 6.0, 0, 0.03 + 0.05),
        (10, 0, 240.0, 0, 0.03 + 0.2),
        (10, 0, 0.0, 5, 0.03 + 0.1),
        (100, 100, 24.0, 100, 1.0),
        (0, 0, 0.0, 0, 0.0),
    ],
)
def test_a_partition_scores_by_files_deletes_age_and_small_files(
    files: int, deletes: int, hours: float, small: int, score: float
) -> None:
    assert partition_score(totals(files=files, deletes=deletes, small=small), hours=hours) == pytest.approx(score)


@given(
    files=st.integers(0, 10_000),
    deletes=st.integers(0, 10_000),
    hours=st.floats(-10, 1e6),
    small=st.integers(0, 10_000),
)
def test_a_partition_score_lies_between_0_and_1(files: int, deletes: int, hours: float, small: int) -> None:
    found = partition_score(totals(files=files, deletes=deletes, small=min(small, files)), hours=hours)
    assert 0 <= found <= 1.0000001


def test_one_partition_of_twenty_small_files_twelve_hours_old() -> None:
    table = ModelTable()
    table.append([MB] * 20)
    health = assess(table.photograph(POLICY), POLICY, now_ms=HOUR_MS + 12 * HOUR_MS)
    assert (health.lost, health.score) == (PointsLost(files=57.0), 43.0)
    assert [(p.score, p.hours, p.candidate_files) for p in health.worst] == [(0.36, 12.0, 20)]
    assert health.recommendation == "COMPACT: 20 files (20.0 MB) in 1 partition would become 1."


def test_files_cost_points_by_the_share_that_would_go_of_the_table_and_of_its_worst_partition() -> None:
    table = ModelTable()
    table.append([MB] * 10, partition=month("2013-01"))
    table.append([100 * MB] * 90, partition=month("2013-02"))
    health = assess(table.photograph(POLICY), POLICY, now_ms=0)
    assert health.lost == PointsLost(files=round(60 * (9 / 100 + 9 / 10) / 2, 1))
    assert [p.partition.path for p in health.worst] == ["month=2013-01"]


def test_six_hundred_tiny_files_are_critical_and_worse_than_four() -> None:
    found = []
    for count in (4, 600):
        table = ModelTable()
        table.append([100_000] * count)
        found.append(assess(table.photograph(POLICY), POLICY, now_ms=0))
    assert found[1].score < found[0].score
    assert (found[1].grade, found[1].score) == (Grade.CRITICAL, 40.1)


@given(small=st.integers(0, 300), more=st.integers(1, 50), large=st.integers(0, 50))
def test_more_small_files_never_make_a_table_look_better(small: int, more: int, large: int) -> None:
    table = ModelTable()
    table.append([100 * MB] * large + [MB] * small)
    before = assess(table.photograph(POLICY), POLICY, now_ms=0).score
    table.append([MB] * more)
    assert assess(table.photograph(POLICY), POLICY, now_ms=0).score <= before


@given(deletes=st.integers(0, 30), more=st.integers(1, 5), snapshots=st.integers(1, 30_000), times=st.integers(1, 9))
def test_more_deletes_snapshots_manifests_or_metadata_never_make_a_table_look_better(
    deletes: int, more: int, snapshots: int, times: int
) -> None:
    table = ModelTable()
    table.append([100 * MB] * 20)
    photograph = table.photograph(POLICY)

    def score(deletes: int = deletes, snapshots: int = snapshots, manifests: int = 10, size: int = MB) -> float:
        found = replace(
            photograph,
            totals=tuple(replace(t, delete_files=deletes) for t in photograph.totals),
            snapshots=photograph.snapshots * snapshots,
            manifest_paths=frozenset(map(str, range(manifests))),
        )
        return assess(found, POLICY, now_ms=0, metadata_bytes=size).score

    before = score()
    assert score(deletes=deletes + more) <= before
    assert score(snapshots=snapshots + more) <= before
    assert score(manifests=10 * times) <= before
    assert score(size=MB * times) <= before


def test_metadata_costs_up_to_fifteen_points_and_the_cure_is_named() -> None:
    table = ModelTable()
    table.append([100 * MB] * 20)
    rotten = replace(table.photograph(POLICY), manifest_paths=frozenset(map(str, range(2_000))))
    rotten = replace(rotten, snapshots=rotten.snapshots * 20_000)
    health = assess(rotten, POLICY, now_ms=0, metadata_bytes=100 * MB)
    assert (health.lost, health.grade) == (PointsLost(metadata=15.0), Grade.HEALTHY)
    for cure in ("EXPIRE_SNAPSHOTS: 20,000 snapshots", "REWRITE_MANIFESTS: 2,000 manifests", "has 100.0 MB"):
        assert cure in health.recommendation


def test_a_table_is_100_when_compact_has_nothing_to_do_and_after_it_ran() -> None:
    table = ModelTable()
    assert assess(table.photograph(POLICY), POLICY, now_ms=0).score == 100
    table.append([100 * MB] * 5 + [MB, MB])
    below = assess(table.photograph(POLICY), POLICY, now_ms=10**12)
    assert (below.score, below.worst, below.small_files) == (100, (), 2)
    assert "too few files" in below.recommendation
    table.append([MB] * 30)
    assert assess(table.photograph(POLICY), POLICY, now_ms=10**12).score < 70
    table.apply(plan_compaction(table.photograph(POLICY), POLICY), even, POLICY)
    healed = assess(table.photograph(POLICY), POLICY, now_ms=10**12)
    assert (healed.score, healed.candidate_files) == (100, 1)
    assert healed.recommendation.startswith("Nothing to do")


def test_a_budget_for_one_run_does_not_make_the_table_look_better() -> None:
    table = ModelTable()
    for text in ("2013-01", "2013-02"):
        table.append([MB] * 10, partition=month(text))
    capped = replace(POLICY, max_files=10)
    assert len(assess(table.photograph(capped), capped, now_ms=0).worst) == 2


def test_counts_are_over_all_live_files_and_each_delete_file_counts_once() -> None:
    table = ModelTable()
    table.append([100 * MB, MB, MB])
    keys = equality_delete("e", 5, of=data_file("a", MB))
    table.tasks = [FileScanTask(data_file=t.data_file, deletes=(keys,)) for t in table.tasks]
    health = assess(table.photograph(POLICY), POLICY, now_ms=0)
    assert (health.files, health.size_bytes, health.rows) == (3, 102 * MB, 3000)
    assert (health.small_files, health.candidate_files, health.delete_files, health.partitions) == (2, 2, 1, 1)


def test_the_ten_worst_partitions_come_first() -> None:
    table = ModelTable()
    for number in range(1, 13):
        table.append([MB] * (number + 2), partition=month(f"2013-{number:02}"))
    worst = assess(table.photograph(POLICY), POLICY, now_ms=0).worst
    assert [p.files for p in worst] == list(range(14, 4, -1))
