"""How healthy a table is: a score from 0 to 100, its worst partitions, and what to do.

The score of a partition (0 well, 1 most urgent) adds four shares, each capped at 1:

    0.3 x files / 100  +  0.3 x delete files / data files  +  0.2 x hours / 24  +  0.2 x small files / files

`hours` is the age of its oldest candidate file. The table's health is 100 x (1 - mean of the scores over the partitions
that have work), each weighted by the average of its share of their bytes and its share of their files. A partition has
work when a COMPACT without a file budget would rewrite something of it; a table without such a partition is 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regelate.core.planning.plan import CompactionPlan, PlanReason, plan_compaction
from regelate.core.policy.policy import MB, CompactionPolicy
from regelate.core.table.table import Partition, PartitionTotals, TableSnapshot

FILES_WEIGHT, DELETES_WEIGHT, AGE_WEIGHT, SMALL_WEIGHT = 0.3, 0.3, 0.2, 0.2
MANY_FILES = 100
OLD_HOURS = 24.0
HOUR_MS = 3_600_000
WORST_PARTITIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One partition that has work; `score` from 0 (well) to 1 (urgent), `hours` the age of its oldest candidate."""

    partition: Partition
    score: float
    files: int
    size_bytes: int
    small_files: int
    candidate_files: int
    delete_files: int
    hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthAssessment:
    """The state of one table: `score` 0 to 100, counts over all live files, the worst partitions first.

    `unreadable_manifests` are paths of delete manifests that Iceberg's Java readers fail on (trap T33: manifests that
    Java cannot read).
    """

    score: float
    files: int
    size_bytes: int
    rows: int
    small_files: int
    candidate_files: int
    delete_files: int
    partitions: int
    manifest_count: int
    unreadable_manifests: tuple[str, ...] = ()
    size_histogram: tuple[tuple[int, int], ...]
    worst: tuple[PartitionHealth, ...]
    recommendation: str


def assess(snapshot: TableSnapshot, policy: CompactionPolicy, *, now_ms: int) -> HealthAssessment:
    """Return the health of one table at one snapshot, judged by the plan that COMPACT would follow."""
    plan = plan_compaction(snapshot, replace(policy, max_files=None))
    at_work = {group.partition for group in plan.groups}
    ill = tuple(_partition_health(t, now_ms) for t in snapshot.totals if t.partition in at_work)
    return HealthAssessment(
        score=round(100.0 * (1.0 - _mean_score(ill)), 1),
        files=snapshot.file_count,
        size_bytes=snapshot.size_bytes,
        rows=snapshot.row_count,
        small_files=sum(t.small_files for t in snapshot.totals),
        candidate_files=sum(t.candidate_files for t in snapshot.totals),
        delete_files=len(snapshot.delete_files),
        partitions=len(snapshot.totals),
        manifest_count=snapshot.manifest_count,
        unreadable_manifests=snapshot.unreadable_manifests,
        size_histogram=snapshot.size_histogram,
        worst=tuple(sorted(ill, key=lambda p: (-p.score, p.partition.path))[:WORST_PARTITIONS]),
        recommendation=_cure(snapshot.unreadable_manifests) + _recommendation(plan),
    )


def partition_score(totals: PartitionTotals, *, hours: float) -> float:
    """Return the urgency of one partition, 0 to 1, by the formula above."""
    files = max(totals.files, 1)
    return (
        FILES_WEIGHT * min(totals.files / MANY_FILES, 1.0)
        + DELETES_WEIGHT * min(totals.delete_files / files, 1.0)
        + AGE_WEIGHT * min(max(hours, 0.0) / OLD_HOURS, 1.0)
        + SMALL_WEIGHT * totals.small_files / files
    )


def _partition_health(totals: PartitionTotals, now_ms: int) -> PartitionHealth:
    oldest = totals.oldest_candidate_ms
    hours = 0.0 if oldest is None else max(now_ms - oldest, 0) / HOUR_MS
    return PartitionHealth(
        partition=totals.partition,
        score=round(partition_score(totals, hours=hours), 4),
        files=totals.files,
        size_bytes=totals.size_bytes,
        small_files=totals.small_files,
        candidate_files=totals.candidate_files,
        delete_files=totals.delete_files,
        hours=round(hours, 2),
    )


def _mean_score(partitions: Sequence[PartitionHealth]) -> float:
    files = sum(p.files for p in partitions)
    size = sum(p.size_bytes for p in partitions)
    if not files:
        return 0.0
    weights = [(p.files / files + (p.size_bytes / size if size else p.files / files)) / 2 for p in partitions]
    return sum(weight * p.score for weight, p in zip(weights, partitions, strict=True))


_NOTHING_TO_DO = {
    PlanReason.NO_SNAPSHOT: "Nothing to do: the table is empty.",
    PlanReason.NO_CANDIDATE: "Nothing to do: no files could be merged, split or freed of deletes.",
    PlanReason.NO_GROUPS: "Nothing to do: rewriting the selected files would not leave fewer or better ones.",
    PlanReason.BELOW_THRESHOLD: "Nothing to do yet: too few files for the thresholds; COMPACT with force merges them.",
}


def _cure(unreadable: Sequence[str]) -> str:
    """Say first what keeps other engines from reading the table at all."""
    if not unreadable:
        return ""
    which = "1 delete manifest" if len(unreadable) == 1 else f"{len(unreadable)} delete manifests"
    return f"REWRITE_MANIFESTS: Spark, Trino and Flink fail on {which} (equality_ids written as long). "


def _recommendation(plan: CompactionPlan) -> str:
    if plan.reason in _NOTHING_TO_DO:
        return _NOTHING_TO_DO[plan.reason]
    partitions = len({group.partition for group in plan.groups})
    where = "1 partition" if partitions == 1 else f"{partitions} partitions"
    size = f"{plan.size_bytes / MB:,.1f} MB" if plan.size_bytes >= MB else f"{plan.size_bytes / 1024:,.1f} KB"
    return f"COMPACT: {plan.files} files ({size}) in {where} would become {plan.expected_output_files}."
