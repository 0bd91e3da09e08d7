"""Entries of many manifests in the order of their partitions, in as much memory as is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from pyiceberg.manifest import ManifestEntry

from regelate.adapters.iceberg.manifests import entry_bytes

HELD_BYTES = 256 * 1024 * 1024
"""Entries that are held at once. What takes more is read once for the order, and once for every so many bytes."""

Key = tuple[tuple[int, object], ...]


class SortedEntries:
    """Sorts by partition; entries of one partition stay in the order of the table. `read` must yield the same each
    time."""

    def __init__(self, read: Callable[[], Iterable[ManifestEntry]], held_bytes: int = HELD_BYTES) -> None:
        self._read = read
        keys: list[Key] = []
        known: dict[Key, Key] = {}
        kept: list[ManifestEntry] = []
        size = 0
        for entry in read():
            key = _key(entry)
            keys.append(known.setdefault(key, key))
            size += entry_bytes(entry)
            if size <= held_bytes:
                kept.append(entry)
            else:
                kept.clear()
        self._order = sorted(range(len(keys)), key=keys.__getitem__)
        self._kept = kept if size <= held_bytes else None
        self._at_once = len(keys) if size <= held_bytes else max(1, len(keys) * held_bytes // size)

    def __len__(self) -> int:
        return len(self._order)

    def parts(self, count: int) -> Iterator[list[ManifestEntry]]:
        """Yield the entries in so many parts of about the same number, as many parts per reading as may be held."""
        size, larger = divmod(len(self._order), count)
        edges = [part * size + min(part, larger) for part in range(count + 1)]
        first = 0
        while first < count:
            last = first + 1
            while last < count and edges[last + 1] - edges[first] <= self._at_once:
                last += 1
            found = self._found(edges[first], edges[last])
            for part in range(first, last):
                yield found[edges[part] - edges[first] : edges[part + 1] - edges[first]]
            first = last

    def _found(self, start: int, end: int) -> list[ManifestEntry]:
        wanted = self._order[start:end]
        if self._kept is not None:
            return [self._kept[number] for number in wanted]
        places = {number: place for place, number in enumerate(wanted)}
        found: dict[int, ManifestEntry] = {}
        for number, entry in enumerate(self._read()):
            if number in places:
                found[places[number]] = entry
        return [found[place] for place in range(len(wanted))]


def _key(entry: ManifestEntry) -> Key:
    values = entry.data_file.partition
    return tuple(_edge(values[i]) for i in range(len(values)))


def _edge(value: object) -> tuple[int, object]:
    """Never compare a null or a NaN with a value: the rank decides, and equal ranks compare equal stand-ins."""
    if value is None:
        return (-1, 0)
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value)
