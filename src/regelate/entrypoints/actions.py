"""One function per operation: from a request that passed the door to one call of the service behind it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from regelate.core.requests import CompactRequest, MaintainRequest, QueryRequest
from regelate.entrypoints.definition import table_definition
from regelate.entrypoints.job_requests import JobCancel, JobStatus, Sweep
from regelate.entrypoints.log import Subject, log_answer, safe, speak_of, stack_of
from regelate.entrypoints.request_base import NamespaceRequest, TableRequest
from regelate.entrypoints.requests import (
    AlterTable,
    AnyRequest,
    Compact,
    CreateTable,
    DescribeTable,
    DropTable,
    ExpireSnapshots,
    HealthCheck,
    ListTables,
    Maintain,
    Query,
    RemoveOrphanFiles,
    RewriteManifests,
    TableHealth,
    Write,
    asked,
)
from regelate.entrypoints.responses import failed, succeeded
from regelate.errors import InvalidRequest, InvariantViolated, RegelateError
from regelate.service.facade import Provider, Service
from regelate.settings import Settings
from regelate.tenancy import Address, Scope

Payload = Mapping[str, object]
Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, by the envelope. `trusted`: an IAM principal invoked us directly, so its payload names the tenant.
    `seconds_left`: until Lambda ends this process, as far as it is known when the event arrives.
    `signed`: the gateway has checked an IAM principal's signature; with `auth: iam` that is trusted as well.

    A caller on this machine may hand over what no JSON holds: `rows` in place of a WRITE's records, and `progress`,
    which hears how far a COMPACT is. `may_delegate`: it can wait for a job.
    """

    request_id: str
    claim_tenant: str | None = None
    seconds_left: float | None = None
    trusted: bool = False
    signed: bool = False
    rows: object | None = None
    progress: Callable[[int, int], None] | None = None
    may_delegate: bool = True

    def is_trusted(self, settings: Settings) -> bool:
        return self.trusted or (self.signed and settings.auth == "iam")


Parser = Callable[[Payload, Service, Caller], AnyRequest]


ACCEPTED = 202
DELEGATED = "DELEGATED"
"""The status of an answer that a job will complete."""


def new_request_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer: its HTTP status, as an object, and as JSON text."""

    status: int
    made: dict[str, Any]
    text: str

    def fitting(self, max_bytes: int | None, caller: Caller, *, in_body: bool = False) -> Answered:
        """Return this answer, or 413 where it is too large. Measured as Lambda's runtime writes it: JSON in ASCII, and
        escaped once more where it is the `body` of an HTTP answer.
        """
        if max_bytes is None or len(self.text) * _MOST_BYTES_PER_CHARACTER + _HEADERS_BYTES <= max_bytes:
            return self
        size = len(json.dumps(self.text if in_body else self.made)) + _HEADERS_BYTES
        if size <= max_bytes:
            return self
        message = f"the answer has {size} bytes, more than {max_bytes}; ask for less, for example by limit or columns"
        fault = InvalidRequest("RESULT_TOO_LARGE", message, status=413, max_bytes=max_bytes)
        return refusal(fault, replace(caller, request_id=self.made["request_id"]))


_MOST_BYTES_PER_CHARACTER = 12
"""A character beyond the first plane becomes two escapes of six."""
_HEADERS_BYTES = 1_000
"""More than status, headers and flags of an HTTP answer of ours take."""


def answer(provider: Provider, load: Callable[[Settings], Payload], parse: Parser, caller: Caller) -> Answered:
    """Return the answer to one request, whatever happens: the last wall. Logs one line.

    `load` gives the request as one JSON object, `parse` makes the model of it; both may raise a RegelateError.
    """
    started, subject, stack = time.monotonic(), Subject.of({}, caller.request_id), None
    speak_of(subject)
    try:
        service = provider()
        payload = load(service.settings)
        subject = Subject.of(payload, caller.request_id)
        speak_of(subject)
        request = parse(payload, service, caller)
        made = succeeded(execute(service, request, caller), subject.request_id)
        answered = _answered(ACCEPTED if made.get("status") == DELEGATED else 200, made)
    except RegelateError as fault:
        answered = _answered(fault.status, failed(fault, subject.request_id))
        stack = stack_of(fault) if isinstance(fault, InvariantViolated) else None
    except Exception as fault:  # noqa: BLE001  the caller gets an answer without a stack, the log gets the stack
        stack = stack_of(fault)
        message = "an unexpected fault; report it with the request_id, and look at the table before writing again"
        bug = RegelateError("INTERNAL_ERROR", message)
        answered = _answered(bug.status, failed(bug, subject.request_id))
    log_answer(subject, answered.status, answered.made, time.monotonic() - started, stack)
    return answered


def refusal(fault: RegelateError, caller: Caller) -> Answered:
    """Return the answer to what never became a request."""
    answered = _answered(fault.status, failed(fault, caller.request_id))
    log_answer(Subject.of({}, caller.request_id), answered.status, answered.made, 0.0)
    return answered


def _answered(status: int, made: dict[str, Any]) -> Answered:
    text = json.dumps(made, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Answered(status=status, made=made, text=text)


def execute(service: Service, request: AnyRequest, caller: Caller) -> Fields:
    """Do what `request` asks and return the fields of its answer. Errors: RegelateError.

    Whoever names a tenant passes `Tenancy.admitted` first, whatever the operation: no action can forget it.
    """
    tenant = getattr(request, "tenant_id", None)
    trusted = caller.is_trusted(service.settings)
    asked = nullcontext() if tenant is None else service.tenancy.admitted(caller.claim_tenant, tenant, trusted=trusted)
    with asked:
        fields: Fields = _ACTIONS[type(request)](service, request, caller)
    return fields


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


def _health_check(service: Service, request: HealthCheck, caller: Caller) -> Fields:
    return service.process.health_check()


def _create_table(service: Service, request: CreateTable, caller: Caller) -> Fields:
    address = _address(service, request, caller, creating=True)
    return service.tables.create_table(address, table_definition(request), if_not_exists=request.if_not_exists)


def _alter_table(service: Service, request: AlterTable, caller: Caller) -> Fields:
    return service.tables.alter_table(
        _address(service, request, caller),
        set_properties=request.set_properties,
        unset_properties=request.unset_properties,
    )


def _describe_table(service: Service, request: DescribeTable, caller: Caller) -> Fields:
    return service.tables.describe_table(_address(service, request, caller))


def _list_tables(service: Service, request: ListTables, caller: Caller) -> Fields:
    return service.tables.list_tables(_address(service, request, caller))


def _drop_table(service: Service, request: DropTable, caller: Caller) -> Fields:
    return service.tables.drop_table(_address(service, request, caller), purge=request.purge)


def _write(service: Service, request: Write, caller: Caller) -> Fields:
    address = _address(service, request, caller)
    limit = service.settings.limits.of(address.tenant_id).max_records
    if len(request.records) > limit:
        message = f"records: {len(request.records)} rows are more than {limit}; split them into several requests"
        raise InvalidRequest("PAYLOAD_TOO_LARGE", message, status=413, field="records", max_records=limit)
    return service.writes.write(
        address,
        request.records if caller.rows is None else caller.rows,
        mode=request.mode,
        key=tuple(request.key or ()),
        idempotency_key=request.idempotency_key,
        seconds_left=caller.seconds_left,
    )


def _query(service: Service, request: Query, caller: Caller) -> Fields:
    return service.queries.query(_address(service, request, caller), asked(request, QueryRequest))


def _compact(service: Service, request: Compact, caller: Caller) -> Fields:
    return service.compactions.compact(
        _address(service, request, caller),
        asked(request, CompactRequest),
        progress=caller.progress,
        seconds_left=caller.seconds_left,
        may_delegate=caller.may_delegate,
    )


def _table_health(service: Service, request: TableHealth, caller: Caller) -> Fields:
    return service.health.table_health(_address(service, request, caller), explain=request.explain)


def _expire_snapshots(service: Service, request: ExpireSnapshots, caller: Caller) -> Fields:
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


def _tenant(service: Service, request: JobStatus | JobCancel, caller: Caller) -> str:
    trusted = caller.is_trusted(service.settings)
    return service.tenancy.tenant(caller.claim_tenant, request.tenant_id, trusted=trusted)


def _job_status(service: Service, request: JobStatus, caller: Caller) -> Fields:
    return _redacted(service.jobs.job_status(_tenant(service, request, caller), request.job_id))


def _job_cancel(service: Service, request: JobCancel, caller: Caller) -> Fields:
    return _redacted(service.jobs.job_cancel(_tenant(service, request, caller), request.job_id))


def _redacted(job: Fields) -> Fields:
    """Put the stored error of a job behind the same wall as the error of an answer."""
    return {**job, "error": safe(job["error"])}


def _scope(service: Service, request: Sweep, caller: Caller) -> Scope:
    """Return what is swept: a tenant's tables or, where no HTTP door is between, those of all tenants."""
    if request.tenant_id is not None:
        trusted = caller.is_trusted(service.settings)
        return service.tenancy.scope(
            caller.claim_tenant, request.tenant_id, request.catalog, request.namespace, trusted=trusted
        )
    if not caller.trusted or request.namespace is not None:
        raise InvalidRequest("MISSING_FIELD", "tenant_id is required", field="tenant_id")
    return service.tenancy.everybody(request.catalog)


def _sweep(service: Service, request: Sweep, caller: Caller) -> Fields:
    return service.fleet.sweep(
        _scope(service, request, caller),
        max_tables=request.max_tables,
        time_budget_seconds=request.time_budget_seconds,
        health_below=request.health_below,
        max_jobs=request.max_jobs,
        dry_run=request.dry_run,
        seconds_left=caller.seconds_left,
    )


def _remove_orphan_files(service: Service, request: RemoveOrphanFiles, caller: Caller) -> Fields:
    return service.upkeep.remove_orphan_files(
        _address(service, request, caller), older_than_hours=request.older_than_hours, dry_run=request.dry_run
    )


def _rewrite_manifests(service: Service, request: RewriteManifests, caller: Caller) -> Fields:
    return service.upkeep.rewrite_manifests(_address(service, request, caller), dry_run=request.dry_run)


def _maintain(service: Service, request: Maintain, caller: Caller) -> Fields:
    return service.upkeep.maintain(_address(service, request, caller), asked(request, MaintainRequest))


_ACTIONS: Mapping[type[AnyRequest], Callable[[Service, Any, Caller], Fields]] = {
    HealthCheck: _health_check,
    CreateTable: _create_table,
    AlterTable: _alter_table,
    DescribeTable: _describe_table,
    ListTables: _list_tables,
    DropTable: _drop_table,
    Write: _write,
    Query: _query,
    Compact: _compact,
    TableHealth: _table_health,
    ExpireSnapshots: _expire_snapshots,
    Sweep: _sweep,
    RemoveOrphanFiles: _remove_orphan_files,
    RewriteManifests: _rewrite_manifests,
    Maintain: _maintain,
    JobStatus: _job_status,
    JobCancel: _job_cancel,
}
