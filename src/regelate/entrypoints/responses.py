"""Every answer, as a model: openapi.json is generated from them, and tests hold what operations return against them.

Answers are not validated while serving; `succeeded` and `failed` make the two shapes that leave the house.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from regelate.entrypoints.job_responses import EngineName, JobAnswer, JobStateName, SweepAnswer
from regelate.entrypoints.log import redacted, safe
from regelate.entrypoints.requests import Step
from regelate.entrypoints.response_base import Answer, ErrorDetail, Shape
from regelate.entrypoints.validation import validated
from regelate.errors import RegelateError


class ErrorAnswer(Shape):
    success: Literal[False]
    error: ErrorDetail
    request_id: str


class HealthCheckAnswer(Answer):
    version: str
    environment: str
    catalog_reachable: bool
    engines: list[str]


class CreateTableAnswer(Answer):
    """`created` is false where `if_not_exists` found the same table."""

    created: bool
    table_uuid: str
    location: str


class AlterTableAnswer(Answer):
    properties: dict[str, str]


class TableSchemaAnswer(Shape):
    fields: dict[str, Any]


class DescribeTableAnswer(Answer):
    """`schema`, `partition_spec` and `sort_order` have the form that CREATE_TABLE takes."""

    table: str
    table_uuid: str
    location: str
    format_version: int
    table_schema: TableSchemaAnswer = Field(alias="schema")
    partition_spec: list[dict[str, Any]]
    sort_order: list[dict[str, Any]]
    properties: dict[str, str]
    snapshot_id: int | None
    snapshot_count: int
    refs: list[dict[str, Any]]


class ListTablesAnswer(Answer):
    tables: list[str]


class DropTableAnswer(Answer):
    dropped: bool


class WriteAnswer(Answer):
    """`small_files_count` is null between two checks; `snapshot_id` is null where nothing was committed.

    `already_done`: the same `idempotency_key` had landed before, as this snapshot; this request added no row. With
    `compaction.auto`: the job that was submitted, or how the COMPACT ended (its status, or the code of its error).
    """

    records_written: int
    snapshot_id: int | None
    compaction_recommended: bool
    small_files_count: int | None
    already_done: bool
    compaction_job_id: str | None
    compaction_status: str | None


class ResultColumn(Shape):
    name: str
    type: str


class QueryAnswer(Answer):
    """One object per row, by column name. `truncated`: the limit on rows cut the result. Where they are too large for
    an answer, `rows` is empty: GET `result_url` for `row_count` lines of JSON, until `result_expires_at`."""

    columns: list[ResultColumn]
    rows: list[dict[str, Any]]
    row_count: int
    truncated: bool
    snapshot_id: int | None
    query_time_ms: float
    result_url: str | None = None
    result_expires_at: str | None = None
    result_bytes: int | None = None


class StepSeconds(Shape):
    plan: float
    rewrite: float
    verify: float
    commit: float
    expire: float


class CompactionStatsAnswer(Shape):
    """`files_before`, `files_after`, `bytes_*`: live data files of the whole table at the plan, after the commit."""

    files_before: int
    files_after: int
    files_compacted: int
    files_removed: int
    files_added: int
    bytes_before: int
    bytes_after: int
    bytes_saved: int
    snapshots_expired: int
    compaction_time_ms: float
    small_files_remaining: int
    engine: str
    groups: int
    groups_deferred: int
    rows: int
    delete_files_removed: int
    manifests_before: int
    manifests_after: int
    bytes_freed: int
    bytes_quarantined: int
    undo_id: str | None
    deletable_at: str | None
    commit_attempts: int
    dropped_groups: int
    seconds: StepSeconds


class CompactAnswer(Answer):
    """A dry run answers PLANNED with its `plan`. `stats` is null where nothing was rewritten.

    `snapshot_id` is null where nothing was committed; ALREADY_DONE names the snapshot of the first time. DELEGATED,
    with status 202, names the job that does it, or has done it under this key, its `engine`, and why that engine. A
    `resume_token` goes on with the groups that there was no time for.
    """

    compacted: bool
    status: Literal["COMPLETED", "PARTIAL", "NOTHING_TO_DO", "ALREADY_DONE", "PLANNED", "DELEGATED"]
    reason: str | None
    snapshot_id: int | None
    stats: CompactionStatsAnswer | None = None
    plan: dict[str, Any] | None = None
    job_id: str | None = None
    job_state: JobStateName | None = None
    engine: EngineName | None = None
    explanation: str | None = None
    resume_token: str | None = None
    warnings: list[str]


class TableHealthAnswer(Answer):
    """`score` 0-100, 100 where there is nothing to do; `explained` has one reason per data file, if asked."""

    score: float
    files: int
    size_bytes: int
    rows: int
    small_files: int
    candidate_files: int
    delete_files: int
    partitions: int
    manifest_count: int
    unreadable_manifests: list[str]
    size_histogram: list[dict[str, Any]]
    worst_partitions: list[dict[str, Any]]
    recommendation: str
    explained: list[dict[str, Any]] | None = None


class ExpireSnapshotsAnswer(Answer):
    """What was removed, or would be in a dry run. `bytes_freed` is gone for good, `bytes_quarantined` is not yet.

    The answer to an undo names the restored snapshots in `snapshot_ids`.
    """

    dry_run: bool
    snapshots_expired: int
    snapshot_ids: list[int]
    refs_removed: list[str]
    files_deleted: int
    bytes_freed: int
    files_quarantined: int
    bytes_quarantined: int
    undo_id: str | None
    undo_until: str | None
    deletable_at: str | None
    snapshots_restored: int
    warnings: list[str]


class OrphanFile(Shape):
    """`modified_at`: the store's time of its last change."""

    path: str
    size_bytes: int
    modified_at: str


class RemoveOrphanFilesAnswer(Answer):
    """`orphans` lists the first hundred. `young_files` are unreachable too, but may belong to a commit under way."""

    dry_run: bool
    orphan_files: int
    orphan_bytes: int
    young_files: int
    files_deleted: int
    bytes_freed: int
    orphans: list[OrphanFile]


class RewriteManifestsAnswer(Answer):
    """What was rewritten, or would be on a dry run."""

    dry_run: bool
    manifests_before: int
    manifests_after: int
    manifests_replaced: int
    manifests_created: int
    entries: int
    commits: int
    snapshot_id: int | None


class StepAnswer(Shape):
    """`result` is what the step's own operation answers; null where it failed, and `error` says why."""

    step: Step
    status: Literal["DONE", "NOTHING_TO_DO", "FAILED"]
    seconds: float
    result: dict[str, Any] | None
    error: ErrorDetail | None


class MaintainAnswer(Answer):
    """PARTIAL where a step failed, or did only a part of its work."""

    status: Literal["COMPLETED", "PARTIAL"]
    dry_run: bool
    steps: list[StepAnswer]
    bytes_freed: int
    warnings: list[str]


ANSWERS: Mapping[str, type[Answer]] = {
    "HEALTH_CHECK": HealthCheckAnswer,
    "CREATE_TABLE": CreateTableAnswer,
    "ALTER_TABLE": AlterTableAnswer,
    "DESCRIBE_TABLE": DescribeTableAnswer,
    "LIST_TABLES": ListTablesAnswer,
    "DROP_TABLE": DropTableAnswer,
    "WRITE": WriteAnswer,
    "QUERY": QueryAnswer,
    "COMPACT": CompactAnswer,
    "TABLE_HEALTH": TableHealthAnswer,
    "EXPIRE_SNAPSHOTS": ExpireSnapshotsAnswer,
    "REMOVE_ORPHAN_FILES": RemoveOrphanFilesAnswer,
    "REWRITE_MANIFESTS": RewriteManifestsAnswer,
    "MAINTAIN": MaintainAnswer,
    "SWEEP": SweepAnswer,
    "JOB_STATUS": JobAnswer,
    "JOB_CANCEL": JobAnswer,
}


def check_answer(operation: str, answer: Mapping[str, object]) -> None:
    """Refuse an answer that openapi.json does not promise: a missing, unknown or mistyped field. For tests."""
    validated(ANSWERS[operation], answer)


def succeeded(fields: Mapping[str, object], request_id: str) -> dict[str, object]:
    """Return the answer of an operation that did what it was asked."""
    return {"success": True, **fields, "request_id": request_id}


def failed(fault: RegelateError, request_id: str) -> dict[str, object]:
    """Return the answer of a fault: what was wrong and what to do; secrets blotted out, long texts cut."""
    error = {**fault.as_error(), "message": redacted(fault.message), "details": safe(fault.details)}
    return {"success": False, "error": error, "request_id": request_id}
