"""A tree of Thrift values without a schema: fields by number and wire type, so what nobody here has heard of survives.

Parquet's footers and page headers are such structs. Wire types are those of the compact protocol
(apache/thrift, doc/specs/thrift-compact-protocol.md). `thrift_reader` makes trees of bytes, `thrift_writer` bytes.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

STOP, TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(14)
"""Wire types. A bool field has its value in its type; a list of bools may say either."""
MAX_FIELD_ID = 2**15 - 1
BITS = {I16: 16, I32: 32, I64: 64}
"""Of the whole numbers that are written as varints."""
WIDTHS = {TRUE: 1, FALSE: 1, I8: 1, DOUBLE: 8, UUID: 16}
"""Bytes of the values that always take as many, as elements of lists and maps."""
LONG = 15
"""A list of as many values, or a field further than this from the one before, has a longer header."""


class Malformed(ValueError):
    """These bytes are not what they should be; the message says what is wrong and where."""


class Items(NamedTuple):
    """A list or a set. Bools and bytes are held as `bytes`, one each: they may be many."""

    kind: int
    values: list[Value] | bytes


class Pairs(NamedTuple):
    """A map; an empty one has no kinds (0)."""

    key_kind: int
    value_kind: int
    values: list[tuple[Value, Value]]


class Raw(NamedTuple):
    """A value that was walked over and not read: the bytes that it was."""

    data: bytes


class Struct(dict[int, tuple[int, "Value"]]):
    """(wire type, value) by field number, in the order of the bytes. Whoever decoded it may change it."""

    __slots__ = ()

    def put(self, field_id: int, kind: int, value: Value) -> None:
        """Set a field; a new one comes before those with higher numbers."""
        later = [] if field_id in self else [known for known in self if known > field_id]
        self[field_id] = (kind, value)
        for known in later:
            self[known] = self.pop(known)

    def drop(self, *field_ids: int) -> None:
        for field_id in field_ids:
            self.pop(field_id, None)

    def whole(self, field_id: int) -> int | None:
        """Return a field that must be a whole number, or None where it is absent. Errors: Malformed."""
        kind, value = self.get(field_id, (I32, None))
        if value is not None and (kind not in BITS or not isinstance(value, int)):
            raise Malformed(f"field {field_id} is no whole number")
        return value

    def binary(self, field_id: int) -> bytes | None:
        """Return a field that must be bytes, or None where it is absent. Errors: Malformed."""
        kind, value = self.get(field_id, (BINARY, None))
        if value is not None and (kind != BINARY or not isinstance(value, bytes)):
            raise Malformed(f"field {field_id} is no text")
        return value

    def struct(self, field_id: int) -> Struct | None:
        """Return a field that must be a struct, or None where it is absent. Errors: Malformed."""
        value = self.get(field_id, (STRUCT, None))[1]
        if value is not None and not isinstance(value, Struct):
            raise Malformed(f"field {field_id} is no struct")
        return value

    def structs(self, field_id: int) -> list[Struct]:
        """Return the structs of a field that must be a list of them; an absent one has none. Errors: Malformed."""
        value = self.get(field_id, (LIST, Items(STRUCT, [])))[1]
        if not isinstance(value, Items) or value.kind != STRUCT or isinstance(value.values, bytes):
            raise Malformed(f"field {field_id} is no list of structs")
        return value.values  # type: ignore[return-value]  # a list of kind STRUCT holds nothing else


Value: TypeAlias = "bool | int | bytes | Items | Pairs | Raw | Struct"
