"""When a table is taken out of the fleet's hands for a while, because something is wrong with looking after it."""

from __future__ import annotations

from regelate.core.fleet.operation import FleetOutcome, PauseKind
from regelate.core.fleet.state import FleetRun, Pause, TableState, next_day_ms
from regelate.core.table.time_ranges import DAY_MS

LOOP_RUNS = 3
LOOP_MS = DAY_MS
IDLE_RUNS = 10
IDLE_MS = 7 * DAY_MS
METADATA_SHARE = 0.5
LEAST_METADATA_BYTES = 16 * 2**20
"""Of small tables the metadata is always much of the whole."""
DAILY_TIMES = 4
LEAST_DAILY_BYTES = 10 * 2**30


def tripped(table: TableState, now_ms: int) -> Pause | None:
    """Return the pause that holds for all operations: asked for, or by what its runs did."""
    if table.pause is not None and table.pause.holds(now_ms):
        return table.pause
    last = table.last_run
    if last is None or last.ended_ms is None:
        return None
    for pause in (_loop(table, last.ended_ms), _no_effect(table, last.ended_ms), _daily_bytes(table, now_ms)):
        if pause is not None and pause.holds(now_ms):
            return pause
    return None


def too_much_metadata(table: TableState, now_ms: int) -> Pause | None:
    """Return the pause of operations that rewrite data: they would add to the metadata, which others make less."""
    seen = table.observation
    if seen is None or seen.metadata_bytes < LEAST_METADATA_BYTES:
        return None
    if seen.metadata_bytes <= METADATA_SHARE * seen.size_bytes:
        return None
    share = f"{seen.metadata_bytes / max(seen.size_bytes, 1):.0%} of the data" if seen.size_bytes else "without data"
    reason = f"metadata.json has {seen.metadata_bytes / 2**20:,.0f} MB, {share}; snapshots have to be expired first"
    return Pause(kind=PauseKind.METADATA, reason=reason, since_ms=now_ms)


def _loop(table: TableState, last_ms: int) -> Pause | None:
    """Runs that each began on the head that the one before had left: nobody wrote, and there was work again."""
    chain = 0
    later: FleetRun | None = None
    for run in reversed(table.runs):
        ours = run.snapshot_after is not None and run.outcome is FleetOutcome.DONE
        if later is not None and (not ours or run.snapshot_after != later.snapshot_before):
            break
        if not ours:
            break
        chain += run.operation.rewrites_data
        later = run
    if chain < LOOP_RUNS:
        return None
    reason = f"{chain} rewrites in a row, and nobody wrote in between: each made work for the next"
    return Pause(kind=PauseKind.LOOP, reason=reason, since_ms=last_ms, until_ms=last_ms + LOOP_MS)


def _no_effect(table: TableState, last_ms: int) -> Pause | None:
    if table.without_effect < IDLE_RUNS:
        return None
    reason = f"{table.without_effect} runs in a row had no effect"
    return Pause(kind=PauseKind.NO_EFFECT, reason=reason, since_ms=last_ms, until_ms=last_ms + IDLE_MS)


def _daily_bytes(table: TableState, now_ms: int) -> Pause | None:
    rewritten = table.spent.on(now_ms).day_bytes
    size = table.observation.size_bytes if table.observation is not None else 0
    most = max(DAILY_TIMES * size, LEAST_DAILY_BYTES)
    if rewritten <= most:
        return None
    reason = (
        f"{rewritten / 2**30:,.1f} GB were rewritten today, more than the {most / 2**30:,.1f} GB that a day may take"
    )
    return Pause(kind=PauseKind.DAILY_BYTES, reason=reason, since_ms=now_ms, until_ms=next_day_ms(now_ms))
