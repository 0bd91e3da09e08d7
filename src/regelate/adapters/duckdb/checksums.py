"""Checks the page checksums of a Parquet file, which DuckDB does not look at (trap T29).

A flipped bit in a plain page is a value like any other to a reader that does not check, and a rewrite makes it good.
Java writers (Spark, Flink) leave checksums by default; PyArrow and DuckDB do not, and such files are told apart by
their first page, so that they cost one small read.

Format: Parquet's PageHeader in Thrift's compact protocol. `crc` is the CRC-32 of the page as it is stored.
"""

from __future__ import annotations

import zlib
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

FIRST_PAGE = 4
"""After the magic number."""
FIRST_HEADER_BYTES = 64 * 1024
"""Of a header that is longer, nothing is known but that nobody reads it wrongly: the file counts as without."""
_COMPRESSED_SIZE, _CRC = 3, 4
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


class _Cut(Exception):
    """The header goes on after the bytes that were read."""


def damaged_column(source: BinaryIO) -> str | None:
    """Return the column of the first page that fails its checksum; None when all hold or the file has none.

    What cannot be read at all is left to the reader that comes next, which says so better.
    """
    try:
        source.seek(FIRST_PAGE)
        if _CRC not in _header(source.read(FIRST_HEADER_BYTES), 0)[0]:
            return None
        return _first_damaged(source)
    except (_Cut, pa.ArrowException, OSError, ValueError, IndexError, OverflowError):
        return None


def _first_damaged(source: BinaryIO) -> str | None:
    footer = pq.read_metadata(source)
    for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
        for column in (group.column(i) for i in range(group.num_columns)):
            start = column.data_page_offset
            if column.dictionary_page_offset:
                start = min(start, column.dictionary_page_offset)
            source.seek(start)
            if not _holds(source.read(column.total_compressed_size)):
                return str(column.path_in_schema)
    return None


def _holds(chunk: bytes) -> bool:
    at, view = 0, memoryview(chunk)
    while at < len(chunk):
        fields, data = _header(chunk, at)
        at = data + fields[_COMPRESSED_SIZE]
        if at > len(chunk):
            return False
        if _CRC in fields and zlib.crc32(view[data:at]) != fields[_CRC] & 0xFFFFFFFF:
            return False
    return True


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
    raise ValueError(f"no page header holds a field of kind {kind}")


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
