"""`python -m benchmarks.stream_auto [--minutes 10]`: a stream with a trigger each second, automatic runs off and on.

Both arms in one Spark session with two slots, one after the other, the same rows: 500 a second. Needs pyspark
(`make setup-spark`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measuring import RESULTS, ROOT
from regelate.pipeline import auto
from regelate.pipeline.names import TableName
from regelate.pipeline.session import Launch, embedded_lake, open_session

ROWS_PER_SECOND = 500
TRIGGER = "1 second"
ARMS = {"off": "false", "on": "true"}
LIMIT = 1.1
WARM_UP_SECONDS = 45.0
WARM_UP_BATCHES = 10
"""The first batches pay for Java's compilers; neither arm's are counted."""


def arm(spark: Any, work: Path, name: str, enabled: str, seconds: float) -> dict[str, Any]:
    """Stream into a table of its own for so long, and say what became of it."""
    table = TableName.parse(f"local.bench.{name}")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.bench")
    spark.sql(
        f"CREATE TABLE {table.sql} (value bigint, at timestamp) USING iceberg "
        f"TBLPROPERTIES ('regelate.auto.enabled'='{enabled}')"
    )

    def write(frame: Any, batch_id: int) -> None:
        frame.selectExpr("value", "timestamp AS at").coalesce(1).writeTo(table.sql).append()

    source = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_SECOND).load()
    stream = source.writeStream.option("checkpointLocation", str(work / f"checkpoint-{name}"))
    query = stream.trigger(processingTime=TRIGGER).foreachBatch(auto.each_batch(str(table), write)).start()
    most, ended = 0, threading.Event()

    def count() -> None:
        nonlocal most
        while not ended.wait(5):
            most = max(most, _files(spark, table))

    counting = threading.Thread(target=count)
    counting.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and query.isActive:
        time.sleep(1)
    fault = query.exception()
    query.stop()
    ended.set()
    counting.join()
    drained = auto.drain(120)
    batches = [b for b in query.recentProgress if b["numInputRows"]]
    batches = batches[WARM_UP_BATCHES:] or batches
    took = sorted(b["durationMs"]["triggerExecution"] for b in batches)
    rows = spark.sql(f"SELECT count(*), count(DISTINCT value), min(value), max(value) FROM {table.sql}").collect()[0]
    replaced = spark.sql(f"SELECT count(*) FROM {table.sql}.snapshots WHERE operation = 'replace'").collect()[0][0]
    return {
        "batches": len(took),
        "median ms": statistics.median(took),
        "p95 ms": took[round(0.95 * (len(took) - 1))],
        "slowest ms": took[-1],
        "rows": rows[0],
        "rows = source": tuple(rows[1:]) == (rows[0], 0, rows[0] - 1),
        "most files": max(most, _files(spark, table)),
        "files left": _files(spark, table),
        "compactions": replaced,
        "stream failed": fault is not None,
        "drained": drained,
    }


def _files(spark: Any, table: TableName) -> int:
    """Return what the head's summary counts, by the catalog alone: a query would be work beside the stream."""
    java = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table.sql)
    head = java.currentSnapshot()
    return 0 if head is None else int(head.summary().get("total-data-files"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream_auto", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each arm")
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="regelate-stream-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        conf = {
            "spark.jars.ivy": str(ROOT / ".servers" / "ivy"),
            "spark.sql.streaming.numRecentProgressUpdates": "9999",
        }
        spark = open_session(embedded_lake(work / "lake"), Launch(conf=conf), app_name="stream_auto")
        arm(spark, work, "warm", "true", WARM_UP_SECONDS)  # what is compiled in its course serves both arms
        found = {name: arm(spark, work, name, enabled, minutes * 60) for name, enabled in ARMS.items()}
        spark.stop()
    ratio = found["on"]["p95 ms"] / found["off"]["p95 ms"]
    lines = [
        f"# stream_auto: a trigger of {TRIGGER}, automatic runs off and on, {minutes:g} minutes each",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, 2 slots of Spark for the stream and the runs, {ROWS_PER_SECOND} rows a second.",
        "",
        f"| automatic runs | {' | '.join(found['off'])} |",
        "|" + "---|" * (len(found["off"]) + 1),
        *(f"| {name} | {' | '.join(str(value) for value in told.values())} |" for name, told in found.items()),
        "",
        f"p95 of the time of a batch, on / off: {ratio:.2f} (promised {LIMIT})",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "stream_auto.md").write_text(text)


if __name__ == "__main__":
    main()
