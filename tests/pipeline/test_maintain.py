"""Maintenance on real Spark: what core chose is what Spark rewrites, and no row changes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import Table

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.snapshot import SnapshotReader
from regelate.core.planning.plan import plan_compaction
from regelate.core.policy.policy import CompactionPolicy
from regelate.errors import InvalidRequest, NotFound
from regelate.pipeline import compact_table
from regelate.pipeline.__main__ import main
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.names import TableName
from regelate.pipeline.options import Layout, Rewrite
from regelate.pipeline.result import Result
from regelate.pipeline.rewrite import plan_rewrite
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal
from tests.support.iceberg_tables import live_data_paths, make_catalog
from tests.support.lake import Lake
from tests.support.table_model import model_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
QUIET = Terminal(quiet=True)
TWO = {"min-input-files": "2"}
MakeEvents = Callable[..., None]


def run(
    spark: SparkSession, name: TableName, *, dry_run: bool = False, now: float | None = None, **asked: Any
) -> Result:
    job = Job(rewrite=Rewrite(**{"options": TWO, **asked}), dry_run=dry_run)
    return maintain(SparkTable(spark, name), job, QUIET, clock=time.time if now is None else lambda: now)


def native(lake: Lake, name: TableName) -> Table:
    return lake.other_client().load_table((*name.namespace, name.table))


def planned_by_the_service(table: Table, policy: CompactionPolicy) -> set[str]:
    plan = plan_compaction(SnapshotReader(table, ManifestReader()).read(policy), policy)
    return {path for group in plan.groups for path in group.paths}


def test_both_engines_pick_the_same_files(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents
) -> None:
    make_events(name, properties={"write.delete.mode": "merge-on-read"})
    spark.sql(f"INSERT INTO {name.sql} SELECT id, 'lonely', at FROM {name.sql} LIMIT 1")
    spark.sql(
        f"INSERT INTO {name.sql} SELECT /*+ COALESCE(1) */ id, 'healthy', TIMESTAMP '2025-01-17' FROM range(9000)"
    )
    spark.sql(f"DELETE FROM {name.sql} WHERE id = 1")
    asked = Rewrite(options={"target-file-size-bytes": "12000", "min-file-size-bytes": "6000", **TWO})
    planned = plan_rewrite(SparkTable(spark, name), asked, now_ms=0)
    chosen = {path for group in planned.plan.groups for path in group.paths}
    table = native(lake, name)
    before, rows = set(live_data_paths(table)), model_rows(table)
    assert chosen == planned_by_the_service(table, planned.policy)
    assert 0 < len(chosen) < len(before)

    done = maintain(SparkTable(spark, name), Job(rewrite=asked), QUIET)

    assert before - set(live_data_paths(table.refresh())) == chosen
    assert model_rows(table) == rows
    assert done.stats is not None
    assert done.stats.files_compacted == len(chosen)
    assert done.stats.rows == planned.plan.rows - 1
    assert done.stats.files_after == len(live_data_paths(table))
    assert done.stats.dropped_groups == 0
    assert done.snapshot_after == table.current_snapshot().snapshot_id  # type: ignore[union-attr]


def test_one_partition_is_compacted_and_a_second_run_rewrites_nothing(
    spark: SparkSession,
    lake: Lake,
    name: TableName,
    make_events: MakeEvents,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    make_events(name)
    table = native(lake, name)
    rows, before = model_rows(table), set(live_data_paths(table))
    flags = ["--table", str(name), "--partition", "kind = 'click'", "--target-size-mb", "128", "--min-size-mb", "10"]
    flags += ["--uri", f"{lake.folder}/catalog.db", "--warehouse", (lake.folder / "warehouse").as_uri()]
    assert compact_table.main([*flags, "--result", str(tmp_path / "first.json")]) == 0
    gone = before - set(live_data_paths(table.refresh()))
    assert len(gone) == 4
    assert all("kind=click" in path for path in gone)
    assert model_rows(table) == rows
    told = json.loads((tmp_path / "first.json").read_text())
    assert (told["status"], told["stats"]["files_compacted"], told["stats"]["files_added"]) == ("COMPLETED", 4, 1)
    assert told["snapshot_before"] != told["snapshot_after"]

    head = table.current_snapshot()
    capsys.readouterr()
    assert compact_table.main([*flags, "--result", (tmp_path / "second.json").as_uri()]) == 0
    assert "Nothing to rewrite" in capsys.readouterr().out
    assert table.refresh().current_snapshot() == head
    again = json.loads((tmp_path / "second.json").read_text())
    assert (again["status"], again["stats"]) == ("NOTHING_TO_DO", None)


def test_a_dry_run_says_what_it_would_do_and_touches_nothing(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents
) -> None:
    make_events(name)
    table = native(lake, name)
    files = sorted(path for path in lake.folder.rglob("*") if "by_spark" in str(path))
    found = run(spark, name, dry_run=True)
    assert found.status == "PLANNED"
    assert found.plan is not None
    assert found.plan.files == 12
    assert "rewrite_data_files" in found.steps[0].statements[0]
    assert sorted(path for path in lake.folder.rglob("*") if "by_spark" in str(path)) == files
    assert table.refresh().metadata_location == native(lake, name).metadata_location


BAD_FILTERS = [
    "kind =",
    "kind = 'x'; DROP TABLE t",
    "kind = 'x') , options => map('rewrite-all', 'true'",
    "nosuch = 1",
    "kind IN (SELECT kind FROM t)",
    "length(kind) = 3",
    "kind = 'x') OR (kind = 'y'",
    "kind = 'x' /* never closed",
    "kind = \\'x\\'",
]


@pytest.mark.parametrize("where", BAD_FILTERS)
def test_a_bad_filter_is_refused_with_its_text_and_nothing_changes(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents, where: str
) -> None:
    make_events(name, rounds=1)
    location = native(lake, name).metadata_location
    with pytest.raises(InvalidRequest, match="INVALID_FIELD: where ") as refused:
        run(spark, name, where=where)
    assert refused.value.details["field"] == "where"
    assert native(lake, name).metadata_location == location


def test_a_quote_and_a_variable_in_a_filter_are_only_text(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents
) -> None:
    make_events(name)
    found = run(spark, name, where="kind = 'it\\'s' -- and nothing else")
    assert found.stats is not None
    assert found.stats.files_compacted == 4
    assert run(spark, name, where="kind = '${spark.app.name}'").status == "NOTHING_TO_DO"


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--table", "local.by_spark.nosuch"], 1, "TABLE_NOT_FOUND"),
        (["--table", "local.nons.nosuch"], 1, "TABLE_NOT_FOUND"),
        (["--table", "local.by_spark.t; DROP TABLE x"], 1, "TABLE_NOT_FOUND"),
        (["--table", "nosuch"], 2, "CATALOG.NAMESPACE.TABLE"),
        (["--table", "a.b.c", "--target-size-mb", "-5"], 2, "--target-size-mb"),
        (["--table", "a.b.c", "--min-size-mb", "x"], 2, "--min-size-mb"),
        (["--table", "a.b.c", "--where", " "], 2, "where"),
        (["--table", "a.b.c", "--option", "nosuch=1"], 2, "nosuch"),
        (["--table", "a.b.c", "--option", "use-starting-sequence-number=true"], 2, "deleted rows come back"),
        (["--table", "a.b.c", "--strategy", "zorder"], 2, "zorder"),
    ],
)
def test_a_wrong_command_line_gets_two_lines_and_an_exit_code(
    spark: SparkSession, lake: Lake, make_events: MakeEvents, capsys: pytest.CaptureFixture[str],
    flags: list[str], code: int, words: str,
) -> None:  # fmt: skip
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.by_spark")
    spark.sql("CREATE TABLE IF NOT EXISTS local.by_spark.real (id bigint) USING iceberg")
    flags = [word.replace("a.b.c", "local.by_spark.real") for word in flags]
    own = ["--uri", f"{lake.folder}/catalog.db", "--warehouse", (lake.folder / "warehouse").as_uri()]
    try:
        ended = main(["maintain", *flags, *own])
    except SystemExit as stop:
        ended = stop.code if isinstance(stop.code, int) else 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert ended == code
    assert words in lines[-2]
    assert lines[-2].startswith("error: ")
    assert lines[-1].startswith("help: ")


def test_closed_time_partitions_are_chosen_and_the_open_one_is_not(
    spark: SparkSession, lake: Lake, name: TableName
) -> None:
    spark.sql(f"CREATE TABLE {name.sql} (id bigint, at timestamp) USING iceberg PARTITIONED BY (days(at))")
    for _ in range(2):
        spark.sql(
            f"INSERT INTO {name.sql} VALUES (1, TIMESTAMP '2025-01-16 05:00:00'), (2, TIMESTAMP '2025-01-17 05:00:00')"
        )
    now = 1_737_090_000.0  # 2025-01-17T05:00:00Z
    found = run(spark, name, selection="time-series", now=now)
    assert found.stats is not None
    assert found.stats.files_compacted == 2
    left = [path for path in live_data_paths(native(lake, name)) if "at_day=2025-01-17" in path]
    assert len(left) == 2
    filtered = run(spark, name, partition_filters=({"at": "2025-01-17"},))
    assert filtered.stats is not None
    assert filtered.stats.files_compacted == 2


@pytest.mark.parametrize("layout", [Layout.SORT, Layout.ZORDER])
def test_sort_and_zorder_keep_every_row(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents, layout: Layout
) -> None:
    make_events(name)
    table = native(lake, name)
    rows = model_rows(table)
    order: dict[str, Any] = {"zorder": ("id", "kind")} if layout is Layout.ZORDER else {"sort": ()}
    if layout is Layout.SORT:
        spark.sql(f"ALTER TABLE {name.sql} WRITE ORDERED BY id DESC")
    found = run(spark, name, layout=layout, **order)
    assert found.stats is not None
    assert found.stats.files_compacted == 12
    assert model_rows(table.refresh()) == rows


def test_files_of_an_older_spec_are_moved_and_no_row_changes(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents
) -> None:
    make_events(name)
    spark.sql(f"ALTER TABLE {name.sql} REPLACE PARTITION FIELD kind WITH bucket(2, id)")
    spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN extra string")
    spark.sql(f"INSERT INTO {name.sql} VALUES (1000, 'click', TIMESTAMP '2025-01-18', 'new')")
    table = native(lake, name)
    rows = model_rows(table)
    found = run(spark, name)
    assert found.stats is not None
    assert found.stats.files_compacted >= 12
    assert any("older partition spec" in warning for warning in found.warnings)
    assert model_rows(table.refresh()) == rows


def test_a_v3_table_with_deletion_vectors_keeps_its_row_ids(spark: SparkSession, name: TableName) -> None:
    spark.sql(
        f"CREATE TABLE {name.sql} (id bigint) USING iceberg TBLPROPERTIES "
        "('format-version'='3', 'write.delete.mode'='merge-on-read')"
    )
    for start in (0, 10, 20):
        spark.sql(f"INSERT INTO {name.sql} SELECT /*+ COALESCE(1) */ id FROM range({start}, {start + 10})")
    spark.sql(f"DELETE FROM {name.sql} WHERE id % 10 = 3")
    identity = f"SELECT _row_id, id FROM {name.sql} ORDER BY id"
    before = [tuple(row) for row in spark.sql(identity).collect()]
    found = run(spark, name)
    assert found.stats is not None
    assert (found.stats.files_compacted, found.stats.files_after) == (3, 1)
    assert [tuple(row) for row in spark.sql(identity).collect()] == before
    assert len(before) == 27


def test_an_empty_table_and_a_table_of_the_service_are_served(spark: SparkSession, lake: Lake, name: TableName) -> None:
    spark.sql(f"CREATE TABLE {name.sql} (id bigint) USING iceberg")
    assert (run(spark, name).status, run(spark, name).reason) == ("NOTHING_TO_DO", "NO_SNAPSHOT")


def test_an_idle_session_holds_no_lock_on_the_catalog(spark: SparkSession, lake: Lake, name: TableName) -> None:
    spark.sql(f"CREATE TABLE {name.sql} (id bigint) USING iceberg")
    with closing(sqlite3.connect(lake.folder / "catalog.db", timeout=1)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.rollback()


def test_t32_a_catalog_that_iceberg_initialises_itself_stays_locked(spark: SparkSession, tmp_path: Path) -> None:
    make_catalog(tmp_path).create_tables()
    conf = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "jdbc", ".jdbc.schema-version": "V1"}
    conf |= {".uri": f"jdbc:sqlite:{tmp_path}/catalog.db", ".warehouse": tmp_path.as_uri()}
    for key, value in conf.items():
        spark.conf.set(f"spark.sql.catalog.trapped{key}", value)
    spark.sql("SHOW NAMESPACES IN trapped").collect()
    with (
        closing(sqlite3.connect(tmp_path / "catalog.db", timeout=1)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("BEGIN EXCLUSIVE")


def test_an_unknown_catalog_is_told_apart_from_an_unknown_table(spark: SparkSession) -> None:
    with pytest.raises(NotFound, match="CATALOG_NOT_FOUND"):
        SparkTable(spark, TableName.parse("nosuch.ns.t"))
