"""What Iceberg's own Parquet writer says of each column, put upon the columns of a file that another writer made.

Ported from Iceberg (org.apache.iceberg.parquet.TypeToMessageType, 1.10.1) and from what parquet-mr 1.16.0 makes of it
in a footer; tests/adapters/recorded has a footer that both wrote.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from regelate.adapters.parquet.thrift import BINARY, I32, STRUCT, TRUE, Malformed, Struct
from regelate.core.table.schema import Column

TYPE, TYPE_LENGTH, REPETITION, NAME, CHILDREN, CONVERTED, SCALE, PRECISION, FIELD_ID, LOGICAL = range(1, 11)
"""Fields of a SchemaElement (parquet.thrift)."""
BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
"""Physical types."""
UNKNOWN = -2
REPEATED = 2
ROOT = b"table"
_PHYSICAL = {
    "boolean": BOOLEAN,
    "int": INT32,
    "long": INT64,
    "float": FLOAT,
    "double": DOUBLE,
    "date": INT32,
    "time": INT64,
    "timestamp": INT64,
    "timestamptz": INT64,
    "string": BYTE_ARRAY,
    "binary": BYTE_ARRAY,
    "uuid": FIXED,
    "fixed": FIXED,
}
_CONVERTED = {"string": 0, "map": 1, "list": 3, "decimal": 5, "date": 6, "time": 8, "timestamp": 10, "timestamptz": 10}
_LOGICAL = {
    "string": 1, "map": 2, "list": 3, "decimal": 5, "date": 6, "time": 7, "timestamp": 8, "timestamptz": 8, "uuid": 14
}  # fmt: skip
"""Members of the union LogicalType."""
_MICROS = 2
_IN_INT32, _IN_INT64 = 9, 18
"""The most digits of a decimal that is kept as a whole number."""


Path = tuple[bytes, ...]


def annotate(elements: Sequence[Struct], columns: Sequence[Column]) -> tuple[Path, ...] | None:
    """Annotate a file's flattened schema, in place, as that of these columns; return its leaves' paths if they changed.

    Physical types, lengths and repetitions stay, for the pages are written by them. Errors: Malformed where these are
    not the file's columns, one by one, by place, shape, physical type and field id.
    """
    found = _Annotation(elements)
    root = found.next(children=len(columns))
    root.put(NAME, BINARY, ROOT)
    root.drop(REPETITION)
    found.struct(columns, (), ())
    found.end()
    return tuple(found.new) if found.new != found.old else None


def names_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return how Iceberg calls these fields of one struct in a file: as Avro could; their own names if two collide,
    which they must not for engines that take no notice of case either."""
    names = tuple(in_file(column.name) for column in columns)
    different = len({name.casefold() for name in names}) == len(names)
    return names if different else tuple(column.name for column in columns)


class _Annotation:
    """Walks the elements of a schema, which lie depth first, beside the columns."""

    def __init__(self, elements: Sequence[Struct]) -> None:
        self._elements = iter(elements)
        self.old: list[Path] = []
        self.new: list[Path] = []

    def next(self, *, children: int = 0, repeated: bool = False) -> Struct:
        """Return the next element, which must be of this shape. Errors: Malformed."""
        element = next(self._elements, None)
        if element is None:
            raise Malformed("it has fewer columns than the table")
        if (element.whole(CHILDREN) or 0) != children or (element.whole(REPETITION) == REPEATED) != repeated:
            raise Malformed(f"its column {_name(element)!r} is of another shape than the table's")
        return element

    def end(self) -> None:
        if next(self._elements, None) is not None:
            raise Malformed("it has more columns than the table")

    def struct(self, columns: Sequence[Column], old: Path, new: Path) -> None:
        for column, name in zip(columns, names_of(columns), strict=True):
            self.column(column, name, old, new)

    def column(self, column: Column, name: str, old: Path, new: Path) -> None:
        """Annotate one column and all below it; `old` and `new` are the paths of what it lies in."""
        nested = column.type in ("list", "map")
        element = self.next(children=1 if nested else len(column.children))
        old, new = (*old, _name(element)), (*new, name.encode())
        if not column.children:
            _check_primitive(element, column)
            self.old.append(old)
            self.new.append(new)
        _describe(element, column, new[-1])
        if nested:
            group = self.next(children=len(column.children), repeated=True)
            old, new = (*old, _name(group)), (*new, b"list" if column.type == "list" else b"key_value")
            group.put(NAME, BINARY, new[-1])
            group.drop(CONVERTED, LOGICAL)
        self.struct(column.children, old, new)


def _check_primitive(element: Struct, column: Column) -> None:
    wanted = physical_type(column.type)
    length = None
    if wanted == FIXED and not column.type.startswith("decimal"):
        length = 16 if column.type == "uuid" else int(column.type[6:-1])
    if element.whole(TYPE) != wanted or (length is not None and element.whole(TYPE_LENGTH) != length):
        raise Malformed(f"its column {_name(element)!r} is not stored as {column.type}")


def physical_type(type_text: str) -> int:
    """Return the physical type that a primitive column is stored in; UNKNOWN for one that is not known here."""
    if type_text.startswith("decimal"):
        precision, _ = digits(type_text)
        return INT32 if precision <= _IN_INT32 else INT64 if precision <= _IN_INT64 else FIXED
    return _PHYSICAL.get(type_text.partition("[")[0], UNKNOWN)


def _describe(element: Struct, column: Column, name: bytes) -> None:
    """Give one element the name, the field id and the annotations that Iceberg's writer gives this column."""
    if element.whole(FIELD_ID) not in (None, column.field_id):
        raise Malformed(f"its column {_name(element)!r} has field id {element.whole(FIELD_ID)}, not {column.field_id}")
    element.put(NAME, BINARY, name)
    element.put(FIELD_ID, I32, column.field_id)
    element.drop(CONVERTED, SCALE, PRECISION, LOGICAL)
    kind = column.type.partition("(")[0]
    if kind == "decimal":
        precision, scale = digits(column.type)
        element.put(SCALE, I32, scale)
        element.put(PRECISION, I32, precision)
    if kind in _CONVERTED:
        element.put(CONVERTED, I32, _CONVERTED[kind])
    if kind in _LOGICAL:
        element.put(LOGICAL, STRUCT, Struct({_LOGICAL[kind]: (STRUCT, _parameters(column.type))}))


def _parameters(type_text: str) -> Struct:
    """Return what a logical type says beside its name."""
    if type_text.startswith("decimal"):
        precision, scale = digits(type_text)
        return Struct({1: (I32, scale), 2: (I32, precision)})
    if type_text.startswith("time"):
        unit = Struct({_MICROS: (STRUCT, Struct())})
        return Struct({1: (TRUE, type_text == "timestamptz"), 2: (STRUCT, unit)})
    return Struct()


def digits(type_text: str) -> tuple[int, int]:
    """Return precision and scale of a decimal."""
    precision, scale = type_text.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def _name(element: Struct) -> bytes:
    return element.binary(NAME) or b""


_UNIT = 2
"""Bytes of a character as Java counts: beyond the first 65,536 they come in pairs."""


def in_file(name: str) -> str:
    """Return a column's name with `_x` and its number for each character that is no letter, digit or underscore.

    Source: org.apache.iceberg.avro.AvroSchemaUtil.makeCompatibleName, 1.10.1.
    """
    units = name.encode("utf-16-be", "surrogatepass")
    characters = [chr(int.from_bytes(units[at : at + _UNIT])) for at in range(0, len(units), _UNIT)]
    return "".join(c if _fits(c, at) else _spelt(c) for at, c in enumerate(characters))


def _fits(character: str, at: int) -> bool:
    return character == "_" or character.isalpha() or (at > 0 and _is_digit(character))


def _spelt(character: str) -> str:
    return f"_{character}" if _is_digit(character) else f"_x{ord(character):X}"


def _is_digit(character: str) -> bool:
    return unicodedata.category(character) == "Nd"
