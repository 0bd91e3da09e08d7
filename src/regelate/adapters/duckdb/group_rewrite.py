"""One group under way through the rewrite engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regelate.core.planning.plan import FileGroup
from regelate.core.running.rewrite import NewDataFile, OutputTarget, RewriteResult
from regelate.core.running.slices import Slice
from regelate.core.table.table import FileScanTask


@dataclass
class GroupRewrite:
    """Its outputs so far, and the first fault that spoiled it.

    `here` is the group as it is read: the same, or with the paths of local copies.
    """

    group: FileGroup
    here: FileGroup | None = None
    arriving: threading.Lock = field(default_factory=threading.Lock)
    calls_left: int = 0
    added: list[NewDataFile] = field(default_factory=list)
    reserved: list[str] = field(default_factory=list)
    assemblies: list[Assembly] = field(default_factory=list)
    rows_deleted: int = 0
    fault: Exception | None = None

    def spoil(self, fault: Exception) -> None:
        self.fault = self.fault or fault

    @property
    def tasks(self) -> tuple[FileScanTask, ...]:
        """The tasks as they are read, as far as that is known."""
        return (self.here or self.group).tasks

    @property
    def result(self) -> RewriteResult:
        added = tuple(sorted(self.added, key=lambda f: self.reserved.index(f.path)))
        return RewriteResult(group=self.group, added=added, rows_deleted=self.rows_deleted)


@dataclass(kw_only=True)
class Assembly:
    """An output that is written in pieces, each a file of its own: the last of them to be ready puts all together."""

    whole: Slice
    target: OutputTarget
    pieces: Sequence[str]
    ready: set[int] = field(default_factory=set)
    is_spent: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def completes(self, number: int) -> bool:
        """Say whether a piece that is ready now is the last."""
        with self.lock:
            self.ready.add(number)
            return len(self.ready) == len(self.pieces)

    def discard(self) -> None:
        for piece in self.pieces:
            Path(piece).unlink(missing_ok=True)


Call = Callable[[], None]
Queued = tuple[GroupRewrite, Call]
