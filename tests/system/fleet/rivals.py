"""The rules that the fleet's own is measured against, with as many dollars as it has spent.

They see the same tables, know what each run will cost to the cent, may do a part of one, and what they choose is
carried out as the fleet's choices are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from regelate.core.fleet.candidates import USUAL_WORKER, candidates_of, measured_pace
from regelate.core.fleet.operation import FleetOperation
from tests.system.fleet.trial import Outcome, carried_out, state_of
from tests.system.fleet.world import Table

Rule = Callable[[Sequence[Table]], list[int]]
GAIN_WEIGHT, COST_WEIGHT = 0.7, 0.3
HEALTHY = 80.0
ANYBODY = "anybody"
LOOKS_A_DAY = 4
LEAST_DOLLARS = 0.0002
"""Twice what beginning a run costs."""


def autocomp(tables: Sequence[Table]) -> list[int]:
    """AutoComp's published rule: 0.7 x files below the target - 0.3 x compute, each from 0 to 1 over the fleet.

    Compute is that of the bytes to rewrite. Partitions have no part in it: of files that nobody can merge each counts.
    """
    gains = [table.small for table in tables]
    costs = [table.small_bytes for table in tables]
    low_gain, low_cost = min(gains), min(costs)
    of_gain, of_cost = (max(gains) - low_gain) or 1.0, (max(costs) - low_cost) or 1.0

    def score(number: int) -> float:
        gain, cost = (gains[number] - low_gain) / of_gain, (costs[number] - low_cost) / of_cost
        return GAIN_WEIGHT * gain - COST_WEIGHT * cost

    return sorted((n for n in range(len(tables)) if gains[n] >= 2), key=lambda n: (-score(n), n))


def illest_first(tables: Sequence[Table]) -> list[int]:
    """SWEEP's rule as it was before fleets: the lowest health first, by a score that stops rising at 100 files."""
    order = sorted((table.saturated_health, -table.removable, number) for number, table in enumerate(tables))
    return [number for health, _, number in order if health < HEALTHY]


def sweep(tables: Sequence[Table]) -> list[int]:
    """SWEEP's rule as it is: the lowest health first, whatever it costs; then the most files that would go."""
    order = sorted((table.health, -table.removable, number) for number, table in enumerate(tables))
    return [number for health, _, number in order if health < HEALTHY]


def month_of(
    tables: list[Table], rule: Rule, money: Mapping[str, float], days: int, *, jobs: int | None = None
) -> Outcome:
    """Spend money in the order of a rule, a day's part each day; what is left of a day is there on the next.

    `money` is by tenant, or one sum under `ANYBODY`. A table for which it is not enough is compacted in part. With
    `jobs` the rule is asked every six hours and the first so many are taken, as SWEEP does; else once a day.
    """
    found, left = Outcome(), dict.fromkeys(money, 0.0)
    looks = LOOKS_A_DAY if jobs else 1
    for day in range(days):
        for pot, dollars in money.items():
            left[pot] += dollars / days
        for look in range(looks):
            for table in tables:
                table.live_to(day * 24.0 + look * 24 / looks)
            for number in rule(tables)[:jobs]:
                table = tables[number]
                pot = ANYBODY if ANYBODY in money else table.tenant
                if left.get(pot, 0.0) <= LEAST_DOLLARS:
                    continue
                whole = _dollars(table)
                share = min(left[pot] / whole, 1.0)
                left[pot] -= whole * share
                found.dollars += whole * share
                found.files_removed += carried_out(table, FleetOperation.COMPACT, share)
                found.runs += 1
    return found


def _dollars(table: Table) -> float:
    """What a COMPACT of the whole table costs where it runs: its own pace is in it."""
    for candidate in candidates_of(state_of(table, 0), measured_pace(())):
        if candidate.operation is FleetOperation.COMPACT:
            return candidate.dollars * table.pace
    return USUAL_WORKER.dollars(1.0, 8, 8)


def oracle(tables: list[Table], money: Mapping[str, float], days: int) -> Outcome:
    """Return what nobody exceeds with each tenant's money: all that a month brings is known, and all of its money there
    at once; a table is compacted once, at the end, or a part of it, in the order of files per dollar."""
    offers: list[tuple[float, float, float, str]] = []
    for table in tables:
        table.live_to(days * 24.0)
        for candidate in candidates_of(state_of(table, 0), measured_pace(())):
            if candidate.operation.rewrites_data:
                dollars = candidate.dollars * table.pace
                offers.append((candidate.removed / dollars, dollars, float(candidate.removed), table.tenant))
    found, left = Outcome(), {table.tenant: money.get(table.tenant, 0.0) for table in tables}
    for _, dollars, removed, tenant in sorted(offers, reverse=True):
        share = min(1.0, left[tenant] / dollars)
        found.dollars += dollars * share
        found.files_removed += removed * share
        found.runs += share > 0
        left[tenant] -= dollars * share
    return found
