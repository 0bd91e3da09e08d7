"""The merge of an upsert's records with stored rows: a pure function of what was given and what is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow

from regelate.adapters.iceberg.encoding import encode
from regelate.adapters.iceberg.encoding.coerce import coerce_given
from regelate.adapters.iceberg.encoding.encode import encode_given
from regelate.adapters.iceberg.encoding.json_values import filler
from regelate.adapters.iceberg.encoding.kept_values import fill
from regelate.adapters.iceberg.tables.schema import columns_of, schema_of
from regelate.core.running.given_rows import RECORD
from regelate.core.running.group_view import name_in_view
from regelate.core.table.schema import Column
from regelate.errors import InvalidRequest

Record = Mapping[str, Any]
KEY = Column(name="id", type="long", required=True)
COLUMNS = columns_of(schema_of([KEY, Column(name="a", type="string"), Column(name="b", type="int", required=True)]))
SCHEMA = schema_to_pyarrow(schema_of(COLUMNS))


def stored_rows(records: Sequence[Record], table: Sequence[Record]) -> pa.Table:
    """Return the rows of a table that have the key of a record, as an engine gives them."""
    at = {record["id"]: number for number, record in enumerate(records)}
    found = [row for row in table if row["id"] in at]
    return pa.table(
        {
            RECORD: pa.array([at[row["id"]] for row in found], pa.int64()),
            "c2": pa.array([row["a"] for row in found], pa.string()),
            "c3": pa.array([row["b"] for row in found], pa.int32()),
        }
    )


def merged(records: Sequence[Record], table: Sequence[Record]) -> list[dict[str, Any]]:
    found = fill(COLUMNS, SCHEMA, encode_given(COLUMNS, SCHEMA, records, ["id"]), stored_rows(records, table), ["id"])
    assert found.schema.equals(SCHEMA)
    return list(found.to_pylist())


def refusal(records: Sequence[Record], table: Sequence[Record]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        merged(records, table)
    assert caught.value.status == 422
    return caught.value


CELLS = st.fixed_dictionaries({}, optional={"a": st.one_of(st.none(), st.text(max_size=3)), "b": st.integers(-5, 5)})
STORED = st.fixed_dictionaries({"a": st.one_of(st.none(), st.text(max_size=3)), "b": st.integers(-5, 5)})


@given(
    given=st.lists(st.tuples(st.integers(0, 9), CELLS), max_size=6, unique_by=lambda r: r[0]),
    table=st.lists(st.tuples(st.integers(0, 9), STORED), max_size=12),
)
def test_a_row_is_its_stored_row_under_what_the_record_names_or_is_refused(
    given: list[tuple[int, dict[str, Any]]], table: list[tuple[int, dict[str, Any]]]
) -> None:
    records = [{"id": key, **cells} for key, cells in given]
    rows = [{"id": key, **cells} for key, cells in table]
    by_key = {r["id"]: [row for row in rows if row["id"] == r["id"]] for r in records}
    partial = [r for r in records if len(r) < len(COLUMNS)]
    if any(len(by_key[r["id"]]) > 1 for r in partial):
        assert refusal(records, rows).code == "DUPLICATE_KEY_IN_TABLE"
    elif any("b" not in r and not by_key[r["id"]] for r in partial):
        assert refusal(records, rows).code == "SCHEMA_MISMATCH"
    else:
        expected = [{"a": None, **(by_key[r["id"]][:1] or [{}])[0], **r} for r in records]
        assert merged(records, rows) == expected


def test_faults_name_the_first_rows_of_all_columns_in_their_order() -> None:
    records = [{"id": 1}, {"id": 2, "b": 1}, {"id": 3}]
    error = refusal(records, [{"id": 1, "a": "x", "b": None}])
    assert (error.code, error.details["row"], error.details["column"]) == ("NULL_IN_REQUIRED", 0, "b")
    error = refusal(records, [{"id": 1, "a": "x", "b": 1}])
    assert (error.code, error.details["row"], error.details["column"]) == ("SCHEMA_MISMATCH", 2, "b")


def test_a_key_that_many_rows_have_is_named_with_how_many_there_are() -> None:
    error = refusal([{"id": 4}, {"id": 5}], [{"id": 5, "a": None, "b": 1}] * 3)
    assert (error.code, error.details["row"]) == ("DUPLICATE_KEY_IN_TABLE", 1)
    assert error.details["got"] == "3 rows in the table with the key number 5"


def test_what_is_stored_where_nothing_is_missing_is_not_looked_at() -> None:
    records = [{"id": 1, "a": "new", "b": 7}, {"id": 2, "b": 1}]
    rows = [{"id": 1, "a": "x", "b": None}, {"id": 1, "a": "y", "b": 1}, {"id": 2, "a": "kept", "b": None}]
    assert merged(records, rows) == [records[0], {"id": 2, "a": "kept", "b": 1}]


def test_only_columns_that_some_record_lacks_are_absent() -> None:
    whole = [{"id": 1, "a": None, "b": 1}]
    assert encode_given(COLUMNS, SCHEMA, whole, ["id"]).absent == {}
    assert set(encode_given(COLUMNS, SCHEMA, [*whole, {"id": 2, "b": 1}], ["id"]).absent) == {2}
    assert coerce_given(COLUMNS, SCHEMA, pa.table({"b": [1], "id": [1], "a": ["x"]}), ["id"]).absent == {}
    assert set(coerce_given(COLUMNS, SCHEMA, pa.table({"id": [1], "a": ["x"]}), ["id"]).absent) == {3}


@pytest.mark.parametrize("records", [[{"id": 1, "b": None}], [{"id": 1, "c": 1}], [{"id": 1, "b": "x"}]])
def test_what_is_given_is_judged_before_anything_is_read(records: Sequence[Record]) -> None:
    with pytest.raises(InvalidRequest):
        encode_given(COLUMNS, SCHEMA, records, ["id"])


ELEMENT = Column(name="element", type="int", required=True)
NESTED = [
    Column(name="c", type="list", children=(ELEMENT,), required=True),
    Column(
        name="c",
        type="map",
        children=(Column(name="key", type="string", required=True), Column(name="value", type="int", required=True)),
        required=True,
    ),
    Column(name="c", type="struct", children=(Column(name="x", type="fixed[3]", required=True),), required=True),
]
PLAIN = (
    *("boolean", "int", "long", "float", "double", "decimal(38,38)", "decimal(9,2)", "date", "time", "timestamp"),
    *("timestamptz", "string", "uuid", "fixed[5]", "binary"),
)


@pytest.mark.parametrize(
    "column", [*(Column(name="c", type=kind, required=True) for kind in PLAIN), *NESTED], ids=lambda c: c.type
)
def test_a_missing_required_column_of_every_type_waits_for_its_stored_value(column: Column) -> None:
    columns = columns_of(schema_of([KEY, column]))
    schema = schema_to_pyarrow(schema_of(columns))
    value = encode_given(columns, schema, [{"id": 0, "c": filler(columns[1])}], ["id"]).rows
    stored = pa.table({RECORD: pa.array([0], pa.int64()), name_in_view(2): value["c"]})  # type: ignore[index]
    for rows in (
        encode_given(columns, schema, [{"id": 7}], ["id"]),
        coerce_given(columns, schema, pa.table({"id": pa.array([7], pa.int64())}), ["id"]),
    ):
        found = fill(columns, schema, rows, stored, ["id"])
        assert found["id"].to_pylist() == [7]
        assert found["c"].combine_chunks().equals(value["c"].combine_chunks())  # type: ignore[index]
        with pytest.raises(InvalidRequest):
            fill(columns, schema, rows, None, ["id"])


def test_the_marks_of_an_engine_for_booleans_and_uuids_are_read_as_what_they_are() -> None:
    """DuckDB's lossless Arrow has extension types for both."""
    columns = columns_of(schema_of([KEY, Column(name="t", type="boolean"), Column(name="u", type="uuid")]))
    schema = schema_to_pyarrow(schema_of(columns))
    bits = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, b"b" * 16, None], pa.binary(16)))
    stored = pa.table({RECORD: pa.array([2, 0, 1], pa.int64()), "c2": bits, "c3": uuids})
    rows = encode_given(columns, schema, [{"id": n} for n in range(3)], ["id"])
    found = fill(columns, schema, rows, stored, ["id"])
    assert found["t"].to_pylist() == [False, None, True]
    assert [u and u.bytes[:1] for u in found["u"].to_pylist()] == [b"b", None, b"a"]


def test_records_that_are_encoded_in_parts_lack_what_they_lack_together(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        {"id": 1, "a": "x", "b": 1},
        {"id": 2, "b": 2},
        {"id": 3, "a": None, "b": 3},
        {"id": 4},
        {"id": 5, "b": 5},
    ]
    together = encode_given(COLUMNS, SCHEMA, records, ["id"])
    monkeypatch.setattr(encode, "SLICE", 2)
    in_parts = encode_given(COLUMNS, SCHEMA, records, ["id"])
    assert in_parts.rows.equals(together.rows)  # type: ignore[attr-defined]
    assert in_parts.count == 5
    assert {name: mask.to_pylist() for name, mask in in_parts.absent.items()} == {  # type: ignore[attr-defined]
        2: [False, True, False, True, True],
        3: [False, False, False, True, False],
    }
