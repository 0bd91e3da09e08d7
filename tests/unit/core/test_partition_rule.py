"""Which partitions a scheduled run takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.partition_rule import PartitionRule, narrowed
from regelate.core.planning.plan import PlanReason, plan_compaction
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.table import Partition, PartitionTotals
from regelate.errors import InvalidRequest
from tests.unit.core.model_table import ModelTable, month

DAY_MS = 24 * 3600 * 1000


def day(number: int | None, region: str = "eu") -> Partition:
    """The partition of a day that ends at `number` days; None: of no time."""
    ends = None if number is None else number * DAY_MS
    return Partition(spec_id=0, values=(number, region), path=f"day={number}/{region}", ends_at_ms=ends)


def totals(partition: Partition, *, files: int = 10, small: int = 0) -> PartitionTotals:
    return PartitionTotals(
        partition=partition, files=files, size_bytes=files, rows=files, delete_files=0, candidate_files=small,
        small_files=small, oldest_candidate_ms=None,
    )  # fmt: skip


def test_yesterday_is_the_newest_day_that_has_ended_with_all_its_regions() -> None:
    found = [totals(day(n, region)) for n in (7, 8, 9) for region in ("eu", "us")]
    taken = PartitionRule(newest_closed=1).taken(found, now_ms=8 * DAY_MS + 1)
    assert taken == {day(8, "eu"), day(8, "us")}


@pytest.mark.parametrize(
    ("rule", "taken"),
    [
        (PartitionRule(min_small_files=5), True),
        (PartitionRule(min_small_files=6), False),
        (PartitionRule(min_small_share=0.5), True),
        (PartitionRule(min_small_share=0.51), False),
        (PartitionRule(min_small_files=6, min_small_share=0.5), True),
        (PartitionRule(min_small_files=5, min_small_share=1.0), True),
        (PartitionRule(newest_closed=1, min_small_files=5), False),
    ],
)
def test_a_count_or_a_share_of_small_files_is_enough_and_time_must_hold_too(rule: PartitionRule, taken: bool) -> None:
    found = rule.taken([totals(day(None), files=10, small=5)], now_ms=0)
    assert (day(None) in found) is taken


@given(
    ends=st.lists(st.none() | st.integers(0, 20), max_size=20),
    now=st.integers(0, 20),
    count=st.integers(1, 5),
)
def test_no_open_partition_is_taken_and_no_skipped_one_ended_later(
    ends: list[int | None], now: int, count: int
) -> None:
    partitions = [day(end, str(i)) for i, end in enumerate(ends)]
    taken = PartitionRule(newest_closed=count).taken([totals(p) for p in partitions], now_ms=now * DAY_MS)
    closed = [p for p in partitions if p.ends_at_ms is not None and p.ends_at_ms <= now * DAY_MS]
    assert taken <= set(closed)
    assert len({p.ends_at_ms for p in taken}) == min(count, len({p.ends_at_ms for p in closed}))
    oldest = min((p.ends_at_ms or 0 for p in taken), default=0)
    assert all((p.ends_at_ms or 0) < oldest for p in closed if p not in taken)


@pytest.mark.parametrize(
    "wrong", [{"newest_closed": 0}, {"min_small_files": -1}, {"min_small_share": 0.0}, {"min_small_share": 1.5}]
)
def test_a_rule_that_could_not_hold_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match="INVALID_OPTION"):
        PartitionRule(**wrong)  # type: ignore[arg-type]


def test_a_narrowed_plan_keeps_the_taken_groups_and_counts_the_others_as_skipped() -> None:
    january, february = month("2013-01"), month("2013-02")
    table, policy = ModelTable(), CompactionPolicy(min_input_files=2)
    for partition in (january, february):
        table.append([100, 100, 100], partition=partition)
    plan = plan_compaction(table.photograph(policy), policy)
    assert len(plan.groups) == 2
    one = narrowed(plan, frozenset({january}))
    assert [g.partition for g in one.groups] == [january]
    assert [(s.partition, s.files) for s in one.skipped] == [(february, 3)]
    assert narrowed(plan, frozenset({january, february})) == plan
    none = narrowed(plan, frozenset())
    assert (none.groups, none.reason) == ((), PlanReason.BELOW_THRESHOLD)
    assert replace(none, groups=plan.groups).files == plan.files
