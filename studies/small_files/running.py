"""The order in which arms take turns, and how a run that was ended goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from studies.small_files.arms import Arm
from studies.small_files.logbook import Logbook, Measured, Mismatch
from studies.small_files.workload import Batch, batches

BLOCK = 2
"""Iterations of one arm before the next has its turn: what else the machine does meets all arms alike."""
WARM_UP = 2
"""Iterations of an arm that are not measured, when a process begins: Java is slow at first."""


class Tables(Protocol):
    def create(self, arm: Arm) -> None:
        """Make an arm's table anew."""

    def drop(self, arm: Arm) -> None: ...

    def go_on(self, arm: Arm, snapshot_id: int) -> None:
        """Put a table back to a snapshot of its history, and drop what came after it."""

    def iterate(self, arm: Arm, batch: Batch) -> Measured: ...

    def fingerprint(self, arm: Arm) -> tuple[int, ...]:
        """Return the rows of a table as numbers that no file layout changes."""


def turns(arms: Sequence[Arm], done: Mapping[str, int], iterations: int) -> Iterator[tuple[Arm, int]]:
    """Yield what is left, in blocks, and in every block from another arm on. `done`: iterations by arm's key."""
    for number, start in enumerate(range(0, iterations, BLOCK)):
        first = number % len(arms)
        for arm in (*arms[first:], *arms[:first]):
            for iteration in range(start + 1, min(start + BLOCK, iterations) + 1):
                if iteration > done.get(arm.key, 0):
                    yield arm, iteration


def run(
    tables: Tables,
    arms: Sequence[Arm],
    log: Logbook,
    iterations: int,
    *,
    watch: Callable[[Measured], None] = lambda measured: None,
) -> None:
    """Measure what the log does not have yet, up to so many iterations of every arm, and see that all hold the same.

    Errors: Mismatch where tables and log do not belong together, or arms that got the same rows do not hold them.
    """
    coming = {batch.iteration: batch for batch in batches(log.workload.rows, iterations, log.workload.seed)}
    done = {arm.key: len(log.of(arm.key)) for arm in arms}
    for arm in arms:
        known = log.of(arm.key)
        if known:
            tables.go_on(arm, known[-1].snapshot_id)
        else:
            tables.create(arm)
    for arm, iteration in turns(arms, done, iterations):
        measured = tables.iterate(arm, coming[iteration])
        log.add(measured)
        watch(measured)
    _compare(tables, [arm for arm in arms if len(log.of(arm.key)) == iterations])


def warm_up(tables: Tables, arms: Sequence[Arm], log: Logbook) -> None:
    """Let Java see each arm's work before the clock starts, on tables that are dropped."""
    for arm in arms:
        practice = replace(arm, key=f"warm_up_{arm.key}")
        tables.create(practice)
        for batch in batches(log.workload.rows, WARM_UP, log.workload.seed):
            tables.iterate(practice, batch)
        tables.drop(practice)


def _compare(tables: Tables, arms: Sequence[Arm]) -> None:
    found = {arm.key: tables.fingerprint(arm) for arm in arms}
    if len(set(found.values())) > 1:
        raise Mismatch(f"the arms got the same rows and do not hold the same: {found}")
