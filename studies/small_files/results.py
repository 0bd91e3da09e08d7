"""What a run came to: a row for each arm, and what was promised beside what came out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from studies.small_files.arms import Arm
from studies.small_files.logbook import Measured
from studies.small_files.statistics import Slope, deviation, slope

SLOPE_FROM = 0.25
"""Slopes are those of the last three quarters: of 200 iterations the last 150."""
NO_COMPACTION, SCHEDULED, AUTOMATIC, BOTH = "none", "scheduled", "auto", "auto_optimized"
"""Keys of the arms that something is promised of."""
FASTER, STEADIER, DEARER = 3.0, 60.0, 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm. `minutes`: of MERGE, compaction and query; the slopes: seconds per iteration.

    `amplification`: rows written by MERGE and compactions for each row that came in.
    """

    arm: Arm
    measured: Sequence[Measured]
    minutes: float
    files_deviation: float
    write_deviation: float
    query_deviation: float
    amplification: float
    bytes_written: int
    compactions: int
    merge_slope: Slope | None
    write_slope: Slope | None
    query_slope: Slope | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One thing that was promised, what came out as text, and whether that is it."""

    name: str
    limit: str
    found: str
    met: bool


def result_of(arm: Arm, measured: Sequence[Measured]) -> ArmResult:
    """Sum up one arm, of which there is at least one iteration."""
    merges = [one.merge_seconds for one in measured]
    writes = [one.merge_seconds + one.compaction_seconds for one in measured]
    queries = [one.query_seconds for one in measured]
    late = round(len(measured) * SLOPE_FROM)
    return ArmResult(
        arm=arm,
        measured=measured,
        minutes=(sum(writes) + sum(queries)) / 60,
        files_deviation=deviation([one.data_files for one in measured]),
        write_deviation=deviation(writes),
        query_deviation=deviation(queries),
        amplification=sum(one.rows_written for one in measured) / sum(one.rows_in for one in measured),
        bytes_written=sum(one.bytes_written for one in measured),
        compactions=sum(one.compactions for one in measured),
        merge_slope=slope(merges[late:]),
        write_slope=slope(writes[late:]),
        query_slope=slope(queries[late:]),
    )


def promises(results: Sequence[ArmResult]) -> list[Promise]:
    """Return what was promised of the arms that are there, met or not."""
    by_key: Mapping[str, ArmResult] = {result.arm.key: result for result in results}
    found: list[Promise] = []
    if {NO_COMPACTION, BOTH} <= by_key.keys():
        none, both = by_key[NO_COMPACTION], by_key[BOTH]
        ratio = none.minutes / both.minutes
        found.append(
            Promise(
                name="total time without compaction / with automatic compaction and optimized write",
                limit=f"at least {FASTER:.1f}",
                found=f"{ratio:.2f}",
                met=ratio >= FASTER,
            )
        )
        most = none.files_deviation / STEADIER
        found.append(
            Promise(
                name="standard deviation of the file count with both",
                limit=f"at most {most:.1f}, a {STEADIER:.0f}th of that without compaction",
                found=f"{both.files_deviation:.1f}",
                met=both.files_deviation <= most,
            )
        )
        for name, one in (("MERGE", both.merge_slope), ("the query", both.query_slope)):
            if one is not None:
                found.append(
                    Promise(
                        name=f"growth of {name} with both",
                        limit="not to be told from 0",
                        found=slope_text(one),
                        met=one.may_be_zero,
                    )
                )
    if {SCHEDULED, AUTOMATIC} <= by_key.keys():
        ratio = by_key[AUTOMATIC].minutes / by_key[SCHEDULED].minutes
        found.append(
            Promise(
                name="total time of automatic / of scheduled compaction",
                limit=f"at most {DEARER:.2f}",
                found=f"{ratio:.2f}",
                met=ratio <= DEARER,
            )
        )
    return found


def slope_text(found: Slope | None) -> str:
    """Return a slope of seconds as milliseconds per iteration with its interval."""
    if found is None:
        return "too few"
    low, high = found.low * 1000, found.high * 1000
    return f"{found.per_step * 1000:+.1f} ms [{low:+.1f}, {high:+.1f}]"
