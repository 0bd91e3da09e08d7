"""A target that grows with its table, and files that keep the one they were made for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regelate.core.planning.plan import plan_compaction
from regelate.core.policy.options import AUTOMATIC, CompactionDefaults, resolve_policy
from regelate.core.policy.policy import GB, MB, CompactionPolicy
from regelate.core.policy.table_properties import Use, refuse_unusable
from regelate.core.policy.targets import STEP, adaptive_target, named_target, stored_bytes, target_suffix
from regelate.core.requests import CompactRequest
from regelate.errors import InvalidRequest
from tests.unit.core.model_table import ModelTable, even

TB = 1024 * GB
ADAPTIVE = {"regelate.compaction.target-file-size-bytes": "adaptive"}
COMMITS = 1_200
CONFIG = CompactionDefaults(target_file_size_bytes=128 * MB)


def resolved(request: CompactRequest, properties: dict[str, str], table_bytes: int) -> CompactionPolicy:
    return resolve_policy(
        request=request, table_properties=properties, config=CONFIG, now_ms=0, table_bytes=table_bytes
    )


@pytest.mark.parametrize(
    ("table_bytes", "target"),
    [
        (0, 128 * MB),
        (10 * GB, 128 * MB),
        (10 * GB + (10 * TB - 10 * GB) // 2, 576 * MB),
        (10 * TB, GB),
        (1_000 * TB, GB),
    ],
)
def test_an_adaptive_target_is_128_mb_to_10_gb_and_linear_to_1_gb_at_10_tb(table_bytes: int, target: int) -> None:
    assert adaptive_target(table_bytes) == target


@given(st.lists(st.integers(0, 20 * TB), min_size=2))
def test_an_adaptive_target_never_shrinks_as_a_table_grows_and_moves_in_steps(sizes: list[int]) -> None:
    targets = [adaptive_target(size) for size in sorted(sizes)]
    assert all(before <= after for before, after in pairwise(targets))
    assert {target % STEP for target in targets} == {0}


@given(st.integers(1, 1024 * GB))
def test_a_name_says_for_which_target_a_file_was_made(target: int) -> None:
    assert named_target(f"s3://lake/t/data/day=-t5/00001-run-t7{target_suffix(target)}") == target


@pytest.mark.parametrize(
    "path", ["a/00000-run.parquet", "a/-t.parquet", "x-t0.parquet", "x-t5.orc", "x-t5.parquet-", ""]
)
def test_other_names_say_nothing(path: str) -> None:
    assert named_target(path) is None


@pytest.mark.parametrize(("told", "found"), [("12", 12), ("", 0), ("-1", 0), ("many", 0), ("٣", 0)])
def test_a_summary_without_a_size_is_that_of_a_small_table(told: str, found: int) -> None:
    assert stored_bytes({"total-files-size": told}) == found
    assert stored_bytes({}) == 0


def test_a_tables_adaptive_target_is_that_of_automatic_runs_too_unless_they_have_one() -> None:
    sizes = {**ADAPTIVE, "write.target-file-size-bytes": str(64 * MB)}
    assert resolved(CompactRequest(), sizes, 10 * TB).target_file_size_bytes == GB
    auto = resolved(AUTOMATIC, sizes, 10 * TB)
    assert (auto.target_file_size_bytes, auto.min_file_size_bytes) == (GB, GB // 2)
    own = {**sizes, "regelate.auto.max-file-size-bytes": str(256 * MB)}
    assert resolved(AUTOMATIC, own, 10 * TB).target_file_size_bytes == 256 * MB


@pytest.mark.parametrize("table_bytes", [0, 4 * TB])
def test_a_table_that_shrinks_has_no_file_split_that_was_right_sized(table_bytes: int) -> None:
    table = ModelTable()
    table.append([GB] * 40, suffix=target_suffix(GB))
    policy = resolved(CompactRequest(), ADAPTIVE, table_bytes)
    assert plan_compaction(table.photograph(policy), policy).groups == ()
    named = {**ADAPTIVE, "regelate.compaction.max-file-size-bytes": str(GB - 1)}
    policy = resolved(CompactRequest(), named, table_bytes)
    assert plan_compaction(table.photograph(policy), policy).files == 40
    by_number = resolved(CompactRequest(target_file_size_mb=128), ADAPTIVE, table_bytes)
    assert by_number.max_file_size_bytes == int(1.8 * 128 * MB)


def test_a_request_may_ask_for_an_adaptive_target() -> None:
    asked = CompactRequest(options={"target-file-size-bytes": "adaptive"})
    assert resolved(asked, {}, 10 * TB).target_file_size_bytes == GB
    assert resolved(asked, {}, 0).target_file_size_bytes == 128 * MB


def test_a_number_on_a_table_belongs_to_the_property_that_every_engine_reads() -> None:
    with pytest.raises(InvalidRequest, match=r"must be adaptive; a size is what write.target-file-size-bytes is for"):
        resolved(CompactRequest(), {"regelate.compaction.target-file-size-bytes": "1048576"}, 0)


@pytest.mark.parametrize("size", [64 * MB, 127 * MB])
def test_what_reached_half_of_the_target_of_its_own_day_is_not_counted_by_automatic_runs(size: int) -> None:
    automatic, by_hand = (resolved(request, ADAPTIVE, 10 * TB) for request in (AUTOMATIC, CompactRequest()))
    of_its_day, of_nobody, unfinished = ModelTable(), ModelTable(), ModelTable()
    of_its_day.append([size] * 100, suffix=target_suffix(128 * MB))
    of_nobody.append([size] * 100)
    unfinished.append([size - 1] * 100, suffix=target_suffix(2 * size))
    assert [bool(plan_compaction(t.photograph(automatic), automatic).groups) for t in (of_its_day, of_nobody)] == [
        False,
        True,
    ]
    assert plan_compaction(unfinished.photograph(automatic), automatic).files == 100
    assert plan_compaction(of_its_day.photograph(by_hand), by_hand).files == 100


def test_a_target_that_grows_has_no_byte_written_again_that_an_earlier_one_had_done_with() -> None:
    """From 128 MB to 1 GB: by today's target alone, what lies there is taken up again as the target grows."""
    data = COMMITS * 40 * MB
    assert _bytes_written(named=True) <= data < 1.1 * data < _bytes_written(named=False)


def _bytes_written(*, named: bool) -> int:
    table, written = ModelTable(), 0
    for number in range(COMMITS):
        policy = resolved(AUTOMATIC, ADAPTIVE, number * 10 * GB)
        table.append([40 * MB])
        plan = plan_compaction(table.photograph(policy), policy)
        if plan.groups:
            written += sum(table.apply(plan, even, policy, named=named))
    return written


SMALL, LARGE = "regelate.compaction.min-file-size-bytes", "regelate.compaction.max-file-size-bytes"


@given(table_bytes=st.integers(0, 20 * TB), low=st.integers(0, 2 * GB), high=st.integers(1, 4 * GB))
def test_an_adaptive_target_keeps_to_the_min_and_max_beside_it_however_large_the_table(
    table_bytes: int, low: int, high: int
) -> None:
    """A table must not grow into a refusal, nor be refused by the target of an empty one."""
    assume(low + 1 < high)
    properties = {**ADAPTIVE, SMALL: str(low), LARGE: str(high)}
    policy = resolved(CompactRequest(), properties, table_bytes)
    assert low < policy.target_file_size_bytes < high
    assert (policy.min_file_size_bytes, policy.max_file_size_bytes) == (low, high)
    refuse_unusable(properties, Use.COMPACT, Use.AUTO)


def test_a_min_and_a_max_that_clash_are_refused_beside_an_adaptive_target() -> None:
    with pytest.raises(InvalidRequest, match="INVALID_OPTION"):
        resolved(CompactRequest(), {**ADAPTIVE, SMALL: str(300 * MB), LARGE: str(200 * MB)}, 0)


@pytest.mark.parametrize(("table_bytes", "least"), [(0, 64 * MB), (10 * TB, 200 * MB)])
def test_what_automatic_runs_count_gives_way_to_an_adaptive_target_that_is_not_larger(
    table_bytes: int, least: int
) -> None:
    properties = {**ADAPTIVE, "regelate.auto.min-file-size-bytes": str(200 * MB)}
    assert resolved(AUTOMATIC, properties, table_bytes).min_file_size_bytes == least
