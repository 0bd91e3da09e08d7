"""The study of small merges on a real lake: a few iterations of every arm, and one that was killed half-way."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from regelate.pipeline.names import TableName
from regelate.pipeline.tables import SparkTable
from studies.small_files.arms import ARMS, MIN_NUM_FILES, Arm
from studies.small_files.compactors import EngineName, compactor
from studies.small_files.lake import Lake as Tables
from studies.small_files.logbook import Logbook, Session, Workload
from studies.small_files.running import run
from studies.small_files.workload import UPDATES, Batch, batches
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TASKS = 27
"""So many that the second merge brings a table over the files that an automatic run waits for."""
WORKLOAD = Workload(rows=1000, tasks=TASKS, seed=1, merge_on_read=False, engine="regelate")
BY_KEY = {arm.key: arm for arm in ARMS}
SHOWN = [BY_KEY[key] for key in ("none", "auto", "adaptive")]
"""Within two iterations the others do what these do."""


@pytest.fixture(scope="module")
def tables(spark: SparkSession, lake: Lake) -> Tables:
    return Tables(spark, WORKLOAD, compactor(EngineName.REGELATE, spark, lake.folder))


@pytest.fixture(scope="module")
def log(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Logbook:
    """Two iterations of each arm that shows something of its own by then."""
    made = Logbook(tmp_path_factory.mktemp("study") / "log.jsonl", WORKLOAD)
    made.begin(Session(began="2026-01-01", machine={}))
    run(tables, SHOWN, made, 2)
    return made


def rows_of(spark: SparkSession, arm: Arm) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in spark.sql(f"SELECT * FROM local.study.{arm.key}").collect())


def test_every_arm_holds_the_same_rows(spark: SparkSession, log: Logbook) -> None:
    expected = rows_of(spark, BY_KEY["none"])
    *_, last = batches(WORKLOAD.rows, 2, WORKLOAD.seed)
    assert [row[0] for row in expected] == list(range(last.last + 1))
    assert all(rows_of(spark, arm) == expected for arm in SHOWN)


def test_every_task_writes_a_file_unless_writes_are_optimized(log: Logbook) -> None:
    tail = math.ceil(TASKS * UPDATES)  # the files that hold the rows that come again, which the second MERGE rewrites
    assert [one.data_files for one in log.of("none")] == [TASKS, TASKS + TASKS - tail]
    assert all(one.data_files <= 2 * one.iteration for one in log.of("adaptive"))


def test_a_table_has_the_properties_of_its_arm_and_of_its_writer(spark: SparkSession, log: Logbook) -> None:
    for arm in SHOWN:
        had = SparkTable(spark, TableName.parse(f"local.study.{arm.key}")).properties
        wanted = {**arm.writer.table_properties(WORKLOAD.rows), **arm.properties}
        assert wanted.items() <= had.items()


def test_an_automatic_run_comes_when_there_are_enough_files(log: Logbook) -> None:
    before, due = log.of("auto")
    assert before.files_after_merge < MIN_NUM_FILES <= due.files_after_merge
    assert (before.compactions, before.data_files) == (0, before.files_after_merge)
    assert (due.compactions, due.data_files, due.row_groups) == (1, 1, 1)
    assert sum(one.compactions for one in log.measured) == 1
    assert due.compaction_seconds > 0 == log.of("none")[-1].compaction_seconds
    assert due.compaction_processor_seconds > 0 == log.of("none")[-1].compaction_processor_seconds


def test_a_commit_that_the_log_does_not_know_is_undone_before_a_run_goes_on(
    spark: SparkSession, lake: Lake, tables: Tables, tmp_path: Path
) -> None:
    arm = replace(BY_KEY["optimized"], key="killed")
    run(tables, [arm], Logbook(tmp_path / "log.jsonl", WORKLOAD), 1)
    tables.iterate(arm, Batch(iteration=2, first=90_000, last=90_009, newest_before=89_999))
    known = Logbook(tmp_path / "log.jsonl", WORKLOAD)
    run(Tables(spark, WORKLOAD, compactor(EngineName.SPARK, spark, lake.folder)), [arm], known, 2)
    *_, last = batches(WORKLOAD.rows, 2, WORKLOAD.seed)
    assert [row[0] for row in rows_of(spark, arm)] == list(range(last.last + 1))
    assert [one.iteration for one in known.measured] == [1, 2]


def test_a_compaction_by_hand_leaves_one_file_whoever_does_it(
    spark: SparkSession, lake: Lake, log: Logbook, tables: Tables
) -> None:
    for engine, key in ((EngineName.REGELATE, "none"), (EngineName.SPARK, "adaptive")):
        name = TableName.parse(f"local.study.{key}")
        before = rows_of(spark, BY_KEY[key])
        compactor(engine, spark, lake.folder).scheduled(name)
        assert spark.table(name.metadata_table("files")).count() == 1
        assert rows_of(spark, BY_KEY[key]) == before
