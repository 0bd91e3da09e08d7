"""What a run came to: a row for each arm, and what was promised beside what came out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from studies.small_files.arms import Arm
from studies.small_files.logbook import Measured
from studies.small_files.statistics import Slope, deviation, slope

SLOPE_FROM = 0.25
"""Slopes are those of the last three quarters: of 200 iterations the last 150."""
NO_COMPACTION, SCHEDULED, AUTOMATIC, BOTH = "none", "scheduled", "auto", "auto_optimized"
"""Keys of the arms that something is promised of."""
FASTER, STEADIER, DEARER = 3.0, 60.0, 1.02


class Clock(StrEnum):
    """What seconds are: those that passed, or those of processors, which a busy machine stretches less."""

    WALL = "by the clock"
    PROCESSOR = "of processors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long one arm took by one clock. `minutes`: of MERGE, compaction and query; the slopes: seconds per iteration.

    `write`: MERGE and compaction.
    """

    minutes: float
    write_deviation: float
    query_deviation: float
    merge_slope: Slope | None
    write_slope: Slope | None
    query_slope: Slope | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm. `amplification`: rows written by MERGE and compactions for each row that came in."""

    arm: Arm
    measured: Sequence[Measured]
    times: Mapping[Clock, Times]
    files_deviation: float
    amplification: float
    bytes_written: int
    compactions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One thing that was promised, what came out as text, and whether that is it."""

    name: str
    limit: str
    found: str
    met: bool


def result_of(arm: Arm, measured: Sequence[Measured]) -> ArmResult:
    """Sum up one arm, of which there is at least one iteration."""
    wall = [(one.merge_seconds, one.compaction_seconds, one.query_seconds) for one in measured]
    processor = [
        (one.merge_processor_seconds, one.compaction_processor_seconds, one.query_processor_seconds) for one in measured
    ]
    return ArmResult(
        arm=arm,
        measured=measured,
        times={Clock.WALL: _times(wall), Clock.PROCESSOR: _times(processor)},
        files_deviation=deviation([one.data_files for one in measured]),
        amplification=sum(one.rows_written for one in measured) / sum(one.rows_in for one in measured),
        bytes_written=sum(one.bytes_written for one in measured),
        compactions=sum(one.compactions for one in measured),
    )


def _times(spent: Sequence[tuple[float, float, float]]) -> Times:
    """Sum up iterations, each the seconds of its MERGE, its compaction and its query."""
    merges = [merge for merge, _, _ in spent]
    writes = [merge + compaction for merge, compaction, _ in spent]
    queries = [query for _, _, query in spent]
    late = round(len(spent) * SLOPE_FROM)
    return Times(
        minutes=(sum(writes) + sum(queries)) / 60,
        write_deviation=deviation(writes),
        query_deviation=deviation(queries),
        merge_slope=slope(merges[late:]),
        write_slope=slope(writes[late:]),
        query_slope=slope(queries[late:]),
    )


def promises(results: Sequence[ArmResult]) -> list[Promise]:
    """Return what was promised of the arms that are there, met or not; what is time, by both clocks."""
    by_key: Mapping[str, ArmResult] = {result.arm.key: result for result in results}
    found: list[Promise] = []
    if {NO_COMPACTION, BOTH} <= by_key.keys():
        none, both = by_key[NO_COMPACTION], by_key[BOTH]
        for clock in Clock:
            ratio = none.times[clock].minutes / both.times[clock].minutes
            name = f"seconds {clock.value}: no compaction / automatic compaction and optimized write"
            found.append(Promise(name=name, limit=f"at least {FASTER:.1f}", found=f"{ratio:.2f}", met=ratio >= FASTER))
        most = none.files_deviation / STEADIER
        limit = f"at most {most:.1f}, a {STEADIER:.0f}th of that without compaction"
        name, steady = "standard deviation of the file count with both", f"{both.files_deviation:.1f}"
        found.append(Promise(name=name, limit=limit, found=steady, met=both.files_deviation <= most))
        found += [promise for clock in Clock for promise in _flat(both.times[clock], clock)]
    if {SCHEDULED, AUTOMATIC} <= by_key.keys():
        automatic, scheduled = by_key[AUTOMATIC], by_key[SCHEDULED]
        for clock in Clock:
            ratio = automatic.times[clock].minutes / scheduled.times[clock].minutes
            name = f"seconds {clock.value}: automatic / scheduled compaction"
            found.append(Promise(name=name, limit=f"at most {DEARER:.2f}", found=f"{ratio:.2f}", met=ratio <= DEARER))
    return found


def _flat(times: Times, clock: Clock) -> list[Promise]:
    grown = (("MERGE", times.merge_slope), ("the query", times.query_slope))
    return [
        Promise(
            name=f"growth of {name} with both, seconds {clock.value}",
            limit="not to be told from 0",
            found=slope_text(one),
            met=one.may_be_zero,
        )
        for name, one in grown
        if one is not None
    ]


def slope_text(found: Slope | None) -> str:
    """Return a slope of seconds as milliseconds per iteration with its interval."""
    if found is None:
        return "too few"
    low, high = found.low * 1000, found.high * 1000
    return f"{found.per_step * 1000:+.1f} ms ({low:+.1f} to {high:+.1f})"
