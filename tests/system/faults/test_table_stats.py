"""TABLE_STATS behind the door, held against the table's own entries."""

from __future__ import annotations

from pathlib import Path

from tests.support.deletes_writer import add_position_deletes
from tests.support.iceberg_tables import live_data_files, manifest_paths
from tests.system.faults.stack import Stack


def test_stats_count_what_the_head_names_and_list_the_largest_partitions_first(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    by_kind = [{"source": "kind", "transform": "identity"}]
    stack.create("t", {"id": "long", "kind": "string"}, partition_spec=by_kind)
    told = stack.ok("TABLE_STATS", "t")
    assert (told["snapshot_id"], told["files"], told["rows"], told["largest_partitions"]) == (None, 0, 0, [])
    stack.ok("WRITE", "t", records=[{"id": i, "kind": "many"} for i in range(500)])
    stack.ok("WRITE", "t", records=[{"id": i, "kind": kind} for i, kind in enumerate(("few", "many"))])
    table = stack.table("default.t")
    files = live_data_files(table)
    add_position_deletes(table, {files[0].file_path: [0]})
    table = stack.table("default.t")
    told = stack.ok("TABLE_STATS", "t")
    assert told["table"] == "default.t"
    assert told["snapshot_id"] == table.metadata.current_snapshot_id
    assert (told["files"], told["delete_files"], told["partitions"]) == (3, 1, 2)
    assert told["size_bytes"] == sum(f.file_size_in_bytes for f in files)
    assert told["rows"] == sum(f.record_count for f in files) == 502
    assert told["manifest_count"] == len(manifest_paths(table))
    many, few = told["largest_partitions"]
    assert [(p["partition"], p["files"], p["rows"]) for p in (many, few)] == [("kind=many", 2, 501), ("kind=few", 1, 1)]
    assert many["size_bytes"] + few["size_bytes"] == told["size_bytes"]
