"""Files that are missing, damaged or not what the metadata says: COMPACT names them, keeps them, and lands the rest."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from regelate.adapters.iceberg.files.view import GroupViewWriter
from regelate.core.running.group_view import GroupView
from regelate.core.table.table import FileScanTask
from regelate.errors import InvariantViolated, RegelateError
from tests.support.deletes_writer import (
    add_equality_deletes,
    add_position_deletes,
    flip_byte,
    remove_file,
    truncate_file,
)
from tests.support.iceberg_tables import (
    add_data_files,
    append,
    changed_file,
    live_data_files,
    live_data_paths,
    local_path,
    make_table,
    manifest_paths,
    stored_files,
)
from tests.support.lake import Lake, in_table_order, make_file
from tests.support.table_model import model_rows

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()), NestedField(3, "v", DoubleType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


def batch(start: int, p: str) -> list[tuple[int, str, float]]:
    return [(start + i, p, i / 7) for i in range(5)]


@pytest.fixture
def table(lake: Lake) -> Table:
    """Three small files in each of the partitions x and y."""
    return lake.table(SCHEMA, *(batch(10 * i, "x") + batch(100 + 10 * i, "y") for i in range(3)), spec=BY_P)


def of(p: str, table: Table) -> list[str]:
    return [path for path in live_data_paths(table.refresh()) if f"/p={p}/" in path]


def fault(lake: Lake, table: Table, **request: Any) -> RegelateError:
    """Run a COMPACT that must fail, and check that it left the table and the store as they were."""
    before = table.refresh().metadata_location, stored_files(table)
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, **{"force": True, **request})
    assert (table.catalog.load_table(table.name()).metadata_location, stored_files(table)) == before
    return caught.value


# --- data files -------------------------------------------------------------------------------------------------------

DAMAGES: dict[str, tuple[Callable[[str], None], str]] = {
    "missing": (remove_file, "DATA_FILE_MISSING"),
    "empty": (lambda path: truncate_file(path, 0), "DATA_FILE_CORRUPT"),
    "cut in the footer": (lambda path: truncate_file(path, local_path(path).stat().st_size - 20), "DATA_FILE_CORRUPT"),
    "cut in the data": (lambda path: truncate_file(path, 50), "DATA_FILE_CORRUPT"),
    "wrong magic": (lambda path: flip_byte(path, -1), "DATA_FILE_CORRUPT"),
    "wrong footer length": (lambda path: flip_byte(path, -7), "DATA_FILE_CORRUPT"),
    "garbled footer": (lambda path: _overwrite(path, -200, b"\xff" * 150), "DATA_FILE_CORRUPT"),
    "garbled pages": (lambda path: _overwrite(path, 4, b"\xff" * 100), "DATA_FILE_CORRUPT"),
    "no parquet at all": (lambda path: _write(path, b"id,p\n1,x\n" * 50), "DATA_FILE_CORRUPT"),
}


def _write(path: str, content: bytes) -> None:
    local_path(path).write_bytes(content)


def _overwrite(path: str, at: int, content: bytes) -> None:
    old = local_path(path).read_bytes()
    at %= len(old)
    _write(path, old[:at] + content + old[at + len(content) :])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_data_file_spoils_its_group_and_the_others_land(lake: Lake, table: Table, damage: str) -> None:
    """Rows 24 and 25."""
    break_it, code = DAMAGES[damage]
    victims = of("x", table)
    break_it(victims[1])
    answer = lake.compact(table)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", code)
    assert victims[1].removeprefix("file://") in answer["warnings"][0]
    assert of("x", table) == victims
    assert len(of("y", table)) == 1
    error = fault(lake, table)
    assert (error.code, error.status) == (code, 424)
    assert error.details["path"] == victims[1]


def test_no_flipped_byte_ends_the_process_or_is_taken_for_our_own_fault(lake: Lake) -> None:
    """Row 25: whatever byte of a file is damaged, the answer is a fault of that file, or the values are as read."""
    table = lake.table(SCHEMA, [(i, "x", i / 7) for i in range(200)], batch(500, "x"))
    victim = in_table_order(table)[0]
    content = local_path(victim).read_bytes()
    codes = set()
    for offset in range(0, len(content), max(len(content) // 25, 1)):
        flip_byte(victim, offset)
        try:
            lake.compact(table, dry_run=False, plan_id=None, force=True, tools=_never_commits)
        except RegelateError as error:
            codes.add(error.code)
        _write(victim, content)
    assert codes <= {"DATA_FILE_CORRUPT", "DATA_FILE_SUSPECT", "NOT_COMMITTED"}
    assert "DATA_FILE_CORRUPT" in codes


class _NeverCommits:
    """A committer that stops before anything is sent."""

    def __init__(self, committer: Any) -> None:
        self._committer = committer

    def try_commit(self, *arguments: Any) -> Any:
        raise RegelateError("NOT_COMMITTED", "stopped by the test")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)


def _never_commits(tools: Any) -> Any:
    return replace(tools, committer=_NeverCommits(tools.committer))


def test_the_probe_of_a_first_rewrite_does_not_stop_at_a_missing_file(lake: Lake) -> None:
    """The largest group is sampled for its output size; a file missing there must not keep the others from landing."""
    table = lake.table(SCHEMA, spec=BY_P)
    for i in range(3):
        append(table, [(i * 3000 + n, "x", n * 7919 % 9973 / 7) for n in range(3000)] + batch(9 * i, "y"))
    remove_file(sorted(of("x", table), key=lambda p: p)[0])
    remove_file(of("x", table)[0]) if local_path(of("x", table)[0]).exists() else None
    size = max(f.file_size_in_bytes for f in live_data_files(table))
    options = {"target-file-size-bytes": size, "min-file-size-bytes": size - 1, "max-file-size-bytes": size * 2}
    answer = lake.compact(table, options={**options, "rewrite-all": "true"})
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "DATA_FILE_MISSING")
    assert len(of("y", table)) == 1


# --- files that disagree with the metadata (law 7) --------------------------------------------------------------------


def suspect(lake: Lake, **changes: Any) -> tuple[Table, str]:
    """A table whose first file is described wrongly in its manifest."""
    table = make_table(lake.catalog, "db.suspect", SCHEMA)
    honest = make_file(table, batch(0, "x"))
    add_data_files(table, [changed_file(honest, **{n: c(getattr(honest, n)) for n, c in changes.items()})])
    append(table, batch(10, "x"))
    return table, honest.file_path


def test_a_file_with_fewer_rows_than_its_manifest_says_is_suspect(lake: Lake) -> None:
    """Row 26."""
    table, path = suspect(lake, record_count=lambda n: n + 1)
    error = fault(lake, table)
    assert (error.code, error.status, error.details["path"]) == ("DATA_FILE_SUSPECT", 424, path)


@pytest.mark.parametrize("bound", ["lower_bounds", "upper_bounds"])
@pytest.mark.parametrize("field_id", [1, 2, 3])
def test_values_outside_the_bounds_of_the_manifest_are_suspect(lake: Lake, bound: str, field_id: int) -> None:
    inner = {1: struct.pack("<q", 2), 2: b"xb", 3: struct.pack("<d", 0.3)}[field_id]
    other = "upper_bounds" if bound == "lower_bounds" else "lower_bounds"
    table = make_table(lake.catalog, "db.suspect", SCHEMA)
    honest = make_file(table, [(1, "xaa", 0.1), (4, "xyz", 0.5)])
    lies = {bound: {**(getattr(honest, bound) or {}), field_id: inner}, other: getattr(honest, other)}
    add_data_files(table, [changed_file(honest, **lies)])
    add_data_files(table, [changed_file(make_file(table, [(2, "xb", 0.3)]), **lies)])
    assert fault(lake, table).code == "DATA_FILE_SUSPECT"


@pytest.mark.parametrize("nulls", [1, 5])
def test_null_counts_that_do_not_add_up_are_suspect(lake: Lake, nulls: int) -> None:
    table, _ = suspect(lake, null_value_counts=lambda counts: {**counts, 2: nulls})
    assert fault(lake, table).code == "DATA_FILE_SUSPECT"


Lossy = Callable[[Sequence[FileScanTask]], Sequence[FileScanTask]]


def lose_in_views(monkeypatch: pytest.MonkeyPatch, lossy: Lossy) -> None:
    """Let every view that is read lose something, as if its writer were wrong; the independent count is not told."""
    honest = GroupViewWriter.write

    def write(self: GroupViewWriter, tasks: Sequence[FileScanTask], *, with_deletes: bool = True) -> GroupView:
        return honest(self, lossy(tasks) if with_deletes else tasks, with_deletes=with_deletes)

    monkeypatch.setattr(GroupViewWriter, "write", write)


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_a_view_that_lost_a_delete_file_is_refused_before_the_commit_and_leaves_no_output(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "position":
        add_position_deletes(table, {of("x", table)[0]: [1]})
    else:
        add_equality_deletes(table, ["id"], [(11,)], partition={"p": "x"})
    expected, victims = model_rows(table), of("x", table)
    lose_in_views(monkeypatch, lambda tasks: [replace(t, deletes=()) for t in tasks])
    answer = lake.compact(table)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "ROWS_NOT_CONSERVED")
    assert of("x", table) == victims
    assert model_rows(table) == expected
    error = fault(lake, table)
    assert isinstance(error, InvariantViolated)
    assert (error.code, error.status) == ("ROWS_NOT_CONSERVED", 500)


def test_a_view_that_lost_a_data_file_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table(SCHEMA, batch(0, "x"), batch(10, "x"), batch(20, "x"))
    lose_in_views(monkeypatch, lambda tasks: tasks[1:])
    assert fault(lake, table).code == "ROWS_NOT_CONSERVED"


# --- delete files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["position", "equality"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut in the footer", "wrong magic"])
def test_a_damaged_delete_file_is_never_taken_for_no_deletes(lake: Lake, table: Table, kind: str, damage: str) -> None:
    """Row 28."""
    if kind == "position":
        path = add_position_deletes(table, {of("x", table)[0]: [1]})
    else:
        path = add_equality_deletes(table, ["id"], [(11,)], partition={"p": "x"})
    victims = of("x", table)
    DAMAGES[damage][0](path)
    answer = lake.compact(table)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "DELETE_FILE_CORRUPT")
    assert of("x", table) == victims
    error = fault(lake, table)
    assert (error.code, error.status, error.details["path"]) == ("DELETE_FILE_CORRUPT", 424, path)


# --- metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "garbage"])
@pytest.mark.parametrize("which", ["manifest", "manifest list", "metadata"])
def test_damaged_metadata_is_named_and_the_process_survives(lake: Lake, table: Table, which: str, damage: str) -> None:
    """Row 27, trap T4."""
    head = table.refresh().current_snapshot()
    assert head is not None
    path = {
        "manifest": manifest_paths(table)[1],
        "manifest list": head.manifest_list,
        "metadata": table.metadata_location,
    }[which]
    if damage == "missing":
        remove_file(path)
    elif damage == "garbage":
        _write(path, b"Obj\x01 this is no Avro" * 20)
    else:
        truncate_file(path, 0 if damage == "empty" else local_path(path).stat().st_size * 2 // 3)
    stored = stored_files(table)
    with pytest.raises(RegelateError) as caught:
        lake.compact("db.t")
    assert (caught.value.code, caught.value.status) == ("METADATA_CORRUPT", 424)
    assert stored_files(table) == stored


# --- tables we cannot read --------------------------------------------------------------------------------------------


def unreadable(lake: Lake, change: Callable[[DataFile], dict[str, Any]]) -> Table:
    table = make_table(lake.catalog, "db.unreadable", SCHEMA)
    for start in (0, 10):
        file = make_file(table, batch(start, "x"))
        add_data_files(table, [changed_file(file, **change(file))])
    return table


@pytest.mark.parametrize("file_format", [FileFormat.ORC, FileFormat.AVRO])
def test_orc_and_avro_data_are_refused_before_any_work(lake: Lake, file_format: FileFormat) -> None:
    """Row 33, trap T18."""
    error = fault(lake, unreadable(lake, lambda file: {"file_format": file_format}))
    assert (error.code, error.status) == ("UNSUPPORTED_TABLE", 501)
    assert file_format.value in str(error.details["reason"])


def test_encrypted_data_is_refused_before_any_work(lake: Lake) -> None:
    error = fault(lake, unreadable(lake, lambda file: {"key_metadata": b"secret"}))
    assert (error.code, error.status) == ("UNSUPPORTED_TABLE", 501)
    assert "secret" not in str(error)


def test_a_v3_table_is_refused_before_any_work(lake: Lake) -> None:
    """Row 33: PyIceberg 0.12 reads such metadata but cannot write it."""
    two = lake.table(SCHEMA, batch(0, "x"), batch(10, "x"))
    text = json.loads(local_path(two.metadata_location).read_text())
    place = two.metadata_location.replace(".metadata.json", "-v3.metadata.json")
    local_path(place).write_text(json.dumps({**text, "format-version": 3, "next-row-id": 0}))
    table = lake.catalog.register_table("db.three", place)
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, force=True)
    assert (caught.value.code, caught.value.status) == ("UNSUPPORTED_TABLE", 501)


def test_an_unknown_table_is_not_found(lake: Lake) -> None:
    """Row 23."""
    lake.table(SCHEMA)
    for ident, code in (("db.nothing", "TABLE_NOT_FOUND"), ("nowhere.t", "NAMESPACE_NOT_FOUND")):
        with pytest.raises(RegelateError) as caught:
            lake.compact(ident)
        assert (caught.value.code, caught.value.status) == (code, 404)
