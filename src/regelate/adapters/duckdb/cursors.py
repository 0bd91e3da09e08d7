"""Cursors of one session of DuckDB, which is opened by whoever first reads by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb


class Cursors:
    """Opens the session late: loading its extensions takes 0.2 s, and a dictionary lane needs none. Safe for several
    threads. `threads`: those of the session."""

    def __init__(self, connect: Callable[[], duckdb.DuckDBPyConnection], threads: int) -> None:
        self._connect = connect
        self._opening = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._threads = self._usual = threads

    def __call__(self) -> duckdb.DuckDBPyConnection:
        with self._opening:
            if self._connection is None:
                self._connection = self._connect()
                self._settle(self._connection)
            return self._connection.cursor()

    @contextmanager
    def of_one_thread(self) -> Iterator[None]:
        """Let the session work by one thread alone meanwhile."""
        self._set(1)
        try:
            yield
        finally:
            self._set(self._usual)

    def _set(self, threads: int) -> None:
        with self._opening:
            self._threads = threads
            if self._connection is not None:
                self._settle(self._connection)

    def _settle(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"SET threads = {self._threads}")
