"""Writes Thrift's compact protocol: a tree to bytes, in the one way that `thrift_reader` takes."""

from __future__ import annotations

from regelate.adapters.parquet.thrift import (
    BINARY,
    BITS,
    FALSE,
    I8,
    I16,
    LIST,
    LONG,
    MAP,
    SET,
    STOP,
    STRUCT,
    TRUE,
    WIDTHS,
    Items,
    Malformed,
    Pairs,
    Raw,
    Struct,
    Value,
)


def encode(struct: Struct) -> bytes:
    """Return the bytes of a struct; those it was decoded from where nothing was changed.

    Errors: Malformed for a value that its wire type cannot hold.
    """
    out = bytearray()
    _struct(out, struct)
    return bytes(out)


def _struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number, (kind, value) in struct.items():
        valued = kind not in (TRUE, FALSE)
        wire = kind if valued else TRUE if value else FALSE
        if 0 < number - last <= LONG:
            out.append((number - last) << 4 | wire)
        else:
            out.append(wire)
            _whole(out, I16, number)
        if valued:
            _value(out, kind, value)
        last = number
    out.append(STOP)


def _value(out: bytearray, kind: int, value: Value) -> None:
    if kind in BITS and isinstance(value, int):
        _whole(out, kind, value)
    elif isinstance(value, Raw):
        out += value.data
    elif kind == BINARY and isinstance(value, bytes):
        _varint(out, len(value))
        out += value
    elif kind == STRUCT and isinstance(value, Struct):
        _struct(out, value)
    elif kind in (LIST, SET) and isinstance(value, Items):
        _items(out, value)
    elif kind == MAP and isinstance(value, Pairs):
        _pairs(out, value)
    elif kind == I8 and isinstance(value, int) and -128 <= value < 128:
        out.append(value & 0xFF)
    elif isinstance(value, bytes) and WIDTHS.get(kind) == len(value):
        out += value
    else:
        raise Malformed(f"{value!r:.100} is no value of wire type {kind}")


def _items(out: bytearray, items: Items) -> None:
    size = len(items.values)
    if size < LONG:
        out.append(size << 4 | items.kind)
    else:
        out.append(LONG << 4 | items.kind)
        _varint(out, size)
    if isinstance(items.values, bytes):
        out += items.values
        return
    for value in items.values:
        _value(out, items.kind, value)


def _pairs(out: bytearray, pairs: Pairs) -> None:
    _varint(out, len(pairs.values))
    if pairs.values:
        out.append(pairs.key_kind << 4 | pairs.value_kind)
    for key, value in pairs.values:
        _value(out, pairs.key_kind, key)
        _value(out, pairs.value_kind, value)


def _whole(out: bytearray, kind: int, value: int) -> None:
    bits = BITS[kind]
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Malformed(f"{value} has more than {bits} bits")
    _varint(out, (value << 1) ^ (value >> bits - 1))


def _varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
