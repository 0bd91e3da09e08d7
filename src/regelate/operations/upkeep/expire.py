"""EXPIRE_SNAPSHOTS in two phases: decide in core, commit through the attempt loop, list what nothing reaches any more;
delete it when the grace of the list is over. Until then the expiry can be undone."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

from regelate.core.policy.policy import RetentionPolicy
from regelate.core.running.commit import ExpiryChange, SnapshotChange
from regelate.core.table.head import Head
from regelate.core.table.table import MAIN_BRANCH, RUN_ID
from regelate.core.upkeep.quarantine import Quarantine, Restoration
from regelate.core.upkeep.retention import plan_expiry
from regelate.core.values import dataclass
from regelate.errors import Conflict, InvariantViolated, NotFound, RegelateError, keeps_files
from regelate.operations.allowance import Allowance, UsedUp
from regelate.operations.committing.attempt import attempt
from regelate.operations.upkeep.reclaim import Reclaimed, delete_due, finish_expiry
from regelate.ports.clock import Clock
from regelate.ports.commit import Committer, HeadReader
from regelate.ports.files import Reclaimer

REQUESTS_TO_LIST, REQUESTS_TO_DELETE = 1000, 64
"""What an expiry in passing may ask for: the lists and manifests of what it takes, and those of all that is kept."""
CLOCKS_DIFFER_MS = 60 * 60 * 1000
LATER = "the next EXPIRE_SNAPSHOTS, MAINTAIN or SWEEP"


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
    warnings: tuple[str, ...] = ()
    """What was left for another run, and which one takes it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What an undo brought back: readable by id, and by the tag `undo-<id>` that each of them got."""

    snapshot_ids: tuple[int, ...] = ()
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryTools:
    """The ports of one table whose snapshots expire, or come back."""

    committer: Committer
    reclaimer: Reclaimer
    clock: Clock


def expire_snapshots(tools: ExpiryTools, policy: RetentionPolicy, *, dry_run: bool = False) -> Expired:
    """Delete what earlier expiries left to be deleted now, then expire snapshots by age, refs and the number to keep.

    Errors: NotAllowed GC_DISABLED, also when another table of the catalog shares the files; Conflict COMMIT_CONFLICT,
    REFS_CHANGED. Files are listed only after every ref was seen unharmed in the metadata that the commit left behind
    (trap T8: an expiry takes new refs with it), and deleted only by `finish_expiry`.
    """
    head = tools.committer.head()
    tools.reclaimer.check_allowed()
    tools.reclaimer.check_unshared()
    if dry_run:
        change = _change(head, policy, tools.clock.now_ms())
        return Expired(dry_run=True) if change is None else _removed(change, dry_run=True)
    table_uuid = head.uuid
    del head  # of a long history it is large, and the attempt looks anew
    return _expired(tools, policy, table_uuid)


def expire_after_commit(
    tools: ExpiryTools, policy: RetentionPolicy, *, table_uuid: str, until: float | None = None
) -> Expired:
    """Do the same in passing: until a time of the monotonic clock, and in few requests however long the history is.

    What does not fit is said in `warnings`. A list of files that was not completed is worked out by the second phase; a
    second phase that takes many requests is left to EXPIRE_SNAPSHOTS, MAINTAIN and SWEEP. Call it after the head was
    loaded. Errors: as `expire_snapshots`.
    """
    tools.reclaimer.check_allowed()
    listing = Allowance(tools.clock, until=until, requests=REQUESTS_TO_LIST)
    deleting = tools.reclaimer.within(Allowance(tools.clock, until=until, requests=REQUESTS_TO_DELETE).spend)
    undo_id, freed, warnings = str(tools.committer.new_snapshot_id()), Reclaimed(), list[str]()
    change, listed = None, None
    try:
        listing.spend(0)
        own = tools.reclaimer.within(listing.spend)
        change = _committed(replace(tools, reclaimer=own), policy, undo_id, table_uuid, look=lambda: listing.spend(0))
    except UsedUp as error:
        return Expired(warnings=(f"snapshots were not expired: {error.message}",))
    if change is not None:
        try:
            listed = own.list_files(undo_id)
        except UsedUp as error:
            warnings.append(f"which files the expired snapshots leave is found out by {LATER}: {error.message}")
    try:
        freed = _finish_in_passing(deleting, tools.clock, policy)
    except UsedUp as error:
        warnings.append(f"what earlier expiries left is deleted by {LATER}: {error.message}")
    except RegelateError as error:
        if change is None:
            raise
        warnings.append(f"what earlier expiries left was not deleted: {error.message}")
    if change is None:
        return Expired(files_deleted=freed.files_deleted, bytes_freed=freed.bytes_freed, warnings=tuple(warnings))
    if not policy.grace_ms:
        return replace(_removed(change, freed=freed), warnings=tuple(warnings))
    return replace(_removed(change, freed=freed, listed=listed), undo_id=undo_id, warnings=tuple(warnings))


def _finish_in_passing(reclaimer: Reclaimer, clock: Clock, policy: RetentionPolicy) -> Reclaimed:
    """The second phase, where the oldest list says that it may be time; a younger one with a shorter grace waits."""
    waiting, oldest = reclaimer.oldest()
    if policy.grace_ms and oldest is not None and oldest.deletable_ms > clock.now_ms() + CLOCKS_DIFFER_MS:
        return Reclaimed(waiting=waiting)
    return finish_expiry(reclaimer) if waiting else Reclaimed()


def _expired(tools: ExpiryTools, policy: RetentionPolicy, table_uuid: str) -> Expired:
    freed = finish_expiry(tools.reclaimer)
    undo_id = str(tools.committer.new_snapshot_id())
    change = _committed(tools, policy, undo_id, table_uuid)
    if change is None:
        return Expired(files_deleted=freed.files_deleted, bytes_freed=freed.bytes_freed)
    listed = tools.reclaimer.list_files(undo_id)
    if policy.grace_ms:
        return _removed(change, freed=freed, listed=listed)
    others = [q for q in tools.reclaimer.quarantines() if q.undo_id != undo_id]
    (now,) = delete_due(tools.reclaimer, [listed], others, tools.reclaimer.now_ms() if others else 0)
    total = Reclaimed(
        files_deleted=freed.files_deleted + now.files_deleted, bytes_freed=freed.bytes_freed + now.bytes_freed
    )
    return _removed(change, freed=total)


def _committed(
    tools: ExpiryTools,
    policy: RetentionPolicy,
    undo_id: str,
    table_uuid: str,
    look: Callable[[], None] = lambda: None,
) -> ExpiryChange | None:
    """Commit one expiry under a list that was recorded before; where nothing of it landed there is no list left.

    `look` may end it before any attempt.
    """
    now_ms = tools.clock.now_ms()
    recorded: set[int] = set()

    def decide(head: Head) -> ExpiryChange | None:
        look()
        change = _change(head, policy, now_ms)
        if change is not None:
            if not recorded and not policy.grace_ms:
                tools.reclaimer.check_unshared()
            recorded.update(change.snapshot_ids)
            tools.reclaimer.record(undo_id, change, grace_ms=policy.grace_ms, created_ms=now_ms)
        return change

    try:
        done = attempt(tools.committer, tools.clock, decide, table_uuid=table_uuid)
    except Exception as error:
        if recorded and not keeps_files(error):
            _drop_unless_landed(tools.committer, tools.reclaimer, undo_id, recorded)
        raise
    change = done.landed if isinstance(done.landed, ExpiryChange) else None
    if change is None:
        if recorded:
            _drop_unless_landed(tools.committer, tools.reclaimer, undo_id, recorded)
        return None
    _check_taken(tools.committer.lost_refs(change, done.head_before.metadata_location), undo_id)  # a look may fail
    _check_refs(change, tools.committer.head())
    return change


def _drop_unless_landed(heads: HeadReader, reclaimer: Reclaimer, undo_id: str, snapshot_ids: Set[int]) -> None:
    """Drop the list of an expiry that lost, unless some of its snapshots are gone: it may have landed all the same.

    A request that a proxy sent again is answered with a conflict with itself (trap T7: a landed commit is cleaned up),
    and an expiry has no snapshot to be found by. A list that names what another expiry took does no harm: the second
    phase goes by reachability.
    """
    try:
        listed = {s.snapshot_id for s in heads.head().snapshots}
    except RegelateError:
        return
    if snapshot_ids <= listed:
        reclaimer.drop(undo_id)


def undo_expiry(tools: ExpiryTools, undo_id: str) -> Undone:
    """Bring back the snapshots, refs and statistics files of one expiry, in one `replace` snapshot that changes no row.

    Errors: NotFound UNDO_NOT_FOUND when there is no such expiry of this table, or its files are deleted; Conflict
    UNDO_EXPIRED when its grace is over, by the store's clock. Repeating it after it has landed is no fault.
    """
    run_id = f"undo:{undo_id}"
    head = tools.committer.head()
    tools.reclaimer.check_allowed()
    earlier = head.any_run(run_id)
    if earlier is not None:
        tools.reclaimer.drop(undo_id)
        return Undone(snapshot_id=earlier.snapshot_id)
    found = next((q for q in tools.reclaimer.quarantines() if q.undo_id == undo_id), None)
    if found is None or not found.grace_ms:
        raise NotFound(
            "UNDO_NOT_FOUND", "this table has no such expiry to undo; after its grace its files are deleted for good"
        )
    restoration = tools.reclaimer.restoration(undo_id)

    def decide(head: Head) -> SnapshotChange | None:
        """Look at the clock before every attempt: the files go a while after the grace, and with them the way back.

        It is looked at once more when the attempt is sent: a machine may be suspended in between.
        """
        judged_ms = _check_grace(tools.reclaimer, found)
        change = _restoring(tools.committer, head, restoration, run_id)
        return change and replace(change, send_within_ms=found.send_allowance_ms(judged_ms))

    done = attempt(tools.committer, tools.clock, decide, run_id=run_id, table_uuid=head.uuid)
    tools.reclaimer.drop(undo_id)
    back = done.landed.restored if isinstance(done.landed, SnapshotChange) else None
    return Undone(snapshot_ids=back.snapshot_ids if back else (), snapshot_id=done.snapshot_id)


def _check_grace(reclaimer: Reclaimer, listed: Quarantine) -> int:
    """Return the store's time. Errors: Conflict UNDO_EXPIRED."""
    now_ms = reclaimer.now_ms()
    if now_ms > listed.undo_until_ms:
        raise Conflict(
            "UNDO_EXPIRED",
            "the grace of this expiry is over, and its files may be gone; a backup is the only way back",
            retryable=False,
            undo_until_ms=listed.undo_until_ms,
        )
    return now_ms


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
    plan = plan_expiry(head.snapshots, head.refs, head.main_id, policy, now_ms)
    if not plan.snapshot_ids and not plan.ref_names:
        return None
    return ExpiryChange(snapshot_ids=plan.snapshot_ids, ref_names=plan.ref_names, expected_refs=head.refs)


def _check_taken(taken: tuple[str, ...] | None, undo_id: str) -> None:
    if taken is None or taken:
        told = (
            "the metadata before this expiry is lost or cannot be read: whether a tag or branch made meanwhile went "
            "with its snapshots nobody can say"
            if taken is None
            else f"refs {', '.join(taken)} were made while their snapshots expired, and went with them"
        )
        raise Conflict(
            "REFS_CHANGED",
            f"{told}; no file was deleted: undo the expiry within its grace and make the refs again, or register the "
            "metadata before this commit",
            retryable=False,
            refs=list(taken or ()),
            undo_id=undo_id,
        )


def _check_refs(change: ExpiryChange, head: Head) -> None:
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
