"""One photograph of one table: files, deletes, partitions, refs. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

MAIN_BRANCH = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of one spec. Equal by spec and exact values: NaN equals NaN, -0.0 is not 0.0."""

    spec_id: int
    values: tuple[object, ...] = field(compare=False)
    path: str = field(compare=False)
    """Readable name such as `month=2013-01`; empty for an unpartitioned spec."""
    key: str = field(default="", init=False)
    source_values: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Values as people write them (`2013-01`, `null`), by partition field name and, where unique, by source column."""
    ends_at_ms: int | None = field(default=None, compare=False, repr=False)
    """End of the partition's time range (exclusive), when a time transform or an identity date gives one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", repr(self.values))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMetrics:
    """Per field id what the manifest says of one data file; bounds in Iceberg's single-value binary form."""

    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A live data file. `sequence_number` is its data sequence number (0 in v1 tables)."""

    path: str
    file_format: str
    partition: Partition
    record_count: int
    size_bytes: int
    sequence_number: int
    snapshot_id: int
    sort_order_id: int | None = None
    manifest_path: str = field(default="", compare=False, repr=False)
    """The manifest that listed it at planning: while the table still lists that manifest, the file is live."""


class DeleteContent(StrEnum):
    POSITION = "position"
    EQUALITY = "equality"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    """A live delete file. `referenced_lower` / `referenced_upper`: range of data file paths a position delete names.

    `is_global`: an equality delete written under an unpartitioned spec applies to files of every spec (trap T18:
    sequence numbers that v1 lacks).
    """

    path: str
    file_format: str
    content: DeleteContent
    partition: Partition
    record_count: int
    size_bytes: int
    sequence_number: int
    snapshot_id: int
    equality_ids: tuple[int, ...] = ()
    referenced_lower: str | None = None
    referenced_upper: str | None = None
    is_global: bool = False

    def __post_init__(self) -> None:
        if self.content is DeleteContent.EQUALITY and not self.equality_ids:
            raise ValueError(f"equality delete file {self.path} names no equality field ids")

    @property
    def exact_reference(self) -> str | None:
        """The only data file that this position delete names, when its bounds prove it."""
        return self.referenced_lower if self.referenced_lower == self.referenced_upper else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScanTask:
    """One data file and the delete files that apply to it."""

    data_file: DataFile
    deletes: tuple[DeleteFile, ...] = ()

    @property
    def table_order(self) -> tuple[int, str]:
        """Files keep the order in which they came into the table."""
        return (self.data_file.sequence_number, self.data_file.path)


class RefKind(StrEnum):
    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRef:
    name: str
    kind: RefKind
    snapshot_id: int
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEntry:
    """One snapshot of the table's metadata, as far as decisions need it."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str
    summary: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def run_id(self) -> str | None:
        return self.summary.get(RUN_ID)

    def check_request(self, request_digest: str | None) -> None:
        """Raise InvalidRequest IDEMPOTENCY_KEY_REUSED (422) where another request than this one committed it.

        Snapshots of earlier versions, and of Spark, do not say which request they were made for.
        """
        made_for = self.summary.get(REQUEST_DIGEST)
        if None not in (made_for, request_digest) and made_for != request_digest:
            raise key_reused(snapshot_id=self.snapshot_id)


TOTAL_FILES, TOTAL_BYTES = "total-data-files", "total-files-size"
"""Properties of a snapshot's summary: of the table as it left it."""
RUN_ID = "regelate.run-id"
PLAN_ID = "regelate.plan-id"
REQUEST_DIGEST = "regelate.request-digest"
SPLICED_BYTES = "regelate.spliced-bytes"
"""Summary properties of the snapshots that this service commits: whose run it was, by which plan, for which request;
how many bytes of its files were copied and not recoded."""


def told_total(summary: Mapping[str, str], name: str) -> int | None:
    """Return a total of a snapshot's summary; None where it does not say, or not as a number."""
    told = summary.get(name)
    return int(told) if told is not None and told.isascii() and told.isdigit() else None


def run_summary(run_id: str, request_digest: str | None) -> dict[str, str]:
    """Return what a snapshot's summary says of its run."""
    return {RUN_ID: run_id} if request_digest is None else {RUN_ID: run_id, REQUEST_DIGEST: request_digest}


def key_reused(**details: Any) -> InvalidRequest:
    return InvalidRequest(
        "IDEMPOTENCY_KEY_REUSED",
        "this idempotency_key was sent before with another request; send the same one again, or a key of its own",
        status=422,
        **details,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTotals:
    """Counts over ALL live files of one partition, healthy ones too."""

    partition: Partition
    files: int
    size_bytes: int
    rows: int
    delete_files: int
    candidate_files: int
    small_files: int
    oldest_candidate_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTotals:
    """Live data files, their bytes, and manifests at the head last seen."""

    files: int
    size_bytes: int
    manifests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """One table at one snapshot: the candidates whole, the healthy files only counted.

    `snapshot_id` is None for a table without a snapshot. `candidates` come in manifest order.
    `delete_references` counts, for each delete file (by path), the live data files it may apply to.
    """

    ident: str
    uuid: str
    format_version: int
    location: str
    metadata_location: str
    snapshot_id: int | None
    sequence_number: int
    timestamp_ms: int
    schema_id: int
    spec_id: int
    sort_order_id: int
    properties: Mapping[str, str] = field(default_factory=dict)
    column_types: Mapping[int, str] = field(default_factory=dict)
    """Iceberg type text by field id, for columns outside lists and maps: what verification may compare."""
    ref: str = MAIN_BRANCH
    candidates: tuple[FileScanTask, ...] = ()
    totals: tuple[PartitionTotals, ...] = ()
    size_histogram: tuple[tuple[int, int], ...] = ()
    """(upper edge in bytes, live data files below it and at or above the edge before), all live data files."""
    manifest_paths: frozenset[str] = frozenset()
    unreadable_manifests: tuple[str, ...] = ()
    """Delete manifests that Iceberg's Java readers fail on (trap T33: manifests that Java cannot read)."""
    delete_references: Mapping[str, int] = field(default_factory=dict)
    delete_files: tuple[DeleteFile, ...] = ()
    snapshots: tuple[SnapshotEntry, ...] = ()
    refs: tuple[SnapshotRef, ...] = ()

    @property
    def manifest_count(self) -> int:
        return len(self.manifest_paths)

    @property
    def file_count(self) -> int:
        return sum(t.files for t in self.totals)

    @property
    def size_bytes(self) -> int:
        return sum(t.size_bytes for t in self.totals)

    @property
    def row_count(self) -> int:
        return sum(t.rows for t in self.totals)
