"""The walls around a query inside its process: what the engine may open, how long it may run, what it may say.

Trap T15: holes in a locked session; rows 20 to 22 of the fault catalogue: more than a SELECT, no end, a wrong query.

Four walls, because none holds alone. The guard reads the parsed statement: one SELECT over the table, by functions
that name no file and no setting. The locked session opens exactly the files of the view. The deadline interrupts. And
what minds none of them, such as one call on one huge value, ends with its process.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from types import TracebackType

import duckdb

from regelate.adapters.duckdb.duckdb_errors import not_ours_to_read, reading_fault
from regelate.adapters.duckdb.question import ScanPaths, out_of_memory, timed_out
from regelate.adapters.duckdb.session import exhausted
from regelate.adapters.duckdb.sql import literal
from regelate.errors import InvalidRequest, InvariantViolated, RegelateError

INTERRUPT_EVERY_SECONDS = 0.05
MAX_READ_CHARACTERS, MAX_SHOWN_CHARACTERS = 4_000, 600
"""Of a message: a caller's SQL may make one of any length."""
_PATHS = re.compile(r"(?:[a-z0-9]{1,12}:/|(?<![\w/]))/[^\s\"',;()]+/[^\s\"',;()]*")
_ADDRESSES = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
OF_FILES = frozenset({"IO", "HTTP"})
BUGS = frozenset({"INTERNAL", "FATAL"})
"""Kinds of DuckDB's errors, as its messages begin, that no SQL of a caller can raise: about the files, about itself."""
QUOTING = frozenset({"Invalid Input", "Conversion", "Out of Range", "Binder", "Catalog", "Parser"})
"""Kinds whose messages hold what a caller wrote."""


def lock(connection: duckdb.DuckDBPyConnection, paths: Iterable[str]) -> None:
    """Close the session for good: it reads these files, no others, and nothing in it can be set any more."""
    allowed = ", ".join(literal(path) for path in paths)
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


class Deadline:
    """Interrupts whatever the connection runs once the seconds are over, again and again until left.

    Once is not enough: an interrupt between two statements is forgotten.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._left = threading.Event()
        self._passed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="query-deadline", daemon=True)

    def __enter__(self) -> Deadline:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()

    def _watch(self) -> None:
        if self._left.wait(self._seconds):
            return
        self._passed.set()
        while not self._left.is_set():
            self._connection.interrupt()
            self._left.wait(INTERRUPT_EVERY_SECONDS)

    def check(self) -> None:
        """Raise Unavailable QUERY_TIMEOUT (504) once the seconds are over."""
        if self._passed.is_set():
            raise timed_out(self._seconds)


NO_MEMORY = re.compile(r"^Out of Memory|std::bad_alloc|bad allocation|memory allocation failed|Cannot allocate memory")
"""What the engine and its libraries say when memory has ended: by its own limit, or because the system gives none."""


def query_fault(
    error: Exception, scanned: ScanPaths, seconds: float, sql: str = "", *, reread: Callable[[], Exception | None]
) -> RegelateError:
    """Name what a failed query means to the caller; errors amid a stream are plain OSErrors, so the text decides.

    `sql` is the caller's own, if any: no other is shown. `reread` reads the table without it and returns what failed
    then. Where the caller may have written the text of an error, no file is blamed that can be read.
    """
    text = str(error)[:MAX_READ_CHARACTERS]
    kind, named_kind, message = text.partition(" Error: ")
    ended = _ended(error, text, seconds)
    if ended is not None:
        return ended
    if kind == "Permission":
        return InvalidRequest("QUERY_NOT_ALLOWED", plain_message(message, sql))
    named = any(path.removeprefix("file://") in message for path in (*scanned.data, *scanned.deletes))
    if kind in OF_FILES or (named and kind in BUGS):
        return reading_fault(_of_duckdb(error), scanned)
    unnamed = isinstance(error, duckdb.Error) and not named_kind  # a damaged footer: its reader names no kind
    unread = not_ours_to_read(text) is not None and kind != "Not implemented"
    if (unread or unnamed or named or kind == "Serialization") and kind not in BUGS:
        failed = reread()
        if failed is not None:
            return _ended(failed, str(failed), seconds) or reading_fault(_of_duckdb(failed), scanned)
    if kind in BUGS:
        return InvariantViolated("ENGINE_FAULT", f"the query failed in the engine: {plain_message(message, sql)}")
    return InvalidRequest("QUERY_ERROR", plain_message(text, sql))


def _ended(error: Exception, text: str, seconds: float) -> RegelateError | None:
    """Return the end of the time or of a resource, which says nothing about the query or the files."""
    kind = text.partition(" Error: ")[0]
    if kind == "INTERRUPT":
        return timed_out(seconds)
    no_memory = kind not in QUOTING and NO_MEMORY.search(text[:MAX_READ_CHARACTERS]) is not None
    ran_out = exhausted(duckdb.OutOfMemoryException(text) if no_memory else error)
    if ran_out is None:
        return None
    return out_of_memory() if ran_out.code == out_of_memory().code else ran_out


def _of_duckdb(error: Exception) -> duckdb.Error:
    return error if isinstance(error, duckdb.Error) else duckdb.IOException(str(error)[:MAX_READ_CHARACTERS])


def plain_message(text: str, sql: str = "") -> str:
    """Return an engine's message cut to its first lines, without paths, addresses and names from its own catalog.

    Of SQL it shows the caller's own, which is `sql`.
    """
    lines = text[:MAX_READ_CHARACTERS].partition("Stack Trace:")[0].splitlines()
    kept = [line for line in lines if line.strip() and not line.startswith("Did you mean")]
    kept = [line for line in kept if not line.startswith("LINE ") or _quoted(line) in sql.expandtabs(1)][:3]
    if kept and kept[-1].strip() == "^" and not kept[-2:][0].startswith("LINE "):
        kept = kept[:-1]
    return _ADDRESSES.sub("<address>", _PATHS.sub("<path>", "\n".join(kept)))[:MAX_SHOWN_CHARACTERS]


def _quoted(line: str) -> str:
    """Return what a line such as `LINE 1: ...elect nope fro...` shows of a statement."""
    return line.partition(": ")[2].strip().removeprefix("...").removesuffix("...")
