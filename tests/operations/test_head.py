"""What a head proves of the commits that it does not list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.table import SnapshotEntry
from regelate.ports import Head


def head(
    *numbers: int, last: int | None = None, version: int = 2, parents: dict[int, int | None] | None = None
) -> Head:
    """A table whose snapshots are called by their sequence numbers; each is the child of the one before."""
    chain = dict(zip(numbers, (None, *numbers), strict=False)) if parents is None else parents
    return Head(
        uuid="table",
        format_version=version,
        snapshot_id=numbers[-1] if numbers else None,
        sequence_number=(last or max(numbers, default=0)) if version > 1 else 0,
        metadata_location="",
        snapshots=tuple(
            SnapshotEntry(
                snapshot_id=n,
                parent_id=chain[n],
                sequence_number=n if version > 1 else 0,
                timestamp_ms=n,
                operation="append",
            )
            for n in numbers
        ),
        refs=(),
    )


@given(st.sets(st.integers(1, 30)), st.integers(0, 30), st.integers(0, 30))
def test_a_v2_head_shows_what_came_next_when_it_lists_the_next_number_or_none_was_given(
    listed: set[int], base: int, more: int
) -> None:
    last = max(listed, default=0) + more
    now = replace(head(*sorted(listed)), sequence_number=last)
    shown = base + 1 in listed or last == base
    assert now.shows_next(replace(head(), sequence_number=base)) == shown


def test_t16_a_catalog_that_shows_only_the_head_hides_all_but_the_last_commit() -> None:
    """Nessie: no parents, no log. One commit since the base is the one that is shown; of two, one is hidden."""
    alone: dict[int, int | None] = {5: None, 6: None, 7: None}
    assert head(6, parents=alone).shows_next(head(5, parents=alone))
    assert not head(7, parents=alone).shows_next(head(5, parents=alone))


def test_a_branch_takes_sequence_numbers_too_and_its_snapshots_are_listed() -> None:
    assert replace(head(1, 2, 3), snapshot_id=2).shows_next(head(1))


@pytest.mark.parametrize(("now", "shown"), [((1, 2, 3), True), ((3,), False)])
def test_in_a_v1_table_the_history_must_lead_back_to_the_base(now: tuple[int, ...], shown: bool) -> None:
    assert head(*now, version=1).shows_next(head(1, version=1)) == shown


def test_the_history_of_a_v1_table_that_was_empty_leads_back_to_nothing() -> None:
    assert head(1, 2, version=1).shows_next(head(version=1))
