"""Spark reads through a REST catalog whose proxy hands its reports to a fleet: what is read is done first."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from regelate.pipeline.session import open_session
from regelate.service import fleet_reads
from tests.catalogs.lakes import rest
from tests.catalogs.served import stack_on
from tests.pipeline.conftest import LAUNCH
from tests.servers.proxy import Exchange, door_before
from tests.system.faults.stack import Stack
from tests.system.faults.test_fleet_reads import reported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.catalogs
READS = 20


class Receiver:
    """Hands reports to the program as the proxy before a catalog would, and remembers how it answered."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._arrived = threading.Condition()
        self.answers: Counter[tuple[str, int]] = Counter()

    def take(self, exchange: Exchange) -> None:
        path = exchange.handler.path
        status, _ = reported(self._stack, path, exchange.body.decode())
        exchange.answer(status, [], b"")
        with self._arrived:
            self.answers[path, status] += 1
            self._arrived.notify_all()

    def wait(self, path: str, times: int) -> None:
        """Wait for so many reports: Iceberg sends them when a scan is planned, by a thread of its own."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self.answers[path, 204] >= times, timeout=60), self.answers


def test_the_table_that_a_spark_reads_through_a_rest_catalog_is_compacted_first(
    spark: SparkSession, iceberg_rest: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_reads, "BUNDLE_SECONDS", 0.0)
    fleet = {"store": "sqlite", "path": str(folder / "fleet.db")}
    stack = stack_on(folder, {"type": "rest", "uri": iceberg_rest}, fleet=fleet)
    receiver = Receiver(stack)
    with door_before(iceberg_rest) as door:
        door.breaks(lambda asked: asked.method == "POST" and asked.key.endswith("/metrics"), receiver.take)
        open_session(rest("reading", door.url).spark, LAUNCH, app_name="catalogs")
        spark.sql("CREATE NAMESPACE IF NOT EXISTS reading.reports")
        for table, inserts in (("worse", 9), ("read", 8)):
            spark.sql(f"CREATE TABLE reading.reports.{table} (id bigint) USING iceberg")
            for number in range(inserts):
                spark.sql(f"INSERT INTO reading.reports.{table} SELECT /*+ COALESCE(1) */ id FROM range({number}, 9)")
        stack.ok("FLEET_SCAN")
        ours = {f"reports.{table}" for table in ("worse", "read")}
        assert [run["table"] for run in stack.ok("FLEET_PLAN")["runs"] if run["table"] in ours] == [
            "reports.worse",
            "reports.read",
        ]
        for _ in range(READS):
            spark.sql("SELECT sum(id) FROM reading.reports.read").collect()
        spark.sql("SELECT sum(id) FROM reading.reports.worse").collect()
        receiver.wait("/v1/namespaces/reports/tables/read/metrics", READS)
        receiver.wait("/v1/namespaces/reports/tables/worse/metrics", 1)
    first, second = (run for run in stack.ok("FLEET_PLAN")["runs"] if run["table"] in ours)
    assert [first["table"], second["table"]] == ["reports.read", "reports.worse"]
    assert first["benefit_per_day"] > second["benefit_per_day"] > 0
    assert "times a day" in first["reason"]
