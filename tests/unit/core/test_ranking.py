"""The unhealthiest tables are compacted first, and no more of them than the budget allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.jobs.ranking import Rank, RankingPolicy, rank_fleet
from regelate.core.planning.health import HealthAssessment, PartitionHealth, PointsLost
from regelate.core.table.table import Partition


def health(score: float, candidates: int = 1) -> HealthAssessment:
    worst = PartitionHealth(
        partition=Partition(spec_id=0, values=(), path=""),
        score=0.5,
        files=10,
        size_bytes=10,
        small_files=candidates,
        candidate_files=candidates,
        delete_files=0,
        hours=1.0,
    )
    return HealthAssessment(
        lost=PointsLost(files=100.0 - score),
        files=10,
        size_bytes=10,
        rows=10,
        small_files=candidates,
        candidate_files=candidates,
        delete_files=0,
        partitions=1,
        manifest_count=1,
        size_histogram=(),
        worst=(worst,) if candidates else (),
        recommendation="",
    )


FLEETS = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50)), max_size=15).map(
    lambda found: [(f"db.t{number}", health(*each)) for number, each in enumerate(found)]
)
POLICIES = st.builds(RankingPolicy, health_below=st.floats(0, 100), max_jobs=st.integers(0, 8))


@given(FLEETS, POLICIES)
def test_every_table_has_one_rank_and_the_budget_goes_to_the_unhealthiest(
    fleet: list[tuple[str, HealthAssessment]], policy: RankingPolicy
) -> None:
    ranked = rank_fleet(fleet, policy)
    assert sorted(table.ident for table in ranked) == sorted(ident for ident, _ in fleet)
    ill = [table for table in ranked if table.health.score < policy.health_below and table.health.candidate_files]
    taken = [table for table in ranked if table.rank is Rank.COMPACT]
    assert len(taken) == min(len(ill), policy.max_jobs)
    assert {table.rank for table in ranked if table not in ill} <= {Rank.HEALTHY}
    left = [table.health.score for table in ranked if table.rank is Rank.OVER_BUDGET]
    assert all(table.health.score <= score for table in taken for score in left)


@given(FLEETS, POLICIES)
def test_the_order_does_not_depend_on_the_order_of_the_catalog(
    fleet: list[tuple[str, HealthAssessment]], policy: RankingPolicy
) -> None:
    assert rank_fleet(fleet, policy) == rank_fleet(list(reversed(fleet)), policy)


def test_of_equally_ill_ones_the_one_with_more_to_do_comes_first() -> None:
    ranked = rank_fleet([("db.a", health(50, 3)), ("db.b", health(50, 9)), ("db.c", health(40, 1))], RankingPolicy())
    assert [table.ident for table in ranked] == ["db.c", "db.b", "db.a"]


def test_a_table_that_no_compaction_mends_takes_nothing_of_the_budget() -> None:
    ranked = rank_fleet([("db.a", health(0, 0)), ("db.b", health(1, 1))], RankingPolicy(max_jobs=1))
    assert [table.rank for table in ranked] == [Rank.HEALTHY, Rank.COMPACT]


def test_a_table_that_lost_its_points_for_what_no_compaction_mends_is_left_alone() -> None:
    (ranked,) = rank_fleet([("db.a", health(10, 0))], RankingPolicy())
    assert ranked.rank is Rank.HEALTHY


@pytest.mark.parametrize("wrong", [{"health_below": -1}, {"health_below": 101}, {"max_jobs": -1}])
def test_a_policy_that_cannot_be_is_not_built(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RankingPolicy(**wrong)  # type: ignore[arg-type]
