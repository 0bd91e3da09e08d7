"""Manifest rewrite, dangling deletes and MAINTAIN on real tables."""

from __future__ import annotations

import itertools
import math
import os
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntry
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from regelate.core.answers import answer_fields
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.requests import MaintainRequest
from regelate.errors import NotFound, RegelateError
from tests.adapters.test_expiry import NextMonth, ids, in_store, reachable
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import (
    append,
    arrow_rows,
    duckdb_rows,
    live_data_paths,
    live_delete_paths,
    live_entries,
    local_path,
    manifest_paths,
    row_texts,
    rows,
    stored_files,
)
from tests.support.java_manifests import data_file_fields, header_of
from tests.support.lake import Answer, Lake, add_file, address, in_table_order, recount
from tests.support.table_model import model_rows

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
UNMERGED = {"commit.manifest-merge.enabled": "false"}


def rewrite(lake: Lake, table: Table, *, dry_run: bool = False) -> Answer:
    return answer_fields(lake.service.upkeep.rewrite_manifests(address(table), dry_run=dry_run))


def dangling(lake: Lake, table: Table, *, dry_run: bool = False) -> Answer:
    return answer_fields(lake.service.upkeep.remove_dangling_deletes(address(table), dry_run=dry_run))


def maintain(lake: Lake, table: Table, *, steps: list[str] | None = None, dry_run: bool = False, **more: Any) -> Answer:
    return answer_fields(
        lake.service.upkeep.maintain(address(table), MaintainRequest(steps=steps, dry_run=dry_run, **more))
    )


def identity(entry: ManifestEntry) -> tuple[object, ...]:
    """All that a rewrite of manifests must leave as it is."""
    return (
        entry.data_file.file_path,
        entry.snapshot_id,
        entry.sequence_number,
        entry.file_sequence_number,
        entry.data_file.record_count,
        entry.data_file.spec_id,
        repr(entry.data_file.partition),
        entry.data_file.lower_bounds,
        entry.data_file.upper_bounds,
    )


def identities(table: Table, content: ManifestContent) -> list[tuple[object, ...]]:
    return sorted((identity(e) for e in live_entries(table.refresh(), content)), key=repr)


def delete_manifests(table: Table) -> list[str]:
    head = table.current_snapshot()
    assert head is not None
    return [m.manifest_path for m in head.manifests(table.io) if m.content == ManifestContent.DELETES]


def equality_ids_type(manifest: str) -> str:
    (found,) = (
        f for f in data_file_fields(header_of(local_path(manifest))["avro.schema"]) if f["name"] == "equality_ids"
    )
    return str(found["type"][1]["items"])


# --- manifests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("spec", [UNPARTITIONED_PARTITION_SPEC, BY_P])
def test_many_small_manifests_become_one_and_every_entry_stays_what_it_was(
    lake: Lake, version: int, spec: PartitionSpec
) -> None:
    batches = [[(10 * i + j, "abc"[j % 3]) for j in range(4)] for i in range(8)]
    table = lake.table(SCHEMA, *batches, spec=spec, properties=UNMERGED, format_version=version)
    before, expected = identities(table, ManifestContent.DATA), rows(table)
    summary = recount(table)
    answer = rewrite(lake, table)
    assert (answer["manifests_before"], answer["manifests_after"], answer["commits"]) == (8, 1, 1)
    assert identities(table, ManifestContent.DATA) == before
    assert rows(table.refresh()) == expected
    assert duckdb_rows(table) == expected
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation.value == "replace"
    told = head.summary.additional_properties
    assert {name: int(told[name]) for name in summary} == summary
    assert (told["manifests-created"], told["manifests-replaced"], told["manifests-kept"]) == ("1", "8", "0")
    assert told["entries-processed"] == str(len(before))


def test_a_second_rewrite_does_nothing(lake: Lake) -> None:
    table = lake.table(SCHEMA, *([(i, "x")] for i in range(6)), properties=UNMERGED)
    assert rewrite(lake, table)["commits"] == 1
    after, stored = ids(table), stored_files(table)
    answer = rewrite(lake, table)
    assert (answer["commits"], answer["manifests_replaced"], answer["snapshot_id"]) == (0, 0, None)
    assert (ids(table), stored_files(table)) == (after, stored)


def test_a_rewrite_to_a_target_clusters_by_partition_and_reaches_a_fixed_point(lake: Lake) -> None:
    properties = {**UNMERGED, "commit.manifest.target-size-bytes": "9000"}
    names = [f"p{i:02}" for i in range(12)]
    table = lake.table(SCHEMA, *([(i, name) for name in names] for i in range(9)), spec=BY_P, properties=properties)
    expected = rows(table)
    answer = rewrite(lake, table)
    assert answer["manifests_replaced"] == 9
    assert rewrite(lake, table)["commits"] == 0
    head = table.refresh().current_snapshot()
    assert head is not None
    found = [{e.data_file.partition[0] for e in m.fetch_manifest_entry(table.io)} for m in head.manifests(table.io)]
    assert len(found) > 1
    assert all(max(a) <= min(b) for a, b in itertools.pairwise(found))
    assert rows(table) == expected


def test_null_and_nan_partitions_do_not_keep_a_rewrite_from_its_fixed_point(lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", DoubleType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
    properties = {**UNMERGED, "commit.manifest.target-size-bytes": "15000"}
    table = lake.table(schema, spec=spec, properties=properties)
    for number in range(32):
        value = (None, math.nan, -1.5, 2.5)[number % 4]
        add_file(table, [(number, value)], Record(value))
    assert rewrite(lake, table)["commits"] >= 1
    assert rewrite(lake, table)["commits"] == 0
    assert len(rows(table.refresh())) == 32


def test_delete_manifests_are_rewritten_apart_from_data_manifests(lake: Lake) -> None:
    table = lake.table(SCHEMA, [(i, "x") for i in range(9)], properties=UNMERGED)
    (path,) = live_data_paths(table)
    add_equality_deletes(table, ["id"], [(8,)])
    for i in range(4):
        add_position_deletes(table, {path: [i]})
    before, expected = identities(table, ManifestContent.DELETES), model_rows(table)
    answer = rewrite(lake, table)
    assert (answer["manifests_before"], answer["manifests_after"]) == (6, 2)
    assert identities(table, ManifestContent.DELETES) == before
    assert model_rows(table.refresh()) == expected
    lake.compact(table, force=True)
    assert model_rows(table.refresh()) == expected


def test_a_dry_run_of_a_rewrite_changes_nothing(lake: Lake) -> None:
    table = lake.table(SCHEMA, *([(i, "x")] for i in range(6)), properties=UNMERGED)
    before, stored = ids(table), stored_files(table)
    answer = rewrite(lake, table, dry_run=True)
    assert (answer["manifests_replaced"], answer["manifests_after"], answer["commits"]) == (6, 1, 0)
    assert (ids(table), stored_files(table)) == (before, stored)


def test_what_others_commit_before_the_rewrite_lands_is_in_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table(SCHEMA, *([(i, "x")] for i in range(6)), properties=UNMERGED)
    path, *_ = in_table_order(table)
    other = lake.other_client().load_table(table.name())
    commit, acts = (
        lake.catalog.commit_table,
        [
            lambda: append(other.refresh(), [(99, "late")]),
            lambda: add_position_deletes(other, {path: [0]}),
            lambda: other.refresh().delete("id == 3"),
        ],
    )

    def meanwhile(*arguments: Any) -> Any:
        if acts:
            acts.pop(0)()
        return commit(*arguments)

    monkeypatch.setattr(lake.catalog, "commit_table", meanwhile)
    lake.built.again(clock=NextMonth())
    answer = rewrite(lake, table)
    assert answer["commits"] == 1
    assert [row[0] for row in rows(table.refresh())] == [1, 2, 4, 5, 99]
    head = table.current_snapshot()
    assert head is not None
    data = [m for m in head.manifests(table.io) if m.content == ManifestContent.DATA]
    assert len(data) == 1
    assert in_store(table) == reachable(table)


def test_a_delete_manifest_that_java_cannot_read_is_named_and_written_anew_though_nothing_else_is_to_do(
    lake: Lake,
) -> None:
    table = lake.table(SCHEMA, [(i, "x") for i in range(9)])
    add_equality_deletes(table, ["id"], [(8,)], long_ids=True)
    before, expected = identities(table, ManifestContent.DELETES), model_rows(table)
    (hurt,) = delete_manifests(table)
    told = lake.service.health.table_health(address(table), explain=False)
    assert told.unreadable_manifests == (hurt,)
    assert told.recommendation.startswith("REWRITE_MANIFESTS: Spark, Trino and Flink fail on 1 delete manifest")
    assert rewrite(lake, table, dry_run=True)["manifests_replaced"] == 1
    assert rewrite(lake, table)["manifests_created"] == 1
    (cured,) = delete_manifests(table.refresh())
    assert equality_ids_type(hurt) == "long"
    assert equality_ids_type(cured) == "int"
    assert identities(table, ManifestContent.DELETES) == before
    assert model_rows(table) == expected
    assert rewrite(lake, table)["commits"] == 0
    told = lake.service.health.table_health(address(table), explain=False)
    assert told.unreadable_manifests == ()
    assert told.recommendation.startswith("Nothing to do")


def test_whether_java_can_read_a_delete_manifest_is_known_without_another_request(lake: Lake) -> None:
    table = lake.table(SCHEMA, [(i, "x") for i in range(9)])
    for number in range(3):
        add_equality_deletes(table, ["id"], [(number,)], long_ids=number == 1)
    with lake.built.open(address(table)) as session:
        opened: list[str] = []
        new_input = session.table.io.new_input

        def counted(location: str) -> Any:
            opened.append(location)
            return new_input(location)

        session.table.io.new_input = counted  # type: ignore[method-assign]
        assert len(session.reader.read(CompactionPolicy()).unreadable_manifests) == 1
        assert len(opened) == len(set(opened)) == 5
        assert [m.unreadable for m in session.committer.manifests()].count(True) == 1
        assert len(opened) == 5


def test_an_empty_table_and_one_without_snapshots_have_no_manifests_to_rewrite(lake: Lake) -> None:
    table = lake.table(SCHEMA)
    assert rewrite(lake, table)["manifests_before"] == 0
    append(table, [(1, "x")])
    table.refresh().delete("id == 1")
    assert rewrite(lake, table)["commits"] in (0, 1)
    assert rewrite(lake, table)["commits"] == 0
    assert rows(table.refresh()) == []


# --- dangling deletes: TestRemoveDanglingDeleteAction -----------------------------------------------------------------


def test_partitioned_deletes_with_lesser_seq_no(lake: Lake) -> None:
    """Position and equality deletes that are older than every file of their partition; another partition keeps its."""
    table = lake.table(SCHEMA, [(1, "a"), (2, "a"), (3, "b"), (4, "b")], spec=BY_P)
    first, second = sorted(live_data_paths(table))
    add_position_deletes(table, {first: [0]}, exact_bounds=False)
    add_equality_deletes(table, ["id"], [(2,)], partition={"p": "a"})
    kept = add_position_deletes(table, {second: [0]})
    table.overwrite(arrow_rows(table, [(5, "a"), (6, "a")]), overwrite_filter="p == 'a'")
    expected = model_rows(table.refresh())
    assert len(live_delete_paths(table)) == 3
    answer = dangling(lake, table)
    assert answer["delete_files_removed"] == 2
    assert live_delete_paths(table.refresh()) == [kept]
    assert model_rows(table) == expected == row_texts([(4, "b"), (5, "a"), (6, "a")])
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation.value == "replace"
    assert head.summary.additional_properties["total-delete-files"] == "1"


def test_partitioned_deletes_with_eq_seq_no(lake: Lake) -> None:
    """A position delete applies to a file of its own sequence number, an equality delete does not."""
    table = lake.table(SCHEMA, [(1, "a"), (2, "a")], spec=BY_P)
    position = add_position_deletes(table, {live_data_paths(table)[0]: [0]})
    equality = add_equality_deletes(table, ["id"], [(1,)], partition={"p": "a"})
    answer = dangling(lake, table)
    assert answer["delete_files_removed"] == 0
    assert set(live_delete_paths(table.refresh())) == {position, equality}


def test_unpartitioned_table(lake: Lake) -> None:
    table = lake.table(SCHEMA, [(1, "a"), (2, "a")])
    add_position_deletes(table, {live_data_paths(table)[0]: [0]}, exact_bounds=False)
    add_equality_deletes(table, ["id"], [(2,)])
    table.overwrite(arrow_rows(table, [(2, "new"), (3, "new")]))
    expected = model_rows(table.refresh())
    assert dangling(lake, table)["delete_files_removed"] == 2
    assert live_delete_paths(table.refresh()) == []
    assert model_rows(table) == expected == row_texts([(2, "new"), (3, "new")])


def test_a_global_equality_delete_that_still_reaches_an_older_file_stays(lake: Lake) -> None:
    table = lake.table(SCHEMA, [(1, "a"), (2, "b")])
    with table.update_spec() as update:
        update.add_identity("p")
    kept = add_equality_deletes(table.refresh(), ["id"], [(2,)], spec_id=0)
    append(table.refresh(), [(2, "b")])
    assert dangling(lake, table)["delete_files_removed"] == 0
    assert live_delete_paths(table.refresh()) == [kept]
    assert model_rows(table) == row_texts([(1, "a"), (2, "b")])


def test_a_dry_run_only_counts_dangling_deletes_and_a_second_run_finds_none(lake: Lake) -> None:
    table = lake.table(SCHEMA, [(1, "a")])
    add_equality_deletes(table, ["id"], [(1,)])
    table.overwrite(arrow_rows(table, [(1, "a")]))
    before = ids(table)
    assert dangling(lake, table, dry_run=True)["delete_files_removed"] == 1
    assert ids(table) == before
    assert dangling(lake, table)["delete_files_removed"] == 1
    assert dangling(lake, table) == {"dry_run": False, "delete_files_removed": 0, "snapshot_id": None}
    assert model_rows(table.refresh()) == row_texts([(1, "a")])


def test_a_delete_that_finds_a_file_between_decision_and_commit_stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is committed now has an old sequence number but a rewrite; a new delete is not in the decision."""
    table = lake.table(SCHEMA, [(1, "a"), (2, "a")])
    add_equality_deletes(table, ["id"], [(1,)])
    table.overwrite(arrow_rows(table, [(1, "a"), (2, "a")]))
    other = lake.other_client().load_table(table.name())
    commit, done = lake.catalog.commit_table, []

    def meanwhile(*arguments: Any) -> Any:
        if not done:
            done.append(add_equality_deletes(other, ["id"], [(2,)]))
        return commit(*arguments)

    monkeypatch.setattr(lake.catalog, "commit_table", meanwhile)
    lake.built.again(clock=NextMonth())
    assert dangling(lake, table)["delete_files_removed"] == 1
    assert live_delete_paths(table.refresh()) == done
    assert model_rows(table) == row_texts([(1, "a")])


# --- MAINTAIN ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def neglected(lake: Lake) -> Table:
    """A month of neglect: small files, a dangling delete, many manifests, old snapshots, an orphan."""
    table = lake.table(SCHEMA, [(0, "x")], properties=UNMERGED)
    add_equality_deletes(table, ["id"], [(0,)])
    table.overwrite(arrow_rows(table, [(0, "x")]))
    for i in range(1, 6):
        append(table.refresh(), [(i, "x")])
    orphan = local_path(table.location()) / "data" / "orphan.parquet"
    orphan.write_bytes(b"nobody")
    for path in local_path(table.location()).rglob("*"):
        os.utime(path, (0, 0))
    lake.built.again(clock=NextMonth())
    return table


def test_maintain_does_every_step_in_the_safe_order_and_changes_no_row(lake: Lake, neglected: Table) -> None:
    expected = model_rows(neglected)
    answer = maintain(lake, neglected, grace_hours=0)
    assert [s["step"] for s in answer["steps"]] == [
        *("compact", "dangling_deletes", "manifests", "expire", "orphans", "reclaim")
    ]
    status = {s["step"]: s["status"] for s in answer["steps"]}
    assert (answer["status"], answer["warnings"]) == ("COMPLETED", [])
    assert status["compact"] == status["expire"] == status["orphans"] == "DONE"
    assert model_rows(neglected.refresh()) == expected
    assert (len(live_data_paths(neglected)), live_delete_paths(neglected)) == (1, [])
    assert len(manifest_paths(neglected)) <= 2
    assert len(ids(neglected)) == 1
    assert in_store(neglected) == reachable(neglected)
    assert answer["bytes_freed"] > 0


def test_maintain_with_a_grace_can_be_undone(lake: Lake, neglected: Table) -> None:
    before = {i: rows(neglected, i) for i in ids(neglected) if i != ids(neglected)[1]}
    answer = maintain(lake, neglected)
    (expired,) = (s["result"] for s in answer["steps"] if s["step"] == "expire")
    assert expired["bytes_quarantined"] > 0
    lake.undo(neglected, expired["undo_id"])
    assert {i: rows(neglected.refresh(), i) for i in before} == before


def test_a_second_maintain_finds_nothing_to_do(lake: Lake, neglected: Table) -> None:
    maintain(lake, neglected, grace_hours=0)
    maintain(lake, neglected, grace_hours=0)
    before = ids(neglected)
    answer = maintain(lake, neglected, grace_hours=0)
    assert {s["status"] for s in answer["steps"]} == {"NOTHING_TO_DO"}
    assert ids(neglected) == before


def test_only_the_steps_asked_for_are_run_in_the_safe_order(lake: Lake, neglected: Table) -> None:
    before = stored_files(neglected)
    answer = maintain(lake, neglected, steps=["manifests", "dangling_deletes"])
    assert [s["step"] for s in answer["steps"]] == ["dangling_deletes", "manifests"]
    assert {s["status"] for s in answer["steps"]} == {"DONE"}
    assert before < stored_files(neglected)
    assert len(live_data_paths(neglected.refresh())) == 6


def test_a_dry_run_of_all_changes_nothing(lake: Lake, neglected: Table) -> None:
    before, stored = ids(neglected), stored_files(neglected)
    answer = maintain(lake, neglected, dry_run=True)
    assert answer["status"] == "COMPLETED"
    assert {s["step"]: s["status"] for s in answer["steps"]}["compact"] == "DONE"
    assert (ids(neglected), stored_files(neglected)) == (before, stored)


def test_a_step_that_fails_does_not_hide_the_others(lake: Lake, neglected: Table) -> None:
    with neglected.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    answer = maintain(lake, neglected)
    found = {s["step"]: (s["status"], s["error"] and s["error"]["code"]) for s in answer["steps"]}
    assert answer["status"] == "PARTIAL"
    assert found["compact"] == ("DONE", None)
    assert found["expire"] == found["orphans"] == found["reclaim"] == ("FAILED", "GC_DISABLED")
    assert len(answer["warnings"]) == 3


def test_a_table_that_is_not_there_is_the_answer_of_all_steps(lake: Lake) -> None:
    with pytest.raises(NotFound):
        maintain(lake, lake_table(lake))
    with pytest.raises(RegelateError, match="INVALID_RETENTION"):
        maintain(lake, lake.table(SCHEMA, ident="db.there"), older_than_hours=1)


def lake_table(lake: Lake) -> Table:
    made = lake.table(SCHEMA, ident="db.gone")
    lake.catalog.drop_table("db.gone")
    return made
