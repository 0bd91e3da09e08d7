"""Joins row groups of several Parquet files into one file: their pages byte for byte, under a footer made anew.

Column chunks move; what their metadata says of pages and values comes along. Page indexes hold places, and do not. What
was written is read back and held against what it was made from before anybody else sees it.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from regelate import __version__
from regelate.adapters.parquet.annotations import BYTE_ARRAY, annotate
from regelate.adapters.parquet.chunks import KIND, STATISTICS, Chunk, placed
from regelate.adapters.parquet.footer import COLUMNS, MAGIC, ROW_GROUPS, ended
from regelate.adapters.parquet.inputs import (
    COLUMN_ORDERS,
    CREATED_BY,
    GROUP_ROWS,
    NUM_ROWS,
    SCHEMA,
    VERSION,
    Group,
    ParquetFile,
    leaves_of,
    read_file,
    type_orders,
)
from regelate.adapters.parquet.pages import COPY_BYTES, DICTIONARIES, checksum, dictionary_entries, read_all
from regelate.adapters.parquet.shape import Shape, arrow_shape, duckdb_shape, required_as
from regelate.adapters.parquet.thrift import BINARY, I16, I32, I64, LIST, STRUCT, Items, Malformed, Raw, Struct
from regelate.adapters.parquet.thrift_writer import encode
from regelate.core.planning.splicing import MIXED, RowGroup, StoredFile
from regelate.core.running.parts import Source
from regelate.core.table.schema import Column
from regelate.errors import InvariantViolated

log = logging.getLogger(__name__)
TOTAL_BYTES, GROUP_OFFSET, TOTAL_COMPRESSED, ORDINAL = 2, 5, 6, 7
"""Fields of a RowGroup."""
MAX_ORDINAL = 2**15 - 1
WRITER = f"regelate version {__version__}".encode()
"""Who wrote a file of which several writers wrote the row groups."""
MAX_CHUNKS = 100_000
"""Of one output: what reads its footer holds all of them."""
Content = tuple[int, tuple[tuple[int, int, int, bytes], ...]]
"""A row group: its rows, and of each column size, values, the CRC-32 of its bytes, and its statistics."""


class ParquetSplicer:
    """Implements Splicer for one table's columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self.by_duckdb = duckdb_shape(columns)

    def by_arrow(self, shape: Hashable) -> tuple[Column, ...] | None:
        """Return the columns of which PyArrow makes a file of this shape, which `look` found; None where it makes
        none."""
        columns = required_as(self._columns, cast(Shape, shape))
        return columns if arrow_shape(columns) == shape else None

    def look(self, path: str) -> StoredFile:
        """Return what the footer of a local file says of its row groups; a doubt for whatever is wrong with it."""
        try:
            with Path(path).open("rb") as file:
                found = read_file(file, self._columns)
                return StoredFile(shape=found.shape, groups=tuple(_told(file, group) for group in found.groups))
        except (Malformed, OSError) as error:
            return StoredFile(doubt=str(error))

    def join(self, sources: Sequence[Source], target: str) -> bool:
        """Join local files into a new one, in their order; False where they cannot be one after all.

        Each piece is deleted once it is copied, so that the disk holds one of them twice at most; half a file is not
        left behind. Errors: InvariantViolated SPLICE_DISAGREES where what was written is not what it was made from.
        """
        try:
            wanted = [content for source in sources for content in self._contents(source)]
            shapes = {self._shape(source) for source in sources}
            if len(shapes) > 1 or sum(len(columns) for _, columns in wanted) > MAX_CHUNKS:
                return False
            self._write(sources, Path(target))
        except (Malformed, FileNotFoundError) as error:
            log.warning("what was to be spliced is recoded: %s", error)
            Path(target).unlink(missing_ok=True)
            return False
        except BaseException:  # on a full disk, half a file is in the way of the next attempt
            Path(target).unlink(missing_ok=True)
            raise
        self._prove(target, wanted)
        return True

    def _shape(self, source: Source) -> Shape:
        with Path(source.path).open("rb") as file:
            return read_file(file, self._columns, own=source.numbers is None).shape

    def _contents(self, source: Source) -> Iterator[Content]:
        with Path(source.path).open("rb") as file:
            found = read_file(file, self._columns, own=source.numbers is None)
            for group in _chosen(found, source):
                yield _content(file, group)

    def _prove(self, target: str, wanted: Sequence[Content]) -> None:
        """Hold a file against the row groups that it was made from. Errors: InvariantViolated SPLICE_DISAGREES."""
        whole = Source(path=target)
        try:
            found = list(self._contents(whole))
        except Malformed as error:
            found = []
            log.error("%s, as it was spliced, cannot be read: %s", target, error)
        if found != list(wanted):
            Path(target).unlink(missing_ok=True)
            raise InvariantViolated(
                "SPLICE_DISAGREES",
                f"{Path(target).name}: the row groups that were written are not those that were read; nothing of "
                "it was committed; use splice: never",
            )

    def _write(self, sources: Sequence[Source], target: Path) -> None:
        elements: list[Struct] = []
        groups: list[Raw] = []
        writers: set[bytes] = set()
        paths: tuple[tuple[bytes, ...], ...] = ()
        rows, version = 0, 1
        with target.open("wb") as sink:
            sink.write(MAGIC)
            for source in sources:
                with Path(source.path).open("rb") as file:
                    found = read_file(file, self._columns, own=source.numbers is None)
                    if not elements:
                        elements += found.elements
                        annotate(elements, self._columns)
                        paths = tuple(leaf.path for leaf in leaves_of(elements))
                    writers.add(found.created_by)
                    version = max(version, found.version)
                    chosen = _chosen(found, source)
                    copied = _whole if source.numbers is None else _chunk_by_chunk
                    for group, places in zip(chosen, copied(file, sink, found, chosen), strict=True):
                        groups.append(Raw(encode(_row_group(group, places, paths, len(groups)))))
                        rows += group.rows
                if source.numbers is None:
                    Path(source.path).unlink()
            created_by = writers.pop() if len(writers) == 1 else WRITER
            footer = Struct({
                VERSION: (I32, version),
                SCHEMA: (LIST, Items(STRUCT, list(elements))),
                NUM_ROWS: (I64, rows),
                ROW_GROUPS: (LIST, Items(STRUCT, list(groups))),
                CREATED_BY: (BINARY, created_by),
                COLUMN_ORDERS: (LIST, type_orders(len(paths))),
            })  # fmt: skip
            sink.write(ended(encode(footer)))


def _told(file: BinaryIO, group: Group) -> RowGroup:
    entries = (
        (place, dictionary_entries(file, chunk))
        for place, chunk in enumerate(group.chunks)
        if chunk.meta.whole(KIND) == BYTE_ARRAY and chunk.encodings & DICTIONARIES
    )
    return RowGroup(
        rows=group.rows,
        size_bytes=group.size_bytes,
        codecs=frozenset(chunk.codec for chunk in group.chunks),
        uncompressed_bytes=sum(chunk.uncompressed for chunk in group.chunks),
        dictionaries=tuple((place, MIXED if count is None else count) for place, count in entries),
    )


def _chosen(found: ParquetFile, source: Source) -> list[Group]:
    """Return the row groups of a source, without those that have no rows. Errors: Malformed for one that is gone."""
    numbers = range(len(found.groups)) if source.numbers is None else source.numbers
    if any(number >= len(found.groups) for number in numbers):
        raise Malformed(f"{source.path} has other row groups than before")
    return [found.groups[number] for number in numbers if found.groups[number].rows]


def _content(file: BinaryIO, group: Group) -> Content:
    columns = tuple(
        (chunk.size, chunk.values, checksum(file, chunk), encode(chunk.meta.struct(STATISTICS) or Struct()))
        for chunk in group.chunks
    )
    return group.rows, columns


def _whole(file: BinaryIO, sink: BinaryIO, found: ParquetFile, groups: Sequence[Group]) -> list[list[int]]:
    """Copy all that lies before the footer, bloom filters too; return where each chunk is now."""
    shift = sink.tell() - len(MAGIC)
    _copy(file, sink, len(MAGIC), found.end - len(MAGIC))
    return [[chunk.start + shift for chunk in group.chunks] for group in groups]


def _chunk_by_chunk(file: BinaryIO, sink: BinaryIO, found: ParquetFile, groups: Sequence[Group]) -> list[list[int]]:
    return [[_copied(file, sink, chunk) for chunk in group.chunks] for group in groups]


def _copied(file: BinaryIO, sink: BinaryIO, chunk: Chunk) -> int:
    at = sink.tell()
    _copy(file, sink, chunk.start, chunk.size)
    return at


def _copy(file: BinaryIO, sink: BinaryIO, start: int, size: int) -> None:
    file.seek(start)
    while size:
        data = read_all(file, min(size, COPY_BYTES))
        sink.write(data)
        size -= len(data)


def _row_group(group: Group, places: Sequence[int], paths: Sequence[Sequence[bytes]], ordinal: int) -> Struct:
    """Return a row group whose chunks lie at other places. Ordinals have 16 bits: later row groups have none."""
    chunks = [placed(chunk, at, path) for chunk, at, path in zip(group.chunks, places, paths, strict=True)]
    made = Struct({
        COLUMNS: (LIST, Items(STRUCT, list(chunks))),
        TOTAL_BYTES: (I64, sum(chunk.uncompressed for chunk in group.chunks)),
        GROUP_ROWS: (I64, group.rows),
        GROUP_OFFSET: (I64, min(places)),
        TOTAL_COMPRESSED: (I64, group.size_bytes),
    })  # fmt: skip
    if ordinal <= MAX_ORDINAL:
        made[ORDINAL] = (I16, ordinal)
    return made
