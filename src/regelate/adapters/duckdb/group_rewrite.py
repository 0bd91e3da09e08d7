"""One group under way through the rewrite engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regelate.core.planning.lanes import Lane
from regelate.core.planning.plan import FileGroup
from regelate.core.running.parts import Spliced
from regelate.core.running.rewrite import NewDataFile, OutputTarget, RewriteResult
from regelate.core.running.slices import Slice
from regelate.core.table.schema import Column
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
    spliced: list[int] = field(default_factory=list)
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
        return RewriteResult(
            group=self.group, added=added, rows_deleted=self.rows_deleted, spliced_bytes=sum(self.spliced)
        )


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A slice that is recoded into a file of its own, for an output that has more in it. `columns`: those that PyArrow
    makes it of, to be of the shape of what is copied; None: it is written as any output is. `lane`: the dictionary lane
    that does it in the place of both."""

    slice: Slice
    path: str
    columns: tuple[Column, ...] | None = None
    lane: Lane | None = None


@dataclass(kw_only=True)
class Assembly:
    """An output that is joined from pieces, each a file of its own, and row groups of the inputs: the last of the
    pieces to be ready puts all together. `is_misfit`: rows of a piece cannot be of the shape that it must have;
    `lane_on_arrival`: tells the lane of all pieces once the files are here, where nobody could look before."""

    whole: Slice
    target: OutputTarget
    sources: Sequence[Piece | Spliced]
    spliced_bytes: int = 0
    ready: set[str] = field(default_factory=set)
    is_spent: bool = False
    is_misfit: bool = False
    lane_on_arrival: Callable[[], Lane | None] | None = None
    lane: Lane | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(source for source in self.sources if isinstance(source, Piece))

    def lane_of(self, piece: Piece) -> Lane | None:
        """Return the dictionary lane of a piece; None where a query writes it."""
        with self.lock:
            if self.lane_on_arrival is not None:
                self.lane, self.lane_on_arrival = self.lane_on_arrival(), None
        return piece.lane or self.lane

    def completes(self, piece: Piece | None) -> bool:
        """Say whether a piece that is ready now is the last; None where there is none to wait for."""
        with self.lock:
            self.ready |= {piece.path} if piece is not None else set()
            return len(self.ready) == len(self.pieces)

    def discard(self) -> None:
        for piece in self.pieces:
            Path(piece.path).unlink(missing_ok=True)


Call = Callable[[], None]
Queued = tuple[GroupRewrite, Call]
