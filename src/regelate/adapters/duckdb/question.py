"""What crosses the pipe between this process and one that answers a query: the question, and an answer in frames.

Questions are pickled: the child believes its parent. Answers are JSON, because the parent does not believe a process
in which a caller's SQL has run: no frame of it can do more than be wrong.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from regelate.core.table.storage import ObjectStoreAccess
from regelate.core.table.table import FileScanTask
from regelate.core.values import dataclass
from regelate.errors import (
    DataUnavailable,
    InvalidRequest,
    InvariantViolated,
    RegelateError,
    ResourceExhausted,
    Unavailable,
    Unsupported,
)

MB = 1024 * 1024
HEADER = struct.Struct(">BI")
"""Kind and length of a frame."""
MAX_LINES_BYTES = 1 * MB
"""Most bytes of one frame of a stored result."""
MAX_WORDS_BYTES = 16 * MB
"""Most bytes of a frame that is no row: columns, an error."""
OUT_OF_MEMORY = 77
"""What a child exits with that has no memory left to say so."""
FAULTS: Mapping[str, type[RegelateError]] = {
    kind.__name__: kind
    for kind in (DataUnavailable, InvalidRequest, InvariantViolated, ResourceExhausted, Unavailable, Unsupported)
}


class Kind(IntEnum):
    READY = 1
    """The child has started and waits."""
    COLUMNS = 2
    ROWS = 3
    """A JSON list of rows."""
    LINES = 4
    """Rows of a result that is too large for an answer, one a line, in UTF-8; the parts of one text."""
    DONE = 5
    FAULT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPaths:
    """The files that reading a table opens, by what they are: for naming the one that cannot be read."""

    data: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()


def scan_paths(tasks: Sequence[FileScanTask]) -> ScanPaths:
    """Return the files that reading these tasks opens."""
    deletes = dict.fromkeys(d.path for t in tasks for d in t.deletes)
    return ScanPaths(data=tuple(t.data_file.path for t in tasks), deletes=tuple(deletes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumn:
    """One column of an answer; `type` is Iceberg's text, or DuckDB's where Iceberg has no such type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    text: str
    parameters: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one answer. `max_stored_bytes`: of a result that is stored instead, None where it is refused."""

    max_rows: int
    max_bytes: int
    seconds: float
    max_stored_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One query, planned: the child only runs it.

    `source` selects the table's live rows. With `names` the statement is a caller's SQL: it is judged first, and finds
    the table under them, and as `qualified`, a namespace and a name. `labels` are the columns' names where the engine's
    do not count. `folder` is private to the query. `remote` files are read with `store`.
    """

    statement: Statement
    source: str
    names: tuple[str, ...] = ()
    qualified: tuple[str, str] | None = None
    labels: tuple[str, ...] | None = None
    files: tuple[str, ...]
    scanned: ScanPaths
    limits: Limits
    threads: int
    folder: str
    remote: bool = False
    store: ObjectStoreAccess | None = None


def timed_out(seconds: float) -> Unavailable:
    return Unavailable(
        "QUERY_TIMEOUT",
        f"the query was stopped after {round(seconds, 1):g} seconds; filter more rows or read fewer columns",
        status=504,
        retryable=False,
    )


def out_of_memory() -> ResourceExhausted:
    told = "the query needs more memory than it has; read fewer rows or columns, group by less, or filter first"
    return ResourceExhausted("OUT_OF_MEMORY", told)


def as_line(row: Mapping[str, Any]) -> str:
    """Return a row as a line of a stored result."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def send(pipe: socket.socket, kind: Kind, data: bytes) -> None:
    pipe.sendall(HEADER.pack(kind, len(data)))
    pipe.sendall(data)


def as_words(fault: RegelateError) -> bytes:
    kind = next((name for name, known in FAULTS.items() if type(fault) is known), InvariantViolated.__name__)
    words = {**fault.as_error().as_dict(), "kind": kind, "status": fault.status}
    return json.dumps(words, default=str).encode()


def fault_of(words: Mapping[str, Any]) -> RegelateError:
    """Return the error that a child names. Errors: KeyError, TypeError, ValueError for what is none."""
    details = {str(name): value for name, value in dict(words["details"]).items()}
    return FAULTS[words["kind"]](
        str(words["code"]),
        str(words["message"]),
        status=int(words["status"]),
        retryable=bool(words["retryable"]),
        **details,
    )
