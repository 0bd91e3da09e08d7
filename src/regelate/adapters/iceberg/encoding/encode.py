"""JSON records -> typed Arrow, strict and lossless, column by column (docs/api.md, "JSON encodings").

Each column is first built whole: the set of its Python types says whether Arrow may take it as it is. Only a column
that this refuses is read value by value (`json_values`): that names the faults, or gives a plain form to build from.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from regelate.adapters.iceberg.encoding.json_values import NOT_FINITE, UUID_TEXT, filler, plain_value, type_head
from regelate.adapters.iceberg.encoding.row_faults import (
    MAX_FAULTS,
    MISSING,
    SCHEMA_MISMATCH,
    Fault,
    Refused,
    refused,
    rows_error,
)
from regelate.core.running.given_rows import GivenRows
from regelate.core.table.schema import Column
from regelate.errors import InvariantViolated

_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?"
_TIME = f"^{_CLOCK}$"
_TIMESTAMP = rf"^\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK}$"
_TIMESTAMPTZ = rf"^\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK}(Z|[+-]\d{{2}}:\d{{2}})$"
_DAYS = (pa.scalar(-719_162, pa.int32()), pa.scalar(2_932_896, pa.int32()))
"""0001-01-01 and 9999-12-31: what Python and ISO 8601 can write."""
_MICROSECONDS = tuple(pa.scalar(n, pa.int64()) for n in (-719_162 * 86_400_000_000, 2_932_897 * 86_400_000_000 - 1))
NONE = type(None)
SLICE = 100_000
T = TypeVar("T")


class NotPlain(Exception):
    """This column cannot be built whole: read it value by value."""


def encode_records(columns: Sequence[Column], schema: pa.Schema, records: Sequence[Mapping[str, object]]) -> pa.Table:
    """Return the records as a table of exactly the given Arrow schema; a missing optional column is null.

    Errors: InvalidRequest 422 with code, 0-based row and column of the first fault, and up to five faults in `faults`.
    """
    return pa.concat_tables(_encoded(columns, schema, part, start, _missing) for start, part in sliced(records))


def encode_given(
    columns: Sequence[Column], schema: pa.Schema, records: Sequence[Mapping[str, object]], key: Sequence[str]
) -> GivenRows:
    """Return the records as far as they name columns; a required column that is left out is no fault yet, but of `key`.

    Errors: as `encode_records`.
    """
    tables: list[pa.Table] = []
    masks: dict[int, list[pa.Array]] = {column.field_id: [] for column in columns}
    for start, part in sliced(records):
        tables.append(_encoded(columns, schema, part, start, lambda c: MISSING if c.name in key else filler(c)))
        if all(len(record) == len(columns) for record in part):
            lacking = [pa.repeat(False, len(part))] * len(columns)
        else:
            lacking = [pa.array([c.name not in record for record in part], pa.bool_()) for c in columns]
        for column, mask in zip(columns, lacking, strict=True):
            masks[column.field_id].append(mask)
    absent = {field_id: pa.concat_arrays(parts) for field_id, parts in masks.items()}
    return GivenRows(
        rows=pa.concat_tables(tables),
        count=len(records),
        absent={field_id: mask for field_id, mask in absent.items() if mask.true_count},
    )


def sliced(records: Sequence[T]) -> Iterator[tuple[int, Sequence[T]]]:
    """Yield the records in parts, each with the row that it begins at; no records are one part.

    A part is held as Python objects, which take ten times what its Arrow does, while it is encoded.
    """
    for start in range(0, len(records) or 1, SLICE):
        yield start, records[start : start + SLICE]


def _missing(column: Column) -> object:
    return MISSING


def _encoded(
    columns: Sequence[Column],
    schema: pa.Schema,
    records: Sequence[Mapping[str, object]],
    start: int,
    absent: Callable[[Column], object],
) -> pa.Table:
    """Return the records as a table. `start`: the row of the first; `absent`: stands for a required column left out."""
    _check_objects(records)
    faults = _unknown_columns(columns, records)
    arrays: list[pa.Array] = []
    for column, field in zip(columns, schema, strict=True):
        other = absent(column) if column.required else None
        array, found = encode_values(column, field.type, [r.get(column.name, other) for r in records], column.name)
        arrays.append(array)
        faults += found
    if faults:
        raise rows_error((start + row, fault) for row, fault in faults)
    return pa.Table.from_arrays(arrays, schema=schema)


def encode_values(
    column: Column, kind: pa.DataType, values: Sequence[Any], path: str
) -> tuple[pa.Array | None, list[tuple[int, Fault]]]:
    """Return JSON values as one array, or the first faults by index; MISSING stands for a required key left out."""
    try:
        _check(not column.required or None not in values)
        return build(column, kind, values), []
    except (NotPlain, pa.ArrowException, OverflowError, UnicodeError):
        faults, plain = _read_values(column, values, path)
    if faults:
        return None, faults
    try:
        return build(column, kind, plain), []
    except (NotPlain, pa.ArrowException, OverflowError, UnicodeError) as error:
        raise InvariantViolated(
            "ENCODING_DISAGREES", f"column {path!r} passed every check, and Arrow refused it: {error}"
        ) from error


def build(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Build one column of JSON values (None: null) whole. Errors: NotPlain, or what Arrow raises."""
    return _BUILDERS[type_head(column.type)](column, kind, values)


def _check_objects(records: Sequence[object]) -> None:
    if not _types(records) <= {dict}:
        wrong = [(row, r) for row, r in enumerate(records) if not isinstance(r, Mapping)]
        if wrong:
            raise rows_error((row, refused(SCHEMA_MISMATCH, "", "an object", r).fault) for row, r in wrong)


def _unknown_columns(columns: Sequence[Column], records: Sequence[Mapping[str, object]]) -> list[tuple[int, Fault]]:
    names = {c.name for c in columns}
    if set(chain.from_iterable(records)) <= names:
        return []
    known = ", ".join(c.name for c in columns[:50])
    found: list[tuple[int, Fault]] = []
    for row, record in enumerate(records):
        extra = (name for name in record if name not in names)
        found += ((row, refused(SCHEMA_MISMATCH, n, f"one of the columns {known}", record[n]).fault) for n in extra)
        if len(found) >= MAX_FAULTS:
            break
    return found


def _read_values(column: Column, values: Sequence[object], path: str) -> tuple[list[tuple[int, Fault]], list[object]]:
    """Return the first faults of a column by index, and the plain form of its values."""
    faults: list[tuple[int, Fault]] = []
    plain: list[object] = []
    for index, value in enumerate(values):
        try:
            if value is MISSING:
                raise refused(SCHEMA_MISMATCH, path, f"required {column.type}", value)
            plain.append(plain_value(column, value, path))
        except Refused as error:
            faults.append((index, error.fault))
            if len(faults) == MAX_FAULTS:
                break
    return faults, plain


def _types(values: Iterable[object]) -> set[type]:
    return set(map(type, values))


def _check(condition: bool) -> None:
    if not condition:
        raise NotPlain


def _all(mask: pa.Array) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def in_calendar(array: pa.Array) -> pa.Array:
    """Say of each day or moment whether it lies in the years 0001 to 9999, which every reader can show."""
    days = pa.types.is_date32(array.type)
    numbers = array.view(pa.int32() if days else pa.int64())
    low, high = _DAYS if days else _MICROSECONDS
    return pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))


def _texts(values: Sequence[Any], pattern: str | None = None) -> pa.Array:
    _check(_types(values) <= {str, NONE})
    texts = pa.array(values, pa.large_string())
    if pattern is not None:
        _check(_all(pc.match_substring_regex(texts, pattern)))
    return texts


def _only(wanted: type) -> Callable[[Column, pa.DataType, Sequence[Any]], pa.Array]:
    def build_all(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
        _check(_types(values) <= {wanted, NONE})
        return pa.array(values, kind)

    return build_all


def _floats(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    types = _types(values)
    _check(types <= {float, int, str, NONE})
    named = 0
    if str in types:
        named = sum(type(v) is str for v in values)
        _check(all(v in NOT_FINITE for v in values if type(v) is str))
        values = [NOT_FINITE[v] if type(v) is str else v for v in values]
    array = pa.array(values, kind)
    infinite = pc.sum(pc.invert(pc.is_finite(array))).as_py() or 0
    _check(infinite == named)  # more: a bare NaN, or a double that became infinite as a float
    return array


def _decimals(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Only texts that fit are given to Arrow: its cast to decimal(38,38) takes "11" and stores another number."""
    whole = rf"\d{{1,{kind.precision - kind.scale}}}" if kind.precision > kind.scale else "0"
    fraction = rf"(\.\d{{1,{kind.scale}}})?" if kind.scale else ""
    return _texts(values, f"^-?{whole}{fraction}$").cast(kind)


def _strings(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return _texts(values).cast(kind)


def _uuids(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    _check(_types(values) <= {str, NONE})
    _check(all(v is None or UUID_TEXT.fullmatch(v) for v in values))
    data = [None if v is None else bytes.fromhex(v.replace("-", "")) for v in values]
    return pa.ExtensionArray.from_storage(kind, pa.array(data, kind.storage_type))


def _binaries(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    _check(_types(values) <= {str, NONE})
    try:
        data = [None if v is None else binascii.a2b_base64(v, strict_mode=True) for v in values]
    except ValueError:
        raise NotPlain from None
    return pa.array(data, kind)


def _dates(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    days = _texts(values).cast(kind)
    _check(_all(in_calendar(days)))
    return days


def _times(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Arrow parses no time of day, but it parses a moment of the first day."""
    texts = _texts(values, _TIME)
    text = pa.large_string()
    moments = pc.binary_join_element_wise(pa.scalar("1970-01-01T", text), texts, pa.scalar("", text))
    return moments.cast(pa.timestamp("us")).view(pa.int64()).view(kind)


def _timestamps(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    moments = _texts(values, _TIMESTAMPTZ if column.type == "timestamptz" else _TIMESTAMP).cast(kind)
    _check(_all(in_calendar(moments)))
    return moments


def _structs(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    _check(_types(values) <= {dict, NONE})
    present = [v for v in values if v is not None]
    _check(set(chain.from_iterable(present)) <= {c.name for c in column.children})
    for child in column.children:
        _check(not child.required or all(v.get(child.name) is not None for v in present))
    arrays: list[pa.Array] = []
    for i, child in enumerate(column.children):
        absent = filler(child) if child.required and len(present) < len(values) else None
        arrays.append(build(child, kind.field(i).type, [absent if v is None else v.get(child.name) for v in values]))
    mask = pa.array([v is None for v in values], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=[kind.field(i) for i in range(kind.num_fields)], mask=mask)


def _lists(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    _check(_types(values) <= {list, NONE})
    items = list(chain.from_iterable(v for v in values if v is not None))
    element = column.children[0]
    _check(not element.required or None not in items)
    return pa.LargeListArray.from_arrays(
        _offsets(values, pa.int64()), build(element, kind.value_type, items), type=kind
    )


def _maps(column: Column, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    _check(_types(values) <= {dict, list, NONE})
    pairs = [None if v is None else _pairs(v) for v in values]
    keys = [k for p in pairs if p is not None for k, _ in p]
    items = [i for p in pairs if p is not None for _, i in p]
    key_column, item_column = column.children
    _check(None not in keys and not (item_column.required and None in items))
    key_array = build(key_column, kind.key_type, keys)
    if key_column.type != "string" or list in _types(values):
        _check_unique_keys(key_array, pairs)
    return pa.MapArray.from_arrays(
        _offsets(pairs, pa.int32()), key_array, build(item_column, kind.item_type, items), type=kind
    )


def _pairs(value: dict[str, Any] | list[Any]) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    _check(all(type(entry) is dict and len(entry) == 2 and "key" in entry and "value" in entry for entry in value))
    return [(entry["key"], entry["value"]) for entry in value]


def _check_unique_keys(keys: pa.Array, pairs: Sequence[Sequence[Any] | None]) -> None:
    texts = iter(map(repr, keys.to_pylist()))
    for row in pairs:
        if row is not None:
            mine = [next(texts) for _ in row]
            _check(len(set(mine)) == len(mine))


def _offsets(values: Sequence[Sequence[Any] | None], kind: pa.DataType) -> pa.Array:
    """Return where each list begins; Arrow reads a null offset as a null list."""
    ends = list(accumulate((0 if v is None else len(v) for v in values), initial=0))
    return pa.array([None if v is None else o for v, o in zip(values, ends, strict=False)] + ends[-1:], kind)


_BUILDERS: Mapping[str, Callable[[Column, pa.DataType, Sequence[Any]], pa.Array]] = {
    "boolean": _only(bool),
    "int": _only(int),
    "long": _only(int),
    "float": _floats,
    "double": _floats,
    "decimal": _decimals,
    "string": _strings,
    "uuid": _uuids,
    "binary": _binaries,
    "fixed": _binaries,
    "date": _dates,
    "time": _times,
    "timestamp": _timestamps,
    "timestamptz": _timestamps,
    "struct": _structs,
    "list": _lists,
    "map": _maps,
}
