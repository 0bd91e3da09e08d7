"""A few processes for queries, kept warm: who gets one, who waits, and when one is replaced."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from regelate.adapters.duckdb.query_process import QueryProcess
from regelate.errors import Unavailable

MAX_ANSWERS = 500
"""After so many answers a process is replaced: what it has leaked by then ends with it."""
MAX_RESIDENT = 0.6
"""So is one that keeps more than this share of its memory between two questions."""


class _Place:
    """A query's place in its tenant's line; once it is `served`, `process` is its own, or none and it starts one."""

    def __init__(self) -> None:
        self.served = threading.Event()
        self.process: QueryProcess | None = None


class QueryPool:
    """At most `size` processes of `memory_bytes` each, started when first needed.

    As many are kept as were needed at once so far, and from the second query on one more. One tenant (`who`) gets all
    but one at the same time: the last is for the others. Each tenant has a line of its own: next is who has the fewest
    processes, of those who has waited longest since it was served. The last idle process is for those who have none and
    made none end: others start one, or wait. Safe for several threads.
    """

    def __init__(self, *, size: int, memory_bytes: int, remote: bool = False) -> None:
        """`remote`: the files of most tables are in a store, not on this machine."""
        self._size = size
        self._memory_bytes = memory_bytes
        self._remote = remote
        self._most = max(size - 1, 1)
        self._idle: list[QueryProcess] = []
        self._needed = 1
        self._has_lent = False
        self._coming = False
        self._closed = False
        self._enders: set[str] = set()
        self._busy: Counter[str] = Counter()
        self._lines: dict[str, deque[_Place]] = {}
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """Return how many queries wait for a process."""
        with self._lock:
            return sum(map(len, self._lines.values()))

    def warm(self) -> None:
        """Have a process ready, or on its way, for the next question; nobody waits for it."""
        with self._lock:
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
            with self._lock:
                self._coming = False
                room = self._busy.total() + len(self._idle) < self._size
                if started is not None and room and not self._closed:
                    self._idle.append(started)
                    started = None
                self._deal()
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
        place = _Place()
        with self._lock:
            self._lines.setdefault(who, deque()).append(place)
            self._deal()
        try:
            if not place.served.wait(max(ends - time.monotonic(), 0)):
                raise Unavailable(
                    "TOO_MANY_QUERIES",
                    f"other queries held all processes for queries ({self._size}) for all of this one's time; repeat",
                    status=429,
                )
            return place.process or self._started()
        except BaseException:
            self._give_up(who, place)
            raise

    def _give_up(self, who: str, place: _Place) -> None:
        with self._lock:
            if not place.served.is_set():
                self._lines[who].remove(place)
                if not self._lines[who]:
                    del self._lines[who]
                return
        self._leave(who, place.process)

    def _deal(self) -> None:
        """Serve all who may be."""
        self._drop_dead()
        while (who := min(filter(self._may, self._lines), key=self._busy.__getitem__, default=None)) is not None:
            line = self._lines.pop(who)
            place = line.popleft()
            if line:
                self._lines[who] = line  # behind all others
            place.process = self._best(who)
            self._busy[who] += 1
            self._needed = max(self._needed, min(self._busy.total() + self._has_lent, self._size))
            self._has_lent = True
            place.served.set()

    def _may(self, who: str) -> bool:
        """Say whether somebody may have a process; with one on its way, nobody starts another."""
        if self._busy.total() >= self._size or self._busy[who] >= self._most:
            return False
        if len(self._idle) > self._kept_from(who):
            return True
        return not self._coming and self._busy.total() + len(self._idle) < self._size

    def _kept_from(self, who: str) -> int:
        """Return how many idle processes are for others."""
        return min(1, self._size - 1) if self._busy[who] or who in self._enders else 0

    def _best(self, who: str) -> QueryProcess | None:
        """Take an idle process out: one that has started, but for those of whom one is kept."""
        kept = self._kept_from(who)
        if len(self._idle) <= kept:
            return None
        best = next((process for process in self._idle if process.ready is (kept == 0)), self._idle[0])
        self._idle.remove(best)
        return best

    def _leave(self, who: str, process: QueryProcess | None = None) -> None:
        with self._lock:
            self._busy -= Counter((who,))
            if process is not None and process.lives and not self._closed:
                self._idle.append(process)
            self._deal()

    def _started(self) -> QueryProcess:
        return QueryProcess(self._memory_bytes, remote=self._remote)

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
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()
