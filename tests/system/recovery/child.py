"""The real command line in a process of its own that strikes itself down at a named point.

    python -m tests.system.recovery.child POINT SIGNAL COMMAND...
    python -m tests.system.recovery.child meets-a-b SIGNAL COMMAND...

The second form waits before its first commit for a process that was started as meets-b-a. A point wraps one step of the
program from outside; the product knows nothing of it. HOURS_LATER sets the clock of the machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from regelate.adapters.clock import SystemClock
from regelate.adapters.duckdb.engine import DuckDBRewriteEngine
from regelate.adapters.duckdb.key_rewriter import DuckDBKeyRewriter
from regelate.adapters.iceberg.commit import producer
from regelate.adapters.iceberg.files.ledger import FOLDER, RunLedger
from regelate.adapters.iceberg.files.outputs import TableOutputs
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.program import main
from regelate.operations.compacting import compact
from tests.support.iceberg_tables import local_path

Point = Callable[[], None]
_once = threading.Lock()
_blow = signal.SIGKILL


def strike() -> None:
    """End this process, or interrupt it, once: SIGKILL cannot be caught, and nothing of Python runs after it."""
    if _once.acquire(blocking=False):
        os.kill(os.getpid(), _blow)


def _before(owner: Any, name: str) -> Point:
    def install() -> None:
        step = getattr(owner, name)

        def struck(*arguments: Any, **options: Any) -> Any:
            strike()
            return step(*arguments, **options)

        setattr(owner, name, struck)

    return install


def _after(owner: Any, name: str, *, when: Callable[..., bool] = lambda *_, **__: True) -> Point:
    def install() -> None:
        step = getattr(owner, name)

        def struck(*arguments: Any, **options: Any) -> Any:
            done = step(*arguments, **options)
            if when(*arguments, **options):
                strike()
            return done

        setattr(owner, name, struck)

    return install


def _half_an_entry() -> None:
    def write(ledger: Any, paths: list[str]) -> None:
        entry = local_path(f"{ledger._folder}/{ledger._run}-0.json")
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text('{"format":1,"run":"' + ledger._run)
        strike()

    RunLedger._write = write  # type: ignore[method-assign]


def _after_metadata_is_written() -> None:
    write = MetastoreCatalog._write_metadata

    def struck(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        strike()

    MetastoreCatalog._write_metadata = staticmethod(struck)  # type: ignore[method-assign,assignment]


def _is_ledger(location: str) -> bool:
    return FOLDER in location


def _of_ledger(io: Any, location: str) -> bool:
    return _is_ledger(str(location))


def _of_table(io: Any, location: str) -> bool:
    return not _is_ledger(str(location)) and "clock-" not in str(location)


def meeting(mine: str, other: str) -> Point:
    """At the first commit, wait until another process is at its own: a named pipe each, without any time in it."""

    def install() -> None:
        commit = SqlCatalog.commit_table
        folder = Path(os.environ["REGELATE_HOME"])

        def met(*arguments: Any, **options: Any) -> Any:
            if _once.acquire(blocking=False):
                for name in (mine, other):
                    with contextlib.suppress(FileExistsError):
                        os.mkfifo(folder / name)
                hello = threading.Thread(target=(folder / mine).write_text, args=("here",))
                hello.start()
                (folder / other).read_text()
                hello.join()
            return commit(*arguments, **options)

        SqlCatalog.commit_table = met  # type: ignore[method-assign]

    return install


POINTS: dict[str, Point] = {
    "while-the-ledger-is-written": _half_an_entry,
    "after-ledger": _after(RunLedger, "record"),
    "mid-write": _after(pq.ParquetWriter, "write_table"),
    "before-publish": _before(TableOutputs, "publish"),
    "after-one-publish": _after(TableOutputs, "publish"),
    "after-rewrite": _after(DuckDBRewriteEngine, "rewrite"),
    "after-carried-rows": _after(DuckDBKeyRewriter, "merge"),
    "after-verification": _after(compact, "verify_rewrite"),
    "after-manifests": _before(producer, "write_manifest_list"),
    "after-manifest-list": _before(SqlCatalog, "commit_table"),
    "after-metadata": _after_metadata_is_written,
    "after-commit": _after(SqlCatalog, "commit_table"),
    "while-the-ledger-is-closed": _after(PyArrowFileIO, "delete", when=_of_ledger),
    "during-deletion": _after(PyArrowFileIO, "delete", when=_of_table),
    "before-reply": _before(screen, "put_json"),
}


def _arguments() -> Iterator[str]:
    yield from sys.argv[1:]


if __name__ == "__main__":
    point, blow, *command = _arguments()
    _blow = signal.Signals[blow]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in its background ignore it
    later_ms = int(os.environ.get("HOURS_LATER", "0")) * 3_600_000
    SystemClock.now_ms = lambda clock: time.time_ns() // 1_000_000 + later_ms  # type: ignore[method-assign]
    POINTS[point]() if point in POINTS else meeting(*point.removeprefix("meets-").split("-"))()
    sys.exit(main(command))
