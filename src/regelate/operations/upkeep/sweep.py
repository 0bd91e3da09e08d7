"""SWEEP, table by table: what dead runs left goes (law 9: names before files), and what expiry left when its grace is
over (law 10: deleted after a grace, by reachability)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field

from regelate.core.planning.health import HealthAssessment
from regelate.core.upkeep.ledger import (
    REMOVED,
    EntryVerdict,
    as_young_as_its_run,
    judge_entry,
    judge_files,
    sweep_order,
)
from regelate.core.upkeep.quarantine import Quarantine
from regelate.core.values import dataclass
from regelate.errors import InvariantViolated, NotFound, RegelateError
from regelate.operations.upkeep.reclaim import Reclaimed, finish_expiry
from regelate.ports.clock import Clock
from regelate.ports.files import Ledgers, Reclaimer
from regelate.ports.fleet import Fleet

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptEntry:
    """What became of one ledger entry. On a dry run, what would."""

    run: str
    verdict: EntryVerdict
    files_deleted: int = 0
    bytes_freed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptTable:
    """One table of a sweep. `expired`: what the second phase of earlier expiries deleted; `error`: what went wrong."""

    ident: str
    entries: tuple[SweptEntry, ...] = ()
    expired: Reclaimed = field(default_factory=Reclaimed)
    error: RegelateError | None = None
    health: HealthAssessment | None = None
    """Where somebody ranks the tables that were swept."""

    @property
    def files_deleted(self) -> int:
        return self.expired.files_deleted + sum(e.files_deleted for e in self.entries)

    @property
    def bytes_freed(self) -> int:
        return self.expired.bytes_freed + sum(e.bytes_freed for e in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepBudget:
    """After so many tables or seconds the rest is left to the next sweep."""

    max_tables: int
    max_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep did; `backlog` are the tables that it did not come to, `namespaces_failed` could not be listed."""

    tables: tuple[SweptTable, ...]
    backlog: tuple[str, ...]
    namespaces_failed: tuple[tuple[str, RegelateError], ...] = ()

    @property
    def faults(self) -> int:
        return len(self.namespaces_failed) + sum(table.error is not None for table in self.tables)


def sweep_table(
    ident: str,
    ledgers: Ledgers,
    reclaimer: Reclaimer,
    *,
    longest_run_seconds: float,
    dry_run: bool = False,
    look: Callable[[], None] = lambda: None,
) -> SweptTable:
    """Finish the expiries of one table whose grace is over, and sweep its ledger; a fault in one spares the other.

    A dry run leaves the expiries out. `look` may end it before any entry: what was swept until then is told.
    """
    expired, entries = Reclaimed(), list[SweptEntry]()
    fault: RegelateError | None = None
    try:
        expired = Reclaimed() if dry_run else finish_expiry(reclaimer)
    except RegelateError as error:
        fault = error
    try:
        found = sweep_ledger(ledgers, reclaimer, longest_run_seconds=longest_run_seconds, dry_run=dry_run, look=look)
        for entry in found:
            entries.append(entry)
    except RegelateError as error:
        fault = fault or error
    return SweptTable(ident=ident, entries=tuple(entries), expired=expired, error=fault)


def sweep_ledger(
    ledgers: Ledgers,
    reclaimer: Reclaimer,
    *,
    longest_run_seconds: float,
    dry_run: bool = False,
    look: Callable[[], None] = lambda: None,
) -> Iterator[SweptEntry]:
    """Delete what dead runs of one table left behind, then their entries; entries of runs that landed are dropped.
    Each is yielded when it is done; `look` is called before, and may end it.

    A run is dead when its youngest entry is older than any run may get, by the store's clock. Only then is the table
    looked at, so that nothing of that run can land any more; a file goes only when no snapshot of that state names it,
    nor the list of an expiry that may be undone. The lists are read before and after the table is: an undo brings its
    snapshots back and then drops its list, an expiry writes its list and then takes the snapshots.
    Errors: DataUnavailable METADATA_CORRUPT, NotAllowed GC_DISABLED where another table has the same files (it shares
    the ledger too), and the store's; nothing is deleted then.
    """
    entries = as_young_as_its_run(ledgers.entries())
    if not entries:
        return
    before = reclaimer.quarantines()
    facts = ledgers.facts()
    verdicts = [(entry, judge_entry(entry, facts, longest_run_seconds)) for entry in entries]
    paths = {path: None for entry, verdict in verdicts if verdict is None for path in entry.paths}
    existing = ledgers.existing(list(paths))
    if not dry_run:
        ledgers.abort_uploads([path for path in paths if path not in existing])
    referenced = frozenset[str]()
    if existing:
        lists = {q.undo_id: q for q in (*before, *reclaimer.quarantines())}
        referenced = ledgers.referenced(list(existing)) | _quarantined(reclaimer, tuple(lists.values()), existing)
    if not referenced.issuperset(existing):
        reclaimer.check_unshared()
    for entry, left_alone in verdicts:
        look()
        verdict, loose = (left_alone, ()) if left_alone else judge_files(entry, existing, referenced)
        gone = frozenset(loose) if dry_run else ledgers.delete(loose)
        if verdict in REMOVED and not dry_run and len(gone) == len(loose):
            ledgers.drop(entry)
        size = sum(existing[path] for path in gone)
        yield SweptEntry(run=entry.run, verdict=verdict, files_deleted=len(gone), bytes_freed=size)


def _quarantined(reclaimer: Reclaimer, lists: Sequence[Quarantine], paths: Collection[str]) -> frozenset[str]:
    """Return which of the paths lie in quarantine lists, whose own rules say when they go, or undoing takes."""
    without = reclaimer.unreachable([q for q in lists if q.files is None])
    listed = {f.path for files in (*without, *(q.files or () for q in lists)) for f in files}
    return frozenset(listed.intersection(paths)) | reclaimer.needed(lists, paths)


def sweep(
    fleet: Fleet,
    wanted: Callable[[str], bool],
    sweep_one: Callable[[str], SweptTable],
    clock: Clock,
    budget: SweepBudget,
    namespace: str | None = None,
) -> Swept:
    """Sweep every table of the `wanted` namespaces, or of one, within the budget; a fault in a table stops no other.

    Errors: NotFound NAMESPACE_NOT_FOUND when the one namespace does not exist.
    """
    until = clock.monotonic() + budget.max_seconds
    failed: list[tuple[str, RegelateError]] = []
    if namespace is None:
        idents, failed = idents_of(fleet, wanted)
    else:
        idents = _of(namespace, fleet)
    order = sweep_order(idents, clock.now_ms() // HOUR_MS)
    tables: list[SweptTable] = []
    for ident in order[: budget.max_tables]:
        if clock.monotonic() >= until:
            break
        tables.append(_guarded(ident, sweep_one))
    return Swept(tables=tuple(tables), backlog=order[len(tables) :], namespaces_failed=tuple(failed))


def idents_of(fleet: Fleet, wanted: Callable[[str], bool]) -> tuple[list[str], list[tuple[str, RegelateError]]]:
    """Return the tables of the `wanted` namespaces, and the namespaces that could not be listed."""
    idents: list[str] = []
    failed: list[tuple[str, RegelateError]] = []
    for namespace in fleet.namespaces():
        if not wanted(namespace):
            continue
        try:
            idents += _of(namespace, fleet)
        except NotFound:  # dropped since
            continue
        except RegelateError as error:
            failed.append((namespace, error))
    return idents, failed


def _of(namespace: str, fleet: Fleet) -> list[str]:
    return [f"{namespace}.{table}" for table in fleet.list_tables(namespace)]


def _guarded(ident: str, sweep_one: Callable[[str], SweptTable]) -> SweptTable:
    try:
        return sweep_one(ident)
    except NotFound:  # dropped since
        return SweptTable(ident=ident)
    except RegelateError as error:
        return SweptTable(ident=ident, error=error)
    except Exception as error:  # noqa: BLE001  one table's surprise must not keep the others from being swept
        fault = InvariantViolated("SWEEP_FAULT", f"{type(error).__name__}: {error}")
        return SweptTable(ident=ident, error=fault)
