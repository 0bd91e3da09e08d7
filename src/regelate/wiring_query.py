"""QUERY, wired: one snapshot of one table, read in a session of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from regelate.core.measures import Queried
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.adapters.clock import SystemClock
    from regelate.adapters.iceberg.manifests import ManifestReader
    from regelate.adapters.iceberg.session import TableSession
    from regelate.core.policy import PlacementPolicy
    from regelate.ports import Telemetry
    from regelate.settings import Settings

Fields = Mapping[str, object]


class Parts(Protocol):
    """What a query takes from the Application."""

    settings: Settings
    clock: SystemClock
    placement: PlacementPolicy

    @property
    def telemetry(self) -> Telemetry: ...
    @property
    def _manifests(self) -> ManifestReader: ...
    def _session(self, address: Address) -> AbstractContextManager[TableSession]: ...


class Querying:
    """The part of the Application that answers queries."""

    def query(self: Parts, address: Address, spec: Mapping[str, Any]) -> Fields:
        from regelate.adapters.duckdb.query import DuckDBQueryEngine
        from regelate.adapters.iceberg.scan import SnapshotScan
        from regelate.operations.query import QueryCommand, QueryLimits, QueryTools, TableScan, query

        limits = self.settings.limits.of(address.tenant_id)
        with self._session(address) as session:

            def scan(snapshot_id: int | None, as_of_ms: int | None) -> TableScan:
                return SnapshotScan(
                    session.table, self._manifests, session.folder / "views", snapshot_id=snapshot_id, as_of_ms=as_of_ms
                )

            tools = QueryTools(
                scan=scan,
                engine=DuckDBQueryEngine(
                    folder=session.folder, memory_bytes=self.placement.memory_bytes, threads=self.placement.threads
                ),
                clock=self.clock,
                limits=QueryLimits(
                    max_rows=limits.max_result_rows, max_bytes=limits.max_result_bytes, seconds=limits.query_seconds
                ),
            )
            command = QueryCommand(table_name=address.table or "", **spec)
            with self.telemetry.span("query", table=address.ident):
                found = query(tools, command)
        self.telemetry.tell(Queried(table=address.ident, seconds=found.query_time_ms / 1000))
        return found.as_dict()
