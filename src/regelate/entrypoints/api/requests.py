"""Every request that exists, as a strict model; what is not built is absent here and so in openapi.json.

`records` pass through untouched: the row writer judges them against the table's own schema.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from regelate.core.answers import Step
from regelate.core.jobs.spark_job import STRATEGIES, ZORDER
from regelate.core.policy.policy import Selection, Verify
from regelate.core.requests import ENGINES_ASKED_FOR, MissingColumns, Requested, WriteMode
from regelate.entrypoints.api.fields import (
    Direction,
    Filter,
    IcebergOptions,
    Identifier,
    Long,
    Megabytes,
    Name,
    PartitionFilter,
    Records,
    Token,
)
from regelate.entrypoints.api.fleet_requests import (
    FleetApply,
    FleetHistory,
    FleetPlan,
    FleetScan,
    FleetStatusOf,
    ReportMetrics,
)
from regelate.entrypoints.api.job_requests import JobCancel, JobStatus, ListJobs, NotifyCommit, Sweep
from regelate.entrypoints.api.ref_requests import CreateTag, DropTag, Rollback
from regelate.entrypoints.api.request_base import NamespaceRequest, Request, Strict, TableRequest
from regelate.errors import InvalidRequest
from regelate.settings.section import OneOf

StepName = Annotated[str, OneOf(*Step)]
"""The steps of MAINTAIN, in their order."""

BRANCH = "An existing branch to work on in place of main, which does not move."


class FieldDefinition(Strict):
    """One column: an Iceberg type, or `struct` with `fields`, `list` with `element`, `map` with `key` and `value`."""

    type: str
    required: bool = False
    doc: str | None = None
    fields: dict[str, FieldDefinition] | None = None
    element: FieldDefinition | None = None
    key: FieldDefinition | None = None
    value: FieldDefinition | None = None


class SchemaDefinition(Strict):
    """The columns in their order, by name."""

    fields: dict[str, FieldDefinition]


class PartitionFieldDefinition(Strict):
    source: str
    transform: str
    name: str | None = None


class SortDefinition(Strict):
    """`nulls` unset: first when ascending, last when descending, as in Iceberg."""

    column: Name
    direction: Direction = "asc"
    nulls: Literal["nulls-first", "nulls-last"] | None = None


class Aggregate(Strict):
    function: Literal["count", "count_distinct", "sum", "avg", "min", "max"]
    column: Name | None = None
    name: Name | None = Field(default=None, alias="as")


class OrderBy(Strict):
    column: Name
    direction: Direction = "asc"
    nulls: Literal["first", "last"] | None = None


class HealthCheck(Request):
    operation: Literal["HEALTH_CHECK"]


class CreateTable(TableRequest):
    operation: Literal["CREATE_TABLE"]
    table_schema: SchemaDefinition = Field(alias="schema")
    partition_spec: list[PartitionFieldDefinition] = Field(default_factory=list)
    sort_order: list[SortDefinition] = Field(default_factory=list)
    properties: dict[str, str] = Field(default_factory=dict)
    if_not_exists: bool = False


class ColumnDefinition(Strict):
    """What a column becomes: a wider type, `required` false, another doc. One of them at least."""

    type: str | None = None
    required: bool | None = None
    doc: str | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> ColumnDefinition:
        if self.type is None and self.required is None and self.doc is None:
            message = "alter_columns: say what the column becomes, by type, required or doc"
            raise InvalidRequest("MISSING_FIELD", message, field="alter_columns")
        return self


class AlterTable(TableRequest):
    """All changes in one commit. Columns are named by their path (`address.zip`), as they are called before it."""

    operation: Literal["ALTER_TABLE"]
    set_properties: dict[str, str] = Field(default_factory=dict)
    unset_properties: list[str] = Field(default_factory=list)
    add_columns: dict[str, FieldDefinition] = Field(default_factory=dict)
    drop_columns: list[Name] = Field(default_factory=list)
    rename_columns: dict[str, Name] = Field(default_factory=dict)
    alter_columns: dict[str, ColumnDefinition] = Field(default_factory=dict)
    add_partition_fields: list[PartitionFieldDefinition] = Field(default_factory=list)
    drop_partition_fields: list[Name] = Field(default_factory=list)
    rename_partition_fields: dict[str, Name] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _changes_something(self) -> AlterTable:
        changes = [name for name in AlterTable.model_fields if name.endswith(("_properties", "_columns", "_fields"))]
        if not any(getattr(self, name) for name in changes):
            message = f"set_properties: name something to change: {', '.join(changes)}"
            raise InvalidRequest("MISSING_FIELD", message, field="set_properties")
        return self


class DescribeTable(TableRequest):
    operation: Literal["DESCRIBE_TABLE"]


class ListNamespaces(Request):
    operation: Literal["LIST_NAMESPACES"]
    tenant_id: str
    catalog: str | None = None


class ListTables(NamespaceRequest):
    operation: Literal["LIST_TABLES"]


class DropTable(TableRequest):
    operation: Literal["DROP_TABLE"]
    purge: bool = False


class Write(TableRequest):
    """`key` names the columns by which `upsert` finds the rows to replace. No records: nothing is committed."""

    operation: Literal["WRITE"]
    records: Records
    mode: Annotated[str, OneOf(*WriteMode)] = WriteMode.APPEND.value
    key: list[Name] | None = None
    missing_columns: Annotated[str, OneOf(*MissingColumns)] | None = Field(
        default=None,
        description="Of an upsert, what becomes of a column that a record does not name: null (also when this is left "
        "out), or keep, the value that is stored for its key.",
    )
    idempotency_key: Identifier | None = None
    ref: Name | None = Field(default=None, description=BRANCH)

    @model_validator(mode="after")
    def _key_belongs_to_upsert(self) -> Write:
        if self.mode == WriteMode.UPSERT and not self.key:
            raise InvalidRequest("MISSING_FIELD", "key: upsert needs the columns that identify a row", field="key")
        if self.key is not None and len(set(self.key)) < len(self.key):
            raise InvalidRequest("INVALID_FIELD", "key: names a column twice", field="key")
        if self.mode != WriteMode.UPSERT and self.key is not None:
            raise InvalidRequest("INVALID_FIELD", f"key: mode {self.mode} uses none; did you mean upsert?", field="key")
        if self.mode != WriteMode.UPSERT and self.missing_columns is not None:
            message = f"missing_columns: mode {self.mode} replaces no row by key; it is for upsert"
            raise InvalidRequest("INVALID_FIELD", message, field="missing_columns")
        return self


class Query(TableRequest):
    """Either the structured fields or `sql`: one SELECT over the table, named `t`, `table` or `namespace.table`. With
    both `limit` is the most rows of the answer."""

    operation: Literal["QUERY"]
    columns: list[Name] | None = None
    filter: Filter | None = None
    aggregates: list[Aggregate] | None = None
    group_by: list[Name] | None = None
    order_by: list[OrderBy] | None = None
    limit: int | None = Field(default=None, ge=0)
    offset: int | None = Field(default=None, ge=0)
    sql: Name | None = None
    snapshot_id: Long | None = None
    as_of: str | int | None = Field(default=None, description="ISO timestamp, or milliseconds since the epoch.")
    ref: Name | None = Field(default=None, description="A branch or tag to read; it is never written.")

    @model_validator(mode="after")
    def _one_form(self) -> Query:
        structured = ("columns", "filter", "aggregates", "group_by", "order_by", "offset")
        clashing = [name for name in structured if self.sql is not None and getattr(self, name) is not None]
        if clashing:
            raise InvalidRequest("INVALID_FIELD", f"sql: cannot be combined with {', '.join(clashing)}", field="sql")
        if self.snapshot_id is not None and self.as_of is not None:
            raise InvalidRequest("INVALID_FIELD", "as_of: cannot be combined with snapshot_id", field="as_of")
        if self.ref is not None and (self.snapshot_id, self.as_of) != (None, None):
            raise InvalidRequest("INVALID_FIELD", "ref: cannot be combined with snapshot_id or as_of", field="ref")
        return self


class Compact(TableRequest):
    """What is unset comes from the table's properties, then config.json, then Iceberg's defaults."""

    operation: Literal["COMPACT"]
    force: bool = False
    target_file_size_mb: Megabytes | None = None
    max_files: int | None = Field(default=None, ge=1)
    partition_filter: PartitionFilter | None = None
    where: Name | None = None
    strategy: Annotated[str, OneOf(*STRATEGIES)] | None = None
    selection: Annotated[str, OneOf(*Selection)] | None = None
    sort_order: list[SortDefinition] | None = Field(default=None, min_length=1)
    engine: Annotated[str, OneOf(*ENGINES_ASKED_FOR)] | None = Field(
        default=None, description="auto leaves to Spark what is too large for a worker, and what only Spark can do."
    )
    expire_snapshots: bool = True
    snapshot_retention_hours: float | None = None
    dry_run: bool = False
    plan_id: Identifier | None = None
    options: IcebergOptions | None = None
    verify: Annotated[str, OneOf(*Verify)] | None = Field(
        default=None, description="How the rewrite is proven before its commit; strict compares every value."
    )
    max_cost: float | None = Field(
        default=None, gt=0, description="US dollars: a run with a higher estimate is refused, and nothing is written."
    )
    idempotency_key: Identifier | None = None
    run_async: bool = Field(default=False, alias="async", description="Answer at once with status 202 and a job.")
    time_budget_seconds: float | None = Field(
        default=None,
        gt=0,
        description="Commit what is done by then; a resume_token in the answer goes on with the rest.",
    )
    resume_token: Token | None = None
    ref: Name | None = Field(default=None, description=BRANCH)

    @model_validator(mode="after")
    def _resumes_or_begins(self) -> Compact:
        how = {"resume_token", "run_async", "time_budget_seconds", "operation", *TableRequest.model_fields}
        clashing = sorted(self.model_fields_set - how)
        if self.resume_token is not None and clashing:
            message = (
                f"resume_token: the token already holds the first request's fields; leave out {', '.join(clashing)}"
            )
            raise InvalidRequest("INVALID_FIELD", message, field="resume_token")
        if self.strategy == ZORDER and not self.sort_order:
            raise InvalidRequest(
                "MISSING_FIELD", "sort_order: zorder needs the columns to interleave", field="sort_order"
            )
        if self.dry_run and (self.run_async or self.time_budget_seconds is not None):
            field = "async" if self.run_async else "time_budget_seconds"
            raise InvalidRequest(
                "INVALID_FIELD", f"{field}: cannot be combined with dry_run, which answers at once", field=field
            )
        return self


class TableHealth(TableRequest):
    operation: Literal["TABLE_HEALTH"]
    explain: bool = False


class TableStats(TableRequest):
    operation: Literal["TABLE_STATS"]


class ExpireSnapshots(TableRequest):
    """`undo`, the `undo_id` of an earlier answer, brings the snapshots of that expiry back, and expires nothing."""

    operation: Literal["EXPIRE_SNAPSHOTS"]
    retention_hours: float | None = None
    min_snapshots_to_keep: int | None = None
    grace_hours: float | None = None
    dry_run: bool = False
    undo: Identifier | None = None

    @model_validator(mode="after")
    def _expires_or_undoes(self) -> ExpireSnapshots:
        asked = ("retention_hours", "min_snapshots_to_keep", "grace_hours")
        clashing = [name for name in asked if getattr(self, name) is not None] + ["dry_run"] * self.dry_run
        if self.undo is not None and clashing:
            message = f"undo: cannot be combined with {', '.join(clashing)}"
            raise InvalidRequest("INVALID_FIELD", message, field="undo")
        return self


class RemoveOrphanFiles(TableRequest):
    """Lists only, unless `dry_run` is false."""

    operation: Literal["REMOVE_ORPHAN_FILES"]
    older_than_hours: float | None = None
    dry_run: bool = True


class RewriteManifests(TableRequest):
    operation: Literal["REWRITE_MANIFESTS"]
    dry_run: bool = False


class Maintain(TableRequest):
    """All steps in a safe order, or those that `steps` names; if one fails, the others still run."""

    operation: Literal["MAINTAIN"]
    steps: list[StepName] | None = Field(default=None, min_length=1)
    force: bool = False
    retention_hours: float | None = None
    min_snapshots_to_keep: int | None = None
    grace_hours: float | None = None
    older_than_hours: float | None = None
    dry_run: bool = False


AnyRequest = (
    HealthCheck
    | CreateTable
    | AlterTable
    | DescribeTable
    | ListNamespaces
    | ListTables
    | DropTable
    | CreateTag
    | DropTag
    | Rollback
    | Write
    | Query
    | Compact
    | TableHealth
    | TableStats
    | ExpireSnapshots
    | RemoveOrphanFiles
    | RewriteManifests
    | Maintain
    | FleetScan
    | FleetPlan
    | FleetApply
    | FleetStatusOf
    | FleetHistory
    | ReportMetrics
    | NotifyCommit
    | Sweep
    | JobStatus
    | JobCancel
    | ListJobs
)


def asked(model: Compact | Maintain | Query, kind: type[Requested]) -> Requested:
    """Return what a model asks as the value that the service takes; its nested values are plain JSON."""
    found = ((f.name, getattr(model, f.name)) for f in fields(kind))
    given: dict[str, Any] = {name: _plain(value) for name, value in found if value is not None}
    return kind(**given)


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_none=True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
