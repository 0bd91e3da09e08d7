"""What operations found, as JSON-ready fields of their answers (API names, plain types)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regelate.core.health import TableHealth
from regelate.core.job import JobRecord
from regelate.core.plan_report import LISTED_GROUPS, planned
from regelate.core.schema import Column, TableDescription
from regelate.core.selection import Reason
from regelate.core.stats import iso_time
from regelate.core.table import DataFile, SnapshotRef
from regelate.errors import RegelateError
from regelate.operations.compaction import CompactOutcome, Status
from regelate.operations.expire import Expired, Undone
from regelate.operations.reclaim import Reclaimed
from regelate.operations.sweep import Swept, SweptTable
from regelate.operations.write import WriteResult

SHOWN_CHARACTERS = 300
SHOWN_MANIFESTS = 10

Fields = dict[str, object]


def described(table: TableDescription) -> Fields:
    return {
        "table": table.ident,
        "table_uuid": table.table_uuid,
        "location": table.location,
        "format_version": table.format_version,
        "schema": {"fields": {c.name: _column(c) for c in table.columns}},
        "partition_spec": [dict(f) for f in table.partition_spec],
        "sort_order": [dict(f) for f in table.sort_order],
        "properties": dict(table.properties),
        "snapshot_id": table.snapshot_id,
        "snapshot_count": table.snapshot_count,
        "refs": [_ref(r) for r in table.refs],
    }


def written(result: WriteResult) -> Fields:
    return {
        "records_written": result.records_written,
        "snapshot_id": result.snapshot_id,
        "compaction_recommended": result.compaction_recommended,
        "small_files_count": result.small_files_count,
        "already_done": result.already_done,
    }


def compacted(outcome: CompactOutcome, *, with_plan: bool, resume_token: str | None = None) -> Fields:
    fields: Fields = {
        "compacted": outcome.compacted,
        "status": outcome.status.value,
        "reason": outcome.reason,
        "snapshot_id": outcome.snapshot_id,
        "stats": None if outcome.stats is None else outcome.stats.as_dict(),
        "warnings": list(outcome.warnings),
    }
    if with_plan and outcome.plan is not None:
        fields["plan"] = planned(outcome.plan)
    if resume_token is not None:
        fields["resume_token"] = resume_token
    return fields


def delegated(job: JobRecord, reason: str) -> Fields:
    """Return the answer of a COMPACT that a job does, or is at already."""
    return {
        "compacted": False,
        "status": Status.DELEGATED.value,
        "reason": reason,
        "snapshot_id": None,
        "stats": None,
        "job_id": job.job_id,
        "job_state": job.state.value,
        "engine": job.engine.value,
        "explanation": job.why or None,
        "warnings": [],
    }


def assessed(health: TableHealth, explained: Sequence[Mapping[str, object]] | None) -> Fields:
    edges = [0, *(edge for edge, _ in health.size_histogram)]
    fields: Fields = {
        "score": round(health.score, 1),
        "files": health.files,
        "size_bytes": health.size_bytes,
        "rows": health.rows,
        "small_files": health.small_files,
        "candidate_files": health.candidate_files,
        "delete_files": health.delete_files,
        "partitions": health.partitions,
        "manifest_count": health.manifest_count,
        "unreadable_manifests": list(health.unreadable_manifests[:SHOWN_MANIFESTS]),
        "size_histogram": [
            {"from_bytes": low, "to_bytes": None if high >= 2**62 else high, "files": count}
            for low, (high, count) in zip(edges, health.size_histogram, strict=False)
        ],
        "worst_partitions": [
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
        ],
        "recommendation": health.recommendation,
    }
    if explained is not None:
        fields["explained"] = list(explained)
    return fields


def explained(data_file: DataFile, reason: Reason) -> Fields:
    return {
        "path": data_file.path,
        "partition": data_file.partition.path,
        "size_bytes": data_file.size_bytes,
        "rows": data_file.record_count,
        "reason": reason.value,
        "selected": reason.selected,
    }


def expired(found: Expired, warnings: Sequence[str] = ()) -> Fields:
    return {
        "dry_run": found.dry_run,
        "snapshots_expired": len(found.snapshot_ids),
        "snapshot_ids": list(found.snapshot_ids),
        "refs_removed": list(found.ref_names),
        "files_deleted": found.files_deleted,
        "bytes_freed": found.bytes_freed,
        "files_quarantined": found.files_quarantined,
        "bytes_quarantined": found.bytes_quarantined,
        "undo_id": found.undo_id,
        "undo_until": iso_time(found.undo_until_ms),
        "deletable_at": iso_time(found.deletable_ms),
        "snapshots_restored": 0,
        "warnings": list(warnings),
    }


def undone(found: Undone) -> Fields:
    """Return the same fields as `expired`, for an expiry that was undone."""
    return {
        **expired(Expired()),
        "snapshot_ids": list(found.snapshot_ids),
        "snapshots_restored": len(found.snapshot_ids),
    }


def swept(found: Swept, *, dry_run: bool) -> Fields:
    """List the tables that have something to say; the counts cover all of them."""
    told = [t for t in found.tables if t.entries or t.error is not None or t.expired != Reclaimed()]
    return {
        "dry_run": dry_run,
        "tables_swept": len(found.tables),
        "files_deleted": sum(t.files_deleted for t in told),
        "bytes_freed": sum(t.bytes_freed for t in told),
        "errors": found.faults,
        "backlog": len(found.backlog),
        "backlog_tables": list(found.backlog[:LISTED_GROUPS]),
        "tables": [*(_swept_table(t) for t in told), *(_swept_namespace(n, e) for n, e in found.namespaces_failed)],
    }


def _swept_table(table: SweptTable) -> Fields:
    return {
        "table": table.ident,
        "runs": [
            {"run": e.run, "reason": e.verdict.value, "files_deleted": e.files_deleted, "bytes_freed": e.bytes_freed}
            for e in table.entries[:LISTED_GROUPS]
        ],
        "expiry": {
            "finished": table.expired.lists,
            "waiting": table.expired.waiting,
            "files_deleted": table.expired.files_deleted,
            "bytes_freed": table.expired.bytes_freed,
        },
        "error": None if table.error is None else _short_error(table.error),
    }


def _swept_namespace(namespace: str, error: RegelateError) -> Fields:
    return {**_swept_table(SweptTable(ident=f"{namespace}.*")), "error": _short_error(error)}


def _short_error(error: RegelateError) -> Fields:
    return {"code": error.code, "message": error.message[:SHOWN_CHARACTERS]}


def _column(column: Column) -> Fields:
    """Return a column in the form that CREATE_TABLE takes."""
    fields: Fields = {"type": column.type, "required": column.required}
    if column.doc is not None:
        fields["doc"] = column.doc
    if column.type == "struct":
        fields["fields"] = {c.name: _column(c) for c in column.children}
    else:
        fields.update({c.name: _column(c) for c in column.children})
    return fields


def _ref(ref: SnapshotRef) -> Fields:
    return {"name": ref.name, "type": ref.kind.value, "snapshot_id": ref.snapshot_id}
