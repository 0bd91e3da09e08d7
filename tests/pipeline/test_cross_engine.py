"""Two engines, one table: what Spark wrote the service compacts, what the service wrote Spark compacts, no row changes.

Every row is read by Spark, before and after; the service's own reader has no part in the verdict.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from regelate.pipeline.events import EVENT_COLUMNS, Stream
from regelate.pipeline.ingest import create, distribution
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.names import TableName
from regelate.pipeline.options import Rewrite
from regelate.pipeline.rewrite import plan_rewrite, run_rewrite
from regelate.pipeline.streams import rate_stream, write_stream
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal
from tests.spark.iceberg import delete_by_key
from tests.support.iceberg_tables import live_delete_files
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
QUIET = Terminal(quiet=True)
MakeEvents = Callable[..., None]
COMPACTIONS = 10


def rows_of(spark: SparkSession, name: TableName, at: str = "") -> Counter[str]:
    """Every row as a text, with how often it is there. `at`: a branch, a tag or a snapshot."""
    return Counter(repr(tuple(row)) for row in spark.sql(f"SELECT * FROM {name.sql} {at}").collect())


def compact_by_service(lake: Lake, name: TableName, **request: Any) -> dict[str, Any]:
    asked = {"force": True, "expire_snapshots": False, **request}
    return lake.compact(".".join((*name.namespace, name.table)), **asked)


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_the_service_compacts_a_merge_on_read_table_that_evolved_under_spark(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents, granularity: str
) -> None:
    merge_on_read = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}
    make_events(name, rounds=3, properties={**merge_on_read, "write.delete.granularity": granularity})
    spark.sql(f"DELETE FROM {name.sql} WHERE id % 7 = 3")
    spark.sql(f"ALTER TABLE {name.sql} CREATE TAG before")
    spark.sql(f"ALTER TABLE {name.sql} CREATE BRANCH side")
    spark.sql(f"INSERT INTO {name.sql}.branch_side VALUES (900, 'side', TIMESTAMP '2025-01-18')")
    spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN extra string")
    spark.sql(f"ALTER TABLE {name.sql} REPLACE PARTITION FIELD kind WITH bucket(2, id)")
    for number in (1000, 1010):
        spark.sql(
            f"INSERT INTO {name.sql} SELECT id, 'view', TIMESTAMP '2025-01-18', concat('x', id) "
            f"FROM range({number}, {number + 10})"
        )
    spark.sql(f"UPDATE {name.sql} SET extra = 'changed' WHERE id IN (1, 5, 1003, 1015)")
    places = ("", "VERSION AS OF 'before'", "VERSION AS OF 'side'")
    before = [rows_of(spark, name, at) for at in places]
    answer = compact_by_service(lake, name)
    assert answer["status"] == "COMPLETED", answer
    assert answer["stats"]["files_compacted"] >= 9
    assert answer["stats"]["delete_files_removed"] >= 1
    assert [rows_of(spark, name, at) for at in places] == before


def test_the_service_applies_equality_deletes_of_the_reference_writer(
    spark: SparkSession, lake: Lake, name: TableName
) -> None:
    spark.sql(f"CREATE TABLE {name.sql} (id int, word string) USING iceberg TBLPROPERTIES ('format-version'='2')")
    for start in (0, 10):
        spark.sql(
            f"INSERT INTO {name.sql} SELECT /*+ COALESCE(1) */ CAST(id AS int), 'w' FROM range({start}, {start + 10})"
        )
    delete_by_key(spark, str(name), (1, 11))
    spark.sql(f"INSERT INTO {name.sql} VALUES (1, 'again')")
    before = rows_of(spark, name)
    assert sum(before.values()) == 19
    assert len(live_delete_files(lake.other_client().load_table((*name.namespace, name.table)))) == 1
    assert compact_by_service(lake, name)["status"] == "COMPLETED"
    assert rows_of(spark, name) == before
    assert live_delete_files(lake.other_client().load_table((*name.namespace, name.table))) == []


def test_spark_compacts_what_the_service_wrote_and_compacted(spark: SparkSession, lake: Lake) -> None:
    name = TableName.parse("local.by_service.orders")
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "word", StringType(), required=False)
    )
    table = lake.table(schema, ident="by_service.orders")
    for start in (0, 10, 20):
        lake.write(table, [{"id": n, "word": f"it's {n}"} for n in range(start, start + 10)])
    lake.write(table, [{"id": n, "word": "changed"} for n in (3, 13)], mode="upsert", key=("id",))
    assert compact_by_service(lake, name)["status"] == "COMPLETED"
    for start in (30, 40):
        lake.write(table, [{"id": n, "word": None} for n in range(start, start + 10)])
    before = rows_of(spark, name)
    assert sum(before.values()) == 50
    done = maintain(SparkTable(spark, name), Job(rewrite=Rewrite(options={"min-input-files": "2"})), QUIET)
    assert done.stats is not None
    assert done.stats.files_after == 1
    assert rows_of(spark, name) == before


def test_spark_reads_the_values_that_an_upsert_kept_of_its_own_rows(
    spark: SparkSession, lake: Lake, name: TableName
) -> None:
    """The service reads what Spark stored, of every kind and from before the columns changed, and writes it again."""
    spark.sql(
        f"CREATE TABLE {name.sql} (id bigint NOT NULL, d decimal(9,2), t timestamp, z timestamp_ntz, f float, "
        "b binary, day date, s struct<a: int, l: array<string>>, m map<string, double>, "
        "kind string NOT NULL, v string) "
        "USING iceberg PARTITIONED BY (kind) TBLPROPERTIES ('write.delete.mode'='merge-on-read')"
    )
    for number in (0, 5):
        spark.sql(
            f"INSERT INTO {name.sql} SELECT id, id + 0.25, timestamp_micros(id - 1), "
            "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999', float(1) / id, cast(concat('x', id) AS binary), "
            "date_from_unix_date(cast(id AS int) - 3), "
            "named_struct('a', cast(id AS int), 'l', array('y', NULL)), map('k', double('NaN'), 'z', -0.0D), "
            f"concat('kind ', id % 2), 'old' FROM range({number}, {number + 5})"
        )
    spark.sql(f"INSERT INTO {name.sql} VALUES (100, {'NULL, ' * 8}'kind 1', NULL)")
    spark.sql(f"DELETE FROM {name.sql} WHERE id = 3")
    spark.sql(f"ALTER TABLE {name.sql} ALTER COLUMN f TYPE double")
    spark.sql(f"ALTER TABLE {name.sql} RENAME COLUMN day TO on_day")
    spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN s.x string")
    spark.sql(f"ALTER TABLE {name.sql} REPLACE PARTITION FIELD kind WITH bucket(3, id)")
    others = "id, d, t, z, f, b, on_day, s, m, kind"
    kept = f"SELECT {others} FROM {name.sql}"
    before = Counter(repr(tuple(row)) for row in spark.sql(kept).collect())
    records = [{"id": n, "v": f"new {n}"} for n in (0, 1, 2, 4, 5, 6, 7, 100)]
    answer = lake.write(
        f"{name.namespace[0]}.{name.table}", records, mode="upsert", key=("id",), missing_columns="keep"
    )
    assert answer["records_written"] == 8
    spark.sql(f"REFRESH TABLE {name.sql}")
    assert Counter(repr(tuple(row)) for row in spark.sql(kept).collect()) == before
    changed = {row.id: row.v for row in spark.sql(f"SELECT id, v FROM {name.sql}").collect()}
    assert changed == {**dict.fromkeys((8, 9), "old"), **{record["id"]: record["v"] for record in records}}


def test_a_table_that_the_service_compacts_between_plan_and_call_is_planned_anew(
    spark: SparkSession, lake: Lake, name: TableName, make_events: MakeEvents
) -> None:
    make_events(name, rounds=2)
    before, table = rows_of(spark, name), SparkTable(spark, name)
    planned = plan_rewrite(table, Rewrite(options={"min-input-files": "2"}), now_ms=0)
    assert planned.plan.files == 6
    assert compact_by_service(lake, name)["status"] == "COMPLETED"
    done = run_rewrite(table, planned, QUIET)
    assert done.stats is not None
    assert (done.stats.files_compacted, done.stats.files_after, done.stats.dropped_groups) == (0, 3, 0)
    assert rows_of(spark, name) == before


def test_a_stream_of_spark_never_fails_and_loses_nothing_while_the_service_compacts_ten_times(
    spark: SparkSession, lake: Lake, name: TableName, tmp_path: Path
) -> None:
    table = create(spark, name, EVENT_COLUMNS, "event_type", distribution(optimized=False))
    source = rate_stream(spark, Stream(events=100, batches=5))
    write_stream(table, source, str(tmp_path / "checkpoint"), QUIET, batches=2)
    writer = source.writeStream.format("iceberg").outputMode("append").option("check-nullability", "false")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option("fanout-enabled", "true")
    query = writer.toTable(name.sql)
    try:
        landed = 0
        for _ in range(20 * COMPACTIONS):
            landed += compact_by_service(lake, name)["status"] in ("COMPLETED", "PARTIAL")
            assert query.exception() is None
            if landed >= COMPACTIONS:
                break
            wait_for_a_commit(lake, name)
    finally:
        query.stop()
    assert landed == COMPACTIONS
    ids = [row[0] for row in spark.sql(f"SELECT event_id FROM {name.sql}").collect()]
    assert len(ids) > 100
    assert sorted(ids) == [f"evt_{i:08d}" for i in range(len(ids))]


def wait_for_a_commit(lake: Lake, name: TableName, patience_seconds: float = 60.0) -> None:
    """Wait until the table has another head."""
    catalog, ident = lake.other_client(), (*name.namespace, name.table)
    head = catalog.load_table(ident).metadata_location
    end = time.monotonic() + patience_seconds
    while catalog.load_table(ident).metadata_location == head and time.monotonic() < end:
        time.sleep(0.05)
