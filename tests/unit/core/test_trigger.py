"""When a write looks for small files, and that no compaction makes another (row 61)."""

from __future__ import annotations

import pytest

from regelate.core.planning.plan import PlanReason, plan_compaction
from regelate.core.planning.trigger import check_is_due, due, last_own_position, position
from regelate.core.policy.policy import MB
from regelate.core.table.table import RUN_ID, SnapshotEntry
from tests.unit.core.model_table import ModelTable, even, sized_policy

OURS = {RUN_ID: "run"}


@pytest.mark.parametrize(
    ("now", "last_own", "interval", "expected"),
    [
        (1, 0, 5, False),
        (4, 3, 5, False),
        (5, 4, 5, True),
        (6, 5, 5, False),
        (7, 3, 5, True),
        (9, 6, 5, False),
        (23, 4, 5, True),
        (5, 5, 5, False),
        (1, 0, 1, True),
        (100, 99, 100, True),
    ],
)
def test_a_check_is_due_when_a_multiple_lies_behind_the_last_own_position(
    now: int, last_own: int, interval: int, expected: bool
) -> None:
    assert due(now, last_own, interval) is expected


def test_an_interval_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="interval 0"):
        due(5, 4, 0)


def history(writers: str, *, format_version: int = 2) -> ModelTable:
    """o: a write of ours, x: of another engine, c: a compaction of ours."""
    table = ModelTable(format_version=format_version)
    for writer in writers:
        table.commit("replace" if writer == "c" else "append", OURS if writer in "oc" else None)
    return table


def checks(writers: str, *, interval: int = 5, format_version: int = 2) -> str:
    """Return the history with a `!` behind each commit of ours that looks for small files."""
    log = history(writers, format_version=format_version).log
    marks = ["!" if check_is_due(log[: n + 1], format_version, n + 1, interval) else "" for n in range(len(log))]
    return "".join(writer + mark for writer, mark in zip(writers, marks, strict=True))


@pytest.mark.parametrize("format_version", [1, 2])
@pytest.mark.parametrize(
    "expected",
    [
        "oooo" + "o!" + "oooo" + "o!" + "o",
        "oooxxxo!oo",  # the multiple fell into commits of others
        "oooox" + "o!" + "ooo" + "o!",
        "xxxxxxxx" + "o!" + "o!",
        "oooo" + "o!" + "c" + "ooo" + "o!" + "cooo",
        "ooooc" + "oooo" + "o!",  # the compaction itself took position five
        "xxxxxxxxxxxx",
        "cccccccccccc",
    ],
)
def test_a_history_looks_for_small_files_where_marked(expected: str, format_version: int) -> None:
    assert checks(expected.replace("!", ""), format_version=format_version) == expected


def test_positions_are_sequence_numbers_and_in_v1_places_in_the_log() -> None:
    two, one = history("ooo"), history("ooo", format_version=1)
    assert position(two.log[1:], 2) == 3
    assert position(one.log[1:], 1) == 2
    assert position(two.log, 2, snapshot_id=2) == position(one.log, 1, snapshot_id=2) == 2
    assert position((), 2) == position((), 1) == position(two.log, 2, snapshot_id=99) == 0


def test_the_last_own_position_counts_compactions_and_leaves_out_other_engines() -> None:
    log = history("oxcxo").log
    assert last_own_position(log, 2) == 5
    assert last_own_position(log, 2, before=5) == 3
    assert last_own_position(log, 2, before=3) == 1
    assert last_own_position(history("xx").log, 2) == 0
    assert last_own_position((), 2) == 0


def test_a_catalog_that_shows_only_the_head_makes_every_fifth_write_look_not_every_one() -> None:
    log = history("o" * 20).log
    looked = [n for n in range(1, 21) if check_is_due(log[n - 1 : n], 2, n, 5)]
    assert looked == [5, 10, 15, 20]


def test_a_snapshot_that_is_not_in_the_log_looks_for_nothing() -> None:
    assert not check_is_due(history("oooo").log, 2, 5, 1)


def test_two_hundred_writes_compact_at_the_fifth_ones_only_and_no_compaction_calls_another() -> None:
    policy = sized_policy(100, min_input_files=3)
    table = ModelTable()
    compactions: list[SnapshotEntry] = []
    for _ in range(200):
        table.append([9 * MB], summary=OURS)
        while check_is_due(table.log, 2, table.log[-1].snapshot_id, 5):
            plan = plan_compaction(table.photograph(policy), policy)
            if not plan.groups:
                break
            table.apply(plan, even, policy)
            compactions.append(table.log[-1])
            again = plan_compaction(table.photograph(policy), policy)
            assert again.reason is PlanReason.NO_CANDIDATE
    assert 30 <= len(compactions) <= 200 // 4
    assert not any(check_is_due(table.log, 2, entry.snapshot_id, 1) for entry in compactions)
    assert sum(t.data_file.size_bytes for t in table.tasks) == pytest.approx(1800 * MB, abs=100)
