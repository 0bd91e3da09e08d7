"""What is answered of tables: as names, their rows, and their health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from regelate.core.answers.json import LEFT_OUT, Json
from regelate.core.planning.health import Grade, PointsLost
from regelate.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheckAnswer:
    version: str
    environment: str
    catalog_reachable: bool
    engines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableAnswer:
    """`created` is false where `if_not_exists` found the same table."""

    created: bool
    table_uuid: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchemaAnswer:
    fields: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableAnswer:
    """The table after it, as DESCRIBE_TABLE tells it. `changed` is false where it was so already."""

    changed: bool
    schema: TableSchemaAnswer
    partition_spec: tuple[Mapping[str, Json], ...]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTableAnswer:
    """`schema`, `partition_spec` and `sort_order` have the form that CREATE_TABLE takes."""

    table: str
    table_uuid: str
    location: str
    format_version: int
    schema: TableSchemaAnswer
    partition_spec: tuple[Mapping[str, Json], ...]
    sort_order: tuple[Mapping[str, Json], ...]
    properties: Mapping[str, str]
    snapshot_id: int | None
    snapshot_count: int
    refs: tuple[Mapping[str, Json], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNamespacesAnswer:
    """Sorted, and named as requests name them."""

    namespaces: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTablesAnswer:
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTableAnswer:
    dropped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAnswer:
    """`small_files_count` is null between two checks; `snapshot_id` is null where nothing was committed.

    `already_done`: the same `idempotency_key` had landed before, as this snapshot; this request added no row. With
    `compaction.auto`: the job that was submitted, or how the COMPACT ended (its status, or the code of its error; also
    of why nobody could look for small files).

    With `regelate.write.optimized`: the small files that this commit took along, and the code of the error because of
    which some were left alone.
    """

    records_written: int
    snapshot_id: int | None
    compaction_recommended: bool
    small_files_count: int | None
    already_done: bool
    compaction_job_id: str | None
    compaction_status: str | None
    files_taken_along: int
    bytes_taken_along: int
    optimized_write_fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumn:
    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """One object per row, by column name. `truncated`: the limit on rows cut the result. Where they are too large for
    an answer, `rows` is empty: GET `result_url` for `row_count` lines of JSON, until `result_expires_at`."""

    columns: tuple[ResultColumn, ...]
    rows: Sequence[Mapping[str, Json]] = field(metadata={"is_json": True})
    row_count: int
    truncated: bool
    snapshot_id: int | None
    query_time_ms: float
    result_url: str | None = field(default=None, metadata=LEFT_OUT)
    result_expires_at: str | None = field(default=None, metadata=LEFT_OUT)
    result_bytes: int | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealthAnswer:
    """`score` 0-100, 100 less what is lost; `explained` has one reason per data file, if asked."""

    score: float
    grade: Grade
    points_lost: PointsLost
    files: int
    size_bytes: int
    rows: int
    small_files: int
    candidate_files: int
    delete_files: int
    partitions: int
    manifest_count: int
    snapshot_count: int
    metadata_bytes: int | None
    unreadable_manifests: tuple[str, ...]
    size_histogram: tuple[Mapping[str, Json], ...]
    worst_partitions: tuple[Mapping[str, Json], ...]
    recommendation: str
    explained: tuple[Mapping[str, Json], ...] | None = field(default=None, metadata=LEFT_OUT)
