"""JSON records as Arrow: every type, every refusal by row and column; both ways of reading agree (rows 13-17)."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow

from regelate.adapters.iceberg.encoding import encode
from regelate.adapters.iceberg.encoding.encode import NotPlain, build, encode_records
from regelate.adapters.iceberg.encoding.json_values import plain_value
from regelate.adapters.iceberg.encoding.row_faults import Refused
from regelate.adapters.iceberg.tables.schema import columns_of, schema_of
from regelate.core.table.schema import Column
from regelate.errors import InvalidRequest


def typed(kind: str, *children: Column, name: str = "c", required: bool = False) -> Column:
    return Column(name=name, type=kind, required=required, children=children)


def prepared(*columns: Column) -> tuple[tuple[Column, ...], pa.Schema]:
    schema = schema_of(columns)
    return columns_of(schema), schema_to_pyarrow(schema)


def encoded(column: Column, *values: object) -> list[object]:
    columns, schema = prepared(column)
    table = encode_records(columns, schema, [{column.name: v} for v in values])
    assert table.schema.equals(schema)
    return list(table.column(0).to_pylist())


def fault(columns: Column | list[Column], *records: object) -> InvalidRequest:
    listed = columns if isinstance(columns, list) else [columns]
    given_columns, schema = prepared(*listed)
    with pytest.raises(InvalidRequest) as caught:
        encode_records(given_columns, schema, records)  # type: ignore[arg-type]
    assert caught.value.status == 422
    return caught.value


def value_fault(column: Column, value: object) -> str:
    found = fault(column, {column.name: None}, {column.name: value})
    assert found.details["row"] == 1
    assert str(found.details["column"]).startswith(column.name)
    assert "row 1" in found.message
    return found.code


LIST = typed("list", typed("int", name="element"))
STRICT_LIST = typed("list", typed("int", name="element", required=True))
POINT = typed("struct", typed("int", name="x", required=True), typed("string", name="label"))
BY_NAME = typed("map", typed("string", name="key"), typed("int", name="value"))
BY_NUMBER = typed("map", typed("int", name="key"), typed("int", name="value", required=True))
BY_DAY = typed("map", typed("date", name="key"), typed("int", name="value"))
BY_ID = typed("map", typed("uuid", name="key"), typed("int", name="value"))
ID_TEXT = "0F8FAD5B-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("column", "value", "stored"),
    [
        (typed("boolean"), False, False),
        (typed("int"), -(2**31), -(2**31)),
        (typed("int"), 3.0, 3),
        (typed("long"), 2**63 - 1, 2**63 - 1),
        (typed("long"), "9223372036854775807", 2**63 - 1),
        (typed("long"), "-9223372036854775808", -(2**63)),
        (typed("long"), 9007199254740992.0, 2**53),
        (typed("double"), 3, 3.0),
        (typed("double"), 2**60, float(2**60)),
        (typed("double"), 0.1, 0.1),
        (typed("double"), "Infinity", math.inf),
        (typed("double"), "-Infinity", -math.inf),
        (typed("double"), 5e-324, 5e-324),
        (typed("float"), 0.1, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        (typed("float"), 16777217, 16777216.0),
        (typed("float"), 3.4028234663852886e38, 3.4028234663852886e38),
        (typed("decimal(9,2)"), "12.50", Decimal("12.50")),
        (typed("decimal(9,2)"), "12.500000", Decimal("12.50")),
        (typed("decimal(9,2)"), "+1.5E2", Decimal("150.00")),
        (typed("decimal(9,2)"), "1200e-3", Decimal("1.20")),
        (typed("decimal(9,2)"), 7, Decimal("7.00")),
        (typed("decimal(9,2)"), 12.5, Decimal("12.50")),
        (typed("decimal(9,2)"), 0.1, Decimal("0.10")),
        (typed("decimal(9,2)"), "0e99", Decimal("0.00")),
        (typed("decimal(9,2)"), "0." + "0" * 60, Decimal("0.00")),
        (typed("decimal(38,0)"), "-" + "9" * 38, Decimal("-" + "9" * 38)),
        (typed("decimal(38,38)"), "0." + "9" * 38, Decimal("0." + "9" * 38)),
        (typed("string"), "", ""),
        (typed("string"), "a\0b\U0001f9ca", "a\0b\U0001f9ca"),
        (typed("uuid"), ID_TEXT, UUID(ID_TEXT)),
        (typed("binary"), "", b""),
        (typed("binary"), "AP8=", b"\x00\xff"),
        (typed("fixed[2]"), "AP8=", b"\x00\xff"),
        (typed("date"), "0001-01-01", date(1, 1, 1)),
        (typed("date"), "9999-12-31", date(9999, 12, 31)),
        (typed("time"), "05:00:00.000001", time(5, 0, 0, 1)),
        (typed("time"), "23:59:59.9", time(23, 59, 59, 900_000)),
        (typed("time"), "00:00", time(0)),
        (typed("timestamp"), "2025-01-17T05:00:00.123456", datetime.fromisoformat("2025-01-17T05:00:00.123456")),
        (typed("timestamp"), "2025-01-17 05:00", datetime.fromisoformat("2025-01-17T05:00:00")),
        (typed("timestamp"), "1969-12-31T23:59:59.999999", datetime.fromisoformat("1969-12-31T23:59:59.999999")),
        (typed("timestamptz"), "2025-01-17T05:00:00Z", datetime(2025, 1, 17, 5, tzinfo=UTC)),
        (typed("timestamptz"), "2025-01-17T05:00:00.5+05:30", datetime(2025, 1, 16, 23, 30, 0, 500_000, UTC)),
        (LIST, [], []),
        (LIST, [1, None, 3.0], [1, None, 3]),
        (POINT, {"x": 1}, {"x": 1, "label": None}),
        (BY_NAME, {"a": 1, "b": None}, [("a", 1), ("b", None)]),
        (BY_NAME, [{"key": "a", "value": 1}], [("a", 1)]),
        (BY_NAME, {}, []),
        (BY_NUMBER, [{"key": 1, "value": 2}, {"key": 2, "value": 2}], [(1, 2), (2, 2)]),
        (BY_DAY, {"2025-01-17": 1}, [(date(2025, 1, 17), 1)]),
    ],
)
def test_a_value_is_stored_as_what_it_says(column: Column, value: object, stored: object) -> None:
    assert encoded(column, value, None) == [stored, None]


def test_minus_zero_and_nan_are_stored_as_they_are() -> None:
    for kind in ("float", "double"):
        zero, nan = encoded(typed(kind), -0.0, "NaN")
        assert math.copysign(1, zero) == -1  # type: ignore[arg-type]
        assert math.isnan(nan)  # type: ignore[arg-type]


S, N, V, Z = "SCHEMA_MISMATCH", "NULL_IN_REQUIRED", "VALUE_OUT_OF_RANGE", "TIMEZONE_MISMATCH"


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        (typed("boolean"), 1, S),
        (typed("boolean"), "true", S),
        (typed("int"), True, S),
        (typed("int"), "1", S),
        (typed("int"), 2**31, V),
        (typed("int"), 1.5, V),
        (typed("int"), [], S),
        (typed("long"), 2**63, V),
        (typed("long"), -(2**63) - 1, V),
        (typed("long"), 10**400, V),
        (typed("long"), "9223372036854775808", V),
        (typed("long"), "1.0", S),
        (typed("long"), "\u0661", S),
        (typed("long"), 1e300, V),
        (typed("long"), 9007199254740994.0, V),
        (typed("long"), math.nan, V),
        (typed("double"), "1.5", S),
        (typed("double"), "nan", S),
        (typed("double"), True, S),
        (typed("double"), 2**53 + 1, V),
        (typed("double"), 10**400, V),
        (typed("double"), math.nan, V),
        (typed("double"), math.inf, V),
        (typed("float"), 1e39, V),
        (typed("float"), 10**39, V),
        (typed("decimal(9,2)"), "12.505", V),
        (typed("decimal(9,2)"), 12.505, V),
        (typed("decimal(9,2)"), "12345678.00", V),
        (typed("decimal(9,2)"), "1e8", V),
        (typed("decimal(9,2)"), "1e999999999", V),
        (typed("decimal(9,2)"), "1e-999999999", V),
        (typed("decimal(9,2)"), "1e99999999999999999999", V),
        (typed("decimal(9,2)"), "NaN", V),
        (typed("decimal(9,2)"), " 1", V),
        (typed("decimal(9,2)"), "1_0", V),
        (typed("decimal(9,2)"), "", V),
        (typed("decimal(38,20)"), 0.12345678901234567, V),
        (typed("decimal(9,2)"), math.nan, V),
        (typed("decimal(9,2)"), True, S),
        (typed("string"), 1, S),
        (typed("string"), "\ud800", V),
        (typed("uuid"), "not a uuid", V),
        (typed("uuid"), ID_TEXT.replace("-", ""), V),
        (typed("uuid"), "{" + ID_TEXT + "}", V),
        (typed("uuid"), 1, S),
        (typed("binary"), "AP8", V),
        (typed("binary"), "AP 8=", V),
        (typed("binary"), "é", V),
        (typed("binary"), [0], S),
        (typed("fixed[2]"), "AA==", V),
        (typed("date"), "2025-02-30", V),
        (typed("date"), "0000-01-01", V),
        (typed("date"), "20250117", V),
        (typed("date"), "2025-01-17T00:00:00", V),
        (typed("date"), "\u0662025-01-17", V),
        (typed("date"), 20105, S),
        (typed("time"), "24:00:00", V),
        (typed("time"), "05:00:00.0000001", V),
        (typed("time"), "05:00:00Z", V),
        (typed("time"), "5:00", V),
        (typed("timestamp"), "2025-01-17T05:00:00Z", Z),
        (typed("timestamp"), "2025-01-17T05:00:00+00:00", Z),
        (typed("timestamptz"), "2025-01-17T05:00:00", Z),
        (typed("timestamp"), "2025-01-17T05:00:00.123456789", V),
        (typed("timestamptz"), "2025-01-17T05:00:00.1234567Z", V),
        (typed("timestamp"), "2025-01-17", V),
        (typed("timestamp"), "2025-02-30T05:00:00", V),
        (typed("timestamp"), "2025-01-17T24:00:00", V),
        (typed("timestamp"), "2025-01-17T05:00:60", V),
        (typed("timestamp"), "0000-01-17T05:00:00", V),
        (typed("timestamp"), "2025-01-17t05:00:00", V),
        (typed("timestamptz"), "2025-01-17T05:00:00+25:00", V),
        (typed("timestamptz"), "0001-01-01T00:00:00+01:00", V),
        (typed("timestamptz"), "9999-12-31T23:59:59-01:00", V),
        (typed("timestamp"), 1737090000, S),
        (LIST, {"a": 1}, S),
        (LIST, "[1]", S),
        (LIST, [1, "x"], S),
        (STRICT_LIST, [1, None], N),
        (POINT, [1], S),
        (POINT, {"x": 1, "y": 2}, S),
        (POINT, {"label": "a"}, S),
        (POINT, {"x": None}, N),
        (POINT, {"x": 2**31}, V),
        (BY_NAME, {"a": "1"}, S),
        (BY_NAME, [["a", 1]], S),
        (BY_NAME, [{"key": "a"}], S),
        (BY_NAME, [{"key": "a", "value": 1, "more": 1}], S),
        (BY_NAME, [{"key": None, "value": 1}], N),
        (BY_NAME, [{"key": "a", "value": 1}, {"key": "a", "value": 1}], V),
        (BY_NUMBER, {"1": 1}, S),
        (BY_NUMBER, [{"key": 1, "value": 1}, {"key": 1.0, "value": 2}], V),
        (BY_NUMBER, [{"key": 1, "value": None}], N),
        (BY_ID, {ID_TEXT: 1, ID_TEXT.lower(): 2}, V),
    ],
)
def test_a_value_that_would_lose_anything_is_refused_by_row_and_column(
    column: Column, value: object, code: str
) -> None:
    assert value_fault(column, value) == code


REQUIRED_AND_OPTIONAL = [typed("int", name="id", required=True), typed("string", name="note")]


def test_a_missing_optional_column_is_null_and_a_missing_required_one_is_refused() -> None:
    columns, schema = prepared(*REQUIRED_AND_OPTIONAL)
    assert encode_records(columns, schema, [{"id": 1}]).to_pylist() == [{"id": 1, "note": None}]
    found = fault(REQUIRED_AND_OPTIONAL, {"id": 1}, {"note": "x"})
    assert (found.code, found.details["row"], found.details["column"]) == (S, 1, "id")
    assert (found.details["expected"], found.details["got"]) == ("required int", "no value")


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("x", 'string "x"'),
        ("é\n" + "x" * 500, 'string "\\u00e9\\n' + "x" * 51 + "..."),
        ([1, {"a": None}], 'an array [1, {"a": null}]'),
        ({"a": [True, Decimal("1.5")]}, 'an object {"a": [true, "1.5"]}'),
        ({"a": "y" * 500}, 'an object {"a": "' + "y" * 53 + "..."),
        ([[0] * 1000] * 1000, "an array [" + "[0, " + "0, " * 18 + "0..."),
        ([10**5000], "an array"),
    ],
)
def test_a_value_of_the_wrong_type_is_shown_by_the_beginning_of_its_json(value: object, got: str) -> None:
    found = fault([typed("int", name="id")], {"id": value})
    assert found.details["got"] == got
    assert found.details["got"] in str(found)


def test_null_in_a_required_column_is_its_own_fault() -> None:
    found = fault(REQUIRED_AND_OPTIONAL, {"id": 1}, {"id": 2}, {"id": None})
    assert (found.code, found.details["row"], found.details["column"]) == (N, 2, "id")


def test_an_unknown_column_is_refused_with_the_known_ones() -> None:
    found = fault(REQUIRED_AND_OPTIONAL, {"id": 1}, {"id": 2, "Note": "x"})
    assert (found.code, found.details["row"], found.details["column"]) == (S, 1, "Note")
    assert "id, note" in found.message


def test_a_record_that_is_no_object_is_refused() -> None:
    assert fault(REQUIRED_AND_OPTIONAL, {"id": 1}, [1]).details["row"] == 1


def test_the_first_five_faults_are_told_in_row_order_whatever_their_column() -> None:
    records = [{"id": i, "note": "ok"} for i in range(10)]
    records[8]["id"] = "x"
    records[3]["note"] = 7
    for row in (4, 5, 6, 7):
        records[row]["more"] = 1
    found = fault(REQUIRED_AND_OPTIONAL, *records)
    listed = found.details["faults"]
    assert isinstance(listed, list)
    assert [(f["row"], f["column"]) for f in listed] == [
        (3, "note"),
        (4, "more"),
        (5, "more"),
        (6, "more"),
        (7, "more"),
    ]
    assert (found.details["row"], found.details["column"]) == (3, "note")


def test_a_nested_fault_names_its_path() -> None:
    lines = typed("list", typed("struct", typed("int", name="n"), name="element"), name="lines")
    order = typed("struct", lines, name="order")
    found = fault(order, {"order": {"lines": [{"n": 1}, {"n": "x"}]}})
    assert found.details["column"] == "order.lines[1].n"


def test_long_values_and_names_are_cut_in_the_text() -> None:
    assert len(fault(typed("int"), {"c": "x" * 10_000}).message) < 400
    assert len(fault(typed("long"), {"c": 10**5000}).message) < 400


def test_no_records_are_an_empty_table_of_the_right_types() -> None:
    columns, schema = prepared(typed("int"), typed("list", typed("uuid", name="element"), name="l"))
    table = encode_records(columns, schema, [])
    assert (table.num_rows, table.schema) == (0, schema)


def test_a_null_struct_needs_no_value_for_its_required_fields() -> None:
    inner = typed("struct", *(typed(k, name=k, required=True) for k in PLAIN), name="inner", required=True)
    outer = typed("struct", inner, name="c")
    assert encoded(outer, None, None) == [None, None]


PLAIN = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal(9,2)",
    "decimal(38,38)",
    "string",
    "uuid",
    "binary",
    "fixed[2]",
    "date",
    "time",
    "timestamp",
    "timestamptz",
]
PLAIN_SAMPLES: dict[str, list[object]] = {
    "boolean": [True],
    "int": [1],
    "long": [1],
    "float": [1.5, 2],
    "double": [1.5, "NaN"],
    "decimal(9,2)": ["1.50", "-1"],
    "decimal(38,38)": ["0.5"],
    "string": ["x"],
    "uuid": [ID_TEXT],
    "binary": ["AP8="],
    "fixed[2]": ["AP8="],
    "date": ["2025-01-17"],
    "time": ["05:00:00.5"],
    "timestamp": ["2025-01-17T05:00:00"],
    "timestamptz": ["2025-01-17T05:00:00Z"],
}


@pytest.mark.parametrize("kind", PLAIN)
def test_common_values_of_a_type_are_taken_whole_without_reading_each(kind: str) -> None:
    columns, schema = prepared(typed(kind))
    assert len(build(columns[0], schema.field(0).type, [*PLAIN_SAMPLES[kind], None])) == len(PLAIN_SAMPLES[kind]) + 1


NEARLY_TEXTS = st.one_of(
    st.text(max_size=8),
    st.from_regex(r"[+-]?[0-9]{0,5}\.?[0-9]{0,4}([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.from_regex(r"[0-9]{4}-[0-3][0-9]-[0-3][0-9]", fullmatch=True),
    st.from_regex(r"[0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,7})?)?", fullmatch=True),
    st.from_regex(
        r"(000[01]|1969|2024|9999)-(01|02|12)-(01|29|31)[T ][0-2][0-9]:[0-5][0-9](:[0-6][0-9](\.[0-9]{1,7})?)?"
        r"(Z|[+-][0-2][0-9]:[0-6][0-9])?",
        fullmatch=True,
    ),
    st.from_regex(r"[A-Za-z0-9+/]{0,6}={0,3}", fullmatch=True),
    st.uuids().map(str),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "true", "null"]),
)
NEARLY_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    NEARLY_TEXTS,
    st.just([]),
    st.just({}),
)


def told(array: pa.Array) -> list[str]:
    return [repr(v) for v in array.to_pylist()]


@given(st.sampled_from(PLAIN), st.lists(NEARLY_VALUES, min_size=1, max_size=3))
@example("decimal(9,2)", ["0" * 37 + "1.5"])
@example("decimal(38,38)", ["11"])
@example("time", ["23:59:60"])
@example("timestamptz", ["2024-02-29T23:59:59.999999-23:59"])
@example("double", [2**53 + 1, "NaN"])
def test_what_is_taken_whole_is_what_reading_each_value_gives(kind: str, values: list[Any]) -> None:
    (column,), schema = prepared(typed(kind))
    arrow_type = schema.field(0).type
    try:
        read = [plain_value(column, v, "c") for v in values]
    except Refused:
        read = None
    try:
        whole = build(column, arrow_type, values)
    except (NotPlain, pa.ArrowException, OverflowError, UnicodeError):
        whole = None
    if whole is not None:
        assert read is not None
        assert told(whole) == told(build(column, arrow_type, read))
    elif read is not None:
        assert len(build(column, arrow_type, read)) == len(values)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_every_float_that_json_can_write_comes_back_bit_for_bit(value: float) -> None:
    (stored,) = encoded(typed("float"), value)
    assert struct.pack("<f", stored) == struct.pack("<f", value)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12))
def test_a_decimal_is_stored_exactly_or_refused(value: Decimal) -> None:
    try:
        (stored,) = encoded(typed("decimal(18,6)"), str(value))
    except InvalidRequest:
        assert value != round(value, 6) or abs(value) >= 10**12
    else:
        assert stored == value


def test_more_records_than_are_encoded_at_once_are_one_table_and_a_fault_names_its_row_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encode, "SLICE", 2)
    assert encoded(typed("long"), 1, None, 3, 4, 5) == [1, None, 3, 4, 5]
    found = fault(typed("long"), *({"c": value} for value in (1, 2, 3, "x", "y")))
    assert (found.details["row"], "row 3" in found.message) == (3, True)
