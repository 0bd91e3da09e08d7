"""Columns as the doors write them <-> an Iceberg schema."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from pyiceberg.schema import Schema, assign_fresh_schema_ids
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
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from regelate.core.table.schema import MAX_COLUMNS, MAX_DEPTH, Column, too_large
from regelate.errors import InvalidRequest

MAX_NAME_CHARACTERS = 255
MAX_FIXED_BYTES = 1024 * 1024
"""Arrow gives a null of fixed[n] n bytes too: a bound on what one row of nulls may cost, not a rule of Iceberg's."""
MAX_DECIMAL_PRECISION = 38
RESERVED_NAMES = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
    | {"_change_type", "_change_ordinal", "_commit_snapshot_id"}
)
"""Names of Iceberg's metadata columns (org.apache.iceberg.MetadataColumns, 1.10); every engine adds some of them."""
_PLAIN: dict[str, PrimitiveType] = {
    "boolean": BooleanType(),
    "bool": BooleanType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "time": TimeType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "string": StringType(),
    "text": StringType(),
    "varchar": StringType(),
    "uuid": UUIDType(),
    "binary": BinaryType(),
}
_VERSION_3_TYPES = frozenset({"timestamp_ns", "timestamptz_ns", "variant", "geometry", "geography", "unknown"})
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")
_FIXED = re.compile(r"fixed\s*(?:\[\s*(\d{1,10})\s*\]|\(\s*(\d{1,10})\s*\))")
_NESTED = {"struct": None, "list": ("element",), "map": ("key", "value")}
"""Names of the children that a nested type must have; a struct names its own."""


def schema_of(columns: Sequence[Column]) -> Schema:
    """Return the Iceberg schema of columns, with fresh field ids as a new table gets them; given ids are ignored.

    Errors: InvalidRequest INVALID_SCHEMA, naming the field.
    """
    if not columns:
        raise invalid_schema("schema", "has no columns")
    check_columns(columns)
    fields = [_field(column, column.name) for column in columns]
    return assign_fresh_schema_ids(Schema(*fields))


def check_columns(columns: Sequence[Column]) -> None:
    """Refuse columns that no table may have beside each other. Errors: InvalidRequest INVALID_SCHEMA, naming one."""
    _check_asked(columns)
    _check_siblings(columns, "")
    _check_paths(columns)


def type_of(column: Column, path: str) -> IcebergType:
    """Return the Iceberg type of a column; ids below are placeholders. Errors: InvalidRequest INVALID_SCHEMA."""
    _check_asked((column,))
    return _type(column, path)


def _check_asked(columns: Sequence[Column]) -> None:
    if why := too_large(columns, lambda column: column.children):
        raise InvalidRequest(
            "INVALID_SCHEMA", f"schema: {why}", field="schema", maximum=MAX_COLUMNS, maximum_depth=MAX_DEPTH
        )


def check_size(schema: Schema) -> None:
    """Refuse a table with more columns than this program takes. Errors: InvalidRequest SCHEMA_TOO_LARGE, 422."""
    if why := too_large(schema.fields, _below):
        told = f"the schema of this table is too large: {why}; use Spark for it"
        raise InvalidRequest("SCHEMA_TOO_LARGE", told, status=422, maximum=MAX_COLUMNS, maximum_depth=MAX_DEPTH)


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """Return the columns of any Iceberg schema, nested ones and field ids included."""
    return tuple(_column(field) for field in schema.fields)


def type_text(iceberg_type: IcebergType) -> str:
    """Return `struct`, `list`, `map` or Iceberg's text of a primitive type, such as `decimal(9,2)` or `fixed[16]`."""
    if isinstance(iceberg_type, StructType):
        return "struct"
    if isinstance(iceberg_type, ListType):
        return "list"
    if isinstance(iceberg_type, MapType):
        return "map"
    return str(iceberg_type).replace(", ", ",")


def same_columns(left: Sequence[Column], right: Sequence[Column]) -> bool:
    """Say whether two schemas ask for the same columns: names, types, required and order; ids and docs aside."""
    return len(left) == len(right) and all(
        (a.name, a.type, a.required) == (b.name, b.type, b.required) and same_columns(a.children, b.children)
        for a, b in zip(left, right, strict=True)
    )


def check_name(what: str, name: str) -> str | None:
    """Return why a column or partition field cannot have this name, or None when it can."""
    if not name:
        return f"{what} has an empty name"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"{what} has a name of {len(name)} characters; at most {MAX_NAME_CHARACTERS} are allowed"
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        return f"{what} has a control character in its name"
    return None


def invalid_schema(path: str, why: str) -> InvalidRequest:
    return InvalidRequest("INVALID_SCHEMA", f"{path}: {why}", field=path)


def _column(field: NestedField) -> Column:
    return Column(
        name=field.name,
        type=type_text(field.field_type),
        required=field.required,
        doc=field.doc,
        field_id=field.field_id,
        children=tuple(_column(child) for child in _below(field)),
    )


def _below(field: NestedField) -> tuple[NestedField, ...]:
    kind = field.field_type
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.key_field, kind.value_field) if isinstance(kind, MapType) else ()


def _field(column: Column, path: str) -> NestedField:
    """Build one field; its id is only a placeholder that differs from none: fresh ones are assigned at the end."""
    return NestedField(
        field_id=-1,
        name=column.name,
        field_type=_type(column, path),
        required=column.required,
        doc=column.doc,
    )


def _type(column: Column, path: str) -> IcebergType:
    kind = column.type.strip().lower()
    if kind not in _NESTED:
        if column.children:
            raise invalid_schema(path, f"type {column.type!r} cannot have fields, element, key or value")
        return _primitive(column.type, kind, path)
    wanted = _NESTED[kind]
    if wanted is None:
        if not column.children:
            raise invalid_schema(path, "a struct needs at least one entry in `fields`")
        _check_siblings(column.children, path)
        return StructType(*(_field(c, f"{path}.{c.name}") for c in column.children))
    if tuple(c.name for c in column.children) != wanted:
        raise invalid_schema(path, f"a {kind} needs {' and '.join(f'`{w}`' for w in wanted)}")
    for child in column.children:
        if child.doc is not None:
            raise invalid_schema(f"{path}.{child.name}", f"Iceberg keeps no doc for the {child.name} of a {kind}")
    types = [_type(c, f"{path}.{c.name}") for c in column.children]
    required = column.children[-1].required
    if kind == "list":
        return ListType(element_id=-1, element=types[0], element_required=required)
    return MapType(key_id=-1, key_type=types[0], value_id=-1, value_type=types[1], value_required=required)


def _primitive(text: str, kind: str, path: str) -> PrimitiveType:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind.partition("(")[0] in _VERSION_3_TYPES:
        raise invalid_schema(path, f"type {text!r} needs a table of format version 3, which is not supported")
    if match := _DECIMAL.fullmatch(kind):
        precision, scale = int(match[1]), int(match[2])
        if not 1 <= precision <= MAX_DECIMAL_PRECISION or scale > precision:
            raise invalid_schema(
                path, f"{text}: precision must be 1 to {MAX_DECIMAL_PRECISION} and scale 0 to the precision"
            )
        return DecimalType(precision, scale)
    if match := _FIXED.fullmatch(kind):
        length = int(match[1] or match[2])
        if not 1 <= length <= MAX_FIXED_BYTES:
            raise invalid_schema(path, f"{text}: length must be 1 to {MAX_FIXED_BYTES}")
        return FixedType(length)
    raise invalid_schema(
        path, f"unknown type {text[:80]!r}; known: {', '.join(_PLAIN)}, decimal(p,s), fixed[n], struct, list, map"
    )


def _check_siblings(columns: Sequence[Column], parent: str) -> None:
    """Refuse impossible, reserved, duplicate and case-colliding names among the fields of one struct."""
    seen: dict[str, str] = {}
    for column in columns:
        path = f"{parent}.{column.name}" if parent else column.name
        if why := check_name("a column" if not parent else f"a field of {parent}", column.name):
            raise invalid_schema(path[:MAX_NAME_CHARACTERS], why)
        folded = column.name.lower()
        if not parent and folded in RESERVED_NAMES:
            raise invalid_schema(path, "this name is reserved for a metadata column of Iceberg")
        if folded in seen:
            how = "appears twice" if seen[folded] == column.name else f"differs from {seen[folded]!r} only in case"
            raise invalid_schema(path, how)
        seen[folded] = column.name


def _check_paths(columns: Sequence[Column]) -> None:
    """Refuse a column `a.b` beside a struct `a` with a field `b`: Iceberg finds fields by their dotted path."""
    seen: set[str] = set()
    for path in _paths(columns, ""):
        if path.lower() in seen:
            raise invalid_schema(path, "two fields have this dotted path")
        seen.add(path.lower())


def _paths(columns: Sequence[Column], parent: str) -> Iterator[str]:
    for column in columns:
        path = f"{parent}{column.name}"
        yield path
        yield from _paths(column.children, f"{path}.")
