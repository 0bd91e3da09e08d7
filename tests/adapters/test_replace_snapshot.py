"""What one COMPACT commits: one `replace` snapshot that touches what it must and nothing else.

Law 2 (one `replace` snapshot, no row changed) and law 6 (a delete file leaves when no live file needs it).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from regelate.errors import Conflict, InvalidRequest
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import (
    add_data_files,
    append,
    live_data_files,
    live_data_paths,
    live_delete_paths,
    live_entries,
    local_path,
    manifest_paths,
    multiply_file,
    rows,
    stored_files,
)
from tests.support.lake import Lake, in_table_order, recount, sequence_numbers, small
from tests.support.table_model import model_rows

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


def batch(start: int, p: str = "x", count: int = 5) -> list[tuple[int, str]]:
    return [(start + i, p) for i in range(count)]


def summary(table: Table) -> Mapping[str, str]:
    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.summary is not None
    return {"operation": head.summary.operation.value, **head.summary.additional_properties}


def test_one_replace_snapshot_with_the_planning_snapshots_sequence_number(lake: Lake) -> None:
    table = lake.table(SCHEMA, batch(0), batch(10), batch(20))
    base = table.current_snapshot()
    assert base is not None
    answer = lake.compact(table)
    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.parent_snapshot_id == base.snapshot_id
    assert len(table.snapshots()) == 4
    assert summary(table)["operation"] == "replace"
    assert head.sequence_number == (base.sequence_number or 0) + 1
    (entry,) = live_entries(table)
    assert (entry.status, entry.sequence_number) == (ManifestEntryStatus.ADDED, base.sequence_number)
    assert entry.snapshot_id == head.snapshot_id
    assert answer["stats"]["commit_attempts"] == 1


def test_the_removed_files_stand_as_deleted_in_the_new_manifests(lake: Lake) -> None:
    """Incremental readers and expiry find what went: DELETED entries, with the numbers that the files had."""
    table = lake.table(SCHEMA, batch(0), batch(10), batch(20))
    before = sequence_numbers(table)
    lake.compact(table)
    head = table.refresh().current_snapshot()
    assert head is not None
    gone = {
        e.data_file.file_path: (e.sequence_number, e.snapshot_id)
        for m in head.manifests(table.io)
        for e in m.fetch_manifest_entry(table.io, discard_deleted=False)
        if e.status == ManifestEntryStatus.DELETED
    }
    assert gone == {path: (number, head.snapshot_id) for path, number in before.items()}


def test_the_summary_is_a_recount_and_names_the_run_and_the_plan(lake: Lake) -> None:
    table = lake.table(SCHEMA, *(batch(10 * i, "xy"[i % 2]) for i in range(6)), spec=BY_P)
    add_position_deletes(table, {in_table_order(table)[0]: [0, 1]})
    before = recount(table)
    plan = lake.compact(table, dry_run=True)["plan"]["plan_id"]
    lake.compact(table, key="event-7")
    found = summary(table)
    after = recount(table)
    assert {name: int(found[name]) for name in after} == after
    assert (found["total-delete-files"], found["total-position-deletes"]) == ("0", "0")
    assert found["deleted-records"] == str(before["total-records"])
    assert found["added-records"] == str(after["total-records"])
    assert (found["deleted-data-files"], found["added-data-files"]) == ("6", "2")
    assert found["changed-partition-count"] == "2"
    assert found["regelate.plan-id"] == plan
    assert found["regelate.run-id"].endswith("event-7")


def test_untouched_manifests_are_carried_over_by_the_same_path(lake: Lake) -> None:
    table = lake.table(
        SCHEMA, *(batch(10 * i, "x") for i in range(3)), *(batch(50 + i, f"y{i}") for i in range(4)), spec=BY_P
    )
    before = manifest_paths(table)
    touched = {
        m.manifest_path
        for m in table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
        if any("/p=x/" in e.data_file.file_path for e in m.fetch_manifest_entry(table.io))
    }
    content = {path: local_path(path).read_bytes() for path in before}
    lake.compact(table)
    after = manifest_paths(table.refresh())
    assert set(before) - set(after) == touched
    assert len(touched) == 3
    assert {path: local_path(path).read_bytes() for path in before} == content


def test_a_manifest_that_holds_inputs_keeps_its_other_entries_as_they_were(lake: Lake) -> None:
    table = lake.table(SCHEMA, [*batch(0, "x"), *batch(5, "y")], batch(10, "x"), batch(20, "x"), spec=BY_P)
    kept = {p: n for p, n in sequence_numbers(table).items() if "/p=y/" in p}
    lake.compact(table)
    assert {p: n for p, n in sequence_numbers(table).items() if "/p=y/" in p} == kept
    entry = next(e for e in live_entries(table) if "/p=y/" in e.data_file.file_path)
    assert entry.status == ManifestEntryStatus.EXISTING


def test_entries_that_are_written_anew_keep_the_numbers_of_their_snapshot(lake: Lake) -> None:
    """An output has two: the data sequence number of its inputs, and the file's own, of the commit that brought it."""

    def numbers() -> dict[str, tuple[int | None, ...]]:
        found = live_entries(table.refresh())
        return {e.data_file.file_path: (e.snapshot_id, e.sequence_number, e.file_sequence_number) for e in found}

    table = lake.table(SCHEMA, batch(0) + batch(50, "y"), batch(10) + batch(60, "y"), spec=BY_P)
    assert lake.compact(table, force=True)["stats"]["files_added"] == 2
    outputs = numbers()
    assert {n[1:] for n in outputs.values()} == {(2, 3)}
    append(table, batch(20))
    lake.compact(table, force=True, partition_filter={"p": "x"})
    (kept,) = set(outputs) & set(numbers())  # of partition y; now an EXISTING entry of another manifest
    assert numbers()[kept] == outputs[kept]
    head = table.current_snapshot()
    assert head is not None
    entries = [e for m in head.manifests(table.io) for e in m.fetch_manifest_entry(table.io, discard_deleted=False)]
    (gone,) = (e for e in entries if e.data_file.file_path in set(outputs) - {kept})
    assert (gone.status, gone.sequence_number, gone.file_sequence_number) == (ManifestEntryStatus.DELETED, 2, 3)
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "2"})
    before = numbers()
    lake.write(table, [{"id": 99, "p": "z"}])
    assert len(manifest_paths(table.refresh())) == 1
    assert {path: n for path, n in numbers().items() if path in before} == before


def test_the_snapshot_names_the_schema_that_is_current(lake: Lake) -> None:
    table = lake.table(SCHEMA, batch(0), batch(10))
    with table.update_schema() as update:
        update.add_column("later", LongType())
    lake.compact(table, force=True)
    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.schema_id == table.metadata.current_schema_id == 1


def test_the_catalog_is_asked_to_check_the_table_its_head_its_schema_and_its_spec(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A REST server checks what it is asked to, and nothing else (law 1: a commit is a compare-and-swap)."""
    table = lake.table(SCHEMA, batch(0), batch(10))
    commit, asked = lake.catalog.commit_table, []

    def listening(of: Table, requirements: Any, updates: Any) -> Any:
        asked.extend(json.loads(r.model_dump_json(by_alias=True)) for r in requirements)
        return commit(of, requirements, updates)

    monkeypatch.setattr(lake.catalog, "commit_table", listening)
    lake.compact(table, force=True, expire_snapshots=False)
    assert asked == [
        {"type": "assert-table-uuid", "uuid": str(table.metadata.table_uuid)},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": table.metadata.current_snapshot_id},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
    ]


def test_a_base_that_expired_under_a_lone_head_is_no_catalog_that_shows_only_heads(lake: Lake) -> None:
    table = lake.table(SCHEMA, batch(0), batch(10))

    def expired() -> None:
        other = lake.other_client().load_table("db.t")
        append(other, batch(20))
        other.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in other.snapshots()[:-1]]).commit()

    assert lake.compact_or_conflict(table, force=True, between=expired) == "BASE_EXPIRED"
    assert len(rows(table.refresh())) == 15


def test_outputs_that_were_not_sorted_name_no_sort_order(lake: Lake) -> None:
    table = lake.table(SCHEMA, batch(0), batch(10))
    lake.compact(table, force=True)
    assert {f.sort_order_id for f in live_data_files(table.refresh())} == {None}


def test_an_append_counts_the_partitions_that_it_touches(lake: Lake) -> None:
    table = lake.table(SCHEMA, spec=BY_P)
    lake.write(table, [{"id": 1, "p": "x"}, {"id": 2, "p": "y"}, {"id": 3, "p": "x"}])
    assert summary(table)["changed-partition-count"] == "2"


def test_branches_and_tags_and_mains_retention_are_unchanged_and_readable(lake: Lake) -> None:
    table = lake.table(SCHEMA, batch(0), batch(10))
    first, second = (s.snapshot_id for s in table.snapshots())
    with table.manage_snapshots() as manage:
        manage.create_tag(first, "start", max_ref_age_ms=10**12)
        manage.create_branch(second, "audit", min_snapshots_to_keep=3, max_snapshot_age_ms=10**11)
    append(table, batch(20))
    set_main_retention(table)
    refs = table.refresh().metadata.refs
    lake.compact(table)
    after = table.refresh().metadata.refs
    assert {n: r for n, r in after.items() if n != "main"} == {n: r for n, r in refs.items() if n != "main"}
    assert after["main"].model_copy(update={"snapshot_id": 0}) == refs["main"].model_copy(update={"snapshot_id": 0})
    assert after["main"].min_snapshots_to_keep == 7
    assert rows(table, first) == batch(0)
    assert rows(table, second) == batch(0) + batch(10)


def set_main_retention(table: Table) -> None:
    table.refresh()
    change = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=table.metadata.current_snapshot_id,
        min_snapshots_to_keep=7,
        max_snapshot_age_ms=10**12,
    )
    table.catalog.commit_table(table, (), (change,))


def test_a_table_of_another_program_is_healed_and_holds_nothing_of_ours_but_the_snapshot_summary(lake: Lake) -> None:
    lake.catalog.create_namespace("theirs.nested")
    table = lake.catalog.create_table(
        "theirs.nested.flights",
        SCHEMA,
        location=f"file://{lake.folder}/elsewhere/of/their own",
        partition_spec=BY_P,
        sort_order=SortOrder(SortField(1, IdentityTransform())),
        properties={
            "owner": "them",
            "write.metadata.metrics.default": "full",
            "write.data.path": f"file://{lake.folder}/d",
        },
    )
    for i in range(4):
        append(table, batch(10 * i))
    before, expected = table.refresh().metadata, model_rows(table)
    lake.compact(table)
    after = table.refresh().metadata
    changed = {"last_updated_ms", "last_sequence_number", "current_snapshot_id", "snapshots", "snapshot_log", "refs",
               "metadata_log"}  # fmt: skip
    assert after.model_dump(exclude=changed) == before.model_dump(exclude=changed)
    assert model_rows(table) == expected
    (path,) = live_data_paths(table)
    assert path.startswith(f"file://{lake.folder}/d/")
    assert "regelate" not in str(after.properties) + path
    ours = {"regelate.run-id", "regelate.request-digest", "regelate.plan-id"}
    assert {name for name in summary(table) if name.startswith("regelate.")} == ours


# --- what is selected -------------------------------------------------------------------------------------------------


def many(count: int, lake: Lake) -> tuple[Table, list[str], list[str]]:
    """A table with `count` tiny files (ids 1 and 2) beside half as many healthy ones (ids from 10)."""
    large = [(10 + i, f"value {i * 7919 % 100_003} of a longer text") for i in range(9000)]
    table = lake.table(SCHEMA, [(1, "x"), (2, "y")], large)
    tiny, healthy = in_table_order(table)
    small_files = [tiny, *multiply_file(table, tiny, count - 1)]
    healthy_files = [healthy, *multiply_file(table, healthy, count // 2 - 1)]
    return table.refresh(), small_files, healthy_files


def test_only_the_small_files_among_healthy_ones_are_touched_and_the_second_run_has_nothing_to_do(lake: Lake) -> None:
    table, tiny, healthy = many(1000, lake)
    size = next(f.file_size_in_bytes for f in live_data_files(table) if f.file_path == healthy[0])
    options = {"options": small(size)}
    before = of_the_small(table)
    assert len(before) == 2000
    answer = lake.compact(table, **options)
    after = set(live_data_paths(table.refresh()))
    assert answer["status"] == "COMPLETED"
    assert answer["stats"]["files_compacted"] == 1000
    assert set(healthy) <= after
    assert not after & set(tiny)
    assert len(after) == 500 + answer["stats"]["files_added"]
    assert answer["stats"]["files_after"] == len(after)
    assert of_the_small(table) == before
    snapshots, stored = len(table.snapshots()), stored_files(table)
    second = lake.compact(table, **options)
    assert (second["status"], second["reason"], second["compacted"]) == ("NOTHING_TO_DO", "NO_CANDIDATE", False)
    forced = lake.compact(table, force=True, **options)
    assert (forced["status"], forced["compacted"]) == ("NOTHING_TO_DO", False)
    assert len(table.refresh().snapshots()) == snapshots
    assert stored_files(table) == stored


def of_the_small(table: Table) -> list[tuple[Any, ...]]:
    """The rows of the tiny files, as PyIceberg finds them; the healthy files are not even opened."""
    found = table.scan(row_filter="id < 10").to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["p"].to_pylist(), strict=True))


def test_compactions_come_to_rest_and_never_loop(lake: Lake) -> None:
    """Row 61, law 11: whatever the first run left, later runs find nothing."""
    table = lake.table(SCHEMA, *(batch(10 * i, "xyz"[i % 3]) for i in range(9)), spec=BY_P)
    lake.compact(table)
    snapshots, stored = len(table.refresh().snapshots()), stored_files(table)
    statuses = {lake.compact(table, force=bool(i % 2))["status"] for i in range(20)}
    assert statuses == {"NOTHING_TO_DO"}
    assert (len(table.refresh().snapshots()), stored_files(table)) == (snapshots, stored)


def test_an_empty_table_and_a_table_without_a_snapshot_get_no_snapshot(lake: Lake) -> None:
    """Row 18."""
    table = lake.table(SCHEMA)
    assert lake.compact(table)["reason"] == "NO_SNAPSHOT"
    append(table, batch(0))
    table.delete("id >= 0")
    count = len(table.refresh().snapshots())
    assert lake.compact(table)["reason"] == "NO_CANDIDATE"
    assert len(table.refresh().snapshots()) == count


def test_the_same_event_twice_lands_once(lake: Lake) -> None:
    """Rows 19 and 40."""
    table = lake.table(SCHEMA, batch(0), batch(10), batch(20))
    first = lake.compact(table, key="event-1")
    append(table, batch(30))
    append(table, batch(40))
    append(table, batch(50))
    count = len(table.refresh().snapshots())
    second = lake.compact(table, key="event-1")
    assert (first["status"], second["status"]) == ("COMPLETED", "ALREADY_DONE")
    assert len(table.refresh().snapshots()) == count
    assert lake.compact(table, key="event-2")["status"] == "COMPLETED"


@pytest.mark.parametrize(
    "option",
    [
        {"target-file-size-bytes": 0},
        {"target-file-size-bytes": "10TB"},
        {"target-file-size-bytes": 1.5},
        {"target-file-size-bytes": 100, "min-file-size-bytes": 200},
        {"target-file-size-bytes": 100, "max-file-size-bytes": 50},
        {"min-input-files": 0},
        {"no-such-option": 1},
    ],
)
def test_thresholds_out_of_range_are_refused_before_any_work(lake: Lake, option: dict[str, Any]) -> None:
    """Row 62."""
    table = lake.table(SCHEMA, batch(0), batch(10))
    stored = stored_files(table)
    with pytest.raises(InvalidRequest) as caught:
        lake.compact(table, options=option)
    assert (caught.value.code, caught.value.status) == ("INVALID_OPTION", 400)
    assert stored_files(table) == stored


# --- delete files -----------------------------------------------------------------------------------------------------


def test_deletes_that_a_file_left_behind_still_needs_are_kept(lake: Lake) -> None:
    """A healthy file and small ones share deletes: those stay until the healthy file is rewritten too."""
    table = lake.table(
        SCHEMA, [(i, f"value {i * 7919 % 100_003} of a longer text") for i in range(9000)], batch(10_000), batch(20_000)
    )
    healthy, first, second = in_table_order(table)
    size = next(f.file_size_in_bytes for f in live_data_files(table) if f.file_path == healthy)
    shared = add_position_deletes(table, {healthy: [3], first: [0]}, exact_bounds=False)
    only_small = add_position_deletes(table, {second: [1]})
    keys = add_equality_deletes(table, ["id"], [(5,), (10_002,)])
    expected = model_rows(table)
    lake.compact(table, options=small(size), force=True)
    assert healthy in live_data_paths(table.refresh())
    assert set(live_delete_paths(table)) == {shared, keys}
    assert only_small not in live_delete_paths(table)
    assert model_rows(table) == expected
    lake.compact(table, options={**small(size), "rewrite-all": "true"})
    assert live_delete_paths(table.refresh()) == []
    assert model_rows(table) == expected


def test_dangling_deletes_of_earlier_are_dropped_in_the_same_commit(lake: Lake) -> None:
    table = lake.table(SCHEMA, batch(0), batch(10), batch(20))
    add_position_deletes(table, {"file:///gone/for/good.parquet": [1]}, spec_id=0, partition=None)
    add_equality_deletes(table, ["id"], [(12,)])
    late = append(table, batch(30))
    add_position_deletes(table, {late[0]: [2]})
    expected = model_rows(table)
    answer = lake.compact(table)
    assert answer["stats"]["delete_files_removed"] == 3
    assert live_delete_paths(table.refresh()) == []
    assert summary(table)["total-delete-files"] == "0"
    assert model_rows(table) == expected


def test_deletes_of_another_partition_stay(lake: Lake) -> None:
    table = lake.table(SCHEMA, *(batch(10 * i, "x") for i in range(3)), batch(100, "y"), spec=BY_P)
    of_y = add_equality_deletes(table, ["id"], [(101,), (11,)], partition={"p": "y"})
    of_x = add_equality_deletes(table, ["id"], [(11,)], partition={"p": "x"})
    expected = model_rows(table)
    lake.compact(table)
    assert live_delete_paths(table.refresh()) == [of_y]
    assert of_x not in live_delete_paths(table)
    assert model_rows(table) == expected


def test_a_delete_manifest_is_kept_whole_while_one_of_its_files_is_needed(lake: Lake) -> None:
    """Delete files in one manifest: what stays keeps its sequence number and its reference."""
    table = lake.table(SCHEMA, *(batch(10 * i, "x") for i in range(3)), batch(100, "y"), spec=BY_P)
    path = next(p for p in live_data_paths(table) if "/p=y/" in p)
    add_position_deletes(table, {path: [0]})
    add_equality_deletes(table, ["id"], [(11,)], partition={"p": "x"})
    before = {e.data_file.file_path: e.sequence_number for e in live_entries(table, ManifestContent.DELETES)}
    expected = model_rows(table)
    lake.compact(table)
    after = {e.data_file.file_path: e.sequence_number for e in live_entries(table.refresh(), ManifestContent.DELETES)}
    assert len(after) == 1
    assert after.items() <= before.items()
    assert model_rows(table) == expected


def test_a_file_that_the_table_lists_twice_counts_twice_afterwards_too(lake: Lake) -> None:
    """testDeleteWithDuplicateEntriesInManifest: every reader sees the rows of such a file twice, and still does."""
    table = lake.table(SCHEMA, batch(0), batch(10), batch(20))
    add_data_files(table, live_data_files(table)[:1])
    before = model_rows(table)
    assert len(before) == 20
    lake.compact(table)
    assert model_rows(table) == before
    assert summary(table)["deleted-data-files"] == "4"


def test_an_input_that_is_listed_once_more_meanwhile_is_refused(lake: Lake) -> None:
    """Removing it by its path would take the second listing with it, whose rows were never read."""
    table = lake.table(SCHEMA, batch(0), batch(10), batch(20))
    again = live_data_files(table)[:1]
    outputs = stored_files(table)
    with pytest.raises(Conflict) as caught:
        lake.compact(table, between=lambda: add_data_files(table.refresh(), again))
    assert caught.value.code == "INPUT_LISTED_TWICE"
    assert len(model_rows(table)) == 20
    assert data_of(stored_files(table)) == data_of(outputs)


def data_of(stored: set[str]) -> set[str]:
    return {path for path in stored if path.endswith(".parquet")}
