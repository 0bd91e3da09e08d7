"""Tags and rollbacks: what the names of a table point at."""

from __future__ import annotations

from regelate.operations.query import moment_ms
from regelate.operations.refs import CreateTagAnswer, DropTagAnswer, RollbackAnswer, create_tag, drop_tag, rollback
from regelate.ports.clock import Clock
from regelate.service.open_tables import OpenTables
from regelate.tenancy import Address

MS_PER_HOUR = 3_600_000


class Refs:
    """Moves refs of one table at a time; each operation loads the table for itself."""

    def __init__(self, tables: OpenTables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock

    def create_tag(
        self, address: Address, name: str, *, snapshot_id: int | None, retention_hours: float | None
    ) -> CreateTagAnswer:
        age_ms = None if retention_hours is None else int(retention_hours * MS_PER_HOUR)
        with self._tables.open(address) as session:
            return create_tag(session.committer, self._clock, name, snapshot_id=snapshot_id, max_age_ms=age_ms)

    def drop_tag(self, address: Address, name: str) -> DropTagAnswer:
        with self._tables.open(address) as session:
            return drop_tag(session.committer, self._clock, name)

    def rollback(
        self, address: Address, *, snapshot_id: int | None, as_of: str | int | None, keep_tag: str | None
    ) -> RollbackAnswer:
        as_of_ms = None if as_of is None else moment_ms(as_of)
        with self._tables.open(address) as session:
            return rollback(
                session.committer, self._clock, snapshot_id=snapshot_id, as_of_ms=as_of_ms, keep_tag=keep_tag
            )
