"""What was measured, a JSON line for each iteration of an arm: what a run that was ended goes on from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


class Mismatch(Exception):
    """A log that cannot be gone on with; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What makes two runs comparable, and what a run that goes on must have in common with its beginning."""

    rows: int
    tasks: int
    seed: int
    merge_on_read: bool
    engine: str

    @property
    def name(self) -> str:
        mode = "merge-on-read" if self.merge_on_read else "copy-on-write"
        return f"{self.rows}-rows-{self.tasks}-tasks-{mode}-{self.engine}-{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One process that measured: where, with what, and since when (ISO 8601)."""

    began: str
    machine: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One iteration of one arm. Files, row groups, snapshots and manifests: at its end; bytes and rows: within it.

    Processor seconds are those of Spark and of the process with our service: another program's work is not in them.
    `bytes_rewritten` are those of files that left the table, `rows_in` the rows of the batch.
    """

    arm: str
    iteration: int
    merge_seconds: float
    compaction_seconds: float
    query_seconds: float
    merge_processor_seconds: float
    compaction_processor_seconds: float
    query_processor_seconds: float
    compactions: int
    files_after_merge: int
    data_files: int
    small_files: int
    delete_files: int
    row_groups: int
    bytes_written: int
    bytes_rewritten: int
    rows_in: int
    rows_written: int
    snapshots: int
    manifests: int
    snapshot_id: int
    load: float


class Logbook:
    """The log of one run. A line is on the disk before the next iteration begins; half a line at the end is dropped."""

    def __init__(self, path: Path, workload: Workload) -> None:
        """Read the log of a workload, where there is one. Errors: Mismatch for one of another, or with a gap."""
        self.workload = workload
        self.measured: list[Measured] = []
        self.sessions: list[Session] = []
        self._path = path
        for line in _whole_lines(path):
            if "workload" in line:
                self.sessions.append(_session(path, line, workload))
            else:
                self.measured.append(Measured(**line))
        _check(self.measured)

    def begin(self, session: Session) -> None:
        """Say where and when the next iterations are measured."""
        self.sessions.append(session)
        self._append({"workload": asdict(self.workload), **asdict(session)})

    def add(self, measured: Measured) -> None:
        self.measured.append(measured)
        self._append(asdict(measured))

    def of(self, arm: str) -> Sequence[Measured]:
        return [one for one in self.measured if one.arm == arm]

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, and cut off what a writer that was ended left of one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def _session(path: Path, line: Mapping[str, Any], workload: Workload) -> Session:
    known = Workload(**line["workload"])
    if known != workload:
        raise Mismatch(f"{path} is of another workload ({known.name}): choose another --home")
    return Session(began=line["began"], machine=line["machine"])


def _check(measured: Iterable[Measured]) -> None:
    """Refuse a log in which an arm has an iteration twice, or not. Errors: Mismatch."""
    last: dict[str, int] = {}
    for one in measured:
        if one.iteration != last.get(one.arm, 0) + 1:
            raise Mismatch(f"the log tells of iteration {one.iteration} of {one.arm} after {last.get(one.arm, 0)}")
        last[one.arm] = one.iteration
