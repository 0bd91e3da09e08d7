"""Where a table stands before anything is dealt: what may be done for it, or what stands in the way, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regelate.core.fleet.breakers import too_much_metadata, tripped
from regelate.core.fleet.cadence import cooling, next_look_ms
from regelate.core.fleet.candidates import AT_ANY_PRICE, PAYBACK_DAYS, Candidate
from regelate.core.fleet.observation import TableObservation, metrics
from regelate.core.fleet.operation import FleetStatus
from regelate.core.fleet.policy import QuietWindow, TablePolicy, quiet_until
from regelate.core.fleet.sentences import at, count, live, what
from regelate.core.fleet.state import Pause, TableState
from regelate.core.values import dataclass

Scored = tuple[Candidate, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stands:
    """A table's status and sentence. `may`: what may be done for it now, with its score; nothing stands in its way.
    `discreet`: the sentence for one of several tenants, where it is another."""

    status: FleetStatus
    sentence: str
    eligible_ms: int | None
    discreet: str | None = None
    pause: Pause | None = None
    may: tuple[Scored, ...] = ()


_TOLD_FIRST = (FleetStatus.COOLING, FleetStatus.PAUSED, FleetStatus.HEALTHY, FleetStatus.DISABLED)
"""Of several operations that something keeps from being done: the one that comes soonest."""


class Standing:
    """Judges tables at one time. `weights`: w1 by tenant, where it has a quota of files."""

    def __init__(self, now_ms: int, weights: Mapping[str, float]) -> None:
        self._now_ms = now_ms
        self._weights = weights
        self._quiet: dict[tuple[QuietWindow, ...], float | None] = {}

    def of(self, table: TableState, scored: Sequence[Scored], allowed: TablePolicy) -> Stands:
        """Judge one table; `scored` are its candidates, the best first."""
        return self._as_a_whole(table, allowed) or self._by_operation(table, scored, allowed)

    def _as_a_whole(self, table: TableState, allowed: TablePolicy) -> Stands | None:
        """Return what keeps everything from being done for a table, the first that holds."""
        seen, run, now_ms = table.observation, table.live, self._now_ms
        if run is not None:
            status = FleetStatus.QUEUED if run.started_ms is None else FleetStatus.RUNNING
            return Stands(status=status, sentence=live(run), eligible_ms=None)
        if not any(operation.enabled for operation in allowed.operations.values()):
            decided = ", ".join(sorted({operation.decided_by for operation in allowed.operations.values()}))
            told = f"Every operation is switched off by {decided}."
            return Stands(status=FleetStatus.DISABLED, sentence=told, eligible_ms=None)
        if seen is None:
            told = "It was not looked at yet; the next scan looks at it."
            return Stands(status=FleetStatus.NOT_YET_OBSERVED, sentence=told, eligible_ms=None)
        if seen.managed_by is not None:
            told = f"It is left alone: {seen.managed_by} looks after it."
            return Stands(status=FleetStatus.DISABLED, sentence=told, eligible_ms=None)
        if (pause := tripped(table, now_ms)) is not None:
            return _paused(pause)
        if table.failures and now_ms < table.not_before_ms:
            return _failed(table)
        return self._quiet_now(allowed)

    def _quiet_now(self, allowed: TablePolicy) -> Stands | None:
        windows = allowed.quiet_windows
        if not windows:
            return None
        if windows not in self._quiet:
            self._quiet[windows] = quiet_until(windows, self._now_ms / 1000)
        until = self._quiet[windows]
        if until is None:
            return None
        until_ms = int(until * 1000)
        told = f"A quiet window of the policy is on until {at(until_ms)}."
        return Stands(status=FleetStatus.COOLING, sentence=told, eligible_ms=until_ms)

    def _by_operation(self, table: TableState, scored: Sequence[Scored], allowed: TablePolicy) -> Stands:
        seen = table.observation
        assert seen is not None  # judged before
        known: Mapping[str, float] | None = None
        may: list[Scored] = []
        barred: list[Stands] = []
        for candidate, score in scored:
            said = allowed.operations[candidate.operation.value]
            if said.when is not None and known is None:
                known = metrics(seen)
            if not said.enabled:
                told = f"{_sentence(what(candidate))}, but it is switched off by {said.decided_by}."
                barred.append(Stands(status=FleetStatus.DISABLED, sentence=told, eligible_ms=None))
            elif said.when is not None and known is not None and not said.when.holds(known):
                told = f"{_sentence(what(candidate))}, but waits for {said.when.text}, by {said.decided_by}."
                barred.append(Stands(status=FleetStatus.HEALTHY, sentence=told, eligible_ms=next_look_ms(table)))
            elif not candidate.pays_back and self._weights.get(table.tenant, 0.0) < AT_ANY_PRICE:
                barred.append(_too_dear(table, candidate))
            elif (bar := self._resting(table, candidate)) is not None:
                barred.append(bar)
            else:
                may.append((candidate, score))
        if may:
            return Stands(status=FleetStatus.DUE, sentence="", eligible_ms=self._now_ms, may=tuple(may))
        if barred:
            return min(barred, key=lambda bar: _TOLD_FIRST.index(bar.status))
        return _healthy(table, seen)

    def _resting(self, table: TableState, candidate: Candidate) -> Stands | None:
        if candidate.operation.rewrites_data and (pause := too_much_metadata(table, self._now_ms)) is not None:
            return _paused(pause)
        rest = cooling(table, candidate.operation, candidate.opens, self._now_ms)
        if rest is None:
            return None
        told = f"{_sentence(what(candidate))}, not before {at(rest.until_ms)}: {rest.reason}."
        return Stands(status=FleetStatus.COOLING, sentence=told, eligible_ms=rest.until_ms)


def _too_dear(table: TableState, candidate: Candidate) -> Stands:
    reads = (
        "once a day, as is believed of it"
        if candidate.reads_per_day is None
        else f"{candidate.reads_per_day:,.1f} times a day"
    )
    told = f"{_sentence(what(candidate))}, which readers do not save in {PAYBACK_DAYS:.0f} days: it is read {reads}."
    return Stands(status=FleetStatus.HEALTHY, sentence=told, eligible_ms=next_look_ms(table))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _paused(pause: Pause) -> Stands:
    until = "" if pause.until_ms is None else f" until {at(pause.until_ms)}"
    if pause.until_ms is None and not pause.kind.ends_by_itself:
        until = " until somebody resumes it"
    told = f"Paused{until}: {pause.reason}."
    return Stands(status=FleetStatus.PAUSED, sentence=told, eligible_ms=pause.until_ms, pause=pause)


def _failed(table: TableState) -> Stands:
    last = table.last_run
    which = "Its last run" if last is None else last.operation.value
    why = f": {last.error.rstrip('.')}" if last is not None and last.error else ""
    times = "" if table.failures == 1 else f" {table.failures} times in a row"
    told = f"{_sentence(which)} failed{times}{why}; it is tried again at {at(table.not_before_ms)}."
    return Stands(status=FleetStatus.FAILED, sentence=told, eligible_ms=table.not_before_ms)


def _healthy(table: TableState, seen: TableObservation) -> Stands:
    look = next_look_ms(table)
    told = f"Nothing to do: {count(seen.files, 'file')}, none worth a run; looked at again at {at(look)}."
    return Stands(status=FleetStatus.HEALTHY, sentence=told, eligible_ms=look)
