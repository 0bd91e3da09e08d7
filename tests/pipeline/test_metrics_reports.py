"""Reports that Iceberg's Java makes of scans reach a fleet's memory, and change what is done first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from regelate.service import fleet_reads
from tests.system.faults.test_fleet_desk import ill, stack_of
from tests.system.faults.test_fleet_reads import path_of, reported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def scan_report(spark: SparkSession, metadata_location: str, name: str) -> dict[str, Any]:
    """Plan a scan of a whole table as Spark does, and return the report as Iceberg's REST client sends it."""
    jvm: Any = spark._jvm
    iceberg: Any = jvm.org.apache.iceberg
    files = iceberg.hadoop.HadoopFileIO(jvm.org.apache.hadoop.conf.Configuration())
    reporter = iceberg.metrics.InMemoryMetricsReporter()
    table = iceberg.BaseTable(iceberg.StaticTableOperations(metadata_location, files), name, reporter)
    planned = table.newBatchScan().planFiles()
    tasks = planned.iterator()
    while tasks.hasNext():
        tasks.next()
    planned.close()
    sent = iceberg.rest.requests.ReportMetricsRequest.of(reporter.scanReport())
    found: dict[str, Any] = json.loads(iceberg.rest.requests.ReportMetricsRequestParser.toJson(sent))
    return found


def test_scan_reports_of_java_count_as_reads_and_put_the_table_that_is_read_first(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_reads, "BUNDLE_SECONDS", 0.0)
    stack = stack_of(tmp_path)
    ill(stack, "worse", 9)
    ill(stack, "read", 8)
    stack.ok("FLEET_SCAN")
    assert [run["table"] for run in stack.ok("FLEET_PLAN")["runs"]] == ["default.worse", "default.read"]
    one = scan_report(spark, stack.table("default.worse").metadata_location, "local.default.worse")
    many = scan_report(spark, stack.table("default.read").metadata_location, "local.default.read")
    assert reported(stack, path_of("worse"), one) == (204, None)
    for _ in range(30):
        assert reported(stack, path_of("read"), many) == (204, None)
    first, second = stack.ok("FLEET_PLAN")["runs"]
    assert [first["table"], second["table"]] == ["default.read", "default.worse"]
    assert first["benefit_per_day"] > second["benefit_per_day"] > 0
