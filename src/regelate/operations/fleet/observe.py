"""One look at one table, by its metadata alone: what a fleet decides by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from regelate.core.fleet.observation import TableObservation
from regelate.core.fleet.overrides import fleet_properties
from regelate.core.planning.health import assess
from regelate.core.planning.plan import plan_compaction
from regelate.core.policy.policy import CompactionPolicy, RetentionPolicy
from regelate.core.table.table import SnapshotEntry, SnapshotRef, TableSnapshot, told_total
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from regelate.core.upkeep.manifests import ManifestSummary, plan_manifest_rewrite
from regelate.core.upkeep.retention import plan_expiry
from regelate.core.values import dataclass

OURS = frozenset({"replace"})
"""Commits that write no row: what a compaction does is no reason for the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The table's names, who else looks after it, and the policies that it is judged by."""

    catalog: str
    ident: str
    tenant: str
    managed_by: str | None
    compaction: CompactionPolicy
    retention: RetentionPolicy
    manifest_target_bytes: int


def observe(
    snapshot: TableSnapshot,
    manifests: Sequence[ManifestSummary],
    seen: Observed,
    *,
    now_ms: int,
    metadata_bytes: int | None,
) -> TableObservation:
    """Return what one table is at one snapshot, read by `seen.compaction`: what each operation would find to do.

    `manifests`: as the list of that snapshot names them.
    """
    policy = replace(seen.compaction, max_files=None)
    plan = plan_compaction(snapshot, policy)
    health = assess(snapshot, policy, now_ms=now_ms, metadata_bytes=metadata_bytes)
    deleting = [task for task in snapshot.candidates if task.deletes]
    rewrites = plan_manifest_rewrite(manifests, seen.manifest_target_bytes)
    found = TableObservation(
        table_uuid=snapshot.uuid,
        catalog=seen.catalog,
        ident=seen.ident,
        tenant=seen.tenant,
        observed_ms=now_ms,
        metadata_location=snapshot.metadata_location,
        snapshot_id=snapshot.snapshot_id,
        files=snapshot.file_count,
        size_bytes=snapshot.size_bytes,
        small_files=health.small_files,
        candidate_files=plan.files,
        candidate_bytes=plan.size_bytes,
        files_after=snapshot.file_count - plan.files + plan.expected_output_files,
        delete_files=len(snapshot.delete_files),
        delete_rows=sum(f.record_count for f in snapshot.delete_files),
        delete_bytes=sum(f.size_bytes for f in snapshot.delete_files),
        deleting_files=len(deleting),
        deleting_bytes=sum(task.data_file.size_bytes for task in deleting),
        manifests=len(manifests),
        manifests_after=len(manifests) - sum(len(g.paths) - g.outputs for g in rewrites),
        metadata_bytes=metadata_bytes or 0,
        partitions=len(snapshot.totals),
        managed_by=seen.managed_by,
        fleet_properties=fleet_properties(snapshot.properties),
        lost=health.lost,
    )
    return refreshed(found, snapshot.snapshots, snapshot.refs, seen.retention, now_ms=now_ms)


def refreshed(
    found: TableObservation,
    snapshots: Sequence[SnapshotEntry],
    refs: Sequence[SnapshotRef],
    retention: RetentionPolicy,
    *,
    now_ms: int,
) -> TableObservation:
    """Return an observation as of now: what passes with time alone, where the head has not moved."""
    expiry = plan_expiry(snapshots, refs, found.snapshot_id, retention, now_ms)
    commits = [s for s in snapshots if s.timestamp_ms > now_ms - DAY_MS and s.operation not in OURS]
    first = min((s.timestamp_ms for s in commits), default=now_ms)
    hours = min(max((now_ms - first) / HOUR_MS, 1.0), 24.0)
    return replace(
        found,
        observed_ms=now_ms,
        snapshots=len(snapshots),
        expirable_snapshots=len(expiry.snapshot_ids),
        commits_per_hour=round(len(commits) / hours, 3),
        files_per_hour=round(sum(map(_files_added, commits)) / hours, 3),
        commit_kinds=tuple(sorted(Counter(s.operation for s in commits).items())),
    )


def _files_added(commit: SnapshotEntry) -> int:
    """Return by how many data files a commit left more, as its summary tells."""
    added, deleted = (told_total(commit.summary, f"{what}-data-files") or 0 for what in ("added", "deleted"))
    return max(added - deleted, 0)
