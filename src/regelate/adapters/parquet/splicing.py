"""Joins Parquet files of one shape into one: row groups follow each other as they are, and only the footer is new.

Pages, dictionaries and bloom filters move by as many bytes as lie before their file's own. Page indexes hold places in
their file, and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from regelate.adapters.parquet.footer import COLUMNS, MAGIC, META_DATA, ROW_GROUPS, Footer, ended, read_footer
from regelate.adapters.parquet.thrift import BITS, I16, I64, LIST, STRUCT, Items, Malformed, Struct
from regelate.adapters.parquet.thrift_reader import decode
from regelate.adapters.parquet.thrift_writer import encode

NUM_ROWS = 3
"""A field of FileMetaData. Of a RowGroup:"""
GROUP_ROWS, GROUP_OFFSET, ORDINAL = 3, 5, 7
CHUNK_OFFSET, PAGE_INDEX = 2, (4, 5, 6, 7)
"""Fields of a ColumnChunk; and of its metadata:"""
SIZE, DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, BLOOM_FILTER = 7, 9, 10, 11, 14
MAX_ORDINAL = 2**15 - 1
COPY_BYTES = 8 * 1024 * 1024


def splice(pieces: Sequence[str], target: str) -> bool:
    """Join local files into a new one, in their order; False, and nothing is done, where they cannot be one.

    They can where their footers say the same of everything but rows: schema, writer, keys and values. Each piece is
    deleted once it is copied, so that the disk holds one of them twice at most; half a file is not left behind. Errors:
    Malformed for what is no Parquet file, or points outside of itself.
    """
    footers = [_footer(piece) for piece in pieces]
    shape = _shape(footers[0][1])
    if any(_shape(other) != shape for _, other in footers[1:]):
        return False
    try:
        _join(pieces, footers, target)
    except BaseException:  # on a full disk, half a file is in the way of the next attempt
        Path(target).unlink(missing_ok=True)
        raise
    return True


def _join(pieces: Sequence[str], footers: Sequence[tuple[Footer, Struct]], target: str) -> None:
    joined = footers[0][1]
    groups: list[Struct] = []
    rows = 0
    with Path(target).open("wb") as sink:
        sink.write(MAGIC)
        for piece, (place, footer) in zip(pieces, footers, strict=True):
            shift = sink.tell() - len(MAGIC)
            for group in footer.structs(ROW_GROUPS):
                if own := group.whole(GROUP_ROWS):
                    rows += own
                    groups.append(_moved(group, shift, place.start, len(groups)))
            with Path(piece).open("rb") as source:
                source.seek(len(MAGIC))
                _copy(source, sink, place.start - len(MAGIC))
            Path(piece).unlink()
        joined.put(NUM_ROWS, I64, rows)
        joined.put(ROW_GROUPS, LIST, Items(STRUCT, list(groups)))
        sink.write(ended(encode(joined)))


def _footer(path: str) -> tuple[Footer, Struct]:
    with Path(path).open("rb") as file:
        found = read_footer(file)
    return found, decode(found.data)


def _shape(footer: Struct) -> bytes:
    """Everything that a footer says but for its rows."""
    return encode(Struct({number: field for number, field in footer.items() if number not in (NUM_ROWS, ROW_GROUPS)}))


def _moved(group: Struct, shift: int, end: int, ordinal: int) -> Struct:
    """Return a row group with its places moved; `end`: where the footer of its file begins, before which they all
    lie."""
    if group.whole(GROUP_OFFSET):
        _move(group, GROUP_OFFSET, shift, end)
    if ordinal > MAX_ORDINAL:
        group.drop(ORDINAL)
    elif ORDINAL in group:
        group.put(ORDINAL, I16, ordinal)
    for chunk in group.structs(COLUMNS):
        meta = chunk.struct(META_DATA)
        if meta is None:
            raise Malformed("a column's metadata lies elsewhere")
        _check_inside(meta, end)
        for number in (DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, BLOOM_FILTER):
            _move(meta, number, shift, end)
        _move(chunk, CHUNK_OFFSET, shift, end)
        chunk.drop(*PAGE_INDEX)
    return group


def _check_inside(meta: Struct, end: int) -> None:
    """Refuse a column chunk whose pages would lie in the next file's. Errors: Malformed."""
    first = min(meta.whole(DATA_PAGE) or 0, meta.whole(DICTIONARY_PAGE) or end)
    if first < len(MAGIC) or first + (meta.whole(SIZE) or 0) > end:
        raise Malformed(f"a column chunk at byte {first} does not lie within its file")


def _move(struct: Struct, number: int, shift: int, end: int) -> None:
    """Move a place; 0, as some writers say, is none."""
    at = struct.whole(number)
    if not at:
        return
    if not len(MAGIC) <= at < end:
        raise Malformed(f"a place at byte {at} does not lie within its file")
    kind, _ = struct[number]
    struct[number] = (kind if kind in BITS else I64, at + shift)


def _copy(source: BinaryIO, sink: BinaryIO, size: int) -> None:
    while size:
        piece = source.read(min(size, COPY_BYTES))
        if not piece:
            raise Malformed("it became shorter while it was read")
        sink.write(piece)
        size -= len(piece)
