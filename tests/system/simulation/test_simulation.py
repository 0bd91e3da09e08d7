"""The simulator, as a test runs it: some hundred seeds that differ with every commit, and each law undone once.

It runs in a process of its own, whose sets of texts have one order (PYTHONHASHSEED), so that a seed says all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.system.simulation.rows import Row

ROOT = Path(__file__).parents[3]
SEEDS = 300


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.system.simulation", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_no_law_is_broken_in_three_hundred_simulated_days() -> None:
    first = os.environ.get("REGELATE_SIMULATION_FROM", "0")
    done = simulate("--from", first, "--seeds", str(SEEDS))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert f"{SEEDS} seeds" in done.stdout


def test_the_simulator_notices_every_law_that_is_undone() -> None:
    done = simulate("--mutations", "--known")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_a_seed_is_one_story() -> None:
    """The same steps in the same order, in another process too: else no failure could be replayed."""
    one, two = (simulate("--from", "7", "--seeds", "1", "--trace") for _ in range(2))
    assert one.stdout == two.stdout
    assert len(one.stdout.splitlines()) > 100


def test_a_column_that_a_rewrite_kept_is_expected_to_return_as_it_was() -> None:
    """Of two columns that the schema dropped meanwhile, one is in the rewritten file still."""
    was = Row(1, 7, 0, ((4, 40), (5, 50)))
    assert was.rewritten(Row(1, 7, 0, ((5, 50),)), {1, 2, 3}) == Row(1, 7, 0, ((5, 50),))
    assert was.rewritten(Row(1, 7, 0, ((5, 51),)), {1, 2, 3}) == Row(1, 7, 0, ((5, 50),))
    assert was.rewritten(Row(1, 7, 0), {1, 2, 3}) == Row(1, 7, 0)
    assert was.rewritten(Row(1, 7, 0), {1, 2, 3, 4}) == Row(1, 7, 0, ((4, 40),))
