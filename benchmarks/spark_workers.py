"""What is measured on Spark, and the table that only Spark can write; each a process of its own, as in workers.py."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.process_tree import processor_seconds
from regelate.pipeline.session import Launch, embedded_lake, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
LAUNCH = Launch(
    master="local[2]",
    driver_memory="4g",
    conf={"spark.jars.ivy": str(ROOT / ".servers" / "ivy"), "spark.sql.shuffle.partitions": "4"},
)
TARGET_MB = 128
REWRITE = """\
CALL local.system.rewrite_data_files(table => 'bench.{table}', strategy => 'binpack', options => map(
  'target-file-size-bytes', '{target}', 'min-input-files', '2', 'rewrite-all', '{all}',
  'max-concurrent-file-group-rewrites', '2', 'use-starting-sequence-number', 'false'))"""
WARM_UPS = 3
"""Rewrites of a small table before the clock starts: by then the second compiler has seen the paths that matter."""


def _session(home: Path) -> SparkSession:
    return open_session(embedded_lake(home), LAUNCH, app_name="bench")


def _rewrite(spark: SparkSession, table: str, options: tuple[str, ...], *, everything: bool = False) -> None:
    """Call the procedure; the first of the options is the target in MB."""
    target = int(options[0]) if options else TARGET_MB
    spark.sql(REWRITE.format(table=table, target=target << 20, all=str(everything).lower())).collect()


def one_shot(home: Path, *options: str) -> dict[str, Any]:
    """A process that starts Spark, calls the procedure and ends; the parent's clock counts all of it."""
    spark = _session(home)
    before = time.perf_counter()
    _rewrite(spark, "events", options)
    seconds = time.perf_counter() - before
    spark.stop()
    return {"seconds": None, "call_seconds": seconds}


def warm(home: Path, *options: str) -> dict[str, Any]:
    """The procedure alone, in a session that has rewritten a part of the same rows before."""
    spark = _session(home)
    spark.sql("CREATE TABLE local.bench.warm_up USING iceberg AS SELECT * FROM local.bench.events WHERE id % 10 = 0")
    for _ in range(WARM_UPS):
        _rewrite(spark, "warm_up", options, everything=True)
    before, processor = time.perf_counter(), processor_seconds(os.getpid())
    _rewrite(spark, "events", options)
    seconds, spent = time.perf_counter() - before, processor_seconds(os.getpid()) - processor
    spark.stop()
    return {"seconds": seconds, "processor_seconds": spent}


def make_deletes(home: Path, folder: str, deletes: str) -> dict[str, Any]:
    """Make `bench.events`, partitioned by kind: an insert for each Parquet file of a folder, then so many deletes.

    The deletes are merged on read: position delete files, one for each data file that they touch.
    """
    spark = _session(home)
    sources = sorted(Path(folder).glob("*.parquet"))
    fields = spark.read.parquet(str(sources[0])).schema.fields
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
    spark.sql("CREATE NAMESPACE local.bench")
    spark.sql(
        f"CREATE TABLE local.bench.events ({columns}) USING iceberg PARTITIONED BY (kind) TBLPROPERTIES ("
        "'write.delete.mode' = 'merge-on-read', 'write.distribution-mode' = 'none')"
    )
    for source in sources:
        rows = spark.read.parquet(str(source)).repartition(2)  # each task writes a file into each partition
        rows.writeTo("local.bench.events").option("fanout-enabled", "true").append()
    for number in range(int(deletes)):
        spark.sql(f"DELETE FROM local.bench.events WHERE id % 97 = {number}")
    spark.stop()
    return {"seconds": 0.0}
