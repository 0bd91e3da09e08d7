"""Fingerprints of rows (law 7: rows are conserved): an order-independent, exact sum of one hash per row, of what was
read and written.

Both sides go through one SQL expression, so they are one function of a row; the readers differ: DuckDB's Iceberg scan
of the group view on one side, PyArrow's Parquet reader on the other. Both stream, so memory does not grow with rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from regelate.adapters.duckdb.sql import identifier, select_slice
from regelate.core.running.rewrite import Fingerprint
from regelate.core.running.slices import Slice
from regelate.core.table.schema import Column
from regelate.errors import Unavailable
from regelate.ports.engine import GroupViews

BATCH_ROWS = 65_536
_LONGEST_SHORT_DECIMAL = 18
_WRITTEN = "written_rows"


def of_views(cursor: duckdb.DuckDBPyConnection, views: GroupViews, scans: Iterable[Slice]) -> Fingerprint:
    """Fingerprint what the rewrite reads: the rows of these tasks through views, deletes applied."""
    found = Fingerprint()
    for scan in scans:
        view = views.write(scan.tasks)
        found += _summed(cursor, f"({select_slice(view, scan)})", view.columns)
    return found


def of_file(cursor: duckdb.DuckDBPyConnection, source: BinaryIO, columns: Sequence[Column], path: str) -> Fingerprint:
    """Fingerprint one written file, read back from its place by PyArrow.

    Errors: Unavailable STORAGE_INCONSISTENT when what is stored there is no such file.
    """
    try:
        stored = pq.ParquetFile(source, pre_buffer=False)
        reader = pa.RecordBatchReader.from_batches(stored.schema_arrow, stored.iter_batches(BATCH_ROWS))
        cursor.register(_WRITTEN, reader)
        try:
            return _summed(cursor, _WRITTEN, _as_stored(columns, stored.schema_arrow))
        finally:
            cursor.unregister(_WRITTEN)
    except (pa.ArrowException, OSError, duckdb.BinderException, duckdb.InvalidInputException) as error:
        first = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise Unavailable("STORAGE_INCONSISTENT", f"{path} cannot be read back: {first}", status=502) from error


def _summed(cursor: duckdb.DuckDBPyConnection, source: str, columns: Sequence[Column]) -> Fingerprint:
    found = cursor.execute(f"SELECT count(*), sum(CAST({row_hash(columns)} AS HUGEINT)) FROM {source}").fetchone()
    rows, total = found or (0, None)
    return Fingerprint(rows=int(rows), total=int(total or 0))


def _as_stored(columns: Sequence[Column], fields: Iterable[pa.Field]) -> list[Column]:
    """Return columns under the names that they have in a file: Iceberg's writer spells odd ones (adapters/parquet)."""
    return [
        replace(column, name=field.name, children=tuple(_as_stored(column.children, _children(field.type))))
        for column, field in zip(columns, fields, strict=True)
    ]


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(i) for i in range(kind.num_fields)]


def row_hash(columns: Sequence[Column]) -> str:
    """Return the SQL of one row's hash, an unsigned 64-bit number.

    Hashed again at the end: before that, the last column enters by a mere XOR, and sums of those can agree by chance.
    """
    return f"hash(hash({', '.join(_hash(identifier(c.name), c) for c in columns)}))"


def _hash(expression: str, column: Column, depth: int = 0) -> str:
    """Return the SQL of one value's hash, by the bits that Iceberg tells apart.

    DuckDB's own `hash` takes -0.0 for 0.0, an empty list for null and [[1], [2]] for [[1, 2]], and gives a 128-bit
    number the XOR of its halves' hashes: zeros carry their sign here, nested values their lengths and nulls, and wide
    decimals and UUIDs go as text. NaN is NaN, whatever its bits.
    """
    if column.type in ("float", "double"):
        return f"hash({expression}, {expression} = 0 AND signbit({expression}))"
    if column.type == "uuid" or _wide_decimal(column.type):
        return f"hash(CAST({expression} AS VARCHAR))"
    if column.type == "struct":
        inner = [_hash(f"{expression}.{identifier(c.name)}", c, depth) for c in column.children]
        return f"hash({', '.join([f'{expression} IS NULL', *inner])})"
    if column.type == "list":
        return f"hash(len({expression}), {_items(expression, column.children[0], depth)})"
    if column.type == "map":
        sides = zip(("key", "value"), column.children, strict=True)
        inner = [_items(f"map_{side}s({expression})", c, depth) for side, c in sides]
        return f"hash({', '.join([f'{expression} IS NULL', f'cardinality({expression})', *inner])})"
    return f"hash({expression})"


def _items(items: str, element: Column, depth: int) -> str:
    name = f"x{depth}"
    return f"list_transform({items}, lambda {name}: {_hash(name, element, depth + 1)})"


def _wide_decimal(type_text: str) -> bool:
    if not type_text.startswith("decimal"):
        return False
    return int(type_text.removeprefix("decimal(").partition(",")[0]) > _LONGEST_SHORT_DECIMAL
