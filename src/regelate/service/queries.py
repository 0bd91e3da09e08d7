"""QUERY: one snapshot of one table, read in a session of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regelate.core.access import Access
from regelate.core.answers import QueryAnswer
from regelate.core.measures.measures import Queried
from regelate.core.requests import QueryRequest
from regelate.ports.clock import Clock
from regelate.ports.telemetry import Telemetry
from regelate.service.engines import Engines
from regelate.service.fleet_reads import FleetReads
from regelate.service.open_tables import OpenTables
from regelate.service.results import ResultStores
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.settings import Settings


class Queries:
    """Answers queries within the limits of the tenant who asks."""

    def __init__(
        self,
        tables: OpenTables,
        engines: Engines,
        results: ResultStores,
        reads: FleetReads,
        settings: Settings,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._tables = tables
        self._engines = engines
        self._results = results
        self._reads = reads
        self._limits = settings.limits
        self._clock = clock
        self._telemetry = telemetry

    def query(self, address: Address, request: QueryRequest) -> QueryAnswer:
        from regelate.operations.query import QueryLimits, QueryTools, query

        limits = self._limits.of(address.tenant_id)
        results = self._results.of(address.tenant_id)
        self._engines.warm_for_query()
        with self._tables.open(address, Access.READ) as session:
            stored = None if results is None else limits.max_stored_result_bytes
            tools = QueryTools(
                scan=session.scan,
                engine=self._engines.querying(session, tenant=address.tenant_id, max_stored_bytes=stored),
                clock=self._clock,
                limits=QueryLimits(
                    max_rows=limits.max_result_rows, max_bytes=limits.max_result_bytes, seconds=limits.query_seconds
                ),
                opened=lambda files: self._reads.queried(session.uuid, files),
                results=results,
            )
            with self._telemetry.span("query", table=address.ident):
                found = query(tools, request, table_name=address.told_ident)
        self._telemetry.tell(Queried(table=address.ident, seconds=found.query_time_ms / 1000))
        return found
