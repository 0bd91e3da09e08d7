"""What can be wrong with the keys of an upsert's rows: nulls, and one key in two rows."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from regelate.adapters.iceberg.encoding.row_faults import (
    DUPLICATE_KEY,
    MAX_FAULTS,
    NULL_IN_KEY,
    Fault,
    rows_error,
    shown,
)

_ROW = "row"


def check_keys(columns: Mapping[str, pa.Array]) -> None:
    """Refuse key columns that hold a null, or the same key in two rows.

    Errors: InvalidRequest 422 NULL_IN_KEY or DUPLICATE_KEY, with the first faults by row (from 0) and column.
    """
    nulls = [fault for name, column in columns.items() for fault in _nulls(name, column)]
    if nulls:
        raise rows_error(nulls)
    numbered = {str(i): _plain(column) for i, column in enumerate(columns.values())}
    rows = pa.table({**numbered, _ROW: pa.array(range(len(next(iter(columns.values())))), pa.int64())})
    groups = rows.group_by(list(numbered)).aggregate([([], "count_all")])
    if groups.num_rows < rows.num_rows:
        raise rows_error(_repeats(columns, rows, list(numbered)))


def _nulls(name: str, column: pa.Array) -> Iterator[tuple[int, Fault]]:
    if not column.null_count:
        return
    for row in pc.indices_nonzero(pc.is_null(column))[:MAX_FAULTS].to_pylist():
        yield row, Fault(code=NULL_IN_KEY, path=name, expected="a value, as an upsert finds rows by it", got="null")


def _repeats(columns: Mapping[str, pa.Array], rows: pa.Table, keys: list[str]) -> Iterator[tuple[int, Fault]]:
    """Name the first rows whose key an earlier row has."""
    groups = rows.group_by(keys).aggregate([(_ROW, "list")])[f"{_ROW}_list"]
    shared = (sorted(found) for found in groups.filter(pc.greater(pc.list_value_length(groups), 1)).to_pylist())
    for row, earlier in sorted((row, found[0]) for found in shared for row in found[1:])[:MAX_FAULTS]:
        value = key_text([column[row] for column in columns.values()])
        yield (
            row,
            Fault(
                code=DUPLICATE_KEY,
                path=", ".join(columns),
                expected="one record for each key (send the last one only)",
                got=f"{value}, as in row {earlier}",
            ),
        )


def key_text(values: Sequence[pa.Scalar]) -> str:
    """Return the values of one key as a fault shows them."""
    return ", ".join(shown(_json(value.as_py())) for value in values)


def _plain(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _json(value: object) -> object:
    """Return a key's value as JSON has it."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    return value if isinstance(value, bool | int | str | Decimal) else str(value)
