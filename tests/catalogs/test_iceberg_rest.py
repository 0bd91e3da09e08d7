"""The service on Apache Iceberg's own REST catalog: what a commit, an expiry and its undo come to on a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tests.catalogs.served import LaterClock, lossy, stack_on
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import live_data_files, live_data_paths, local_path
from tests.support.table_model import model_rows
from tests.system.faults.stack import Stack, assert_nothing_left_behind, request

pytestmark = pytest.mark.catalogs
COLUMNS = {"id": "long!", "kind": "string"}
PARTITIONED = {"partition_spec": [{"source": "kind", "transform": "identity"}]}


@pytest.fixture
def stack(iceberg_rest: str, folder: Path) -> Stack:
    return stack_on(folder, {"type": "rest", "uri": iceberg_rest})


def written(stack: Stack, table: str, writes: int = 5) -> Table:
    """Create a table and write to it so many times, two rows each, one for each of two partitions."""
    stack.create(table, COLUMNS, **PARTITIONED)
    for n in range(writes):
        stack.ok("WRITE", table, records=[{"id": 2 * n, "kind": "a"}, {"id": 2 * n + 1, "kind": "b"}])
    return stack.table(f"default.{table}")


def head(table: Table) -> Snapshot:
    found = table.refresh().current_snapshot()
    assert found is not None
    return found


def test_small_writes_are_compacted_and_every_row_is_still_there(stack: Stack) -> None:
    table = written(stack, "events")
    stack.ok("WRITE", "events", mode="upsert", key=["id"], records=[{"id": 0, "kind": "a"}, {"id": 99, "kind": "b"}])
    first = live_data_files(table.refresh())[0]
    add_position_deletes(table, {first.file_path: [0]})
    add_equality_deletes(table, ["id"], [(3,)], partition={"kind": "b"})
    rows, asked = model_rows(table.refresh()), stack.rows("events")
    answer = stack.ok("COMPACT", "events", force=True)
    assert (answer["status"], answer["stats"]["groups"]) == ("COMPLETED", 2)
    assert len(live_data_paths(table.refresh())) == 2
    assert model_rows(table) == rows
    assert stack.rows("events") == asked
    assert_nothing_left_behind(table)


def test_a_commit_whose_answer_is_lost_lands_once(iceberg_rest: str, folder: Path) -> None:
    with lossy(iceberg_rest) as proxy:
        stack = stack_on(folder, {"type": "rest", "uri": proxy.uri})
        table = written(stack, "lost_answers")
        rows = model_rows(table)
        for operation, fields in (
            ("WRITE", {"records": [{"id": 50, "kind": "a"}]}),
            ("COMPACT", {"force": True}),
            ("REWRITE_MANIFESTS", {}),
        ):
            before = len(table.refresh().snapshots())
            proxy.cut_commits = 1
            stack.ok(operation, "lost_answers", **fields)
            assert proxy.cut_commits == 0, operation
            assert len(table.refresh().snapshots()) == before + 1, operation
        assert proxy.commits_cut == 3
        assert model_rows(table) == sorted([*rows, "(50, 'a')"])
        assert_nothing_left_behind(table)


def test_an_expiry_is_undone_and_its_snapshots_are_readable_again(stack: Stack) -> None:
    table = written(stack, "history")
    old = table.refresh().snapshots()[1].snapshot_id
    then = stack.rows("history", snapshot_id=old)
    stack.ok("COMPACT", "history", force=True, expire_snapshots=False)
    stack.built.again(clock=LaterClock(hours=2))
    expired = stack.ok("EXPIRE_SNAPSHOTS", "history", retention_hours=1)
    assert (expired["snapshots_expired"], expired["files_deleted"]) == (5, 0)
    assert expired["files_quarantined"] > 5
    assert [s.snapshot_id for s in table.refresh().snapshots()] == [head(table).snapshot_id]
    stack.refused(404, "SNAPSHOT_NOT_FOUND", [], request("QUERY", "history", snapshot_id=old))
    undone = stack.ok("EXPIRE_SNAPSHOTS", "history", undo=expired["undo_id"])
    assert undone["snapshots_restored"] == 5
    assert stack.rows("history", snapshot_id=old) == then
    numbers = [x.sequence_number or 0 for x in table.refresh().snapshots()]
    assert head(table).sequence_number == max(numbers) == table.metadata.last_sequence_number
    add_equality_deletes(table, ["id"], [(4,)], partition={"kind": "a"})
    assert len(stack.rows("history")) == 10 - 1, "a delete with a number that was given before would miss its row"
    again = stack.ok("EXPIRE_SNAPSHOTS", "history", retention_hours=1)
    assert not set(again["snapshot_ids"]) & set(expired["snapshot_ids"]), "tags hold what was brought back"


def test_files_of_expired_snapshots_are_freed_without_a_grace(stack: Stack) -> None:
    table = written(stack, "freed")
    inputs = live_data_paths(table.refresh())
    stack.ok("COMPACT", "freed", force=True, expire_snapshots=False)
    rows = model_rows(table.refresh())
    stack.built.again(clock=LaterClock(hours=2))
    freed = stack.ok("EXPIRE_SNAPSHOTS", "freed", retention_hours=1, grace_hours=0)
    assert freed["files_deleted"] >= len(inputs)
    assert not [path for path in inputs if local_path(path).exists()]
    assert model_rows(table.refresh()) == rows


def test_a_tag_made_while_its_snapshot_expires_is_reported_and_no_file_is_deleted(stack: Stack) -> None:
    """Trap T8: the server does not look at refs; the metadata that the commit was applied to shows what went."""
    table = written(stack, "tagged")
    old = table.refresh().snapshots()[1]
    files = {
        f.file_path for m in old.manifests(table.io) for f in (e.data_file for e in m.fetch_manifest_entry(table.io))
    }
    stack.built.again(clock=LaterClock(hours=2))
    catalog = stack.built.catalog()
    commit = catalog.commit_table

    def tagged_meanwhile(*arguments: Any) -> Any:
        catalog.commit_table = commit
        other = load_catalog("other", type="rest", uri=catalog.properties["uri"]).load_table("default.tagged")
        other.manage_snapshots().create_tag(old.snapshot_id, "keep").commit()
        return commit(*arguments)

    catalog.commit_table = tagged_meanwhile
    error = stack.refused(409, "REFS_CHANGED", ["keep"], request("EXPIRE_SNAPSHOTS", "tagged", retention_hours=1))
    assert not error["retryable"]
    assert not [path for path in files if not local_path(path).exists()]


def test_maintenance_and_a_sweep_run_through_and_keep_every_row(stack: Stack) -> None:
    table = written(stack, "maintained", writes=6)
    rows = model_rows(table)
    stray = local_path(table.location()) / "data" / "stray.parquet"
    stray.write_bytes(b"PAR1")
    answer = stack.ok("MAINTAIN", "maintained", force=True)
    assert [s["status"] for s in answer["steps"]].count("FAILED") == 0, answer
    swept = stack.ok("SWEEP")
    assert (swept["errors"], swept["backlog"]) == (0, 0), swept
    assert model_rows(table.refresh()) == rows
    assert stray.exists(), "it is too young to be an orphan"
    found = stack.ok("REMOVE_ORPHAN_FILES", "maintained")
    assert (found["orphan_files"], found["young_files"]) == (0, 1)
