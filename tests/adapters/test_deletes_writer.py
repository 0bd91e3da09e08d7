"""The test-only writer of deletes makes what the specification says, and both readers apply it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import POSITIONAL_DELETE_SCHEMA, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.support.deletes_writer import (
    add_equality_deletes,
    add_position_deletes,
    flip_byte,
    remove_file,
    truncate_file,
)
from tests.support.iceberg_tables import (
    append,
    duckdb_rows,
    live_data_files,
    live_data_paths,
    live_delete_files,
    live_delete_paths,
    local_path,
    make_catalog,
    make_table,
    rows,
)

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))

PATH = 2147483546


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Ids 0 to 9 in one file."""
    made = make_table(make_catalog(tmp_path), "ns.plain", SCHEMA)
    append(made, [(i, "a") for i in range(10)])
    return made


@pytest.fixture
def partitioned(tmp_path: Path) -> Table:
    """Ids 1 and 2 in partition x and again in partition y."""
    made = make_table(make_catalog(tmp_path), "ns.parts", SCHEMA, BY_PART)
    append(made, [(1, "x"), (2, "x"), (1, "y"), (2, "y")])
    return made


def ids(found: list[tuple[Any, ...]]) -> list[int]:
    return sorted(row[0] for row in found)


@pytest.mark.parametrize("exact_bounds", [True, False])
def test_position_deletes_are_applied_by_pyiceberg_and_duckdb(table: Table, exact_bounds: bool) -> None:
    append(table, [(20, "b"), (30, None)])
    add_position_deletes(table, {first_path(table): [1, 0, 4]}, exact_bounds=exact_bounds)
    assert ids(rows(table)) == [2, 3, 5, 6, 7, 8, 9, 20, 30]
    assert duckdb_rows(table) == rows(table)
    (delete,) = live_delete_files(table)
    exact = first_path(table).encode() if exact_bounds else None
    assert (delete.lower_bounds.get(PATH), delete.upper_bounds.get(PATH)) == (exact, exact)


def test_position_deletes_land_in_the_partition_of_their_data_file(partitioned: Table) -> None:
    in_y = next(f for f in live_data_files(partitioned) if f.partition[0] == "y")
    add_position_deletes(partitioned, {in_y.file_path: [0]})
    assert [f.partition for f in live_delete_files(partitioned)] == [in_y.partition]
    assert rows(partitioned) == duckdb_rows(partitioned) == [(1, "x"), (2, "x"), (2, "y")]


def test_duplicate_far_and_homeless_positions_are_written_and_harmless_for_duckdb(table: Table) -> None:
    add_position_deletes(table, {first_path(table): [3, 3, 500], "file:///nowhere/gone.parquet": [0]})
    add_position_deletes(table, {first_path(table): [3]})
    assert [f.record_count for f in live_delete_files(table)] == [1, 4]
    assert ids(duckdb_rows(table)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_equality_deletes_compare_all_keys_and_hide_older_rows_only(table: Table) -> None:
    append(table, [(20, "b"), (30, None), (7, "b")])
    add_equality_deletes(table, ["part", "id"], [("a", 7), (None, 30), ("b", 1)])
    append(table, [(30, None)])
    assert ids(duckdb_rows(table)) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 30]
    with pytest.raises(ValueError, match="does not yet support equality deletes"):
        rows(table)


def test_equality_deletes_follow_a_renamed_column(table: Table) -> None:
    add_equality_deletes(table, ["id"], [(7,)])
    with table.update_schema() as change:
        change.rename_column("id", "key")
    add_equality_deletes(table, ["key"], [{"key": 8}])
    assert ids(duckdb_rows(table)) == [0, 1, 2, 3, 4, 5, 6, 9]


def test_equality_deletes_without_a_partition_need_an_unpartitioned_spec(partitioned: Table) -> None:
    with pytest.raises(ValueError, match=r"no spec of .* is unpartitioned"):
        add_equality_deletes(partitioned, ["id"], [(1,)])
    add_equality_deletes(partitioned, ["id"], [(1,)], partition={"part": "x"})
    assert [f.partition[0] for f in live_delete_files(partitioned)] == ["x"]


def test_the_totals_field_ids_and_sequence_numbers_are_those_of_the_specification(table: Table) -> None:
    path = add_position_deletes(table, {first_path(table): [1, 2]})
    add_equality_deletes(table, ["part", "id"], [("a", 7), (None, 30), ("b", 1)])
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    totals = {name: head.summary[f"total-{name}"] for name in ("delete-files", "position-deletes", "equality-deletes")}
    assert totals == {"delete-files": "2", "position-deletes": "2", "equality-deletes": "3"}
    assert (head.summary["total-records"], head.summary["total-data-files"]) == ("10", "1")
    manifests = [(m.content, m.sequence_number) for m in head.manifests(table.io)]
    assert manifests == [(ManifestContent.DELETES, 3), (ManifestContent.DELETES, 2), (ManifestContent.DATA, 1)]
    assert [f.equality_ids for f in live_delete_files(table)] == [[2, 1], None]
    field_ids = [field.metadata[b"PARQUET:field_id"] for field in pq.read_schema(local_path(path))]
    assert field_ids == [b"2147483546", b"2147483545"]


def test_pyicebergs_own_schema_of_position_deletes_is_not_the_specifications() -> None:
    assert POSITIONAL_DELETE_SCHEMA.find_field("pos").field_type == IntegerType()


def test_a_delete_on_a_moved_branch_is_a_conflict(table: Table) -> None:
    class Overtaken(SqlCatalog):
        """Somebody else's commit always comes first."""

        def commit_table(self, *arguments: Any, **named: Any) -> CommitTableResponse:
            append(table, [(20, "b")])
            return super().commit_table(*arguments, **named)

    slow = Overtaken("default", **table.catalog.properties).load_table(table.name())
    with pytest.raises(CommitFailedException):
        add_equality_deletes(slow, ["id"], [(1,)])
    assert live_delete_paths(table.refresh()) == []


def test_damaged_files_are_damaged(table: Table) -> None:
    add_position_deletes(table, {first_path(table): [1]})
    (data,), (delete,) = live_data_paths(table), live_delete_paths(table)
    before = local_path(data).read_bytes()
    flip_byte(data, -1)
    assert local_path(data).read_bytes() == before[:-1] + bytes([before[-1] ^ 0xFF])
    truncate_file(data, 10)
    assert local_path(data).read_bytes() == before[:10]
    remove_file(delete)
    with pytest.raises(FileNotFoundError):
        rows(table)


def first_path(table: Table) -> str:
    """The data file with the ids 0 to 9."""
    return max(live_data_files(table), key=lambda file: file.record_count).file_path
