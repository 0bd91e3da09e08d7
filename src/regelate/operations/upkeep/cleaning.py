"""REWRITE_MANIFESTS, dangling deletes and REMOVE_ORPHAN_FILES: each a straight line of look, decide and do."""

from __future__ import annotations

from regelate.core.running.commit import SnapshotChange
from regelate.core.table.head import Head
from regelate.core.table.table import RUN_ID
from regelate.core.upkeep.manifests import ManifestGroup, plan_manifest_rewrite
from regelate.core.upkeep.reachability import OrphanPlan, StoredFile, plan_orphans, plan_reclaim
from regelate.core.values import dataclass
from regelate.errors import Conflict
from regelate.operations.committing.attempt import attempt
from regelate.ports.clock import Clock
from regelate.ports.commit import Committer
from regelate.ports.files import OrphanFiles

ROUNDS = 3
"""Commits of one rewrite of manifests: more than one only where the first outputs came out smaller than thought."""
SHOWN_MISMATCHES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestsRewritten:
    """`replaced` manifests became `created` ones in `commits` snapshots; on a dry run, what would."""

    before: int
    after: int
    replaced: int = 0
    created: int = 0
    entries: int = 0
    snapshot_id: int | None = None
    commits: int = 0
    dry_run: bool = False


def rewrite_manifests(
    committer: Committer, clock: Clock, *, target_size_bytes: int, run_id: str, dry_run: bool = False
) -> ManifestsRewritten:
    """Write small and scattered manifests anew, clustered by partition, until there is nothing left to do.

    Planned on every head anew, so what others commit meanwhile is part of the plan. Errors: Conflict COMMIT_CONFLICT.
    """
    meant = committer.head().uuid
    before = len(committer.manifests())
    if dry_run:
        return _planned(before, plan_manifest_rewrite(committer.manifests(), target_size_bytes))
    landed: list[SnapshotChange] = []
    for number in range(ROUNDS):

        def decide(head: Head, run: str = f"{run_id}:{number}") -> SnapshotChange | None:
            groups = plan_manifest_rewrite(committer.manifests(), target_size_bytes)
            if not groups:
                return None
            return SnapshotChange(
                operation="replace",
                snapshot_id=committer.new_snapshot_id(),
                summary={RUN_ID: run},
                manifest_groups=groups,
            )

        change = attempt(committer, clock, decide, run_id=f"{run_id}:{number}", table_uuid=meant).landed
        if not isinstance(change, SnapshotChange):
            break
        landed.append(change)
    committer.head()
    groups = tuple(g for change in landed for g in change.manifest_groups)
    return ManifestsRewritten(
        before=before,
        after=len(committer.manifests()),
        replaced=sum(len(g.paths) for g in groups),
        created=sum(g.outputs for g in groups),
        entries=sum(g.entries for g in groups),
        snapshot_id=landed[-1].snapshot_id if landed else None,
        commits=len(landed),
    )


def _planned(before: int, groups: tuple[ManifestGroup, ...]) -> ManifestsRewritten:
    replaced, created = sum(len(g.paths) for g in groups), sum(g.outputs for g in groups)
    return ManifestsRewritten(
        before=before,
        after=before - replaced + created,
        replaced=replaced,
        created=created,
        entries=sum(g.entries for g in groups),
        dry_run=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DanglingRemoved:
    """Delete files that left the table, or would on a dry run; their bytes go with the snapshots that need them."""

    delete_files: int
    snapshot_id: int | None = None
    dry_run: bool = False


def remove_dangling_deletes(
    committer: Committer, clock: Clock, *, run_id: str, dry_run: bool = False
) -> DanglingRemoved:
    """Drop the delete files that apply to no live data file, in one `replace` snapshot that changes no row (law 6:
    delete files leave last).

    Rules: Iceberg's `RemoveDanglingDeletesSparkAction` (1.10) goes by the least sequence number of each partition; this
    goes by every data file, so what it drops includes that. Errors: Conflict COMMIT_CONFLICT.
    """
    meant = committer.head().uuid
    if dry_run:
        return DanglingRemoved(delete_files=len(committer.dangling_deletes()), dry_run=True)

    def decide(head: Head) -> SnapshotChange | None:
        paths = committer.dangling_deletes()
        if not paths:
            return None
        return SnapshotChange(
            operation="replace",
            snapshot_id=committer.new_snapshot_id(),
            summary={RUN_ID: run_id},
            dropped_delete_paths=paths,
        )

    change = attempt(committer, clock, decide, run_id=run_id, table_uuid=meant).landed
    if not isinstance(change, SnapshotChange):
        return DanglingRemoved(delete_files=0)
    return DanglingRemoved(delete_files=len(change.dropped_delete_paths), snapshot_id=change.snapshot_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphansRemoved:
    """The orphan files that were found, and those that were deleted: none on a dry run."""

    plan: OrphanPlan
    deleted: tuple[StoredFile, ...] = ()
    dry_run: bool = False


def remove_orphan_files(orphans: OrphanFiles, *, older_than_ms: int, dry_run: bool) -> OrphansRemoved:
    """Find the files in a table's folder that nothing reaches and that are old by the store's clock; delete them.

    The folder is listed first and metadata read afterwards, and once more if the table changed meanwhile: what a
    commit takes in between is reached. Errors: NotAllowed GC_DISABLED; Conflict PATH_MISMATCH, nothing is deleted then.
    """
    orphans.check_allowed()
    listing = orphans.listing()
    now_ms = orphans.now_ms()
    seen = orphans.refresh()
    plan = plan_orphans(
        listing,
        orphans.reachable(),
        now_ms,
        older_than_ms=older_than_ms,
        root=orphans.root,
        partition_names=orphans.partition_names,
    )
    if plan.mismatches:
        stored, reached = plan.mismatches[0]
        raise Conflict(
            "PATH_MISMATCH",
            f"{len(plan.mismatches)} stored files may be files of the table under another name, e.g. {stored} and "
            f"{reached}; nothing was deleted: find out which is meant",
            retryable=False,
            mismatches=[list(pair) for pair in plan.mismatches[:SHOWN_MISMATCHES]],
        )
    if dry_run or not plan.orphans:
        return OrphansRemoved(plan=plan, dry_run=dry_run)
    left = plan.orphans
    if orphans.refresh() != seen:
        left = plan_reclaim({f.path: f.size_bytes for f in left}, orphans.reachable())
    return OrphansRemoved(plan=plan, deleted=orphans.delete(left))
