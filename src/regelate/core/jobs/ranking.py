"""Which tables of many are compacted next: the unhealthiest first, within a budget."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from regelate.core.planning.health import HealthAssessment
from regelate.core.values import dataclass


class Rank(StrEnum):
    """What a sweep makes of a table's health."""

    COMPACT = "COMPACT"
    """Below the threshold: a job is submitted."""
    JOB_RUNNING = "JOB_RUNNING"
    """Below it, and its job is at it."""
    HEALTHY = "HEALTHY"
    """At the threshold or above, or with nothing that a COMPACT would rewrite."""
    OVER_BUDGET = "OVER_BUDGET"
    """Below it, but iller ones have taken the budget: left to the next sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPolicy:
    """Tables whose health is below `health_below` (0 to 100) are compacted, at most `max_jobs` of them at once."""

    health_below: float = 80.0
    max_jobs: int = 10

    def __post_init__(self) -> None:
        if not 0 <= self.health_below <= 100:
            raise ValueError(f"health_below {self.health_below} is no score from 0 to 100")
        if self.max_jobs < 0:
            raise ValueError(f"max_jobs {self.max_jobs} is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTable:
    ident: str
    health: HealthAssessment
    rank: Rank


def rank_fleet(healths: Collection[tuple[str, HealthAssessment]], policy: RankingPolicy) -> tuple[RankedTable, ...]:
    """Return the tables, the unhealthiest first: by score, then the most candidate files, then by name."""
    ordered = sorted(healths, key=lambda found: (found[1].score, -found[1].candidate_files, found[0]))
    ranked: list[RankedTable] = []
    room = policy.max_jobs
    for ident, health in ordered:
        ill = health.score < policy.health_below and bool(health.worst)
        rank = Rank.HEALTHY if not ill else Rank.COMPACT if room else Rank.OVER_BUDGET
        room -= rank is Rank.COMPACT
        ranked.append(RankedTable(ident=ident, health=health, rank=rank))
    return tuple(ranked)
