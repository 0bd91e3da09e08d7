"""Who reads which table how often, told to the fleet's memory: by reports of any engine, and by our own QUERY."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from regelate.core.values import dataclass
from regelate.errors import RegelateError
from regelate.operations.fleet.reports import ReportMetricsAnswer, ReportType, files_opened, kind_of
from regelate.ports.clock import Clock
from regelate.service.fleet_memory import no_fleet, unknown_table
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.core.fleet.state import TableState
    from regelate.ports.fleet_store import FleetStore
    from regelate.service.automatic import Automatic

BUNDLE_SECONDS = 10.0
"""Reads of one table are told to the store together: a dashboard that asks a hundred times a second writes six times a
minute. What a process counted since may be lost with it."""
NAMES_SECONDS, MISSED_SECONDS = 600.0, 30.0
"""So long the names of the fleet's tables are believed; and after a name that nobody knew they are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bundle:
    count: int = 0
    files: int = 0


class FleetReads:
    """Counts reads by the tables' UUIDs. `memory`: the fleet's store, None where there is none. Safe for threads."""

    def __init__(self, memory: Callable[[], FleetStore | None], automatic: Automatic, clock: Clock) -> None:
        self._memory = memory
        self._automatic = automatic
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, _Bundle] = {}
        self._told: dict[str, float] = {}
        self._uuids: Mapping[tuple[str, str], str] = {}
        self._named = float("-inf")

    def reported(self, address: Address, report: Mapping[str, object]) -> ReportMetricsAnswer:
        """Take one report. A commit's is a notice, as NOTIFY_COMMIT is one.

        Errors: InvalidRequest INVALID_FIELD; Unsupported FLEET_DISABLED; NotFound FLEET_TABLE_NOT_FOUND; Unavailable
        FLEET_UNAVAILABLE; of a commit those of `Automatic.notified`.
        """
        kind = kind_of(report)
        if kind is ReportType.COMMIT:
            noticed = self._automatic.notified(address)
            return ReportMetricsAnswer(table=address.told_ident, report_type=kind, job_id=noticed.job_id)
        files = files_opened(report)
        store = self._memory()
        if store is None:
            raise no_fleet()
        self._count(store, self._uuid_of(store, address), files)
        return ReportMetricsAnswer(table=address.told_ident, report_type=kind, files=files)

    def queried(self, table_uuid: str, files: int) -> None:
        """Count a QUERY of a table's head; whatever becomes of the count, the query has its answer."""
        try:
            store = self._memory()
            if store is not None:
                self._count(store, table_uuid, files)
        except RegelateError:
            return

    def _count(self, store: FleetStore, table_uuid: str, files: int) -> None:
        now = self._clock.monotonic()
        with self._lock:
            before = self._waiting.get(table_uuid, _Bundle())
            bundle = _Bundle(count=before.count + 1, files=before.files + files)
            if now - self._told.get(table_uuid, float("-inf")) < BUNDLE_SECONDS:
                self._waiting[table_uuid] = bundle
                return
            self._waiting.pop(table_uuid, None)
            self._told[table_uuid] = now
        now_ms = self._clock.now_ms()

        def read(state: TableState | None) -> TableState:
            if state is None:
                raise unknown_table()
            return state.read(bundle.count, bundle.files, now_ms)

        store.change(table_uuid, read)

    def _uuid_of(self, store: FleetStore, address: Address) -> str:
        """Return the UUID that the fleet knows a table by. The names are read at once, for a report needs one only."""
        key, now = (address.catalog, address.ident), self._clock.monotonic()
        with self._lock:
            age = now - self._named
            if age > NAMES_SECONDS or (key not in self._uuids and age > MISSED_SECONDS):
                self._uuids = {(state.catalog, state.ident): state.table_uuid for state in store.states()}
                self._named = now
            if key not in self._uuids:
                raise unknown_table()
            return self._uuids[key]
