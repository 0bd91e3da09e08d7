"""Runs the simulator: `python -m tests.system.simulation --seeds 1000`. See docs/reliability.md."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import nullcontext

from tests.system.simulation import coverage
from tests.system.simulation.mutations import KNOWN_SEEDS, MUTATIONS
from tests.system.simulation.runner import Failure, Result, default_processes, run_chunk, run_seed, run_seeds, shrink

SHOWN_STEPS = 60
MUTATION_SEEDS = 1_000


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of texts have an order of their own in every process
        os.execve(sys.executable, [sys.executable, "-m", "tests.system.simulation", *sys.argv[1:]], _environment())
    options = _options()
    if options.mutations:
        return _show_mutations(options)
    if options.without is not None or options.seeds == 1:
        return _show_one(options)
    result = run_seeds(options.first, options.seeds, processes=options.processes, mutation=options.mutation)
    _show(result)
    for failure in result.failures:
        _show_failure(failure, options.mutation)
    missed = coverage.uncovered(result.events) if result.seeds >= coverage.SEEDS_TO_COVER else ()
    if missed:
        print(f"\nnever met, or without effect: {', '.join(missed)}")
    return 1 if result.failures or missed else 0


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.system.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=None, help="how many (300; 1000 a mutation)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=default_processes())
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="undo one law first")
    parser.add_argument("--mutations", action="store_true", help="undo each law, and say which seed finds it")
    parser.add_argument("--known", action="store_true", help="with --mutations: begin with a seed known to notice")
    parser.add_argument("--trace", action="store_true", help="print every step of one seed")
    parser.add_argument("--without", help="replay one seed without these actions, e.g. 3,5")
    options = parser.parse_args()
    options.seeds = options.seeds or (MUTATION_SEEDS if options.mutations else 300)
    return options


def _show(result: Result) -> None:
    rate = result.seeds / result.seconds if result.seconds else 0.0
    print(f"{result.seeds} seeds in {result.seconds:.0f} s ({rate:.1f} a second), {len(result.failures)} failed")
    print(coverage.table(result.events))
    for event, count in coverage.others(result.events).items():
        print(f"{count:10,} {event}")


def _show_one(options: argparse.Namespace) -> int:
    without = frozenset(int(n) for n in (options.without or "").split(",") if n)
    logging.disable(logging.CRITICAL)
    with MUTATIONS[options.mutation].applied() if options.mutation else nullcontext():
        told = run_seed(options.first, without)
        if told.failure is not None and not without:
            told = run_seed(options.first, frozenset(shrink(told.failure).without))
    if options.trace or told.failure is not None:
        print("\n".join(told.trace if options.trace else told.trace[-SHOWN_STEPS:]))
    if told.failure is not None:
        _show_failure(told.failure, options.mutation)
        return 1
    _show(Result(seeds=1, seconds=1, events=told.events))
    return 0


def _show_failure(failure: Failure, mutation: str | None) -> None:
    print(f"\nseed {failure.seed} failed: {failure.what}")
    print(f"    replay: {failure.replay(mutation)}")


def _show_mutations(options: argparse.Namespace) -> int:
    print("| law | undone | noticed by seed | as |\n| --- | --- | --- | --- |")
    missed = 0
    for name, mutation in MUTATIONS.items():
        failure = _noticed(name, KNOWN_SEEDS.get(name, 0), options)
        missed += failure is None
        seen = ("**none**", "") if failure is None else (str(failure.seed), failure.what.splitlines()[-1][:90])
        print(f"| {mutation.law} | {mutation.what} (`{name}`) | {' | '.join(seen)} |", flush=True)
    print(f"\n{len(MUTATIONS)} mutations, {missed} not noticed within {options.seeds} seeds")
    return 1 if missed else 0


def _noticed(name: str, known_seed: int, options: argparse.Namespace) -> Failure | None:
    """Return the first failure, from seed 0 on or with a seed that is known to notice."""
    if options.known:
        found = run_chunk(([known_seed], name, True))
        if found.failures:
            return found.failures[0]
    result = run_seeds(0, options.seeds, processes=options.processes, mutation=name, stop_at_first=True)
    return min(result.failures, key=lambda f: f.seed) if result.failures else None


if __name__ == "__main__":
    sys.exit(main())
