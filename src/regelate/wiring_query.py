"""QUERY, wired: one snapshot of one table, read in a session of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from regelate.core.measures import Queried
from regelate.core.requests import QueryRequest
from regelate.core.session_policy import Access
from regelate.core.timeouts import Timeouts
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.adapters.clock import SystemClock
    from regelate.adapters.iceberg.manifests import ManifestReader
    from regelate.adapters.iceberg.session import TableSession
    from regelate.core.policy import PlacementPolicy
    from regelate.core.results import StoredResult
    from regelate.ports.query import ResultStore
    from regelate.ports.telemetry import Telemetry
    from regelate.settings import ResultSettings, Settings

Fields = Mapping[str, object]


class Parts(Protocol):
    """What a query takes from the Application."""

    settings: Settings
    clock: SystemClock
    placement: PlacementPolicy

    @property
    def telemetry(self) -> Telemetry: ...
    @property
    def _results(self) -> ResultStores: ...
    @property
    def _manifests(self) -> ManifestReader: ...
    def _session(self, address: Address, access: Access) -> AbstractContextManager[TableSession]: ...


class ResultStores:
    """Where each tenant's large results go. The client of the bucket is made when a result first needs it."""

    def __init__(self, settings: ResultSettings, timeouts: Timeouts) -> None:
        self._settings = settings
        self._timeouts = timeouts

    @cached_property
    def client(self) -> Any:
        from regelate.adapters.aws.results import s3_client

        return s3_client(self._timeouts)

    def of(self, tenant: str) -> ResultStore | None:
        """Return a tenant's store; None where the configuration names no place."""
        place, seconds = self._settings.location, self._settings.url_seconds
        if not place:
            return None
        if self._settings.is_bucket:
            return _InBucket(stores=self, location=place, tenant=tenant, url_seconds=seconds)
        from regelate.adapters.local_results import FolderResults

        return FolderResults(Path(place), tenant, lives_seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _InBucket:
    """A tenant's part of the bucket. AWS's client takes a third of a second to import: only a large result pays."""

    stores: ResultStores
    location: str
    tenant: str
    url_seconds: int

    def keep(self, path: str, *, now_ms: int) -> StoredResult:
        from regelate.adapters.aws.results import BucketResults

        bucket = BucketResults(self.stores.client, self.location, self.tenant, url_seconds=self.url_seconds)
        return bucket.keep(path, now_ms=now_ms)


class Querying:
    """The part of the Application that answers queries."""

    if TYPE_CHECKING:
        settings: Settings

    @cached_property
    def _results(self) -> ResultStores:
        return ResultStores(self.settings.results, self.settings.network.timeouts)

    def query(self: Parts, address: Address, request: QueryRequest) -> Fields:
        from regelate.adapters.duckdb.query import DuckDBQueryEngine
        from regelate.adapters.iceberg.scan import SnapshotScan
        from regelate.operations.query import QueryLimits, QueryTools, query
        from regelate.ports.query import TableScan

        limits = self.settings.limits.of(address.tenant_id)
        results = self._results.of(address.tenant_id)
        with self._session(address, Access.READ) as session:

            def scan(snapshot_id: int | None, as_of_ms: int | None) -> TableScan:
                return SnapshotScan(
                    session.table, self._manifests, session.folder / "views", snapshot_id=snapshot_id, as_of_ms=as_of_ms
                )

            tools = QueryTools(
                scan=scan,
                engine=DuckDBQueryEngine(
                    folder=session.folder,
                    memory_bytes=self.placement.memory_bytes,
                    threads=self.placement.threads,
                    max_stored_bytes=None if results is None else limits.max_stored_result_bytes,
                    store=lambda: session.store_access,
                ),
                clock=self.clock,
                limits=QueryLimits(
                    max_rows=limits.max_result_rows, max_bytes=limits.max_result_bytes, seconds=limits.query_seconds
                ),
                results=results,
            )
            with self.telemetry.span("query", table=address.ident):
                found = query(tools, request, table_name=address.table or "")
        self.telemetry.tell(Queried(table=address.ident, seconds=found.query_time_ms / 1000))
        return found.as_dict()
