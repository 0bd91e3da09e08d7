"""DuckDB sessions: extensions from the wheels by path, nothing downloaded, a private spill folder, no file cache."""

from __future__ import annotations

import errno
import importlib.util
from functools import lru_cache
from pathlib import Path

import duckdb

from regelate.adapters.duckdb.secrets import use_store
from regelate.core.table.storage import ObjectStoreAccess
from regelate.errors import ResourceExhausted, Unavailable

EXTENSIONS = ("avro", "httpfs", "iceberg")
LOCAL_EXTENSIONS = ("avro", "iceberg")
"""Enough where no file is remote."""
_CHECKED: set[str] = set()
"""Extensions whose signature was checked by a load in this process."""


@lru_cache(maxsize=8)
def extension_path(name: str) -> Path:
    """Return the file of an extension that ships as a wheel locked to this DuckDB version (trap T1: no reader in the
    wheel)."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable("ENGINE_UNAVAILABLE", f"the wheel duckdb-extension-{name} is not installed", retryable=False)
    found = sorted(Path(spec.submodule_search_locations[0]).glob(f"extensions/v*/{name}.duckdb_extension"))
    if not found:
        raise Unavailable("ENGINE_UNAVAILABLE", f"no {name} extension in its wheel", retryable=False)
    return found[0]


def open_session(
    *,
    memory_bytes: int,
    threads: int,
    folder: Path,
    extensions: tuple[str, ...] = EXTENSIONS,
    store: ObjectStoreAccess | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open a database in memory with its spill files below `folder`; cursors of it may run in parallel threads.

    `store` is the one that it may read, by a secret; it needs the extension httpfs.

    The external file cache is off: it is keyed by path and would show an old view to a new one (trap T17: views are
    cached by path).
    """
    connection = connect(extensions)
    settle(connection, memory_bytes=memory_bytes, threads=threads, folder=folder, store=store)
    return connection


def settle(
    connection: duckdb.DuckDBPyConnection,
    *,
    memory_bytes: int,
    threads: int,
    folder: Path,
    store: ObjectStoreAccess | None = None,
) -> None:
    """Give a fresh session its limits, its folder and what it may read."""
    spill = folder / "spill"
    spill.mkdir(parents=True, exist_ok=True)
    connection.execute(f"SET memory_limit = '{max(memory_bytes, 64 * 1024 * 1024)}B'")
    connection.execute(f"SET threads = {max(threads, 1)}")
    connection.execute("SET temp_directory = '" + str(spill).replace("'", "''") + "'")
    connection.execute("SET enable_external_file_cache = false")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET preserve_insertion_order = true")
    if store is not None:
        use_store(connection, store)


def connect(extensions: tuple[str, ...]) -> duckdb.DuckDBPyConnection:
    """Open a database in memory and load the extensions; a file whose signature this process has checked is not
    checked again.

    The check takes 0.1 s a file, more than most queries. The files come from hash-pinned wheels, by path; afterwards
    the session refuses unsigned ones, and DuckDB does not allow that to be undone.
    """
    known = _CHECKED.issuperset(extensions)
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_persistent_secrets": "false",
            "allow_unsigned_extensions": "true" if known else "false",
        }
    )
    for name in extensions:
        connection.load_extension(str(extension_path(name)))
    if known:
        connection.execute("SET allow_unsigned_extensions = false")
    _CHECKED.update(extensions)
    return connection


def exhausted(error: Exception) -> ResourceExhausted | None:
    """Name the resource that ran out, when that is what a DuckDB error says."""
    text = str(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        if "temp_directory" in text or ("temporary" in text.lower() and "size" in text.lower()):
            return ResourceExhausted(
                "LOCAL_STORAGE_FULL", "the spill folder is full; use a larger disk or smaller groups"
            )
        return ResourceExhausted("OUT_OF_MEMORY", "the memory limit was reached; use smaller groups or more memory")
    if isinstance(error, MemoryError):  # PyArrow's too
        return ResourceExhausted("OUT_OF_MEMORY", "memory ran out; use smaller groups or more memory")
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or "No space left on device" in text or "Disk quota exceeded" in text:
        return ResourceExhausted("LOCAL_STORAGE_FULL", "the local disk is full; use a larger disk or smaller groups")
    return None
