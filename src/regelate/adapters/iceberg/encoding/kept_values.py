"""Completes the rows of an upsert: what a record does not name is kept from the row that has its key in the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from regelate.adapters.iceberg.encoding.coerce import coerce_stored
from regelate.adapters.iceberg.encoding.key_faults import key_text
from regelate.adapters.iceberg.encoding.row_faults import (
    DUPLICATE_KEY_IN_TABLE,
    MAX_FAULTS,
    SCHEMA_MISMATCH,
    Fault,
    rows_error,
)
from regelate.core.running.given_rows import RECORD, GivenRows
from regelate.core.running.group_view import name_in_view
from regelate.core.table.schema import Column


def fill(
    columns: Sequence[Column], schema: pa.Schema, given: GivenRows, stored: pa.Table | None, key: Sequence[str]
) -> pa.Table:
    """Return the rows in the table's schema, every cell that is absent in `given` from `stored`, or null where no row
    is stored.

    `stored`: the rows of the table that have a record's key, with at least the columns that any record lacks.
    Errors: InvalidRequest 422 DUPLICATE_KEY_IN_TABLE where a record lacks something that two rows have,
    SCHEMA_MISMATCH for a required column of a record that no row has, NULL_IN_REQUIRED for one that is stored as null.
    """
    rows: pa.Table = given.rows
    absent: Mapping[int, pa.Array] = given.absent
    if stored is None or not absent:
        stored = pa.table({RECORD: pa.array([], pa.int64()), **{name_in_view(i): pa.nulls(0) for i in absent}})
    records = stored[RECORD].combine_chunks()
    _check_single(rows, absent, records, key)
    numbers = pa.array(range(rows.num_rows), pa.int64())
    arrays: list[pa.Array] = []
    faults: list[tuple[int, Fault]] = []
    for at, (column, field) in enumerate(zip(columns, schema, strict=True)):
        array = rows.column(at).combine_chunks()
        mask = absent.get(column.field_id)
        if mask is not None:
            wanted = mask.take(records)
            mine = records.filter(wanted)
            found = stored[name_in_view(column.field_id)].combine_chunks().filter(wanted)
            kept = coerce_stored(column, field.type, found, mine)
            places = pc.index_in(numbers, value_set=mine).cast(pa.int64())
            if column.required:
                faults += _missing(column, pc.and_(mask, pc.is_null(places)))
            places = pc.coalesce(pc.add(places, pa.scalar(rows.num_rows, pa.int64())), numbers)
            array = pa.concat_arrays([array, kept]).take(places)
        arrays.append(array)
    if faults:
        raise rows_error(faults)
    return pa.Table.from_arrays(arrays, schema=schema)


def _missing(column: Column, mask: pa.Array) -> Iterator[tuple[int, Fault]]:
    """Name the first records that a required column has no value for."""
    for row in pc.indices_nonzero(mask)[:MAX_FAULTS].to_pylist():
        got = "no value, and the table has no row with this key to keep one of"
        yield row, Fault(code=SCHEMA_MISMATCH, path=column.name, expected=f"required {column.type}", got=got)


def _check_single(rows: pa.Table, absent: Mapping[int, pa.Array], records: pa.Array, key: Sequence[str]) -> None:
    """Refuse a record that lacks a column while several rows of the table have its key."""
    if not absent:
        return
    lacking = reduce(pc.or_, absent.values())
    counts = pc.value_counts(records.filter(lacking.take(records)))
    shared = sorted((c["values"], c["counts"]) for c in counts.to_pylist() if c["counts"] > 1)[:MAX_FAULTS]
    if shared:
        raise rows_error(
            (
                row,
                Fault(
                    code=DUPLICATE_KEY_IN_TABLE,
                    path=", ".join(key),
                    expected="at most one row in the table to keep values of (give every column of this record, or "
                    "remove the others)",
                    got=f"{count} rows in the table with the key {key_text([rows[name][row] for name in key])}",
                ),
            )
            for row, count in shared
        )
