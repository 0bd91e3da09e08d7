"""A few processes for queries, kept warm: who gets one, who waits, and when one is replaced."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from regelate.adapters.duckdb.query_process import QueryProcess
from regelate.errors import Unavailable

MAX_ANSWERS = 500
"""After so many answers a process is replaced: what it has leaked by then ends with it."""
MAX_RESIDENT = 0.6
"""So is one that keeps more than this share of its memory between two questions."""


class QueryPool:
    """At most `size` processes of `memory_bytes` each, started when first needed.

    One tenant (`who`) gets all of them but one at the same time: the last is for the others. Safe for several threads.
    """

    def __init__(self, *, size: int, memory_bytes: int, remote: bool = False) -> None:
        """`remote`: the files of most tables are in a store, not on this machine."""
        self._size = size
        self._memory_bytes = memory_bytes
        self._remote = remote
        self._most = max(size - 1, 1)
        self._idle: list[QueryProcess] = []
        self._busy: Counter[str] = Counter()
        self._changed = threading.Condition()

    def warm(self) -> None:
        """Have a process ready, or on its way, for the next question; return at once."""
        with self._changed:
            self._drop_dead()
            if not self._idle and self._busy.total() < self._size:
                self._idle.append(self._started())

    @contextmanager
    def process(self, who: str, ends: float) -> Iterator[QueryProcess]:
        """Lend a process until the block is left. Errors: Unavailable TOO_MANY_QUERIES (429) when none is free by
        `ends`, a moment of `time.monotonic`; ENGINE_UNAVAILABLE when none can be started.
        """
        process = self._taken(who, ends)
        try:
            yield process
        finally:
            self._given_back(who, process)

    def _taken(self, who: str, ends: float) -> QueryProcess:
        with self._changed:
            if not self._changed.wait_for(lambda: self._may(who), timeout=max(ends - time.monotonic(), 0)):
                raise Unavailable(
                    "TOO_MANY_QUERIES",
                    f"other queries held all processes for queries ({self._size}) for all of this one's time; repeat",
                    status=429,
                )
            self._drop_dead()
            process = self._idle.pop() if self._idle else self._started()
            self._busy[who] += 1
            return process

    def _started(self) -> QueryProcess:
        return QueryProcess(self._memory_bytes, remote=self._remote)

    def _may(self, who: str) -> bool:
        return self._busy.total() < self._size and self._busy[who] < self._most

    def _given_back(self, who: str, process: QueryProcess) -> None:
        spent = process.answered >= MAX_ANSWERS or process.resident_bytes > MAX_RESIDENT * self._memory_bytes
        if spent or not process.lives:
            process.kill()
        with self._changed:
            self._busy -= Counter((who,))
            self._drop_dead()
            if process.lives:
                self._idle.append(process)
            self._changed.notify_all()
        if not process.lives:
            self.warm()

    def _drop_dead(self) -> None:
        self._idle = [process for process in self._idle if process.lives]

    def close(self) -> None:
        """End the processes that nobody has."""
        with self._changed:
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()
