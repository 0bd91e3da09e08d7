"""A SQLite file beside the embedded lake, which several threads and processes may share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from regelate.adapters.records.faults import Fault

BUSY_SECONDS = 30.0
NOW_MS = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"


class SqliteFile:
    """One connection per call. `tables` are the statements that make them where they are not there; `called` is what
    the file is to whoever reads of its `fault`."""

    def __init__(self, path: Path, tables: str, called: str, fault: Fault) -> None:
        self._path = path
        self._tables = tables
        self._called = called
        self._fault = fault
        self._ready = False

    def exists(self) -> bool:
        return self._path.exists()

    def now_ms(self) -> int:
        with self.connected() as db:
            return int(db.execute(f"SELECT {NOW_MS}").fetchone()[0])

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
                if not self._ready:
                    db.executescript(self._tables)
                    self._ready = True
                yield db
        except (sqlite3.Error, OSError) as error:
            raise self._fault(f"{self._called} {self._path.name} cannot be used: {error}") from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the file for one change, which is undone by whatever is raised."""
        with self.connected() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
