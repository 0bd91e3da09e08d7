"""Iceberg's numbers, pinned by its own documented cases, and groups that leave at most one small file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.packing import (
    MAX_OVER_CAP,
    Candidate,
    cut_groups,
    expected_output_files,
    output_files,
    pack,
    predicted,
    right_sized,
    write_max_file_size,
)
from regelate.core.planning.selection import Reason
from regelate.core.policy.policy import GB, MB, CompactionPolicy
from regelate.core.table.table import FileScanTask
from tests.unit.core.model_table import data_file, sized_policy

ICEBERG = CompactionPolicy()
"""Target 512 MB, min 384 MB, max 921.6 MB."""


@pytest.mark.parametrize(
    ("size_mb", "files"),
    [
        (0, 1),
        (511, 1),
        (512, 1),
        (530, 1),  # 512 + 18: the remainder is spread, the average is below 1.1 x target
        (563, 1),
        (564, 2),  # from 1.1 x target on the remainder is a file of its own
        (580, 2),  # testInputSplitSizeLowerBound: 145 MB x 4
        (512 + 384, 2),
        (512 + 385, 2),
        (1024 + 100, 2),
        (1024 + 110, 3),
        (8 * 512 + 384, 8),  # a remainder of exactly min is not above it
        (8 * 512 + 385, 9),
        (10 * 512 + 51, 10),
        (10 * 512 + 400, 11),
    ],
)
def test_expected_output_files_are_icebergs(size_mb: int, files: int) -> None:
    assert expected_output_files(size_mb * MB, ICEBERG) == files


def test_ten_and_a_tenth_gigabytes_at_a_target_of_one_become_ten_files() -> None:
    assert expected_output_files(int(10.1 * GB), sized_policy(1024)) == 10


def test_a_max_just_above_the_target_forbids_spreading_the_remainder() -> None:
    tight = CompactionPolicy(target_file_size_bytes=100, min_file_size_bytes=75, max_file_size_bytes=104)
    assert write_max_file_size(tight) == 102
    assert expected_output_files(101, tight) == 1
    assert expected_output_files(103, tight) == 2
    assert expected_output_files(200, tight) == 2


def test_a_writer_may_go_half_of_the_way_from_target_to_max() -> None:
    assert write_max_file_size(ICEBERG) == int(1.4 * 512 * MB)


@pytest.mark.parametrize(
    ("weights", "max_weight", "max_items", "bins"),
    [
        # apache/iceberg TestBinPacking, testBasicBinPackingSingleLookback
        ([1, 2, 3, 4, 5], 3, 99, [[1, 2], [3], [4], [5]]),
        ([1, 2, 3, 4, 5], 5, 99, [[1, 2], [3], [4], [5]]),
        ([1, 2, 3, 4, 5], 6, 99, [[1, 2, 3], [4], [5]]),
        ([1, 2, 3, 4, 5], 8, 99, [[1, 2, 3], [4], [5]]),
        ([1, 2, 3, 4, 5], 9, 99, [[1, 2, 3], [4, 5]]),
        ([1, 2, 3, 4, 5], 14, 99, [[1, 2, 3, 4], [5]]),
        ([1, 2, 3, 4, 5], 15, 99, [[1, 2, 3, 4, 5]]),
        # testBinPackingLookBack with a lookback of 1
        ([5, 1, 5, 1, 5, 1], 8, 99, [[5, 1], [5, 1], [5, 1]]),
        # testBasicBinPackingTargetSize: a cap on items
        ([1, 2, 3, 4, 5], 6, 2, [[1, 2], [3], [4], [5]]),
        ([1, 2, 3, 4, 5], 9, 3, [[1, 2, 3], [4, 5]]),
        ([], 9, 3, []),
        ([99], 9, 3, [[99]]),
    ],
)
def test_packing_is_icebergs_list_packer_with_a_lookback_of_one(
    weights: list[int], max_weight: int, max_items: int, bins: list[list[int]]
) -> None:
    found = pack(weights, lambda w: w, max_weight=max_weight, max_items=max_items)
    assert [list(b) for b in found] == bins


@given(weights=st.lists(st.integers(0, 50)), max_weight=st.integers(1, 60), max_items=st.integers(1, 8))
def test_bins_keep_the_order_and_only_a_lone_item_may_pass_the_weight(
    weights: list[int], max_weight: int, max_items: int
) -> None:
    bins = pack(weights, lambda w: w, max_weight=max_weight, max_items=max_items)
    assert [w for b in bins for w in b] == weights
    assert all(len(b) <= max_items for b in bins)
    assert all(sum(b) <= max_weight or len(b) == 1 for b in bins)


@pytest.mark.parametrize(
    ("size_mb", "iceberg", "ours"),
    [
        (90, 1, 1),
        (120, 2, 1),  # two files of 60 would both be candidates again
        (150, 2, 1),
        (163, 2, 1),
        (164, 2, 2),  # a tenth more than 164 would be above max, and be split again
        (170, 2, 2),
        (175, 2, 2),
        (230, 3, 2),
        (276, 3, 2),
        (350, 4, 3),
        (1050, 10, 10),
        (1080, 11, 11),
    ],
)
def test_one_file_fewer_is_written_where_icebergs_pieces_would_be_candidates_again(
    size_mb: int, iceberg: int, ours: int
) -> None:
    policy = sized_policy(100)
    assert expected_output_files(size_mb * MB, policy) == iceberg
    assert output_files(size_mb * MB, policy) == ours


@given(size=st.integers(75 * MB, 5000 * MB))
def test_from_one_small_file_on_every_size_divides_into_right_sized_files(size: int) -> None:
    policy = sized_policy(100)
    piece = size / output_files(size, policy)
    assert policy.min_file_size_bytes <= piece <= policy.max_file_size_bytes


@given(size=st.integers(200 * MB, 5000 * MB))
def test_three_and_more_outputs_stay_right_sized_though_cuts_move_to_file_borders(size: int) -> None:
    policy = sized_policy(100)
    files = output_files(size, policy)
    share = size / files
    error = 0.1 if files == 2 else 0.2  # an output between two cuts may lose a tenth at either
    assert policy.min_file_size_bytes <= share * (1 - error)
    assert share * (1 + error) <= policy.max_file_size_bytes


def candidates(sizes: list[int]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            task=FileScanTask(data_file=data_file(f"{number:05}", size)),
            reason=Reason.SMALL,
            predicted_bytes=size,
            required=False,
        )
        for number, size in enumerate(sizes)
    )


def weights(groups: tuple[tuple[Candidate, ...], ...]) -> list[list[int]]:
    return [[c.predicted_bytes // MB for c in group] for group in groups]


def test_a_small_last_group_is_evened_out_with_the_one_before_it() -> None:
    policy = sized_policy(100, max_files_per_group=4)
    assert weights(cut_groups(candidates([60 * MB] * 5), policy)) == [[60, 60], [60, 60, 60]]


def test_a_small_last_group_joins_the_one_before_it_when_one_file_comes_out() -> None:
    policy = sized_policy(100, max_files_per_group=4)
    assert weights(cut_groups(candidates([25 * MB] * 4 + [10 * MB]), policy)) == [[25, 25, 25, 25, 10]]


def test_tiny_files_pass_the_file_cap_until_they_make_one_file() -> None:
    policy = sized_policy(100, max_files_per_group=4)
    assert weights(cut_groups(candidates([10 * MB] * 9), policy)) == [[10] * 9]
    groups = cut_groups(candidates([10 * MB] * 30), policy)
    assert [len(g) for g in groups] == [9, 9, 12]


def test_a_group_of_tiny_files_ends_at_the_limit_over_the_file_cap() -> None:
    policy = sized_policy(100, max_files_per_group=4)
    assert max(len(g) for g in cut_groups(candidates([1] * 900), policy)) == 4 * MAX_OVER_CAP


@given(
    sizes=st.lists(st.integers(0, 300 * MB), max_size=60),
    cap=st.integers(1, 12),
    group_mb=st.integers(1, 2000),
)
def test_groups_hold_every_candidate_once_in_order_and_within_the_caps(
    sizes: list[int], cap: int, group_mb: int
) -> None:
    policy = sized_policy(100, max_files_per_group=cap, max_file_group_size_bytes=group_mb * MB)
    found = candidates(sizes)
    groups = cut_groups(found, policy)
    assert tuple(c for group in groups for c in group) == found
    for group in groups:
        assert len(group) == 1 or sum(c.size_bytes for c in group) <= group_mb * MB
        assert len(group) <= cap * MAX_OVER_CAP
        if len(group) > cap:
            shortest = group[: max(cap, 1)]
            assert not right_sized(predicted(shortest), policy) or output_files(predicted(group), policy) == 1


@given(
    sizes=st.lists(st.integers(5 * MB, 75 * MB - 1), max_size=120),
    cap=st.integers(6, 20),
)
def test_at_most_the_last_group_leaves_a_small_file(sizes: list[int], cap: int) -> None:
    policy = sized_policy(100, max_files_per_group=cap)
    groups = cut_groups(candidates(sizes), policy)
    small = [g for g in groups if predicted(g) / output_files(predicted(g), policy) < policy.min_file_size_bytes]
    assert small in ([], [groups[-1]] if groups else [])
