"""FLEET_SCAN: look at the tables of a catalog, those first that nobody has looked at for the longest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from regelate.core.fleet.observation import TableObservation
from regelate.core.fleet.operation import PauseKind
from regelate.core.fleet.state import Pause, TableState
from regelate.core.table.time_ranges import HOUR_MS
from regelate.core.upkeep.ledger import sweep_order
from regelate.core.values import dataclass
from regelate.errors import Conflict, InvariantViolated, NotFound, RegelateError
from regelate.ports.clock import Clock
from regelate.ports.fleet_store import FleetStore

Look = Callable[[str, TableObservation | None], TableObservation]
"""Of an ident, and what was seen of it last: what it is now. Errors: NotFound for one that is gone."""
GONE = "the table is not in its catalog any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanBudget:
    """After so many tables or seconds, or once it is `ended` from outside, the rest is left to the next scan, which
    begins with it."""

    max_tables: int
    max_seconds: float
    ended: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What one scan saw. `unchanged` of the tables had the head that they had before; `backlog` were not come to.
    `unseen`: those that nobody has ever looked at."""

    observed: tuple[TableObservation, ...]
    unchanged: int
    backlog: tuple[str, ...]
    gone: tuple[str, ...]
    failed: tuple[tuple[str, RegelateError], ...]
    unseen: tuple[str, ...] = ()

    def failing(self, ident: str, error: RegelateError) -> Scanned:
        return replace(self, failed=(*self.failed, (ident, error)))

    def named(self, name: Callable[[str], str]) -> Scanned:
        """Return it with other names of its tables."""
        failed = tuple((name(ident), error) for ident, error in self.failed)
        return replace(self, gone=tuple(map(name, self.gone)), failed=failed)


NOTHING_SCANNED = Scanned(observed=(), unchanged=0, backlog=(), gone=(), failed=())


def scan(
    idents: Sequence[str], known: Sequence[TableState], look: Look, store: FleetStore, clock: Clock, budget: ScanBudget
) -> Scanned:
    """Look at tables within the budget; a fault in one stops no other. `known`: what the fleet remembers of them.

    A table of `known` that is not among `idents`, or has become another one of its name, is gone; one that was renamed
    is known by its UUID.
    """
    until = clock.monotonic() + budget.max_seconds
    last = {state.ident: state.observation for state in known}
    order = _order(idents, last, clock.now_ms())
    observed: list[TableObservation] = []
    failed: list[tuple[str, RegelateError]] = []
    unchanged = tried = 0
    for ident in order[: budget.max_tables]:
        if clock.monotonic() >= until or budget.ended():
            break
        tried += 1
        before = last.get(ident)
        try:
            found = _guarded(look, ident, before)
            store.change(found.table_uuid, lambda state, found=found: _seen(state, found))
        except NotFound:  # dropped since it was listed
            continue
        except RegelateError as error:
            failed.append((ident, error))
            continue
        observed.append(found)
        unchanged += before is not None and before.metadata_location == found.metadata_location
    seen = {state.ident for state in known if state.observation is not None} | {found.ident for found in observed}
    gone = tuple(_let_go(known, idents, {o.ident: o.table_uuid for o in observed}, store))
    return Scanned(
        observed=tuple(observed),
        unchanged=unchanged,
        backlog=tuple(order[tried:]),
        gone=gone,
        failed=tuple(failed),
        unseen=tuple(ident for ident in idents if ident not in seen),
    )


def _order(idents: Sequence[str], last: Mapping[str, TableObservation | None], now_ms: int) -> list[str]:
    """Return new tables and known ones in turns, so that those that cannot be seen keep nobody waiting: the new ones in
    another order every hour, of the known ones first whom nobody has looked at for the longest."""
    new = list(sweep_order([ident for ident in idents if last.get(ident) is None], now_ms // HOUR_MS))
    seen = [(found.observed_ms, ident) for ident in idents if (found := last.get(ident)) is not None]
    known = [ident for _, ident in sorted(seen)]
    pairs = zip_longest(new, known)
    return [ident for pair in pairs for ident in pair if ident is not None]


def _guarded(look: Look, ident: str, before: TableObservation | None) -> TableObservation:
    try:
        return look(ident, before)
    except RegelateError:
        raise
    except Exception as error:  # one table's surprise must not keep the others from being seen
        raise InvariantViolated("SCAN_FAULT", f"{type(error).__name__}: {error}") from error


def _seen(state: TableState | None, found: TableObservation) -> TableState:
    if state is None:
        state = TableState(table_uuid=found.table_uuid, catalog=found.catalog, ident=found.ident, tenant=found.tenant)
    if (state.catalog, state.tenant) != (found.catalog, found.tenant):
        told = "the fleet knows a table of this UUID elsewhere: a copy that was registered, or forged metadata"
        raise Conflict("TABLE_KNOWN_ELSEWHERE", told, retryable=False)
    back = state.pause is not None and state.pause.reason == GONE
    return replace(state, pause=None).observed(found) if back else state.observed(found)


def _let_go(known: Sequence[TableState], idents: Sequence[str], uuids: dict[str, str], store: FleetStore) -> list[str]:
    """Forget the tables that are gone. One whose runs were paid this month is kept, and left alone, to its end: else
    its tenant would get back what was spent."""
    now_ms, listed, seen = store.now_ms(), frozenset(idents), frozenset(uuids.values())
    gone = []
    for state in known:
        same = state.ident in listed and uuids.get(state.ident, state.table_uuid) == state.table_uuid
        if same or state.table_uuid in seen:
            continue
        gone.append(state.ident)
        if state.live is None and not state.spent.on(now_ms).month_dollars:
            store.forget(state.table_uuid)
        elif state.pause is None or state.pause.reason != GONE:
            store.change(state.table_uuid, lambda found: _left_alone(found, now_ms))
    return gone


def _left_alone(state: TableState | None, now_ms: int) -> TableState:
    if state is None:
        raise NotFound("TABLE_NOT_FOUND", "somebody else forgot it first")
    return state.paused(Pause(kind=PauseKind.ASKED, reason=GONE, since_ms=now_ms))
