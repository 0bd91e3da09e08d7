"""Arrow tables of any origin -> exactly a table's own Arrow schema, or a refusal: nothing is rounded or dropped.

Like goes to like by Arrow's safe casts. Text (CSV) is read by the rules for JSON texts, and as digits for numbers and
`true` / `false` for booleans; numbers change kind only where their value stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from regelate.adapters.iceberg.encoding.encode import build, encode_values, in_calendar
from regelate.adapters.iceberg.encoding.json_values import NOT_FINITE, filler, type_head
from regelate.adapters.iceberg.encoding.row_faults import (
    NULL_IN_REQUIRED,
    SCHEMA_MISMATCH,
    TIMEZONE_MISMATCH,
    VALUE_OUT_OF_RANGE,
    Fault,
    rows_error,
)
from regelate.core.running.given_rows import GivenRows
from regelate.core.table.schema import Column
from regelate.errors import InvalidRequest

Test = Callable[[pa.DataType], bool]
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class _Source:
    """Where values come from: the row of each one, and whether the table stores them already."""

    rows: pa.Array
    stored: bool = False

    def of(self, parents: pa.Array) -> _Source:
        """Return the source of the items in nested values."""
        return replace(self, rows=self.rows.take(parents))


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_binary(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_binary_view(kind)
        or kinds.is_fixed_size_binary(kind)
    )


def _is_moment_or_date(kind: pa.DataType) -> bool:
    return bool(kinds.is_timestamp(kind) or kinds.is_date(kind))


_CAST: Mapping[str, tuple[Test, ...]] = {
    "boolean": (kinds.is_boolean,),
    "int": (kinds.is_integer,),
    "long": (kinds.is_integer,),
    "float": (kinds.is_floating, kinds.is_integer),
    "double": (kinds.is_floating, kinds.is_integer),
    "string": (_is_text,),
    "uuid": (_is_bytes,),
    "binary": (_is_bytes,),
    "fixed": (_is_bytes,),
    "date": (_is_moment_or_date,),
    "time": (kinds.is_time,),
    "timestamp": (_is_moment_or_date,),
    "timestamptz": (kinds.is_timestamp,),
}
"""What each type takes by Arrow's safe cast."""
_READ: Mapping[str, tuple[Test, ...]] = {
    "int": (kinds.is_floating, kinds.is_decimal),
    "long": (kinds.is_floating, kinds.is_decimal),
    "decimal": (kinds.is_integer, kinds.is_floating, kinds.is_decimal),
}
"""What each type takes value by value, when every value stays the same; besides text, which all plain types take.

Decimals among them: Arrow's cast of 11 from decimal(38,0) to decimal(38,38) stores another number, without an error.
"""


def coerce_table(columns: Sequence[Column], schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Return the rows as a table of exactly the given Arrow schema, found by name; a missing optional column is null.

    Errors: InvalidRequest 422 SCHEMA_MISMATCH, NULL_IN_REQUIRED, VALUE_OUT_OF_RANGE or TIMEZONE_MISMATCH.
    """
    source = _Source(pa.array(range(rows.num_rows), pa.int64()))
    struct = rows.combine_chunks().to_struct_array()
    array = struct.combine_chunks() if isinstance(struct, pa.ChunkedArray) else struct
    arrays = _fields(columns, [field.type for field in schema], array, source, "")
    return pa.Table.from_arrays(arrays, schema=schema)


def coerce_given(columns: Sequence[Column], schema: pa.Schema, rows: pa.Table, key: Sequence[str]) -> GivenRows:
    """Return the columns that an Arrow table has; a required one that it lacks is no fault yet, but of `key`.

    Errors: as `coerce_table`.
    """
    lacking = [c for c in columns if c.name not in (*rows.column_names, *key)]
    found = coerce_table([replace(c, required=False) if c in lacking else c for c in columns], schema, rows)
    for at, column in enumerate(columns):
        if column.required and column in lacking:
            some = _repeated(column, schema.field(at).type, filler(column), rows.num_rows)
            found = found.set_column(at, schema.field(at), some)
    everywhere = pa.repeat(pa.scalar(True), rows.num_rows)
    absent = {c.field_id: everywhere for c in lacking} if rows.num_rows else {}
    return GivenRows(rows=found, count=rows.num_rows, absent=absent)


def coerce_stored(column: Column, kind: pa.DataType, array: pa.Array, records: pa.Array) -> pa.Array:
    """Return what a table stores in one column, as an engine reads it, in the table's own type.

    A day or moment that is stored is kept whatever its year. `records`: which record each value is for.
    Errors: InvalidRequest 422 NULL_IN_REQUIRED where other writers left a null.
    """
    return _item(column, kind, array, _Source(records, stored=True), column.name)


def _fields(
    columns: Sequence[Column], wanted: Sequence[pa.DataType], struct: pa.StructArray, source: _Source, path: str
) -> list[pa.Array]:
    names = [struct.type.field(i).name for i in range(struct.type.num_fields)]
    known = [c.name for c in columns]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise _refused(SCHEMA_MISMATCH, f"{path}{name}", f"each of the columns {', '.join(known[:50])} once", name)
    return [
        _coerced(
            column,
            kind,
            pc.struct_field(struct, [names.index(column.name)]) if column.name in names else None,
            (struct, source),
            f"{path}{column.name}",
        )
        for column, kind in zip(columns, wanted, strict=True)
    ]


def _coerced(
    column: Column, kind: pa.DataType, array: pa.Array | None, parent: tuple[pa.Array, _Source], path: str
) -> pa.Array:
    struct, source = parent
    if array is None:
        if column.required and len(struct) > struct.null_count:
            raise _refused(SCHEMA_MISMATCH, path, f"required {column.type}", "no such column")
        array = pa.nulls(len(struct))
    if not column.required:
        return _array(column, kind, array, source, path)
    _check_rows(pc.or_(pc.is_valid(array), pc.is_null(struct)), source, NULL_IN_REQUIRED, path, column, "null")
    return _filled(column, kind, _array(column, kind, array, source, path))


def _repeated(column: Column, kind: pa.DataType, value: object, times: int) -> pa.Array:
    """Return one value many times; a null struct has its fillers (see `filler`)."""
    return build(column, kind, [value]).take(pa.repeat(pa.scalar(0, pa.int64()), times))


def _filled(column: Column, kind: pa.DataType, array: pa.Array) -> pa.Array:
    """Put some value where a null struct leaves a required field without one (see `filler`)."""
    if array.null_count == 0:
        return array
    end = pa.scalar(len(array), pa.int64())
    places = pc.if_else(pc.is_valid(array), pa.array(range(len(array)), pa.int64()), end)
    return pa.concat_arrays([array, build(column, kind, [filler(column)])]).take(places)


def _array(column: Column, kind: pa.DataType, array: pa.Array, source: _Source, path: str) -> pa.Array:
    if kinds.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage.cast(pa.bool_()) if isinstance(array.type, pa.Bool8Type) else array.storage
    head = type_head(column.type)
    if kinds.is_null(array.type):
        return _repeated(column, kind, None, len(array))
    if head in _NESTED:
        return _NESTED[head](column, kind, array, source, path)
    if array.type == kind or any(test(array.type) for test in _CAST.get(head, ())):
        return _cast(column, kind, array, source, path)
    if _is_text(array.type) or any(test(array.type) for test in _READ.get(head, ())):
        values = [_json(head, value) for value in array.to_pylist()]
        found, faults = encode_values(column, kind, values, path)
        if found is None:
            raise rows_error((source.rows[index].as_py(), fault) for index, fault in faults)
        return found
    raise _refused(SCHEMA_MISMATCH, path, column.type, f"Arrow type {array.type}")


def _json(head: str, value: Any) -> Any:
    """Return a value as JSON would have it; a text that is none of the type's stays text, and is refused as that."""
    if isinstance(value, Decimal):
        return int(value) if head in ("int", "long") and value == value.to_integral_value() else str(value)
    if not isinstance(value, str):
        return value
    if head in ("int", "long") and _INTEGER.fullmatch(value):
        return int(value)
    if head in ("float", "double") and value not in NOT_FINITE and _NUMBER.fullmatch(value):
        return float(value)
    return _BOOLEANS.get(value.lower(), value) if head == "boolean" else value


def _cast(column: Column, kind: pa.DataType, array: pa.Array, source: _Source, path: str) -> pa.Array:
    if kinds.is_timestamp(array.type) and (array.type.tz is not None) != (column.type == "timestamptz"):
        zone = array.type.tz or "without zone"
        raise _refused(TIMEZONE_MISMATCH, path, column.type, f"moments in {zone}")
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    try:
        found = array.cast(storage)
    except pa.ArrowInvalid as error:
        row = source.rows[_first_failure(array, storage)].as_py()
        text = str(error).splitlines()[0][:120]
        raise _refused(VALUE_OUT_OF_RANGE, path, column.type, text, row=row) from None
    if kinds.is_floating(storage) and kinds.is_floating(array.type):
        became_infinite = pc.and_(pc.is_inf(found), pc.is_finite(array))
        _check_rows(pc.invert(became_infinite), source, VALUE_OUT_OF_RANGE, path, column, "a number beyond its largest")
    if kinds.is_timestamp(array.type) and kinds.is_date(storage):  # a cast that Arrow calls safe, and it drops the time
        whole_day = pc.equal(found.cast(array.type), array)
        _check_rows(whole_day, source, VALUE_OUT_OF_RANGE, path, column, "a time of day")
    if _is_moment_or_date(storage) and not source.stored:
        _check_rows(in_calendar(found), source, VALUE_OUT_OF_RANGE, path, column, "a year outside of 0001 to 9999")
    return found if storage is kind else pa.ExtensionArray.from_storage(kind, found)


def _first_failure(array: pa.Array, kind: pa.DataType) -> int:
    """Return the index of the first value that does not cast, by halving."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            array.slice(low, middle - low).cast(kind)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _structs(column: Column, kind: pa.DataType, array: pa.Array, source: _Source, path: str) -> pa.Array:
    if not kinds.is_struct(array.type):
        raise _refused(SCHEMA_MISMATCH, path, "struct", f"Arrow type {array.type}")
    fields = [kind.field(i) for i in range(kind.num_fields)]
    arrays = _fields(column.children, [f.type for f in fields], array, source, f"{path}.")
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.is_null(array))


def _lists(column: Column, kind: pa.DataType, array: pa.Array, source: _Source, path: str) -> pa.Array:
    if not (kinds.is_list(array.type) or kinds.is_large_list(array.type) or kinds.is_fixed_size_list(array.type)):
        raise _refused(SCHEMA_MISMATCH, path, "list", f"Arrow type {array.type}")
    items, parents = array.flatten(), source.of(pc.list_parent_indices(array))
    (element,) = column.children
    built = _item(element, kind.value_type, items, parents, f"{path}[]")
    return pa.LargeListArray.from_arrays(_offsets(array, pa.int64()), built, type=kind)


def _maps(column: Column, kind: pa.DataType, array: pa.Array, source: _Source, path: str) -> pa.Array:
    if not kinds.is_map(array.type):
        raise _refused(SCHEMA_MISMATCH, path, "map", f"Arrow type {array.type}")
    listed = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    pairs, parents = listed.flatten(), source.of(pc.list_parent_indices(listed))
    key, item = column.children
    keys = _item(key, kind.key_type, pc.struct_field(pairs, [0]), parents, f"{path}.key")
    items = _item(item, kind.item_type, pc.struct_field(pairs, [1]), parents, f"{path}.value")
    return pa.MapArray.from_arrays(_offsets(listed, pa.int32()), keys, items, type=kind)


def _item(column: Column, kind: pa.DataType, items: pa.Array, source: _Source, path: str) -> pa.Array:
    if column.required:
        _check_rows(pc.is_valid(items), source, NULL_IN_REQUIRED, path, column, "null")
    return _array(column, kind, items, source, path)


def _offsets(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return where each list begins once flattened; Arrow reads a null offset as a null list."""
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64()))
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    null_starts = pc.if_else(pc.is_null(array), pa.scalar(None, pa.int64()), starts.slice(0, len(array)))
    return pa.concat_arrays([null_starts, starts.slice(len(array))]).cast(kind)


_NESTED: Mapping[str, Callable[[Column, pa.DataType, pa.Array, _Source, str], pa.Array]] = {
    "struct": _structs,
    "list": _lists,
    "map": _maps,
}


def _check_rows(good: pa.Array, source: _Source, code: str, path: str, column: Column, got: str) -> None:
    index = pc.index(pc.fill_null(good, True), pa.scalar(False)).as_py()
    if index >= 0:
        where = " in the stored row" if source.stored else ""
        raise _refused(code, path, column.type, f"{got}{where}", row=source.rows[index].as_py())


def _refused(code: str, path: str, expected: str, got: str, *, row: int = 0) -> InvalidRequest:
    return rows_error([(row, Fault(code=code, path=path, expected=expected, got=got))])
