"""A few processes for queries, kept warm: who gets one, who waits, and when one is replaced."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from regelate.adapters.duckdb.query_process import QueryProcess
from regelate.errors import Unavailable

MAX_ANSWERS = 500
"""After so many answers a process is replaced: what it has leaked by then ends with it."""
MAX_RESIDENT = 0.6
"""So is one that keeps more than this share of its memory between two questions."""


class QueryPool:
    """At most `size` processes of `memory_bytes` each, started when first needed.

    As many are kept as were needed at once so far. One tenant (`who`) gets all but one at the same time: the last is
    for the others. Whoever made one end waits for the one that replaces it. Safe for several threads.
    """

    def __init__(self, *, size: int, memory_bytes: int, remote: bool = False) -> None:
        """`remote`: the files of most tables are in a store, not on this machine."""
        self._size = size
        self._memory_bytes = memory_bytes
        self._remote = remote
        self._most = max(size - 1, 1)
        self._idle: list[QueryProcess] = []
        self._needed = 1
        self._coming = False
        self._closed = False
        self._enders: set[str] = set()
        self._busy: Counter[str] = Counter()
        self._changed = threading.Condition()

    def warm(self) -> None:
        """Have a process ready, or on its way, for the next question; nobody waits for it."""
        with self._changed:
            self._drop_dead()
            if self._closed or self._coming or self._busy.total() + len(self._idle) >= self._needed:
                return
            self._coming = True
        threading.Thread(target=self._start_spare, name="query-process", daemon=True).start()

    def _start_spare(self) -> None:
        started = None
        try:
            with suppress(Unavailable):  # whoever needs one will try for itself, and be told
                started = self._started()
        finally:
            with self._changed:
                self._coming = False
                room = self._busy.total() + len(self._idle) < self._size
                if started is not None and room and not self._closed:
                    self._idle.append(started)
                    started = None
                self._changed.notify_all()
            if started is not None:
                started.kill()

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
            process = self._best(who)
            self._busy[who] += 1
            self._needed = max(self._needed, self._busy.total())
        try:
            return process or self._started()
        except BaseException:
            self._leave(who)
            raise

    def _best(self, who: str) -> QueryProcess | None:
        """Take an idle process out: one that has started, but for those who made one end."""
        if not self._idle:
            return None
        wanted = who not in self._enders
        best = next((process for process in self._idle if process.ready is wanted), self._idle[0])
        self._idle.remove(best)
        return best

    def _leave(self, who: str, process: QueryProcess | None = None) -> None:
        with self._changed:
            self._busy -= Counter((who,))
            if process is not None and process.lives and not self._closed:
                self._idle.append(process)
            self._changed.notify_all()

    def _started(self) -> QueryProcess:
        return QueryProcess(self._memory_bytes, remote=self._remote)

    def _may(self, who: str) -> bool:
        """Say whether one may go to somebody; with one on its way, nobody starts another, and the last idle one is not
        for those who made one end.
        """
        if self._busy.total() >= self._size or self._busy[who] >= self._most:
            return False
        return not self._coming or len(self._idle) > (1 if who in self._enders else 0)

    def _given_back(self, who: str, process: QueryProcess) -> None:
        spent = process.answered >= MAX_ANSWERS or process.resident_bytes > MAX_RESIDENT * self._memory_bytes
        if spent or self._closed:
            process.kill()
        (self._enders.discard if process.lives or spent else self._enders.add)(who)
        self._leave(who, process)
        self.warm()

    def _drop_dead(self) -> None:
        self._idle = [process for process in self._idle if process.lives]

    def close(self) -> None:
        """End the processes, those at work when they are given back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()
