"""What a head proves of the commits that it does not list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.table.head import Head
from regelate.core.table.table import RUN_ID, RefKind, SnapshotEntry, SnapshotRef
from regelate.errors import Conflict


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
        schema_id=0,
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


@pytest.mark.parametrize("now", [(1,), (1, 2), (2, 3)])
def test_no_history_leads_back_to_a_v1_table_that_was_empty(now: tuple[int, ...]) -> None:
    """That its oldest snapshot has no parent, or one that is not listed, says nothing of what came before it."""
    assert not head(*now, version=1).shows_next(head(version=1))
    assert not head(3, parents={3: 2}, version=1).shows_next(head(version=1))
    assert head(version=1).shows_next(head(version=1))


def with_run(found: Head, snapshot_id: int) -> Head:
    snapshots = (replace(s, summary={RUN_ID: "run"}) if s.snapshot_id == snapshot_id else s for s in found.snapshots)
    return replace(found, snapshots=tuple(snapshots))


@pytest.mark.parametrize("version", [1, 2])
def test_a_run_that_a_rollback_took_out_of_main_has_not_landed(version: int) -> None:
    """1, 2 (the run), back to 1, then 3."""
    back = with_run(head(1, 2, 3, parents={1: None, 2: 1, 3: 1}, version=version), 2)
    assert back.run("run") is None
    assert replace(back, snapshot_id=1).run("run") is None
    assert replace(back, snapshot_id=2).run("run") == back.any_run("run") == back.snapshots[1]


@pytest.mark.parametrize("version", [1, 2])
def test_a_run_from_before_the_point_where_the_history_is_cut_counts(version: int) -> None:
    """2 was expired: whether 3 stands on 1 nobody can say, and who is told no writes his rows twice."""
    cut = with_run(head(1, 3, 4, parents={1: None, 3: None, 4: 3}, version=version), 1)
    assert cut.run("run") == cut.snapshots[0]
    assert with_run(head(1, 3, 4, parents={1: None, 3: 2, 4: 3}), 1).run("run") is not None


def test_on_a_branch_alone_a_run_has_not_landed_on_main() -> None:
    assert with_run(head(1, 2, 3, parents={1: None, 2: 1, 3: 1}), 2).run("run") is None
    assert replace(with_run(head(1, 2), 2), snapshot_id=None).run("run") is None


def test_the_head_of_a_branch_knows_what_main_is_on_and_whether_the_branch_is_there() -> None:
    side, tag = (SnapshotRef(name="side", kind=kind, snapshot_id=3) for kind in (RefKind.BRANCH, RefKind.TAG))
    main = SnapshotRef(name="main", kind=RefKind.BRANCH, snapshot_id=2)
    found = replace(head(1, 2, 3, parents={1: None, 2: 1, 3: 1}), ref="side", refs=(main, side))
    found.check_ref()
    assert (found.main_id, replace(found, refs=(side,)).main_id, head(1, 2).main_id) == (2, None, 2)
    assert with_run(found, 3).run("run") is not None
    assert with_run(found, 2).run("run") is None
    head(1).check_ref()
    for refs in ((main,), (main, tag)):
        with pytest.raises(Conflict, match="'side' was dropped") as gone:
            replace(found, refs=refs).check_ref()
        assert gone.value.code == "REF_DROPPED"


def test_a_run_that_was_rolled_back_and_cherry_picked_is_in_main_again_and_not_made_twice() -> None:
    """1, 2 (the run), back to 1, then 3 picks 2, back again, and 4 picks 3: none but 2 bears the run."""
    parents = {1: None, 2: 1, 3: 1, 4: 1}
    picked = with_run(head(1, 2, 3, 4, parents=parents), 2)
    assert picked.run("run") is None
    sources = {3: "2", 4: "3"}
    snapshots = (
        replace(s, summary={"source-snapshot-id": sources[s.snapshot_id]}) if s.snapshot_id in sources else s
        for s in picked.snapshots
    )
    assert replace(picked, snapshots=tuple(snapshots)).run("run") == picked.snapshots[1]
