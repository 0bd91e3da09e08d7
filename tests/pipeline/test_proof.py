"""Validation on real Spark: what is measured is what is there, a failed check fails the job, and going back works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from regelate.core.measures.impact import Fingerprint
from regelate.errors import InvalidRequest
from regelate.pipeline import compact_table
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.measure import Query, fingerprint
from regelate.pipeline.names import TableName
from regelate.pipeline.options import Rewrite
from regelate.pipeline.proof import Proof, Prover
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
QUIET = Terminal(quiet=True)
MakeEvents = Callable[..., None]
REWRITE = Rewrite(options={"min-input-files": "2"})


def flags_of(lake: Lake, name: TableName) -> list[str]:
    own = ["--uri", f"{lake.folder}/catalog.db", "--warehouse", (lake.folder / "warehouse").as_uri()]
    return ["--table", str(name), *own]


def of_head(spark: SparkSession, name: TableName) -> Fingerprint:
    table = SparkTable(spark, name)
    return fingerprint(table, table.snapshot_id or 0)


def test_the_impact_is_measured_on_both_sides_and_every_check_passes(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    make_events(name)
    query = f"SELECT kind, count(*), avg(id / 3.0D) FROM {name.sql} GROUP BY kind"
    asked = ["--validate", "--query", query, "--query-runs", "2", "--result", str(tmp_path / "result.json")]
    compact_table.main([*flags_of(lake, name), *asked])
    told = json.loads((tmp_path / "result.json").read_text())
    before, after = told["impact"]["files"]["before"], told["impact"]["files"]["after"]
    assert (before["files"], after["files"], before["partitions"]) == (12, 3, 3)
    assert (before["rows"], after["rows"]) == (120, 120)
    assert [p["files"] for p in before["by_partition"]] == [4, 4, 4]
    assert before["size_bytes"] == told["stats"]["bytes_before"]
    verdicts = {check["name"]: check["verdict"] for check in told["impact"]["checks"]}
    assert {verdicts[n] for n in ("rows", "file_count", "average_size", "query_result")} == {"PASSED"}
    shown = capsys.readouterr().out
    assert "1. File count: 12 -> 3 (-75.0%)" in shown
    assert "[passed] rows: 120 rows, and their content, are the same" in shown


def test_a_failed_check_fails_the_job_and_going_back_brings_the_files_back(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    make_events(name, rounds=2)
    base = SparkTable(spark, name).snapshot_id
    asked = ["--query", f"SELECT count(*) FROM {name.sql}.files", "--query-runs", "2"]
    flags = [*flags_of(lake, name), *asked, "--result", str(tmp_path / "result.json")]
    assert compact_table.main(flags) == 1
    told = json.loads((tmp_path / "result.json").read_text())
    assert (told["success"], told["status"], told["error"]["code"]) == (False, "FAILED", "VALIDATION_FAILED")
    assert told["error"]["details"] == {"checks": ["query_result"], "snapshot_id": base}
    assert f"the snapshot to go back to is {base}" in capsys.readouterr().err
    assert SparkTable(spark, name).snapshot_id != base

    spark.sql(f"CALL local.system.rollback_to_snapshot('{name.within_catalog}', {base})")
    assert compact_table.main([*flags, "--rollback-on-failure"]) == 1
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["impact"]["went_back_to"] == base
    table = SparkTable(spark, name)
    assert (table.snapshot_id, table.file_metrics().whole.files) == (base, 6)


def test_commits_of_others_are_told_apart_and_never_rolled_back(
    spark: SparkSession, name: TableName, make_events: MakeEvents
) -> None:
    make_events(name, rounds=2)
    table = SparkTable(spark, name)
    prover = Prover(table, Proof(query=f"SELECT count(*) FROM {name.sql}.files", query_runs=2, rollback=True))
    maintain(SparkTable(spark, name), Job(rewrite=REWRITE), QUIET)
    spark.sql(f"INSERT INTO {name.sql} VALUES (1000, 'click', TIMESTAMP '2025-01-17')")
    impact = prover.judge(None, planned=(0, 0), target_bytes=None)
    verdicts = {str(check.name): str(check.verdict) for check in impact.checks}
    assert verdicts["rows"] == "PASSED"
    assert (verdicts["query_result"], impact.foreign_commits) == ("NOT_APPLICABLE", 1)
    assert prover._go_back(impact) == "1 commit(s) of others would be lost"
    spark.sql(f"INSERT INTO {name.sql} VALUES (1001, 'click', TIMESTAMP '2025-01-17')")
    assert spark.table(name.sql).count() == 62


def test_a_fingerprint_sees_nulls_that_swap_zeros_that_turn_and_pairs_that_double(
    spark: SparkSession, name: TableName
) -> None:
    spark.sql(f"CREATE TABLE {name.sql} (a string, b string, x double, m map<string, double>) USING iceberg")
    rows = [
        "('v', null, 0.0D, map('k', 1.0D))",
        "(null, 'v', 0.0D, map('k', 1.0D))",
        "('v', null, -0.0D, map('k', 1.0D))",
        "('v', null, 0.0D, map('k', 2.0D))",
    ]
    found = set()
    for row in rows:
        spark.sql(f"INSERT OVERWRITE {name.sql} VALUES {row}")
        found.add(of_head(spark, name).hash_sum)
    assert len(found) == len(rows)
    spark.sql(f"INSERT OVERWRITE {name.sql} VALUES {rows[0]}, {rows[1]}")
    once = of_head(spark, name)
    spark.sql(f"INSERT OVERWRITE {name.sql} VALUES {rows[1]}, {rows[0]}")
    assert of_head(spark, name) == once
    spark.sql(f"INSERT OVERWRITE {name.sql} VALUES {rows[0]}, {rows[1]}, {rows[2]}, {rows[2]}")
    assert of_head(spark, name).hash_sum != once.hash_sum


@pytest.mark.parametrize(
    "text", ["DROP TABLE {t}", "SELECT 1; DROP TABLE {t}", "INSERT INTO {t} VALUES (1)", "SELECT nosuch FROM {t}",
             "SELECT 1) JOIN (DELETE FROM {t}", "SELECT rand() AS r", "SELECT id FROM range(10001)"],
)  # fmt: skip
def test_what_is_no_query_or_cannot_be_compared_is_refused_and_nothing_changes(
    spark: SparkSession, name: TableName, text: str
) -> None:
    spark.sql(f"CREATE TABLE {name.sql} (id bigint) USING iceberg")
    with pytest.raises(InvalidRequest, match="INVALID_FIELD: query "):
        Query(spark, text.format(t=name.sql)).measure(2)
    assert SparkTable(spark, name).snapshot_id is None
