"""How the columns of a file are stored, beside names: files of one shape may be one file.

A file of others is held against the table's columns strictly. What readers might tell apart, or what nobody has seen,
is a doubt, and what is in doubt is recoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from regelate.adapters.parquet.annotations import (
    CHILDREN,
    CONVERTED,
    FIELD_ID,
    FIXED,
    INT32,
    INT64,
    LOGICAL,
    NAME,
    PRECISION,
    REPEATED,
    REPETITION,
    SCALE,
    TYPE,
    TYPE_LENGTH,
    digits,
    physical_type,
)
from regelate.adapters.parquet.thrift import Malformed, Struct
from regelate.core.table.schema import Column

Shape = tuple[tuple[int, int, int], ...]
"""Physical type (-1 for a group), length of a FIXED, and repetition of each element below the root, depth first."""
REQUIRED, OPTIONAL = 0, 1
GROUP = -1
_DUCKDB_DECIMAL = 16
_ELEMENT_FIELDS = frozenset(range(1, 11))
_TWO_LEVELS = (b"array", b"_tuple")
_MICROS = 2
_CONVERTED = {
    0: "string", 1: "map", 2: "map", 3: "list", 5: "decimal", 6: "date", 8: "time", 10: "timestamptz", 17: "", 18: ""
}  # fmt: skip
"""What older annotations mean for an Iceberg column. `INT_32` and `INT_64` (17, 18) say what the type says anyway."""
_LOGICAL = {1: "string", 2: "map", 3: "list", 5: "decimal", 6: "date", 7: "time", 8: "timestamp", 14: "uuid"}
_INTEGER = 10
_ANNOTATED = frozenset(("string", "map", "list", "decimal", "date", "time", "timestamp", "timestamptz", "uuid"))
"""The types that a file must name: another column would be read from it otherwise."""


def shape_of(elements: Sequence[Struct], columns: Sequence[Column]) -> Shape:
    """Return the shape of a file that holds these columns, all of them, in their order and under their field ids.

    Errors: Malformed for any other, and for one that leaves a doubt.
    """
    found: list[tuple[int, int, int]] = []
    rest = iter(elements)
    root = _next(rest)
    if root.whole(CHILDREN) != len(columns) or TYPE in root:
        raise Malformed("it has other columns than the table")
    for element, column in _walk(rest, columns):
        _check(element, column)
        kind = element.whole(TYPE)
        length = element.whole(TYPE_LENGTH) or 0 if kind == FIXED else 0
        found.append((GROUP if kind is None else kind, length, element.whole(REPETITION) or 0))
    if next(rest, None) is not None:
        raise Malformed("it has more columns than the table")
    return tuple(found)


def duckdb_shape(columns: Sequence[Column]) -> Shape:
    """Return the shape of what DuckDB writes: all but a map's key is optional, wide decimals take 16 bytes."""
    return tuple(_expected(columns, in_map=False, by_duckdb=True))


def arrow_shape(columns: Sequence[Column]) -> Shape:
    """Return the shape of what PyArrow writes for us (adapters/duckdb/arrow_writer)."""
    return tuple(_expected(columns, in_map=False, by_duckdb=False))


def required_as(columns: Sequence[Column], shape: Shape) -> tuple[Column, ...]:
    """Return these columns, required or not as those of a file of this shape are."""
    rest = iter(shape)
    return tuple(_required_as(column, rest) for column in columns)


def _required_as(column: Column, rest: Iterator[tuple[int, int, int]]) -> Column:
    _, _, repetition = next(rest)
    if column.type in ("list", "map"):
        next(rest)
    children = tuple(_required_as(child, rest) for child in column.children)
    return replace(column, required=repetition == REQUIRED, children=children)


def _expected(columns: Sequence[Column], *, in_map: bool, by_duckdb: bool) -> Iterator[tuple[int, int, int]]:
    for at, column in enumerate(columns):
        required = (in_map and at == 0) or (column.required and not by_duckdb)
        nested = column.type in ("struct", "list", "map")
        kind = GROUP if nested else physical_type(column.type)
        yield kind, _length(column.type, by_duckdb) if kind == FIXED else 0, REQUIRED if required else OPTIONAL
        if column.type in ("list", "map"):
            yield GROUP, 0, REPEATED
        yield from _expected(column.children, in_map=column.type == "map", by_duckdb=by_duckdb)


def _length(type_text: str, by_duckdb: bool) -> int:
    if type_text == "uuid":
        return 16
    if type_text.startswith("fixed"):
        return int(type_text[6:-1])
    return _DUCKDB_DECIMAL if by_duckdb else shortest_decimal(digits(type_text)[0])


def shortest_decimal(precision: int) -> int:
    """Return the fewest bytes that hold every decimal of so many digits."""
    most: int = 10**precision - 1
    return (most.bit_length() + 8) // 8


def _next(rest: Iterator[Struct]) -> Struct:
    element = next(rest, None)
    if element is None:
        raise Malformed("it has fewer columns than the table")
    unknown = element.keys() - _ELEMENT_FIELDS
    if unknown:
        raise Malformed(f"its schema has fields that nobody here knows ({min(unknown)})")
    return element


def _walk(rest: Iterator[Struct], columns: Sequence[Column]) -> Iterator[tuple[Struct, Column | None]]:
    """Yield the elements of these columns, depth first; None for the repeated group of a list or a map."""
    for column in columns:
        element = _next(rest)
        nested = column.type in ("list", "map")
        _check_children(element, 1 if nested else len(column.children), repeated=False)
        yield element, column
        if nested:
            group = _next(rest)
            _check_children(group, len(column.children), repeated=True)
            yield group, None
        yield from _walk(rest, column.children)


def _check_children(element: Struct, children: int, *, repeated: bool) -> None:
    repetition = element.whole(REPETITION)
    allowed = (REPEATED,) if repeated else (REQUIRED, OPTIONAL)
    if (element.whole(CHILDREN) or 0) != children or repetition not in allowed:
        raise Malformed(f"its column {_name(element)!r} is of another structure than the table's")


def _check(element: Struct, column: Column | None) -> None:
    if column is None:
        name = element.binary(NAME) or b""
        if TYPE in element or name == _TWO_LEVELS[0] or name.endswith(_TWO_LEVELS[1]):
            raise Malformed(f"its group {_name(element)!r} may be that of a list of two levels")
        return
    if element.whole(FIELD_ID) != column.field_id:
        raise Malformed(f"its column {_name(element)!r} has field id {element.whole(FIELD_ID)}, not {column.field_id}")
    kind = column.type.partition("(")[0].partition("[")[0]
    if _meaning(element) != (kind if kind in _ANNOTATED else "") or (TYPE in element) == bool(column.children):
        raise Malformed(f"its column {_name(element)!r} does not say that it is {column.type}")
    if TYPE not in element:
        return
    wanted = physical_type(column.type)
    length = element.whole(TYPE_LENGTH)
    if element.whole(TYPE) != wanted:
        raise Malformed(f"its column {_name(element)!r} is not stored as {column.type}")
    if kind == "decimal":
        _check_decimal(element, column.type, wanted, length or 0)
    elif wanted == FIXED and length != _length(column.type, by_duckdb=False):
        raise Malformed(f"its column {_name(element)!r} has {length} bytes, not those of {column.type}")


def _check_decimal(element: Struct, type_text: str, physical: int, length: int) -> None:
    precision, scale = digits(type_text)
    said: list[tuple[int | None, int | None]] = [(element.whole(PRECISION), element.whole(SCALE) or 0)]
    logical = element.struct(LOGICAL)
    if logical is not None:
        inner = logical.struct(5) or Struct()
        said.append((inner.whole(2), inner.whole(1)))
        if PRECISION not in element:
            del said[0]
    if any(one != (precision, scale) for one in said):
        raise Malformed(f"its column {_name(element)!r} has other digits than {type_text}")
    if physical == FIXED and not shortest_decimal(precision) <= length <= _DUCKDB_DECIMAL:
        raise Malformed(f"its column {_name(element)!r} keeps {type_text} in {length} bytes")


def _meaning(element: Struct) -> str:
    """Return the Iceberg type that the annotations of an element say, empty where they say none. Errors: Malformed."""
    converted = element.whole(CONVERTED)
    older = None if converted is None else _CONVERTED.get(converted, f"converted type {converted}")
    logical = element.struct(LOGICAL)
    if logical is None:
        if (converted, element.whole(TYPE)) in ((17, INT64), (18, INT32)):
            raise Malformed(f"its column {_name(element)!r} is annotated with another width than its own")
        return older or ""
    newer = _logical_meaning(logical, element.whole(TYPE))
    if older is not None and older.removesuffix("tz") != newer.removesuffix("tz"):
        raise Malformed(f"its column {_name(element)!r} is annotated as two things")
    return newer


def _logical_meaning(logical: Struct, physical: int | None) -> str:
    if len(logical) != 1:
        raise Malformed("a column is annotated as two things")
    ((number, _),) = logical.items()
    about = logical.struct(number) or Struct()
    if number == _INTEGER:
        width = about.get(1, (0, 0))[1]
        if about.get(2, (0, False))[1] is not True or (width, physical) not in ((32, INT32), (64, INT64)):
            raise Malformed("a column is annotated as another whole number than it is stored as")
        return ""
    if number in (7, 8):
        unit = about.struct(2) or Struct()
        if tuple(unit) != (_MICROS,):
            raise Malformed("times are not in microseconds")
        return _LOGICAL[number] + ("tz" if number == 8 and about.get(1, (0, False))[1] is True else "")
    return _LOGICAL.get(number, f"logical type {number}")


def _name(element: Struct) -> str:
    return (element.binary(NAME) or b"").decode(errors="replace")[:100]
