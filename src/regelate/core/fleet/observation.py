"""What was seen of one table at one time, and whether somebody else looks after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from regelate.core.fleet.conditions import Metric
from regelate.core.planning.health import PointsLost
from regelate.core.values import dataclass

_HEALTHY = PointsLost()


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteRate:
    """Of partitions younger than `age_hours` (and older than the row before), the share overwritten within a day."""

    age_hours: float
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableObservation:
    """One table as its metadata had it at `observed_ms`, the store's time; the numbers are those of branch `main`.

    `files_after`: what would stand after a COMPACT, summed per partition, so that borders count; files that deletes
    apply to are in it as they would come out. `candidate_files` and `candidate_bytes` are what it would read.
    `deleting_files` and `deleting_bytes`: the data files that the deletes apply to. `expirable_snapshots`: those that
    the retention would let go now. `metadata_bytes`: of metadata.json. `small_manifests`: those that a rewrite of
    manifests would take, `manifests_after` what would be left of all. `fleet_properties`: `regelate.fleet.*` of the
    table, as they are. None is what nobody knows: row groups where no
    footer was read, orphans where nobody listed the folder, reads where no reader reports.
    """

    table_uuid: str
    catalog: str
    ident: str
    tenant: str
    observed_ms: int
    metadata_location: str
    snapshot_id: int | None = None
    files: int = 0
    size_bytes: int = 0
    small_files: int = 0
    candidate_files: int = 0
    candidate_bytes: int = 0
    files_after: int = 0
    row_groups: int | None = None
    row_groups_after: int | None = None
    delete_files: int = 0
    delete_rows: int = 0
    delete_bytes: int = 0
    deleting_files: int = 0
    deleting_bytes: int = 0
    snapshots: int = 0
    expirable_snapshots: int = 0
    manifests: int = 0
    manifests_after: int = 0
    metadata_bytes: int = 0
    partitions: int = 0
    orphan_files: int | None = None
    orphan_bytes: int | None = None
    commits_per_hour: float = 0.0
    files_per_hour: float = 0.0
    commit_kinds: tuple[tuple[str, int], ...] = ()
    overwrites: tuple[OverwriteRate, ...] = ()
    reads_per_day: float | None = None
    files_per_read: float | None = None
    managed_by: str | None = None
    fleet_properties: tuple[tuple[str, str], ...] = ()
    lost: PointsLost = _HEALTHY

    def __post_init__(self) -> None:
        counts = (self.files, self.candidate_files, self.files_after, self.size_bytes, self.snapshots, self.manifests)
        if min(counts) < 0 or self.commits_per_hour < 0:
            raise ValueError(f"{self.ident} was observed with a count below zero")
        if self.candidate_files > self.files:
            raise ValueError(f"{self.ident}: {self.candidate_files} of {self.files} files are candidates")

    @property
    def files_removed(self) -> int:
        """By how many files a COMPACT leaves fewer; 0 where it splits."""
        return max(self.files - self.files_after, 0)

    @property
    def score(self) -> float:
        """Return the health, 0 to 100."""
        return round(100.0 - self.lost.total, 1)


def metrics(observation: TableObservation) -> Mapping[str, float]:
    """Return what conditions of a policy may ask for, by the names that they use; sizes in bytes."""
    seen = observation
    return {
        Metric.FILES: seen.files,
        Metric.SMALL_FILES: seen.small_files,
        Metric.SMALL_FILE_RATIO: seen.small_files / seen.files if seen.files else 0.0,
        Metric.CANDIDATE_FILES: seen.candidate_files,
        Metric.DELETE_FILES: seen.delete_files,
        Metric.DELETE_ROWS: seen.delete_rows,
        Metric.BYTES: seen.size_bytes,
        Metric.SNAPSHOTS: seen.snapshots,
        Metric.MANIFESTS: seen.manifests,
        Metric.METADATA_BYTES: seen.metadata_bytes,
        Metric.PARTITIONS: seen.partitions,
        Metric.COMMITS_PER_HOUR: seen.commits_per_hour,
        Metric.HEALTH: seen.score,
    }


def other_manager(properties: Mapping[str, str], location: str, *, optimizers: Collection[str] = ()) -> str | None:
    """Name who else compacts and expires this table, by its properties and its location; None where nobody is seen.

    `optimizers`: the names of those that its catalog says are switched on, as Glue does.
    """
    bucket = location.partition("://")[2].partition("/")[0]
    if bucket.endswith("--table-s3"):
        return "Amazon S3 Tables"
    if properties.get("self-optimizing.enabled", "").strip().lower() == "true":
        return "Amoro (self-optimizing.enabled)"
    if any(name.startswith("snowflake.") for name in properties):
        return "Snowflake"
    if "delta-version" in properties or "iceberg" in properties.get("delta.universalFormat.enabledFormats", ""):
        return "Delta UniForm"
    if optimizers:
        return f"AWS Glue ({', '.join(sorted(optimizers))})"
    return None
