"""Structured Streaming into Iceberg: checkpointed, so that stopping and starting again loses and doubles nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.errors import DataUnavailable
from regelate.pipeline.events import DEVICE_TYPES, EVENT_TYPES, Stream
from regelate.pipeline.spark_errors import spark_faults
from regelate.pipeline.sql import text
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ADVANCE_MS = 600_000
POLL_SECONDS = 0.2


def rate_stream(spark: SparkSession, stream: Stream) -> DataFrame:
    """Return an endless stream of events, one batch of `stream.batch_size` per trigger; its numbers never repeat."""
    from datetime import UTC, datetime

    start = datetime.combine(stream.day, datetime.min.time(), UTC)
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", stream.batch_size)
        .option("numPartitions", spark.sparkContext.defaultParallelism)
        .option("startTimestamp", round(start.timestamp() * 1000))
        .option("advanceMillisPerBatch", ADVANCE_MS)
        .load()
    )
    return source.selectExpr(
        "format_string('evt_%08d', value) AS event_id",
        "CAST(pmod(xxhash64(value), 10000) + 1 AS INT) AS user_id",
        f"element_at({_array(EVENT_TYPES)}, CAST(pmod(value, {len(EVENT_TYPES)}) + 1 AS INT)) AS event_type",
        "timestamp AS event_timestamp",
        "CASE WHEN pmod(value, 5) = 2 THEN CAST(pmod(xxhash64(value, 1), 100000) / 100 AS DOUBLE) END AS event_value",
        f"element_at({_array(DEVICE_TYPES)}, CAST(pmod(value, {len(DEVICE_TYPES)}) + 1 AS INT)) AS device_type",
        "concat('session_', pmod(xxhash64(value), 100)) AS session_id",
    )


def _array(values: tuple[str, ...]) -> str:
    return f"array({', '.join(text(value) for value in values)})"


def json_stream(spark: SparkSession, folder: str, columns: str, *, files_per_trigger: int) -> DataFrame:
    """Return the JSON lines of a folder as a stream, some files per trigger; a line that is no such event fails it."""
    reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", files_per_trigger).option("mode", "FAILFAST")
    return reader.json(folder)


def write_stream(
    table: SparkTable, source: DataFrame, checkpoint: str, terminal: Terminal, *, batches: int | None
) -> None:
    """Write a stream into a table. `batches`: stop after so many (a few more may land); None: when all is read.

    The checkpoint belongs to this table and this source: the next run goes on where this one stopped. A batch that
    landed while it stopped is among the next run's, which repeats it and finds it there.
    """
    with spark_faults(str(table.name)):
        writer = (
            source.writeStream.format("iceberg")
            .outputMode("append")
            .option("checkpointLocation", checkpoint)
            .option("fanout-enabled", "true")
            .option("check-nullability", "false")
        )
        trigger: dict[str, Any] = {"availableNow": True} if batches is None else {"processingTime": "0 seconds"}
        query = writer.trigger(**trigger).toTable(table.name.sql)
        try:
            ended = _follow(query, terminal, batches)
        finally:
            query.stop()
        fault = query.exception()
        if fault is not None and (ended or not _was_interrupted(query)):
            raise fault


def _was_interrupted(query: StreamingQuery) -> bool:
    """Say whether the query ended because its thread was stopped in the midst of a batch, which the next run repeats:
    Iceberg keeps the number of the last batch in the table, and passes over one that has landed."""
    jvm_query: Any = query._jsq
    fault = jvm_query.exception().get()
    while fault is not None:
        if "Interrupted" in fault.getClass().getName():
            return True
        fault = fault.getCause()
    return False


def _follow(query: StreamingQuery, terminal: Terminal, batches: int | None) -> bool:
    """Wait until the query has committed so many batches that hold rows since it was started, or has ended by itself;
    say whether it has ended."""
    done: set[int] = set()
    while query.isActive:
        query.awaitTermination(POLL_SECONDS)
        fresh = {p["batchId"] for p in query.recentProgress if p["numInputRows"]} - done
        done |= fresh
        if fresh and len(done) // 10 > (len(done) - len(fresh)) // 10:
            terminal.say(f"  {len(done)} micro-batches written")
        if batches is not None and len(done) >= batches:
            return False
    return True


def check_folder(folder: str) -> str:
    """Return the folder as Spark takes it. Errors: DataUnavailable DATA_FILE_MISSING where it is a local one that is
    not there."""
    if "://" not in folder and not Path(folder).is_dir():
        raise DataUnavailable("DATA_FILE_MISSING", f"{folder} is not a folder", path=folder)
    return folder
