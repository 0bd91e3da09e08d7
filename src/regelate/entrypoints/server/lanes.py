"""The threads that requests are worked on by: many for the work, a few that are kept for asking how the process is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from regelate.entrypoints.server.connection import busy

WAIT_SECONDS = 5.0
Made = TypeVar("Made")


class Lane:
    """So many threads. Who comes when all are taken waits for a moment, in the order of coming."""

    def __init__(self, name: str, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = asyncio.Semaphore(threads)
        self._size = threads
        self._under_way: set[Future[Any]] = set()

    @property
    def busy(self) -> int:
        """Return how many requests are in a thread now."""
        return sum(1 for work in list(self._under_way) if not work.done())

    async def run(self, work: Callable[[], Made]) -> Made:
        """Return what `work` makes in a thread of this lane. Errors: Unavailable SERVER_BUSY, or those of `work`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise busy(f"all {self._size} threads are at work") from None
        try:
            begun = self._threads.submit(work)
            self._under_way.add(begun)
            begun.add_done_callback(self._under_way.discard)
            return await asyncio.wrap_future(begun)
        finally:
            self._free.release()

    def close(self) -> None:
        """Let the threads end with what they are at; wait for none."""
        self._threads.shutdown(wait=False)
