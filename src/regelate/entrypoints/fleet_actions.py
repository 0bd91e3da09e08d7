"""One function per operation on a fleet, and whose tables a request over many means."""

from __future__ import annotations

from regelate.core.answers import Answer
from regelate.core.fleet.operation import THE_SCHEDULE, FleetStatus, FleetTrigger
from regelate.core.running.batches import usable_seconds
from regelate.entrypoints.api.fleet_requests import (
    EVERY_CATALOG,
    FleetApply,
    FleetHistory,
    FleetPlan,
    FleetRequest,
    FleetScan,
    FleetStatusOf,
)
from regelate.entrypoints.api.job_requests import Sweep
from regelate.entrypoints.caller import Caller
from regelate.errors import InvalidRequest
from regelate.service.facade import Service
from regelate.tenancy import Scope


def scope_of(service: Service, request: Sweep | FleetRequest, caller: Caller) -> Scope:
    """Return what is meant: a tenant's tables or, where no HTTP door is between, those of all tenants."""
    namespace = request.namespace if isinstance(request, Sweep) else None
    if request.tenant_id is not None:
        trusted = caller.is_trusted(service.settings)
        return service.tenancy.scope(
            caller.claim_tenant, request.tenant_id, request.catalog, namespace, trusted=trusted
        )
    if namespace is not None:
        raise InvalidRequest("MISSING_FIELD", "tenant_id is required", field="tenant_id")
    return service.tenancy.everybody(request.catalog)


def _scopes_of(service: Service, request: FleetScan | FleetApply, caller: Caller) -> tuple[Scope, ...]:
    """Return what is meant, in one catalog or, without a tenant, in each of them."""
    if request.catalog != EVERY_CATALOG:
        return (scope_of(service, request, caller),)
    if request.tenant_id is not None:
        told = "catalog: `*` is for who may act for every tenant; leave tenant_id out"
        raise InvalidRequest("INVALID_FIELD", told, field="catalog")
    return tuple(service.tenancy.everybody(name) for name in service.settings.catalogs)


def fleet_scan(service: Service, request: FleetScan, caller: Caller) -> Answer:
    return service.fleet_desk().scan(
        *_scopes_of(service, request, caller),
        max_tables=request.max_tables,
        time_budget_seconds=_seconds(request.time_budget_seconds, caller),
    )


def fleet_plan(service: Service, request: FleetPlan, caller: Caller) -> Answer:
    return service.fleet_desk().plan(scope_of(service, request, caller), asked_by=_asked_by(request, caller))


def fleet_apply(service: Service, request: FleetApply, caller: Caller) -> Answer:
    desk, scopes = service.fleet_desk(), _scopes_of(service, request, caller)
    answer = desk.apply(
        *scopes,
        plan_id=request.plan_id,
        asked_by=_asked_by(request, caller),
        trigger=FleetTrigger.SCHEDULE if caller.scheduled else FleetTrigger.DEMAND,
        time_budget_seconds=_seconds(request.time_budget_seconds, caller),
    )
    if caller.scheduled:
        desk.tell(*scopes)
    return answer


def fleet_status(service: Service, request: FleetStatusOf, caller: Caller) -> Answer:
    status = None if request.status is None else FleetStatus(request.status)
    scope, ident = scope_of(service, request, caller), _fleet_table(service, request, caller)
    return service.fleet_desk().status(scope, ident, status=status, limit=request.limit)


def fleet_history(service: Service, request: FleetHistory, caller: Caller) -> Answer:
    scope, ident = scope_of(service, request, caller), _fleet_table(service, request, caller)
    return service.fleet_desk().history(scope, ident, limit=request.limit, backlog_days=request.backlog_days)


def _fleet_table(service: Service, request: FleetStatusOf | FleetHistory, caller: Caller) -> str | None:
    if request.table is None:
        return None
    if request.tenant_id is None:
        raise InvalidRequest("MISSING_FIELD", "tenant_id is required with a table", field="tenant_id")
    trusted = caller.is_trusted(service.settings)
    names = (request.tenant_id, request.catalog, request.namespace, request.table)
    return service.tenancy.resolve(caller.claim_tenant, *names, trusted=trusted).ident


def _asked_by(request: FleetRequest, caller: Caller) -> str:
    return request.tenant_id or (THE_SCHEDULE if caller.scheduled else "an operator")


def _seconds(wanted: float | None, caller: Caller) -> float | None:
    """Return the seconds that a request over many tables may take: no more than this process has left."""
    left = None if caller.seconds_left is None else usable_seconds(caller.seconds_left)
    return min((seconds for seconds in (wanted, left) if seconds is not None), default=None)
