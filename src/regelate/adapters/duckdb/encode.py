"""Query results as JSON values, a column at a time (the encodings of docs/api.md), with Iceberg's names for the types.

Whatever has no encoding that keeps all of it is refused by name before a row is read: the caller casts it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from duckdb import sqltypes

from regelate.adapters.duckdb.question import ResultColumn
from regelate.errors import InvalidRequest

Values = list[Any]
Encoder = Callable[[pa.Array], Values]

INTEGERS = {
    "tinyint": "int",
    "smallint": "int",
    "integer": "int",
    "utinyint": "int",
    "usmallint": "int",
    "uinteger": "long",
    "bigint": "long",
    "ubigint": "ubigint",
    "hugeint": "hugeint",
    "boolean": "boolean",
}
TEXTS = {"varchar": "string", "uuid": "uuid", "enum": "string"}
MOMENTS = {
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamp_s": "timestamp",
    "timestamp_ms": "timestamp",
    "timestamp_ns": "timestamp_ns",
    "timestamp with time zone": "timestamptz",
}
NESTED = frozenset({"decimal", "list", "array", "struct", "map"})
"""Types that DuckDB describes by parts."""
PLAIN_DECIMAL_SCALE = 6
"""Up to this scale Arrow writes a decimal without an exponent, whatever its value."""


def result_columns(description: Sequence[Sequence[Any]]) -> tuple[tuple[ResultColumn, ...], tuple[Encoder, ...]]:
    """Return the columns of a DuckDB result and what encodes each; of equal names, the later get `_1`, `_2`, ...

    Errors: InvalidRequest QUERY_ERROR for a type without a lossless encoding.
    """
    columns: list[ResultColumn] = []
    encoders: list[Encoder] = []
    taken: set[str] = set()
    for name, kind, *_ in description:
        unique, number = name, 0
        while unique in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique)
        try:
            text, encoder = encoding(kind)
        except ValueError as error:
            raise InvalidRequest("QUERY_ERROR", f"column {name[:200]!r} has type {error}; cast it to VARCHAR") from None
        columns.append(ResultColumn(name=unique, type=text))
        encoders.append(encoder)
    return tuple(columns), tuple(encoders)


def encode_batch(batch: pa.RecordBatch, names: Sequence[str], encoders: Sequence[Encoder]) -> list[dict[str, Any]]:
    """Return the rows of a batch as objects by column name."""
    columns = [encode(array) for encode, array in zip(encoders, batch.columns, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def encoding(kind: sqltypes.DuckDBPyType) -> tuple[str, Encoder]:
    """Return the type's text and its encoder; ValueError with the type's name when it has none."""
    name = kind.id
    if name in INTEGERS:
        return INTEGERS[name], _whole if name == "hugeint" else _as_is
    if name in TEXTS:
        return TEXTS[name], _as_is
    if name in MOMENTS:
        return MOMENTS[name], _moments
    if name in ("float", "double"):
        return name, _floats if name == "float" else _doubles
    if name == "blob":
        return "binary", _blobs
    children = cast(list[tuple[str, Any]], kind.children) if name in NESTED else []
    if name == "decimal":
        (_, precision), (_, scale) = children
        return f"decimal({precision},{scale})", _decimals if scale <= PLAIN_DECIMAL_SCALE else _fine_decimals
    if name in ("list", "array"):
        text, element = encoding(children[0][1])
        return f"list<{text}>", lambda array: _lists(array, element)
    if name == "struct":
        return _struct(children)
    if name == "map":
        return _map(children[0][1], children[1][1])
    raise ValueError(str(kind))


def _as_is(array: pa.Array) -> Values:
    return list(array.to_pylist())


def _whole(array: pa.Array) -> Values:
    return [None if v is None else int(v) for v in array.to_pylist()]


def _floats(array: pa.Array) -> Values:
    """The shortest number that is the same float: 0.1, not 0.10000000149011612."""
    return _doubles(pc.cast(pc.cast(array, pa.string()), pa.float64()))


def _doubles(array: pa.Array) -> Values:
    values: Values = array.to_pylist()
    if pc.all(pc.is_finite(array)).as_py() is not False:
        return values
    return [v if v is None or math.isfinite(v) else _special(v) for v in values]


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _blobs(array: pa.Array) -> Values:
    return [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]


def _decimals(array: pa.Array) -> Values:
    values: Values = pc.cast(array, pa.string()).to_pylist()
    return values


def _fine_decimals(array: pa.Array) -> Values:
    return [None if v is None else format(v, "f") for v in array.to_pylist()]


def _moments(array: pa.Array) -> Values:
    texts = pc.cast(array, pa.string())
    if pc.any(pc.starts_with(texts, "<")).as_py():
        raise InvalidRequest(
            "QUERY_ERROR", f"a value of type {array.type} lies outside the years 1 to 9999; cast it to VARCHAR"
        )
    values: Values = pc.replace_substring(texts, " ", "T").to_pylist()
    return values


def _lists(array: pa.Array, element: Encoder) -> Values:
    flat, lengths = element(array.flatten()), pc.list_value_length(array).to_pylist()
    found, start = [], 0
    for length in lengths:
        found.append(None if length is None else flat[start : start + length])
        start += length or 0
    return found


def _struct(fields: Sequence[tuple[str, Any]]) -> tuple[str, Encoder]:
    names = [name for name, _ in fields]
    texts, encoders = zip(*(encoding(kind) for _, kind in fields), strict=True)

    def encode(array: pa.Array) -> Values:
        columns = [encoder(child) for encoder, child in zip(encoders, array.flatten(), strict=True)]
        rows = zip(array.is_valid().to_pylist(), zip(*columns, strict=True), strict=True)
        return [dict(zip(names, row, strict=True)) if valid else None for valid, row in rows]

    return f"struct<{', '.join(f'{n}: {t}' for n, t in zip(names, texts, strict=True))}>", encode


def _map(key: sqltypes.DuckDBPyType, value: sqltypes.DuckDBPyType) -> tuple[str, Encoder]:
    (key_text, keys_of), (value_text, values_of) = encoding(key), encoding(value)
    textual = key_text == "string"

    def encode(array: pa.Array) -> Values:
        keys, values, offsets = keys_of(array.keys), values_of(array.items), array.offsets.to_pylist()
        found: Values = []
        for valid, low, high in zip(array.is_valid().to_pylist(), offsets, offsets[1:], strict=False):
            pairs = list(zip(keys[low:high], values[low:high], strict=True))
            entries = dict(pairs) if textual else [{"key": k, "value": v} for k, v in pairs]
            found.append(entries if valid else None)
        return found

    return f"map<{key_text}, {value_text}>", encode
