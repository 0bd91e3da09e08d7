"""Scenarios of apache/iceberg's TestRewriteFiles: one rewrite as a commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table

from regelate.adapters.iceberg.commit.committer import IcebergCommitter
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.core.planning.plan import FileGroup
from regelate.core.running.commit import SnapshotChange
from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.table import ColumnMetrics, Partition
from regelate.errors import InvariantViolated
from regelate.operations.compacting.compact import CompactionTools
from tests.adapters.scenarios.scene import BY_P, SCHEMA, batch, head_entries, ids, of, paths, refused, snapshots, then
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import (
    NoLedger,
    add_data_files,
    append,
    live_data_files,
    live_data_paths,
    live_delete_paths,
    live_entries,
    local_path,
    stored_files,
)
from tests.support.lake import Lake, sequence_numbers
from tests.support.meanwhile import (
    Line,
    fresh,
    head_summary,
    impatient,
    orphans,
    remove_files,
    unnamed_metadata,
    upgrade_to_v3,
)
from tests.support.table_model import model_rows

ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED
DATA, DELETES = ManifestContent.DATA, ManifestContent.DELETES


def test_empty_table(lake: Lake) -> None:
    """TestRewriteFiles.testEmptyTable: nothing to rewrite, nothing committed; a file it does not have is no input."""
    table = lake.table(SCHEMA)
    answer = lake.compact(table, force=True)
    assert (answer["status"], answer["reason"], answer["compacted"]) == ("NOTHING_TO_DO", "NO_SNAPSHOT", False)
    assert snapshots(table) == []
    with pytest.raises(InvariantViolated) as caught:
        remove_missing(table)
    assert caught.value.code == "INPUT_NOT_LIVE"
    assert snapshots(table) == []


def remove_missing(table: Table) -> None:
    committer = IcebergCommitter(table.catalog, table, ManifestReader(), NoLedger())
    head = committer.head()
    committer.try_commit(
        head,
        SnapshotChange(
            operation="replace", snapshot_id=1, summary={}, removed={"file:///no/such": ""}, removed_entries=1
        ),
    )


def test_add_only() -> None:
    """TestRewriteFiles.testAddOnly: a `replace` that adds files and removes none would add rows: no such change."""
    made = NewDataFile(
        path="file:///warehouse/db/t/data/new.parquet",
        partition=Partition(spec_id=0, values=("x",), path="p=x"),
        record_count=15,
        size_bytes=1,
        metrics=ColumnMetrics(value_counts={}, null_counts={}, lower_bounds={}, upper_bounds={}),
    )
    with pytest.raises(ValueError, match="would add rows"):
        SnapshotChange(operation="replace", snapshot_id=1, summary={}, added=(made,))


class Forgetful:
    """An engine that loses what it was to write."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def achieved_ratio(self, *arguments: Any) -> float:
        return float(self._engine.achieved_ratio(*arguments))

    def rewrite(self, groups: Sequence[FileGroup], *arguments: Any, **options: Any) -> Any:
        results, failed = self._engine.rewrite(groups, *arguments, **options)
        return tuple(replace(r, added=()) for r in results), failed


def test_delete_only(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testDeleteOnly: inputs may leave without an output only if none of their rows is alive."""

    def forgetful(tools: CompactionTools) -> CompactionTools:
        return replace(tools, engine=Forgetful(tools.engine))

    expected = model_rows(table)
    assert refused(lake, table, tools=forgetful).code == "ROWS_NOT_CONSERVED"
    assert model_rows(table) == expected
    for path in of("x", table):
        add_position_deletes(table, {path: range(5)})
    answer = lake.compact(table)
    assert (answer["status"], answer["stats"]["files_added"]) == ("COMPLETED", 1)
    assert of("x", table) == []
    assert ids(table) == [100 + 10 * i + j for i in range(3) for j in range(5)]


def test_delete_with_duplicate_entries_in_manifest(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testDeleteWithDuplicateEntriesInManifest: both entries go, and readers count as before."""
    add_data_files(table, [f for f in live_data_files(table) if f.file_path == of("x", table)[0]])
    expected = model_rows(table)
    assert len(expected) == 35
    lake.compact(table)
    assert model_rows(table) == expected
    assert head_summary(table)["deleted-data-files"] == "7"
    assert (len(of("x", table)), len(of("y", table))) == (1, 1)


def test_add_and_delete(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testAddAndDelete: outputs ADDED, inputs DELETED, the rest as it was."""
    inputs, others = of("x", table), of("y", table)
    lake.compact(table, partition_filter={"p": "x"})
    assert snapshots(table)[-1] == "replace"
    assert paths(head_entries(table, DELETED, DATA)) == inputs
    assert paths(head_entries(table, ADDED, DATA)) == of("x", table)
    assert of("y", table) == others
    assert {e.status for e in live_entries(table) if e.data_file.file_path in others} <= {ADDED, EXISTING}


def test_rewrite_data_and_delete_files(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testRewriteDataAndDeleteFiles: deletes leave with the last file they apply to, no others."""
    mine = [add_position_deletes(table, {path: [0]}) for path in of("x", table)]
    others = add_position_deletes(table, {of("y", table)[0]: [0]})
    expected = model_rows(table)
    lake.compact(table, partition_filter={"p": "x"})
    assert paths(head_entries(table, DELETED, DELETES)) == sorted(mine)
    assert live_delete_paths(table) == [others]
    assert model_rows(table) == expected


def test_rewrite_data_and_assign_old_sequence_number(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testRewriteDataAndAssignOldSequenceNumber: outputs carry the planning snapshot's number."""
    base = table.refresh().metadata.last_sequence_number
    lake.compact(table, between=then(table, lambda other: append(other, batch(500))))
    added = head_entries(table, ADDED, DATA)
    assert {e.sequence_number for e in added} == {base}
    assert {e.file_sequence_number for e in added} == {table.metadata.last_sequence_number}
    assert table.metadata.last_sequence_number == base + 2


def _fails(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, before = model_rows(table), stored_files(table)
    line = Line(lake, monkeypatch, *["refused"] * 5)
    error = refused(lake, table, tools=impatient)
    assert (error.code, error.status, error.retryable, line.calls) == ("COMMIT_CONFLICT", 409, True, 5)
    assert stored_files(table) == before
    assert model_rows(table) == expected


def test_failure(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """TestRewriteFiles.testFailure: refused on every attempt; neither a manifest nor an output is left."""
    _fails(lake, table, monkeypatch)


def test_failure_when_rewrite_both_data_and_delete_files(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TestRewriteFiles.testFailureWhenRewriteBothDataAndDeleteFiles: the delete files are live and stored as before."""
    add_position_deletes(table, {of("x", table)[0]: [1]})
    add_equality_deletes(table, ["id"], [(101,)], partition={"p": "y"})
    deletes = live_delete_paths(table)
    _fails(lake, table, monkeypatch)
    assert live_delete_paths(table.refresh()) == deletes


def _recovers(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model_rows(table)
    Line(lake, monkeypatch, *["refused"] * 3)
    answer = lake.compact(table, tools=impatient)
    assert (answer["status"], answer["stats"]["commit_attempts"]) == ("COMPLETED", 4)
    assert model_rows(table) == expected
    assert (len(of("x", table)), len(of("y", table))) == (1, 1)
    assert (orphans(table), unnamed_metadata(table)) == (set(), set())


def test_recovery(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """TestRewriteFiles.testRecovery: three refusals, then it lands, and the refused attempts left no manifest."""
    _recovers(lake, table, monkeypatch)


def test_recover_when_rewrite_both_data_and_delete_files(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TestRewriteFiles.testRecoverWhenRewriteBothDataAndDeleteFiles: the deletes left once, with the commit."""
    add_position_deletes(table, {of("x", table)[0]: [1]})
    add_equality_deletes(table, ["id"], [(101,)], partition={"p": "y"})
    _recovers(lake, table, monkeypatch)
    assert live_delete_paths(table) == []


def test_replace_equality_deletes_with_position_deletes(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testReplaceEqualityDeletesWithPositionDeletes: by another engine, while we rewrite."""
    equality = add_equality_deletes(table, ["id"], [(11,)], partition={"p": "x"})
    victim = next(p for p in of("x", table) if 11 in ids_of(table, p))
    expected = model_rows(table)

    def convert(other: Table) -> None:
        add_position_deletes(other, {victim: [1]})
        remove_files(other, deletes=[equality])

    answer = lake.compact(table, between=then(table, convert))
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_DELETE_REMOVED")
    assert model_rows(table) == expected
    assert (len(of("x", table)), len(of("y", table))) == (3, 1)
    assert orphans(table) == set()


def ids_of(table: Table, path: str) -> list[int]:
    return list(pq.read_table(local_path(path))["id"].to_pylist())


def test_remove_all_deletes(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testRemoveAllDeletes: a second rewrite of files that left with their deletes is dropped."""
    for path in of("x", table):
        add_position_deletes(table, {path: range(5)})
    expected = model_rows(table)
    rival = Lake(lake.folder)
    answer = lake.compact(table, between=lambda: rival.compact(table, partition_filter={"p": "x"}) and None)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_INPUT_REMOVED")
    assert live_delete_paths(table.refresh()) == []
    assert of("x", table) == []
    assert model_rows(table) == expected


def test_delete_non_existent_file(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testDeleteNonExistentFile: the producer refuses it, and what it wrote is gone."""
    before, expected = stored_files(table), model_rows(table)
    with pytest.raises(InvariantViolated) as caught:
        remove_missing(table)
    assert caught.value.code == "INPUT_NOT_LIVE"
    assert stored_files(table) == before
    assert model_rows(table) == expected


def test_already_deleted_file(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testAlreadyDeletedFile: its rows do not come back, its group is dropped."""
    gone = of("x", table)[0]
    lost = ids_of(table, gone)
    answer = lake.compact(table, between=then(table, lambda other: remove_files(other, data=[gone])))
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_INPUT_REMOVED")
    assert not set(lost) & set(ids(table))
    assert len(ids(table)) == 25
    assert orphans(table) == set()


def test_new_delete_file(lake: Lake, table: Table) -> None:
    """TestRewriteFiles.testNewDeleteFile: positions committed meanwhile drop the group; the next run applies them."""
    expected: list[str] = []
    victim = of("x", table)[1]
    answer = lake.compact(
        table, between=then(table, lambda other: add_position_deletes(other, {victim: [0, 4]}), expected=expected)
    )
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_NEW_DELETE")
    assert model_rows(table) == expected
    assert lake.compact(table)["status"] == "COMPLETED"
    assert model_rows(table) == expected
    assert live_delete_paths(table.refresh()) == []


def test_removing_data_file_also_removes_dv(lake: Lake) -> None:
    """TestRewriteFiles.removingDataFileAlsoRemovesDV: v3 is refused; v2's delete of one file does leave with it."""
    table = lake.table(SCHEMA, *(batch(10 * i) for i in range(3)), spec=BY_P)
    lone = [add_position_deletes(table, {path: [i]}) for i, path in enumerate(live_data_paths(table))]
    lake.compact(table)
    assert paths(head_entries(table, DELETED, DELETES)) == sorted(lone)
    upgrade_to_v3(lake, table)
    before = fresh(table).metadata_location
    error = refused(lake, table, force=True)
    assert (error.code, error.status) == ("UNSUPPORTED_TABLE", 501)
    assert fresh(table).metadata_location == before


def test_sequence_numbers_never_fall_below_the_inputs(lake: Lake, table: Table) -> None:
    """No output may be older than an input: a delete between the two would apply to one and not to the other."""
    oldest = max(sequence_numbers(table).values())
    lake.compact(table)
    assert min(sequence_numbers(table).values()) >= oldest
