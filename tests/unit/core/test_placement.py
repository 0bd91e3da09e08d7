"""Where a plan runs, what it takes and how many outputs are written at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regelate.core.engines import COST_HERE, ENGINES, HERE, LAMBDA, Engine
from regelate.core.planning.plan import CompactionPlan, plan_compaction
from regelate.core.policy.policy import GB, MB, PlacementPolicy
from regelate.core.running.placement import PlacementReason, parallelism, place
from tests.unit.core.model_table import ModelTable, sized_policy

POLICY = sized_policy(100)
TWO_CORES = PlacementPolicy(memory_bytes=3 * GB, threads=2)


def plan_of(*sizes: int) -> CompactionPlan:
    table = ModelTable()
    table.append(sizes)
    return plan_compaction(table.photograph(POLICY), POLICY)


def test_a_plan_within_the_limits_runs_in_this_process() -> None:
    found = place(plan_of(*[5 * MB] * 22), TWO_CORES)
    assert (found.fits, found.reason, found.advice) == (True, PlacementReason.IN_PROCESS, "")
    assert (found.size_bytes, found.files) == (110 * MB, 22)
    assert found.estimated_seconds == pytest.approx(2 + 0.11)


def test_files_that_are_likely_to_be_copied_are_reckoned_so_where_they_are_on_this_machine() -> None:
    plan = plan_of(*[10 * MB] * 20)
    assert place(plan, TWO_CORES).estimated_seconds == pytest.approx(1 + 0.1)
    remote = [
        replace(t, data_file=replace(t.data_file, path=f"s3://b/{t.data_file.path}")) for t in plan.groups[0].tasks
    ]
    elsewhere = replace(plan, groups=(replace(plan.groups[0], tasks=tuple(remote)),))
    assert place(elsewhere, TWO_CORES).estimated_seconds == pytest.approx(200 / 55 + 0.1)


def test_a_plan_of_exactly_the_bytes_allowed_runs_and_one_byte_more_is_refused_with_advice() -> None:
    plan = plan_of(*[10 * MB] * 10)
    assert place(plan, replace(TWO_CORES, max_in_process_bytes=100 * MB)).fits
    refused = place(plan, replace(TWO_CORES, max_in_process_bytes=100 * MB - 1))
    assert (refused.fits, refused.reason) == (False, PlacementReason.TOO_LARGE)
    assert "max_files" in refused.advice


def test_a_plan_that_takes_longer_than_allowed_is_refused_with_advice() -> None:
    refused = place(plan_of(*[5 * MB] * 22), replace(TWO_CORES, max_in_process_seconds=2.0))
    assert (refused.fits, refused.reason) == (False, PlacementReason.TOO_LONG)
    assert "2 s" in refused.advice


def test_an_empty_plan_runs_in_this_process_in_no_time() -> None:
    found = place(plan_of(), TWO_CORES)
    assert (found.fits, found.estimated_seconds) == (True, 0)


def test_twice_the_threads_halve_the_time_for_bytes_but_not_for_files() -> None:
    assert COST_HERE.seconds(110 * MB, 0, threads=2) == 2
    assert COST_HERE.seconds(110 * MB, 0, threads=4) == 1
    assert COST_HERE.seconds(0, 1000, threads=2) == COST_HERE.seconds(0, 1000, threads=8) == 5


def test_the_estimate_agrees_with_the_measured_run_of_400_files_and_125_megabytes_in_4_seconds() -> None:
    assert 4 <= COST_HERE.seconds(125 * MB, 400, threads=2) <= 5


def test_a_hundred_seconds_at_two_gigabytes_cost_a_third_of_a_cent() -> None:
    assert LAMBDA.dollars(100, 2 * GB) == pytest.approx(0.0033335, abs=1e-6)


@pytest.mark.parametrize(
    ("memory_mb", "threads", "files", "outputs"),
    [(3008, 2, 500, 2), (3008, 16, 0, 16), (3008, 16, 500, 12), (1024, 8, 500, 3), (512, 8, 500, 1), (128, 8, 0, 1)],
)
def test_as_many_outputs_are_written_at_once_as_memory_and_threads_allow_and_never_none(
    memory_mb: int, threads: int, files: int, outputs: int
) -> None:
    policy = PlacementPolicy(memory_bytes=memory_mb * MB, threads=threads)
    assert parallelism(policy, files_per_scan=files) == outputs


def test_every_engine_has_a_row_and_what_runs_here_has_a_cost() -> None:
    assert set(ENGINES) == set(Engine)
    assert [engine for engine in Engine if not engine.is_remote] == [HERE]
    assert ENGINES[HERE] is COST_HERE
