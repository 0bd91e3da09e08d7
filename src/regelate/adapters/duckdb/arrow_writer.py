"""Writes Parquet with PyArrow where DuckDB cannot be faithful: `fixed[n]` would come out as plain BYTE_ARRAY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from regelate.core.table.schema import Column

BATCH_ROWS = 65_536
_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.uuid(),
}


def needs_arrow(columns: Sequence[Column]) -> bool:
    return any(leaf.type.startswith("fixed") for column in columns for leaf in column.leaves)


class Misfit(Exception):
    """Rows that are not as the columns want them: a required one has a null."""


def write_shaped(
    cursor: duckdb.DuckDBPyConnection,
    select: str,
    path: str,
    columns: Sequence[Column],
    *,
    codec: str,
    row_group_size: int,
) -> int:
    """Do as `write_with_arrow`, but make nothing optional: the file must be of the shape of others. Errors: Misfit."""
    try:
        return _stream(cursor, select, path, columns, codec=codec, row_group_size=row_group_size)
    except ValueError as error:
        raise Misfit(str(error)) from error


def write_with_arrow(
    cursor: duckdb.DuckDBPyConnection,
    select: str,
    path: str,
    columns: Sequence[Column],
    *,
    codec: str,
    row_group_size: int,
) -> int:
    """Stream the rows of a SELECT into one Parquet file with field ids; return the number of rows.

    A required column that holds a null all the same, as another writer left it, makes every column an optional one.
    """
    try:
        return _stream(cursor, select, path, columns, codec=codec, row_group_size=row_group_size)
    except ValueError:
        if not any(c.required for column in columns for c in column.walk()):
            raise
    optional = [_optional(c) for c in columns]
    return _stream(cursor, select, path, optional, codec=codec, row_group_size=row_group_size)


def _stream(
    cursor: duckdb.DuckDBPyConnection,
    select: str,
    path: str,
    columns: Sequence[Column],
    *,
    codec: str,
    row_group_size: int,
) -> int:
    cursor.execute("SET arrow_lossless_conversion = true")  # else a uuid comes out as text
    schema = arrow_schema(columns)
    reader = cursor.execute(select).to_arrow_reader(BATCH_ROWS)
    rows = 0
    named = "none" if codec == "uncompressed" else codec  # Iceberg's word, and PyArrow's
    with pq.ParquetWriter(path, schema, compression=named, store_decimal_as_integer=True) as writer:
        pending: list[pa.RecordBatch] = []
        held = 0
        for batch in reader:
            rows += batch.num_rows
            pending.append(batch)
            held += batch.num_rows
            if held >= row_group_size:
                writer.write_table(pa.Table.from_batches(pending).cast(schema), row_group_size=row_group_size)
                pending, held = [], 0
        if pending:
            writer.write_table(pa.Table.from_batches(pending).cast(schema), row_group_size=row_group_size)
    return rows


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the columns as Arrow has them, with their field ids."""
    return pa.schema([_field(c) for c in columns])


def _optional(column: Column) -> Column:
    return replace(column, required=False, children=tuple(_optional(c) for c in column.children))


def _field(column: Column) -> pa.Field:
    """Return a column as Arrow has it, with its field id and whether it may be null, at every depth."""
    if column.type == "struct":
        kind = pa.struct([_field(c) for c in column.children])
    elif column.type == "list":
        kind = pa.list_(_field(column.children[0]).with_name("element"))
    elif column.type == "map":
        key, value = column.children
        kind = pa.map_(_field(key).with_nullable(False), _field(value))
    else:
        kind = _primitive(column.type)
    return pa.field(
        column.name, kind, nullable=not column.required, metadata={"PARQUET:field_id": str(column.field_id)}
    )


def _primitive(text: str) -> pa.DataType:
    """Return the Arrow type of an Iceberg type text."""
    if text.startswith("decimal"):
        precision, scale = text.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    if text.startswith("fixed"):
        return pa.binary(int(text.removeprefix("fixed[").removesuffix("]")))
    return _TYPES[text]
