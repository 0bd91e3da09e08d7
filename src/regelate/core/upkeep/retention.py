"""Which snapshots and refs may go. Rules: Iceberg 1.10, `RemoveSnapshots`; the names in quotes are its methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from regelate.core.policy.policy import RetentionPolicy
from regelate.core.table.table import MAIN_BRANCH, RefKind, SnapshotEntry, SnapshotRef
from regelate.core.values import dataclass


class KeepReason(StrEnum):
    """Why a snapshot stays; the first that holds."""

    REF_HEAD = "ref-head"
    """A kept branch or tag points at it."""
    MIN_SNAPSHOTS = "min-snapshots"
    """One of the newest `min_snapshots_to_keep` of a kept branch."""
    YOUNG = "young"
    """Younger than the age limit of a kept branch that contains it."""
    UNREFERENCED_YOUNG = "unreferenced-young"
    """In no kept branch (staged, rolled back), and younger than the age limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryPlan:
    """What expiry removes, and why the rest stays; ids and names in the order of the log and of the refs."""

    snapshot_ids: tuple[int, ...]
    ref_names: tuple[str, ...]
    kept: tuple[tuple[int, KeepReason], ...]

    @property
    def is_empty(self) -> bool:
        return not self.snapshot_ids and not self.ref_names


def plan_expiry(
    snapshots: Sequence[SnapshotEntry],
    refs: Sequence[SnapshotRef],
    main_head_id: int | None,
    policy: RetentionPolicy,
    now_ms: int,
) -> ExpiryPlan:
    """Decide what expiry removes from one table.

    Refs older than their (or the policy's) maximum age go, never `main`; so do refs to a snapshot that is gone. Of each
    kept branch stay its head, its newest `min_snapshots_to_keep` and those younger than the age limit, walking back
    until the first that is neither; a ref's own limits override the policy's. A tag keeps its snapshot only, not the
    ones before it. Snapshots in no kept branch or tag stay while they are younger than the policy's limit.
    """
    log = {s.snapshot_id: s for s in snapshots}
    all_refs = _with_main(refs, main_head_id)
    kept_refs = tuple(r for r in all_refs if _ref_stays(r, log, policy, now_ms))
    kept: dict[int, KeepReason] = {r.snapshot_id: KeepReason.REF_HEAD for r in kept_refs if r.snapshot_id in log}
    referenced = set(kept)
    for ref in (r for r in kept_refs if r.kind is RefKind.BRANCH):
        referenced.update(s.snapshot_id for s in _ancestry(ref.snapshot_id, log))
        for snapshot_id, reason in _branch_keeps(ref, log, policy, now_ms):
            kept.setdefault(snapshot_id, reason)
    limit = now_ms - policy.max_snapshot_age_ms
    for entry in snapshots:
        if entry.snapshot_id not in referenced and entry.timestamp_ms >= limit:
            kept.setdefault(entry.snapshot_id, KeepReason.UNREFERENCED_YOUNG)
    kept_names = {r.name for r in kept_refs}
    return ExpiryPlan(
        snapshot_ids=tuple(s.snapshot_id for s in snapshots if s.snapshot_id not in kept),
        ref_names=tuple(r.name for r in refs if r.name not in kept_names),
        kept=tuple((s.snapshot_id, kept[s.snapshot_id]) for s in snapshots if s.snapshot_id in kept),
    )


def _with_main(refs: Sequence[SnapshotRef], main_head_id: int | None) -> tuple[SnapshotRef, ...]:
    """Add `main` where the metadata (v1, or an old writer) names only the current snapshot."""
    if main_head_id is None or any(r.name == MAIN_BRANCH for r in refs):
        return tuple(refs)
    return (*refs, SnapshotRef(name=MAIN_BRANCH, kind=RefKind.BRANCH, snapshot_id=main_head_id))


def _ref_stays(ref: SnapshotRef, log: Mapping[int, SnapshotEntry], policy: RetentionPolicy, now_ms: int) -> bool:
    """`computeRetainedRefs`: the age of a ref is the age of the snapshot it points at."""
    if ref.name == MAIN_BRANCH:
        return True
    if ref.snapshot_id not in log:
        return False
    limit = policy.max_ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    return now_ms - log[ref.snapshot_id].timestamp_ms <= limit


def _branch_keeps(
    ref: SnapshotRef, log: Mapping[int, SnapshotEntry], policy: RetentionPolicy, now_ms: int
) -> Iterator[tuple[int, KeepReason]]:
    """`computeBranchSnapshotsToRetain`: stops at the first ancestor that is neither young nor among the newest."""
    age = policy.max_snapshot_age_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
    count = policy.min_snapshots_to_keep if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
    for number, entry in enumerate(_ancestry(ref.snapshot_id, log)):
        if number < count:
            yield entry.snapshot_id, KeepReason.MIN_SNAPSHOTS
        elif entry.timestamp_ms >= now_ms - age:
            yield entry.snapshot_id, KeepReason.YOUNG
        else:
            return


def _ancestry(snapshot_id: int | None, log: Mapping[int, SnapshotEntry]) -> Iterator[SnapshotEntry]:
    """Yield a snapshot and its ancestors, newest first, as far as the log reaches."""
    seen: set[int] = set()
    while snapshot_id is not None and snapshot_id in log and snapshot_id not in seen:
        seen.add(snapshot_id)
        yield log[snapshot_id]
        snapshot_id = log[snapshot_id].parent_id
