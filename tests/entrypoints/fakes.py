"""A service in memory behind the real doors: it remembers tables and rows, and answers in the documented shapes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from regelate import __version__
from regelate.core.answers import (
    AlterTableAnswer,
    CompactAnswer,
    CreateTableAnswer,
    DescribeTableAnswer,
    DropTableAnswer,
    ExpireSnapshotsAnswer,
    FleetApplyAnswer,
    FleetHistoryAnswer,
    FleetPlanAnswer,
    FleetScanAnswer,
    FleetStatusAnswer,
    HealthCheckAnswer,
    JobAnswer,
    ListJobsAnswer,
    ListNamespacesAnswer,
    ListTablesAnswer,
    MaintainAnswer,
    QueryAnswer,
    RemoveOrphanFilesAnswer,
    RewriteManifestsAnswer,
    SweepAnswer,
    TableHealthAnswer,
    WriteAnswer,
)
from regelate.core.requests import CompactRequest, MaintainRequest, QueryRequest
from regelate.core.table.evolution import NO_EVOLUTION, Evolution
from regelate.core.table.schema import TableDefinition
from regelate.errors import Conflict, NotFound
from regelate.operations.automatic import NotifyCommitAnswer
from regelate.operations.fleet.reports import ReportMetricsAnswer
from regelate.operations.refs import CreateTagAnswer, DropTagAnswer, RollbackAnswer
from regelate.operations.table_stats import TableStatsAnswer
from regelate.settings import Settings, load_settings
from regelate.tenancy import Address, Scope, Tenancy

REPOSITORY = Path(__file__).parents[2]
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
STATS = {
    "files_before": 15,
    "files_after": 2,
    "files_compacted": 14,
    "files_removed": 14,
    "files_added": 1,
    "bytes_before": 52_428_800,
    "bytes_after": 50_331_648,
    "bytes_saved": 2_097_152,
    "snapshots_expired": 10,
    "compaction_time_ms": 2340.56,
    "small_files_remaining": 0,
    "engine": "duckdb",
    "groups": 1,
    "groups_deferred": 0,
    "rows": 15,
    "delete_files_removed": 0,
    "manifests_before": 15,
    "manifests_after": 1,
    "bytes_freed": 0,
    "bytes_quarantined": 0,
    "undo_id": None,
    "deletable_at": None,
    "commit_attempts": 1,
    "dropped_groups": 0,
    "seconds": {"plan": 0.1, "rewrite": 1.5, "verify": 0.1, "commit": 0.3, "expire": 0.3},
}


@dataclass
class FakeTable:
    definition: TableDefinition
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    writes: int = 0


NOTHING_QUARANTINED: dict[str, object] = {
    "files_quarantined": 0,
    "bytes_quarantined": 0,
    "undo_id": None,
    "undo_until": None,
    "deletable_at": None,
    "snapshots_restored": 0,
    "warnings": [],
}


JOB: dict[str, object] = {
    "job_id": "job-1",
    "state": "RUNNING",
    "operation": "COMPACT",
    "table": "default.users",
    "catalog": "local",
    "origin": "REQUEST",
    "engine": "duckdb",
    "explanation": None,
    "run": None,
    "progress": {"groups_done": 3, "groups_all": 8},
    "part": 1,
    "attempts": 1,
    "created_at": "2026-11-21T19:00:00Z",
    "updated_at": "2026-11-21T19:00:05Z",
    "totals": {"files_compacted": 0, "files_added": 0, "bytes_saved": 0, "rows": 0, "snapshot_ids": []},
    "result": None,
    "error": None,
}


def answering(kind: type) -> Callable[[Callable[..., dict[str, object]]], Callable[..., Any]]:
    """Make the answer of an operation from its fields as JSON has them."""
    values: TypeAdapter[Any] = TypeAdapter(kind)

    def answered(operation: Callable[..., dict[str, object]]) -> Callable[..., Any]:
        @wraps(operation)
        def asked(*args: Any, **more: Any) -> Any:
            return values.validate_python(operation(*args, **more))

        return asked

    return answered


class FakeService:
    """`calls`: every operation that passed the door, with its address and its keyword arguments.

    It is each of a service's objects at once; `known` are its tables.
    """

    def __init__(self, settings: Settings | None = None, *, preset: Sequence[str] = ()) -> None:
        self.settings = settings or settings_for("development")
        self.tenancy = Tenancy(self.settings)
        self.known = {ident: FakeTable(TableDefinition(columns=())) for ident in preset}
        self.calls: list[tuple[str, Address | None, dict[str, Any]]] = []
        self.job_comes_again_after: float | None = None
        self.before_query: Callable[[QueryRequest], object] = lambda request: None
        self._lock = threading.Lock()
        self.process = self.tables = self.refs = self.health = self.queries = self.writes = self.compactions = self
        self.upkeep = self.fleet = self.jobs = self.worker = self.automatic = self
        self.fleet_reads = self
        self.fleet_desk = lambda: self

    def _called(self, operation: str, address: Address | None, **arguments: Any) -> None:
        with self._lock:
            self.calls.append((operation, address, arguments))

    def _table(self, address: Address) -> FakeTable:
        if address.ident not in self.known:
            raise NotFound("TABLE_NOT_FOUND", f"no table {address.ident}", table=address.ident)
        return self.known[address.ident]

    @answering(HealthCheckAnswer)
    def health_check(self) -> dict[str, object]:
        self._called("HEALTH_CHECK", None)
        environment = self.settings.environment
        return {"version": __version__, "environment": environment, "catalog_reachable": True, "engines": ["duckdb"]}

    def metrics_text(self) -> str:
        return "# nothing\n"

    @answering(CreateTableAnswer)
    def create_table(self, address: Address, definition: TableDefinition, *, if_not_exists: bool) -> dict[str, object]:
        self._called("CREATE_TABLE", address, definition=definition, if_not_exists=if_not_exists)
        created = address.ident not in self.known
        if not created and not if_not_exists:
            raise Conflict("TABLE_EXISTS", f"table {address.ident} exists", retryable=False)
        self.known.setdefault(address.ident, FakeTable(definition))
        return {"created": created, "table_uuid": UUID, "location": f"file:///warehouse/{address.ident}"}

    @answering(AlterTableAnswer)
    def alter_table(
        self,
        address: Address,
        *,
        set_properties: Mapping[str, str],
        unset_properties: Sequence[str],
        evolution: Evolution = NO_EVOLUTION,
    ) -> dict[str, object]:
        changes = {"set_properties": set_properties, "unset_properties": unset_properties}
        self._called("ALTER_TABLE", address, **changes, evolution=evolution)
        table = self._table(address)
        kept = {name: value for name, value in table.properties.items() if name not in unset_properties}
        table.properties = {**kept, **set_properties}
        return {"changed": True, "schema": {"fields": {}}, "partition_spec": [], "properties": table.properties}

    @answering(DescribeTableAnswer)
    def describe_table(self, address: Address) -> dict[str, object]:
        self._called("DESCRIBE_TABLE", address)
        table = self._table(address)
        return {
            "table": address.ident,
            "table_uuid": UUID,
            "location": f"file:///warehouse/{address.ident}",
            "format_version": 2,
            "schema": {"fields": {c.name: {"type": c.type, "required": c.required} for c in table.definition.columns}},
            "partition_spec": [],
            "sort_order": [],
            "properties": table.properties,
            "snapshot_id": table.writes or None,
            "snapshot_count": table.writes,
            "refs": [],
        }

    @answering(ListNamespacesAnswer)
    def list_namespaces(self, scope: Scope) -> dict[str, object]:
        self._called("LIST_NAMESPACES", None, scope=scope)
        inside = {ident.rpartition(".")[0] for ident in self.known}
        return {"namespaces": sorted(scope.asked_as(name) for name in inside if scope.holds(name))}

    @answering(ListTablesAnswer)
    def list_tables(self, address: Address) -> dict[str, object]:
        self._called("LIST_TABLES", address)
        prefix = f"{address.ident}."
        return {"tables": sorted(ident.removeprefix(prefix) for ident in self.known if ident.startswith(prefix))}

    @answering(DropTableAnswer)
    def drop_table(self, address: Address, *, purge: bool) -> dict[str, object]:
        self._called("DROP_TABLE", address, purge=purge)
        self._table(address)
        del self.known[address.ident]
        return {"dropped": True}

    @answering(CreateTagAnswer)
    def create_tag(self, address: Address, name: str, **arguments: Any) -> dict[str, object]:
        self._called("CREATE_TAG", address, tag=name, **arguments)
        return {"created": True, "tag": name, "snapshot_id": 1}

    @answering(DropTagAnswer)
    def drop_tag(self, address: Address, name: str) -> dict[str, object]:
        self._called("DROP_TAG", address, tag=name)
        return {"dropped": True, "tag": name, "snapshot_id": 1}

    @answering(RollbackAnswer)
    def rollback(self, address: Address, **arguments: Any) -> dict[str, object]:
        self._called("ROLLBACK", address, **arguments)
        left = {"snapshots_left": 1, "left_snapshot_ids": [2], "tag": None}
        return {"rolled_back": True, "snapshot_id": 1, "previous_snapshot_id": 2, **left}

    @answering(WriteAnswer)
    def write(self, address: Address, records: Sequence[Mapping[str, Any]], **arguments: Any) -> dict[str, object]:
        self._called("WRITE", address, records=records, **arguments)
        table = self._table(address)
        with self._lock:
            table.rows.extend(records)
            table.writes += 1 if records else 0
        due = table.writes > 0 and table.writes % 5 == 0
        return {
            "records_written": len(records),
            "snapshot_id": table.writes or None,
            "compaction_recommended": due,
            "small_files_count": table.writes if due else None,
            "already_done": False,
            "compaction_job_id": None,
            "compaction_status": None,
            "files_taken_along": 0,
            "bytes_taken_along": 0,
            "optimized_write_fault": None,
        }

    @answering(QueryAnswer)
    def query(self, address: Address, request: QueryRequest) -> dict[str, object]:
        self._called("QUERY", address, request=request)
        self.before_query(request)
        rows = [dict(row) for row in self._table(address).rows]
        columns = [{"name": name, "type": "string"} for name in (rows[0] if rows else {})]
        return {
            "columns": columns,
            "rows": rows,
            "row_count": len(rows),
            "truncated": False,
            "snapshot_id": None,
            "query_time_ms": 1.5,
        }

    @answering(CompactAnswer)
    def compact(self, address: Address, request: CompactRequest, **arguments: Any) -> dict[str, object]:
        self._called("COMPACT", address, request=request, **arguments)
        self._table(address)
        if request.run_async:
            fields = {"compacted": False, "status": "DELEGATED", "reason": "REQUEST", "snapshot_id": None}
            return {**fields, "stats": None, "job_id": "job-1", "warnings": []}
        if request.dry_run:
            plan = {"groups": []}
            return {
                "compacted": False,
                "status": "PLANNED",
                "reason": None,
                "snapshot_id": None,
                "stats": None,
                "plan": plan,
                "warnings": [],
            }
        return {
            "compacted": True,
            "status": "COMPLETED",
            "reason": None,
            "snapshot_id": 1,
            "stats": STATS,
            "warnings": [],
        }

    @answering(TableHealthAnswer)
    def table_health(self, address: Address, *, explain: bool) -> dict[str, object]:
        self._called("TABLE_HEALTH", address, explain=explain)
        counts = ("files", "size_bytes", "rows", "small_files", "candidate_files", "delete_files", "partitions")
        fields: dict[str, object] = {
            "score": 100.0,
            "grade": "HEALTHY",
            "points_lost": {"files": 0.0, "deletes": 0.0, "metadata": 0.0},
            **dict.fromkeys(counts, 0),
            "manifest_count": 0,
            "snapshot_count": 0,
            "metadata_bytes": None,
            "unreadable_manifests": [],
        }
        listed: dict[str, object] = {"explained": []} if explain else {}
        return {**fields, "size_histogram": [], "worst_partitions": [], "recommendation": "nothing to do", **listed}

    @answering(TableStatsAnswer)
    def table_stats(self, address: Address) -> dict[str, object]:
        self._called("TABLE_STATS", address)
        counts = ("files", "size_bytes", "rows", "delete_files", "partitions", "manifest_count")
        named = {"table": address.ident, "snapshot_id": self._table(address).writes or None}
        return {**named, **dict.fromkeys(counts, 0), "largest_partitions": []}

    @answering(NotifyCommitAnswer)
    def notified(self, address: Address) -> dict[str, object]:
        self._called("NOTIFY_COMMIT", address)
        return {"table": address.ident, "status": "SUBMITTED", "job_id": "job-1"}

    @answering(ReportMetricsAnswer)
    def reported(self, address: Address, report: Mapping[str, object]) -> dict[str, object]:
        self._called("REPORT_METRICS", address, report=report)
        return {"table": address.ident, "report_type": report["report-type"], "files": 3}

    @answering(NotifyCommitAnswer)
    def located(self, candidates: Sequence[Address], location: str) -> dict[str, object]:
        self._called("NOTIFY_COMMIT", next(iter(candidates), None), location=location)
        return {"table": None, "status": "UNKNOWN_LOCATION"}

    @answering(ExpireSnapshotsAnswer)
    def expire_snapshots(self, address: Address, **arguments: Any) -> dict[str, object]:
        self._called("EXPIRE_SNAPSHOTS", address, **arguments)
        return {
            "dry_run": arguments["dry_run"],
            "snapshots_expired": 0,
            "snapshot_ids": [],
            "refs_removed": [],
            "files_deleted": 0,
            "bytes_freed": 0,
            **NOTHING_QUARANTINED,
        }

    @answering(RemoveOrphanFilesAnswer)
    def remove_orphan_files(self, address: Address, **arguments: Any) -> dict[str, object]:
        self._called("REMOVE_ORPHAN_FILES", address, **arguments)
        names = ("orphan_files", "orphan_bytes", "young_files", "files_deleted", "bytes_freed")
        return {"dry_run": arguments["dry_run"], **dict.fromkeys(names, 0), "orphans": []}

    @answering(RewriteManifestsAnswer)
    def rewrite_manifests(self, address: Address, **arguments: Any) -> dict[str, object]:
        self._called("REWRITE_MANIFESTS", address, **arguments)
        names = ("before", "after", "replaced", "created")
        counts: dict[str, object] = {f"manifests_{name}": 0 for name in names}
        return {"dry_run": arguments["dry_run"], **counts, "entries": 0, "commits": 0, "snapshot_id": None}

    @answering(MaintainAnswer)
    def maintain(self, address: Address, request: MaintainRequest) -> dict[str, object]:
        self._called("MAINTAIN", address, request=request)
        return {"status": "COMPLETED", "dry_run": request.dry_run, "steps": [], "bytes_freed": 0, "warnings": []}

    @answering(ExpireSnapshotsAnswer)
    def undo_expiry(self, address: Address, undo_id: str) -> dict[str, object]:
        self._called("EXPIRE_SNAPSHOTS", address, undo_id=undo_id)
        counts = {"snapshots_expired": 0, "files_deleted": 0, "bytes_freed": 0}
        listed: dict[str, object] = {"snapshot_ids": [], "refs_removed": []}
        return {"dry_run": False, **counts, **listed, **NOTHING_QUARANTINED}

    @answering(JobAnswer)
    def job_status(self, tenant_id: str, job_id: str) -> dict[str, object]:
        self._called("JOB_STATUS", None, tenant_id=tenant_id, job_id=job_id)
        return {**JOB, "job_id": job_id}

    @answering(JobAnswer)
    def job_cancel(self, tenant_id: str, job_id: str) -> dict[str, object]:
        self._called("JOB_CANCEL", None, tenant_id=tenant_id, job_id=job_id)
        return {**JOB, "job_id": job_id, "state": "CANCELLING"}

    @answering(ListJobsAnswer)
    def list_jobs(self, tenant_id: str, table: Address | None, **arguments: Any) -> dict[str, object]:
        self._called("LIST_JOBS", table, tenant_id=tenant_id, **arguments)
        listed = {name: value for name, value in JOB.items() if name not in ("operation", "result")}
        return {"jobs": [listed], "next_page_token": None}

    def run_job(self, job_id: str, part: int, **arguments: Any) -> float | None:
        self._called("run_job", None, job_id=job_id, part=part, **arguments)
        return self.job_comes_again_after

    def give_up_job(self, job_id: str, part: int, why: str) -> None:
        self._called("give_up_job", None, job_id=job_id, part=part, why=why)

    def spark_run_changed(self, run_id: str) -> str | None:
        self._called("spark_run_changed", None, run_id=run_id)
        return "job-1"

    def postpone_message(self, receipt: str, seconds: float) -> None:
        self._called("postpone_message", None, receipt=receipt, seconds=seconds)

    @answering(SweepAnswer)
    def sweep(self, scope: Scope, **arguments: Any) -> dict[str, object]:
        self._called("SWEEP", None, scope=scope, **arguments)
        return {
            "dry_run": arguments["dry_run"],
            "tables_swept": len(self.known),
            "files_deleted": 0,
            "bytes_freed": 0,
            "errors": 0,
            "backlog": 0,
            "backlog_tables": [],
            "tables": [],
            "jobs_submitted": 0,
            "jobs_backlog": 0,
            "ranking": [],
        }

    @answering(FleetScanAnswer)
    def scan(self, scope: Scope, **arguments: Any) -> dict[str, object]:
        self._called("FLEET_SCAN", None, scope=scope, **arguments)
        counts = {"observed": len(self.known), "unchanged": 0, "backlog": 0, "settled": 0}
        return {**counts, "gone": [], "errors": [], "statuses": {"HEALTHY": len(self.known)}}

    @answering(FleetPlanAnswer)
    def plan(self, scope: Scope, **arguments: Any) -> dict[str, object]:
        self._called("FLEET_PLAN", None, scope=scope, **arguments)
        return {
            "plan_id": None,
            "runs": [],
            "dollars": 0.0,
            "elsewhere": [],
            "bills": [],
            "pace_error": None,
            "statuses": {},
        }

    @answering(FleetApplyAnswer)
    def apply(self, scope: Scope, **arguments: Any) -> dict[str, object]:
        self._called("FLEET_APPLY", None, scope=scope, **arguments)
        return {"plan_id": arguments["plan_id"], "runs": [], "left": [], "predicted_dollars": 0.0}

    def tell(self, *scopes: Scope) -> None:
        """Tell nobody."""

    @answering(FleetStatusAnswer)
    def status(self, scope: Scope, ident: str | None = None, **arguments: Any) -> dict[str, object]:
        self._called("FLEET_STATUS", None, scope=scope, ident=ident, **arguments)
        return {"tables": [], "more": 0, "statuses": {}, "bills": []}

    @answering(FleetHistoryAnswer)
    def history(self, scope: Scope, ident: str | None = None, **arguments: Any) -> dict[str, object]:
        self._called("FLEET_HISTORY", None, scope=scope, ident=ident, **arguments)
        return {"runs": []}


def settings_for(environment: str, **more: str) -> Settings:
    """Load the repository's own config.json for one environment."""
    return load_settings(
        {
            "REGELATE_ENVIRONMENT": environment,
            "REGELATE_CONFIG": str(REPOSITORY / "config.json"),
            "REGELATE_WAREHOUSE": "s3://warehouse",
            **more,
        }
    )


@dataclass(frozen=True)
class LambdaContext:
    """What Powertools reads from Lambda's context."""

    function_name: str = "regelate"
    memory_limit_in_mb: int = 3008
    invoked_function_arn: str = "arn:aws:lambda:eu-central-1:123456789012:function:regelate"
    aws_request_id: str = "52fdfc07-2182-454f-963f-5f0f9a621d72"
