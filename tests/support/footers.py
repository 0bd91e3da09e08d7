"""Footers as tests see them, and tables with a column of every type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from regelate.adapters.parquet.footer import read_footer
from regelate.adapters.parquet.thrift import Struct
from regelate.adapters.parquet.thrift_reader import decode

FIELDS = ("type", "type_length", "repetition", "name", "num_children")
FIELDS += ("converted", "scale", "precision", "field_id", "logical")
PLAIN: Sequence[IcebergType] = (
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DateType(),
    TimestampType(),
    TimestamptzType(),
    StringType(),
    BinaryType(),
    *(DecimalType(p, s) for p, s in ((1, 0), (4, 2), (9, 2), (10, 2), (18, 9), (19, 0), (20, 2), (38, 10), (38, 38))),
)
BEYOND_SPARK: Sequence[IcebergType] = (UUIDType(), TimeType())
"""Spark reads a UUID as text and no time at all."""
FIXED: Sequence[IcebergType] = (FixedType(5), FixedType(16))
"""They send the file through PyArrow's writer."""
ODD_NAME = "2naïve wörd 😀 \N{ARABIC-INDIC DIGIT ONE}"


def every_type(types: Sequence[IcebergType], *, required: bool) -> Schema:
    """A schema with a column of each type and all ways of nesting, with names that Avro could not have."""
    ids = count(1)

    def field(name: str, kind: IcebergType, required: bool = required) -> NestedField:
        return NestedField(next(ids), name, kind, required=required)

    def listed(element: IcebergType, required: bool = required) -> ListType:
        return ListType(next(ids), element, element_required=required)

    def mapped(key: IcebergType, value: IcebergType) -> MapType:
        return MapType(next(ids), key, next(ids), value, value_required=required)

    inner = StructType(field("m", mapped(IntegerType(), listed(TimestampType(), not required))))
    return Schema(
        *(field(f"of type {kind}", kind) for kind in types),
        field("st", StructType(field("a", IntegerType()), field("b.c", StringType(), not required))),
        field("li", listed(IntegerType())),
        field("ma", mapped(StringType(), DecimalType(9, 2))),
        field("deep", listed(inner)),
        field(ODD_NAME, LongType()),
    )


def record(schema: Schema, number: int) -> dict[str, Any]:
    """A row of the schema as JSON has it."""
    return {f.name: _value(f.field_type, number) for f in schema.fields}


def _value(kind: IcebergType, n: int) -> Any:
    moment = f"2020-01-0{n + 1}T10:00:00.123456"
    plain: dict[str, Any] = {
        "boolean": n % 2 == 0, "int": n, "long": n, "float": n + 0.5, "double": n + 0.5, "string": f"s{n}",
        "date": moment[:10], "time": moment[11:], "timestamp": moment, "timestamptz": moment + "Z", "binary": "AAE=",
        "uuid": f"00000000-0000-4000-8000-00000000000{n}",
        "fixed[5]": "AAECAwQ=", "fixed[16]": "AAECAwQFBgcICQoLDA0ODw==",
    }  # fmt: skip
    if isinstance(kind, DecimalType):
        return f"{n}" if not kind.scale else f"{0 if kind.scale == kind.precision else n}.1"
    if isinstance(kind, StructType):
        return {f.name: _value(f.field_type, n) for f in kind.fields}
    if isinstance(kind, ListType):
        return [_value(kind.element_type, n), _value(kind.element_type, n + 1)]
    if isinstance(kind, MapType):
        value = _value(kind.value_type, n)
        return {"k": value} if isinstance(kind.key_type, StringType) else [{"key": n, "value": value}]
    return plain[str(kind)]


def footer_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return read_footer(file).data


def elements(footer: bytes) -> Iterator[dict[str, Any]]:
    """The elements of a footer's schema, with names for their fields."""
    for element in decode(footer).structs(2):
        yield {FIELDS[number - 1]: _plain(value) for number, (_, value) in element.items()}


def key_values(footer: bytes) -> dict[str, str]:
    pairs = decode(footer).structs(5)
    return {(pair.binary(1) or b"").decode(): (pair.binary(2) or b"").decode() for pair in pairs}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {number: _plain(inner) for number, (_, inner) in value.items()}
    return value.decode() if isinstance(value, bytes) else value
