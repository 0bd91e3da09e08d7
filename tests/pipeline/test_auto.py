"""Automatic runs after Spark's own commits, on real Spark: the rule is core's, and no writer ever fails for it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from regelate.pipeline import auto
from regelate.pipeline.names import TableName
from regelate.pipeline.package import pack
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.tiered import NEVER, Looked, compact_tiers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ON = "'regelate.auto.enabled'='true', 'regelate.auto.min-num-files'='5'"
SECONDS = 120.0


def test_it_is_imported_by_python_alone(tmp_path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(pack(tmp_path)[0])!r}); import regelate.pipeline.auto"
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)


def test_a_look_is_due_when_a_tier_could_be_full_and_when_files_have_gone() -> None:
    looked = Looked(files=60, next_at=90)
    assert [looked.is_due(files) for files in (60, 89, 90, 59, None)] == [False, False, True, True, True]
    assert NEVER.is_due(0)


def create(spark: SparkSession, name: TableName, properties: str, partition: str = "") -> None:
    spark.sql(f"CREATE TABLE {name.sql} (id bigint, p string) USING iceberg {partition} TBLPROPERTIES ({properties})")


def append(spark: SparkSession, name: TableName, first: int, rows: int = 1, p: str = "a") -> None:
    frame = spark.sql(f"SELECT /*+ COALESCE(1) */ id, '{p}' AS p FROM range({first}, {first + rows})")
    frame.writeTo(name.sql).append()


def files_of(spark: SparkSession, name: TableName) -> list[tuple[str, int]]:
    rows = spark.sql(f"SELECT file_path, record_count FROM {name.sql}.files").collect()
    return sorted((row[0], row[1]) for row in rows)


@pytest.mark.spark
def test_a_stream_with_automatic_runs_loses_and_doubles_nothing_and_keeps_few_files(
    spark: SparkSession, name: TableName, tmp_path: Path
) -> None:
    create(spark, name, ON)
    (tmp_path / "in").mkdir()
    for number in range(14):
        (tmp_path / "in" / f"{number:02}.json").write_text(f'{{"id": {number}, "p": "a"}}\n')

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.coalesce(1).writeTo(name.sql).append()

    source = spark.readStream.schema("id bigint, p string").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    stream = source.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = stream.foreachBatch(auto.each_batch(str(name), write)).start()
    query.awaitTermination()
    assert query.exception() is None
    assert auto.drain(SECONDS)
    ids = sorted(row[0] for row in spark.sql(f"SELECT id FROM {name.sql}").collect())
    assert ids == list(range(14))
    log = SparkTable(spark, name).log
    assert [entry.operation for entry in log].count("append") == 14
    assert "replace" in {entry.operation for entry in log}
    assert len(files_of(spark, name)) < 14


@pytest.mark.spark
def test_the_files_that_core_chooses_are_rewritten_and_no_others(spark: SparkSession, name: TableName) -> None:
    create(spark, name, ON, "PARTITIONED BY (p)")
    append(spark, name, 1_000, 20_000, "a")
    for number in range(5):
        append(spark, name, number, 1, "a")
    for number in range(3):
        append(spark, name, 100 + number, 1, "b")
    before = files_of(spark, name)
    done = compact_tiers(SparkTable(spark, name))
    after = files_of(spark, name)
    assert done.told == "1 partition(s) compacted"
    kept = [file for file in before if file in after]
    assert sorted(rows for _, rows in kept) == [1, 1, 1, 20_000]
    assert [rows for _, rows in after if (_, rows) not in kept] == [5]
    assert spark.table(name.sql).count() == 20_008
    assert compact_tiers(SparkTable(spark, name)).told == "not due"
    assert done.looked.next_at == len(after) + 2  # three small files in b: two more could fill a tier


@pytest.mark.spark
@pytest.mark.parametrize("properties", ["'regelate.auto.min-num-files'='2'", "'regelate.auto.enabled'='false'"])
def test_a_table_that_has_it_off_is_left_alone(spark: SparkSession, name: TableName, properties: str) -> None:
    create(spark, name, properties)
    for number in range(3):
        append(spark, name, number)
        auto.after_commit(spark, str(name))
    assert auto.drain(SECONDS)
    assert len(files_of(spark, name)) == 3


@pytest.mark.spark
def test_nothing_that_goes_wrong_reaches_the_writer_and_all_of_it_is_logged(
    spark: SparkSession, name: TableName, caplog: pytest.LogCaptureFixture
) -> None:
    create(spark, name, "'regelate.auto.enabled'='perhaps'")
    append(spark, name, 0)
    for table in ("nobody", "local.by_spark.nobody", "elsewhere.a.b", str(name)):
        auto.after_commit(spark, table)
        assert auto.drain(SECONDS)
    with told_to(spark, url="http://127.0.0.1:9"):
        auto.after_commit(spark, str(name))
        assert auto.drain(SECONDS)
    said = [record.getMessage() for record in caplog.records if record.name == auto.__name__]
    words = ("INVALID_IDENTIFIER", "TABLE_NOT_FOUND", "of elsewhere.a.b: ", "regelate.auto.enabled", "refused")
    assert [word in line for word, line in zip(words, said, strict=True)] == [True] * 5


@pytest.mark.spark
def test_where_a_service_is_named_it_is_told_and_spark_compacts_nothing(spark: SparkSession, name: TableName) -> None:
    create(spark, name, ON)
    with served() as (url, heard), told_to(spark, url=url, tenant="acme", catalog="lake", token="t"):
        for number in range(6):
            append(spark, name, number)
            auto.after_commit(spark, str(name))
        assert auto.drain(SECONDS)
    notice = {"tenant_id": "acme", "catalog": "lake", "namespace": "by_spark", "table": name.table}
    assert heard
    assert {json.dumps(found) for found in heard} == {json.dumps(["/events/commit", "Bearer t", notice])}
    assert len(files_of(spark, name)) == 6


@contextmanager
def told_to(spark: SparkSession, **conf: str) -> Iterator[None]:
    for key, value in conf.items():
        spark.conf.set(auto.PREFIX + key, value)
    try:
        yield
    finally:
        for key in conf:
            spark.conf.unset(auto.PREFIX + key)


@contextmanager
def served() -> Iterator[tuple[str, list[Any]]]:
    """A server that remembers what it was sent: path, authorization, body."""
    heard: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard.append([self.path, self.headers["Authorization"], body])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"status": "SUBMITTED"}')

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        server.shutdown()
        server.server_close()
