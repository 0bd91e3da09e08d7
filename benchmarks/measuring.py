"""What every question is answered with: promises, a lake that is put back, runs that take turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lake import copy_lake

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent
Question = Callable[[Path, int, bool], "tuple[dict[str, Any], list[Promise]]"]
"""Takes a folder to work in, how many runs, and whether small sizes will do; returns measurements and promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One ratio that was promised, what came out, and between which measurements."""

    name: str
    ratio: float
    limit: float | None

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return "no limit promised"
        return "met" if self.ratio <= self.limit else "NOT MET"


class Lake:
    """A lake that is put back to what it was before every measurement."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._kept = home.with_name(home.name + ".kept")

    def keep(self) -> None:
        copy_lake(self.home, self._kept)

    def restore(self) -> None:
        copy_lake(self._kept, self.home)

    def measure(self, worker: str, *options: str) -> dict[str, Any]:
        self.restore()
        return self.ask(worker, *options)

    def ask(self, worker: str, *options: str) -> dict[str, Any]:
        """Measure a worker that leaves the lake as it is."""
        done = subprocess.run(
            self.command(worker, *options), capture_output=True, text=True, check=False, env=self.environment(worker)
        )
        if done.returncode:
            raise SystemExit(f"{worker} failed:\n{done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def command(self, worker: str, *options: str) -> list[str]:
        return [sys.executable, "-m", "benchmarks.workers", worker, str(self.home), *options]

    def environment(self, worker: str) -> dict[str, str]:
        pool = {"ARROW_DEFAULT_MEMORY_POOL": "system"} if worker.startswith("compact") else {}  # as ours have it
        return {**os.environ, **pool, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


def interleaved(runs: int, measurements: dict[str, Callable[[], dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Measure A B C A B C ...: a drift of the machine touches all alike."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in measurements}
    for number in range(runs):
        for name, measure in measurements.items():
            found[name].append(measure())
            seconds, peak = found[name][-1]["seconds"], found[name][-1].get("peak_mb")
            memory = "" if peak is None else f"{peak:8.0f} MB"
            print(f"  run {number + 1}/{runs} {name:24} {seconds:8.2f} s {memory}", flush=True)
    return found


def median(found: Sequence[dict[str, Any]], key: str) -> float:
    return statistics.median(f[key] for f in found)


def paired(left: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]], key: str) -> float:
    """Return the median of the ratios of neighbours in time."""
    return statistics.median(a[key] / b[key] for a, b in zip(left, right, strict=True))
