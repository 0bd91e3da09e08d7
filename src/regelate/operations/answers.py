"""From what operations found to what is answered: names and limits of docs/api.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from regelate.core.answers import (
    AlterTableAnswer,
    CompactAnswer,
    DanglingDeletesAnswer,
    DescribeTableAnswer,
    ErrorOfTable,
    ExpireSnapshotsAnswer,
    JobAnswer,
    JobProgress,
    ListedJob,
    MaintainAnswer,
    OrphanFile,
    RankedTableAnswer,
    ReclaimAnswer,
    RemoveOrphanFilesAnswer,
    RewriteManifestsAnswer,
    Status,
    StepAnswer,
    StepResultAnswer,
    SweepAnswer,
    SweptExpiry,
    SweptRun,
    TableHealthAnswer,
    TableSchemaAnswer,
    WriteAnswer,
    answer_fields,
)
from regelate.core.answers import SweptTable as SweptTableAnswer
from regelate.core.jobs.job import JobRecord
from regelate.core.jobs.ranking import Rank
from regelate.core.planning.health import HealthAssessment
from regelate.core.planning.plan import SkipReason
from regelate.core.planning.plan_report import LISTED_GROUPS, planned
from regelate.core.planning.selection import Reason
from regelate.core.running.stats import iso_time
from regelate.core.table.schema import Column, TableDescription
from regelate.core.table.table import DataFile, SnapshotRef
from regelate.errors import ErrorDetail, RegelateError
from regelate.operations.compacting.command import CompactOutcome
from regelate.operations.upkeep.cleaning import DanglingRemoved, ManifestsRewritten, OrphansRemoved
from regelate.operations.upkeep.expire import Expired, Undone
from regelate.operations.upkeep.fleet import FleetTable
from regelate.operations.upkeep.maintain import StepResult
from regelate.operations.upkeep.reclaim import Reclaimed
from regelate.operations.upkeep.sweep import Swept, SweptTable
from regelate.operations.write import WriteResult

SHOWN_CHARACTERS = 300
SHOWN_MANIFESTS = 10
LISTED_ORPHANS = 100
MS_PER_HOUR = 3_600_000


def described(table: TableDescription) -> DescribeTableAnswer:
    return DescribeTableAnswer(
        table=table.ident,
        table_uuid=table.table_uuid,
        location=table.location,
        format_version=table.format_version,
        schema=TableSchemaAnswer(fields={c.name: _column(c) for c in table.columns}),
        partition_spec=tuple(dict(f) for f in table.partition_spec),
        sort_order=tuple(dict(f) for f in table.sort_order),
        properties=dict(table.properties),
        snapshot_id=table.snapshot_id,
        snapshot_count=table.snapshot_count,
        refs=tuple(_ref(ref) for ref in table.refs),
    )


def _ref(ref: SnapshotRef) -> dict[str, Any]:
    hours = None if ref.max_ref_age_ms is None else ref.max_ref_age_ms / MS_PER_HOUR
    return {"name": ref.name, "type": ref.kind.value, "snapshot_id": ref.snapshot_id, "retention_hours": hours}


def altered(table: DescribeTableAnswer, *, changed: bool) -> AlterTableAnswer:
    return AlterTableAnswer(
        changed=changed,
        schema=table.schema,
        partition_spec=table.partition_spec,
        properties=table.properties,
    )


def written(result: WriteResult, *, job_id: str | None = None, status: str | None = None) -> WriteAnswer:
    """`job_id`, `status`: of the compaction that the write has set off."""
    return WriteAnswer(
        records_written=result.records_written,
        snapshot_id=result.snapshot_id,
        compaction_recommended=result.compaction_recommended,
        small_files_count=result.small_files_count,
        already_done=result.already_done,
        compaction_job_id=job_id,
        compaction_status=status,
        files_taken_along=result.files_taken_along,
        bytes_taken_along=result.bytes_taken_along,
        optimized_write_fault=result.optimized_fault,
    )


def compacted(outcome: CompactOutcome, *, with_plan: bool, resume_token: str | None = None) -> CompactAnswer:
    return CompactAnswer(
        compacted=outcome.compacted,
        status=outcome.status,
        reason=outcome.reason,
        snapshot_id=outcome.snapshot_id,
        stats=outcome.stats,
        plan=_plan(outcome) if with_plan else None,
        resume_token=resume_token,
        warnings=outcome.warnings,
    )


def _plan(outcome: CompactOutcome) -> dict[str, object] | None:
    if outcome.plan is None:
        return None
    priced = {} if outcome.estimate is None else {"estimate": outcome.estimate.as_dict()}
    return {**planned(outcome.plan), **priced}


def delegated(job: JobRecord, reason: str) -> CompactAnswer:
    """Return the answer of a COMPACT that a job does, or is at already."""
    return CompactAnswer(
        compacted=False,
        status=Status.DELEGATED,
        reason=reason,
        snapshot_id=None,
        stats=None,
        job_id=job.job_id,
        job_state=job.state,
        engine=job.engine,
        explanation=job.why or None,
        warnings=(),
    )


def assessed(health: HealthAssessment, explained: Sequence[Mapping[str, object]] | None) -> TableHealthAnswer:
    edges = [0, *(edge for edge, _ in health.size_histogram)]
    return TableHealthAnswer(
        score=health.score,
        grade=health.grade,
        points_lost=health.lost,
        files=health.files,
        size_bytes=health.size_bytes,
        rows=health.rows,
        small_files=health.small_files,
        candidate_files=health.candidate_files,
        delete_files=health.delete_files,
        partitions=health.partitions,
        manifest_count=health.manifest_count,
        snapshot_count=health.snapshot_count,
        metadata_bytes=health.metadata_bytes,
        unreadable_manifests=tuple(health.unreadable_manifests[:SHOWN_MANIFESTS]),
        size_histogram=tuple(
            {"from_bytes": low, "to_bytes": None if high >= 2**62 else high, "files": count}
            for low, (high, count) in zip(edges, health.size_histogram, strict=False)
        ),
        worst_partitions=tuple(
            {
                "partition": p.partition.path,
                "score": round(p.score, 3),
                "files": p.files,
                "small_files": p.small_files,
                "candidate_files": p.candidate_files,
                "delete_files": p.delete_files,
                "size_bytes": p.size_bytes,
            }
            for p in health.worst
        ),
        recommendation=health.recommendation,
        explained=None if explained is None else tuple(explained),
    )


def explained(data_file: DataFile, reason: Reason | SkipReason) -> dict[str, object]:
    return {
        "path": data_file.path,
        "partition": data_file.partition.path,
        "size_bytes": data_file.size_bytes,
        "rows": data_file.record_count,
        "reason": reason.value,
        "selected": isinstance(reason, Reason) and reason.selected,
    }


def expired(found: Expired) -> ExpireSnapshotsAnswer:
    return ExpireSnapshotsAnswer(
        dry_run=found.dry_run,
        snapshots_expired=len(found.snapshot_ids),
        snapshot_ids=tuple(found.snapshot_ids),
        refs_removed=tuple(found.ref_names),
        files_deleted=found.files_deleted,
        bytes_freed=found.bytes_freed,
        files_quarantined=found.files_quarantined,
        bytes_quarantined=found.bytes_quarantined,
        undo_id=found.undo_id,
        undo_until=iso_time(found.undo_until_ms),
        deletable_at=iso_time(found.deletable_ms),
        snapshots_restored=0,
        warnings=(),
    )


def undone(found: Undone) -> ExpireSnapshotsAnswer:
    """Return the same fields as `expired`, for an expiry that was undone."""
    return replace(
        expired(Expired()), snapshot_ids=tuple(found.snapshot_ids), snapshots_restored=len(found.snapshot_ids)
    )


def orphans_removed(found: OrphansRemoved) -> RemoveOrphanFilesAnswer:
    return RemoveOrphanFilesAnswer(
        dry_run=found.dry_run,
        orphan_files=len(found.plan.orphans),
        orphan_bytes=found.plan.size_bytes,
        young_files=found.plan.young,
        files_deleted=len(found.deleted),
        bytes_freed=sum(f.size_bytes for f in found.deleted),
        orphans=tuple(
            OrphanFile(path=f.path, size_bytes=f.size_bytes, modified_at=iso_time(f.modified_ms))
            for f in found.plan.orphans[:LISTED_ORPHANS]
        ),
    )


def manifests_rewritten(found: ManifestsRewritten) -> RewriteManifestsAnswer:
    return RewriteManifestsAnswer(
        dry_run=found.dry_run,
        manifests_before=found.before,
        manifests_after=found.after,
        manifests_replaced=found.replaced,
        manifests_created=found.created,
        entries=found.entries,
        commits=found.commits,
        snapshot_id=found.snapshot_id,
    )


def dangling_removed(found: DanglingRemoved) -> DanglingDeletesAnswer:
    return DanglingDeletesAnswer(
        dry_run=found.dry_run, delete_files_removed=found.delete_files, snapshot_id=found.snapshot_id
    )


def reclaimed(found: SweptTable) -> ReclaimAnswer:
    return ReclaimAnswer(
        files_deleted=found.files_deleted,
        bytes_freed=found.bytes_freed,
        expiries_finished=found.expired.lists,
        expiries_waiting=found.expired.waiting,
    )


def maintained(results: Sequence[StepResult], *, dry_run: bool) -> MaintainAnswer:
    partial = any(r.error is not None or _is_partial(r.result) for r in results)
    return MaintainAnswer(
        status="PARTIAL" if partial else "COMPLETED",
        dry_run=dry_run,
        steps=tuple(_step(r) for r in results),
        bytes_freed=sum(_bytes_freed(r.result) for r in results),
        warnings=tuple(f"{r.step}: {text}" for r in results for text in _warnings(r)),
    )


def _step(result: StepResult) -> StepAnswer:
    return StepAnswer(
        step=result.step,
        status=result.status,
        seconds=round(result.seconds, 3),
        result=None if result.result is None else answer_fields(result.result),
        error=None if result.error is None else result.error.as_error(),
    )


def _is_partial(result: StepResultAnswer | None) -> bool:
    return isinstance(result, CompactAnswer) and result.status is Status.PARTIAL


def _bytes_freed(result: StepResultAnswer | None) -> int:
    """A compaction as a step expires nothing, and the others that are not named here delete no file."""
    return (
        result.bytes_freed if isinstance(result, ExpireSnapshotsAnswer | RemoveOrphanFilesAnswer | ReclaimAnswer) else 0
    )


def _warnings(result: StepResult) -> Sequence[str]:
    if result.error is not None:
        return (str(result.error),)
    return result.result.warnings if isinstance(result.result, CompactAnswer | ExpireSnapshotsAnswer) else ()


def swept(found: Swept, tables: Sequence[FleetTable], *, dry_run: bool) -> SweepAnswer:
    """List the tables that have something to say, and rank those in the worst state first; counts cover all of them."""
    told = [t for t in found.tables if t.entries or t.error is not None or t.expired != Reclaimed()]
    ranked = [table for table in tables if table.ranked.health.score < 100 or table.job is not None]
    return SweepAnswer(
        dry_run=dry_run,
        tables_swept=len(found.tables),
        files_deleted=sum(t.files_deleted for t in told),
        bytes_freed=sum(t.bytes_freed for t in told),
        errors=found.faults + sum(table.error is not None for table in tables),
        backlog=len(found.backlog),
        backlog_tables=tuple(found.backlog[:LISTED_GROUPS]),
        tables=(*(_swept_table(t) for t in told), *(_swept_namespace(n, e) for n, e in found.namespaces_failed)),
        jobs_submitted=sum(table.job is not None and not table.was_there for table in tables),
        jobs_backlog=sum(table.ranked.rank is Rank.OVER_BUDGET for table in tables),
        ranking=tuple(_ranked(table) for table in ranked[:LISTED_GROUPS]),
    )


def _swept_table(table: SweptTable) -> SweptTableAnswer:
    return SweptTableAnswer(
        table=table.ident,
        runs=tuple(
            SweptRun(run=e.run, reason=e.verdict.value, files_deleted=e.files_deleted, bytes_freed=e.bytes_freed)
            for e in table.entries[:LISTED_GROUPS]
        ),
        expiry=SweptExpiry(
            finished=table.expired.lists,
            waiting=table.expired.waiting,
            files_deleted=table.expired.files_deleted,
            bytes_freed=table.expired.bytes_freed,
        ),
        error=None if table.error is None else _short_error(table.error),
    )


def _swept_namespace(namespace: str, error: RegelateError) -> SweptTableAnswer:
    return replace(_swept_table(SweptTable(ident=f"{namespace}.*")), error=_short_error(error))


def _short_error(error: RegelateError) -> ErrorOfTable:
    return ErrorOfTable(code=error.code, message=error.message[:SHOWN_CHARACTERS])


def _ranked(table: FleetTable) -> RankedTableAnswer:
    return RankedTableAnswer(
        table=table.ranked.ident,
        score=round(table.ranked.health.score, 1),
        rank=Rank.JOB_RUNNING if table.was_there else table.ranked.rank,
        reason=table.ranked.health.recommendation if table.error is None else str(table.error),
        job_id=None if table.job is None else table.job.job_id,
    )


def job_told(record: JobRecord) -> JobAnswer:
    return JobAnswer(
        job_id=record.job_id,
        state=record.state,
        table=record.ident,
        catalog=record.catalog,
        origin=record.origin,
        engine=record.engine,
        explanation=record.why or None,
        run=record.remote,
        progress=JobProgress(groups_done=record.groups_done, groups_all=record.groups_all),
        part=record.part,
        attempts=record.attempts,
        created_at=iso_time(record.created_ms),
        updated_at=iso_time(record.updated_ms),
        totals=record.totals,
        result=None if record.result is None else json.loads(record.result),
        error=None if record.error is None else ErrorDetail(**json.loads(record.error)),
    )


def job_listed(record: JobRecord) -> ListedJob:
    told = job_told(record)
    return ListedJob(**{f.name: getattr(told, f.name) for f in fields(ListedJob)})


def _column(column: Column) -> dict[str, Any]:
    """Return a column in the form that CREATE_TABLE takes."""
    fields: dict[str, Any] = {"type": column.type, "required": column.required}
    if column.doc is not None:
        fields["doc"] = column.doc
    if column.type == "struct":
        fields["fields"] = {c.name: _column(c) for c in column.children}
    else:
        fields.update({c.name: _column(c) for c in column.children})
    return fields
