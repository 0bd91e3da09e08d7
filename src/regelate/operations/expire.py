"""EXPIRE_SNAPSHOTS in two phases: decide in core, commit through the attempt loop, list what nothing reaches any more;
delete it when the grace of the list is over. Until then the expiry can be undone."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from regelate.core.policy import RetentionPolicy
from regelate.core.quarantine import Quarantine, Restoration, plan_deletion
from regelate.core.reachability import StoredFile
from regelate.core.retention import plan_expiry
from regelate.core.table import MAIN_BRANCH, RUN_ID
from regelate.errors import CommitStateUnknown, Conflict, InvariantViolated, NotFound, RegelateError
from regelate.operations.attempt import attempt
from regelate.ports import Clock, Committer, ExpiryChange, Head, Reclaimer, SnapshotChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """What a second phase deleted for good. `waiting`: lists whose grace is not over."""

    files_deleted: int = 0
    bytes_freed: int = 0
    lists: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What expiry removed. On a dry run, what it would remove; files are then not counted.

    `files_deleted` and `bytes_freed`: really gone now, of this and of earlier expiries. With a grace the files of this
    one are in quarantine: `undo_id` brings its snapshots back until `undo_until_ms`, and from `deletable_ms` on the
    next expiry, compaction or maintenance of the table deletes them (the store's time, milliseconds since the epoch).
    """

    snapshot_ids: tuple[int, ...] = ()
    ref_names: tuple[str, ...] = ()
    files_deleted: int = 0
    bytes_freed: int = 0
    files_quarantined: int = 0
    bytes_quarantined: int = 0
    undo_id: str | None = None
    undo_until_ms: int | None = None
    deletable_ms: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What an undo brought back: readable by id, and by the tag `undo-<id>` that each of them got."""

    snapshot_ids: tuple[int, ...] = ()
    snapshot_id: int | None = None


def expire_snapshots(
    committer: Committer, reclaimer: Reclaimer, clock: Clock, policy: RetentionPolicy, *, dry_run: bool = False
) -> Expired:
    """Delete what earlier expiries left to be deleted now, then expire snapshots by age, refs and the number to keep.

    Errors: NotAllowed GC_DISABLED, also when another table of the catalog shares the files; Conflict COMMIT_CONFLICT,
    REFS_CHANGED. Files are listed only after every ref was seen unharmed in the metadata that the commit left behind
    (trap T8), and deleted only by `finish_expiry`.
    """
    head = committer.head()
    reclaimer.check_allowed()
    reclaimer.check_unshared()
    if dry_run:
        change = _change(head, policy, clock.now_ms())
        return Expired(dry_run=True) if change is None else _removed(change, dry_run=True)
    return _expired(committer, reclaimer, clock, policy, head.uuid)


def expire_after_commit(committer: Committer, reclaimer: Reclaimer, clock: Clock, policy: RetentionPolicy) -> Expired:
    """Do the same without a walk through the catalog's tables, which only a physical deletion needs.

    Errors: as `expire_snapshots`.
    """
    head = committer.head()
    reclaimer.check_allowed()
    return _expired(committer, reclaimer, clock, policy, head.uuid)


def _expired(
    committer: Committer, reclaimer: Reclaimer, clock: Clock, policy: RetentionPolicy, table_uuid: str
) -> Expired:
    freed = finish_expiry(reclaimer)
    undo_id = str(committer.new_snapshot_id())
    change = _committed(committer, reclaimer, clock, policy, undo_id, table_uuid)
    if change is None:
        return Expired(files_deleted=freed.files_deleted, bytes_freed=freed.bytes_freed)
    listed = reclaimer.list_files(undo_id)
    if policy.grace_ms:
        return _removed(change, freed=freed, listed=listed)
    others = [q for q in reclaimer.quarantines() if q.undo_id != undo_id]
    (now,) = _delete_due(reclaimer, [listed], others, reclaimer.now_ms() if others else 0)
    total = Reclaimed(
        files_deleted=freed.files_deleted + now.files_deleted, bytes_freed=freed.bytes_freed + now.bytes_freed
    )
    return _removed(change, freed=total)


def _committed(
    committer: Committer, reclaimer: Reclaimer, clock: Clock, policy: RetentionPolicy, undo_id: str, table_uuid: str
) -> ExpiryChange | None:
    """Commit one expiry under a list that was recorded before; where nothing of it landed there is no list left."""
    now_ms = clock.now_ms()
    recorded: set[int] = set()

    def decide(head: Head) -> ExpiryChange | None:
        change = _change(head, policy, now_ms)
        if change is not None:
            if not recorded and not policy.grace_ms:
                reclaimer.check_unshared()
            recorded.update(change.snapshot_ids)
            reclaimer.record(undo_id, change, grace_ms=policy.grace_ms, created_ms=now_ms)
        return change

    try:
        done = attempt(committer, clock, decide, table_uuid=table_uuid)
    except CommitStateUnknown:
        raise
    except Exception:
        if recorded:
            _drop_unless_landed(committer, reclaimer, undo_id, recorded)
        raise
    change = done.landed if isinstance(done.landed, ExpiryChange) else None
    if change is None:
        if recorded:
            _drop_unless_landed(committer, reclaimer, undo_id, recorded)
        return None
    _check_refs(change, committer.head(), committer.lost_refs(change))
    return change


def _drop_unless_landed(committer: Committer, reclaimer: Reclaimer, undo_id: str, snapshot_ids: Set[int]) -> None:
    """Drop the list of an expiry that lost, unless some of its snapshots are gone: it may have landed all the same.

    A request that a proxy sent again is answered with a conflict with itself (trap T7), and an expiry has no snapshot
    to be found by. A list that names what another expiry took does no harm: the second phase goes by reachability.
    """
    try:
        listed = {s.snapshot_id for s in committer.head().snapshots}
    except RegelateError:
        return
    if snapshot_ids <= listed:
        reclaimer.drop(undo_id)


def finish_expiry(reclaimer: Reclaimer) -> Reclaimed:
    """The second phase: delete what lies in quarantine lists whose grace is over, then the lists.

    Deleted is only what the latest metadata still does not reach and no undo can still need; a list of which something
    is needed stays until that is over. Call it after the table's head was loaded. Errors: NotAllowed GC_DISABLED when
    the table forbids deletion by now, or shares its files: the lists stay then.
    """
    lists = reclaimer.quarantines()
    if not lists:
        return Reclaimed()
    reclaimer.check_allowed()
    now_ms = reclaimer.now_ms()
    due = [q for q in lists if q.is_due(now_ms)]
    if not due:
        return Reclaimed(waiting=len(lists))
    reclaimer.check_unshared()
    done = _delete_due(reclaimer, due, lists, now_ms)
    finished = sum(d.lists for d in done)
    return Reclaimed(
        files_deleted=sum(d.files_deleted for d in done),
        bytes_freed=sum(d.bytes_freed for d in done),
        lists=finished,
        waiting=len(lists) - finished,
    )


def _delete_due(
    reclaimer: Reclaimer, due: Sequence[Quarantine], lists: Sequence[Quarantine], now_ms: int
) -> list[Reclaimed]:
    """Delete the files of the due lists that nothing reaches and no undo can still need; `now_ms` is the store's time.

    The other lists are looked at before the table is and once more afterwards: an undo brings its snapshots back and
    then drops its list, an expiry writes its list and then takes the snapshots.
    """
    done = {q.undo_id for q in due}
    needed = _needed(reclaimer, [q for q in lists if q.undo_id not in done], now_ms)
    left = [reclaimer.unreachable(listed) for listed in due]
    needed |= _needed(reclaimer, [q for q in reclaimer.quarantines() if q.undo_id not in done], now_ms)
    return [_delete(reclaimer, listed, files, needed) for listed, files in zip(due, left, strict=True)]


def _needed(reclaimer: Reclaimer, lists: Sequence[Quarantine], now_ms: int) -> frozenset[str]:
    undoable = [q for q in lists if not q.is_due(now_ms)]
    return reclaimer.needed(undoable) if undoable else frozenset()


def _delete(reclaimer: Reclaimer, listed: Quarantine, left: Sequence[StoredFile], needed: Collection[str]) -> Reclaimed:
    planned = plan_deletion(left, needed)
    deleted = reclaimer.delete(planned)
    finished = len(planned) == len(left)
    if finished:
        reclaimer.drop(listed.undo_id)
    return Reclaimed(files_deleted=len(deleted), bytes_freed=sum(f.size_bytes for f in deleted), lists=int(finished))


def undo_expiry(committer: Committer, reclaimer: Reclaimer, clock: Clock, undo_id: str) -> Undone:
    """Bring back the snapshots, refs and statistics files of one expiry, in one `replace` snapshot that changes no row.

    Errors: NotFound UNDO_NOT_FOUND when there is no such expiry of this table, or its files are deleted; Conflict
    UNDO_EXPIRED when its grace is over, by the store's clock. Repeating it after it has landed is no fault.
    """
    run_id = f"undo:{undo_id}"
    head = committer.head()
    reclaimer.check_allowed()
    earlier = head.run(run_id)
    if earlier is not None:
        reclaimer.drop(undo_id)
        return Undone(snapshot_id=earlier.snapshot_id)
    found = next((q for q in reclaimer.quarantines() if q.undo_id == undo_id), None)
    if found is None or not found.grace_ms:
        raise NotFound(
            "UNDO_NOT_FOUND", "this table has no such expiry to undo; after its grace its files are deleted for good"
        )
    restoration = reclaimer.restoration(undo_id)

    def decide(head: Head) -> SnapshotChange | None:
        """Look at the clock before every attempt: the files go a while after the grace, and with them the way back."""
        _check_grace(reclaimer, found)
        return _restoring(committer, head, restoration, run_id)

    done = attempt(committer, clock, decide, run_id=run_id, table_uuid=head.uuid)
    reclaimer.drop(undo_id)
    back = done.landed.restored if isinstance(done.landed, SnapshotChange) else None
    return Undone(snapshot_ids=back.snapshot_ids if back else (), snapshot_id=done.snapshot_id)


def _check_grace(reclaimer: Reclaimer, listed: Quarantine) -> None:
    if reclaimer.now_ms() > listed.undo_until_ms:
        raise Conflict(
            "UNDO_EXPIRED",
            "the grace of this expiry is over, and its files may be gone; a backup is the only way back",
            retryable=False,
            undo_until_ms=listed.undo_until_ms,
        )


def _restoring(committer: Committer, head: Head, wanted: Restoration, run_id: str) -> SnapshotChange | None:
    """Bring back what the head does not have; None where nothing is missing, because the expiry never landed."""
    listed = {s.snapshot_id for s in head.snapshots}
    missing = tuple((i, text) for i, text in wanted.snapshots if i not in listed)
    if not missing:
        return None
    if head.snapshot_id is None:
        raise Conflict("UNDO_EXPIRED", "the table's main branch is empty; roll it back first", retryable=False)
    return SnapshotChange(
        operation="replace",
        snapshot_id=committer.new_snapshot_id(),
        summary={RUN_ID: run_id},
        restored=Restoration(
            snapshots=missing,
            refs=wanted.refs,
            statistics=wanted.statistics,
            partition_statistics=wanted.partition_statistics,
        ),
    )


def _change(head: Head, policy: RetentionPolicy, now_ms: int) -> ExpiryChange | None:
    plan = plan_expiry(head.snapshots, head.refs, head.snapshot_id, policy, now_ms)
    if not plan.snapshot_ids and not plan.ref_names:
        return None
    return ExpiryChange(snapshot_ids=plan.snapshot_ids, ref_names=plan.ref_names, expected_refs=head.refs)


def _check_refs(change: ExpiryChange, head: Head, taken: tuple[str, ...]) -> None:
    if taken:
        raise Conflict(
            "REFS_CHANGED",
            f"refs {', '.join(taken)} were made while their snapshots expired, and went with them; no file was "
            "deleted: register the metadata before this commit to get them back",
            retryable=False,
            refs=list(taken),
        )
    live = {s.snapshot_id for s in head.snapshots}
    broken = [r.name for r in head.refs if r.snapshot_id not in live]
    names = {r.name for r in head.refs}
    lost = [r.name for r in change.expected_refs if r.name not in names and r.name not in change.ref_names]
    if broken or (MAIN_BRANCH in lost):
        raise InvariantViolated(
            "REFS_BROKEN",
            f"after expiry refs {broken + lost} have no snapshot; no file was deleted",
            refs=broken + lost,
        )


def _removed(
    change: ExpiryChange, *, freed: Reclaimed | None = None, listed: Quarantine | None = None, dry_run: bool = False
) -> Expired:
    freed = freed or Reclaimed()
    quarantined = listed.files if listed is not None and listed.files else ()
    return Expired(
        snapshot_ids=change.snapshot_ids,
        ref_names=change.ref_names,
        files_deleted=freed.files_deleted,
        bytes_freed=freed.bytes_freed,
        files_quarantined=len(quarantined),
        bytes_quarantined=sum(f.size_bytes for f in quarantined),
        undo_id=listed.undo_id if listed is not None else None,
        undo_until_ms=listed.undo_until_ms if listed is not None else None,
        deletable_ms=listed.deletable_ms if listed is not None else None,
        dry_run=dry_run,
    )
