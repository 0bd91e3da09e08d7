"""Writes the rows of a SELECT into one Parquet file, by the faster of two ways that is faithful to its values."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from regelate.adapters.duckdb import sql
from regelate.adapters.duckdb.arrow_writer import needs_arrow, write_shaped, write_with_arrow
from regelate.core.table.schema import Column


def write_rows(
    cursor: duckdb.DuckDBPyConnection,
    select: str,
    path: str,
    columns: Sequence[Column],
    *,
    codec: str,
    row_group_size: int,
    shaped: Sequence[Column] | None = None,
) -> int:
    """Write one file and return its number of rows; `shaped`: of these columns, by PyArrow, whatever is in it.

    DuckDB's COPY is about twice as fast as PyArrow, but its dictionaries take -0.0 and 0.0 for one value (trap T24: the
    sign of zero). The COPY therefore stops at the first -0.0, and such a file is written by PyArrow, like one with
    `fixed` columns. Errors: Misfit where a column of `shaped` is required and has a null.
    """
    if shaped is not None:
        return write_shaped(cursor, select, path, shaped, codec=codec, row_group_size=row_group_size)
    if not needs_arrow(columns):
        guarded = sql.without_negative_zeros(select, columns)
        text = sql.copy(guarded, path, columns, codec=codec, row_group_size=row_group_size)
        try:
            found = cursor.execute(text).fetchone()
            return int(found[0]) if found else 0
        except duckdb.InvalidInputException as error:
            if sql.NEGATIVE_ZERO not in str(error):
                raise
    return write_with_arrow(cursor, select, path, columns, codec=codec, row_group_size=row_group_size)
