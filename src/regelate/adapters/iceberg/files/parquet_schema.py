"""The schema in a Parquet file's footer: names, field ids and types, without a row group being looked at.

Format: `FileMetaData` in Thrift's compact protocol (parquet.thrift); its first two fields are the version and the
schema. By hand: the start of a footer is all that is wanted of thousands of files, and PyArrow ends the process on a
garbled one (trap T31: a garbled footer ends the process).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

from regelate.core.values import dataclass

MAGIC = b"PAR1"
TRAILER_BYTES = 8
"""The length of the footer and the magic number."""
MAX_DEPTH = 64


class Physical(IntEnum):
    """parquet.thrift, `Type`."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


REPEATED = 2
# fmt: off
CONVERTED = (
    "UTF8", "MAP", "MAP_KEY_VALUE", "LIST", "ENUM", "DECIMAL", "DATE", "TIME_MILLIS", "TIME_MICROS", "TIMESTAMP_MILLIS",
    "TIMESTAMP_MICROS", "UINT_8", "UINT_16", "UINT_32", "UINT_64", "INT_8", "INT_16", "INT_32", "INT_64", "JSON",
    "BSON", "INTERVAL",
)
# fmt: on
"""parquet.thrift, `ConvertedType`. Logical types are given by the same names here."""
_LOGICAL = {1: "UTF8", 2: "MAP", 3: "LIST", 4: "ENUM", 5: "DECIMAL", 6: "DATE", 12: "JSON", 13: "BSON", 14: "UUID"}
_UNITS = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}
_TIME, _TIMESTAMP, _INTEGER = 7, 8, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumn:
    """A column or group as a file has it. `annotation`: what it is meant for, by the names of `ConvertedType`."""

    name: str
    field_id: int | None = None
    physical: Physical | None = None
    annotation: str | None = None
    repeated: bool = False
    length: int = 0
    precision: int = 0
    scale: int = 0
    children: tuple[FileColumn, ...] = ()

    def walk(self) -> Iterator[FileColumn]:
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def described(self) -> str:
        """Name the type for people, such as `INT64 TIMESTAMP_MILLIS` or `LIST`."""
        kind = "a group" if self.physical is None else self.physical.name
        return f"{kind} {self.annotation}" if self.annotation else kind


def parse_schema(footer: bytes) -> tuple[FileColumn, int]:
    """Return the root of a footer's schema, and how many bytes of the footer it takes: what begins with the same bytes
    has the same schema.

    Errors: ValueError for what is no footer.
    """
    try:
        fields, at = _fields(footer, 0, up_to=2)
        elements = fields[2]
        root, used = _column(elements, 0, 0)
    except (IndexError, KeyError, TypeError, struct.error, RecursionError) as error:
        raise ValueError(f"no schema in the footer: {error}") from error
    if used != len(elements):
        raise ValueError(f"the schema has {len(elements)} elements and its groups {used}")
    return root, at


def _column(elements: list[Mapping[int, Any]], at: int, depth: int) -> tuple[FileColumn, int]:
    element = elements[at]
    at += 1
    children: list[FileColumn] = []
    if depth > MAX_DEPTH:
        raise ValueError(f"groups are nested deeper than {MAX_DEPTH}")
    for _ in range(element.get(5, 0)):
        child, at = _column(elements, at, depth + 1)
        children.append(child)
    logical = element.get(10, {})
    decimal = logical.get(5, {})
    return FileColumn(
        name=element[4].decode(errors="replace"),
        field_id=element.get(9),
        physical=Physical(element[1]) if 1 in element else None,
        annotation=_annotation(element.get(6), logical),
        repeated=element.get(3) == REPEATED,
        length=element.get(2, 0),
        precision=element.get(8, decimal.get(2, 0)),
        scale=element.get(7, decimal.get(1, 0)),
        children=tuple(children),
    ), at


def _annotation(converted: int | None, logical: Mapping[int, Any]) -> str | None:
    for kind, about in logical.items():
        if kind in (_TIME, _TIMESTAMP):
            return (
                f"{'TIME' if kind == _TIME else 'TIMESTAMP'}_{_UNITS.get(next(iter(about.get(2, {})), 0), 'UNKNOWN')}"
            )
        if kind == _INTEGER:
            return f"{'INT' if about.get(2) else 'UINT'}_{about.get(1, 0)}"
        return _LOGICAL.get(kind, f"LOGICAL_{kind}")
    return None if converted is None else CONVERTED[converted]


def _fields(data: bytes, at: int, up_to: int | None = None) -> tuple[dict[int, Any], int]:
    """Read a struct, or its fields until that number is read."""
    found: dict[int, Any] = {}
    number = 0
    while byte := data[at]:
        at += 1
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _signed(data, at)
        found[number], at = _value(data, at, byte & 0x0F)
        if number == up_to:
            return found, at
    return found, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _signed(data, at)
    if kind == 7:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if kind == 8:
        length, at = _varint(data, at)
        if at + length > len(data):
            raise ValueError("a text goes on after the end of the footer")
        return data[at : at + length], at + length
    if kind in (9, 10):
        return _list(data, at)
    if kind == 12:
        return _fields(data, at)
    raise ValueError(f"no footer holds a field of kind {kind}")


def _list(data: bytes, at: int) -> tuple[list[Any], int]:
    head = data[at]
    at += 1
    count, kind = head >> 4, head & 0x0F
    if count == 15:
        count, at = _varint(data, at)
    found = []
    for _ in range(count):
        if kind in (1, 2):
            value, at = data[at] == 1, at + 1
        else:
            value, at = _value(data, at, kind)
        found.append(value)
    return found, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at
