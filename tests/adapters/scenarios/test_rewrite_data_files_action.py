"""Scenarios of apache/iceberg's TestRewriteDataFilesAction: which files a COMPACT takes, and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from regelate.errors import InvalidRequest
from tests.adapters.scenarios.scene import BY_P, SCHEMA, batch, head_entries, ids, of, paths, refused, snapshots, then
from tests.support.deletes_writer import add_deletion_vector, add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import append, live_data_files, live_data_paths, live_delete_paths, rows, stored_files
from tests.support.lake import Lake, sequence_numbers, small
from tests.support.meanwhile import fresh, upgrade_to_v3
from tests.support.table_model import model_rows
from tests.system.faults.stack import Stack, request

ADDED, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.DELETED
WIDE = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))


def wide(start: int, count: int) -> list[tuple[int, str]]:
    """Rows of about 40 bytes that no encoding makes much smaller."""
    return [
        (start + i, f"{(start + i) * 2654435761 % 2**64:020d}{(start + i) * 40503 % 2**61:020d}") for i in range(count)
    ]


def stats(answer: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(answer["stats"][name] for name in names)


FILES = ("files_compacted", "files_added", "delete_files_removed")


def test_bin_pack_unpartitioned_table(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testBinPackUnpartitionedTable: four files become one."""
    table = lake.table(SCHEMA, *(batch(10 * i) for i in range(4)))
    answer = lake.assert_rows_kept(table, force=False, options={"min-input-files": "2"})
    assert stats(answer, *FILES, "files_after") == (4, 1, 0, 1)


def test_bin_pack_partitioned_table(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testBinPackPartitionedTable: eight files in four partitions become four."""
    table = lake.table(
        SCHEMA, *([*batch(0, "a"), *batch(0, "b"), *batch(0, "c"), *batch(0, "d")] for _ in range(2)), spec=BY_P
    )
    answer = lake.assert_rows_kept(table)
    assert stats(answer, *FILES, "groups") == (8, 4, 0, 4)
    assert all(len(of(p, table)) == 1 for p in "abcd")


def test_bin_pack_after_partition_change(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testBinPackAfterPartitionChange: Iceberg moves the files to the new spec; here files
    keep the spec they have, each spec is packed for itself (moving is Spark's, see docs/reliability.md)."""
    table = lake.table(SCHEMA, batch(0), batch(10))
    with table.update_spec() as update:
        update.add_identity("p")
    for i in range(2):
        append(table, batch(100 + 10 * i, "x"))
    answer = lake.assert_rows_kept(table)
    assert stats(answer, *FILES) == (4, 2, 0)
    assert sorted(f.spec_id for f in live_data_files(table.refresh())) == [0, 1]


def test_bin_pack_with_v2_position_deletes(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testBinPackWithV2PositionDeletes: of healthy files those with two or more delete files
    are rewritten, alone in their group, and their deletes leave."""
    table = lake.table(WIDE, *(wide(1000 * i, 1000) for i in range(3)))
    size = max(f.file_size_in_bytes for f in live_data_files(table))
    first, second, third = live_data_paths(table)
    for path, count in ((first, 2), (second, 1)):
        for row in range(count):
            add_position_deletes(table, {path: [row]})
    expected = model_rows(table)
    answer = lake.compact(table, options=small(size, **{"delete-file-threshold": "2"}))
    assert stats(answer, *FILES) == (1, 1, 2)
    assert {second, third} < set(live_data_paths(table.refresh()))
    assert len(live_delete_paths(table)) == 1
    assert model_rows(table) == expected


@pytest.mark.parametrize("version", [2, 3])
def test_bin_pack_with_dvs(lake: Lake, table: Table, version: int) -> None:
    """TestRewriteDataFilesAction.testBinPackWithDVs: refused before any work, whatever the version says."""
    add_deletion_vector(table, of("x", table)[0])
    if version == 3:
        upgrade_to_v3(lake, table)
    before, head = stored_files(table), fresh(table).metadata_location
    error = refused(lake, table, force=True)
    assert (error.code, error.status) == ("UNSUPPORTED_TABLE", 501)
    assert (stored_files(table), fresh(table).metadata_location) == (before, head)


def test_remove_dangling_dvs_from_delete_manifest(lake: Lake, table: Table) -> None:
    """TestRewriteDataFilesAction.removeDanglingDVsFromDeleteManifest: not from a table with deletion vectors, even
    where the vector's data file is no candidate."""
    with table.update_spec() as update:
        update.add_identity("id")
    append(table, batch(500, "z", 1))
    vector = add_deletion_vector(table, next(p for p in live_data_paths(table.refresh()) if "/p=z/" in p))
    error = refused(lake, table, partition_filter={"p": "x"})
    assert (error.code, error.status) == ("UNSUPPORTED_TABLE", 501)
    assert live_delete_paths(table.refresh()) == [vector]


def evolved(lake: Lake) -> Table:
    """Two unpartitioned files, then two of a spec by p."""
    table = lake.table(SCHEMA, batch(0), batch(10))
    with table.update_spec() as update:
        update.add_identity("p")
    for i in range(2):
        append(table, batch(100 + 10 * i, "x"))
    return table


def test_remove_dangled_equality_deletes_partition_evolution(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testRemoveDangledEqualityDeletesPartitionEvolution: a global delete and one of the
    new spec leave in the commit that takes the last files they apply to, not before."""
    table = evolved(lake)
    everywhere = add_equality_deletes(table, ["id"], [(11,), (101,)])
    local = add_equality_deletes(table, ["id"], [(111,)], partition={"p": "x"})
    expected = model_rows(table)
    assert len(expected) == 17
    lake.compact(table, force=True, partition_filter={"p": "x"})
    assert live_delete_paths(table.refresh()) == [everywhere]
    assert local not in live_delete_paths(table)
    assert model_rows(table) == expected
    lake.compact(table, force=True)
    assert live_delete_paths(table.refresh()) == []
    assert model_rows(table) == expected


def test_remove_dangled_position_deletes_partition_evolution(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testRemoveDangledPositionDeletesPartitionEvolution: positions of both specs."""
    table = evolved(lake)
    for path in live_data_paths(table):
        add_position_deletes(table, {path: [0]})
    expected = model_rows(table)
    assert (len(expected), len(live_delete_paths(table))) == (16, 4)
    answer = lake.compact(table, force=True)
    assert stats(answer, *FILES) == (4, 2, 4)
    assert live_delete_paths(table.refresh()) == []
    assert model_rows(table) == expected


def test_bin_pack_with_delete_all_data(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testBinPackWithDeleteAllData: one file, all rows deleted: no output, no delete."""
    table = lake.table(SCHEMA, batch(0))
    add_position_deletes(table, {live_data_paths(table)[0]: range(5)})
    answer = lake.compact(table, options={"delete-file-threshold": "1"})
    assert stats(answer, *FILES, "rows") == (1, 0, 1, 0)
    assert (live_data_paths(table.refresh()), live_delete_paths(table), rows(table)) == ([], [], [])


def test_bin_pack_with_starting_sequence_number(lake: Lake, table: Table) -> None:
    """TestRewriteDataFilesAction.testBinPackWithStartingSequenceNumber: always so; the table's number moves on."""
    base = table.refresh().metadata.last_sequence_number
    lake.assert_rows_kept(table)
    assert set(sequence_numbers(table).values()) == {base}
    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.sequence_number == base + 1


def test_bin_pack_with_starting_sequence_number_v1_compatibility(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testBinPackWithStartingSequenceNumberV1Compatibility: v1 has the number 0, before and
    after, and outputs of v1 are older than every delete after an upgrade."""
    table = lake.table(SCHEMA, *(batch(10 * i) for i in range(4)), format_version=1)
    lake.assert_rows_kept(table)
    assert set(sequence_numbers(table).values()) == {0}
    append(table, batch(100))
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    add_equality_deletes(table, ["id"], [(11,), (101,)])
    assert len(model_rows(table)) == 23
    lake.assert_rows_kept(table)
    assert not {11, 101} & set(ids(table))


@pytest.mark.parametrize("kind", ["positions", "keys"])
def test_data_files_rewritten_with_high_delete_ratio(lake: Lake, kind: str) -> None:
    """TestRewriteDataFilesAction.testDataFilesRewrittenWithHighDeleteRatio: 3 of 10 rows of a healthy file."""
    table = lake.table(SCHEMA, batch(0, count=10))
    size = live_data_files(table)[0].file_size_in_bytes
    if kind == "positions":
        add_position_deletes(table, {live_data_paths(table)[0]: [0, 1, 2]})
        wanted = ("COMPLETED", 1)
    else:  # Iceberg counts rows of position deletes of one file only: how many rows keys delete, no manifest says
        add_equality_deletes(table, ["id"], [(0,), (1,), (2,)])
        wanted = ("NOTHING_TO_DO", 0)
    answer = lake.compact(table, options=small(size))
    assert (answer["status"], answer["stats"]["files_compacted"] if answer["compacted"] else 0) == wanted
    assert ids(table) == list(range(3, 10))


def test_data_files_not_rewritten_with_low_delete_ratio(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testDataFilesNotRewrittenWithLowDeleteRatio: 2 of 10."""
    table = lake.table(SCHEMA, batch(0, count=10))
    add_position_deletes(table, {live_data_paths(table)[0]: [0, 1]})
    answer = lake.compact(table, options=small(live_data_files(table)[0].file_size_in_bytes))
    assert (answer["status"], answer["compacted"]) == ("NOTHING_TO_DO", False)
    assert ids(table) == list(range(2, 10))


def test_bin_pack_split_large_file(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testBinPackSplitLargeFile: one file of twice the target becomes two."""
    table = lake.table(WIDE, wide(0, 8000))
    size = live_data_files(table)[0].file_size_in_bytes
    target = size // 2
    answer = lake.assert_rows_kept(table, force=False, options=small(target, **{"max-file-size-bytes": str(size - 1)}))
    assert stats(answer, "files_compacted", "files_added") == (1, 2)


def test_bin_pack_combine_mixed_files(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testBinPackCombineMixedFiles: one large and two small ones; all rows, right sizes."""
    table = lake.table(WIDE, wide(0, 9000), wide(10_000, 1500), wide(20_000, 1500))
    sizes = sorted(f.file_size_in_bytes for f in live_data_files(table))
    target = sum(sizes) // 3
    answer = lake.assert_rows_kept(table, force=False, options=small(target, **{"min-input-files": "2"}))
    assert stats(answer, "files_compacted", "files_added") == (3, 3)
    assert all(f.file_size_in_bytes < 1.8 * target for f in live_data_files(table.refresh()))


def test_max_file_group_input_files_option(tmp_path: Any) -> None:
    """TestRewriteDataFilesAction.testMaxFileGroupInputFilesOption: Iceberg's `max-file-group-input-files` is refused by
    its name; what bounds a run is `max_files`, and the rest is deferred, not forgotten."""
    stack = Stack(tmp_path)
    stack.create("t", {"id": "long", "p": "string"}, partition_spec=[{"source": "p", "transform": "identity"}])
    for number in range(2):
        stack.ok("WRITE", "t", records=[{"id": number, "p": p} for p in "abc"])
    option = "max-file-group-input-files"
    with stack.untouched():
        stack.refused(400, "INVALID_OPTION", [option], request("COMPACT", "t", options={option: "2"}))
    first = stack.ok("COMPACT", "t", force=True, max_files=4)
    assert (first["status"], first["stats"]["groups"], first["stats"]["groups_deferred"]) == ("PARTIAL", 2, 1)
    second = stack.ok("COMPACT", "t", force=True, max_files=4)
    assert (second["status"], second["stats"]["groups"]) == ("COMPLETED", 1)
    assert len(stack.rows("t")) == 6


def test_rewrite_data_files_preserves_lineage(lake: Lake, table: Table) -> None:
    """TestRewriteDataFilesAction.testRewriteDataFilesPreservesLineage: row ids are v3's; refused rather than lost."""
    upgrade_to_v3(lake, table, **{"next-row-id": 30})
    error = refused(lake, table, force=True)
    assert (error.code, error.status) == ("UNSUPPORTED_TABLE", 501)
    assert "lineage" in str(error)
    assert fresh(table).metadata.next_row_id == 30


def test_upgrade_preserves_data_sequence(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testUpgradePreservesDataSequence: a table of v1 that becomes v2 while we rewrite: the
    outputs keep 0, so a delete that came with the upgrade applies to them as to their inputs."""
    table = lake.table(SCHEMA, *(batch(10 * i) for i in range(3)), format_version=1)
    expected: list[str] = []

    def upgrade(other: Table) -> None:
        with other.transaction() as transaction:
            transaction.upgrade_table_version(2)
        add_equality_deletes(other, ["id"], [(11,)])
        append(other, [(11, "again")])

    answer = lake.compact(table, between=then(table, upgrade, expected=expected))
    assert answer["status"] == "COMPLETED"
    assert model_rows(table) == expected
    added = head_entries(table, ADDED, ManifestContent.DATA)
    assert [e.sequence_number for e in added] == [0]
    assert len(paths(head_entries(table, DELETED, ManifestContent.DATA))) == 3


def test_rewrite_large_table_has_residuals(lake: Lake) -> None:
    """TestRewriteDataFilesAction.testRewriteLargeTableHasResiduals: a `where` selects files, never rows.

    Law 12 (files are replaced whole, never the rows of somebody).
    """
    table = lake.table(SCHEMA, *([(100 * b + i, f"{i % 4}") for i in range(100)] for b in range(3)), [(999, "9")])
    answer = lake.assert_rows_kept(table, where="p = '0'")
    assert stats(answer, "files_compacted", "files_added", "rows") == (3, 1, 300)
    assert len(live_data_paths(table.refresh())) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"target-file-size-bytes": "-1"},
        {"target-file-size-bytes": "0"},
        {"min-input-files": "0"},
        {"min-file-size-bytes": "100", "target-file-size-bytes": "50"},
        {"max-file-size-bytes": "40", "target-file-size-bytes": "50"},
        {"delete-file-threshold": "-1"},
        {"delete-ratio-threshold": "1.5"},
        {"rewrite-job-order": "foo"},
        {"foobarity": "-5"},
        {"max-concurrent-file-group-rewrites": "0"},
        {"partial-progress.enabled": "true"},
        {"use-starting-sequence-number": "false"},
    ],
    ids=lambda options: ",".join(f"{k}={v}" for k, v in options.items()),
)
def test_invalid_options(lake: Lake, table: Table, options: dict[str, str]) -> None:
    """TestRewriteDataFilesAction.testInvalidOptions: refused by name before anything is read, as are Iceberg's options
    that mean nothing here."""
    before = stored_files(table)
    with pytest.raises(InvalidRequest) as caught:
        lake.compact(table, options=options)
    assert (caught.value.code, caught.value.status) == ("INVALID_OPTION", 400)
    assert any(name in str(caught.value) for name in options)
    assert (stored_files(table), snapshots(table)) == (before, ["append"] * 3)
