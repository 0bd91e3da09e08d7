"""What a fleet is remembered in: a state per table, every run that ended, and the plans that were shown."""

from __future__ import annotations

from typing import Protocol

from regelate.core.fleet.backlog import BacklogAt
from regelate.core.fleet.state import FleetRun, TableState


class Change(Protocol):
    """What becomes of a table's state; None: the fleet does not know it. Pure, for it may be applied again."""

    def __call__(self, state: TableState | None, /) -> TableState: ...


class FleetStore(Protocol):
    """Remembers tables by their UUID. Times are the store's own: the clocks of those who ask may differ.

    `change` reads a state, applies a pure change and stores what comes of it, as if nobody else were there; a run that
    has ended by it is added to the history. It may be applied more than once, and what it raises is raised.
    `history` is the newest run first, of one table or of all of a catalog, as (table UUID, run). `recall` returns a
    text, such as a plan, as `remember` took it, None where there is none or it is older than a week. Of the backlogs
    that are noted the last of every hour is kept for 90 days; `backlogs` is the oldest first, of those at `since_ms` or
    later.
    Errors: Unavailable FLEET_UNAVAILABLE.
    """

    def now_ms(self) -> int: ...
    def states(self) -> tuple[TableState, ...]: ...
    def change(self, table_uuid: str, change: Change) -> TableState: ...
    def forget(self, table_uuid: str) -> None: ...
    def history(self, catalog: str, table_uuid: str | None, limit: int) -> tuple[tuple[str, FleetRun], ...]: ...
    def remember(self, plan_id: str, body: str) -> None: ...
    def recall(self, plan_id: str) -> str | None: ...
    def note_backlog(self, found: BacklogAt) -> None: ...
    def backlogs(self, since_ms: int) -> tuple[BacklogAt, ...]: ...
