"""What is remembered of a table's snapshots where its catalog shows the head alone (Nessie, trap T16)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.table.table import SnapshotEntry
from regelate.pipeline.metadata import history_of, shows_head_alone


def entry(number: int, parent: int | None) -> SnapshotEntry:
    return SnapshotEntry(
        snapshot_id=number,
        parent_id=parent,
        sequence_number=number,
        timestamp_ms=number,
        operation="append",
        summary={},
    )


def whole(heads: int) -> list[SnapshotEntry]:
    return [entry(number, number - 1 or None) for number in range(1, heads + 1)]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30))
def test_of_a_catalog_that_shows_the_head_alone_each_head_that_was_seen_is_remembered_once(seen: list[int]) -> None:
    history: tuple[SnapshotEntry, ...] = ()
    for number in sorted(seen):
        history = history_of(history, [entry(number, None)])
    assert [e.snapshot_id for e in history] == sorted(set(seen))


@given(st.integers(1, 20), st.integers(0, 20))
def test_of_any_other_catalog_its_own_log_is_all_that_counts(before: int, more: int) -> None:
    log = whole(before + more)
    assert history_of(history_of((), log[:before]), log) == tuple(log)


def test_a_snapshot_that_an_expiry_left_alone_names_its_parent_and_hides_nothing() -> None:
    left = whole(4)[-1:]
    assert not shows_head_alone(left)
    assert history_of(whole(4), left) == tuple(left)


def test_a_table_without_a_snapshot_has_no_history() -> None:
    assert not shows_head_alone([])
    assert history_of((), []) == ()
