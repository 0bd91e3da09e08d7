"""What a plan is said to take before anything is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regelate.core.engines import COST_HERE, LAMBDA, OBJECT_STORE
from regelate.core.planning.plan import CompactionPlan, plan_compaction
from regelate.core.policy.policy import GB, MB, CompactionPolicy, PlacementPolicy
from regelate.core.running.estimate import estimate
from regelate.core.running.placement import place
from regelate.core.table.table import FileScanTask
from tests.unit.core.model_table import ModelTable, sized_policy

POLICY = sized_policy(100)
TWO_CORES = PlacementPolicy(memory_bytes=2 * GB, threads=2)


def plan_of(*sizes: int, policy: CompactionPolicy = POLICY, ratio: float | None = None) -> CompactionPlan:
    table = ModelTable()
    table.append(sizes)
    return plan_compaction(table.photograph(policy), policy, size_ratio=ratio)


def stored(plan: CompactionPlan, place: str) -> CompactionPlan:
    """Return the plan with its files at another place."""

    def moved(task: FileScanTask) -> FileScanTask:
        return replace(task, data_file=replace(task.data_file, path=f"{place}/{task.data_file.path}"))

    return replace(plan, groups=tuple(replace(g, tasks=tuple(map(moved, g.tasks))) for g in plan.groups))


def test_seconds_are_those_by_which_a_plan_is_placed_and_dollars_are_lambdas_for_them() -> None:
    plan = plan_of(*[10 * MB] * 20)
    found = estimate(plan, TWO_CORES)
    assert found.seconds == place(plan, TWO_CORES).estimated_seconds
    assert found.compute_dollars == LAMBDA.dollars(found.seconds, 2 * GB)
    assert found.dollars == found.compute_dollars + found.request_dollars


def test_bytes_are_those_of_the_inputs_and_those_that_the_rewrites_of_this_table_make_of_them() -> None:
    found = estimate(plan_of(*[10 * MB] * 20, ratio=0.5), TWO_CORES)
    assert (found.bytes_read, found.bytes_written) == (200 * MB, 100 * MB)


def test_a_strict_verification_reads_everything_once_more() -> None:
    plan = plan_of(*[5 * MB] * 40)
    once, twice = estimate(plan, TWO_CORES), estimate(plan, TWO_CORES, read_again=True)
    assert twice.bytes_read == 2 * once.bytes_read + once.bytes_written
    assert twice.seconds == 2 * once.seconds


@pytest.mark.parametrize("place", ["/lake", "file:///lake"])
def test_files_on_this_machine_cost_no_requests(place: str) -> None:
    found = estimate(stored(plan_of(*[10 * MB] * 20), place), TWO_CORES)
    assert (found.get_requests, found.put_requests, found.request_dollars) == (0, 0, 0.0)


def test_requests_of_an_object_store_are_counted_and_priced_apart() -> None:
    plan = stored(plan_of(*[10 * MB] * 20), "s3://bucket")
    found = estimate(plan, TWO_CORES)
    assert found.get_requests >= plan.files
    assert found.put_requests >= 200 // 8
    priced = found.get_requests * OBJECT_STORE.dollars_per_get + found.put_requests * OBJECT_STORE.dollars_per_put
    assert found.request_dollars == pytest.approx(priced)


def test_what_max_files_leaves_small_is_counted_as_work_to_come() -> None:
    assert estimate(plan_of(*[MB] * 20), TWO_CORES).bytes_rewritten_again == 0
    cut = estimate(plan_of(*[MB] * 20, policy=replace(POLICY, max_files=6)), TWO_CORES)
    assert cut.bytes_rewritten_again == 6 * MB


def test_the_peak_is_bounded_by_the_memory_of_the_machine_and_by_what_is_under_way() -> None:
    small, large = plan_of(*[MB] * 20), plan_of(*[50 * MB] * 40)
    assert estimate(large, TWO_CORES).peak_memory_mb == 2048 + COST_HERE.process_bytes // MB
    assert estimate(small, TWO_CORES).peak_memory_mb < 600


@pytest.mark.parametrize(
    ("sizes", "memory_mb"),
    [((), 512), ([10 * MB] * 9, 512), ([10 * MB] * 10, 1024), ([50 * MB] * 11, 2048), ([50 * MB] * 20, 3008)],
)
def test_memory_is_recommended_by_the_bytes_of_a_plan(sizes: list[int], memory_mb: int) -> None:
    assert estimate(plan_of(*sizes), TWO_CORES).recommended_memory_mb == memory_mb


def test_one_scan_of_very_many_files_needs_more_than_their_bytes_say() -> None:
    few_bytes = estimate(plan_of(*[1024] * 3000), TWO_CORES).recommended_memory_mb
    assert few_bytes * MB >= COST_HERE.process_bytes + COST_HERE.bytes_of_output(500)
    assert few_bytes == 512


def test_an_empty_plan_takes_nothing() -> None:
    found = estimate(plan_of(), TWO_CORES)
    assert (found.seconds, found.dollars, found.bytes_read, found.bytes_written) == (0, 0, 0, 0)
