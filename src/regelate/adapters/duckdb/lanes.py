"""Dictionary lanes: plain files are recoded by PyArrow, which reads texts as the dictionaries that they are stored as.

DuckDB spells out every text and builds its dictionaries anew. A lane is for files of one shape, whose footers have been
looked at strictly before: PyArrow ends the process on a garbled one (trap T31: a garbled footer ends the process).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from regelate.adapters.duckdb.arrow_writer import arrow_schema
from regelate.adapters.duckdb.inputs import local_file
from regelate.core.planning.lanes import DICTIONARY_SHARE, Lane
from regelate.core.running.slices import Slice

BATCH_ROWS = 65_536
SAMPLE_ROWS = 65_536
FEW_SHARE, UNIQUE_SHARE = 0.05, 0.9
"""A column of whose sample fewer or more are distinct is not counted any further."""
ZSTD_LEVEL = 3
"""DuckDB's and Iceberg's; PyArrow's own is 1."""
PAGE_BYTES, DICTIONARY_BYTES = 8 * 1024 * 1024, 16 * 1024 * 1024
PAGE_ROWS = 1 << 30
"""Pages end by their bytes: 20,000 rows, PyArrow's own measure, take a quarter more room."""


class NoLane(Exception):
    """A lane cannot recode these files; a query can, or says what is wrong with them."""


def recode(lane: Lane, piece: Slice, path: str, *, codec: str, rows: int, memory_bytes: int) -> int:
    """Write the rows of local files of one shape into one file of that shape, in row groups of so many rows; return how
    many there were.

    `memory_bytes`: what a row group may take, decoded. Errors: NoLane.
    """
    schema = arrow_schema(lane.columns)
    written = 0
    try:
        with closing(_Sink(path, schema, codec)) as sink:
            for table in _row_groups(_tables(lane, piece, schema), rows, memory_bytes):
                written += sink.write(table)
                del table
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # whatever it is, a query says it better
        raise NoLane(str(error)) from error
    return written


class _Sink:
    """A file that is laid out by the first rows that come: which columns are dictionaries."""

    def __init__(self, path: str, schema: pa.Schema, codec: str) -> None:
        self._path = path
        self._schema = schema
        self._options: dict[str, Any] = {"compression": "none" if codec == "uncompressed" else codec}
        if codec == "zstd":
            self._options["compression_level"] = ZSTD_LEVEL
        self._writer: pq.ParquetWriter | None = None
        self._spelled: frozenset[str] = frozenset()

    def write(self, table: pa.Table) -> int:
        table = table.unify_dictionaries()
        if self._writer is None:
            dictionaries, self._spelled = _layout(table)
            table = _spelled(table, self._spelled)
            self._writer = self._opened(_with_fields(table.schema, self._schema), dictionaries)
        else:
            table = _spelled(table, self._spelled)
        self._writer.write_table(table.cast(self._writer.schema), row_group_size=max(table.num_rows, 1))
        return int(table.num_rows)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _opened(self, schema: pa.Schema, dictionaries: list[str]) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._path,
            schema,
            use_dictionary=dictionaries,
            dictionary_pagesize_limit=DICTIONARY_BYTES,
            data_page_size=PAGE_BYTES,
            max_rows_per_page=PAGE_ROWS,
            write_batch_size=BATCH_ROWS,
            store_decimal_as_integer=True,
            store_schema=False,
            **self._options,
        )


def _tables(lane: Lane, piece: Slice, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a slice row group by row group, as columns of the schema. Errors: NoLane.

    PyArrow's metadata is not asked of columns: there it ends the process over a garbled footer, where its reader raises
    an error.
    """
    names: list[str] = []
    for index, task in enumerate(piece.tasks):
        local = local_file(task.data_file.path)
        if local is None:
            raise NoLane(f"{task.data_file.path} is not on this machine")
        low = piece.first_row if index == 0 else 0
        last = index == len(piece.tasks) - 1
        high = piece.end_row if last and piece.end_row is not None else task.data_file.record_count
        file = pq.ParquetFile(local, pre_buffer=False, read_dictionary=names)
        own = [file.schema_arrow.names[place] for place in lane.texts]
        if own != names:  # those of the first file, or of one from before a rename
            file.close()
            names = own
            file = pq.ParquetFile(local, pre_buffer=False, read_dictionary=names)
        with file:
            start = 0
            for number in range(file.num_row_groups):
                table = _as(file.read_row_group(number, use_threads=False), schema)
                end = start + table.num_rows
                if max(start, low) < min(end, high):
                    yield table.slice(max(low - start, 0), min(end, high) - max(start, low))
                start = end
            if start != task.data_file.record_count:
                raise NoLane(f"{local.name} has {start} rows where its manifest counts {task.data_file.record_count}")


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give the columns of a file the names and types of the table's; dictionaries stay. Errors: NoLane."""
    if table.num_columns != len(schema):
        raise NoLane("its columns are not the table's")
    columns = []
    for read, field in zip(table.columns, schema, strict=True):
        if pa.types.is_dictionary(read.type):
            check_indices(read)
            columns.append(read)
        else:
            columns.append(read if read.type == field.type else read.cast(field.type))
    return pa.Table.from_arrays(columns, names=schema.names)


def check_indices(column: pa.ChunkedArray) -> None:
    """Refuse indices that a dictionary does not have, of nulls too: PyArrow reads what a garbled page names, and would
    write whatever lies there."""
    for chunk in column.chunks:
        indices = chunk.indices
        every = pa.Array.from_buffers(indices.type, len(indices), [None, indices.buffers()[1]], offset=indices.offset)
        bounds = pc.min_max(every)
        if len(chunk) and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < max(len(chunk.dictionary), 1):
            raise NoLane("a page names a value that its dictionary does not have")


def _row_groups(tables: Iterator[pa.Table], rows: int, memory_bytes: int) -> Iterator[pa.Table]:
    """Gather tables into ones of so many rows each, and one of what is left. Errors: NoLane for more than fits."""
    held: list[pa.Table] = []
    count = size = 0
    for table in tables:
        held.append(table)
        count, size = count + table.num_rows, size + table.nbytes
        if size > memory_bytes:
            raise NoLane(f"{count} rows take {size} bytes")
        del table  # nobody but the caller may hold a row group that it is done with: that would be twice the memory
        while count >= rows:
            held = _cut(pa.concat_tables(held), rows)
            count, size = count - rows, held[1].nbytes
            yield held.pop(0)
    if count:
        yield pa.concat_tables(held)


def _cut(table: pa.Table, rows: int) -> list[pa.Table]:
    return [table.slice(0, rows), table.slice(rows)]


def _layout(table: pa.Table) -> tuple[list[str], frozenset[str]]:
    """Return the columns that are written as dictionaries, and those read as such that have too many values for it."""
    dictionaries, spelled = [], set()
    most = table.num_rows // DICTIONARY_SHARE
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            if len(column.chunk(0).dictionary) > most:
                spelled.add(name)
                continue
        elif pa.types.is_boolean(column.type) or not _repeats(column, most):
            continue
        dictionaries.append(name)
    return dictionaries, frozenset(spelled)


def _repeats(column: pa.ChunkedArray, most: int) -> bool:
    """Say whether a column has at most so many values; by a sample, where that says enough."""
    storage = column.cast(column.type.storage_type) if isinstance(column.type, pa.BaseExtensionType) else column
    sample = storage.slice(0, SAMPLE_ROWS)
    share = pc.count_distinct(sample).as_py() / max(len(sample), 1)
    if share > UNIQUE_SHARE or share < FEW_SHARE:
        return bool(share < FEW_SHARE)
    return bool(pc.count_distinct(storage).as_py() <= most)


def _spelled(table: pa.Table, names: Iterable[str]) -> pa.Table:
    for name in names:
        number = table.column_names.index(name)
        column = table.column(number)
        table = table.set_column(number, name, column.cast(column.type.value_type))
    return table


def _with_fields(found: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return the wanted fields, with their ids, as dictionaries where those were found."""
    return pa.schema(
        [
            field.with_type(here.type) if pa.types.is_dictionary(here.type) else field
            for here, field in zip(found, wanted, strict=True)
        ]
    )
