"""Runs a program and looks at the memory and time of all its processes: Spark's JVM is a child of the Python."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lake import MB

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a program came to. `seconds`: from start to end; `peak_mb`: the largest sum of resident memory.

    `processor_seconds`: user and system, of all its processes.
    """

    returncode: int
    output: str
    errors: str
    seconds: float
    peak_mb: float
    processor_seconds: float


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Done:
    """Run a program to its end and sample the resident memory of its process tree; its output goes to files meanwhile.

    Pages that processes share are counted for each, and what is shorter than a sample is missed.
    """
    output, errors = folder / "stdout", folder / "stderr"
    started, peak, processor = time.perf_counter(), 0, 0.0
    reaped = _of_children()
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=dict(environment))
        try:
            while process.poll() is None:
                peak = max(peak, resident_bytes(process.pid))
                processor = max(processor, processor_seconds(process.pid))
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
        processor_seconds=max(processor, _of_children() - reaped),
    )


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and all that it started, now."""
    return sum(int(_read(number, "statm").split()[1]) * PAGE_BYTES for number in _tree(pid))


def processor_seconds(pid: int) -> float:
    """Return the user and system time of a process and all that it started, also of what has ended, until now.

    What ended without being waited for is not in it.
    """
    ticks = 0
    for number in _tree(pid):
        ticks += sum(int(field) for field in _read(number, "stat").rpartition(")")[2].split()[11:15])
    return ticks / TICKS


def _of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _tree(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        number = waiting.pop()
        try:
            for task in Path(f"/proc/{number}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it has ended
        yield number


def _read(pid: int, name: str) -> str:
    """Return a file of /proc; where the process has ended, one that counts nothing."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return "0 0"
