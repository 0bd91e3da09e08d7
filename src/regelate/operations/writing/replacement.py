"""What a WRITE adds and removes on one head: its own rows, what an upsert or overwrite replaces, and small neighbours.

Neighbours are a favour to the table, and the request never pays for it: where they cannot be read, or somebody else
changed them meanwhile, or time is up, it goes on without them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from regelate.core.planning.neighbours import Place, taken_along
from regelate.core.policy.write_options import OptimizedWrite
from regelate.core.requests import WriteMode
from regelate.core.running.conflict import still_stands
from regelate.core.running.merging import Merge, merges, small_ends
from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.head import Head
from regelate.core.table.table import FileScanTask, Partition
from regelate.errors import Conflict, RegelateError, Unsupported
from regelate.operations.writing.command import Incoming, WriteCommand, WriteTools
from regelate.ports.engine import KeyRewriter

log = logging.getLogger(__name__)

TAKING_SECONDS = 5.0
"""From the beginning of a write on; later no file is taken along, so that races are not lost for it again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A merge that was carried out: the live files in it become these."""

    merge: Merge
    files: tuple[NewDataFile, ...]


@dataclass
class Replacement:
    """What a write replaces on one head. That of an upsert or overwrite is made anew when the head has moved.

    Also by a commit without a snapshot: a column that came back with the schema is not in what was carried over.
    `own`: the files of its own rows; `overwritten`: files that go without being read; `made`: files that are right on
    this head only, its own among them where they were partial.
    """

    head: Head
    own: tuple[NewDataFile, ...] = ()
    overwritten: tuple[FileScanTask, ...] = ()
    merged: tuple[Merged, ...] = ()
    made: tuple[NewDataFile, ...] = ()

    def is_for(self, head: Head) -> bool:
        return self.head.metadata_location == head.metadata_location

    @property
    def removed(self) -> tuple[FileScanTask, ...]:
        return (*self.overwritten, *(task for m in self.merged for task in m.merge.replaced))

    @property
    def added(self) -> tuple[NewDataFile, ...]:
        within = {f.path for m in self.merged for f in m.merge.fresh}
        return (*(f for f in self.own if f.path not in within), *(f for m in self.merged for f in m.files))

    @property
    def taken(self) -> tuple[FileScanTask, ...]:
        """The neighbours among the files that it removes."""
        return tuple(task for m in self.merged for task in m.merge.whole)


@dataclass
class Neighbours:
    """Takes small files of the written partitions along, until `deadline` (of the clock's monotonic seconds)."""

    tools: WriteTools
    optimized: OptimizedWrite | None
    deadline: float
    fault: str | None = None
    """The code of the first error because of which some were left alone."""

    def joined(self, planned: Sequence[Merge], own: Sequence[NewDataFile], spec_id: int) -> tuple[Merge, ...]:
        """Return the merges with the neighbours that they take along, and further ones of the request's own rows."""
        if self.optimized is None or self._is_over():
            return tuple(planned)
        target = self.tools.rows.target_bytes
        by_partition = {m.partition: m for m in planned if m.partition.spec_id == spec_id}
        ends = small_ends(own, target)
        for partition, end in ends.items():
            by_partition.setdefault(partition, Merge(partition=partition, fresh=(end,)))
        try:
            live = self.tools.committer.small_files(by_partition.keys(), target)
            taken = self._chosen(tuple(by_partition.values()), ends, live, spec_id)
        except Exception as error:  # noqa: BLE001  what the request is about goes on
            self._left_alone(error)
            return tuple(planned)
        joining = (
            replace(by_partition[p], whole=files, fresh=(ends[p],) if p in ends else by_partition[p].fresh)
            for p, files in taken.items()
        )
        return (*(m for m in planned if m.partition not in taken), *joining)

    def _chosen(
        self,
        planned: Sequence[Merge],
        ends: Mapping[Partition, NewDataFile],
        live: Sequence[FileScanTask],
        spec_id: int,
    ) -> dict[Partition, tuple[FileScanTask, ...]]:
        assert self.optimized is not None
        others: dict[Partition, list[FileScanTask]] = {}
        touched = {t.data_file.path for m in planned for t in m.replaced}
        for task in live:
            if task.data_file.path not in touched:
                others.setdefault(task.data_file.partition, []).append(task)
        places = [
            Place(
                partition=m.partition,
                own_bytes=m.size_bytes + (ends[m.partition].size_bytes if m.partition in ends and not m.fresh else 0),
                others=tuple(others.get(m.partition, ())),
            )
            for m in planned
        ]
        target = self.tools.rows.target_bytes
        return taken_along(places, spec_id=spec_id, target_bytes=target, max_bytes=self.optimized.max_bytes)

    def _is_over(self) -> bool:
        return self.tools.clock.monotonic() >= self.deadline

    def merged(
        self, rewriter: KeyRewriter, planned: Sequence[Merge], rows: object, key: Sequence[str]
    ) -> tuple[Merged, ...]:
        """Carry merges out: those with neighbours one by one, and without them where they fail or time is up.

        What fails without neighbours is raised, and no file of any merge is left.
        """
        done: list[Merged] = []
        target = self.tools.rows.target_bytes
        plain = [m for m in planned if not m.whole]
        try:
            for merge in (m for m in planned if m.whole):
                try:
                    if not self._is_over():
                        (files,) = rewriter.merge([merge], rows, key, target_bytes=target)
                        done.append(Merged(merge=merge, files=files))
                        continue
                except Exception as error:  # noqa: BLE001  without them it may go on
                    self._left_alone(error)
                if merge.touched:
                    plain.append(replace(merge, whole=()))
            if plain:
                made = rewriter.merge(plain, rows, key, target_bytes=target)
                done += [Merged(merge=m, files=files) for m, files in zip(plain, made, strict=True)]
        except BaseException:
            with suppress(OSError):  # the fault to report is the first one; what stays behind is an orphan
                self.tools.rows.discard([f.path for m in done for f in m.files])
            raise
        return tuple(done)

    def _left_alone(self, error: Exception) -> None:
        log.warning("small neighbours of what was written were left alone: %s", error)
        self.fault = self.fault or (error.code if isinstance(error, RegelateError) else "INTERNAL_ERROR")


def replacement(
    tools: WriteTools, command: WriteCommand, incoming: Incoming, neighbours: Neighbours, head: Head
) -> Replacement:
    """Make what an upsert or overwrite replaces on a head, or what a first attempt of an append takes along."""
    if command.mode is WriteMode.UPSERT:
        return _replaced_rows(tools, command, incoming, neighbours, head)
    if command.mode is WriteMode.OVERWRITE_PARTITIONS:
        return _replaced_partitions(tools, incoming, head)
    planned = neighbours.joined((), _mergeable(tools, incoming.added, head), incoming.added[0].partition.spec_id)
    merged = neighbours.merged(tools.keys(), planned, (), ()) if planned else ()
    made = tuple(f for m in merged for f in m.files)
    return Replacement(head, own=incoming.added, merged=merged, made=made)


def standing(tools: WriteTools, appended: Replacement, head: Head) -> Replacement:
    """Return what an append may still replace on another head: what of its neighbours nobody has changed since."""
    if not appended.merged or not head.reads_like(appended.head):
        return replace(appended, head=head, merged=(), made=())
    partitions = {m.merge.partition for m in appended.merged}
    try:
        live = tools.committer.small_files(partitions, tools.rows.target_bytes)
    except RegelateError:  # the files of its own rows need no look
        live = ()
    merged = tuple(m for m in appended.merged if still_stands(m.merge.whole, live))
    return replace(appended, head=head, merged=merged, made=())


def _mergeable(tools: WriteTools, own: Sequence[NewDataFile], head: Head) -> Sequence[NewDataFile]:
    """Return the request's own files where they may be read and written again: by the schema that they were written by.

    By another one, which lacks a column, they would lose values that are there again once the column is.
    """
    return own if head.schema_id == tools.rows.schema_id else ()


def _replaced_partitions(tools: WriteTools, incoming: Incoming, head: Head) -> Replacement:
    partitions = {f.partition for f in incoming.added}
    tasks = tools.committer.live_tasks()
    specs = {p.spec_id for p in partitions}
    other = next((t.data_file for t in tasks if t.data_file.partition.spec_id not in specs), None)
    if other is not None:
        raise Unsupported(
            "UNSUPPORTED_TABLE",
            "overwrite_partitions: files of an older partition spec are live and cannot be told apart by the new one; "
            "compact the table or use upsert",
            path=other.path,
        )
    overwritten = tuple(t for t in tasks if t.data_file.partition in partitions)
    return Replacement(head, own=incoming.added, overwritten=overwritten)


def _replaced_rows(
    tools: WriteTools, command: WriteCommand, incoming: Incoming, neighbours: Neighbours, head: Head
) -> Replacement:
    if command.keeps and head.schema_id != tools.rows.schema_id:
        raise Conflict("SCHEMA_CHANGED", "the columns of the table were changed meanwhile; repeat the request")
    rows, key = incoming.rows, command.key
    tasks = tools.committer.live_tasks(rows, key)
    rewriter = tools.keys() if tasks else None
    touched = rewriter.touched(tasks, rows, key) if rewriter is not None else ()
    own = incoming.added
    if incoming.partial is not None:
        replaced = [t.task for t in touched]
        stored = rewriter.stored(replaced, rows, key, incoming.partial.absent) if rewriter and touched else None
        filled = tools.rows.fill(incoming.partial, stored, key)
        own = tools.rows.write(filled, max_partitions=command.max_partitions)
    made_here = own if incoming.partial is not None else ()
    try:
        ends = _mergeable(tools, own, head)
        planned = neighbours.joined(merges(touched, ends, tools.rows.target_bytes), ends, own[0].partition.spec_id)
        merged = neighbours.merged(rewriter or tools.keys(), planned, rows, key) if planned else ()
    except BaseException:
        with suppress(OSError):  # the fault to report is the first one; what stays behind is an orphan
            tools.rows.discard([f.path for f in made_here])
        raise
    made = (*made_here, *(f for m in merged for f in m.files))
    return Replacement(head, own=own, merged=merged, made=made)
