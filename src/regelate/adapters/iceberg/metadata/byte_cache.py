"""Keeps what never changes, up to so many bytes: bytes of small files, and what manifests name."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LARGEST_SHARE = 8
"""What takes more than this part (1/n) of a cache is not kept: it would push out everything else."""


class ByteCache(Generic[K, V]):
    """Least recently used values go first; safe for several threads. A limit of 0 keeps nothing.

    Whoever puts a value says how many bytes of memory it holds: an estimate that errs, if at all, to the high side.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._held_bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def largest_bytes(self) -> int:
        """Size from which on a value is not kept."""
        return self._limit_bytes // LARGEST_SHARE

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        if size_bytes >= self.largest_bytes:
            return
        with self._lock:
            if key in self._held:
                return
            self._held[key] = (value, size_bytes)
            self._held_bytes += size_bytes
            while self._held_bytes > self._limit_bytes:
                _, (_, gone) = self._held.popitem(last=False)
                self._held_bytes -= gone


REMEMBERED_BYTES = 64 * 1024 * 1024


class ReachMemory:
    """Manifest list -> paths of its manifests; manifest -> marks of its live files, 8 bytes each; for one process."""

    def __init__(self, limit_bytes: int = REMEMBERED_BYTES) -> None:
        self.lists: ByteCache[str, tuple[str, ...]] = ByteCache(limit_bytes // 2)
        self.marks: ByteCache[str, array[int]] = ByteCache(limit_bytes // 2)
