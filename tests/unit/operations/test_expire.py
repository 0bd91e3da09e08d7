"""EXPIRE_SNAPSHOTS and its second phase over a table in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from regelate.core.policy.policy import RetentionPolicy
from regelate.core.running.commit import ExpiryChange
from regelate.core.table.head import Head
from regelate.core.upkeep.quarantine import Quarantine
from regelate.core.upkeep.reachability import StoredFile
from regelate.errors import CommitStateUnknown, Conflict, InvariantViolated, NotAllowed, NotFound
from regelate.operations.committing.attempt import MAX_RACES
from regelate.operations.upkeep.cleaning import remove_dangling_deletes, rewrite_manifests
from regelate.operations.upkeep.expire import Expired, ExpiryTools, expire_after_commit, expire_snapshots, undo_expiry
from regelate.operations.upkeep.reclaim import Reclaimed, finish_expiry
from tests.unit.operations.fakes import CountingClock, MemoryCommitter, MemoryReclaimer, MemoryTable

HOUR_MS = 3_600_000
POLICY = RetentionPolicy(max_snapshot_age_ms=1, grace_ms=24 * HOUR_MS)
LATER = CountingClock(seconds=3600)


def tools(committer: MemoryCommitter, reclaimer: MemoryReclaimer, clock: CountingClock) -> ExpiryTools:
    return ExpiryTools(committer=committer, reclaimer=reclaimer, clock=clock)


@pytest.fixture
def table() -> MemoryTable:
    made = MemoryTable()
    for i in range(4):
        made.append("a", [i])
    return made


def test_a_list_is_there_before_the_commit_and_complete_after_it(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    seen: list[object] = []
    committer = MemoryCommitter(table, meanwhile=[lambda: seen.extend(q.files for q in reclaimer.quarantines())])
    done = expire_snapshots(tools(committer, reclaimer, LATER), POLICY)
    assert seen == [None]
    assert done.undo_id is not None
    assert [f.size_bytes for f in reclaimer.lists[done.undo_id].files or ()] == [100, 100, 100]
    assert (done.bytes_quarantined, done.bytes_freed, reclaimer.deleted) == (300, 0, [])


def test_without_a_commit_there_is_no_list(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    meanwhile = [lambda: table.append("b", [9])] * MAX_RACES
    committer = MemoryCommitter(table, script=["refused"] * MAX_RACES, meanwhile=meanwhile)
    with pytest.raises(Conflict):
        expire_snapshots(tools(committer, reclaimer, LATER), POLICY)
    assert reclaimer.lists == {}


@pytest.mark.parametrize("swaps_metadata", [False, True])
def test_an_unanswered_expiry_fits_again_once_main_is_put_back_unless_its_metadata_file_is_swapped(
    table: MemoryTable, swaps_metadata: bool
) -> None:
    """It has no sequence number that another commit could take, so over REST its list stays until it is known."""
    reclaimer = MemoryReclaimer()
    meanwhile = [lambda: table.append("b", [9])] * MAX_RACES
    table.swaps_metadata = swaps_metadata
    committer = MemoryCommitter(table, script=["dead", *["refused"] * (MAX_RACES - 1)], meanwhile=meanwhile)
    with pytest.raises(Conflict if swaps_metadata else CommitStateUnknown):
        expire_snapshots(tools(committer, reclaimer, LATER), POLICY)
    assert len(reclaimer.lists) == (0 if swaps_metadata else 1)


def test_when_nobody_knows_whether_it_landed_the_list_stays(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    committer = MemoryCommitter(table, script=["lost"])
    committer.heads_left = 2
    with pytest.raises(CommitStateUnknown):
        expire_snapshots(tools(committer, reclaimer, CountingClock(seconds=3600)), POLICY)
    assert len(reclaimer.lists) == 1
    reclaimer.store_ms = 25 * HOUR_MS
    assert finish_expiry(reclaimer).files_deleted == 3


def test_an_expiry_that_landed_under_a_conflict_forgets_no_file(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    expire_snapshots(tools(MemoryCommitter(table, script=["lost-as-conflict"]), reclaimer, LATER), POLICY)
    assert (len(table.log), len(reclaimer.lists)) == (1, 1)
    reclaimer.store_ms = 25 * HOUR_MS
    assert finish_expiry(reclaimer).files_deleted == 3


def test_an_expiry_without_a_grace_spares_what_an_undo_of_another_needs(table: MemoryTable) -> None:
    """Two run at once: what the first has promised to bring back is not deleted by the second."""
    reclaimer = MemoryReclaimer()
    first: list[Expired] = []

    def overtaken() -> None:
        first.append(expire_snapshots(tools(MemoryCommitter(table), reclaimer, LATER), POLICY))

    at_once = RetentionPolicy(max_snapshot_age_ms=1, grace_ms=0)
    committer = MemoryCommitter(table, script=["dead"], meanwhile=[overtaken])
    assert expire_snapshots(tools(committer, reclaimer, LATER), at_once).files_deleted == 0
    undo_id = first[0].undo_id
    assert undo_id is not None
    assert len(undo_expiry(tools(MemoryCommitter(table), reclaimer, CountingClock()), undo_id).snapshot_ids) == 3


def test_an_expiry_under_way_is_not_finished_by_another(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    found: list[Reclaimed] = []
    at_once = RetentionPolicy(max_snapshot_age_ms=1, grace_ms=0)
    committer = MemoryCommitter(table, meanwhile=[lambda: found.append(finish_expiry(reclaimer))])
    done = expire_snapshots(tools(committer, reclaimer, LATER), at_once)
    assert [(r.lists, r.waiting) for r in found] == [(0, 1)]
    assert done.files_deleted == 3


def test_the_grace_of_an_expiry_that_slept_runs_from_the_list_that_it_wrote_anew() -> None:
    """Another one found the old list, and that its grace was over; the new one is there when it looks again."""
    reclaimer = MemoryReclaimer()
    unreachable = reclaimer.unreachable
    change = ExpiryChange(snapshot_ids=(1000,))
    reclaimer.record("ours", change, grace_ms=HOUR_MS, created_ms=0)
    reclaimer.store_ms = 25 * HOUR_MS

    def anew(lists: Sequence[Quarantine]) -> tuple[tuple[StoredFile, ...], ...]:
        reclaimer.record("ours", change, grace_ms=HOUR_MS, created_ms=0)
        return unreachable(lists)

    reclaimer.unreachable = anew  # type: ignore[method-assign]
    assert finish_expiry(reclaimer) == Reclaimed(waiting=1)
    assert (reclaimer.deleted, reclaimer.lists["ours"].recorded_ms) == ([], 25 * HOUR_MS)


def test_an_undo_looks_at_the_clock_before_every_attempt(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    done = expire_snapshots(tools(MemoryCommitter(table), reclaimer, LATER), POLICY)
    assert done.undo_id is not None

    def a_day_later() -> None:
        reclaimer.store_ms = 24 * HOUR_MS + 1
        table.append("b", [9])

    committer = MemoryCommitter(table, script=["refused"], meanwhile=[a_day_later])
    with pytest.raises(Conflict) as caught:
        undo_expiry(tools(committer, reclaimer, CountingClock()), done.undo_id)
    assert caught.value.code == "UNDO_EXPIRED"


def test_the_second_phase_deletes_what_is_due_and_unreachable_and_nothing_else(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    expire_snapshots(tools(MemoryCommitter(table), reclaimer, LATER), POLICY)
    assert finish_expiry(reclaimer).waiting == 1
    reclaimer.store_ms = 24 * HOUR_MS + 15 * 60_000 - 1
    assert finish_expiry(reclaimer).files_deleted == 0
    reclaimer.reached = {"snapshot 1000"}
    reclaimer.store_ms += 1
    found = finish_expiry(reclaimer)
    assert (found.lists, found.files_deleted) == (1, len(reclaimer.deleted))
    assert found.bytes_freed == 100 * found.files_deleted > 0
    assert "snapshot 1000" not in reclaimer.deleted
    assert (reclaimer.lists, finish_expiry(reclaimer).files_deleted) == ({}, 0)


def test_a_shared_table_is_refused_before_anything_and_its_lists_stay(table: MemoryTable) -> None:
    shared = NotAllowed("GC_DISABLED", "shared")
    reclaimer = MemoryReclaimer()
    expire_after_commit(tools(MemoryCommitter(table), reclaimer, LATER), POLICY, table_uuid=table.uuid)
    assert reclaimer.walks == 0
    reclaimer.shared, reclaimer.store_ms = shared, 25 * HOUR_MS
    with pytest.raises(NotAllowed):
        finish_expiry(reclaimer)
    with pytest.raises(NotAllowed):
        expire_snapshots(tools(MemoryCommitter(table), reclaimer, LATER), POLICY)
    assert (len(reclaimer.lists), reclaimer.deleted) == (1, [])


def test_a_compaction_without_a_grace_asks_for_neighbours_before_the_commit(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer(shared=NotAllowed("GC_DISABLED", "shared"))
    policy = RetentionPolicy(max_snapshot_age_ms=1, grace_ms=0)
    with pytest.raises(NotAllowed):
        expire_after_commit(tools(MemoryCommitter(table), reclaimer, LATER), policy, table_uuid=table.uuid)
    assert (len(table.log), reclaimer.deleted, reclaimer.lists) == (4, [], {})


@pytest.mark.parametrize("step", ["ok", "lost", "lost-as-conflict", "late"])
def test_an_undo_brings_the_snapshots_back_whatever_becomes_of_the_reply(table: MemoryTable, step: str) -> None:
    before, rows = {s.snapshot_id for s in table.log}, table.rows()
    reclaimer = MemoryReclaimer()
    done = expire_snapshots(tools(MemoryCommitter(table), reclaimer, LATER), POLICY)
    assert done.undo_id is not None
    undone = undo_expiry(tools(MemoryCommitter(table, script=[step]), reclaimer, CountingClock()), done.undo_id)
    assert len(undone.snapshot_ids) == 3
    assert before <= {s.snapshot_id for s in table.log}
    assert (table.rows(), reclaimer.lists) == (rows, {})
    again = undo_expiry(tools(MemoryCommitter(table), reclaimer, CountingClock()), done.undo_id)
    assert (again.snapshot_ids, again.snapshot_id) == ((), undone.snapshot_id)


def test_an_undo_is_refused_after_the_grace_and_for_what_is_not_there(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    done = expire_snapshots(tools(MemoryCommitter(table), reclaimer, LATER), POLICY)
    assert done.undo_id is not None
    reclaimer.store_ms = 24 * HOUR_MS + 1
    with pytest.raises(Conflict, match="UNDO_EXPIRED"):
        undo_expiry(tools(MemoryCommitter(table), reclaimer, CountingClock()), done.undo_id)
    with pytest.raises(NotFound, match="UNDO_NOT_FOUND"):
        undo_expiry(tools(MemoryCommitter(table), reclaimer, CountingClock()), "17")
    assert len(reclaimer.lists) == 1


def test_the_undo_of_an_expiry_that_never_landed_changes_nothing(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    committer = MemoryCommitter(table, script=["dead"])
    committer.heads_left = 2
    with pytest.raises(CommitStateUnknown):
        expire_snapshots(tools(committer, reclaimer, CountingClock(seconds=3600)), POLICY)
    (undo_id,) = reclaimer.lists
    version = table.version
    assert undo_expiry(tools(MemoryCommitter(table), reclaimer, CountingClock()), undo_id).snapshot_ids == ()
    assert (table.version, reclaimer.lists) == (version, {})


@pytest.mark.parametrize("what", ["a tag of an expired snapshot", "no main"])
def test_a_ref_that_is_broken_after_the_commit_is_said_and_no_file_is_touched(table: MemoryTable, what: str) -> None:
    reclaimer, oldest = MemoryReclaimer(), table.log[0].snapshot_id
    committer = MemoryCommitter(table)

    def break_it() -> None:
        if what == "no main":
            table.head_id = None
        else:
            table.tags["made-meanwhile"] = oldest

    committer.before_look.append(break_it)
    with pytest.raises(InvariantViolated) as caught:
        expire_snapshots(tools(committer, reclaimer, LATER), replace(POLICY, grace_ms=0))
    assert (caught.value.code, caught.value.status) == ("REFS_BROKEN", 500)
    assert reclaimer.deleted == []
    assert [listed.files for listed in reclaimer.lists.values()] == [None]


def test_a_ref_that_an_expiry_took_is_named_although_the_look_after_it_fails(table: MemoryTable) -> None:
    committer, reclaimer = MemoryCommitter(table), MemoryReclaimer()
    committer.taken, committer.heads_left = ("made-meanwhile",), 2
    with pytest.raises(Conflict, match="refs made-meanwhile were made while their snapshots expired") as caught:
        expire_snapshots(tools(committer, reclaimer, LATER), POLICY)
    assert (caught.value.code, caught.value.details["undo_id"]) == ("REFS_CHANGED", *reclaimer.lists)
    assert committer.heads_left == 0


@pytest.mark.parametrize("name", ["expire", "undo", "manifests", "dangling"])
def test_row_47_a_table_that_was_made_again_is_left_alone(table: MemoryTable, name: str) -> None:
    """The name is the same, the table is not the one that was meant."""
    reclaimer = MemoryReclaimer()
    undo_id = expire_snapshots(tools(MemoryCommitter(table), reclaimer, LATER), POLICY).undo_id or ""
    committer = ReplacedMeanwhile(table)
    operations: dict[str, Callable[[], object]] = {
        "expire": lambda: expire_snapshots(tools(committer, reclaimer, LATER), POLICY),
        "undo": lambda: undo_expiry(tools(committer, reclaimer, LATER), undo_id),
        "manifests": lambda: rewrite_manifests(committer, LATER, target_size_bytes=1, run_id="r"),
        "dangling": lambda: remove_dangling_deletes(committer, LATER, run_id="r"),
    }
    with pytest.raises(Conflict) as caught:
        operations[name]()
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("TABLE_REPLACED", 409, False)
    assert (committer.attempts, list(reclaimer.lists), reclaimer.deleted) == (0, [undo_id], [])


class ReplacedMeanwhile(MemoryCommitter):
    """After the first look the table is dropped and another one, of several snapshots, is made under its name."""

    looks = 0

    def head(self) -> Head:
        self.looks += 1
        if self.looks == 2:
            self.table.make_again()
            for i in range(3):
                self.table.append("a", [i])
        return super().head()
