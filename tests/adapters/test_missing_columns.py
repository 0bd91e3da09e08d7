"""An upsert of records that lack columns, with `missing_columns: keep`: what is stored stays what it was, exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    TimeType,
)

from regelate.adapters.duckdb.key_rewriter import DuckDBKeyRewriter
from regelate.adapters.iceberg.rows import IcebergRowWriter
from tests.adapters.test_compaction_values import ALL_TYPES, INF, NAN, NESTED
from tests.adapters.test_far_times import DAY, DAYS, ENDS, numbers, rows_of
from tests.adapters.test_far_times import SCHEMA as FAR
from tests.adapters.test_write_modes import (
    BY_P,
    Row,
    Writing,
    assert_no_orphans,
    assert_rows,
    head_operation,
    refused,
)
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.foreign_files import put
from tests.support.iceberg_tables import append, live_data_files, live_data_paths, live_entries, local_path, rows
from tests.support.lake import address
from tests.support.table_model import model_rows

Records = Sequence[dict[str, Any]]
REQUIRED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "p", StringType(), required=True),
    NestedField(3, "v", StringType()),
)


@pytest.fixture
def lake(tmp_path: Path) -> Writing:
    return Writing(tmp_path)


def keep(lake: Writing, records: object, *, key: Sequence[str] = ("id",), **more: Any) -> dict[str, Any]:
    return lake.send(records, mode="upsert", key=key, missing="keep", **more)


def with_key(schema: Schema) -> Schema:
    """Put a key, `key`, before all other columns."""
    return Schema(NestedField(1000, "key", LongType()), *schema.fields)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_column_that_a_record_does_not_name_keeps_its_stored_value(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", "old")], [(3, "b", "old")])
    answer = keep(lake, [{"id": 1, "v": "new"}, {"id": 3, "p": "c"}, {"id": 9, "v": "new"}])
    assert answer["records_written"] == 3
    assert_rows(table, [(1, "a", "new"), (2, "a", "old"), (3, "c", "old"), (9, None, "new")])
    assert head_operation(table) == "overwrite"
    assert_no_orphans(table)


def test_without_keep_what_a_record_does_not_name_becomes_null(lake: Writing) -> None:
    table = lake.table([(1, "a", "old")])
    lake.send([{"id": 1, "p": "a"}], mode="upsert", key=["id"])
    assert_rows(table, [(1, "a", None)])


def test_an_explicit_null_is_null_and_a_stored_null_stays_null(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", None)])
    keep(lake, [{"id": 1, "v": None}, {"id": 2, "p": "a"}])
    assert_rows(table, [(1, "a", None), (2, "a", None)])


def test_records_may_each_lack_other_columns_or_none(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", "old"), (3, "a", "old")])
    keep(lake, [{"id": 3, "p": "c", "v": "new"}, {"id": 1}, {"id": 2, "p": "b"}])
    assert_rows(table, [(1, "a", "old"), (2, "b", "old"), (3, "c", "new")])


def test_a_struct_is_given_whole_or_kept_whole(lake: Writing) -> None:
    inner = StructType(NestedField(3, "x", LongType()), NestedField(4, "y", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", inner), NestedField(5, "v", LongType()))
    table = lake.table(spec=UNPARTITIONED_PARTITION_SPEC, schema=schema)
    append(table, [(1, {"x": 1, "y": 2}, 7), (2, {"x": 1, "y": 2}, 7)])
    keep(lake, [{"id": 1, "s": {"x": 9}}, {"id": 2, "v": 8}])
    assert_rows(table, [(1, {"x": 9, "y": None}, 7), (2, {"x": 1, "y": 2}, 8)])


def test_a_kept_partition_column_keeps_its_partition_and_a_given_one_moves_the_row(lake: Writing) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "at", TimestamptzType()), NestedField(3, "v", StringType())
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, DayTransform(), "day"), PartitionField(1, 1001, BucketTransform(4), "bucket")
    )
    days = [datetime(2025, 1, day, 5, tzinfo=UTC) for day in (1, 2, 3)]
    table = lake.table(spec=spec, schema=schema)
    lake.send([{"id": n, "at": day.isoformat(), "v": "old"} for n, day in enumerate(days)], mode="append")
    before = {f.partition[0] for f in live_data_files(table.refresh())}
    keep(lake, [{"id": 0, "v": "new"}, {"id": 1, "at": "2025-01-03T06:00:00Z"}])
    moved = datetime(2025, 1, 3, 6, tzinfo=UTC)
    assert rows(table.refresh()) == [(0, days[0], "new"), (1, moved, "old"), (2, days[2], "old")]
    after = {f.partition[0] for f in live_data_files(table.refresh())}
    assert after < before
    assert len(after) == 2


@pytest.mark.parametrize(("name", "kind", "values"), ALL_TYPES, ids=[name for name, _, _ in ALL_TYPES])
def test_every_type_is_kept_exactly(lake: Writing, name: str, kind: Any, values: list[Any]) -> None:
    more = [NAN, INF, -INF, 0.0, 1e-45] if name in ("float", "double") else []
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "c", kind),
        NestedField(3, "l", ListType(4, kind, False)),
        NestedField(5, "m", MapType(6, StringType(), 7, kind, False)),
        NestedField(8, "s", StructType(NestedField(9, "x", kind))),
        NestedField(10, "v", LongType()),
    )
    table = lake.table(spec=UNPARTITIONED_PARTITION_SPEC, schema=schema)
    stored = [(i, v, [v, None], [("k", v)], {"x": v}, 0) for i, v in enumerate([*values, *more])]
    if name == "uuid":  # PyArrow makes no uuid of Python's values in a list
        texts = [str(UUID(bytes=value)) for value in values]
        given = [{"id": i, "c": t, "l": [t, None], "m": {"k": t}, "s": {"x": t}, "v": 0} for i, t in enumerate(texts)]
        lake.send(given, mode="append")
    else:
        append(table, stored)
    lake.send([{"id": 100, "v": 0}], mode="append")
    before = model_rows(table)
    keep(lake, [{"id": i, "v": 1} for i in (*range(len(stored)), 100)])
    assert model_rows(table) == sorted(f"{text.removesuffix(', 0)')}, 1)" for text in before)
    assert len(before) == len(stored) + 1


def test_nested_values_of_every_shape_are_kept_exactly(lake: Writing) -> None:
    table = lake.table(spec=UNPARTITIONED_PARTITION_SPEC, schema=with_key(NESTED))
    stored: list[dict[str, Any]] = [
        {
            "id": 1,
            "deep": [
                {"m": [("k", [1.5, None, -0.0, NAN])], "s": {"u": datetime(2025, 1, 1, tzinfo=UTC), "f": b"ab"}},
                None,
            ],
            "by_number": [(2**40, {"x": 1.1}), (-1, None)],
            "s": {"a": "", "b": [1, None, 3]},
        },
        {"id": 2, "deep": None, "by_number": None, "s": None},
        {"id": 3, "deep": [], "by_number": [], "s": {"a": None, "b": []}},
        {"id": 4, "deep": [{"m": None, "s": None}, {"m": [], "s": None}], "by_number": [], "s": None},
    ]
    append(table, [{"key": number, **row} for number, row in enumerate(stored)])
    before = model_rows(table)
    keep(lake, [{"key": number} for number in range(len(stored))], key=["key"])
    assert model_rows(table) == before
    assert len(table.snapshots()) == 2


def test_a_null_struct_with_required_fields_is_kept_null(lake: Writing) -> None:
    """Arrow's Parquet writer wants a value for a required field even where its struct is null."""
    inner = StructType(
        NestedField(3, "x", LongType(), required=True),
        NestedField(4, "l", ListType(5, DateType(), True), required=True),
        NestedField(6, "s", StructType(NestedField(7, "y", DecimalType(9, 2), required=True)), required=True),
    )
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", inner), NestedField(8, "v", LongType()))
    table = lake.table(spec=UNPARTITIONED_PARTITION_SPEC, schema=schema)
    value = {"x": 1, "l": [date(1, 1, 1)], "s": {"y": Decimal("1.10")}}
    append(table, [(1, None, 0), (2, value, 0)])
    keep(lake, [{"id": 1, "v": 1}, {"id": 2, "v": 1}, {"id": 3, "v": 1}])
    assert_rows(table, [(1, None, 1), (2, value, 1), (3, None, 1)])


@pytest.mark.parametrize("ends", [False, True])
def test_days_and_moments_beyond_the_calendar_are_kept(lake: Writing, ends: bool) -> None:
    """No record may give them, as not every reader shows them; those that other writers stored are nobody's to lose."""
    table = lake.table(spec=UNPARTITIONED_PARTITION_SPEC, schema=FAR)
    days, stamps = (ENDS["d"], ENDS["t"]) if ends else (DAYS, [day * DAY for day in DAYS])
    put(table, rows_of(days, stamps), [1, 2, 3, 4])
    before = numbers(table)
    keep(lake, [{"id": number} for number in range(len(days))])
    assert len(table.refresh().snapshots()) == 2
    assert numbers(table) == before


# --- required columns -------------------------------------------------------------------------------------------------


def test_a_required_column_may_be_missing_where_a_row_is_stored(lake: Writing) -> None:
    table = lake.table([(1, "a", "old")], schema=REQUIRED)
    keep(lake, [{"id": 1, "v": "new"}, {"id": 2, "p": "b"}])
    assert_rows(table, [(1, "a", "new"), (2, "b", None)])


def test_a_required_column_of_a_new_row_is_refused_by_row_and_column(lake: Writing) -> None:
    table = lake.table([(1, "a", "old")], schema=REQUIRED)
    error = refused("SCHEMA_MISMATCH", lambda: keep(lake, [{"id": 1}, {"id": 2, "p": "b"}, {"id": 3, "v": "new"}]))
    assert (error.status, error.details["row"], error.details["column"]) == (422, 2, "p")
    assert "no row with this key" in error.message
    assert_rows(table, [(1, "a", "old")])
    assert_no_orphans(table)


def test_every_row_of_an_empty_table_is_a_new_one(lake: Writing) -> None:
    table = lake.table(schema=REQUIRED)
    refused("SCHEMA_MISMATCH", lambda: keep(lake, [{"id": 1, "v": "new"}]))
    keep(lake, [{"id": 1, "p": "a"}])
    assert_rows(table, [(1, "a", None)])


def test_a_null_given_for_a_required_column_is_refused_though_a_value_is_stored(lake: Writing) -> None:
    table = lake.table([(1, "a", "old")], schema=REQUIRED)
    refused("NULL_IN_REQUIRED", lambda: keep(lake, [{"id": 1, "p": None}]))
    assert_rows(table, [(1, "a", "old")])


def test_a_null_that_others_left_in_a_required_column_is_not_kept_but_may_be_replaced(lake: Writing) -> None:
    optional = Schema(*(f.model_copy(update={"required": False}) for f in REQUIRED.fields))
    table = lake.table([(1, None, "old"), (2, None, "old")], schema=optional, spec=UNPARTITIONED_PARTITION_SPEC)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("p", required=True)
    error = refused("NULL_IN_REQUIRED", lambda: keep(lake, [{"id": 2, "p": "b"}, {"id": 1, "v": "new"}]))
    assert (error.details["row"], error.details["column"]) == (1, "p")
    assert "in the stored row" in error.message
    assert_no_orphans(table)
    keep(lake, [{"id": 2, "p": "b"}, {"id": 1, "p": "a"}])
    assert_rows(table, [(1, "a", "old"), (2, "b", "old")])


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_that_two_rows_of_the_table_have_is_refused_and_nothing_is_written(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", "old")], [(2, "b", "other")])
    error = refused("DUPLICATE_KEY_IN_TABLE", lambda: keep(lake, [{"id": 1, "v": "new"}, {"id": 2, "v": "new"}]))
    assert (error.status, error.details["row"], error.details["column"]) == (422, 1, "id")
    assert "2 rows in the table with the key number 2" in error.message
    assert_rows(table, [(1, "a", "old"), (2, "a", "old"), (2, "b", "other")])
    assert len(table.snapshots()) == 2
    assert_no_orphans(table)


def test_a_record_that_names_every_column_replaces_all_rows_of_its_key(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", "old")], [(2, "b", "other")])
    keep(lake, [{"id": 1, "v": "new"}, {"id": 2, "p": "c", "v": "new"}])
    assert_rows(table, [(1, "a", "new"), (2, "c", "new")])


def test_the_rows_of_a_key_of_several_columns_are_told_apart_by_all_of_them(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (1, "b", "old"), (2, "a", "old")])
    keep(lake, [{"id": 1, "p": "b"}, {"id": 2, "p": "b"}], key=["p", "id"])
    keep(lake, [{"id": 1, "p": "a", "v": "new"}], key=["p", "id"])
    assert_rows(table, [(1, "a", "new"), (1, "b", "old"), (2, "a", "old"), (2, "b", None)])


@pytest.mark.parametrize(
    ("records", "code"),
    [([{"v": "new"}], "NULL_IN_KEY"), ([{"id": 1}, {"id": 1, "v": "x"}], "DUPLICATE_KEY")],
)
def test_a_key_must_be_given_and_given_once(lake: Writing, records: Records, code: str) -> None:
    table = lake.table([(1, "a", "old")])
    refused(code, lambda: keep(lake, records))
    assert_rows(table, [(1, "a", "old")])
    assert_no_orphans(table)


@pytest.mark.parametrize("records", [[{"p": "b"}], pa.table({"p": ["b"]})], ids=["json", "arrow"])
def test_a_required_key_that_is_missing_is_no_other_rows_key(lake: Writing, records: object) -> None:
    """It has no value yet: whatever stands in its place must find no row, 0 for one."""
    table = lake.table([(0, "a", "old")], schema=REQUIRED)
    error = refused("SCHEMA_MISMATCH", lambda: keep(lake, records))
    assert (error.details["row"], error.details["column"]) == (0, "id")
    refused("SCHEMA_MISMATCH", lambda: keep(lake, records, key=["p", "id"]))
    assert_rows(table, [(0, "a", "old")])
    assert len(table.snapshots()) == 1


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [(n, k, v) for n, k, v in ALL_TYPES if n not in ("float", "double")],
    ids=[n for n, _, _ in ALL_TYPES if n not in ("float", "double")],
)
def test_a_key_of_every_type_finds_its_own_row(lake: Writing, name: str, kind: Any, values: list[Any]) -> None:
    schema = Schema(NestedField(1, "k", kind), NestedField(2, "kept", LongType()), NestedField(3, "v", LongType()))
    table = lake.table(spec=UNPARTITIONED_PARTITION_SPEC, schema=schema)
    append(table, [(value, number, 0) for number, value in enumerate(values)])
    given = table.scan().to_arrow().select(["k"]).append_column("v", pa.array([10, 11]))
    keep(lake, given.slice(1), key=["k"])
    keep(lake, given.slice(0, 1), key=["k"])
    found = sorted(zip(*(table.refresh().scan().to_arrow()[c].to_pylist() for c in ("kept", "v")), strict=True))
    assert found == [(0, 10), (1, 11)]


# --- where stored rows live -------------------------------------------------------------------------------------------


def test_stored_rows_are_found_in_every_partition_and_spec(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "b", "old")], spec=UNPARTITIONED_PARTITION_SPEC)
    with table.update_spec() as update:
        update.add_identity("p")
    append(table, [(3, "a", "old"), (4, "b", "old"), (5, None, "old")])
    keep(lake, [{"id": n, "v": f"new {n}"} for n in (1, 3, 4, 5)])
    expected = [(1, "a", "new 1"), (2, "b", "old"), (3, "a", "new 3"), (4, "b", "new 4"), (5, None, "new 5")]
    assert_rows(table, expected)
    assert_no_orphans(table)


def test_stored_rows_are_found_in_more_files_than_one_scan_may_bind(
    lake: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regelate.adapters.duckdb.key_rewriter.MAX_FILES_PER_SCAN", 2)
    table = lake.table(*([(i, "a", f"old {i}")] for i in range(5)))
    keep(lake, [{"id": i, "p": "b"} for i in range(5)])
    assert_rows(table, [(i, "b", f"old {i}") for i in range(5)])


def test_a_two_row_key_is_refused_though_its_rows_lie_in_several_scans(
    lake: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regelate.adapters.duckdb.key_rewriter.MAX_FILES_PER_SCAN", 1)
    table = lake.table([(1, "a", "old")], [(1, "a", "other")])
    refused("DUPLICATE_KEY_IN_TABLE", lambda: keep(lake, [{"id": 1, "p": "b"}]))
    assert_no_orphans(table)


def test_stored_rows_of_older_schemas_are_read_by_field_id(lake: Writing) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "f", FloatType()),
        NestedField(3, "d", DecimalType(9, 2)),
        NestedField(4, "name", StringType()),
        NestedField(5, "gone", StringType()),
        NestedField(6, "s", StructType(NestedField(7, "a", IntegerType()))),
        NestedField(8, "v", LongType()),
    )
    table = lake.table(spec=UNPARTITIONED_PARTITION_SPEC, schema=schema)
    append(table, [(1, 0.1, Decimal("1.10"), "first", "x", {"a": 1}, 0), (2, NAN, None, None, "y", None, 0)])
    with table.update_schema() as update:
        update.update_column("id", LongType()).update_column("f", DoubleType()).update_column("d", DecimalType(18, 2))
        update.update_column(("s", "a"), LongType()).add_column(("s", "b"), StringType())
        update.delete_column("gone").rename_column("name", "title").move_first("v")
    with table.update_schema() as update:
        update.add_column("name", StringType())
    before = model_rows(table)
    keep(lake, [{"id": 1, "v": 1}, {"id": 2, "v": 1}])
    assert model_rows(table) == sorted("(1" + text.removeprefix("(0") for text in before)
    first = table.refresh().scan(row_filter="id = 1").to_arrow().to_pylist()[0]
    nearest = 0.10000000149011612
    assert first == {
        "v": 1,
        "id": 1,
        "f": nearest,
        "d": Decimal("1.10"),
        "title": "first",
        "s": {"a": 1, "b": None},
        "name": None,
    }


def test_rows_that_were_deleted_are_not_kept_from(lake: Writing) -> None:
    """By both kinds of delete files; one of two rows with the same key was deleted, so it is no duplicate."""
    table = lake.table([(1, "a", "deleted"), (1, "a", "live"), (2, "a", "deleted"), (3, "a", "live")])
    add_position_deletes(table, {live_data_paths(table)[0]: [0]})
    add_equality_deletes(table, ["id"], [(2,)], partition={"p": "a"})
    append(table, [(4, "a", "live")])
    keep(lake, [{"id": n, "p": "a"} for n in (1, 2, 3, 4)])
    assert_rows(table, [(1, "a", "live"), (2, "a", None), (3, "a", "live"), (4, "a", "live")])
    assert_no_orphans(table)


def test_stored_rows_are_those_of_the_branch(lake: Writing) -> None:
    table = lake.table([(1, "a", "main")])
    head = table.refresh().current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "side").commit()

    def on_side(record: dict[str, Any], missing: str) -> None:
        lake.service.writes.write(
            address("db.t"), [record], mode="upsert", key=("id",), idempotency_key=None, ref="side",
            missing_columns=missing,
        )  # fmt: skip

    on_side({"id": 1, "p": "b", "v": "side"}, "null")
    on_side({"id": 1, "p": "c"}, "keep")
    table.refresh()
    on = table.snapshot_by_name("side")
    assert on is not None
    assert rows(table, on.snapshot_id) == [(1, "c", "side")]
    assert rows(table) == [(1, "a", "main")]


# --- Arrow tables -----------------------------------------------------------------------------------------------------


def test_columns_that_an_arrow_table_lacks_are_kept_in_every_row(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "b", None)], schema=REQUIRED)
    keep(lake, pa.table({"v": ["new", None], "id": pa.array([1, 2], pa.int32())}))
    assert_rows(table, [(1, "a", "new"), (2, "b", None)])
    error = refused("SCHEMA_MISMATCH", lambda: keep(lake, pa.table({"id": [2, 7]})))
    assert (error.details["row"], error.details["column"]) == (1, "p")
    refused("SCHEMA_MISMATCH", lambda: keep(lake, pa.table({"id": [1], "nope": [1]})))
    assert keep(lake, pa.table({"id": pa.array([], pa.int64())}))["snapshot_id"] is None
    assert_rows(table, [(1, "a", "new"), (2, "b", None)])
    assert_no_orphans(table)


def test_an_arrow_table_may_lack_a_struct_with_required_fields(lake: Writing) -> None:
    inner = StructType(NestedField(3, "x", LongType(), required=True))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", inner), NestedField(4, "v", LongType()))
    table = lake.table(spec=UNPARTITIONED_PARTITION_SPEC, schema=schema)
    lake.send(pa.table({"id": [1], "v": [1]}), mode="append")
    keep(lake, pa.table({"id": [1, 2], "v": [2, 2]}))
    assert_rows(table, [(1, None, 2), (2, None, 2)])


# --- other writers ----------------------------------------------------------------------------------------------------


def replaced(lake: Writing, row: Row) -> Callable[[], object]:
    """Another client replaces the row with this id."""
    return lambda: Writing(lake.folder).write(row, mode="upsert", key=["id"])


def test_a_row_that_others_change_meanwhile_is_kept_as_they_left_it(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", "old")])
    lake.before_commit(replaced(lake, (1, "b", "theirs")), replaced(lake, (1, "c", "theirs too")))
    answer = keep(lake, [{"id": 1, "v": "new"}, {"id": 2, "p": "d"}])
    assert (lake.retries, answer["records_written"]) == (2, 2)
    assert_rows(table, [(1, "c", "new"), (2, "d", "old")])
    assert_no_orphans(table)
    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["regelate.records-written"] == "2"


def test_a_row_that_others_delete_meanwhile_gives_nothing_to_keep(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", "old")])
    lake.before_commit(lambda: add_equality_deletes(lake.theirs(), ["id"], [(1,)], partition={"p": "a"}))
    keep(lake, [{"id": 1, "v": "new"}])
    assert_rows(table, [(1, None, "new"), (2, "a", "old")])
    assert_no_orphans(table)


def test_a_second_row_that_comes_meanwhile_refuses_the_record_and_leaves_no_file(lake: Writing) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", "old")])
    lake.before_commit(lambda: append(lake.theirs(), [(1, "b", "theirs")]))
    refused("DUPLICATE_KEY_IN_TABLE", lambda: keep(lake, [{"id": 1, "v": "new"}]))
    assert_rows(table, [(1, "a", "old"), (2, "a", "old"), (1, "b", "theirs")])
    assert_no_orphans(table)


@pytest.mark.parametrize("records", [[{"id": 1, "v": "new"}], [{"id": 1, "p": "a", "v": "new"}]])
def test_columns_that_change_meanwhile_are_a_conflict(lake: Writing, records: Records) -> None:
    """The new column is one that no record names, so its value would have to stay."""
    table = lake.table([(1, "a", "old")])

    def add_column() -> None:
        with lake.theirs().update_schema() as update:
            update.add_column("later", StringType())
        Writing(lake.folder).send([{"id": 1, "later": "theirs"}], mode="upsert", key=["id"], missing="keep")

    lake.before_commit(add_column)
    error = refused("SCHEMA_CHANGED", lambda: keep(lake, records))
    assert (error.status, error.retryable) == (409, True)
    assert_rows(table, [(1, "a", "old", "theirs")])
    assert_no_orphans(table)
    keep(lake, records)
    assert_rows(table, [(1, "a", "new", "theirs")])


def test_a_lost_race_on_every_attempt_leaves_no_file(lake: Writing) -> None:
    table = lake.table([(1, "a", "old")])
    lake.before_commit(*(lambda n=n: append(lake.theirs(), [(n, "c", "theirs")]) for n in range(10, 26)))
    refused("COMMIT_CONFLICT", lambda: keep(lake, [{"id": 1, "v": "new"}]))
    assert_no_orphans(table)


def test_a_failure_while_the_completed_rows_are_written_leaves_no_file(
    lake: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", "old")])

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(IcebergRowWriter, "write", fail)
    with pytest.raises(RuntimeError):
        keep(lake, [{"id": 1, "v": "new"}])
    assert_no_orphans(table)


# --- repeats, and what it costs ---------------------------------------------------------------------------------------


def test_a_repeat_lands_once_and_keep_is_part_of_the_request(lake: Writing) -> None:
    table = lake.table([(1, "a", "old")])
    records = [{"id": 1, "v": "new"}]
    first = keep(lake, records, repeat="k-1")
    again = keep(lake, records, repeat="k-1")
    assert again["already_done"]
    assert (again["snapshot_id"], again["records_written"]) == (first["snapshot_id"], 1)
    refused("IDEMPOTENCY_KEY_REUSED", lambda: lake.send(records, mode="upsert", key=["id"], repeat="k-1"))
    lake.send(records, mode="upsert", key=["id"], repeat="k-2")
    refused("IDEMPOTENCY_KEY_REUSED", lambda: keep(lake, records, repeat="k-2"))
    assert_rows(table, [(1, None, "new")])


def test_the_same_write_landing_meanwhile_is_ours(lake: Writing) -> None:
    table = lake.table([(1, "a", "old")])
    records = [{"id": 1, "v": "new"}, {"id": 2}]
    lake.before_commit(lambda: keep(Writing(lake.folder), records, repeat="k-1"))
    answer = keep(lake, records, repeat="k-1")
    assert (answer["already_done"], answer["records_written"]) == (True, 2)
    assert_rows(table, [(1, "a", "new"), (2, None, None)])
    assert_no_orphans(table)


@pytest.mark.parametrize("as_arrow", [False, True])
def test_records_that_name_every_column_read_no_stored_row(
    lake: Writing, monkeypatch: pytest.MonkeyPatch, as_arrow: bool
) -> None:
    table = lake.table([(1, "a", "old"), (2, "a", "old")])
    monkeypatch.delattr(DuckDBKeyRewriter, "stored")
    monkeypatch.delattr(IcebergRowWriter, "fill")
    records = [{"id": 1, "p": "b", "v": "new"}, {"id": 3, "p": None, "v": None}]
    keep(lake, pa.Table.from_pylist(records) if as_arrow else records)
    assert_rows(table, [(1, "b", "new"), (2, "a", "old"), (3, None, None)])


def test_files_without_a_key_of_the_request_stay(lake: Writing) -> None:
    table = lake.table([(1, "a", "old")], [(2, "a", "old")], spec=BY_P)
    kept = {e.data_file.file_path for e in live_entries(table) if e.data_file.lower_bounds[1][:1] == b"\x02"}
    keep(lake, [{"id": 1, "v": "new"}])
    assert kept < set(live_data_paths(table.refresh()))
    assert all(local_path(path).exists() for path in live_data_paths(table))


def test_a_time_of_day_is_kept_to_the_microsecond_as_json_gives_it(lake: Writing) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "t", TimeType()), NestedField(3, "v", LongType()))
    table: Table = lake.table(spec=UNPARTITIONED_PARTITION_SPEC, schema=schema)
    lake.send([{"id": 1, "t": "23:59:59.999999", "v": 0}], mode="append")
    keep(lake, [{"id": 1, "v": 1}])
    assert_rows(table, [(1, time(23, 59, 59, 999999), 1)])
