"""Where a Parquet file keeps its footer, and how another takes its place: nothing before it moves."""

from __future__ import annotations

import os
from typing import BinaryIO

from regelate.adapters.parquet.thrift import Malformed
from regelate.core.values import dataclass

MAGIC = b"PAR1"
ROW_GROUPS = 4
"""A field of FileMetaData; of a RowGroup: COLUMNS; of a ColumnChunk: META_DATA."""
COLUMNS, META_DATA = 1, 3
TAIL = 8
"""The last bytes of a file: how long the footer is, and the magic."""
SHORTEST_FILE = len(MAGIC) + TAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """FileMetaData as bytes, and the place in the file where they begin; pages and indexes all lie before it."""

    start: int
    data: bytes


def read_footer(file: BinaryIO) -> Footer:
    """Read the footer of an open file. Errors: Malformed for what is no Parquet file, or an encrypted one."""
    size = file.seek(0, os.SEEK_END)
    if size < SHORTEST_FILE:
        raise Malformed(f"{size} bytes are no Parquet file")
    file.seek(size - TAIL)
    tail = file.read(TAIL)
    if tail[4:] != MAGIC:
        raise Malformed(f"a file that ends in {tail[4:]!r} is no Parquet file, or its footer is encrypted")
    length = int.from_bytes(tail[:4], "little")
    if length > size - SHORTEST_FILE:
        raise Malformed(f"a footer of {length} bytes does not fit into a file of {size}")
    start = size - TAIL - length
    file.seek(start)
    return Footer(start=start, data=file.read(length))


def replace_footer(file: BinaryIO, old: Footer, data: bytes) -> None:
    """Write other bytes in the place of a footer. A reader must not look meanwhile, nor after a crash in it."""
    file.seek(old.start)
    file.write(ended(data))
    file.truncate()


def ended(data: bytes) -> bytes:
    """Return a footer with what a file ends in."""
    return data + len(data).to_bytes(4, "little") + MAGIC
