"""Brings a result home: as rows of an answer while they fit, else as lines of a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import duckdb

from regelate.adapters.duckdb.encode import ResultColumn, encode_batch, json_bytes, result_columns
from regelate.adapters.duckdb.sandbox import Deadline
from regelate.errors import InvalidRequest

BATCH_ROWS = 2_048


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Rows are objects by column name, ready for JSON. `truncated`: there were more rows than asked for or allowed.

    Where the rows were too many bytes, `rows` is empty and the file `stored` has them, one JSON object a line.
    """

    columns: tuple[ResultColumn, ...]
    rows: tuple[dict[str, Any], ...]
    row_count: int
    truncated: bool
    stored: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """The file that takes what is too large for an answer, and how large it may become."""

    path: Path
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_rows: int
    max_bytes: int
    seconds: float
    overflow: Overflow | None = None


@dataclass(slots=True, kw_only=True)
class _Rows:
    """The rows so far: in memory up to the limit, from then on in the overflow file."""

    limits: Limits
    stack: ExitStack
    kept: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    size: int = 0
    file: TextIO | None = None

    def add(self, rows: list[dict[str, Any]]) -> None:
        self.count += len(rows)
        self.size += json_bytes(rows)
        overflow = self.limits.overflow
        if self.file is None and self.size <= self.limits.max_bytes:
            self.kept += rows
            return
        if overflow is None or self.size > overflow.max_bytes:
            raise _too_large(self.limits.max_bytes if overflow is None else overflow.max_bytes)
        if self.file is None:
            self.file = self.stack.enter_context(overflow.path.open("w", encoding="utf-8"))
            rows, self.kept = self.kept + rows, []
        self.file.writelines(f"{_line(row)}\n" for row in rows)


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _too_large(max_bytes: int) -> InvalidRequest:
    message = f"the result is larger than {max_bytes} bytes of JSON; ask for fewer columns or rows, or page"
    return InvalidRequest("RESULT_TOO_LARGE", message, status=413, max_bytes=max_bytes)


def collect(
    result: duckdb.DuckDBPyConnection, deadline: Deadline, limits: Limits, names: Sequence[str] | None
) -> QueryResult:
    """Return all of a result up to the limit on rows; `names` are its columns' names where the engine's do not count.

    Errors: InvalidRequest RESULT_TOO_LARGE (413), Unavailable QUERY_TIMEOUT.
    """
    columns, encoders = result_columns(result.description)
    if names is not None:
        columns = tuple(replace(c, name=name) for c, name in zip(columns, names, strict=True))
    labels = [c.name for c in columns]
    truncated = False
    with ExitStack() as stack:
        rows = _Rows(limits=limits, stack=stack)
        for batch in result.to_arrow_reader(BATCH_ROWS):
            deadline.check()
            wanted = batch.slice(0, limits.max_rows - rows.count)
            rows.add(encode_batch(wanted, labels, encoders))
            truncated = wanted.num_rows < batch.num_rows
            if truncated:
                break
    stored = None if rows.file is None or limits.overflow is None else str(limits.overflow.path)
    kept = tuple(rows.kept)
    return QueryResult(columns=columns, rows=kept, row_count=rows.count, truncated=truncated, stored=stored)
