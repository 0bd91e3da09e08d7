"""SWEEP: every table of a tenant in one catalog, one after the other, and jobs for those in the worst health."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from regelate.core.answers import SweepAnswer
from regelate.core.jobs.job import JobRecord, Origin
from regelate.core.jobs.ranking import RankingPolicy
from regelate.core.measures.measures import SweepEnded
from regelate.core.requests import CompactRequest
from regelate.core.running.batches import usable_seconds
from regelate.errors import RegelateError
from regelate.operations import answers
from regelate.operations.allowance import Allowance
from regelate.operations.compacting.continuing import RunPart
from regelate.operations.health import table_health
from regelate.operations.upkeep.fleet import FleetTable, submit_for_ill
from regelate.ports.clock import Clock
from regelate.ports.telemetry import Telemetry
from regelate.service.access import CatalogAccess
from regelate.service.job_desk import JobDesk
from regelate.service.knobs import Knobs
from regelate.service.open_tables import OpenTables
from regelate.service.table_sweeps import TableSweeps
from regelate.tenancy import Address, Scope

if TYPE_CHECKING:
    from regelate.operations.upkeep.sweep import Swept, SweptTable
    from regelate.settings.models import SweepSettings


class Fleet:
    """Goes over many tables; `limits` are what a request leaves open."""

    def __init__(
        self,
        access: CatalogAccess,
        tables: OpenTables,
        knobs: Knobs,
        sweeps: TableSweeps,
        jobs: JobDesk,
        limits: SweepSettings,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._access = access
        self._tables = tables
        self._knobs = knobs
        self._sweeps = sweeps
        self._jobs = jobs
        self._limits = limits
        self._clock = clock
        self._telemetry = telemetry

    def sweep(
        self,
        scope: Scope,
        *,
        max_tables: int | None,
        time_budget_seconds: float | None,
        health_below: float | None = None,
        max_jobs: int | None = None,
        dry_run: bool,
        seconds_left: float | None = None,
    ) -> SweepAnswer:
        """Sweep the tables of a scope; what the request leaves open comes from config.json.

        `seconds_left`: until this process is ended from outside. No table is begun so late that the jobs, which are
        submitted after the last one, would not be, and what many snapshots may need is not looked up for longer.
        """
        from regelate.adapters.iceberg.admin import IcebergAdmin
        from regelate.operations.upkeep.sweep import SweepBudget, sweep

        limits, clock = self._limits, self._clock
        seconds = limits.max_seconds if time_budget_seconds is None else time_budget_seconds
        budget = SweepBudget(
            max_tables=limits.max_tables if max_tables is None else max_tables,
            max_seconds=seconds if seconds_left is None else min(seconds, usable_seconds(seconds_left)),
        )
        until = None if seconds_left is None else clock.monotonic() + usable_seconds(seconds_left)
        done = sweep(
            IcebergAdmin(self._access.survey(scope.catalog), defaults={}),
            scope.holds,
            lambda ident: self._swept(scope.address(ident), until, dry_run=dry_run),
            clock,
            budget,
            scope.namespace,
        )
        policy = RankingPolicy(
            health_below=limits.health_below if health_below is None else health_below,
            max_jobs=limits.max_jobs if max_jobs is None else max_jobs,
        )
        ranked = self._ranked(scope, done, policy, dry_run=dry_run)
        answer = answers.swept(done, ranked, dry_run=dry_run)
        self._telemetry.tell(SweepEnded(faults=answer.errors))
        return answer

    def _swept(self, address: Address, until: float | None, *, dry_run: bool) -> SweptTable:
        """Sweep one table, and look at its health where somebody could do something about it."""
        with self._tables.open(address) as session:
            allowance = Allowance(self._clock, until=until)
            swept = self._sweeps.sweep(session, allowance, address, dry_run=dry_run)
            if not self._jobs.enabled:
                return swept
            try:
                health = table_health(session.reader, self._clock, self._knobs.policy(session)).health
            except RegelateError as error:
                return replace(swept, error=swept.error or error)
            return replace(swept, health=health)

    def _ranked(self, scope: Scope, done: Swept, policy: RankingPolicy, *, dry_run: bool) -> tuple[FleetTable, ...]:
        """Submit jobs for the tables in the worst health; none where there are no jobs."""
        if not self._jobs.enabled:
            return ()

        def submit(ident: str) -> JobRecord:
            part = RunPart(base_run_id=f"sweep-{uuid.uuid4().hex}", part=1, request=CompactRequest())
            return self._jobs.submit(scope.address(ident), part, Origin.SWEEP)

        def known(ident: str) -> JobRecord | None:
            return self._jobs.live(scope.address(ident), announce=not dry_run)

        return submit_for_ill(done, policy, None if dry_run else submit, known)
