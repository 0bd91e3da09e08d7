"""One function per operation: from a request that passed the door to one call of the service behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar, cast

from regelate.core.answers import (
    AlterTableAnswer,
    Answer,
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
    ListedJob,
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
from regelate.core.jobs.job import JobState
from regelate.core.requests import CompactRequest, MaintainRequest, MissingColumns, QueryRequest
from regelate.core.table.table import MAIN_BRANCH
from regelate.entrypoints import fleet_actions
from regelate.entrypoints.api.definition import evolution, table_definition
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
from regelate.entrypoints.api.request_base import NamespaceRequest, TableRequest
from regelate.entrypoints.api.requests import (
    AlterTable,
    AnyRequest,
    Compact,
    CreateTable,
    DescribeTable,
    DropTable,
    ExpireSnapshots,
    HealthCheck,
    ListNamespaces,
    ListTables,
    Maintain,
    Query,
    RemoveOrphanFiles,
    RewriteManifests,
    TableHealth,
    TableStats,
    Write,
    asked,
)
from regelate.entrypoints.api.validation import validated
from regelate.entrypoints.caller import Caller
from regelate.entrypoints.log import safe, told
from regelate.errors import InvalidRequest
from regelate.operations.automatic import NotifyCommitAnswer
from regelate.operations.fleet.reports import ReportMetricsAnswer
from regelate.operations.refs import CreateTagAnswer, DropTagAnswer, RollbackAnswer
from regelate.operations.table_stats import TableStatsAnswer
from regelate.service.facade import Service
from regelate.tenancy import DEFAULT_NAMESPACE, Address

Payload = Mapping[str, object]
Told = TypeVar("Told", JobAnswer, ListedJob)


def _address(service: Service, request: NamespaceRequest, caller: Caller, *, creating: bool = False) -> Address:
    table = request.table if isinstance(request, TableRequest) else None
    return service.tenancy.resolve(
        caller.claim_tenant,
        request.tenant_id,
        request.catalog,
        request.namespace,
        table,
        trusted=caller.is_trusted(service.settings),
        creating=creating,
    )


def _health_check(service: Service, request: HealthCheck, caller: Caller) -> Answer:
    return service.process.health_check()


def _create_table(service: Service, request: CreateTable, caller: Caller) -> Answer:
    address = _address(service, request, caller, creating=True)
    return service.tables.create_table(address, table_definition(request), if_not_exists=request.if_not_exists)


def _alter_table(service: Service, request: AlterTable, caller: Caller) -> Answer:
    return service.tables.alter_table(
        _address(service, request, caller),
        set_properties=request.set_properties,
        unset_properties=request.unset_properties,
        evolution=evolution(request),
    )


def _describe_table(service: Service, request: DescribeTable, caller: Caller) -> Answer:
    return service.tables.describe_table(_address(service, request, caller))


def _list_namespaces(service: Service, request: ListNamespaces, caller: Caller) -> Answer:
    trusted = caller.is_trusted(service.settings)
    scope = service.tenancy.scope(caller.claim_tenant, request.tenant_id, request.catalog, None, trusted=trusted)
    return service.tables.list_namespaces(scope)


def _list_tables(service: Service, request: ListTables, caller: Caller) -> Answer:
    return service.tables.list_tables(_address(service, request, caller))


def _drop_table(service: Service, request: DropTable, caller: Caller) -> Answer:
    return service.tables.drop_table(_address(service, request, caller), purge=request.purge)


def _create_tag(service: Service, request: CreateTag, caller: Caller) -> Answer:
    return service.refs.create_tag(
        _address(service, request, caller),
        request.tag,
        snapshot_id=request.snapshot_id,
        retention_hours=request.retention_hours,
    )


def _drop_tag(service: Service, request: DropTag, caller: Caller) -> Answer:
    return service.refs.drop_tag(_address(service, request, caller), request.tag)


def _rollback(service: Service, request: Rollback, caller: Caller) -> Answer:
    return service.refs.rollback(
        _address(service, request, caller),
        snapshot_id=request.snapshot_id,
        as_of=request.as_of,
        keep_tag=request.keep_tag,
    )


def _write(service: Service, request: Write, caller: Caller) -> Answer:
    address = _address(service, request, caller)
    limits = service.settings.limits.of(address.tenant_id)
    limit = limits.max_records
    if len(request.records) > limit:
        message = f"records: {len(request.records)} rows are more than {limit}; split them into several requests"
        raise InvalidRequest("PAYLOAD_TOO_LARGE", message, status=413, field="records", max_records=limit)
    return service.writes.write(
        address,
        request.records if caller.rows is None else caller.rows,
        mode=request.mode,
        key=tuple(request.key or ()),
        idempotency_key=request.idempotency_key,
        # A file that is written from this machine's command line keeps nobody else waiting, however long it takes.
        max_partitions=limits.max_partitions_per_write if caller.rows is None else None,
        missing_columns=request.missing_columns or MissingColumns.NULL.value,
        ref=request.ref or MAIN_BRANCH,
        seconds_left=caller.seconds_left,
    )


def _query(service: Service, request: Query, caller: Caller) -> Answer:
    return service.queries.query(_address(service, request, caller), asked(request, QueryRequest))


def _compact(service: Service, request: Compact, caller: Caller) -> Answer:
    return service.compactions.compact(
        _address(service, request, caller),
        asked(request, CompactRequest),
        progress=caller.progress,
        seconds_left=caller.seconds_left,
        may_delegate=caller.may_delegate,
    )


def _table_health(service: Service, request: TableHealth, caller: Caller) -> Answer:
    return service.health.table_health(_address(service, request, caller), explain=request.explain)


def _table_stats(service: Service, request: TableStats, caller: Caller) -> Answer:
    return service.health.table_stats(_address(service, request, caller))


def _expire_snapshots(service: Service, request: ExpireSnapshots, caller: Caller) -> Answer:
    address = _address(service, request, caller)
    if request.undo is not None:
        return service.upkeep.undo_expiry(address, request.undo)
    return service.upkeep.expire_snapshots(
        address,
        retention_hours=request.retention_hours,
        min_snapshots_to_keep=request.min_snapshots_to_keep,
        grace_hours=request.grace_hours,
        dry_run=request.dry_run,
    )


def _tenant(service: Service, request: JobStatus | JobCancel | ListJobs, caller: Caller) -> str:
    trusted = caller.is_trusted(service.settings)
    return service.tenancy.tenant(caller.claim_tenant, request.tenant_id, trusted=trusted)


def _job_status(service: Service, request: JobStatus, caller: Caller) -> Answer:
    return _redacted(service.jobs.job_status(_tenant(service, request, caller), request.job_id))


def _job_cancel(service: Service, request: JobCancel, caller: Caller) -> Answer:
    return _redacted(service.jobs.job_cancel(_tenant(service, request, caller), request.job_id))


def _list_jobs(service: Service, request: ListJobs, caller: Caller) -> Answer:
    table = None
    if request.table is not None:
        table = service.tenancy.resolve(
            caller.claim_tenant,
            request.tenant_id,
            request.catalog,
            request.namespace or DEFAULT_NAMESPACE,
            request.table,
            trusted=caller.is_trusted(service.settings),
        )
    state = None if request.state is None else JobState(request.state)
    listed = service.jobs.list_jobs(
        _tenant(service, request, caller), table, state=state, limit=request.limit, token=request.page_token
    )
    return replace(listed, jobs=tuple(_redacted(job) for job in listed.jobs))


def _redacted(job: Told) -> Told:
    """Put the stored error of a job behind the same wall as the error of an answer."""
    if job.error is None:
        return job
    details = cast(Mapping[str, object], safe(job.error.details))
    return replace(job, error=replace(job.error, message=told(job.error.message), details=details))


def _sweep(service: Service, request: Sweep, caller: Caller) -> Answer:
    return service.fleet.sweep(
        fleet_actions.scope_of(service, request, caller),
        max_tables=request.max_tables,
        time_budget_seconds=request.time_budget_seconds,
        health_below=request.health_below,
        max_jobs=request.max_jobs,
        dry_run=request.dry_run,
        seconds_left=caller.seconds_left,
    )


def _notify_commit(service: Service, request: NotifyCommit, caller: Caller) -> Answer:
    trusted = caller.is_trusted(service.settings)
    claim, tenant, catalog = caller.claim_tenant, request.tenant_id, request.catalog
    if request.table is not None:
        address = service.tenancy.resolve(claim, tenant, catalog, request.namespace, request.table, trusted=trusted)
        return service.automatic.notified(address)
    location = request.metadata_location or ""
    candidates = service.tenancy.located(claim, tenant, catalog, location, trusted=trusted)
    return service.automatic.located(candidates, location)


def _report_metrics(service: Service, request: ReportMetrics, caller: Caller) -> Answer:
    return service.fleet_reads.reported(_address(service, request, caller), request.report)


def _remove_orphan_files(service: Service, request: RemoveOrphanFiles, caller: Caller) -> Answer:
    return service.upkeep.remove_orphan_files(
        _address(service, request, caller), older_than_hours=request.older_than_hours, dry_run=request.dry_run
    )


def _rewrite_manifests(service: Service, request: RewriteManifests, caller: Caller) -> Answer:
    return service.upkeep.rewrite_manifests(_address(service, request, caller), dry_run=request.dry_run)


def _maintain(service: Service, request: Maintain, caller: Caller) -> Answer:
    return service.upkeep.maintain(_address(service, request, caller), asked(request, MaintainRequest))


class Who(Enum):
    """Who may ask. Whether a tenant is the caller's own is `Tenancy`'s to say."""

    ANYBODY = "anybody"
    """It tells nothing of any tenant."""
    TENANT = "a tenant"
    TENANT_OR_TRUSTED = "a tenant, or for all of them whoever is let in by IAM"


@dataclass(frozen=True, slots=True)
class Operation:
    """One verb: what is asked, what is answered, what is done between the two, and who may ask for it."""

    name: str
    request: type[AnyRequest]
    answer: type[Answer]
    action: Callable[[Service, Any, Caller], Answer]
    who: Who = Who.TENANT


_ROWS = (
    Operation("HEALTH_CHECK", HealthCheck, HealthCheckAnswer, _health_check, Who.ANYBODY),
    Operation("CREATE_TABLE", CreateTable, CreateTableAnswer, _create_table),
    Operation("ALTER_TABLE", AlterTable, AlterTableAnswer, _alter_table),
    Operation("DESCRIBE_TABLE", DescribeTable, DescribeTableAnswer, _describe_table),
    Operation("LIST_NAMESPACES", ListNamespaces, ListNamespacesAnswer, _list_namespaces),
    Operation("LIST_TABLES", ListTables, ListTablesAnswer, _list_tables),
    Operation("DROP_TABLE", DropTable, DropTableAnswer, _drop_table),
    Operation("CREATE_TAG", CreateTag, CreateTagAnswer, _create_tag),
    Operation("DROP_TAG", DropTag, DropTagAnswer, _drop_tag),
    Operation("ROLLBACK", Rollback, RollbackAnswer, _rollback),
    Operation("WRITE", Write, WriteAnswer, _write),
    Operation("QUERY", Query, QueryAnswer, _query),
    Operation("COMPACT", Compact, CompactAnswer, _compact),
    Operation("TABLE_HEALTH", TableHealth, TableHealthAnswer, _table_health),
    Operation("TABLE_STATS", TableStats, TableStatsAnswer, _table_stats),
    Operation("REMOVE_ORPHAN_FILES", RemoveOrphanFiles, RemoveOrphanFilesAnswer, _remove_orphan_files),
    Operation("REWRITE_MANIFESTS", RewriteManifests, RewriteManifestsAnswer, _rewrite_manifests),
    Operation("MAINTAIN", Maintain, MaintainAnswer, _maintain),
    Operation("EXPIRE_SNAPSHOTS", ExpireSnapshots, ExpireSnapshotsAnswer, _expire_snapshots),
    Operation("NOTIFY_COMMIT", NotifyCommit, NotifyCommitAnswer, _notify_commit, Who.TENANT_OR_TRUSTED),
    Operation("FLEET_SCAN", FleetScan, FleetScanAnswer, fleet_actions.fleet_scan, Who.TENANT_OR_TRUSTED),
    Operation("FLEET_PLAN", FleetPlan, FleetPlanAnswer, fleet_actions.fleet_plan, Who.TENANT_OR_TRUSTED),
    Operation("FLEET_APPLY", FleetApply, FleetApplyAnswer, fleet_actions.fleet_apply, Who.TENANT_OR_TRUSTED),
    Operation("FLEET_STATUS", FleetStatusOf, FleetStatusAnswer, fleet_actions.fleet_status, Who.TENANT_OR_TRUSTED),
    Operation("FLEET_HISTORY", FleetHistory, FleetHistoryAnswer, fleet_actions.fleet_history, Who.TENANT_OR_TRUSTED),
    Operation("REPORT_METRICS", ReportMetrics, ReportMetricsAnswer, _report_metrics),
    Operation("SWEEP", Sweep, SweepAnswer, _sweep, Who.TENANT_OR_TRUSTED),
    Operation("JOB_STATUS", JobStatus, JobAnswer, _job_status),
    Operation("JOB_CANCEL", JobCancel, JobAnswer, _job_cancel),
    Operation("LIST_JOBS", ListJobs, ListJobsAnswer, _list_jobs),
)
OPERATIONS: Mapping[str, Operation] = {row.name: row for row in _ROWS}


def parse_request(payload: Mapping[str, object]) -> AnyRequest:
    """Return the request that a JSON object is, by its `operation`. Errors: InvalidRequest."""
    if "operation" not in payload:
        known = ", ".join(OPERATIONS)
        raise InvalidRequest("MISSING_FIELD", f"operation: this field is missing; known are {known}", field="operation")
    operation = payload["operation"]
    if not isinstance(operation, str):
        raise InvalidRequest("INVALID_FIELD", "operation: must be a string", field="operation")
    if operation not in OPERATIONS:
        shown = operation[:60].encode("ascii", "backslashreplace").decode()
        raise InvalidRequest(
            "UNKNOWN_OPERATION",
            f"operation {shown!r} does not exist; known are {', '.join(OPERATIONS)}",
            operation=shown,
            known_operations=list(OPERATIONS),
        )
    return validated(OPERATIONS[operation].request, payload)


def execute(service: Service, request: AnyRequest, caller: Caller) -> Answer:
    """Do what `request` asks and return its answer. Errors: RegelateError.

    Whoever names a tenant passes `Tenancy.admitted` first, whatever the operation: no action can forget it.
    """
    row = OPERATIONS[request.operation]
    if row.who is Who.ANYBODY:
        return row.action(service, request, caller)
    tenant, trusted = getattr(request, "tenant_id", None), caller.is_trusted(service.settings)
    if tenant is None:
        if row.who is not Who.TENANT_OR_TRUSTED or not caller.trusted:
            raise InvalidRequest("MISSING_FIELD", "tenant_id is required", field="tenant_id")
        return row.action(service, request, caller)
    with service.tenancy.admitted(caller.claim_tenant, tenant, trusted=trusted):
        return row.action(service, request, caller)
