"""How often a table is looked at, and by its own rate when enough will have gathered for the next run."""

from __future__ import annotations

from enum import StrEnum

from regelate.core.fleet.observation import TableObservation
from regelate.core.fleet.operation import FleetOperation, FleetOutcome
from regelate.core.fleet.state import TableState
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from regelate.core.values import dataclass

LEAST_MS, MOST_MS = 10 * 60 * 1000, 30 * DAY_MS
ENOUGH_SHARE, LEAST_ENOUGH, MOST_ENOUGH = 0.1, 10.0, 100.0
"""A run is worth its beginning when a tenth of the files that should stand have come on top, 10 to 100 of them."""
FILES_PER_OUTPUT = 8.0
"""And when so many become one: outputs of fewer are small again, and are rewritten with what comes next. A day is
waited for that at most: then most partitions are full."""
METADATA_ENOUGH, METADATA_MS = 100.0, 7 * DAY_MS
"""Of operations that rewrite no data: they cost little, and a tenth of the metadata is little as well."""
ORPHANS_MS = 7 * DAY_MS
"""So often the folder of a table is listed for orphans, whose number nobody knows before."""
IDLE_RUNS = 5
"""After so many runs in a row without effect, half as often; after twice as many, a quarter."""
MOST_HALVINGS = 8
_LEFT_SOME = frozenset({FleetOutcome.PARTIAL, FleetOutcome.CANCELLED, FleetOutcome.FAILED})
STREAMING_PER_HOUR, BATCH_PER_HOUR, SLOW_PER_HOUR = 6.0, 1 / 24, 1 / (24 * 30)


class Cadence(StrEnum):
    """How often a table is committed to."""

    STREAMING = "streaming"
    """Every ten minutes or more."""
    BATCH = "batch"
    """At least once a day."""
    SLOW = "slow"
    """At least once in thirty days."""
    DORMANT = "dormant"


def cadence_of(commits_per_hour: float) -> Cadence:
    """Return the class of a rate."""
    if commits_per_hour >= STREAMING_PER_HOUR:
        return Cadence.STREAMING
    if commits_per_hour >= BATCH_PER_HOUR:
        return Cadence.BATCH
    return Cadence.SLOW if commits_per_hour >= SLOW_PER_HOUR else Cadence.DORMANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """Until when nothing is done for a table, and why."""

    until_ms: int
    reason: str


def enough(seen: TableObservation) -> float:
    """Return how many files' worth of gain is worth a run at any time."""
    return max(_least_gain(seen), FILES_PER_OUTPUT * _outputs(seen))


def _least_gain(seen: TableObservation) -> float:
    return min(max(seen.files_after * ENOUGH_SHARE, LEAST_ENOUGH), MOST_ENOUGH)


def _outputs(seen: TableObservation) -> int:
    """Return how many files a COMPACT would write now."""
    return max(seen.candidate_files - seen.files_removed, 0)


def interval_ms(table: TableState) -> int:
    """Return the time in which enough gathers at the rate of the table, 10 minutes to 30 days."""
    seen = table.observation
    if seen is None:
        return LEAST_MS
    rate = max(seen.files_per_hour, seen.commits_per_hour) / HOUR_MS
    gathered = float(MOST_MS)
    if rate > 0:
        gathered = max(_least_gain(seen) / rate, min(FILES_PER_OUTPUT * _outputs(seen) / rate, DAY_MS))
    longer: int = 2 ** min(table.without_effect // IDLE_RUNS, MOST_HALVINGS)
    return min(max(int(min(gathered, MOST_MS)), LEAST_MS) * longer, MOST_MS)


def next_look_ms(table: TableState) -> int:
    """Return when a table should be looked at again; 0 where it never was. A notice of a commit may come before."""
    seen = table.observation
    return 0 if seen is None else seen.observed_ms + interval_ms(table)


def orphans_due(table: TableState, now_ms: int) -> bool:
    """Say whether somebody should look for orphans in a table's folder; where it was counted, the count says it."""
    seen = table.observation
    return seen is not None and seen.orphan_files is None and now_ms >= table.orphans_sought_ms + ORPHANS_MS


def cooling(table: TableState, operation: FleetOperation, opens: float, now_ms: int) -> Cooling | None:
    """Say whether a table rests from an operation that would gain `opens` now; None where it may be done.

    After any run it rests ten minutes, and until somebody has looked again. After one of the same operation it rests
    until enough has gathered, or the time has passed in which it should have: a week at least for what rewrites no
    data. What a run left undone for want of time waits for nothing. Runs without effect make the rest longer.
    """
    last, seen = table.last_run, table.observation
    if last is None or last.ended_ms is None or seen is None:
        return None
    if now_ms < last.ended_ms + LEAST_MS:
        return Cooling(until_ms=last.ended_ms + LEAST_MS, reason="it had a run a moment ago")
    if seen.observed_ms < last.ended_ms:
        return Cooling(until_ms=now_ms, reason="it was not looked at since its last run")
    if operation is FleetOperation.REMOVE_ORPHANS and seen.orphan_files is None:
        return None  # it is due by the time that has passed
    same = next((run for run in reversed(table.runs) if run.operation is operation), None)
    if same is None or same.ended_ms is None or same.outcome in _LEFT_SOME:
        return None
    rest = interval_ms(table)
    until = same.ended_ms + (rest if operation.rewrites_data else max(rest, METADATA_MS))
    if now_ms >= until:
        return None
    if table.without_effect >= IDLE_RUNS:
        return Cooling(until_ms=until, reason=f"its last {table.without_effect} runs had no effect")
    worth = enough(seen) if operation.rewrites_data else METADATA_ENOUGH
    if opens >= worth:
        return None
    gathered = f"{opens:,.0f} files' worth have gathered of the {worth:,.0f} that are worth a run"
    return Cooling(until_ms=until, reason=gathered)
