"""Parquet files whose row groups may go into another file; read strictly: their writers may be wrong, or hostile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from regelate.adapters.parquet.annotations import CHILDREN, FIXED, NAME, REPEATED, REPETITION, TYPE, TYPE_LENGTH
from regelate.adapters.parquet.chunks import Chunk, Leaf, chunk_of
from regelate.adapters.parquet.footer import COLUMNS, ROW_GROUPS, read_footer
from regelate.adapters.parquet.shape import Shape, shape_of
from regelate.adapters.parquet.thrift import STRUCT, Items, Malformed, Struct
from regelate.adapters.parquet.thrift_reader import MAX_VALUES as OWN_VALUES
from regelate.adapters.parquet.thrift_reader import decode
from regelate.core.table.schema import Column
from regelate.core.values import dataclass

VERSION, SCHEMA, NUM_ROWS, KEY_VALUES, CREATED_BY, COLUMN_ORDERS = 1, 2, 3, 5, 6, 7
"""Fields of FileMetaData (parquet.thrift); of a RowGroup:"""
GROUP_ROWS = 3
KEY = 1
_KNOWN_FOOTER, _KNOWN_GROUP = frozenset(range(1, 8)), frozenset(range(1, 8))
MAX_VALUES = 500_000
"""Values of a footer, about 50 MB at worst: more row groups than that are not worth splicing."""
_PARQUET_MR = re.compile(rb"parquet-mr version (\d{1,4})\.(\d{1,4})\b")
_FIRST_SOUND_MR = (1, 8)
_LEGACY = (b"org.apache.spark.legacy", b"org.apache.spark.timeZone")
"""Keys by which Spark says that times are in the calendar or zone of old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A row group. One without rows has no chunks here."""

    rows: int
    chunks: tuple[Chunk, ...]

    @property
    def size_bytes(self) -> int:
        return sum(chunk.size for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFile:
    """What of a file may go into another one. Its pages lie before `end`."""

    version: int
    elements: tuple[Struct, ...]
    shape: Shape
    groups: tuple[Group, ...]
    created_by: bytes
    end: int


def read_file(file: BinaryIO, columns: Sequence[Column], *, own: bool = False) -> ParquetFile:
    """Read the footer of an open file that holds these columns; `own`: we wrote it for this.

    Errors: Malformed for any other file, for nonsense, and for what readers might take for something else elsewhere.
    """
    place = read_footer(file)
    footer = decode(place.data, max_values=OWN_VALUES if own else MAX_VALUES)
    if footer.keys() - _KNOWN_FOOTER:
        raise Malformed("it is encrypted, or its footer has fields that nobody here knows")
    created_by = footer.binary(CREATED_BY)
    _check_writer(created_by)
    for pair in footer.structs(KEY_VALUES):
        if (pair.binary(KEY) or b"").startswith(_LEGACY):
            raise Malformed("its times are in a calendar or a zone of old")
    elements = tuple(footer.structs(SCHEMA))
    shape = shape_of(elements, columns)
    leaves = leaves_of(elements)
    ordered = _is_ordered(footer, len(leaves))
    groups = tuple(_group(found, leaves, place.start, ordered, own) for found in footer.structs(ROW_GROUPS))
    if sum(group.rows for group in groups) != footer.whole(NUM_ROWS):
        raise Malformed("its row groups do not have its rows")
    if sum(group.size_bytes for group in groups) > place.start:
        raise Malformed("its row groups lie upon each other")
    return ParquetFile(
        version=footer.whole(VERSION) or 1,
        elements=elements,
        shape=shape,
        groups=groups,
        created_by=created_by or b"",
        end=place.start,
    )


def leaves_of(elements: Sequence[Struct]) -> tuple[Leaf, ...]:
    """Return the columns of a schema, whose structure has been checked."""
    rest = iter(elements)
    root = next(rest)
    return tuple(_leaves(rest, root.whole(CHILDREN) or 0, (), repeated=False))


def _leaves(rest: Iterator[Struct], count: int, above: tuple[bytes, ...], *, repeated: bool) -> Iterator[Leaf]:
    for _ in range(count):
        element = next(rest)
        path = (*above, element.binary(NAME) or b"")
        many = repeated or element.whole(REPETITION) == REPEATED
        kind = element.whole(TYPE)
        if kind is None:
            yield from _leaves(rest, element.whole(CHILDREN) or 0, path, repeated=many)
        else:
            length = element.whole(TYPE_LENGTH) or 0 if kind == FIXED else 0
            yield Leaf(kind=kind, length=length, path=path, repeated=many)


def _group(found: Struct, leaves: Sequence[Leaf], end: int, ordered: bool, own: bool) -> Group:
    if found.keys() - _KNOWN_GROUP:
        raise Malformed("a row group has fields that nobody here knows")
    rows, chunks = found.whole(GROUP_ROWS), found.structs(COLUMNS)
    if rows is None or rows < 0 or len(chunks) != len(leaves):
        raise Malformed(f"a row group of {rows} rows has {len(chunks)} columns where the schema has {len(leaves)}")
    if not rows:
        return Group(rows=0, chunks=())
    pairs = zip(chunks, leaves, strict=True)
    return Group(rows=rows, chunks=tuple(chunk_of(c, leaf, rows, end, ordered=ordered, own=own) for c, leaf in pairs))


def _check_writer(created_by: bytes | None) -> None:
    if not created_by:
        raise Malformed("it does not say who wrote it")
    if b"parquet-mr" in created_by:
        found = _PARQUET_MR.match(created_by)
        if found is None or (int(found[1]), int(found[2])) < _FIRST_SOUND_MR:
            raise Malformed("its writer is older than 1.8 of parquet-mr, whose statistics are not sure")


def _is_ordered(footer: Struct, leaves: int) -> bool:
    """Say whether the bounds of all columns are said to be in the order of their types."""
    orders = footer.structs(COLUMN_ORDERS)
    by_type = Struct({1: (STRUCT, Struct())})
    return len(orders) == leaves and all(order == by_type for order in orders)


def type_orders(leaves: int) -> Items:
    """Return the column orders of a file of whose bounds that is sure."""
    return Items(STRUCT, [Struct({1: (STRUCT, Struct())}) for _ in range(leaves)])
