"""SWEEP, wired: every table of a tenant in one catalog, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from regelate.core.names import SEPARATOR
from regelate.operations import answers
from regelate.tenancy import Address, Scope

if TYPE_CHECKING:
    from regelate.adapters.iceberg.manifests import ManifestReader
    from regelate.adapters.iceberg.session import TableSession
    from regelate.operations.sweep import SweptTable
    from regelate.ports import Clock
    from regelate.settings import Settings


class Parts(Protocol):
    """What a sweep takes from the Application."""

    settings: Settings

    @property
    def clock(self) -> Clock: ...
    @property
    def _manifests(self) -> ManifestReader: ...
    def catalog(self, name: str | None = None) -> Any: ...
    def _session(self, address: Address) -> AbstractContextManager[TableSession]: ...


class Sweeping:
    """The part of the Application that goes over many tables."""

    def sweep(
        self: Parts, scope: Scope, *, max_tables: int | None, time_budget_seconds: float | None, dry_run: bool
    ) -> Mapping[str, object]:
        """Sweep the tables of a scope; what the request leaves open comes from config.json."""
        from regelate.adapters.iceberg.admin import IcebergAdmin
        from regelate.operations.sweep import SweepBudget, sweep

        limits = self.settings.sweep
        budget = SweepBudget(
            max_tables=limits.max_tables if max_tables is None else max_tables,
            max_seconds=limits.max_seconds if time_budget_seconds is None else time_budget_seconds,
        )
        fleet = IcebergAdmin(self.catalog(scope.catalog), defaults={})
        done = sweep(
            fleet,
            scope.holds,
            lambda ident: _swept(self, scope, ident, dry_run=dry_run),
            self.clock,
            budget,
            scope.namespace,
        )
        return answers.swept(done, dry_run=dry_run)


def _swept(parts: Parts, scope: Scope, ident: str, *, dry_run: bool) -> SweptTable:
    address = Address(
        tenant_id=scope.tenant_id, catalog=scope.catalog, ident=ident, table=ident.rpartition(SEPARATOR)[2]
    )
    with parts._session(address) as session:
        return swept_table(parts, session, address, dry_run=dry_run)


def swept_table(parts: Parts, session: TableSession, address: Address, *, dry_run: bool) -> SweptTable:
    """Sweep one loaded table."""
    from regelate.adapters.iceberg.dead_runs import TableLedgers
    from regelate.operations.sweep import sweep_table

    return sweep_table(
        address.ident,
        TableLedgers(parts.catalog(address.catalog), address.ident, parts._manifests),
        session.reclaimer,
        longest_run_seconds=parts.settings.sweep.longest_run_seconds,
        dry_run=dry_run,
    )
