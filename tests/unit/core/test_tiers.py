"""Automatic runs: what they take, and that they neither chase their own output nor leave many small files."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.plan import plan_compaction
from regelate.core.planning.tiers import CROWD, small_end
from regelate.core.policy.policy import MB, CompactionPolicy, Selection
from tests.unit.core.model_table import ModelTable, even

KB = 1024
FULL = 50
POLICY = CompactionPolicy(
    target_file_size_bytes=128 * MB,
    min_file_size_bytes=64 * MB,
    max_file_size_bytes=230 * MB,
    min_input_files=FULL,
    selection=Selection.SIZE_TIERED,
)
SIZES = st.lists(st.integers(0, 64 * MB), max_size=300)


def taken(sizes: Sequence[int], full: int = FULL) -> tuple[int, ...]:
    return small_end(sizes, int, full=full)


@given(SIZES, st.integers(2, 60))
def test_what_is_taken_are_the_smallest_files_and_none_as_small_is_left(sizes: list[int], full: int) -> None:
    found, ordered = taken(sizes, full), sorted(sizes)
    assert list(found) == ordered[: len(found)]
    assert not found or ordered[len(found) :][:1] != [found[-1]]


@given(SIZES, st.integers(2, 60))
def test_a_look_leaves_fewer_than_twice_min_num_files_or_than_there_are_tiers_of_size(
    sizes: list[int], full: int
) -> None:
    assert len(sizes) - len(taken(sizes, full)) < max(2 * full - 1, CROWD)


@given(SIZES, st.integers(2, 60))
def test_a_run_takes_min_num_files_or_more(sizes: list[int], full: int) -> None:
    assert not taken(sizes, full) or len(taken(sizes, full)) >= full


def test_files_of_every_look_do_not_keep_a_full_tier_of_larger_ones_from_its_turn() -> None:
    new, earlier, once = [KB] * 100, [100 * KB] * FULL, [5 * MB] * (FULL - 1)
    assert taken([*new, *earlier, *once]) == (*new, *earlier)


@given(SIZES, st.integers(2, 60))
def test_fewer_than_min_num_files_are_left_alone(sizes: list[int], full: int) -> None:
    assert not taken(sizes[: full - 1], full)


@pytest.mark.parametrize("size", [KB, 100 * KB, 5 * MB])
def test_a_thousand_commits_write_each_byte_less_than_three_times_and_runs_come_no_more_often(size: int) -> None:
    """delta-io/delta#4045: the more right-sized files there were, the more often its automatic compaction ran."""
    table = ModelTable()
    ran: list[int] = []
    written = most = 0
    for number in range(1_000):
        table.append([size + number % 7])
        most = max(most, sum(task.data_file.size_bytes < POLICY.min_file_size_bytes for task in table.tasks))
        plan = plan_compaction(table.photograph(POLICY), POLICY)
        if plan.groups:
            ran.append(number)
            written += sum(table.apply(plan, even, POLICY))
    data = sum(task.data_file.size_bytes for task in table.tasks)
    assert 1 + written / data <= 2.5
    assert most < 2 * FULL
    early, late = (sum(low <= number < low + 500 for number in ran) for low in (0, 500))
    assert (early, late) == (10, 10)


@pytest.mark.parametrize("interval", [5, 75, 100])
@pytest.mark.parametrize("spread", [1, 20, 60_000])
def test_a_look_after_many_commits_leaves_no_more_small_files_than_one_after_each(interval: int, spread: int) -> None:
    """The shipped intervals; with the widest spread commits are of 1 KB to 60 MB, as many of each magnitude."""
    table = ModelTable()
    for number in range(1_200):
        table.append([int(KB * spread ** (number * 0.618 % 1))])
        if number % interval == interval - 1:
            plan = plan_compaction(table.photograph(POLICY), POLICY)
            table.apply(plan, even, POLICY)
            left = sum(task.data_file.size_bytes < POLICY.min_file_size_bytes for task in table.tasks)
            assert left < 2 * FULL
