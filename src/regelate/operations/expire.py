"""EXPIRE_SNAPSHOTS: decide in core, commit through the attempt loop, then delete what no ref reaches any more."""

from __future__ import annotations

from dataclasses import dataclass

from regelate.core.policy import RetentionPolicy
from regelate.core.retention import plan_expiry
from regelate.core.table import MAIN_BRANCH
from regelate.errors import Conflict, InvariantViolated
from regelate.operations.attempt import attempt
from regelate.ports import Clock, Committer, ExpiryChange, Head, Reclaimer


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What expiry removed. On a dry run, what it would remove; files are then not counted."""

    snapshot_ids: tuple[int, ...] = ()
    ref_names: tuple[str, ...] = ()
    files_deleted: int = 0
    bytes_freed: int = 0
    dry_run: bool = False


def expire_snapshots(
    committer: Committer, reclaimer: Reclaimer, clock: Clock, policy: RetentionPolicy, *, dry_run: bool = False
) -> Expired:
    """Expire snapshots by age, refs and the number to keep.

    Errors: NotAllowed GC_DISABLED; Conflict COMMIT_CONFLICT. Files are deleted only after every ref was seen unharmed
    in the metadata that the commit left behind (trap T8).
    """
    reclaimer.check_allowed()
    now_ms = clock.now_ms()
    if dry_run:
        change = _change(committer.head(), policy, now_ms)
        return Expired(dry_run=True) if change is None else _removed(change, dry_run=True)
    done = attempt(committer, clock, lambda head: _change(head, policy, now_ms))
    change = done.landed if isinstance(done.landed, ExpiryChange) else None
    if change is None:
        return Expired()
    _check_refs(change, committer.head(), committer.lost_refs(change))
    files, size = reclaimer.reclaim(change.snapshot_ids)
    return _removed(change, files=files, size=size)


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


def _removed(change: ExpiryChange, *, files: int = 0, size: int = 0, dry_run: bool = False) -> Expired:
    return Expired(
        snapshot_ids=change.snapshot_ids,
        ref_names=change.ref_names,
        files_deleted=files,
        bytes_freed=size,
        dry_run=dry_run,
    )
