"""The ledger of one run: the names of its files, written down beside the table's metadata before the files exist."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable

from pyiceberg.io import FileIO

from regelate.adapters.iceberg.pyiceberg_errors import storage_faults
from regelate.errors import Unavailable

log = logging.getLogger(__name__)
FOLDER = "regelate/ledger"
"""Under the table's metadata folder."""
FORMAT = 1
LONGEST_RUN_SECONDS = 3600.0
RENEW_AT, GIVE_UP_AT = 0.25, 0.9
"""Shares of an entry's life: from the first on it is written anew, so that most of a life is left for one commit; from
the second on it is too late for that."""


class Elapsed:
    """Seconds since a start, by the clock that says more: one of them stands while a machine is suspended."""

    def __init__(self) -> None:
        self._monotonic, self._wall = time.monotonic(), time.time()

    def __call__(self) -> float:
        return max(time.monotonic() - self._monotonic, time.time() - self._wall)


class RunLedger:
    """Implements Ledger for one table and one run; safe for several threads.

    Each `record` is one small object `<folder>/<run>-<n>.json`. A sweep takes a run for dead once an entry of it is
    older than `lives_seconds` by the store's clock; therefore `keep_alive` writes entries anew in time, and refuses to
    go on where that came too late: files of ours may be gone by then.
    """

    def __init__(
        self,
        io: FileIO,
        metadata_folder: str,
        *,
        table_uuid: str,
        run: str,
        lives_seconds: float = LONGEST_RUN_SECONDS,
        stopwatch: Callable[[], Callable[[], float]] = Elapsed,
    ) -> None:
        self._io = io
        self._folder = f"{metadata_folder.rstrip('/')}/{FOLDER}"
        self._table_uuid = table_uuid
        self._run = run
        self._lives_seconds = lives_seconds
        self._stopwatch = stopwatch
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._paths: list[str] = []
        self._entries: list[str] = []
        self._elapsed: Callable[[], float] | None = None
        self._owes = False

    def record(self, paths: Iterable[str]) -> None:
        """Write down paths that are about to be created; returns once the entry is stored."""
        found = list(paths)
        if not found:
            return
        self.keep_alive()
        with self._lock:
            elapsed = self._stopwatch()
            self._write(found)
            self._paths += found
            self._elapsed = self._elapsed or elapsed

    def keep_alive(self) -> None:
        """Renew old entries; called before whatever relies on the run's files. Errors: Unavailable RUN_TOO_OLD."""
        with self._lock:
            if self._elapsed is None or self._age() <= self._lives_seconds * RENEW_AT:
                return
            older, elapsed = list(self._entries), self._stopwatch()
            self._write(self._paths)
            self._age()  # the renewal itself may have taken too long
            self._elapsed = elapsed
            self._remove(older)

    def owe(self) -> None:
        """Keep the entries when the run ends: a file of it could not be deleted, or nobody knows what became of it."""
        self._owes = True

    def close(self) -> None:
        """Remove the entries of a run that knows what became of its files."""
        with self._lock:
            if not self._owes:
                self._remove(list(self._entries))

    def _age(self) -> float:
        age = 0.0 if self._elapsed is None else self._elapsed()
        if age > self._lives_seconds * GIVE_UP_AT:
            raise Unavailable(
                "RUN_TOO_OLD",
                f"this run was out of touch for {age:.0f} s; after {self._lives_seconds:.0f} s a sweep may take its "
                "files for left behind, so it stopped and nothing was committed",
            )
        return age

    def _write(self, paths: list[str]) -> None:
        location = f"{self._folder}/{self._run}-{next(self._numbers)}.json"
        entry = {
            "format": FORMAT,
            "run": self._run,
            "table_uuid": self._table_uuid,
            "lives_seconds": self._lives_seconds,
            "paths": paths,
        }
        self._entries.append(location)  # before it is written: a write that fails may have left it all the same
        # the name is new: `overwrite` only saves a look whether it is
        with storage_faults(), self._io.new_output(location).create(overwrite=True) as sink:
            sink.write(json.dumps(entry, separators=(",", ":")).encode())

    def _remove(self, locations: Iterable[str]) -> None:
        for location in locations:
            self._entries.remove(location)
            try:
                self._io.delete(location)
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001  an entry too many costs a sweep one look
                log.warning("cannot remove the ledger entry %s: %s", location, error)
