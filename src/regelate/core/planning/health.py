"""How healthy a table is: a score from 0 to 100, the points that it lost and why, its worst partitions, what to do.

100 less the points lost, each kind up to its most:

    files 60      the share of the files that would go: of the whole table, and of its worst partition, half each
    deletes 25    delete files per data file, at most 1: the same
    metadata 15   snapshots, manifests and bytes of metadata.json, 5 each, from what is usual to a hundred times that

Whatever is wrong makes the score fall, however much is wrong already. A file would go when a COMPACT without a file
budget would rewrite it; what it leaves is reckoned in parts of a target, so that no rounding lifts the score.

The order of partitions within a table is another one (0 well, 1 most urgent); it adds four shares, each capped at 1:

    0.3 x files / 100  +  0.3 x delete files / data files  +  0.2 x hours / 24  +  0.2 x small files / files

`hours` is the age of its oldest candidate file.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from regelate.core.planning.plan import CompactionPlan, PlanReason, plan_compaction
from regelate.core.policy.policy import MB, CompactionPolicy
from regelate.core.table.table import Partition, PartitionTotals, TableSnapshot
from regelate.core.values import dataclass

FILES_WEIGHT, DELETES_WEIGHT, AGE_WEIGHT, SMALL_WEIGHT = 0.3, 0.3, 0.2, 0.2
MANY_FILES = 100
OLD_HOURS = 24.0
HOUR_MS = 3_600_000
WORST_PARTITIONS = 10
FILES_POINTS, DELETES_POINTS, METADATA_POINTS = 60.0, 25.0, 15.0
USUAL_SNAPSHOTS, USUAL_MANIFESTS, USUAL_METADATA_BYTES = 200, 20, MB
FILES_OF_MANIFEST = 500
"""A large table may have one more manifest for so many files."""
RUINOUS = 100
"""Times what is usual."""


class Grade(StrEnum):
    """The score in a word."""

    HEALTHY = "HEALTHY"
    """80 or more."""
    WARNING = "WARNING"
    """50 or more."""
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsLost:
    """Of 100: up to 60 for files, 25 for deletes, 15 for metadata."""

    files: float = 0.0
    deletes: float = 0.0
    metadata: float = 0.0

    @property
    def total(self) -> float:
        return self.files + self.deletes + self.metadata


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
    """The state of one table: what it lost of 100 points, counts over all live files, the worst partitions first.

    `metadata_bytes` is the size of metadata.json, None where it was not looked at.
    `unreadable_manifests` are paths of delete manifests that Iceberg's Java readers fail on (trap T33: manifests that
    Java cannot read).
    """

    lost: PointsLost
    files: int
    size_bytes: int
    rows: int
    small_files: int
    candidate_files: int
    delete_files: int
    partitions: int
    manifest_count: int
    snapshot_count: int = 0
    metadata_bytes: int | None = None
    unreadable_manifests: tuple[str, ...] = ()
    size_histogram: tuple[tuple[int, int], ...]
    worst: tuple[PartitionHealth, ...]
    recommendation: str

    @property
    def score(self) -> float:
        return round(100.0 - self.lost.total, 1)

    @property
    def grade(self) -> Grade:
        return grade_of(self.score)


def grade_of(score: float) -> Grade:
    return Grade.HEALTHY if score >= 80 else Grade.WARNING if score >= 50 else Grade.CRITICAL


def assess(
    snapshot: TableSnapshot, policy: CompactionPolicy, *, now_ms: int, metadata_bytes: int | None = None
) -> HealthAssessment:
    """Return the health of one table at one snapshot, judged by the plan that COMPACT would follow."""
    plan = plan_compaction(snapshot, replace(policy, max_files=None))
    at_work = {group.partition for group in plan.groups}
    ill = tuple(_partition_health(t, now_ms) for t in snapshot.totals if t.partition in at_work)
    deletes = {t.partition: float(min(t.delete_files, t.files)) for t in snapshot.totals}
    lost = PointsLost(
        files=round(FILES_POINTS * _share(_going(plan, policy), snapshot.totals), 1),
        deletes=round(DELETES_POINTS * _share(deletes, snapshot.totals), 1),
        metadata=round(METADATA_POINTS * _metadata_share(snapshot, metadata_bytes or 0), 1),
    )
    advice = (_cure(snapshot.unreadable_manifests), _recommendation(plan), *_upkeep(snapshot, metadata_bytes or 0))
    return HealthAssessment(
        lost=lost,
        files=snapshot.file_count,
        size_bytes=snapshot.size_bytes,
        rows=snapshot.row_count,
        small_files=sum(t.small_files for t in snapshot.totals),
        candidate_files=sum(t.candidate_files for t in snapshot.totals),
        delete_files=len(snapshot.delete_files),
        partitions=len(snapshot.totals),
        manifest_count=snapshot.manifest_count,
        snapshot_count=len(snapshot.snapshots),
        metadata_bytes=metadata_bytes,
        unreadable_manifests=snapshot.unreadable_manifests,
        size_histogram=snapshot.size_histogram,
        worst=tuple(sorted(ill, key=lambda p: (-p.score, p.partition.path))[:WORST_PARTITIONS]),
        recommendation=" ".join(filter(None, advice)),
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


def _going(plan: CompactionPlan, policy: CompactionPolicy) -> dict[Partition, float]:
    """Return how many files of each partition would be gone after a COMPACT; its outputs count in parts of a target."""
    files: dict[Partition, int] = defaultdict(int)
    left: dict[Partition, float] = defaultdict(float)
    for group in plan.groups:
        files[group.partition] += len(group.tasks)
        left[group.partition] += group.expected_output_bytes / policy.target_file_size_bytes
    return {p: max(count - max(left[p], 1.0), 0.0) for p, count in files.items()}


def _share(wrong: Mapping[Partition, float], totals: Sequence[PartitionTotals]) -> float:
    """Return the share of what is wrong among the files: half of the table's, half of its worst partition's.

    A table of a year is as slow as its worst day to whoever reads that day.
    """
    files = sum(t.files for t in totals)
    if not files:
        return 0.0
    worst = max(wrong.get(t.partition, 0.0) / max(t.files, 1) for t in totals)
    return (sum(wrong.values()) / files + worst) / 2


def _metadata_share(snapshot: TableSnapshot, metadata_bytes: int) -> float:
    found = (
        _beyond(len(snapshot.snapshots), USUAL_SNAPSHOTS),
        _beyond(snapshot.manifest_count, _usual_manifests(snapshot)),
        _beyond(metadata_bytes, USUAL_METADATA_BYTES),
    )
    return sum(found) / len(found)


def _usual_manifests(snapshot: TableSnapshot) -> int:
    return USUAL_MANIFESTS + snapshot.file_count // FILES_OF_MANIFEST


def _beyond(count: int, usual: int) -> float:
    """Return 0 for what is usual, 1 for a hundred times that, and in between by its order of magnitude."""
    return min(math.log(max(count / usual, 1.0)) / math.log(RUINOUS), 1.0)


_NOTHING_TO_DO = {
    PlanReason.NO_SNAPSHOT: "Nothing to do: the table is empty.",
    PlanReason.NO_PARTITION: "Nothing to do: no partition matches the selection of the table's policy.",
    PlanReason.NO_CANDIDATE: "Nothing to do: no files could be merged, split or freed of deletes.",
    PlanReason.NO_GROUPS: "Nothing to do: rewriting the selected files would not leave fewer or better ones.",
    PlanReason.BELOW_THRESHOLD: "Nothing to do yet: too few files for the thresholds; COMPACT with force merges them.",
}


def _cure(unreadable: Sequence[str]) -> str:
    """Say first what keeps other engines from reading the table at all."""
    if not unreadable:
        return ""
    which = "1 delete manifest" if len(unreadable) == 1 else f"{len(unreadable)} delete manifests"
    return f"REWRITE_MANIFESTS: Spark, Trino and Flink fail on {which} (equality_ids written as long)."


def _upkeep(snapshot: TableSnapshot, metadata_bytes: int) -> Iterator[str]:
    """Say which metadata is more than usual, and what makes it less."""
    if len(snapshot.snapshots) > USUAL_SNAPSHOTS:
        yield f"EXPIRE_SNAPSHOTS: {len(snapshot.snapshots):,} snapshots are kept."
    if snapshot.manifest_count > _usual_manifests(snapshot):
        yield f"REWRITE_MANIFESTS: {snapshot.manifest_count:,} manifests list {snapshot.file_count:,} files."
    if metadata_bytes > USUAL_METADATA_BYTES:
        yield f"metadata.json has {metadata_bytes / MB:,.1f} MB, and every commit writes it anew."


def _recommendation(plan: CompactionPlan) -> str:
    if plan.reason in _NOTHING_TO_DO:
        return _NOTHING_TO_DO[plan.reason]
    partitions = len({group.partition for group in plan.groups})
    where = "1 partition" if partitions == 1 else f"{partitions} partitions"
    size = f"{plan.size_bytes / MB:,.1f} MB" if plan.size_bytes >= MB else f"{plan.size_bytes / 1024:,.1f} KB"
    return f"COMPACT: {plan.files} files ({size}) in {where} would become {plan.expected_output_files}."
