"""Reads Thrift's compact protocol: bytes to a tree, within bounds, and only what the writer gives back byte for byte.

A number with idle bytes, a long header where a short one does, a field that is there twice: such a struct is refused,
though a laxer reader would take it. No writer of Parquet that we know makes any, and a bit that flipped often does.
"""

from __future__ import annotations

from regelate.adapters.parquet.thrift import (
    BINARY,
    BITS,
    FALSE,
    I8,
    LIST,
    LONG,
    MAP,
    MAX_FIELD_ID,
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

MAX_DEPTH = 32
"""Structs, lists and maps within each other; Parquet's own metadata has eight."""
MAX_VALUES = 4_000_000
"""Values of a tree, about 300 MB at worst: the footer of 100,000 column chunks."""
_MORE, _SEVEN = 0x80, 0x7F
_LONGEST_VARINT = 10


def decode(data: bytes, *, raw: frozenset[int] = frozenset(), max_values: int = MAX_VALUES) -> Struct:
    """Return the struct that these bytes are, to the last one.

    `raw`: top-level fields to walk over only; they stay as they are, cost no memory and are not judged in full.
    Errors: Malformed for anything else, too deep or with too many values.
    """
    found, end = decode_from(data, 0, raw=raw, max_values=max_values)
    if end != len(data):
        raise Malformed(f"{len(data) - end} bytes follow the end at byte {end}")
    return found


def decode_from(
    data: bytes, start: int, *, raw: frozenset[int] = frozenset(), max_values: int = MAX_VALUES
) -> tuple[Struct, int]:
    """Return the struct that begins at `start`, such as a page header, and where it ends. Errors: as `decode`."""
    reader = _Reader(data, max_values)
    try:
        found, end = reader.struct(start, 0, raw)
    except IndexError:
        raise Malformed(f"it breaks off at byte {len(data)}") from None
    if end > len(data):
        raise Malformed(f"it breaks off at byte {len(data)}")
    return found, end


class _Reader:
    """Reads values at a place and returns the place behind them; an IndexError means that the bytes break off."""

    __slots__ = ("_data", "_left")

    def __init__(self, data: bytes, max_values: int) -> None:
        self._data = data
        self._left = max_values

    def struct(self, at: int, depth: int, raw: frozenset[int] = frozenset()) -> tuple[Struct, int]:
        data, found, last = self._data, Struct(), 0
        self._enter(depth, 0, at)
        while header := data[at]:
            kind, delta = header & 15, header >> 4
            at += 1
            if delta:
                last += delta
            else:
                last, at = self._field_id(last, at)
            if last in found or last > MAX_FIELD_ID:
                raise Malformed(f"field {last} is there twice, or is no field, at byte {at}")
            if last in raw and kind > FALSE:
                end = _skip(data, at, kind, depth + 1)
                found[last] = (kind, Raw(data[at:end]))
                at = end
            elif kind <= FALSE:
                if not kind:
                    raise Malformed(f"field {last} has no type, at byte {at}")
                found[last] = (kind, kind == TRUE)
            else:
                value, at = self.value(at, kind, depth + 1)
                found[last] = (kind, value)
        self._count(len(found), at)
        return found, at + 1

    def _field_id(self, last: int, at: int) -> tuple[int, int]:
        found, end = self._varint(at, 16)
        number = (found >> 1) ^ -(found & 1)
        if 0 < number - last <= LONG:
            raise Malformed(f"field {number} has a long header where a short one does, at byte {at}")
        return number, end

    def value(self, at: int, kind: int, depth: int) -> tuple[Value, int]:
        if kind in BITS:
            found, at = self._varint(at, BITS[kind])
            return (found >> 1) ^ -(found & 1), at
        if kind == BINARY:
            length, at = self._varint(at, 32)
            return self._slice(at, length)
        if kind == STRUCT:
            return self.struct(at, depth)
        if kind in (LIST, SET):
            return self._items(at, depth)
        if kind == MAP:
            return self._pairs(at, depth)
        if kind == I8:
            return (self._data[at] ^ 128) - 128, at + 1
        if kind in WIDTHS:
            return self._slice(at, WIDTHS[kind])
        raise Malformed(f"{kind} is no type, at byte {at}")

    def _items(self, at: int, depth: int) -> tuple[Items, int]:
        header = self._data[at]
        kind, size = header & 15, header >> 4
        at += 1
        if size == LONG:
            size, at = self._varint(at, 32)
            if size < LONG:
                raise Malformed(f"a list of {size} has a long header where a short one does, at byte {at}")
        if kind in (TRUE, FALSE, I8):
            raw, at = self._slice(at, size)
            return Items(kind, raw), at
        self._enter(depth, size, at)
        values: list[Value] = []
        for _ in range(size):
            value, at = self.value(at, kind, depth + 1)
            values.append(value)
        return Items(kind, values), at

    def _pairs(self, at: int, depth: int) -> tuple[Pairs, int]:
        size, at = self._varint(at, 32)
        if not size:
            return Pairs(STOP, STOP, []), at
        key_kind, value_kind = self._data[at] >> 4, self._data[at] & 15
        at += 1
        self._enter(depth, 2 * size, at)
        pairs: list[tuple[Value, Value]] = []
        for _ in range(size):
            key, at = self.value(at, key_kind, depth + 1)
            value, at = self.value(at, value_kind, depth + 1)
            pairs.append((key, value))
        return Pairs(key_kind, value_kind, pairs), at

    def _varint(self, at: int, bits: int) -> tuple[int, int]:
        """Read an unsigned number of at most so many bits that has no idle bytes."""
        byte = self._data[at]
        found, shift, start = byte & _SEVEN, 7, at
        while byte & _MORE:
            at += 1
            byte = self._data[at]
            found |= (byte & _SEVEN) << shift
            shift += 7
            if shift > bits + 7:
                break
        if found >> bits or (not byte and at > start):
            raise Malformed(f"a number of more than {bits} bits or with idle bytes, at byte {start}")
        return found, at + 1

    def _slice(self, at: int, length: int) -> tuple[bytes, int]:
        if length > len(self._data) - at:
            raise IndexError
        return self._data[at : at + length], at + length

    def _enter(self, depth: int, size: int, at: int) -> None:
        """Judge a struct, or a list of so many values, before anything of it is read: each takes a byte or more."""
        if depth > MAX_DEPTH:
            raise Malformed(f"more than {MAX_DEPTH} values within each other, at byte {at}")
        if size > len(self._data) - at:
            raise IndexError
        self._count(size, at)

    def _count(self, size: int, at: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Malformed(f"too many values, at byte {at}")


def _skip_struct(data: bytes, at: int, depth: int) -> int:
    """Return where the struct at `at` ends. Errors: Malformed, IndexError: it breaks off."""
    if depth > MAX_DEPTH:
        raise Malformed(f"more than {MAX_DEPTH} values within each other, at byte {at}")
    while header := data[at]:
        kind = header & 15
        at += 1
        if header <= LONG:  # the number of the field follows
            at = _skip_varint(data, at)
        if kind in BITS:
            if data[at] < _MORE:
                at += 1
            else:
                at = _skip_varint(data, at)
        elif kind not in (TRUE, FALSE):
            at = _skip(data, at, kind, depth + 1)
    return at + 1


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return where the value at `at` ends, as far as its length says; nothing is built. Errors: as `_skip_struct`."""
    if kind == BINARY:
        length, at = _length(data, at)
        return at + length
    if kind == STRUCT:
        return _skip_struct(data, at, depth)
    if kind in BITS:
        return _skip_varint(data, at)
    if kind in WIDTHS:
        return at + WIDTHS[kind]
    if depth > MAX_DEPTH:
        raise Malformed(f"more than {MAX_DEPTH} values within each other, at byte {at}")
    if kind in (LIST, SET):
        header = data[at]
        size, at = (header >> 4, at + 1) if header >> 4 < LONG else _length(data, at + 1)
        return _skip_many(data, at, (header & 15,), size, depth)
    if kind == MAP:
        size, at = _length(data, at)
        if not size:
            return at
        return _skip_many(data, at + 1, (data[at] >> 4, data[at] & 15), size, depth)
    raise Malformed(f"{kind} is no type, at byte {at}")


def _skip_many(data: bytes, at: int, kinds: tuple[int, ...], size: int, depth: int) -> int:
    if len(kinds) == 1 and kinds[0] in WIDTHS:
        return at + size * WIDTHS[kinds[0]]
    if size > len(data) - at:
        raise IndexError
    for _ in range(size):
        for kind in kinds:
            at = _skip(data, at, kind, depth + 1)
    return at


def _skip_varint(data: bytes, at: int) -> int:
    start = at
    while data[at] >= _MORE:
        at += 1
    if at - start >= _LONGEST_VARINT:
        raise Malformed(f"a number of {at - start + 1} bytes, at byte {start}")
    return at + 1


def _length(data: bytes, at: int) -> tuple[int, int]:
    end = _skip_varint(data, at)
    found = sum((byte & _SEVEN) << 7 * place for place, byte in enumerate(data[at:end]))
    return found, end
