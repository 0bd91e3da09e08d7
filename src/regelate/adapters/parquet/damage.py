"""Finds the columns of a file that were damaged since it was written, by the checksums of its pages.

DuckDB does not look at them (trap T29: page checksums are ignored). A flipped bit in a plain page is a value like any
other to a reader that does not check, and a rewrite makes it good. Java writers (Spark, Flink) leave checksums by
default; PyArrow and DuckDB do not, and such files are told apart by their first page, so that they cost one small read.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import BinaryIO

from regelate.adapters.parquet.footer import MAGIC
from regelate.adapters.parquet.pages import BITS, CRC, HEADER_VALUES, pages_between
from regelate.adapters.parquet.thrift import Malformed
from regelate.adapters.parquet.thrift_reader import decode_from
from regelate.core.planning.splicing import StoredColumn

FIRST_HEADER_BYTES = 64 * 1024
"""Of a header that is longer, the other pages tell."""


class _Verdict(Enum):
    HOLDS = auto()
    WITHOUT = auto()
    DAMAGED = auto()
    NONSENSE = auto()


def damaged_column(source: BinaryIO, columns: Callable[[], Sequence[StoredColumn]]) -> str | None:
    """Return the column of a page that fails its checksum, or whose header makes no sense; None where all hold.

    The first page says whether a file has checksums; `columns` is only asked where it does, or makes no sense itself.
    What cannot be read at all is left to the reader that comes next, which says so better.
    """
    source.seek(len(MAGIC))
    try:
        if CRC not in decode_from(source.read(FIRST_HEADER_BYTES), 0, max_values=HEADER_VALUES)[0]:
            return None
    except Malformed:
        pass
    nonsense: str | None = None
    any_checksum = False
    for column in columns():
        if column.start < 0 or column.size < 0:
            return None
        source.seek(column.start)
        found = _verdicts(source.read(column.size))
        if _Verdict.DAMAGED in found:
            return column.name
        any_checksum |= _Verdict.HOLDS in found
        if _Verdict.NONSENSE in found:
            nonsense = nonsense or column.name
    return nonsense if any_checksum else None


def _verdicts(chunk: bytes) -> set[_Verdict]:
    """Return what is found of the pages of a column chunk, up to the first that makes no sense or is damaged."""
    found: set[_Verdict] = set()
    view = memoryview(chunk)
    try:
        for page in pages_between(io.BytesIO(chunk), 0, len(chunk)):
            expected, data = page.header.whole(CRC), page.at + page.header_bytes
            if expected is None:
                found.add(_Verdict.WITHOUT)
            elif zlib.crc32(view[data : data + page.size]) == expected & BITS:
                found.add(_Verdict.HOLDS)
            else:
                return found | {_Verdict.DAMAGED}
    except Malformed:
        found.add(_Verdict.NONSENSE)
    return found
