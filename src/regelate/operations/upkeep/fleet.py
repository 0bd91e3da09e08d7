"""What a sweep does about unhealthy tables: rank them, and submit jobs within the budget."""

from __future__ import annotations

from collections.abc import Callable

from regelate.core.jobs.job import JobRecord
from regelate.core.jobs.ranking import Rank, RankedTable, RankingPolicy, rank_fleet
from regelate.core.planning.health import HealthAssessment
from regelate.core.values import dataclass
from regelate.errors import RegelateError
from regelate.operations.upkeep.sweep import Swept


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTable:
    """One ranked table. `job`: what was submitted for it, or was at it already; `error`: why there is none."""

    ranked: RankedTable
    job: JobRecord | None = None
    was_there: bool = False
    error: RegelateError | None = None


def submit_for_ill(
    swept: Swept,
    policy: RankingPolicy,
    submit: Callable[[str], JobRecord] | None,
    known: Callable[[str], JobRecord | None],
) -> tuple[FleetTable, ...]:
    """Submit a job for each of the unhealthiest tables that were swept; `submit` is None on a dry run.

    A table whose job is not at its end yet takes nothing of the budget: `known` names that job.
    """
    healths = [(table.ident, table.health) for table in swept.tables if table.health is not None]
    there = {ident: job for ident, _ in healths if (job := known(ident)) is not None}
    free = [(ident, health) for ident, health in healths if ident not in there]
    found = [_submitted(ranked, submit) for ranked in rank_fleet(free, policy)]
    found += [_at_it(ident, health, there[ident]) for ident, health in healths if ident in there]
    return tuple(sorted(found, key=lambda table: (table.ranked.health.score, table.ranked.ident)))


def _submitted(ranked: RankedTable, submit: Callable[[str], JobRecord] | None) -> FleetTable:
    if submit is None or ranked.rank is not Rank.COMPACT:
        return FleetTable(ranked=ranked)
    try:
        return FleetTable(ranked=ranked, job=submit(ranked.ident))
    except RegelateError as error:
        return FleetTable(ranked=ranked, error=error)


def _at_it(ident: str, health: HealthAssessment, job: JobRecord) -> FleetTable:
    return FleetTable(ranked=RankedTable(ident=ident, health=health, rank=Rank.COMPACT), job=job, was_there=True)
