"""Arrow tables of other programs as rows of ours: the same values, or a refusal."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow

from regelate.adapters.iceberg.encoding.coerce import coerce_table
from regelate.adapters.iceberg.tables.schema import columns_of, schema_of
from regelate.core.table.schema import Column
from regelate.errors import InvalidRequest


def typed(kind: str, *children: Column, name: str = "c", required: bool = False) -> Column:
    return Column(name=name, type=kind, required=required, children=children)


def coerced_table(columns: list[Column], rows: pa.Table) -> pa.Table:
    schema = schema_of(columns)
    arrow = schema_to_pyarrow(schema)
    found = coerce_table(columns_of(schema), arrow, rows)
    assert found.schema.equals(arrow)
    found.validate(full=True)
    return found


def coerced(column: Column, array: pa.Array | pa.ChunkedArray) -> list[Any]:
    return list(coerced_table([column], pa.table({column.name: array})).column(0).to_pylist())


def refused(column: Column, array: pa.Array | pa.ChunkedArray) -> tuple[str, object]:
    with pytest.raises(InvalidRequest) as caught:
        coerced(column, array)
    assert caught.value.status == 422
    assert str(caught.value.details["column"]).startswith("c")
    return caught.value.code, caught.value.details["row"]


NOON = datetime(2025, 1, 17, 12, tzinfo=UTC)
NAIVE = NOON.replace(tzinfo=None)
TEXT = pa.string()
ID = UUID(int=7)


@pytest.mark.parametrize(
    ("kind", "array", "stored"),
    [
        ("int", pa.array([1, None], pa.int8()), [1, None]),
        ("int", pa.array([1, 2**31 - 1], pa.uint64()), [1, 2**31 - 1]),
        ("long", pa.array([1.0, None]), [1, None]),
        ("int", pa.array([Decimal("3.0")]), [3]),
        ("long", pa.array(["12", "-7", None]), [12, -7, None]),
        ("int", pa.array(["12"]), [12]),
        ("double", pa.array([1, 2**53]), [1.0, float(2**53)]),
        ("double", pa.array([0.5, math.inf], pa.float32()), [0.5, math.inf]),
        ("float", pa.array([0.5, -math.inf]), [0.5, -math.inf]),
        ("double", pa.array(["1.5", "-2e3", ".5", "Infinity"]), [1.5, -2000.0, 0.5, math.inf]),
        ("boolean", pa.array(["true", "False"]), [True, False]),
        ("decimal(9,2)", pa.array([Decimal("1.5")]), [Decimal("1.50")]),
        ("decimal(9,2)", pa.array([Decimal("1.500")]), [Decimal("1.50")]),
        ("decimal(9,2)", pa.array([1.25, 3.0]), [Decimal("1.25"), Decimal("3.00")]),
        ("decimal(9,2)", pa.array([7]), [Decimal("7.00")]),
        ("decimal(9,2)", pa.array(["7.1"]), [Decimal("7.10")]),
        ("string", pa.array(["a"], pa.large_string()), ["a"]),
        ("string", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        ("uuid", pa.array([ID.bytes], pa.binary(16)), [ID]),
        ("uuid", pa.array([ID.bytes]), [ID]),
        ("uuid", pa.array([str(ID)]), [ID]),
        ("uuid", pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes], pa.binary(16))), [ID]),
        ("binary", pa.array([b"ab"]), [b"ab"]),
        ("fixed[2]", pa.array([b"ab"]), [b"ab"]),
        ("date", pa.array([date(2025, 1, 17)], pa.date64()), [date(2025, 1, 17)]),
        ("date", pa.array([datetime(2025, 1, 17)]), [date(2025, 1, 17)]),  # noqa: DTZ001
        ("date", pa.array(["2025-01-17"]), [date(2025, 1, 17)]),
        ("time", pa.array([time(5)], pa.time32("s")), [time(5)]),
        ("timestamp", pa.array([NAIVE], pa.timestamp("s")), [NAIVE]),
        ("timestamp", pa.array([NAIVE], pa.timestamp("ns")), [NAIVE]),
        ("timestamp", pa.array([date(2025, 1, 17)]), [datetime(2025, 1, 17)]),  # noqa: DTZ001
        ("timestamp", pa.array(["2025-01-17T12:00"]), [NAIVE]),
        ("timestamptz", pa.array([NOON], pa.timestamp("ms", "Europe/Berlin")), [NOON]),
        ("timestamptz", pa.array(["2025-01-17T13:00+01:00"]), [NOON]),
        ("string", pa.nulls(2), [None, None]),
        ("list", pa.nulls(1), [None]),
    ],
)
def test_a_like_column_is_taken_value_for_value(kind: str, array: pa.Array, stored: list[object]) -> None:
    column = typed(kind, typed("int", name="element")) if kind == "list" else typed(kind)
    assert coerced(column, array) == stored


def test_nan_and_minus_zero_stay_what_they_are() -> None:
    zero, nan = coerced(typed("double"), pa.array([-0.0, math.nan], pa.float32()))
    assert math.copysign(1, zero) == -1
    assert math.isnan(nan)


S, N, V, Z = "SCHEMA_MISMATCH", "NULL_IN_REQUIRED", "VALUE_OUT_OF_RANGE", "TIMEZONE_MISMATCH"


@pytest.mark.parametrize(
    ("kind", "array", "code", "row"),
    [
        ("int", pa.array([1, 2, 2**31, 4, 2**31]), V, 2),
        ("int", pa.array([1.0, 1.5]), V, 1),
        ("long", pa.array([1.0, math.nan]), V, 1),
        ("long", pa.array([2**63], pa.uint64()), V, 0),
        ("int", pa.array(["1", "x"]), S, 1),
        ("int", pa.array(["1", "2.5"]), S, 1),
        ("int", pa.array([True]), S, 0),
        ("boolean", pa.array([1]), S, 0),
        ("boolean", pa.array(["yes"]), S, 0),
        ("double", pa.array([0, 2**53 + 1]), V, 1),
        ("double", pa.array(["1.5", "1e400"]), V, 1),
        ("double", pa.array(["nan"]), S, 0),
        ("float", pa.array([1.0, 1e39]), V, 1),
        ("decimal(9,2)", pa.array([1.0, 1.255]), V, 1),
        ("decimal(9,2)", pa.array([Decimal("1.25"), Decimal("1.255")]), V, 1),
        ("decimal(38,38)", pa.array([Decimal(11)], pa.decimal128(38, 0)), V, 0),
        ("string", pa.array([1]), S, 0),
        ("string", pa.array([b"ab"]), S, 0),
        ("fixed[2]", pa.array([b"ab", b"abc"]), V, 1),
        ("uuid", pa.array([b"ab"]), V, 0),
        ("date", pa.array([NAIVE.replace(hour=0), NAIVE]), V, 1),
        ("date", pa.array([NOON]), Z, 0),
        ("date", pa.array([1]), S, 0),
        ("timestamp", pa.array([NOON]), Z, 0),
        ("timestamptz", pa.array([NAIVE]), Z, 0),
        ("timestamptz", pa.array([date(2025, 1, 17)]), S, 0),
        ("timestamptz", pa.array(["2025-01-17T13:00"]), Z, 0),
        ("timestamp", pa.array([0, 1], pa.timestamp("ns")), V, 1),
        ("timestamp", pa.array([0, 2**62], pa.timestamp("us")), V, 1),
        ("date", pa.array([0, -719_163], pa.int32()).view(pa.date32()), V, 1),
        ("time", pa.array([1], pa.time64("ns")), V, 0),
        ("struct", pa.array([1]), S, 0),
        ("list", pa.array([1]), S, 0),
        ("map", pa.array([[1]]), S, 0),
    ],
)
def test_a_column_that_would_lose_anything_is_refused_with_its_first_row(
    kind: str, array: pa.Array, code: str, row: int
) -> None:
    children = {
        "struct": [typed("int", name="x")],
        "list": [typed("int", name="element")],
        "map": [typed("string", name="key"), typed("int", name="value")],
    }
    assert refused(typed(kind, *children.get(kind, [])), array) == (code, row)


COLUMNS = [typed("int", name="id", required=True), typed("string", name="note")]


def test_columns_are_found_by_name_and_a_missing_optional_one_is_null() -> None:
    found = coerced_table(COLUMNS, pa.table({"note": ["x"], "id": [1]}))
    assert found.to_pylist() == [{"id": 1, "note": "x"}]
    assert coerced_table(COLUMNS, pa.table({"id": [1]})).to_pylist() == [{"id": 1, "note": None}]


@pytest.mark.parametrize(
    ("rows", "code", "column"),
    [
        (pa.table({"id": [1], "more": [1]}), S, "more"),
        (pa.table([[1], [2]], names=["id", "id"]), S, "id"),
        (pa.table({"note": ["x"]}), S, "id"),
        (pa.table({"id": [1, None]}), N, "id"),
    ],
)
def test_extra_twofold_missing_and_null_columns_are_refused_by_name(rows: pa.Table, code: str, column: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        coerced_table(COLUMNS, rows)
    assert (caught.value.code, caught.value.details["column"]) == (code, column)


def test_no_rows_are_taken_from_any_batches() -> None:
    empty = pa.schema([("id", pa.int64())]).empty_table()
    assert coerced_table(COLUMNS, empty).num_rows == 0


def test_rows_are_counted_over_all_batches() -> None:
    chunks = pa.chunked_array([pa.array([1, 2]), pa.array([3, 2**40])])
    assert refused(typed("int"), chunks) == (V, 3)


POINT = typed("struct", typed("int", name="x", required=True), typed("string", name="label"))
SMALL = typed("int", name="element")
PATHS = typed("list", typed("list", SMALL, name="element"))
NAMED = typed("map", typed("string", name="key"), typed("struct", typed("long", name="z"), name="value"))


@pytest.mark.parametrize(
    ("column", "array", "stored"),
    [
        (
            POINT,
            pa.array([{"label": "a", "x": 1}, None], pa.struct([("label", TEXT), ("x", pa.int64())])),
            [{"x": 1, "label": "a"}, None],
        ),
        (POINT, pa.array([{"x": 1}]), [{"x": 1, "label": None}]),
        (POINT, pa.nulls(1, pa.struct([("label", TEXT)])), [None]),
        (PATHS, pa.array([[[1], None, []], None, []], pa.list_(pa.list_(pa.int64()))), [[[1], None, []], None, []]),
        (PATHS, pa.array([None, [[1]], [[2, 3]]]).slice(1), [[[1]], [[2, 3]]]),
        (
            NAMED,
            pa.array([[("a", {"z": 1}), ("b", None)], None, []], pa.map_(TEXT, pa.struct([("z", pa.int8())]))),
            [[("a", {"z": 1}), ("b", None)], None, []],
        ),
    ],
)
def test_nested_columns_are_taken_with_every_null_in_its_place(
    column: Column, array: pa.Array, stored: list[object]
) -> None:
    assert coerced(column, array) == stored


@pytest.mark.parametrize(
    ("column", "array", "code", "row", "path"),
    [
        (POINT, pa.array([{"x": 1}, {"x": None}]), N, 1, "c.x"),
        (POINT, pa.array([{"x": 1, "y": 1}]), S, 0, "c.y"),
        (POINT, pa.array([{"label": "a"}]), S, 0, "c.x"),
        (PATHS, pa.array([[[1]], [[1], [2, 2**40]]]), V, 1, "c[][]"),
        (typed("list", typed("int", name="element", required=True)), pa.array([[1], [1, None]]), N, 1, "c[]"),
    ],
)
def test_a_nested_fault_names_the_row_and_the_path(
    column: Column, array: pa.Array, code: str, row: int, path: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        coerced(column, array)
    assert (caught.value.code, caught.value.details["row"], caught.value.details["column"]) == (code, row, path)


@given(st.lists(st.none() | st.integers(-(2**33), 2**33), min_size=1), st.sampled_from([pa.int64(), pa.float64()]))
def test_integers_are_taken_exactly_or_refused_at_the_first_that_does_not_fit(
    values: list[int | None], kind: pa.DataType
) -> None:
    wrong = [i for i, v in enumerate(values) if v is not None and not -(2**31) <= v < 2**31]
    if wrong:
        assert refused(typed("int"), pa.array(values, kind)) == (V, wrong[0])
    else:
        assert coerced(typed("int"), pa.array(values, kind)) == values
