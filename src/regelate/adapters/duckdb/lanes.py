"""Dictionary lanes: plain files are recoded by PyArrow, which reads texts as the dictionaries that they are stored as.

DuckDB spells out every text and builds its dictionaries anew. A lane is for files of one shape, whose footers have been
looked at strictly before: PyArrow ends the process on a garbled one (trap T31: a garbled footer ends the process).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


LONGEST_BOUND = 4_096
"""Bytes of a bound that PyArrow writes into a footer at most."""


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
        with closing(_Sink(path, schema, codec, memory_bytes)) as sink:
            for table in _row_groups(_tables(lane, piece, schema), rows, memory_bytes):
                written += sink.write(table)
                del table
    except Exception as error:  # whatever it is, a query does it, or says it better
        raise NoLane(str(error)) from error
    return written


class _Sink:
    """A file that is laid out by the first rows that come: which columns are dictionaries."""

    def __init__(self, path: str, schema: pa.Schema, codec: str, memory_bytes: int) -> None:
        self._path = path
        self._memory_bytes = memory_bytes
        self._schema = schema
        self._options: dict[str, Any] = {"compression": "none" if codec == "uncompressed" else codec}
        if codec == "zstd":
            self._options["compression_level"] = ZSTD_LEVEL
        self._writer: pq.ParquetWriter | None = None
        self._spelled: frozenset[str] = frozenset()

    def write(self, table: pa.Table) -> int:
        """Write a row group and return its rows. Errors: NoLane."""
        table = table.unify_dictionaries()
        _check_texts(table)
        writer = self._writer
        if writer is not None:
            table = self._spell(table)
        else:
            dictionaries, self._spelled = _layout(table)
            table = self._spell(table)
            writer = self._writer = self._opened(_with_fields(table.schema, self._schema), dictionaries)
        writer.write_table(table.cast(writer.schema), row_group_size=max(table.num_rows, 1))
        return int(table.num_rows)

    def _spell(self, table: pa.Table) -> pa.Table:
        """Write out the texts of dictionaries that have too many values. Errors: NoLane where they take too much."""
        for name in self._spelled:
            number = table.column_names.index(name)
            column = table.column(number)
            lengths = pc.binary_length(column.chunk(0).dictionary)
            size = sum(pc.sum(lengths.take(chunk.indices)).as_py() or 0 for chunk in column.chunks)
            if size > self._memory_bytes:
                raise NoLane(f"the texts of {name!r} take {size} bytes")
            table = table.set_column(number, name, column.cast(column.type.value_type))
        return table

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
                read = file.read_row_group(number, use_threads=False)
                _check_dictionaries(read, lane.dictionaries[task.data_file.path][number])
                table = _as(read, schema)
                del read
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


def _check_dictionaries(table: pa.Table, entries: Mapping[int, int]) -> None:
    """Refuse dictionaries of other lengths than their pages say: PyArrow leaves out a value that comes again, and does
    not move the indices of those that follow it."""
    for place, column in enumerate(table.columns):
        if not pa.types.is_dictionary(column.type) or place not in entries:
            continue
        if any(len(chunk.dictionary) != entries[place] for chunk in column.chunks if len(chunk)):
            raise NoLane("a dictionary has a value twice, or not all that its page says")


def check_indices(column: pa.ChunkedArray) -> None:
    """Refuse indices that a dictionary does not have, of nulls too: PyArrow reads what a garbled page names, and would
    write whatever lies there."""
    for chunk in column.chunks:
        indices, most = chunk.indices, len(chunk.dictionary)
        if not most and indices.null_count < len(indices):
            raise NoLane("a page names values of a dictionary that has none")
        every = pa.Array.from_buffers(indices.type, len(indices), [None, indices.buffers()[1]], offset=indices.offset)
        bounds = pc.min_max(every)
        if len(chunk) and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < max(most, 1):
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


def _check_texts(table: pa.Table) -> None:
    """Refuse texts that are longer than the bounds that PyArrow writes: one alone would leave a column without any."""
    for column in table.columns:
        dictionary = pa.types.is_dictionary(column.type)
        texts = column.chunk(0).dictionary if dictionary else column
        if pa.types.is_string(texts.type) or pa.types.is_binary(texts.type):
            longest = pc.max(pc.binary_length(texts)).as_py() or 0
            if longest > LONGEST_BOUND:
                raise NoLane(f"a text has {longest} bytes")


def _with_fields(found: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return the wanted fields, with their ids, as dictionaries where those were found."""
    return pa.schema(
        [
            field.with_type(here.type) if pa.types.is_dictionary(here.type) else field
            for here, field in zip(found, wanted, strict=True)
        ]
    )
