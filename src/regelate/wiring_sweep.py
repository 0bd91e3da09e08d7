"""SWEEP, wired: every table of a tenant in one catalog, one after the other."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from regelate.core.job import JobRecord, Origin, lock_of
from regelate.core.measures import SweepEnded
from regelate.core.names import SEPARATOR
from regelate.core.policy import CompactionPolicy
from regelate.core.ranking import RankingPolicy
from regelate.core.requests import CompactRequest
from regelate.core.waves import usable_seconds
from regelate.errors import NotAllowed, RegelateError
from regelate.operations import answers, job_answers
from regelate.operations.allowance import Allowance
from regelate.operations.continuing import RunPart
from regelate.operations.fleet import FleetTable, submit_for_ill
from regelate.operations.health import table_health
from regelate.operations.jobs import JobTools, live_job
from regelate.tenancy import Address, Scope

if TYPE_CHECKING:
    from regelate.adapters.iceberg.manifests import ManifestReader
    from regelate.adapters.iceberg.session import TableSession
    from regelate.operations.sweep import Swept, SweptTable
    from regelate.ports.clock import Clock
    from regelate.ports.files import Reclaimer
    from regelate.ports.telemetry import Telemetry
    from regelate.settings import Settings


class TableParts(Protocol):
    """What the sweep of one table takes from the Application."""

    settings: Settings

    @property
    def _manifests(self) -> ManifestReader: ...
    def catalog(self, name: str | None = None) -> Any: ...


class Parts(TableParts, Protocol):
    """What a sweep of many takes."""

    @property
    def clock(self) -> Clock: ...
    @property
    def telemetry(self) -> Telemetry: ...
    def _session(self, address: Address) -> AbstractContextManager[TableSession]: ...
    @property
    def jobs(self) -> JobTools | None: ...
    def submit_job(self, address: Address, part: RunPart, origin: Origin) -> JobRecord: ...
    def _policy(self, session: TableSession, request: CompactRequest) -> CompactionPolicy: ...


class Sweeping:
    """The part of the Application that goes over many tables."""

    def sweep(
        self: Parts,
        scope: Scope,
        *,
        max_tables: int | None,
        time_budget_seconds: float | None,
        health_below: float | None = None,
        max_jobs: int | None = None,
        dry_run: bool,
        seconds_left: float | None = None,
    ) -> Mapping[str, object]:
        """Sweep the tables of a scope; what the request leaves open comes from config.json.

        `seconds_left`: until this process is ended from outside. No table is begun so late that the jobs, which are
        submitted after the last one, would not be, and what many snapshots may need is not looked up for longer.
        """
        from regelate.adapters.iceberg.admin import IcebergAdmin
        from regelate.operations.sweep import SweepBudget, sweep

        limits = self.settings.sweep
        seconds = limits.max_seconds if time_budget_seconds is None else time_budget_seconds
        budget = SweepBudget(
            max_tables=limits.max_tables if max_tables is None else max_tables,
            max_seconds=seconds if seconds_left is None else min(seconds, usable_seconds(seconds_left)),
        )
        until = None if seconds_left is None else self.clock.monotonic() + usable_seconds(seconds_left)
        fleet = IcebergAdmin(self.catalog(scope.catalog), defaults={})
        done = sweep(
            fleet,
            scope.holds,
            lambda ident: _swept(self, scope, ident, until, dry_run=dry_run),
            self.clock,
            budget,
            scope.namespace,
        )
        policy = RankingPolicy(
            health_below=limits.health_below if health_below is None else health_below,
            max_jobs=limits.max_jobs if max_jobs is None else max_jobs,
        )
        ranked = _ranked(self, scope, done, policy, dry_run=dry_run)
        faults = done.faults + sum(table.error is not None for table in ranked)
        self.telemetry.tell(SweepEnded(faults=faults))
        return {**answers.swept(done, dry_run=dry_run), **job_answers.ranked(ranked), "errors": faults}


def _ranked(parts: Parts, scope: Scope, done: Swept, policy: RankingPolicy, *, dry_run: bool) -> tuple[FleetTable, ...]:
    """Submit jobs for the illest tables; none where there are no jobs."""
    tools = parts.jobs
    if tools is None:
        return ()

    def submit(ident: str) -> JobRecord:
        part = RunPart(base_run_id=f"sweep-{uuid.uuid4().hex}", part=1, request=CompactRequest())
        return parts.submit_job(_address(scope, ident), part, Origin.SWEEP)

    def known(ident: str) -> JobRecord | None:
        return live_job(tools, lock_of(scope.catalog, ident), announce=not dry_run)

    return submit_for_ill(done, policy, None if dry_run else submit, known)


def _address(scope: Scope, ident: str) -> Address:
    namespace, _, table = ident.rpartition(SEPARATOR)
    tenant = scope.tenant_of(namespace)
    if tenant is None:
        raise NotAllowed("FORBIDDEN", f"{namespace} is nobody's whom this sweep is for")
    return Address(tenant_id=tenant, catalog=scope.catalog, ident=ident, table=table)


def _swept(parts: Parts, scope: Scope, ident: str, until: float | None, *, dry_run: bool) -> SweptTable:
    """Sweep one table, and look at its health where somebody could do something about it."""
    address = _address(scope, ident)
    with parts._session(address) as session:
        reclaimer = session.reclaimer.within(Allowance(parts.clock, until=until).spend)
        swept = swept_table(parts, session, reclaimer, address, dry_run=dry_run)
        if parts.jobs is None:
            return swept
        try:
            health = table_health(session.reader, parts.clock, parts._policy(session, CompactRequest())).health
        except RegelateError as error:
            return replace(swept, error=swept.error or error)
        return replace(swept, health=health)


def swept_table(
    parts: TableParts, session: TableSession, reclaimer: Reclaimer, address: Address, *, dry_run: bool
) -> SweptTable:
    """Sweep one loaded table."""
    from regelate.adapters.iceberg.dead_runs import TableLedgers
    from regelate.operations.sweep import sweep_table

    return sweep_table(
        address.ident,
        TableLedgers(session.catalog, address.ident, parts._manifests),
        reclaimer,
        longest_run_seconds=parts.settings.sweep.longest_run_seconds,
        dry_run=dry_run,
    )
