"""Brings a result home: as rows of an answer while they fit, else as lines of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from regelate.adapters.duckdb.encode import encode_batch, result_columns
from regelate.adapters.duckdb.question import MAX_LINES_BYTES, MB, Kind, Limits, as_line
from regelate.adapters.duckdb.sandbox import Deadline
from regelate.errors import InvalidRequest

BATCH_ROWS = 2_048
PIECE_BYTES = 4 * MB
"""Most bytes, as Arrow has them, that are encoded at once, if they are more than one row."""
Say = Callable[[Kind, bytes], None]


@dataclass(slots=True, kw_only=True)
class _Rows:
    """The rows so far: said as rows up to the limit, from then on as lines."""

    limits: Limits
    say: Say
    count: int = 0
    size: int = 0
    storing: bool = False

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Say some rows. Their size counts as the answer may have it at most: non-ASCII characters as escapes."""
        limits, text = self.limits, json.dumps(rows)
        self.count += len(rows)
        self.size += len(text)
        if not self.storing and self.size <= limits.max_bytes:
            self.say(Kind.ROWS, text.encode())
            return
        if limits.max_stored_bytes is None or self.size > limits.max_stored_bytes:
            raise _too_large(limits.max_stored_bytes or limits.max_bytes)
        self.storing = True
        lines = "".join(map(as_line, rows)).encode()
        for start in range(0, len(lines), MAX_LINES_BYTES):
            self.say(Kind.LINES, lines[start : start + MAX_LINES_BYTES])


def _too_large(max_bytes: int) -> InvalidRequest:
    message = f"the result is larger than {max_bytes} bytes of JSON; ask for fewer columns or rows, or page"
    return InvalidRequest("RESULT_TOO_LARGE", message, status=413, max_bytes=max_bytes)


def collect(
    result: duckdb.DuckDBPyConnection, deadline: Deadline, limits: Limits, names: Sequence[str] | None, say: Say
) -> dict[str, Any]:
    """Say all of a result up to the limit on rows; return their count, and whether there were more.

    `names` are its columns' names where the engine's do not count. Errors: InvalidRequest RESULT_TOO_LARGE (413),
    Unavailable QUERY_TIMEOUT.
    """
    columns, encoders = result_columns(result.description)
    if names is not None:
        columns = tuple(replace(c, name=name) for c, name in zip(columns, names, strict=True))
    say(Kind.COLUMNS, json.dumps([asdict(column) for column in columns]).encode())
    labels = [c.name for c in columns]
    truncated = False
    rows = _Rows(limits=limits, say=say)
    for batch in result.to_arrow_reader(BATCH_ROWS):
        wanted = batch.slice(0, limits.max_rows - rows.count)
        for piece in _pieces(wanted):
            deadline.check()
            rows.add(encode_batch(piece, labels, encoders))
        truncated = wanted.num_rows < batch.num_rows
        if truncated:
            break
    return {"row_count": rows.count, "truncated": truncated}


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch of long values, so that the limit on bytes is seen before they are all encoded."""
    rows = max(BATCH_ROWS * PIECE_BYTES // max(batch.nbytes, PIECE_BYTES), 1)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
