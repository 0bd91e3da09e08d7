"""Every file falls into exactly one reason, by Iceberg's rules and a fixed precedence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.selection import (
    SELECTIONS,
    Reason,
    check_partition_filters,
    classify,
    deleted_share,
    is_ill,
    is_small,
    partition_selected,
)
from regelate.core.policy.policy import MB, CompactionPolicy, Selection
from regelate.core.table.table import Partition, PartitionTotals
from regelate.errors import InvalidRequest
from tests.unit.core.model_table import UNPARTITIONED, data_file, equality_delete, month, position_delete, sized_policy

POLICY = sized_policy(100, delete_file_threshold=3)
JANUARY = month("2013-01", ends_at_ms=10_000_000)


@pytest.mark.parametrize(
    ("size_mb", "reason"),
    [
        (0, Reason.SMALL),
        (74.9, Reason.SMALL),
        (75, Reason.RIGHT_SIZED),
        (100, Reason.RIGHT_SIZED),
        (180, Reason.RIGHT_SIZED),
        (180.1, Reason.LARGE),
    ],
)
def test_size_selects_below_min_and_above_max_and_neither_bound_itself(size_mb: float, reason: Reason) -> None:
    found = data_file("a", int(size_mb * MB))
    assert classify(found, (), POLICY) is reason
    assert is_small(found.size_bytes, POLICY) is (reason is Reason.SMALL)


def test_three_delete_files_select_a_healthy_file_at_a_threshold_of_three_and_two_do_not() -> None:
    healthy = data_file("a", 100 * MB)
    deletes = [equality_delete(f"d{number}", 1, of=healthy) for number in range(3)]
    assert classify(healthy, deletes[:2], POLICY) is Reason.RIGHT_SIZED
    assert classify(healthy, deletes, POLICY) is Reason.TOO_MANY_DELETE_FILES


@pytest.mark.parametrize(("deleted", "reason"), [(299, Reason.RIGHT_SIZED), (300, Reason.DELETED_ROWS_RATIO)])
def test_three_deleted_rows_in_ten_select_a_healthy_file(deleted: int, reason: Reason) -> None:
    healthy = data_file("a", 100 * MB, rows=1000)
    assert classify(healthy, (position_delete("d", deleted, of=healthy),), POLICY) is reason


def test_only_deletes_that_name_this_one_file_count_towards_the_ratio() -> None:
    healthy, other = data_file("a", 100 * MB, rows=1000), data_file("b", 100 * MB)
    wide = position_delete("d", 900, of=healthy, also=other)
    keys = equality_delete("e", 900, of=healthy)
    assert deleted_share(healthy, (wide, keys)) == 0
    assert classify(healthy, (wide, keys), POLICY) is Reason.RIGHT_SIZED


def test_the_deleted_share_is_capped_at_the_rows_of_the_file() -> None:
    healthy = data_file("a", 100 * MB, rows=10)
    assert deleted_share(healthy, (position_delete("d", 7, of=healthy), position_delete("e", 7, of=healthy))) == 1
    assert deleted_share(replace(healthy, record_count=0), (position_delete("d", 7, of=healthy),)) == 0


PRECEDENCE = [
    (Reason.PARTITION_NOT_SELECTED, {"partition_filters": ((("month", "2099-01"),),)}),
    (Reason.PARTITION_NOT_QUIET, {"selection": Selection.TIME_SERIES, "now_ms": 0}),
    (Reason.REWRITE_ALL, {"rewrite_all": True}),
    (Reason.TOO_MANY_DELETE_FILES, {"delete_file_threshold": 1}),
    (Reason.DELETED_ROWS_RATIO, {"delete_ratio_threshold": 0.1}),
    (Reason.SMALL, {"delete_ratio_threshold": 0.9}),
]


@pytest.mark.parametrize("first", range(len(PRECEDENCE)), ids=[reason.value for reason, _ in PRECEDENCE])
def test_the_first_rule_that_holds_gives_the_reason_though_all_later_ones_hold_too(first: int) -> None:
    knobs: dict[str, object] = {}
    for _, wanted in reversed(PRECEDENCE[first:]):
        knobs |= wanted
    small = data_file("a", MB, partition=JANUARY, rows=10)
    deletes = (position_delete("d", 5, of=small),)
    assert classify(small, deletes, sized_policy(100, **knobs)) is PRECEDENCE[first][0]


@given(
    size=st.integers(0, 400 * MB),
    rows=st.integers(0, 100),
    deleted=st.lists(st.integers(0, 100), max_size=4),
    rewrite_all=st.booleans(),
)
def test_deletes_and_size_alone_decide_what_is_selected(
    size: int, rows: int, deleted: list[int], rewrite_all: bool
) -> None:
    found = data_file("a", size, rows=rows)
    deletes = tuple(position_delete(f"d{number}", count, of=found) for number, count in enumerate(deleted))
    reason = classify(found, deletes, replace(POLICY, rewrite_all=rewrite_all))
    by_deletes = len(deletes) >= 3 or (rows > 0 and min(sum(deleted), rows) / rows >= 0.3)
    by_size = size < 75 * MB or size > 180 * MB
    assert reason.selected == (rewrite_all or by_deletes or by_size)


def test_the_reasons_that_select_are_these_five() -> None:
    assert {r.name for r in Reason if r.selected} == {
        "SMALL",
        "LARGE",
        "TOO_MANY_DELETE_FILES",
        "DELETED_ROWS_RATIO",
        "REWRITE_ALL",
    }


def filtered(*filters: dict[str, str]) -> CompactionPolicy:
    return sized_policy(100, partition_filters=tuple(tuple(one.items()) for one in filters))


CARRIER = Partition(
    spec_id=1,
    values=("2013-01", "UA"),
    path="month=2013-01/carrier=UA",
    source_values={"month": "2013-01", "carrier": "UA"},
)


@pytest.mark.parametrize(
    ("filters", "selected"),
    [
        ([], True),
        ([{"month": "2013-01"}], True),
        ([{"month": "2013-02"}], False),
        ([{"month": "2013-01", "carrier": "UA"}], True),
        ([{"month": "2013-01", "carrier": "AA"}], False),
        ([{"carrier": "AA"}, {"month": "2013-01"}], True),
        ([{"carrier": "AA"}, {"month": "2013-02"}], False),
    ],
)
def test_a_filter_is_and_over_its_keys_and_filters_are_or(filters: list[dict[str, str]], selected: bool) -> None:
    assert partition_selected(CARRIER, filtered(*filters)) is selected


def test_a_partition_of_an_older_spec_without_the_key_does_not_match_and_is_no_fault() -> None:
    policy = filtered({"carrier": "UA"})
    assert not partition_selected(JANUARY, policy)
    check_partition_filters((JANUARY, CARRIER), policy)


def test_a_key_that_no_partition_has_is_refused_by_name_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match=r"'region'.*known keys: carrier, day, month") as caught:
        check_partition_filters((JANUARY, CARRIER), filtered({"month": "2013-01", "region": "EU"}))
    assert caught.value.code == "INVALID_FIELD"
    assert caught.value.details["key"] == "region"


def test_a_filter_on_an_unpartitioned_table_is_refused_and_on_an_empty_one_is_not() -> None:
    with pytest.raises(InvalidRequest, match="not partitioned"):
        check_partition_filters((UNPARTITIONED,), filtered({"month": "2013-01"}))
    check_partition_filters((), filtered({"month": "2013-01"}))


@pytest.mark.parametrize(("now_ms", "reason"), [(13_599_999, Reason.PARTITION_NOT_QUIET), (13_600_000, Reason.SMALL)])
def test_time_series_takes_a_partition_from_the_end_of_its_quiet_window_on(now_ms: int, reason: Reason) -> None:
    policy = sized_policy(100, selection=Selection.TIME_SERIES, quiet_window_seconds=3600, now_ms=now_ms)
    assert classify(data_file("a", MB, partition=JANUARY), (), policy) is reason


def test_time_series_never_takes_a_partition_without_a_time_range() -> None:
    policy = sized_policy(100, selection=Selection.TIME_SERIES, now_ms=2**60)
    assert classify(data_file("a", MB), (), policy) is Reason.PARTITION_NOT_QUIET


@pytest.mark.parametrize(
    ("files", "size_mb", "deletes", "ill"),
    [(10, 749, 0, True), (10, 750, 0, False), (10, 1000, 3, False), (10, 1000, 4, True), (0, 0, 0, False)],
)
def test_a_partition_is_ill_when_its_average_file_is_small_or_it_has_many_delete_files(
    files: int, size_mb: int, deletes: int, ill: bool
) -> None:
    totals = PartitionTotals(
        partition=JANUARY,
        files=files,
        size_bytes=size_mb * MB,
        rows=1,
        delete_files=deletes,
        candidate_files=0,
        small_files=0,
        oldest_candidate_ms=None,
    )
    assert is_ill(totals, POLICY) is ill


def test_every_selection_has_its_row_and_says_whether_it_leaves_partitions_alone_that_iceberg_would_take() -> None:
    assert set(SELECTIONS) == set(Selection)
    assert [name for name, rule in SELECTIONS.items() if rule.narrows] == [Selection.TIME_SERIES, Selection.PARTITION]
