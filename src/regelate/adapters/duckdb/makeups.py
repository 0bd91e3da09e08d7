"""What the outputs of a rewrite are made of: pieces to recode, and row groups of inputs that are copied."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from regelate.adapters.duckdb.arrow_writer import needs_arrow
from regelate.adapters.duckdb.group_rewrite import Assembly, Piece
from regelate.adapters.duckdb.inputs import local_file
from regelate.core.planning.plan import FileGroup
from regelate.core.planning.splicing import Fate, StoredFile, likely_fate
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.running.parts import Makeup, Source, Spliced, makeup
from regelate.core.running.rewrite import OutputTarget
from regelate.core.running.slices import Slice
from regelate.core.table.schema import Column
from regelate.ports.engine import Splicer


class Makeups:
    """Looks at the footers of inputs that may be copied, and cuts the rest into pieces.

    `files_per_scan`: the most files of a piece.
    """

    def __init__(
        self, splicer: Splicer, columns: Sequence[Column], folder: Path, files_per_scan: Callable[[], int]
    ) -> None:
        self._splicer = splicer
        self._by_duckdb = [] if needs_arrow(columns) else [splicer.by_duckdb]
        self._folder = folder
        self._files_per_scan = files_per_scan

    def may_splice(self, whole: Slice, policy: CompactionPolicy) -> bool:
        """Say, by the manifests alone, whether a footer of these files is worth a look."""
        return any(self._is_likely(whole, index, policy) for index in range(len(whole.tasks)))

    def assembly(self, whole: Slice, target: OutputTarget, policy: CompactionPolicy, wanted: int) -> Assembly | None:
        """Return what an output is joined from; None where it is written as a whole.

        What is recoded is cut into `wanted` pieces, or as many as scans of so many files take.
        """
        made = self._makeup(whole, policy) if self.may_splice(whole, policy) else None
        if made is None:
            pieces = self._pieces(whole, wanted)
            if len(pieces) == 1:
                return None
            return Assembly(whole=whole, target=target, sources=[self._piece(piece) for piece in pieces])
        columns = None if made.shape in self._by_duckdb else self._splicer.by_arrow(made.shape)
        sources: list[Piece | Spliced] = []
        for part in made.parts:
            if isinstance(part, Spliced):
                sources.append(part)
            else:
                sources += [self._piece(piece, columns) for piece in self._pieces(part, wanted)]
        return Assembly(whole=whole, target=target, sources=sources, spliced_bytes=made.spliced_bytes)

    def _makeup(self, whole: Slice, policy: CompactionPolicy) -> Makeup | None:
        files = [
            self._look(task.data_file.path) if self._is_likely(whole, index, policy) else None
            for index, task in enumerate(whole.tasks)
        ]
        shapes = dict.fromkeys(file.shape for file in files if file is not None and file.doubt is None)
        by_arrow = [shape for shape in shapes if shape not in self._by_duckdb and self._splicer.by_arrow(shape)]
        return makeup(whole, files, policy, [*self._by_duckdb, *by_arrow])

    def _is_likely(self, whole: Slice, index: int, policy: CompactionPolicy) -> bool:
        return likely_fate(whole.tasks[index], policy, whole.size_ratio(index)) is Fate.SPLICED

    def _look(self, path: str) -> StoredFile | None:
        local = local_file(path)
        return None if local is None else self._splicer.look(str(local))

    def _pieces(self, part: Slice, wanted: int) -> tuple[Slice, ...]:
        """Return what one part is written in: itself, or pieces that keep all workers busy and no scan too large.

        Where files have deletes nobody knows how many rows a piece will have.
        """
        if any(task.deletes for task in part.tasks):
            return (part,)
        return part.pieces(self._files_per_scan(), wanted)

    def _piece(self, piece: Slice, columns: tuple[Column, ...] | None = None) -> Piece:
        path = self._folder / f"piece-{uuid.uuid4().hex}.parquet"
        return Piece(slice=piece, path=str(path), columns=columns)


def sources_of(assembly: Assembly, here: FileGroup) -> Iterator[Source]:
    """Yield the files that an output is joined from, as they lie on this machine."""
    for source in assembly.sources:
        if isinstance(source, Piece):
            yield Source(path=source.path)
        else:
            path = here.tasks[assembly.whole.first_task + source.task].data_file.path
            yield Source(path=str(local_file(path) or path), numbers=source.numbers)
