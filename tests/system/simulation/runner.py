"""Runs many seeds in several processes, shrinks what fails, and says what was covered."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from pyiceberg.manifest import clear_manifest_cache

from tests.system.simulation import remembered
from tests.system.simulation.mutations import MUTATIONS
from tests.system.simulation.photograph import Broken
from tests.system.simulation.script import LENGTH
from tests.system.simulation.world import World

CHUNK = 10
ENOUGH = 20
"""Failures, after which no more seeds are run."""
SHRUNK = 2
"""Of a chunk: to shrink a failure takes as long as to run fourteen seeds."""


@dataclass(frozen=True)
class Failure:
    """One seed that broke a law. `without`: actions that are not needed for it."""

    seed: int
    what: str
    without: tuple[int, ...] = ()

    def replay(self, mutation: str | None) -> str:
        more = f" --without {','.join(map(str, self.without))}" if self.without else ""
        more += f" --mutation {mutation}" if mutation else ""
        return f"PYTHONHASHSEED=0 .venv/bin/python -m tests.system.simulation --from {self.seed} --seeds 1{more}"


@dataclass
class Result:
    seeds: int = 0
    seconds: float = 0.0
    events: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class Told:
    """What one seed came to."""

    events: Counter[str]
    trace: tuple[str, ...]
    failure: Failure | None


def run_seed(seed: int, without: frozenset[int] = frozenset()) -> Told:
    clear_manifest_cache()  # PyIceberg keeps manifests by path, and a seed that is shrunk uses its paths again
    world, what = World(str(seed), without=without), ""
    try:
        world.run()
    except Broken as broken:
        what = str(broken)
    except Exception:  # noqa: BLE001  a fault of the simulator itself is shown like one of the service
        what = traceback.format_exc()
    failure = Failure(seed, what, tuple(sorted(without))) if what else None
    return Told(world.events, tuple(world.scheduler.trace), failure)


def shrink(failure: Failure) -> Failure:
    """Leave out one action after the other while the seed still fails."""
    best = failure
    for index in reversed(range(LENGTH)):
        best = run_seed(failure.seed, frozenset({*best.without, index})).failure or best
    return best


def run_chunk(job: tuple[Sequence[int], str | None, bool]) -> Result:
    seeds, mutation, stop_at_first = job
    logging.disable(logging.CRITICAL)
    result = Result()
    with remembered.schemas(), MUTATIONS[mutation].applied() if mutation else nullcontext():
        for seed in seeds:
            told = run_seed(seed)
            result.events += told.events
            result.seeds += 1
            if told.failure is not None:
                few = not stop_at_first and len(result.failures) < SHRUNK
                result.failures.append(shrink(told.failure) if few else told.failure)
                if stop_at_first:
                    break
    return result


def run_seeds(
    first: int, count: int, *, processes: int, mutation: str | None = None, stop_at_first: bool = False
) -> Result:
    """Run `count` seeds from `first` on. Seeds of a chunk share a process, and nothing else."""
    started = time.monotonic()
    total = Result()
    starts = range(first, first + count, CHUNK)
    jobs = ((range(n, min(n + CHUNK, first + count)), mutation, stop_at_first) for n in starts)
    for result in _results(run_chunk, jobs, processes):
        total.seeds += result.seeds
        total.events += result.events
        total.failures += result.failures
        if result.failures and (stop_at_first or len(total.failures) >= ENOUGH):
            break
    total.seconds = time.monotonic() - started
    return total


def _results(work: Callable[..., Result], jobs: Iterator[object], processes: int) -> Iterator[Result]:
    if processes == 1:
        yield from map(work, jobs)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(work, jobs)


def default_processes() -> int:
    return os.cpu_count() or 1
