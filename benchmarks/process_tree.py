"""Runs a program and looks at the memory of all its processes: Spark's JVM is a child of the Python."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lake import MB

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a program came to. `seconds`: from start to end; `peak_mb`: the largest sum of resident memory."""

    returncode: int
    output: str
    errors: str
    seconds: float
    peak_mb: float


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Done:
    """Run a program to its end and sample the resident memory of its process tree; its output goes to files meanwhile.

    Pages that processes share are counted for each, and what is shorter than a sample is missed.
    """
    output, errors = folder / "stdout", folder / "stderr"
    started, peak = time.perf_counter(), 0
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=dict(environment))
        try:
            while process.poll() is None:
                peak = max(peak, resident_bytes(process.pid))
                time.sleep(SAMPLE_SECONDS)
        finally:
            process.kill()
            process.wait()
    seconds = time.perf_counter() - started
    return Done(
        returncode=process.returncode,
        output=output.read_text(),
        errors=errors.read_text(),
        seconds=seconds,
        peak_mb=peak / MB,
    )


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and all that it started, now."""
    total, waiting = 0, [pid]
    while waiting:
        number = waiting.pop()
        try:
            total += int(Path(f"/proc/{number}/statm").read_text().split()[1]) * PAGE_BYTES
            for task in Path(f"/proc/{number}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it has ended
    return total
