"""Scenarios of apache/iceberg's TestRowDelta: deletes by row, and rewrites beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table

from tests.adapters.scenarios.scene import BY_P, SCHEMA, batch, head_entries, ids, of, paths, refused, snapshots, then
from tests.support.deletes_writer import add_deletion_vector, add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import append, live_data_paths, live_delete_paths, live_entries, stored_files
from tests.support.lake import Lake, sequence_numbers
from tests.support.meanwhile import fresh, orphans, remove_files, upgrade_to_v3
from tests.support.table_model import model_rows

DATA, DELETES = ManifestContent.DATA, ManifestContent.DELETES
ADDED, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.DELETED


def data_manifests(table: Table) -> list[str]:
    head = table.refresh().current_snapshot()
    assert head is not None
    return [m.manifest_path for m in head.manifests(table.io) if m.content == DATA]


def test_validate_data_files_exist_rewrite(lake: Lake, table: Table) -> None:
    """TestRowDelta.testValidateDataFilesExistRewrite: a row delta that comes after us must be able to see that its
    data file was rewritten. Iceberg looks for DELETED entries in manifests of `replace` snapshots since its base
    (MergingSnapshotProducer.validateDataFilesExist); in the other order we drop the group."""
    victim = of("x", table)[0]
    lake.compact(table, expire_snapshots=False)
    assert snapshots(table)[-1] == "replace"
    assert victim in paths(head_entries(table, DELETED, DATA))


def test_concurrent_non_conflicting_row_delta_and_rewrite_files_with_sequence_number(lake: Lake, table: Table) -> None:
    """TestRowDelta.testConcurrentNonConflictingRowDeltaAndRewriteFilesWithSequenceNumber: both land."""
    expected: list[str] = []

    def delete(other: Table) -> None:
        add_equality_deletes(other, ["id"], [(11,), (23,)], partition={"p": "x"})

    answer = lake.compact(table, between=then(table, delete, expected=expected))
    assert answer["status"] == "COMPLETED"
    assert model_rows(table) == expected
    assert not {11, 23} & set(ids(table))
    assert (len(of("x", table)), len(live_delete_paths(table))) == (1, 1)


def test_row_delta_and_rewrite_files_merge_manifests_with_sequence_number(lake: Lake) -> None:
    """TestRowDelta.testRowDeltaAndRewriteFilesMergeManifestsWithSequenceNumber: merged manifests keep the numbers."""
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "1"}
    table = lake.table(SCHEMA, *(batch(10 * i) for i in range(3)), spec=BY_P, properties=merging)
    base, inputs = table.metadata.last_sequence_number, sequence_numbers(table)
    expected: list[str] = []

    def delete(other: Table) -> None:
        add_equality_deletes(other, ["id"], [(11,)], partition={"p": "x"})

    lake.compact(table, between=then(table, delete, expected=expected))
    assert len(data_manifests(table)) == 1
    added, deleted = head_entries(table, ADDED, DATA), head_entries(table, DELETED, DATA)
    assert [e.sequence_number for e in added] == [base]
    assert [e.file_sequence_number for e in added] == [table.metadata.last_sequence_number]
    assert {e.data_file.file_path: e.sequence_number for e in deleted} == inputs
    assert model_rows(table) == expected


@pytest.mark.parametrize("exact_bounds", [True, False])
def test_concurrent_conflicting_row_delta_and_rewrite_files_with_sequence_number(
    lake: Lake, table: Table, exact_bounds: bool
) -> None:
    """TestRowDelta.testConcurrentConflictingRowDeltaAndRewriteFilesWithSequenceNumber: Iceberg refuses the rewrite; we
    drop the one group."""
    victim, expected = of("x", table)[0], list[str]()

    def delete(other: Table) -> None:
        add_position_deletes(other, {victim: [2]}, exact_bounds=exact_bounds)

    answer = lake.compact(table, between=then(table, delete, expected=expected))
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_NEW_DELETE")
    assert model_rows(table) == expected
    assert (len(of("x", table)), len(of("y", table))) == (3, 1)
    assert orphans(table) == set()


def merged_delete(table: Table, rows: list[int], victim: str, old: str, *, appended: bool = False) -> None:
    """What Spark's DELETE or MERGE does where delete files are of one data file: a new one replaces the old one."""
    add_position_deletes(table, {victim: rows})
    remove_files(table, deletes=[old])
    if appended:
        append(fresh(table), batch(500))


def test_concurrent_deletes_rewrite_same_remove_rows(lake: Lake, table: Table) -> None:
    """TestRowDelta.testConcurrentDeletesRewriteSameRemoveRows: a DELETE replaced a delete file that we applied."""
    victim, expected = of("x", table)[0], list[str]()
    old = add_position_deletes(table, {victim: [0]})
    act = then(table, lambda other: merged_delete(other, [0, 1], victim, old), expected=expected)
    answer = lake.compact(table, between=act)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_DELETE_REMOVED")
    assert model_rows(table) == expected
    assert len(expected) == 28


def test_concurrent_manifest_rewrite_with_remove_rows_removal(lake: Lake, table: Table) -> None:
    """TestRowDelta.testConcurrentManifestRewriteWithRemoveRowsRemoval: every manifest is another one, no file is."""
    victim = of("x", table)[0]
    delete = add_position_deletes(table, {victim: [0]})
    expected = model_rows(table)
    before: set[str] = set()

    def rewrite_manifests(other: Table) -> None:
        before.update(data_manifests(other))
        with other.transaction() as transaction:
            transaction.set_properties(
                {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "1"}
            )
        append(other, batch(500))
        assert not before & set(data_manifests(other))

    answer = lake.compact(table, between=then(table, rewrite_manifests))
    assert answer["status"] == "COMPLETED"
    assert delete not in live_delete_paths(table.refresh())
    assert model_rows(table) == sorted([*expected, *(repr(row) for row in batch(500))])


def test_concurrent_merge_rewrite_same_remove_rows(lake: Lake, table: Table) -> None:
    """TestRowDelta.testConcurrentMergeRewriteSameRemoveRows: a MERGE replaced the delete file and added rows."""
    victim, expected = of("x", table)[0], list[str]()
    old = add_position_deletes(table, {victim: [0]})
    act = then(table, lambda other: merged_delete(other, [0, 3], victim, old, appended=True), expected=expected)
    answer = lake.compact(table, between=act)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_DELETE_REMOVED")
    assert model_rows(table) == expected
    assert len(expected) == 33


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_concurrent_dvs_for_same_data_file(lake: Lake, table: Table, when: str) -> None:
    """TestRowDelta.testConcurrentDVsForSameDataFile: deletion vectors are refused, not taken for no deletes."""
    victim = of("x", table)[0]
    if when == "before":
        add_deletion_vector(table, victim)
    between = then(table, lambda other: add_deletion_vector(other, victim)) if when == "meanwhile" else None
    error = refused(lake, table, between=between)
    assert (error.code, error.status) == ("UNSUPPORTED_TABLE", 501)
    assert "deletion vectors" in str(error)
    assert (len(of("x", table)), len(of("y", table))) == (3, 3)
    assert orphans(table) == set()


def test_manifest_merging_after_upgrade_to_v3(lake: Lake, table: Table) -> None:
    """TestRowDelta.testManifestMergingAfterUpgradeToV3: upgraded while we rewrite; nothing of v2 is committed to it."""
    add_position_deletes(table, {of("x", table)[0]: [0]})
    expected, before = model_rows(table), stored_files(table)
    error = refused(lake, table, between=lambda: upgrade_to_v3(lake, table))
    assert (error.code, error.status) == ("UNSUPPORTED_TABLE", 501)
    after = stored_files(table)
    assert {Path(path).name.endswith("-v3.metadata.json") for path in after - before} == {True}
    assert fresh(table).metadata.format_version == 3
    assert model_rows(fresh(table)) == expected


def test_fast_append_does_not_remove_stale_delete_files(lake: Lake, table: Table) -> None:
    """TestRowDelta.testFastAppendDoesNotRemoveStaleDeleteFiles: a WRITE carries a stale delete file, a COMPACT of
    anything takes it out."""
    victim = of("x", table)[0]
    stale = add_position_deletes(table, {victim: [0]})
    remove_files(table, data=[victim])
    lake.write(table, [{"id": 500, "p": "y"}])
    assert live_delete_paths(table.refresh()) == [stale]
    expected = model_rows(table)
    lake.compact(table, partition_filter={"p": "y"})
    assert live_delete_paths(table.refresh()) == []
    assert model_rows(table) == expected
    assert len(live_data_paths(table)) == len(live_entries(table)) == 3
