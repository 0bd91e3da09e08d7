"""What the outputs of a rewrite are made of: pieces to recode, and row groups of inputs that are copied."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regelate.adapters.duckdb.arrow_writer import needs_arrow
from regelate.adapters.duckdb.group_rewrite import Assembly, Piece
from regelate.adapters.duckdb.inputs import local_file
from regelate.core.planning.lanes import Lane, lane_of, takes_lane
from regelate.core.planning.plan import FileGroup
from regelate.core.planning.splicing import Fate, StoredFile, likely_fate
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.running.parts import Makeup, Source, Spliced, makeup
from regelate.core.running.rewrite import OutputTarget
from regelate.core.running.slices import Slice
from regelate.core.table.schema import Column
from regelate.ports.engine import Splicer


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How an output is made. `made`: of what, where some of it is copied; `lane`: that of all that
    is recoded, None where a query does it; `by_arrow`: the columns of each shape that PyArrow makes."""

    whole: Slice
    made: Makeup | None = None
    lane: Lane | None = None
    by_arrow: Mapping[Hashable, tuple[Column, ...]] = field(default_factory=dict)


class Makeups:
    """Looks at the footers of inputs that may be copied, and cuts the rest into pieces.

    `files_per_scan`: the most files of a piece; `lane_memory_bytes`: what the rows of a lane may take, decoded.
    """

    def __init__(
        self,
        splicer: Splicer,
        columns: Sequence[Column],
        folder: Path,
        files_per_scan: Callable[[], int],
        lane_memory_bytes: int,
    ) -> None:
        self._splicer = splicer
        self._columns = columns
        self._by_duckdb = [] if needs_arrow(columns) else [splicer.by_duckdb]
        self._folder = folder
        self._files_per_scan = files_per_scan
        self._lane_memory_bytes = lane_memory_bytes

    def may_splice(self, whole: Slice, policy: CompactionPolicy) -> bool:
        """Say, by the manifests alone, whether some of these files may be copied."""
        return any(self._is_likely(whole, index, policy) for index in range(len(whole.tasks)))

    def recipe(self, whole: Slice, policy: CompactionPolicy) -> Recipe:
        """Say what an output is made of and how, by the manifests and, where they are worth it, the footers."""
        lane_pays = takes_lane(whole.tasks, self._columns, policy)
        if not lane_pays and not self.may_splice(whole, policy):
            return Recipe(whole=whole)
        files = [
            self._look(task.data_file.path) if lane_pays or self._is_likely(whole, index, policy) else None
            for index, task in enumerate(whole.tasks)
        ]
        shapes = dict.fromkeys(file.shape for file in files if file is not None and file.doubt is None)
        by_arrow = {shape: columns for shape in shapes if (columns := self._splicer.by_arrow(shape)) is not None}
        lane = self._lane(whole, files, by_arrow) if lane_pays else None
        recodable = dict.fromkeys((*self._by_duckdb, *by_arrow))
        return Recipe(whole=whole, made=makeup(whole, files, policy, list(recodable)), lane=lane, by_arrow=by_arrow)

    def assembly(self, recipe: Recipe, target: OutputTarget, wanted: int) -> Assembly | None:
        """Return what an output is joined from; None where it is written as a whole.

        What is recoded is cut into `wanted` pieces, or as many as scans of so many files take.
        """
        made, whole = recipe.made, recipe.whole
        if made is None:
            pieces = self._pieces(whole, wanted)
            if len(pieces) == 1:
                return None
            return Assembly(whole=whole, target=target, sources=[self._piece(p, None, recipe.lane) for p in pieces])
        columns = None if made.shape in self._by_duckdb else recipe.by_arrow.get(made.shape)
        sources: list[Piece | Spliced] = []
        for part in made.parts:
            if isinstance(part, Spliced):
                sources.append(part)
            else:
                sources += [self._piece(piece, columns, recipe.lane) for piece in self._pieces(part, wanted)]
        return Assembly(whole=whole, target=target, sources=sources, spliced_bytes=made.spliced_bytes)

    def _lane(
        self,
        whole: Slice,
        files: Sequence[StoredFile | None],
        by_arrow: Mapping[Hashable, tuple[Column, ...]],
    ) -> Lane | None:
        """Return the lane of all of these files; None where they are not of one shape that PyArrow writes."""
        sound = {
            task.data_file.path: file
            for task, file in zip(whole.tasks, files, strict=True)
            if file is not None and file.doubt is None
        }
        shapes = {file.shape for file in sound.values()}
        every = {task.data_file.path for task in whole.tasks}
        if sound.keys() != every or len(shapes) != 1 or not shapes <= by_arrow.keys():
            return None
        return lane_of(sound, by_arrow[shapes.pop()], self._lane_memory_bytes)

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

    def _piece(self, piece: Slice, columns: tuple[Column, ...] | None, lane: Lane | None) -> Piece:
        path = self._folder / f"piece-{uuid.uuid4().hex}.parquet"
        return Piece(slice=piece, path=str(path), columns=columns, lane=lane)


def sources_of(assembly: Assembly, here: FileGroup) -> Iterator[Source]:
    """Yield the files that an output is joined from, as they lie on this machine."""
    for source in assembly.sources:
        if isinstance(source, Piece):
            yield Source(path=source.path)
        else:
            path = here.tasks[assembly.whole.first_task + source.task].data_file.path
            yield Source(path=str(local_file(path) or path), numbers=source.numbers)
