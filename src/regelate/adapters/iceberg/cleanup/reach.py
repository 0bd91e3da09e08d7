"""What manifest lists and manifests name, each read once in a process and side by side: neither ever changes.

What expired snapshots leave behind is found in two steps. `left_by` asks the snapshots beside them, whatever number is
kept: in a history where no file comes back once it was removed, what they reached and a kept snapshot does too is
reached by the kept one right before or right after them. That is no proof (a rollback, a cherry-pick, a file added
again), so its answer may name too much, and never decides a deletion. `unreached` does: it asks every snapshot of the
metadata, so every ref (law 10: deleted after a grace, by reachability).
"""

from __future__ import annotations

import logging
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from types import MappingProxyType
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.core.upkeep.reachability import StoredFile, loose
from regelate.errors import DataUnavailable

log = logging.getLogger(__name__)
READS_AT_ONCE = 16
BATCH = 64
NEIGHBOURS = 8
"""Kept snapshots that are asked in the first step; where more stand beside expired ones, the newest."""
Spend = Callable[[int], None]
"""Told before so many requests (0: before one that was told already); raises where they are not allowed any more."""
T = TypeVar("T")
R = TypeVar("R")
Around = Callable[[Callable[[str], tuple[ManifestFile, ...]]], Callable[[str], tuple[ManifestFile, ...] | None]]


def _as_is(work: Callable[[T], R]) -> Callable[[T], R | None]:
    return work


def freely(requests: int) -> None:
    """Set no limit."""


def mark(path: str) -> int:
    """Return 64 bits that all spellings of a location share; two files that share them too are both kept."""
    return hash(loose(path))


class Reach:
    """Of one storage.

    Errors: DataUnavailable METADATA_CORRUPT for what is kept and cannot be read; what `spend` raises.
    """

    def __init__(self, io: FileIO, reader: ManifestReader, spend: Spend = freely) -> None:
        self._io = io
        self._reader = reader
        self._memory = reader.reach
        self._spend = spend

    def unreached(self, table: Table, candidates: Mapping[str, int]) -> tuple[StoredFile, ...]:
        """Return the candidates (path -> bytes) that no snapshot of this metadata reaches."""
        return _struck(candidates, self._reached(table)) if candidates else ()

    def needed(self, snapshots: Iterable[Snapshot], paths: Iterable[str]) -> frozenset[str]:
        """Return those of these paths that expired snapshots need to be read again.

        A snapshot whose own metadata is gone cannot come back and needs nothing.
        """
        wanted = dict.fromkeys(paths, 0)
        lists = dict.fromkeys(s.manifest_list for s in snapshots)
        named = (mark(path) for path in lists)
        left = _struck(wanted, [list(named), *self._marks(lists, gone_is_nothing=True)]) if wanted else ()
        return frozenset(wanted.keys() - {f.path for f in left})

    def left_by(
        self, gone: Sequence[Snapshot], table: Table, statistics: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[StoredFile, ...]:
        """Return what expired snapshots and their `statistics` (path -> bytes) reached, and the kept ones beside them
        do not; see the head of this file.

        What cannot be read any more is logged and left to be found as an orphan file. A manifest list counts no bytes,
        because metadata does not say how many it has.
        """
        metadata = table.metadata
        kept = {s.manifest_list for s in metadata.snapshots}
        lists = dict.fromkeys(s.manifest_list for s in gone if s.manifest_list not in kept)
        expired = dict(self._lists(lists, _logged))
        near = dict(self._lists([s.manifest_list for s in neighbours(gone, metadata)]))
        beside = {m.manifest_path: m for manifests in near.values() for m in manifests}
        own = {m.manifest_path: m for manifests in expired.values() for m in manifests if m.manifest_path not in beside}
        found = {**statistics, **dict.fromkeys(lists, 0)}
        found |= {path: m.manifest_length for path, m in own.items()}
        for _, files in self._each(_logged(self._files), own.values()):
            found |= files or {}
        moved = self._each(self._marks_of, _moved(own, beside, expired.values()))
        return _struck(found, chain([map(mark, _named(table))], (marks for _, marks in moved)))

    def _reached(self, table: Table) -> Iterator[Iterable[int]]:
        """Yield the marks of all that is reached, from what is cheap to know to what is not."""
        yield [mark(path) for path in _named(table)]
        yield from self._marks(dict.fromkeys(s.manifest_list for s in reversed(table.metadata.snapshots)))

    def _marks(self, lists: Iterable[str], *, gone_is_nothing: bool = False) -> Iterator[Iterable[int]]:
        """Yield the marks of the manifests of these lists, and of the live files in them."""
        held: dict[str, array[int]] = {}
        unknown = [path for path in lists if not self._recall(path, held)]
        yield [mark(path) for path in held]
        yield from held.values()
        unread: dict[str, ManifestFile] = {}
        for path, manifests in self._lists(unknown, _unless_gone if gone_is_nothing else _as_is):
            self._memory.lists.put(path, tuple(sys.intern(m.manifest_path) for m in manifests), 60 * len(manifests))
            fresh = {m.manifest_path: m for m in manifests if m.manifest_path not in held}
            unread |= fresh
            yield [mark(path) for path in fresh]
        read = _unless_gone(self._marks_of) if gone_is_nothing else self._marks_of
        yield from (marks or () for _, marks in self._each(read, unread.values()))

    def _recall(self, manifest_list: str, held: dict[str, array[int]]) -> bool:
        """Add what a manifest list reaches to `held`; say whether all of it is remembered."""
        names = self._memory.lists.get(manifest_list)
        if names is None:
            return False
        fresh = {name: self._memory.marks.get(name) for name in names if name not in held}
        if any(marks is None for marks in fresh.values()):
            return False
        held |= {name: marks for name, marks in fresh.items() if marks is not None}
        return True

    def _marks_of(self, manifest: ManifestFile) -> array[int]:
        found = self._memory.marks.get(manifest.manifest_path)
        if found is None:
            entries = self._reader.entries(self._io, manifest)
            found = array("q", (mark(e.data_file.file_path) for e in entries))
            self._memory.marks.put(manifest.manifest_path, found, 200 + 8 * len(found))
        return found

    def _files(self, manifest: ManifestFile) -> dict[str, int]:
        """Return the files of entries of every status, path -> bytes."""
        entries = self._reader.all_entries(self._io, manifest)
        return {e.data_file.file_path: e.data_file.file_size_in_bytes for e in entries}

    def _lists(self, paths: Iterable[str], around: Around = _as_is) -> Iterator[tuple[str, tuple[ManifestFile, ...]]]:
        """Yield what the lists name that can be read."""

        def read(path: str) -> tuple[ManifestFile, ...]:
            return self._reader.manifests(self._io, path)

        yield from ((path, found) for path, found in self._each(around(read), paths) if found is not None)

    def _each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
        """Do the work for each item, several at once, as far as is allowed; the results come in the items' order."""
        wanted = tuple(items)
        if not wanted:
            return
        self._spend(len(wanted))

        def allowed(item: T) -> R:
            self._spend(0)
            return work(item)

        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            for start in range(0, len(wanted), BATCH):
                some = wanted[start : start + BATCH]
                yield from zip(some, pool.map(allowed, some), strict=True)


def neighbours(gone: Iterable[Snapshot], metadata: TableMetadata) -> tuple[Snapshot, ...]:
    """Return the kept snapshots right before and right after expired ones, and the head."""
    alive = {s.snapshot_id for s in metadata.snapshots}
    order = sorted(
        [*metadata.snapshots, *(s for s in gone if s.snapshot_id not in alive)],
        key=lambda s: (s.sequence_number or 0, s.timestamp_ms),
    )
    pairs = (pair for pair in pairwise(order) if len(alive.intersection(s.snapshot_id for s in pair)) == 1)
    beside = [s for pair in pairs for s in pair if s.snapshot_id in alive]
    head = metadata.current_snapshot()
    return tuple({s.snapshot_id: s for s in (*beside[-NEIGHBOURS:], *([head] if head else ()))}.values())


def _moved(
    own: Mapping[str, ManifestFile],
    beside: Mapping[str, ManifestFile],
    expired: Iterable[tuple[ManifestFile, ...]],
) -> list[ManifestFile]:
    """Return the neighbours' manifests to which files of the expired ones' `own` may have moved.

    A snapshot lists a live file once: what it lists beside an own manifest holds none of that one's files.
    """
    last: dict[str, frozenset[str]] = {}
    for manifests in expired:
        names = frozenset(m.manifest_path for m in manifests)
        last |= dict.fromkeys(names & own.keys(), names)
    settled = frozenset.intersection(*last.values()) if last else frozenset(beside)
    return [manifest for path, manifest in beside.items() if path not in settled]


def _struck(candidates: Mapping[str, int], reached: Iterable[Iterable[int]]) -> tuple[StoredFile, ...]:
    """Return the candidates without those whose marks are reached, which is read no further than needed."""
    left: dict[int, list[str]] = {}
    for path in candidates:
        left.setdefault(mark(path), []).append(path)
    for marks in reached:
        for hit in left.keys() & marks:
            del left[hit]
        if not left:
            break
    gone = {path for paths in left.values() for path in paths}
    return tuple(StoredFile(path=path, size_bytes=size) for path, size in candidates.items() if path in gone)


def _named(table: Table) -> Iterator[str]:
    """Yield what the metadata itself names."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (s.statistics_path for s in (*metadata.statistics, *metadata.partition_statistics))
    yield from (s.manifest_list for s in metadata.snapshots)


def _logged(work: Callable[[T], R]) -> Callable[[T], R | None]:
    def lenient(item: T) -> R | None:
        try:
            return work(item)
        except DataUnavailable as error:
            log.warning("what expired cannot be read: %s", error)
            return None

    return lenient


def _unless_gone(work: Callable[[T], R]) -> Callable[[T], R | None]:
    def lenient(item: T) -> R | None:
        try:
            return work(item)
        except DataUnavailable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            log.warning("an expired snapshot cannot be brought back: %s", error)
            return None

    return lenient
