"""Checks the page checksums of a Parquet file, which DuckDB does not look at (trap T29: page checksums are ignored).

A flipped bit in a plain page is a value like any other to a reader that does not check, and a rewrite makes it good.
Java writers (Spark, Flink) leave checksums by default; PyArrow and DuckDB do not, and such files are told apart by
their first page, so that they cost one small read.

Format: Parquet's PageHeader in Thrift's compact protocol. `crc` is the CRC-32 of the page as it is stored.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import BinaryIO

import duckdb

from regelate.adapters.duckdb.sql import file_name
from regelate.core.values import dataclass

FIRST_PAGE = 4
"""After the magic number."""
FIRST_HEADER_BYTES = 64 * 1024
"""Of a header that is longer, the other pages tell."""
_COMPRESSED_SIZE, _CRC = 3, 4
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


class _Cut(Exception):
    """The header goes on after the bytes that were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Where the pages of one column of one row group lie."""

    column: str
    start: int
    size: int


def chunks_of(cursor: duckdb.DuckDBPyConnection, path: str) -> tuple[Chunk, ...]:
    """Read a file's footer. By DuckDB: PyArrow's accessors end the process on a garbled one (trap T31: a garbled footer
    ends the process).

    Errors: duckdb.Error.
    """
    rows = cursor.execute(
        "SELECT path_in_schema, dictionary_page_offset, data_page_offset, total_compressed_size "
        f"FROM parquet_metadata({file_name(path)}) ORDER BY row_group_id, column_id"
    ).fetchall()
    return tuple(
        Chunk(column=str(column).replace(", ", "."), start=min(dictionary or data, data), size=size)
        for column, dictionary, data, size in rows
    )


def damaged_column(source: BinaryIO, chunks: Callable[[], Sequence[Chunk]]) -> str | None:
    """Return the column of a page that fails its checksum, or whose header makes no sense; None where all hold.

    The first page says whether a file has checksums; `chunks` is only asked where it does, or makes no sense itself.
    What cannot be read at all is left to the reader that comes next, which says so better.
    """
    source.seek(FIRST_PAGE)
    try:
        if _CRC not in _header(source.read(FIRST_HEADER_BYTES), 0)[0]:
            return None
    except (_Cut, ValueError):
        pass
    nonsense: str | None = None
    any_checksum = False
    for chunk in chunks():
        if chunk.start < 0 or chunk.size < 0:
            return None
        source.seek(chunk.start)
        for verdict in _pages(source.read(chunk.size)):
            any_checksum |= verdict in (_Page.HOLDS, _Page.DAMAGED)
            if verdict is _Page.DAMAGED:
                return chunk.column
            if verdict is _Page.NONSENSE:
                nonsense = nonsense or chunk.column
    return nonsense if any_checksum else None


class _Page(Enum):
    HOLDS = auto()
    WITHOUT = auto()
    DAMAGED = auto()
    NONSENSE = auto()


def _pages(chunk: bytes) -> Iterator[_Page]:
    """Yield the verdict over each page of a column chunk, up to the first header without sense."""
    at, view = 0, memoryview(chunk)
    while at < len(chunk):
        try:
            fields, data = _header(chunk, at)
        except (_Cut, ValueError):
            yield _Page.NONSENSE
            return
        at = data + fields[_COMPRESSED_SIZE]
        if at > len(chunk):
            yield _Page.NONSENSE
        elif _CRC not in fields:
            yield _Page.WITHOUT
        else:
            sound = zlib.crc32(view[data:at]) == fields[_CRC] & 0xFFFFFFFF
            yield _Page.HOLDS if sound else _Page.DAMAGED


def _header(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """Return the 32-bit fields of a page header by id, and where the page itself begins."""
    fields: dict[int, int] = {}
    number = 0
    while True:
        byte = _byte(data, at)
        at += 1
        if byte == 0:
            if _COMPRESSED_SIZE not in fields or fields[_COMPRESSED_SIZE] < 0:
                raise ValueError("no page header")
            return fields, at
        kind = byte & 0x0F
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _signed(data, at)
        if kind == _I32:
            fields[number], at = _signed(data, at)
        else:
            at = _skipped(data, at, kind)


def _skipped(data: bytes, at: int, kind: int) -> int:
    if kind in (_TRUE, _FALSE):
        return at
    if kind in (_I16, _I32, _I64):
        return _varint(data, at)[1]
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind == _STRUCT:
        while (byte := _byte(data, at)) != 0:
            at += 1
            if not byte >> 4:
                at = _varint(data, at)[1]
            at = _skipped(data, at, byte & 0x0F)
        return at + 1
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    if kind in (_LIST, _SET):
        return _after_list(data, at)
    raise ValueError(f"no page header holds a field of kind {kind}")


def _after_list(data: bytes, at: int) -> int:
    head = _byte(data, at)
    at += 1
    count, kind = head >> 4, head & 0x0F
    if count == 15:
        count, at = _varint(data, at)
    for _ in range(count):
        at = at + 1 if kind in (_TRUE, _FALSE) else _skipped(data, at, kind)
        if at > len(data):
            raise _Cut
    return at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise _Cut
    return data[at]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = _byte(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at
