"""A rewrite that looks up between its groups stops when it is told to, and hands over what is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from regelate.core.policy.policy import GB, CompactionPolicy, PlacementPolicy, Verify
from regelate.core.running.batches import usable_seconds
from regelate.core.running.placement import PlacementReason
from regelate.errors import Conflict, ResourceExhausted
from regelate.operations.compacting.compact import CompactCommand, Status, compact
from regelate.operations.compacting.partial_progress import AT_ONCE, PartialProgress, Stop
from tests.unit.operations.fakes import CountingClock, MemoryEngine, MemoryTable, tools_for

POLICY = CompactionPolicy(
    target_file_size_bytes=1000, min_file_size_bytes=750, max_file_size_bytes=1800, min_input_files=2
)
GROUPS = 5
OUTPUT = "outputs/"


class Watcher:
    """Tells what it was told, and answers from a list."""

    def __init__(self, *answers: Stop | Exception | None) -> None:
        self.answers = list(answers)
        self.told: list[tuple[int, int]] = []

    def passed(self, done: int, total: int) -> Stop | None:
        self.told.append((done, total))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def table() -> MemoryTable:
    made = MemoryTable()
    for number in range(GROUPS):
        for row in range(3):
            made.append(f"p{number}", [10 * number + row])
    return made


def run(table: MemoryTable, partial_progress: PartialProgress, **tools: Any) -> Any:
    command = CompactCommand(policy=POLICY, run_id="run", partial_progress=replace(partial_progress, batch_seconds=0))
    return compact(tools_for(table, **tools), command)


def outputs(table: MemoryTable) -> Sequence[str]:
    return [path for path in table.storage if path.startswith(OUTPUT)]


def test_a_run_that_nobody_watches_looks_up_nowhere(table: MemoryTable) -> None:
    assert not AT_ONCE.looks_up
    assert compact(tools_for(table), CompactCommand(policy=POLICY, run_id="run")).status is Status.COMPLETED


def test_the_watcher_hears_of_every_group_and_once_more_before_the_commit(table: MemoryTable) -> None:
    watcher = Watcher()
    assert run(table, PartialProgress(watcher=watcher)).status is Status.COMPLETED
    assert watcher.told == [(done, GROUPS) for done in range(GROUPS + 1)]


def test_a_worker_that_stops_commits_what_is_done(table: MemoryTable) -> None:
    before = table.rows()
    outcome = run(table, PartialProgress(watcher=Watcher(None, None, Stop.STOPPING)))
    assert (outcome.status, outcome.reason, outcome.stopped) == (Status.PARTIAL, "STOPPING", Stop.STOPPING)
    assert (outcome.stats.groups, outcome.stats.groups_deferred) == (2, 3)
    assert table.rows() == before


def test_one_that_stops_before_the_first_group_has_done_nothing(table: MemoryTable) -> None:
    outcome = run(table, PartialProgress(watcher=Watcher(Stop.STOPPING)))
    assert (outcome.status, outcome.compacted, outputs(table), len(table.log)) == (Status.PARTIAL, False, [], 15)


@pytest.mark.parametrize("groups", [0, 2, GROUPS])
def test_what_is_cancelled_commits_nothing_and_leaves_nothing(table: MemoryTable, groups: int) -> None:
    """Also when the last group is done already: nothing is committed before the watcher was asked once more."""
    outcome = run(table, PartialProgress(watcher=Watcher(*[None] * groups, Stop.CANCELLED)))
    assert (outcome.status, outcome.compacted, outputs(table), len(table.log)) == (Status.CANCELLED, False, [], 15)


def test_a_worker_that_lost_its_lease_deletes_its_outputs(table: MemoryTable) -> None:
    lost = Conflict("LEASE_LOST", "another one has it")
    with pytest.raises(Conflict, match="LEASE_LOST"):
        run(table, PartialProgress(watcher=Watcher(None, None, lost)))
    assert (outputs(table), len(table.log)) == ([], 15)


def test_a_run_in_parts_keeps_to_the_bytes_of_its_process(table: MemoryTable) -> None:
    small = PlacementPolicy(memory_bytes=4 * GB, threads=2, max_in_process_bytes=70)  # a group has 30
    outcome = run(table, PartialProgress(watcher=Watcher(), enabled=True), placement=small)
    assert (outcome.stats.groups, outcome.stopped) == (2, Stop.TIME_BUDGET)


def test_a_group_that_is_too_large_for_any_part_is_refused(table: MemoryTable) -> None:
    tiny = PlacementPolicy(memory_bytes=4 * GB, threads=2, max_in_process_bytes=20)
    with pytest.raises(ResourceExhausted) as caught:
        run(table, PartialProgress(watcher=Watcher(), enabled=True), placement=tiny)
    assert caught.value.code == PlacementReason.TOO_LARGE.value
    assert len(table.log) == 15


def test_a_commit_is_not_patient_beyond_the_end_of_its_process() -> None:
    partial_progress = AT_ONCE.within(100, now=1000.0)
    assert (partial_progress.until, partial_progress.ends_at) == (1090.0, 1100.0)
    assert [partial_progress.patience_seconds(60, now) for now in (1000.0, 1090.0, 1200.0)] == [50.0, 5.0, 0.0]
    assert AT_ONCE.patience_seconds(60, 0.0) == 60


class SlowEngine(MemoryEngine):
    """Takes so many seconds of its clock for each group and for each reading back, however small they are."""

    def __init__(self, table: MemoryTable, clock: CountingClock, seconds: float) -> None:
        super().__init__(table)
        self._clock = clock
        self._seconds = seconds

    def rewrite(self, groups: Sequence[Any], *arguments: Any, **more: Any) -> Any:
        self._clock.sleep(self._seconds * len(groups))
        return super().rewrite(groups, *arguments, **more)

    def fingerprints(self, result: Any) -> Any:
        self._clock.sleep(self._seconds)
        return super().fingerprints(result)


@pytest.mark.parametrize("verify", Verify)
@pytest.mark.parametrize(("per_group", "allowed"), [(0.02, 4), (0.1, 4), (0.4, 4), (0.1, 10), (0.5, 60)])
def test_many_tiny_groups_keep_to_the_time_however_wrong_the_estimate_is(
    verify: Verify, per_group: float, allowed: float
) -> None:
    """Each is reckoned at a few milliseconds: all of them would fit into the first batch."""
    table, clock = MemoryTable(), CountingClock()
    for number in range(600):
        table.append(f"p{number}", [number])
        table.append(f"p{number}", [1000 + number])
    command = CompactCommand(
        policy=POLICY,
        run_id="run",
        verify=verify,
        partial_progress=replace(AT_ONCE, enabled=True).within(allowed, now=0.0),
    )
    outcome = compact(tools_for(table, clock=clock, engine=SlowEngine(table, clock, per_group)), command)
    assert (outcome.status, outcome.stopped) == (Status.PARTIAL, Stop.TIME_BUDGET)
    assert clock.seconds <= usable_seconds(allowed) + 1e-6
    busy = outcome.stats.groups * per_group * (1 if verify is Verify.FAST else 2)
    assert busy >= usable_seconds(allowed) / 2  # and makes use of it


def test_what_the_plan_took_is_kept_for_the_commit_twice() -> None:
    partial_progress = AT_ONCE.within(20, now=0.0)
    assert [partial_progress.after_plan(seconds, now=4.0).until for seconds in (0.1, 4.0, 12.0)] == [18.0, 12.0, -4.0]
    assert partial_progress.after_plan(4.0, now=4.0, read_again=True).until == 8.0
    assert AT_ONCE.after_plan(4.0, now=4.0, read_again=True) == AT_ONCE
