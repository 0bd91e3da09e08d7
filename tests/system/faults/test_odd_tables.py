"""Rows 31 to 33 and 64: deletes that are hard to apply, tables that are not for us, and tables that only look so."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, StructType

from tests.support.deletes_writer import add_described_deletes, add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import (
    add_data_files,
    append,
    changed_file,
    live_data_files,
    live_data_paths,
    live_delete_paths,
    local_path,
    make_table,
    row_texts,
    rows,
)
from tests.support.table_model import model_rows
from tests.system.faults.stack import (
    EVERY_TABLE_OPERATION,
    Answer,
    Edit,
    Stack,
    assert_nothing_left_behind,
    edit_metadata,
    request,
)

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
BY_V = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))


@pytest.fixture
def make(stack: Stack) -> Callable[..., Table]:
    """Make a table of four files with two rows each, by plain PyIceberg."""

    def made(spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, second: str | None = "b", **more: Any) -> Table:
        table = make_table(stack.built.catalog(), "default.t", SCHEMA, spec, **more)
        for number in range(4):
            append(table, [(number, "a"), (number + 10, second)])
        return table

    return made


def compacted(stack: Stack, table: Table) -> Answer:
    """COMPACT must land as one `replace` and change no row, for the independent reader and for QUERY."""
    before = model_rows(table)
    snapshots = len(table.snapshots())
    answer = stack.ok("COMPACT", "t", force=True)
    assert answer["status"] == "COMPLETED", answer
    assert model_rows(table) == before
    assert len(table.snapshots()) == snapshots + 1
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation.value == "replace"
    names = [field.name for field in table.schema().fields]
    found = [tuple(row[name] for name in names) for row in stack.ok("QUERY", "t", limit=10_000)["rows"]]
    assert row_texts(found) == before
    assert_nothing_left_behind(table)
    return answer


def test_row_31_equality_deletes_on_a_column_renamed_since_are_applied(
    stack: Stack, make: Callable[..., Table]
) -> None:
    table = make()
    add_equality_deletes(table, ["id"], [(1,), (12,)])
    with table.update_schema() as update:
        update.rename_column("id", "key")
    answer = compacted(stack, table)
    assert (answer["stats"]["rows"], answer["stats"]["delete_files_removed"]) == (6, 1)
    assert live_delete_paths(table) == []


def test_row_31_equality_deletes_on_a_dropped_column_are_refused_and_nothing_is_lost(
    stack: Stack, make: Callable[..., Table]
) -> None:
    table = make()
    path = add_equality_deletes(table, ["v"], [("a",)])
    with table.update_schema() as update:
        update.delete_column("v")
    upsert = request("WRITE", "t", records=[{"id": 1}], mode="upsert", key=["id"])
    with stack.untouched():
        for body in (request("COMPACT", "t", force=True), request("QUERY", "t"), upsert):
            error = stack.refused(501, "UNSUPPORTED_DELETES", [path, "Spark"], body)
            assert error["details"]["path"] == path
    assert live_delete_paths(table.refresh()) == [path]


def test_row_31_equality_deletes_on_a_nested_column_are_refused_and_nothing_is_lost(stack: Stack) -> None:
    nested = Schema(NestedField(1, "s", StructType(NestedField(2, "x", LongType()))))
    table = make_table(stack.built.catalog(), "default.t", nested)
    for number in range(3):
        append(table, [{"s": {"x": number}}])
    path = add_equality_deletes(table, ["s.x"], [{"s": {"x": 1}}])
    with stack.untouched():
        for operation in ("COMPACT", "QUERY"):
            stack.refused(501, "UNSUPPORTED_DELETES", [path, "nested"], request(operation, "t"))


def test_row_31_null_equals_null_in_an_equality_delete(stack: Stack, make: Callable[..., Table]) -> None:
    table = make(second=None)
    add_equality_deletes(table, ["v"], [(None,)])
    assert compacted(stack, table)["stats"]["rows"] == 4
    assert rows(table) == [(number, "a") for number in range(4)]


def test_row_31_the_same_key_in_other_partitions_stays(stack: Stack, make: Callable[..., Table]) -> None:
    table = make(BY_V)
    append(table, [(11, "a"), (1, "b")])
    add_equality_deletes(table, ["id"], [(1,), (11,)], partition={"v": "a"})
    found = [(0, "a"), (1, "b"), (2, "a"), (3, "a"), (10, "b"), (11, "b"), (12, "b"), (13, "b")]
    assert model_rows(table) == row_texts(found)
    compacted(stack, table)
    assert rows(table) == found
    assert live_delete_paths(table) == []


def test_row_31_rows_written_after_an_equality_delete_stay(stack: Stack, make: Callable[..., Table]) -> None:
    table = make()
    add_equality_deletes(table, ["id"], [(1,)])
    append(table, [(1, "again")])
    compacted(stack, table)
    assert (1, "again") in rows(table)
    assert (1, "a") not in rows(table)


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_row_32_a_group_of_deleted_rows_leaves_no_file_not_even_an_empty_one(
    stack: Stack, make: Callable[..., Table], kind: str
) -> None:
    table = make()
    if kind == "position":
        add_position_deletes(table, {path: [0, 1] for path in live_data_paths(table)})
    else:
        add_equality_deletes(table, ["id"], [(number + tens,) for number in range(4) for tens in (0, 10)])
    answer = compacted(stack, table)
    stats = answer["stats"]
    assert (stats["files_before"], stats["files_removed"], stats["files_added"], stats["files_after"]) == (4, 4, 0, 0)
    assert (stats["rows"], stats["bytes_after"], stats["delete_files_removed"]) == (0, 0, 1)
    assert (live_data_paths(table), live_delete_paths(table)) == ([], [])
    again = stack.ok("COMPACT", "t", force=True)
    assert (again["status"], again["reason"]) == ("NOTHING_TO_DO", "NO_CANDIDATE")


def test_row_32_one_partition_of_deleted_rows_goes_and_the_other_stays(
    stack: Stack, make: Callable[..., Table]
) -> None:
    table = make(BY_V)
    add_position_deletes(table, {f.file_path: [0] for f in live_data_files(table) if f.partition[0] == "a"})
    stats = compacted(stack, table)["stats"]
    assert (stats["files_before"], stats["files_added"], stats["files_after"]) == (8, 1, 1)
    assert rows(table) == [(number, "b") for number in range(10, 14)]


def with_type(text: str) -> Edit:
    return lambda m: m["schemas"][0]["fields"][1].update(type=text)


def version(number: int, *more: Edit) -> Edit:
    def change(metadata: dict[str, Any]) -> None:
        metadata.update({"format-version": number, "next-row-id": 8})
        for edit in more:
            edit(metadata)

    return change


def with_transform(**field: object) -> Edit:
    spec = {"spec-id": 1, "fields": [{"field-id": 1000, "name": "z", **field}]}
    return lambda m: (m["partition-specs"].append(spec), m.update({"default-spec-id": 1, "last-partition-id": 1000}))


FOREIGN: dict[str, tuple[Edit, str]] = {
    "v3 with row lineage": (version(3), "format version 3"),
    "v4": (version(4), "format version 4"),
    "v9": (version(9), "format version 9"),
    "v3 with geometry": (version(3, with_type("geometry")), "format version 3"),
    "v3 with nanoseconds": (version(3, with_type("timestamp_ns")), "format version 3"),
    "v3 with variant": (version(3, with_type("variant")), "'variant'"),
    "a type of the future": (with_type("quaternion"), "'quaternion'"),
    "a transform of the future": (with_transform(**{"source-id": 1, "transform": "zorder[8]"}), "zorder[8]"),
    "a transform of many columns": (
        version(3, with_transform(**{"source-ids": [1, 2], "transform": "bucket[4]"})),
        "several columns",
    ),
}
AUTOMATIC = {"regelate.auto.enabled": "true", "regelate.auto.min-num-files": "2"}
"""Of a table with fewer files a notice asks no more."""
CHANGING = {**EVERY_TABLE_OPERATION, "UPSERT": {"records": [{"id": 1}], "mode": "upsert", "key": ["id"]}}
for _name in ("DESCRIBE_TABLE", "DROP_TABLE", "DROP_TAG", "ROLLBACK"):  # there is no tag, and nothing to go back to
    del CHANGING[_name]


@pytest.mark.parametrize("kind", FOREIGN)
def test_row_33_a_table_that_is_not_for_us_is_refused_by_its_reason_and_untouched(
    stack: Stack, make: Callable[..., Table], kind: str
) -> None:
    change, word = FOREIGN[kind]
    table = make()
    edit_metadata(table, change)
    edit_metadata(table, lambda m: m["properties"].update(AUTOMATIC))
    with stack.untouched():
        for name, fields in CHANGING.items():
            body = request("WRITE" if name == "UPSERT" else name, "t", **fields)
            error = stack.refused(501, "UNSUPPORTED_TABLE", [word, "Spark"], body)
            assert not error["retryable"]
        expiry = request("EXPIRE_SNAPSHOTS", "t", retention_hours=1, min_snapshots_to_keep=1)
        stack.refused(501, "UNSUPPORTED_TABLE", [word], expiry)
        dry = request("COMPACT", "t", dry_run=True)
        stack.refused(501, "UNSUPPORTED_TABLE", [word], dry)
        for operation in ("REMOVE_ORPHAN_FILES", "REWRITE_MANIFESTS", "MAINTAIN"):
            stack.refused(501, "UNSUPPORTED_TABLE", [word], request(operation, "t"))


def test_row_33_a_type_that_is_no_version_of_ours_has_is_refused_too(stack: Stack, make: Callable[..., Table]) -> None:
    edit_metadata(make(), with_type("unknown"))
    with stack.untouched():
        for operation, fields in (("COMPACT", {"force": True}), ("QUERY", {}), ("WRITE", {"records": [{"id": 1}]})):
            body = request(operation, "t", **fields)
            stack.refused(501, "UNSUPPORTED_TABLE", ["type unknown"], body)


def test_row_33_damaged_metadata_is_not_taken_for_a_table_of_the_future(
    stack: Stack, make: Callable[..., Table]
) -> None:
    table = make()
    for change in (
        lambda m: m.update({"format-version": "two"}),
        lambda m: m.update(schemas="none"),
        lambda m: m["schemas"][0]["fields"][1].update(type=None),
        lambda m: m.pop("location"),
    ):
        whole = local_path(table.metadata_location).read_bytes()
        edit_metadata(table, change)
        with stack.untouched():
            stack.refused(424, "METADATA_CORRUPT", ["metadata", "restore"], request("COMPACT", "t"))
        local_path(table.metadata_location).write_bytes(whole)
    compacted(stack, table)


FILES: dict[str, tuple[dict[str, Any], str]] = {
    "ORC": ({"file_format": FileFormat.ORC}, "ORC data files"),
    "Avro": ({"file_format": FileFormat.AVRO}, "AVRO data files"),
    "encrypted": ({"key_metadata": b"key"}, "encrypted"),
}


@pytest.mark.parametrize("kind", FILES)
def test_row_33_data_files_that_we_cannot_read_are_refused_before_any_work(
    stack: Stack, make: Callable[..., Table], kind: str
) -> None:
    table = make()
    changes, word = FILES[kind]
    foreign = changed_file(live_data_files(table)[0], file_path=f"{table.location()}/data/foreign", **changes)
    add_data_files(table, [foreign])
    records = [{"id": number} for number in range(4)]
    writes: list[dict[str, Any]] = [{"mode": "upsert", "key": ["id"]}, {"mode": "overwrite_partitions"}]
    others = [request(operation, "t") for operation in ("COMPACT", "TABLE_HEALTH", "QUERY")]
    with stack.untouched():
        for body in (*others, *(request("WRITE", "t", records=records, **mode) for mode in writes)):
            stack.refused(501, "UNSUPPORTED_TABLE", [word, foreign.file_path, "Spark"], body)
    assert_nothing_left_behind(table)
    assert foreign.file_path in live_data_paths(table.refresh())


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"file_format": FileFormat.PUFFIN}, "deletion vectors"), ({"key_metadata": b"key"}, "encrypted delete file")],
)
def test_row_33_deletes_that_we_cannot_read_are_refused_and_never_taken_for_none(
    stack: Stack, make: Callable[..., Table], changes: dict[str, Any], word: str
) -> None:
    table = make()
    delete = add_described_deletes(table, live_data_paths(table)[0], **changes)
    with stack.untouched():
        for operation in ("COMPACT", "TABLE_HEALTH", "QUERY"):
            stack.refused(501, "UNSUPPORTED_TABLE", [word, delete], request(operation, "t"))
    assert live_delete_paths(table.refresh()) == [delete]


def test_row_64_properties_and_fields_that_nobody_knows_change_nothing(
    stack: Stack, make: Callable[..., Table]
) -> None:
    properties = {"write.of.the.future": "1", "a b": "", "other-engine.owner": "x"}
    table = make(properties=properties)

    def future(metadata: dict[str, Any]) -> None:
        metadata["of-the-future"] = {"a": [1]}
        metadata["schemas"][0]["of-the-future"] = 1
        metadata["snapshots"][0]["of-the-future"] = 1

    edit_metadata(table, future)
    compacted(stack, table.refresh())
    assert table.properties == properties


def test_row_64_a_v1_table_is_compacted_written_and_stays_v1(stack: Stack, make: Callable[..., Table]) -> None:
    table = make(format_version=1)
    compacted(stack, table)
    stack.ok("WRITE", "t", records=[{"id": 99, "v": "new"}])
    stack.ok("WRITE", "t", records=[{"id": 99, "v": "newer"}, {"id": 0, "v": None}], mode="upsert", key=["id"])
    assert table.refresh().format_version == 1
    assert rows(table) == [
        (0, None),
        *((n, "a") for n in (1, 2, 3)),
        *((n, "b") for n in range(10, 14)),
        (99, "newer"),
    ]


def test_row_64_files_without_optional_statistics_are_compacted(stack: Stack, make: Callable[..., Table]) -> None:
    table = make()
    nothing = dict.fromkeys(
        ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    )
    bare = []
    for number, file in enumerate(live_data_files(table)):
        copy = file.file_path.replace(".parquet", f"-{number}.parquet")
        local_path(copy).write_bytes(local_path(file.file_path).read_bytes())
        bare.append(changed_file(file, file_path=copy, split_offsets=None, sort_order_id=None, **nothing))
    add_data_files(table, bare)
    assert compacted(stack, table)["stats"]["rows"] == 16


def test_row_64_gzipped_metadata_is_read(stack: Stack, make: Callable[..., Table]) -> None:
    table = make()
    path = local_path(table.metadata_location)
    zipped = path.with_name(path.name.replace(".metadata.json", ".gz.metadata.json"))
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    catalog = stack.built.catalog()
    catalog.drop_table("default.t")
    compacted(stack, catalog.register_table("default.t", zipped.as_uri()))


def test_row_64_files_without_field_ids_are_read_by_the_tables_name_mapping(stack: Stack, tmp_path: Path) -> None:
    mapping = {"schema.name-mapping.default": create_mapping_from_schema(SCHEMA).model_dump_json()}
    table = make_table(stack.built.catalog(), "default.t", SCHEMA, properties=mapping)
    paths = [tmp_path / f"plain-{number}.parquet" for number in range(3)]
    for number, path in enumerate(paths):
        pq.write_table(pa.table({"v": ["a", None], "id": [number, number + 10]}), path)
    table.add_files([path.as_uri() for path in paths])
    with table.update_schema() as update:
        update.rename_column("v", "w")
    compacted(stack, table)
    assert all(path.exists() for path in paths)


def test_row_64_a_spec_with_void_partitions_of_v1_is_read(stack: Stack, make: Callable[..., Table]) -> None:
    table = make(BY_V, format_version=1)
    with table.update_spec() as update:
        update.remove_field("v")
    append(table, [(20, "c"), (21, "d")])
    append(table, [(22, "c"), (23, "d")])
    compacted(stack, table)
    assert {repr(f.partition) for f in live_data_files(table)} >= {repr(Record(None))}
