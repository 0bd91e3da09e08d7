"""Rows 13 to 17: values that do not fit are refused whole requests at a time; those that fit are stored exactly."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pytest

from tests.support.iceberg_tables import live_data_files, row_texts, rows
from tests.support.table_model import model_rows
from tests.system.faults.stack import Stack, assert_nothing_left_behind, request, schema

COLUMNS = {
    "id": "long!",
    "i": "int",
    "d": "double",
    "f": "float",
    "m": "decimal(30,10)",
    "c": "decimal(5,2)",
    "b": "boolean",
    "s": "string",
    "u": "uuid",
    "x": "binary",
    "day": "date",
    "t": "time",
    "ts": "timestamp",
    "tz": "timestamptz",
}
RAW = '{"operation": "WRITE", "tenant_id": "default", "table": "typed", "records": [%s]}'


@pytest.fixture(scope="module")
def typed(shared: Stack) -> Stack:
    """A table of every plain type, in two partitions per row: a refused row must not leave the good ones' files."""
    shared.create("typed", COLUMNS, partition_spec=[{"source": "id", "transform": "bucket[8]"}])
    shared.ok("WRITE", "typed", records=[{"id": number} for number in range(4)])
    return shared


def refused_rows(stack: Stack, code: str, records: str, words: list[str], *, row: int, column: str) -> dict[str, Any]:
    """Send rows of which one is wrong; none may be written, by none of the three modes."""
    table = stack.table("default.typed")
    before = model_rows(table)
    found = []
    with stack.untouched():
        for mode in ("", ', "mode": "upsert", "key": ["id"]', ', "mode": "overwrite_partitions"'):
            error = stack.refused(422, code, [f"row {row}", *words], (RAW % records)[:-1] + mode + "}")
            assert (error["details"]["row"], error["details"]["column"]) == (row, column)
            assert error["details"]["expected"] in error["message"]
            assert error["details"]["got"] in error["message"]
            found.append(error)
    assert_nothing_left_behind(table)
    assert model_rows(table) == before
    assert found[0] == found[1] == found[2]
    return found[0]


@pytest.mark.parametrize(
    ("bad", "column", "words"),
    [
        ('{"id": 9, "nope": 1}', "nope", ["nope", "one of the columns id, i, d"]),
        ('{"i": 1}', "id", ["required long", "no value"]),
        ("{}", "id", ["required long", "no value"]),
        ('{"id": "x"}', "id", ["long", 'string "x"']),
        ('{"id": true}', "id", ["long", "boolean true"]),
        ('{"id": [1]}', "id", ["long", "an array [1]"]),
        ('{"id": 9, "i": "7"}', "i", ["int", 'string "7"']),
        ('{"id": 9, "s": 7}', "s", ["string", "number 7"]),
        ('{"id": 9, "b": 1}', "b", ["boolean", "number 1"]),
        ('{"id": 9, "b": "true"}', "b", ["boolean", 'string "true"']),
        ('{"id": 9, "d": "1.5"}', "d", ["double", 'string "1.5"']),
        ('{"id": 9, "d": false}', "d", ["double", "boolean false"]),
        ('{"id": 9, "m": {}}', "m", ["decimal(30,10)", "an object {}"]),
        ('{"id": 9, "day": 20}', "day", ["date", "number 20"]),
        ('{"id": 9, "ts": 0}', "ts", ["timestamp", "number 0"]),
        ('{"id": 9, "s": 0.12345678901234567890123}', "s", ["string", "number 0.12345678901234567890123"]),
    ],
)
def test_row_13_an_extra_missing_or_mistyped_column_refuses_the_whole_request(
    typed: Stack, bad: str, column: str, words: list[str]
) -> None:
    records = ", ".join(['{"id": 5}', '{"id": 6}', bad, '{"id": 7}'])
    refused_rows(typed, "SCHEMA_MISMATCH", records, words, row=2, column=column)


def test_row_13_up_to_five_faults_are_listed(typed: Stack) -> None:
    records = ", ".join(f'{{"id": "x{number}", "i": "y"}}' for number in range(50))
    with typed.untouched():
        error = typed.refused(422, "SCHEMA_MISMATCH", ["row 0", "more in `faults`"], RAW % records)
    faults = error["details"]["faults"]
    assert len(faults) == 5
    assert {(fault["row"], fault["column"]) for fault in faults} <= {(n, c) for n in range(50) for c in ("id", "i")}


def test_row_14_a_null_in_a_required_column_is_named_by_its_row(typed: Stack) -> None:
    records = ", ".join(['{"id": 5}', '{"id": null}'])
    refused_rows(typed, "NULL_IN_REQUIRED", records, ["required long", "null"], row=1, column="id")


def test_row_14_a_null_in_a_required_field_of_a_struct_is_named_by_its_path(stack: Stack) -> None:
    inner = {"type": "struct", "fields": {"a": {"type": "int", "required": True}, "b": {"type": "int"}}}
    stack.ok("CREATE_TABLE", "nested", schema={"fields": {"s": inner, "l": {"type": "list", "element": inner}}})
    good = {"s": {"a": 1, "b": None}, "l": [{"a": 1}]}
    for bad, column in (({"s": {"a": None}}, "s.a"), ({"l": [{"a": 1}, {"a": None, "b": 1}]}, "l[1].a")):
        with stack.untouched():
            body = request("WRITE", "nested", records=[good, {"s": None, "l": None}, bad])
            error = stack.refused(422, "NULL_IN_REQUIRED", ["row 2", column], body)
        assert (error["details"]["row"], error["details"]["column"]) == (2, column)
    stack.ok("WRITE", "nested", records=[good, {"s": None, "l": None}])
    assert len(rows(stack.table("default.nested"))) == 2


@pytest.mark.parametrize(
    ("bad", "column", "words"),
    [
        ('"id": 9223372036854775808', "id", ["64 bits", "9223372036854775808"]),
        ('"id": -9223372036854775809', "id", ["64 bits"]),
        ('"id": "9223372036854775808"', "id", ["64 bits"]),
        ('"id": 9007199254740993.5', "id", ["exact integer", "9007199254740993.5"]),
        ('"id": 1.5', "id", ["exact integer"]),
        ('"id": 1e300', "id", ["exact integer"]),
        ('"id": 9, "i": 2147483648', "i", ["32 bits"]),
        ('"id": 9, "i": 1.00000000000000000001', "i", ["exact integer", "1.00000000000000000001"]),
        ('"id": 9, "d": 9007199254740993', "d", ["a double holds exactly"]),
        ('"id": 9, "d": 9007199254740993.0', "d", ["a double holds exactly"]),
        ('"id": 9, "d": 0.1234567890123456789', "d", ["at most 17 digits"]),
        ('"id": 9, "d": 12345678901234567890.125', "d", ["at most 17 digits"]),
        ('"id": 9, "f": 1e39', "f", ["float"]),
        ('"id": 9, "f": 0.1234567890123456789', "f", ["at most 17 digits"]),
        ('"id": 9, "c": "1.005"', "c", ["2 digits after the point"]),
        ('"id": 9, "c": 1.005', "c", ["2 digits after the point"]),
        ('"id": 9, "c": "1000"', "c", ["3 digits before the point"]),
        ('"id": 9, "c": 1.00000000000000000001', "c", ["2 digits after the point"]),
        ('"id": 9, "m": 1.23456789012345678901', "m", ["10 digits after the point"]),
        ('"id": 9, "m": 123456789012345678901.5', "m", ["20 digits before the point"]),
        ('"id": 9, "m": "NaN"', "m", ["decimal"]),
        ('"id": 9, "day": "2025-02-30"', "day", ["day of the calendar", "2025-02-30"]),
        ('"id": 9, "day": "yesterday"', "day", ["YYYY-MM-DD"]),
        ('"id": 9, "day": "2025-1-7"', "day", ["YYYY-MM-DD"]),
        ('"id": 9, "t": "25:00:00"', "t", ["time of day"]),
        ('"id": 9, "t": "05:00:00.0000001"', "t", ["6 digits of a second"]),
        ('"id": 9, "ts": "2025-01-17T05:00:00.1234567"', "ts", ["6 digits of a second"]),
        ('"id": 9, "ts": "2025-01-32T05:00:00"', "ts", ["day of the calendar"]),
        ('"id": 9, "tz": "9999-12-31T23:59:59-01:00"', "tz", ["years 0001 to 9999"]),
        ('"id": 9, "s": "\\ud800"', "s", ["surrogate"]),
        ('"id": 9, "u": "9c12d441"', "u", ["hexadecimal"]),
        ('"id": 9, "x": "not base64!"', "x", ["base64"]),
    ],
)
def test_row_15_what_would_not_be_stored_exactly_is_refused(
    typed: Stack, bad: str, column: str, words: list[str]
) -> None:
    refused_rows(typed, "VALUE_OUT_OF_RANGE", f'{{"id": 5}}, {{{bad}}}', words, row=1, column=column)


EXACT = [
    ("id", "9223372036854775807", 2**63 - 1),
    ("id", "-9223372036854775808", -(2**63)),
    ("id", '"9223372036854775807"', 2**63 - 1),
    ("id", "12345678901234567.0", 12345678901234567),
    ("id", "1.2345678901234567e16", 12345678901234567),
    ("id", "9007199254740993.0", 9007199254740993),
    ("i", "7.0", 7),
    ("i", "7.00000000000000000000", 7),
    ("d", "0.10000000000000001", 0.1),
    ("d", "0.1000000000000000055511151231257827021181583404541015625", 0.1),
    ("d", "9.9999999999999992e+22", 1e23),
    ("d", "9007199254740992.0", 2.0**53),
    ("d", "5e-324", 5e-324),
    ("f", "0.10000000149011612", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    ("m", "12345678901234567.1234567891", Decimal("12345678901234567.1234567891")),
    ("m", "12345678901234567890", Decimal(12345678901234567890)),
    ("m", "-0.0000000001", Decimal("-0.0000000001")),
    ("m", '"12345678901234567890.0123456789"', Decimal("12345678901234567890.0123456789")),
    ("c", "999.99", Decimal("999.99")),
]


def test_row_15_numbers_of_many_digits_are_stored_exactly(stack: Stack) -> None:
    stack.create("typed", {"n": "int!", **{name: kind.rstrip("!") for name, kind in COLUMNS.items()}})
    records = ", ".join(f'{{"n": {number}, "{column}": {text}}}' for number, (column, text, _) in enumerate(EXACT))
    assert stack.accepted("WRITE", RAW % records)["records_written"] == len(EXACT)
    found = stack.table("default.typed").scan().to_arrow().sort_by("n").to_pylist()
    assert [row[column] for row, (column, _, _) in zip(found, EXACT, strict=True)] == [value for *_, value in EXACT]


@pytest.mark.parametrize(
    ("column", "value", "word"),
    [
        ("ts", "2025-01-17T05:00:00Z", "without offset"),
        ("ts", "2025-01-17T05:00:00+01:00", "without offset"),
        ("ts", "2025-01-17T05:00:00-00:00", "without offset"),
        ("tz", "2025-01-17T05:00:00", "with an offset"),
        ("tz", "2025-01-17T05:00:00.123456", "with an offset"),
    ],
)
def test_row_16_a_moment_is_never_shifted_by_a_zone_that_is_too_much_or_missing(
    typed: Stack, column: str, value: str, word: str
) -> None:
    records = f'{{"id": 5}}, {{"id": 6, "{column}": "{value}"}}'
    refused_rows(typed, "TIMEZONE_MISMATCH", records, [column, word, value], row=1, column=column)


SPECIAL: list[Any] = ["NaN", "Infinity", "-Infinity", -0.0, 0.0, 1.5, None]
NAN, NEGATIVE_ZERO, ZERO = float("nan"), struct.pack("<d", -0.0), struct.pack("<d", 0.0)


@pytest.mark.parametrize("partitioned", [False, True], ids=["values", "partitions"])
def test_row_17_nan_infinities_and_both_zeros_are_stored_exactly_and_survive_compaction(
    stack: Stack, partitioned: bool
) -> None:
    spec = [{"source": "p", "transform": "identity"}] if partitioned else []
    stack.ok(
        "CREATE_TABLE",
        "t",
        schema=schema({"id": "int!", "d": "double", "f": "float", "p": "double"}),
        partition_spec=spec,
    )
    records = [{"id": i, "d": v, "f": v, "p": v} for i, v in enumerate(SPECIAL)]
    body = request("WRITE", "t", records=records)
    for _ in range(3):
        assert stack.accepted("WRITE", json.dumps(body))["records_written"] == len(SPECIAL)
    table = stack.table("default.t")
    values = [float(v) if v is not None else None for v in SPECIAL]
    expected = row_texts([(i, v, v, v) for i, v in enumerate(values)] * 3)
    assert model_rows(table) == expected
    assert row_texts(rows(table)) == expected
    answer = stack.ok("COMPACT", "t", force=True)
    assert (answer["status"], answer["stats"]["files_after"]) == ("COMPLETED", 7 if partitioned else 1)
    assert model_rows(table) == expected
    assert row_texts(rows(table.refresh())) == expected
    answered = [json.loads(text) for text in sorted(json.dumps(row, sort_keys=True) for row in records * 3)]
    assert json.dumps(stack.rows("t"), sort_keys=True) == json.dumps(answered, sort_keys=True)
    for file in live_data_files(table):
        for bounds, zero in ((file.lower_bounds, NEGATIVE_ZERO), (file.upper_bounds, ZERO)):
            found = [struct.unpack("<d", raw)[0] for field_id, raw in bounds.items() if field_id in (2, 4)]
            assert NAN not in found
            assert all(value == value for value in found)
            assert all(raw == zero for raw in bounds.values() if raw in (NEGATIVE_ZERO, ZERO))
