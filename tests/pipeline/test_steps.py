"""The steps after the rewrite, on real Spark: each does its work once, and no row changes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from regelate.pipeline.__main__ import main
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.names import TableName
from regelate.pipeline.options import Rewrite
from regelate.pipeline.result import Result, Step
from regelate.pipeline.steps import StepKnobs, StepName, step_names
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal
from tests.support.iceberg_tables import live_delete_files, local_path
from tests.support.lake import Lake
from tests.support.table_model import model_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = Terminal(quiet=True)
DAY = 24 * 3600.0
MakeEvents = Callable[..., None]


def run(
    spark: SparkSession, name: TableName, *steps: StepName, later: float = 0.0, dry_run: bool = False, **knobs: Any
) -> Result:
    """Run these steps so many seconds from now."""
    rewrite = Rewrite(options={"min-input-files": "2"})
    job = Job(rewrite=rewrite, steps=steps, knobs=StepKnobs(**knobs), dry_run=dry_run)
    return maintain(SparkTable(spark, name), job, QUIET, clock=lambda: time.time() + later)


def step(result: Result, name: StepName) -> Step:
    return next(s for s in result.steps if s.step == name)


def files_of(lake: Lake, name: TableName) -> list[Path]:
    return sorted(p for p in lake.folder.rglob("*") if p.is_file() and name.table in p.parts)


def test_the_names_of_steps_are_read_in_the_safe_order() -> None:
    assert step_names("expire_snapshots, rewrite_data_files") == (StepName.REWRITE, StepName.EXPIRE)
    assert step_names("all") == tuple(StepName)
    with pytest.raises(ValueError, match="'vacuum' is no step; there are rewrite_data_files, "):
        step_names("vacuum")


@pytest.mark.spark
def test_all_steps_clear_a_merge_on_read_table_away_and_a_second_run_finds_nothing(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    make_events(name, rounds=3, properties={"write.delete.mode": "merge-on-read"})
    spark.sql(f"DELETE FROM {name.sql} WHERE id IN (1, 3, 4)")
    table = lake.other_client().load_table((*name.namespace, name.table))
    rows = model_rows(table)
    orphan = Path(local_path(table.location())) / "data" / "left-over.parquet"
    orphan.write_text("of a writer that died")
    os.utime(orphan, (time.time() - 4 * DAY,) * 2)
    ledger = Path(local_path(table.location())) / "metadata" / "regelate" / "ledger" / "of-a-run.json"
    ledger.parent.mkdir(parents=True, exist_ok=True)
    ledger.write_text("{}")
    os.utime(ledger, (time.time() - 4 * DAY,) * 2)
    flags = ["--table", str(name), "--steps", "all", "--delete-orphans", "--option", "min-input-files=2"]
    flags += ["--uri", f"{lake.folder}/catalog.db", "--warehouse", (lake.folder / "warehouse").as_uri(), "--quiet"]
    assert main(["maintain", *flags, "--result", str(tmp_path / "first.json")]) == 0
    told = json.loads((tmp_path / "first.json").read_text())
    found = {s["step"]: (s["status"], s["found"]) for s in told["steps"]}
    assert list(found) == [str(s) for s in StepName]
    assert told["stats"]["files_compacted"] == 9
    assert found["remove_dangling_deletes"][0] == "COMPLETED"
    assert found["expire_snapshots"][0] == "NOTHING_TO_DO"
    assert found["remove_orphan_files"][1]["deleted_files_count"] == 1
    assert not orphan.exists()
    assert ledger.exists()
    table.refresh()
    assert model_rows(table) == rows
    assert live_delete_files(table) == []
    assert {s.snapshot_id for s in table.metadata.statistics} == {table.metadata.current_snapshot_id}

    assert main(["maintain", *flags, "--dry-run", "--result", str(tmp_path / "again.json")]) == 0
    again = json.loads((tmp_path / "again.json").read_text())
    assert {s["step"]: s["status"] for s in again["steps"]} == dict.fromkeys(map(str, StepName), "NOTHING_TO_DO")


@pytest.mark.spark
def test_position_deletes_and_manifests_are_merged_once_and_the_rows_stay_deleted(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents
) -> None:
    make_events(
        name, rounds=2, properties={"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"}
    )
    for id_ in (0, 3):
        spark.sql(f"DELETE FROM {name.sql} WHERE id = {id_}")
    table = lake.other_client().load_table((*name.namespace, name.table))
    rows = model_rows(table)
    assert len(live_delete_files(table)) == 2
    assert step(run(spark, name, StepName.POSITION_DELETES, dry_run=True), StepName.POSITION_DELETES).statements
    done = step(run(spark, name, StepName.POSITION_DELETES), StepName.POSITION_DELETES)
    assert (done.status, done.found["rewritten_delete_files_count"], done.found["added_delete_files_count"]) == (
        "COMPLETED", 2, 1,
    )  # fmt: skip
    merged = step(run(spark, name, StepName.MANIFESTS), StepName.MANIFESTS)
    assert (merged.status, merged.found["added_manifests_count"]) == ("COMPLETED", 2)
    assert model_rows(table.refresh()) == rows
    assert run(spark, name, StepName.POSITION_DELETES, StepName.MANIFESTS).status == "NOTHING_TO_DO"


@pytest.mark.spark
def test_expiry_keeps_what_core_keeps_and_refuses_where_files_may_belong_to_others(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents
) -> None:
    make_events(name, rounds=3)
    spark.sql(f"ALTER TABLE {name.sql} CREATE TAG keep AS OF VERSION {SparkTable(spark, name).log[0].snapshot_id}")
    young = run(spark, name, StepName.EXPIRE, retention_hours=24.0)
    assert young.status == "NOTHING_TO_DO"
    spark.sql(f"ALTER TABLE {name.sql} SET TBLPROPERTIES ('gc.enabled'='false')")
    refused = run(spark, name, StepName.EXPIRE, StepName.ORPHANS, later=9 * DAY)
    assert {s.step: s.error and s.error.code for s in refused.steps} == {
        "expire_snapshots": "GC_DISABLED",
        "remove_orphan_files": "GC_DISABLED",
    }
    assert (refused.status, refused.exit_code) == ("FAILED", 1)
    assert any("nessie-gc" in warning for warning in refused.warnings)
    assert len(SparkTable(spark, name).log) == 3
    spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES ('gc.enabled')")
    planned = step(run(spark, name, StepName.EXPIRE, later=9 * DAY, dry_run=True), StepName.EXPIRE)
    idle = Job(steps=(StepName.REWRITE, StepName.EXPIRE), clears_only_after_a_rewrite=True)
    told = maintain(SparkTable(spark, name), idle, QUIET, clock=lambda: time.time() + 9 * DAY)
    assert [s.step for s in told.steps] == ["rewrite_data_files"], "nothing was rewritten, so nothing is deleted"
    done = step(run(spark, name, StepName.EXPIRE, later=9 * DAY), StepName.EXPIRE)
    log = SparkTable(spark, name).log
    assert planned.found["snapshot_ids"] == done.found["snapshot_ids"]
    assert done.found["snapshots_to_expire"] == 1
    assert len(log) == 2
    tag = next(ref for ref in SparkTable(spark, name).refs if ref.name == "keep")
    assert tag.snapshot_id in {entry.snapshot_id for entry in log}


@pytest.mark.spark
def test_orphans_are_only_listed_without_the_flag_and_left_while_an_expiry_can_be_undone(
    spark: SparkSession, lake: Lake, name: TableName
) -> None:
    spark.sql(f"CREATE TABLE {name.sql} (id bigint) USING iceberg")
    spark.sql(f"INSERT INTO {name.sql} VALUES (1)")
    folder = Path(local_path(str(SparkTable(spark, name).metadata["location"])))
    orphan = folder / "data" / "it's left.parquet"
    orphan.write_text("x")
    os.utime(orphan, (time.time() - 4 * DAY,) * 2)
    before = files_of(lake, name)
    listed = step(run(spark, name, StepName.ORPHANS, dry_run=True), StepName.ORPHANS)
    assert files_of(lake, name) == before
    assert (listed.status, listed.found["orphan_files"]) == ("NOTHING_TO_DO", 1)
    assert "--delete-orphans" in listed.reason
    waiting = folder / "metadata" / "regelate" / "quarantine" / "1.json"
    waiting.parent.mkdir(parents=True)
    waiting.write_text("{}")
    kept = step(run(spark, name, StepName.ORPHANS, delete_orphans=True), StepName.ORPHANS)
    assert (kept.status, orphan.exists()) == ("NOTHING_TO_DO", True)
    waiting.unlink()
    done = step(run(spark, name, StepName.ORPHANS, delete_orphans=True), StepName.ORPHANS)
    assert (done.found["deleted_files_count"], orphan.exists()) == (1, False)
    spark.sql(f"CREATE TABLE local.by_spark.inside_{name.table} (id bigint) USING iceberg LOCATION '{folder}/inner'")
    refused = run(spark, name, StepName.ORPHANS, delete_orphans=True)
    assert (refused.steps[0].error and refused.steps[0].error.code) == "GC_DISABLED"
    spark.sql(f"DROP TABLE local.by_spark.inside_{name.table}")


@pytest.mark.spark
def test_only_the_last_closed_day_and_only_partitions_with_enough_small_files_are_taken(
    spark: SparkSession, lake: Lake, name: TableName
) -> None:
    spark.sql(f"CREATE TABLE {name.sql} (id bigint, at timestamp) USING iceberg PARTITIONED BY (days(at))")
    days = ", ".join(f"({n}, TIMESTAMP '2025-01-{n} 05:00:00')" for n in (15, 16, 17))
    for _ in range(2):
        spark.sql(f"INSERT INTO {name.sql} VALUES {days}")
    spark.sql(f"INSERT INTO {name.sql} VALUES (15, TIMESTAMP '2025-01-15 06:00:00')")
    flags = ["--table", str(name), "--option", "min-input-files=2", "--quiet"]
    flags += ["--uri", f"{lake.folder}/catalog.db", "--warehouse", (lake.folder / "warehouse").as_uri()]
    result = str(lake.folder / "result.json")

    def compacted(*more: str) -> dict[str, int]:
        assert main(["maintain", *flags, *more, "--dry-run", "--result", result]) == 0
        plan = json.loads(Path(result).read_text())["plan"]
        return {g["partition"]: g["files"] for g in plan["file_groups"]}

    assert compacted("--last-partitions", "1") == {"at_day=2025-01-17": 2}
    assert compacted("--last-partitions", "2") == {"at_day=2025-01-16": 2, "at_day=2025-01-17": 2}
    assert compacted("--min-small-files", "3") == {"at_day=2025-01-15": 3}
    assert main(["maintain", *flags, "--min-small-files", "3", "--result", result]) == 0
    assert json.loads(Path(result).read_text())["stats"]["files_compacted"] == 3
