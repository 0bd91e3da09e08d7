"""Rows 24 to 26 and 28 to 30: data and delete files that are missing, damaged, or not what the metadata says.

The group that needs such a file stays as it is and the others land; nothing is taken for what it is not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.deletes_writer import (
    add_deletion_vector,
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
    live_data_paths,
    live_delete_paths,
    local_path,
    make_table,
    rows,
    stored_files,
)
from tests.support.lake import make_file
from tests.support.table_model import model_rows
from tests.system.faults.stack import Stack, assert_nothing_left_behind, edit_metadata, request

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
COMPACT = request("COMPACT", "t", force=True)
Damage = Callable[[str], object]


def batch(start: int, p: str) -> list[tuple[int, str]]:
    return [(start + i, p) for i in range(5)]


@pytest.fixture
def table(stack: Stack) -> Table:
    """Three small files in each of the partitions x and y."""
    made = make_table(stack.built.catalog(), "default.t", SCHEMA, BY_P)
    for i in range(3):
        append(made, batch(10 * i, "x") + batch(100 + 10 * i, "y"))
    return made


def of(p: str, table: Table) -> list[str]:
    return [path for path in live_data_paths(table.refresh()) if f"/p={p}/" in path]


def spoils_its_group_alone(stack: Stack, table: Table, code: str, path: str) -> dict[str, Any]:
    """COMPACT lands y, leaves x as it is and says why; with x alone it fails, and nothing is touched. Returns that
    error."""
    victims, deletes = of("x", table), live_delete_paths(table)
    answer = stack.accepted("COMPACT", {**COMPACT, "expire_snapshots": False})
    assert (answer["status"], answer["reason"], answer["stats"]["dropped_groups"]) == ("PARTIAL", code, 1)
    (warning,) = answer["warnings"]
    assert "group " in warning
    assert path.removeprefix("file://") in warning
    assert of("x", table) == victims
    assert len(of("y", table)) == 1
    assert [d for d in deletes if d not in live_delete_paths(table)] == []
    assert_nothing_left_behind(table)
    with stack.untouched():
        error = stack.refused(424, code, [path.removeprefix("file://")], COMPACT)
    assert not error["retryable"]
    return error


def overwrite(path: str, at: int, content: bytes) -> None:
    old = local_path(path).read_bytes()
    at %= len(old)
    local_path(path).write_bytes(old[:at] + content + old[at + len(content) :])


def footer_start(path: str) -> int:
    content = local_path(path).read_bytes()
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def test_row_24_a_missing_data_file_skips_its_group(stack: Stack, table: Table) -> None:
    victim = of("x", table)[1]
    remove_file(victim)
    assert spoils_its_group_alone(stack, table, "DATA_FILE_MISSING", victim)["details"]["path"] == victim


def test_row_24_a_missing_data_file_is_never_dropped_from_the_metadata_whatever_is_asked(
    stack: Stack, table: Table
) -> None:
    victims = of("x", table)
    remove_file(victims[0])
    for more in ({"options": {"rewrite-all": "true"}}, {"verify": "strict"}, {"strategy": "sort", "sort_order": SORT}):
        stack.post({**COMPACT, **more})
        assert of("x", table) == victims
    stack.refused(424, "DATA_FILE_MISSING", [], request("QUERY", "t"))


SORT = [{"column": "id"}]
CORRUPT: dict[str, Damage] = {
    "cut in the footer": lambda path: truncate_file(path, local_path(path).stat().st_size - 20),
    "cut in the data": lambda path: truncate_file(path, 50),
    "0 bytes": lambda path: truncate_file(path, 0),
    "wrong magic": lambda path: flip_byte(path, -1),
    "garbled footer": lambda path: overwrite(path, footer_start(path), b"\xff" * 60),
    "a garbled page": lambda path: overwrite(path, 4, b"\xff" * 100),
}


@pytest.mark.parametrize("damage", CORRUPT)
def test_row_25_a_corrupt_data_file_spoils_its_group_and_is_kept(stack: Stack, table: Table, damage: str) -> None:
    victim = of("x", table)[1]
    CORRUPT[damage](victim)
    size = local_path(victim).stat().st_size
    assert spoils_its_group_alone(stack, table, "DATA_FILE_CORRUPT", victim)["details"]["path"] == victim
    assert local_path(victim).stat().st_size == size


def longer(path: str) -> None:
    """Another file of the same rows and another size, as a restore from the wrong place leaves it."""
    found = pq.read_table(local_path(path), partitioning=None)
    pq.write_table(found, local_path(path), compression="none", use_dictionary=False)


def test_row_25_a_file_of_another_size_than_the_manifest_says_is_corrupt(stack: Stack, table: Table) -> None:
    victim = of("x", table)[1]
    before = local_path(victim).stat().st_size
    longer(victim)
    after = local_path(victim).stat().st_size
    assert before != after
    details = spoils_its_group_alone(stack, table, "DATA_FILE_CORRUPT", victim)["details"]
    assert details == {"path": victim, "size_bytes": after, "expected": before}


def plain(stack: Stack, *, checksums: bool) -> tuple[Table, str, int]:
    """A table whose first file has plain, uncompressed pages; its path, and the place of the value 3 in it."""
    table = make_table(stack.built.catalog(), "default.t", SCHEMA)
    file = make_file(table, batch(0, "x"))
    path = local_path(file.file_path)
    found = pq.read_table(path, partitioning=None)
    pq.write_table(found, path, compression="none", use_dictionary=False, write_page_checksum=checksums)
    add_data_files(table, [changed_file(file, file_size_in_bytes=path.stat().st_size)])
    append(table, batch(10, "x"))
    place = path.read_bytes().find(struct.pack("<qq", 3, 4))
    assert place > 0
    return table, file.file_path, place


def test_row_25_a_bit_flipped_in_a_page_that_has_a_checksum_is_corrupt(stack: Stack) -> None:
    table, path, place = plain(stack, checksums=True)
    flip_bit(path, place, 0)
    with stack.untouched():
        error = stack.refused(424, "DATA_FILE_CORRUPT", ["checksum"], COMPACT)
    assert error["details"]["path"] == path
    flip_bit(path, place, 0)
    assert stack.accepted("COMPACT", COMPACT)["status"] == "COMPLETED"
    assert [row[0] for row in rows(table.refresh())] == [*range(5), *range(10, 15)]


def flip_bit(path: str, at: int, bit: int) -> None:
    content = bytearray(local_path(path).read_bytes())
    content[at] ^= 1 << bit
    local_path(path).write_bytes(content)


def test_row_26_damage_without_a_checksum_is_suspect_where_it_leaves_the_bounds(stack: Stack) -> None:
    _, path, place = plain(stack, checksums=False)
    flip_bit(path, place + 5, 0)
    with stack.untouched():
        error = stack.refused(424, "DATA_FILE_SUSPECT", ["outside the bounds"], COMPACT)
    assert path in error["details"]["paths"]


@pytest.mark.parametrize("off", [-1, 1, 1000])
def test_row_26_a_file_with_another_number_of_rows_than_its_manifest_says_is_suspect(
    stack: Stack, table: Table, off: int
) -> None:
    honest = make_file(table, batch(50, "x"), partition=of_record("x"))
    add_data_files(table, [changed_file(honest, record_count=honest.record_count + off)])
    details = spoils_its_group_alone(stack, table, "DATA_FILE_SUSPECT", honest.file_path)["details"]
    assert details == {"path": honest.file_path, "rows": 5, "expected": 5 + off}


def of_record(p: str) -> Any:
    from pyiceberg.typedef import Record

    return Record(p)


@pytest.mark.parametrize("nulls", [1, 5])
def test_row_26_null_counts_that_do_not_add_up_are_suspect(stack: Stack, nulls: int) -> None:
    table = make_table(stack.built.catalog(), "default.t", SCHEMA)
    honest = make_file(table, batch(0, "x"))
    add_data_files(table, [changed_file(honest, null_value_counts={1: 0, 2: nulls})])
    append(table, batch(10, "x"))
    with stack.untouched():
        stack.refused(424, "DATA_FILE_SUSPECT", ["column 2", "nulls"], COMPACT)


# --- delete files -----------------------------------------------------------------------------------------------------

BROKEN_DELETES: dict[str, Damage] = {"missing": remove_file, "another size": longer, **CORRUPT}


def delete_file(table: Table, kind: str) -> str:
    if kind == "position":
        return add_position_deletes(table, {of("x", table)[0]: [1]})
    return add_equality_deletes(table, ["id"], [(11,)], partition={"p": "x"})


@pytest.mark.parametrize("damage", BROKEN_DELETES)
@pytest.mark.parametrize("kind", ["position", "equality"])
def test_row_28_a_broken_delete_file_is_never_taken_for_no_deletes(
    stack: Stack, table: Table, kind: str, damage: str
) -> None:
    path = delete_file(table, kind)
    whole = local_path(path).read_bytes()
    expected = model_rows(table)
    BROKEN_DELETES[damage](path)
    error = spoils_its_group_alone(stack, table, "DELETE_FILE_CORRUPT", path)
    assert error["details"]["path"] == path
    if damage != "another size":
        stack.refused(424, "DELETE_FILE_CORRUPT", [], request("QUERY", "t"))
    local_path(path).write_bytes(whole)
    assert stack.accepted("COMPACT", COMPACT)["status"] == "COMPLETED"
    assert model_rows(table) == expected


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_row_28_an_upsert_beside_a_broken_delete_file_is_refused(stack: Stack, table: Table, kind: str) -> None:
    """It would carry rows over, deleted ones too."""
    path = delete_file(table, kind)
    remove_file(path)
    before = stored_files(table)
    body = request("WRITE", "t", records=[{"id": key, "p": "x"} for key in (0, 10, 20)], mode="upsert", key=["id", "p"])
    stack.refused(424, "DELETE_FILE_CORRUPT", [], body)
    assert stored_files(table) == before


def test_row_29_position_deletes_are_applied_as_a_set(stack: Stack, table: Table) -> None:
    """Beyond the end, twice, unsorted, for a file that is not there, and for one in two delete files."""
    one, two, three = of("x", table)
    add_position_deletes(table, {two: [4, 0, 4, 0, 99, 10**12], one: [3, 1]}, partition={"p": "x"})
    add_position_deletes(table, {one: [1, 2]}, partition={"p": "x"})
    add_position_deletes(table, {one.replace(".parquet", "-gone.parquet"): [0, 1]}, partition={"p": "x"})
    add_position_deletes(table, {three: []}, partition={"p": "x"})
    expected = model_rows(table)
    assert len(expected) == 30 - 5
    answer = stack.accepted("COMPACT", {**COMPACT, "verify": "strict"})
    assert (answer["status"], answer["stats"]["rows"]) == ("COMPLETED", 25)
    assert model_rows(table) == expected
    assert live_delete_paths(table.refresh()) == []
    found = [(row["id"], row["p"]) for row in stack.ok("QUERY", "t")["rows"]]
    assert sorted(map(repr, found)) == expected


# --- deletion vectors -------------------------------------------------------------------------------------------------

VECTORS = {"one": 1, "two for one file": 2}


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a position delete"])
@pytest.mark.parametrize("count", VECTORS)
@pytest.mark.parametrize("version", [2, 3])
def test_row_30_deletion_vectors_are_refused_before_any_work_and_never_taken_for_none(
    stack: Stack, table: Table, version: int, count: str, beside: bool
) -> None:
    """Whether they are sound, doubled or damaged is not ours to find out: nothing reads them here."""
    victim = of("x", table)[0]
    if beside:
        add_position_deletes(table, {victim: [2]})
    paths = [add_deletion_vector(table, victim) for _ in range(VECTORS[count])]
    if version == 3:
        edit_metadata(table, lambda m: m.update({"format-version": 3, "next-row-id": 30}))
    upsert = request("WRITE", "t", records=[{"id": 0, "p": "x"}], mode="upsert", key=["id"])
    with stack.untouched():
        for body in (COMPACT, request("QUERY", "t"), request("TABLE_HEALTH", "t"), upsert):
            error = stack.refused(501, "UNSUPPORTED_TABLE", ["deletion vectors", "Spark"], body)
            assert not error["retryable"]
    listed = live_delete_paths(stack.table("default.t"))
    assert [path for path in paths if path not in listed] == []
