"""Walks the pages of a column chunk undecoded: they fill it, count its values, and match their checksums."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from regelate.adapters.parquet.chunks import Chunk
from regelate.adapters.parquet.thrift import Malformed, Struct
from regelate.adapters.parquet.thrift_reader import decode_from

DATA, DICTIONARY, DATA_V2 = 0, 2, 3
"""Types of pages; INDEX_PAGE (1) was never written by anybody."""
TYPE, UNCOMPRESSED, COMPRESSED, CRC, DATA_HEADER, DICTIONARY_HEADER, V2_HEADER = 1, 2, 3, 4, 5, 7, 8
_HEADERS = {DATA: DATA_HEADER, DICTIONARY: DICTIONARY_HEADER, DATA_V2: V2_HEADER}
_HEADER_BYTES = (256, 16 * 1024, 1024 * 1024)
"""What is read for a header: nearly all are short, some hold long bounds."""
HEADER_VALUES = 1_000
DICTIONARIES = frozenset((2, 8))
"""PLAIN_DICTIONARY and RLE_DICTIONARY, among the encodings."""
COPY_BYTES = 8 * 1024 * 1024
BITS = 0xFFFFFFFF
_LEVELS = (3, 4)
"""How levels are encoded: RLE, and BIT_PACKED of old."""


class Page(NamedTuple):
    """A page as it is stored: its header of so many bytes begins at `at`, and `size` bytes follow that."""

    at: int
    header: Struct
    header_bytes: int
    size: int


def pages_between(file: BinaryIO, at: int, end: int) -> Iterator[Page]:
    """Yield the pages that fill a file between two places. Errors: Malformed at the first that makes no sense."""
    while at < end:
        header, length = _header(file, at, end)
        size = header.whole(COMPRESSED)
        if size is None or not 0 <= size <= end - at - length:
            raise Malformed(f"there is no page at byte {at}")
        yield Page(at, header, length, size)
        at += length + size


def checksum(file: BinaryIO, chunk: Chunk) -> int:
    """Return the CRC-32 of a chunk's bytes, having walked its pages.

    Errors: Malformed where they do not fill the chunk, hold other values than its metadata says, or one that has a
    checksum does not match it.
    """
    found = 0

    def add(data: bytes) -> None:
        nonlocal found
        found = zlib.crc32(data, found)

    _walk(file, chunk, add)
    return found


def dictionary_entries(file: BinaryIO, chunk: Chunk) -> int | None:
    """Return how many values the dictionary of a chunk has, by which all of its data pages are encoded; None where some
    are not. Errors: Malformed."""
    entries: int | None = None
    for page in pages_between(file, chunk.start, chunk.start + chunk.size):
        kind = page.header.whole(TYPE)
        inner = page.header.struct(_HEADERS.get(-1 if kind is None else kind, -1))
        if inner is None:
            raise Malformed(f"there is no page at byte {page.at}")
        if kind == DICTIONARY:
            entries = _counted(inner.whole(1), page.at)
        elif inner.whole(4 if kind == DATA_V2 else 2) not in DICTIONARIES:
            return None
    return entries


def _walk(file: BinaryIO, chunk: Chunk, add: Callable[[bytes], None]) -> None:
    values = uncompressed = data_pages = 0
    for page in pages_between(file, chunk.start, chunk.start + chunk.size):
        at, header = page.at, page.header
        kind = header.whole(TYPE)
        inner = header.struct(_HEADERS.get(-1 if kind is None else kind, -1))
        if inner is None:
            raise Malformed(f"there is no page at byte {at}")
        if kind == DICTIONARY:
            if at != chunk.start or at == chunk.first_data:
                raise Malformed(f"a dictionary at byte {at} is not at the beginning of its column")
        else:
            if not data_pages and at != chunk.first_data:
                raise Malformed(f"the data pages begin at byte {at} and not at {chunk.first_data}")
            data_pages += 1
            values += _values(inner, chunk, page.size, at, v2=kind == DATA_V2)
        uncompressed += page.header_bytes + _counted(header.whole(UNCOMPRESSED), at)
        _check_page(file, page, add)
    if values != chunk.values:
        raise Malformed(f"the pages at byte {chunk.start} hold {values} values and not {chunk.values}")
    if uncompressed != chunk.uncompressed:
        raise Malformed(f"the pages at byte {chunk.start} have {uncompressed} bytes and not {chunk.uncompressed}")


def _values(inner: Struct, chunk: Chunk, size: int, at: int, *, v2: bool) -> int:
    """Return how many values a data page says that it holds, where its header makes sense."""
    encoding = inner.whole(4 if v2 else 2)
    levels = [inner.whole(5), inner.whole(6)] if v2 else []
    coded = [] if v2 else [inner.whole(3), inner.whole(4)]
    if encoding not in chunk.encodings or any(one not in _LEVELS for one in coded):
        raise Malformed(f"the page at byte {at} is encoded as its column is not")
    if v2 and sum(_counted(length, at) for length in levels) > size:
        raise Malformed(f"the levels of the page at byte {at} do not fit into it")
    return _counted(inner.whole(1), at)


def _counted(number: int | None, at: int) -> int:
    if number is None or number < 0:
        raise Malformed(f"the page at byte {at} does not say how large it is")
    return number


def _header(file: BinaryIO, at: int, end: int) -> tuple[Struct, int]:
    """Return the page header at a place, and how long it is."""
    for size in _HEADER_BYTES:
        file.seek(at)
        data = file.read(min(size, end - at))
        try:
            return decode_from(data, 0, max_values=HEADER_VALUES)
        except Malformed:
            if len(data) < size or size == _HEADER_BYTES[-1]:
                raise
    raise Malformed(f"there is no page at byte {at}")


def _check_page(file: BinaryIO, page: Page, add: Callable[[bytes], None]) -> None:
    """Read a page with its header, and hold it to its checksum where it has one."""
    file.seek(page.at)
    add(read_all(file, page.header_bytes))
    size, expected, found = page.size, page.header.whole(CRC), 0
    while size:
        data = read_all(file, min(size, COPY_BYTES))
        add(data)
        if expected is not None:
            found = zlib.crc32(data, found)
        size -= len(data)
    if expected is not None and found != expected & BITS:
        raise Malformed(f"the page at byte {page.at} does not match its checksum")


def read_all(file: BinaryIO, size: int) -> bytes:
    """Return the next bytes of a file. Errors: Malformed where it ends before."""
    data = file.read(size)
    if len(data) != size:
        raise Malformed("it became shorter while it was read")
    return data
