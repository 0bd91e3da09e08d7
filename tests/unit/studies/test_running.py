"""Arms that take turns, and runs that are ended and go on, over tables that are a list of batches each."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from studies.small_files.arms import ARMS, Arm
from studies.small_files.logbook import Logbook, Measured, Mismatch, Session, Workload
from studies.small_files.running import BLOCK, run, turns
from studies.small_files.workload import Batch, batches

WORKLOAD = Workload(rows=100, tasks=2, seed=3, merge_on_read=False, engine="regelate")
SESSION = Session(began="2026-01-01T00:00:00+00:00", machine={"cores": "2"})
TWO = ARMS[:2]


class Killed(Exception):
    """Stands for the end of the process."""


class Tables:
    """Tables in memory that outlive a run, as a lake does: each is the snapshots it had, and which one is its head.

    `ends_after`: how many commits land until the process is ended, before the last one is written down.
    """

    def __init__(self) -> None:
        self.snapshots: dict[str, dict[int, tuple[Batch, ...]]] = {}
        self.heads: dict[str, int] = {}
        self.ends_after: int | None = None
        self._numbers = iter(range(100, 10_000))

    def create(self, arm: Arm) -> None:
        self.snapshots[arm.key], self.heads[arm.key] = {0: ()}, 0

    def drop(self, arm: Arm) -> None:
        del self.snapshots[arm.key], self.heads[arm.key]

    def go_on(self, arm: Arm, snapshot_id: int) -> None:
        if snapshot_id not in self.snapshots.get(arm.key, {}):
            raise Mismatch("not of this lake")
        self.heads[arm.key] = snapshot_id

    def iterate(self, arm: Arm, batch: Batch) -> Measured:
        snapshot = next(self._numbers)
        self.snapshots[arm.key][snapshot] = (*self.held(arm), batch)
        self.heads[arm.key] = snapshot
        if self.ends_after is not None:
            self.ends_after -= 1
            if not self.ends_after:
                raise Killed
        return measured(arm.key, batch.iteration, snapshot_id=snapshot)

    def fingerprint(self, arm: Arm) -> tuple[int, ...]:
        return tuple(batch.last for batch in self.held(arm))

    def held(self, arm: Arm) -> tuple[Batch, ...]:
        return self.snapshots[arm.key][self.heads[arm.key]]


def measured(arm: str, iteration: int, **given: float) -> Measured:
    numbers = {name: 1 for name in Measured.__dataclass_fields__ if name not in ("arm", "iteration")}
    return Measured(arm=arm, iteration=iteration, **{**numbers, **given})  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def opened(path: Path) -> Logbook:
    log = Logbook(path, WORKLOAD)
    log.begin(SESSION)
    return log


def test_every_arm_gets_every_iteration_once_and_in_order() -> None:
    found = list(turns(ARMS, {}, 23))
    for arm in ARMS:
        assert [iteration for one, iteration in found if one is arm] == list(range(1, 24))
    assert len(found) == 23 * len(ARMS)


def test_no_arm_is_more_than_one_block_ahead_of_another() -> None:
    done = Counter({arm.key: 0 for arm in ARMS})
    for arm, _ in turns(ARMS, {}, 4 * BLOCK):
        done[arm.key] += 1
        assert max(done.values()) - min(done.values()) <= BLOCK


def test_every_arm_is_the_first_of_a_block_as_often_as_the_others() -> None:
    order = [arm.key for arm, _ in groupby(turns(ARMS, {}, len(ARMS) * BLOCK), key=lambda turn: turn[0])]
    assert Counter(order[:: len(ARMS)]) == {arm.key: 1 for arm in ARMS}


@pytest.mark.parametrize("commits", range(1, 2 * 7 + 1))
def test_a_run_that_is_killed_after_any_commit_ends_as_one_that_is_not(path: Path, commits: int) -> None:
    tables = Tables()
    tables.ends_after = commits
    with pytest.raises(Killed):
        run(tables, TWO, opened(path), 7)
    tables.ends_after = None
    log = opened(path)
    assert len(log.measured) == commits - 1
    run(tables, TWO, log, 7)
    whole = tuple(batches(WORKLOAD.rows, 7, WORKLOAD.seed))
    assert {arm.key: tables.held(arm) for arm in TWO} == {arm.key: whole for arm in TWO}
    assert [one.iteration for one in Logbook(path, WORKLOAD).of("none")] == list(range(1, 8))


def test_half_a_line_at_the_end_of_a_log_is_measured_again(path: Path) -> None:
    tables = Tables()
    run(tables, TWO, opened(path), 3)
    kept = path.read_bytes()
    path.write_bytes(kept[:-20])
    log = opened(path)
    assert len(log.measured) == 2 * 3 - 1
    run(tables, TWO, log, 3)
    assert [json.loads(line).get("iteration") for line in path.read_bytes().splitlines()].count(3) == 2


def test_a_short_run_goes_on_to_a_longer_one(path: Path) -> None:
    tables = Tables()
    run(tables, TWO, opened(path), 4)
    first = list(Logbook(path, WORKLOAD).measured)
    run(tables, TWO, opened(path), 9)
    log = Logbook(path, WORKLOAD)
    assert log.measured[: len(first)] == first
    assert {arm.key: len(log.of(arm.key)) for arm in TWO} == {arm.key: 9 for arm in TWO}


def test_a_log_of_another_lake_is_refused(path: Path) -> None:
    run(Tables(), TWO, opened(path), 2)
    with pytest.raises(Mismatch, match="not of this lake"):
        run(Tables(), TWO, opened(path), 4)


def test_a_log_of_another_workload_is_refused(path: Path) -> None:
    opened(path)
    with pytest.raises(Mismatch, match="another workload"):
        Logbook(path, replace(WORKLOAD, rows=200))


def test_a_log_that_misses_an_iteration_is_refused(path: Path) -> None:
    log = opened(path)
    log.add(measured("none", 1))
    log.add(measured("none", 3))
    with pytest.raises(Mismatch, match="iteration 3"):
        Logbook(path, WORKLOAD)


def test_arms_that_end_with_other_rows_fail_the_run(path: Path) -> None:
    tables = Tables()
    run(tables, TWO, opened(path), 2)
    tables.snapshots["none"][tables.heads["none"]] = ()
    with pytest.raises(Mismatch, match="do not hold the same"):
        run(tables, TWO, opened(path), 2)
