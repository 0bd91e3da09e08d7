"""`python -m benchmarks.stream_auto [--minutes 10]`: a stream with a trigger each second, automatic runs off and on.

Two streams in one Spark session with two slots, the same settings, 500 rows a second. They take turns of a minute, now
one first, now the other: what else the machine does meets both alike. Needs pyspark (`make setup-spark`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
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
TURN_SECONDS = 60.0
WARM_UP_SECONDS = 45.0
WARM_UP_BATCHES = 5
"""The first batches of a turn are not counted: the very first has all rows that came while the stream had a rest."""
DRAIN_SECONDS = 120.0


class Arm:
    """A stream into a table of its own, which goes on in each turn where it was stopped."""

    def __init__(self, spark: Any, work: Path, name: str, enabled: str) -> None:
        self._spark = spark
        self._table = TableName.parse(f"local.bench.{name}")
        self._checkpoint = work / f"checkpoint-{name}"
        self._written: set[int] = set()
        self._writing = threading.Lock()
        self._faults = self._undrained = self._most = 0
        self.turns: list[list[int]] = []
        """Milliseconds of each batch that is counted, by turn."""
        spark.sql("CREATE NAMESPACE IF NOT EXISTS local.bench")
        spark.sql(
            f"CREATE TABLE {self._table.sql} (value bigint, at timestamp) USING iceberg "
            f"TBLPROPERTIES ('regelate.auto.enabled'='{enabled}')"
        )

    def turn(self, seconds: float) -> None:
        """Stream for so long, and wait until what that set off is done: the other arm's turn must not pay for it."""
        source = self._spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_SECOND).load()
        stream = source.writeStream.option("checkpointLocation", str(self._checkpoint)).trigger(processingTime=TRIGGER)
        query = stream.foreachBatch(auto.each_batch(str(self._table), self._write)).start()
        ended = threading.Event()
        counting = threading.Thread(target=self._count, args=(ended,))
        counting.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and query.isActive:
            time.sleep(1)
        self._faults += query.exception() is not None
        query.stop()
        ended.set()
        counting.join()
        with self._writing:  # a batch that stop() has met in its midst lands, or fails, before the other's turn
            self._undrained += not auto.drain(DRAIN_SECONDS)
        took = [b["durationMs"]["triggerExecution"] for b in query.recentProgress if b["numInputRows"]]
        self.turns.append(took[WARM_UP_BATCHES:])

    def outcome(self) -> dict[str, Any]:
        """Return what became of all turns, in the order of the report's columns."""
        took = sorted(ms for turn in self.turns for ms in turn)
        numbers = "count(*), count(DISTINCT value), min(value), max(value)"
        rows = self._spark.sql(f"SELECT {numbers} FROM {self._table.sql}").collect()[0]
        of_runs = f"SELECT count(*) FROM {self._table.sql}.snapshots WHERE operation = 'replace'"
        return {
            "batches": len(took),
            "median ms": statistics.median(took),
            "p95 ms": percentile(took, 0.95),
            "slowest ms": took[-1],
            "rows": rows[0],
            "rows = source": tuple(rows[1:]) == (rows[0], 0, rows[0] - 1),
            "most files": max(self._most, self._files()),
            "files left": self._files(),
            "compactions": self._spark.sql(of_runs).collect()[0][0],
            "turns that failed": self._faults,
            "turns not drained": self._undrained,
        }

    def _write(self, frame: Any, batch_id: int) -> None:
        """Append a batch once: Spark repeats the one that a turn's end had met after it was written."""
        with self._writing:
            if batch_id not in self._written:
                frame.selectExpr("value", "timestamp AS at").coalesce(1).writeTo(self._table.sql).append()
                self._written.add(batch_id)

    def _count(self, ended: threading.Event) -> None:
        while not ended.wait(5):
            self._most = max(self._most, self._files())

    def _files(self) -> int:
        """Return what the head's summary counts, by the catalog alone: a query would be work beside the stream."""
        util = self._spark._jvm.org.apache.iceberg.spark.Spark3Util
        head = util.loadIcebergTable(self._spark._jsparkSession, self._table.sql).currentSnapshot()
        return 0 if head is None else int(head.summary().get("total-data-files"))


def percentile(took: Sequence[int], share: float) -> int:
    return sorted(took)[round(share * (len(took) - 1))]


def taking_turns(arms: dict[str, Arm], turns: int) -> list[float]:
    """Give each arm so many turns, and return the load of the machine at the end of each."""
    load = []
    for number in range(turns):
        for name in sorted(arms, reverse=number % 2 == 1):
            arms[name].turn(TURN_SECONDS)
            load.append(os.getloadavg()[0])
            print(f"  turn {number + 1}/{turns} {name:3} load {load[-1]:.1f}", flush=True)
    return load


def report(arms: dict[str, Arm], load: Sequence[float], minutes: float) -> str:
    found = {name: arm.outcome() for name, arm in arms.items()}
    ratio = found["on"]["p95 ms"] / found["off"]["p95 ms"]
    pairs = [percentile(on, 0.95) / percentile(off, 0.95) for on, off in zip(*_turns(arms), strict=True) if on and off]
    verdict = "met" if ratio <= LIMIT else "NOT MET"
    lines = [
        f"# stream_auto: a trigger of {TRIGGER}, automatic runs off and on, {minutes:g} minutes each",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, 2 slots of Spark for the stream and the runs, {ROWS_PER_SECOND} rows a second, "
        f"turns of {TURN_SECONDS:g} seconds; {os.cpu_count()} processors, load while it ran: median "
        f"{statistics.median(load):.1f}, most {max(load):.1f}.",
        "",
        f"| automatic runs | {' | '.join(found['off'])} |",
        "|" + "---|" * (len(found["off"]) + 1),
        *(f"| {name} | {' | '.join(str(value) for value in told.values())} |" for name, told in found.items()),
        "",
        f"- p95 of the time of a batch, on / off: {ratio:.2f} (promised {LIMIT}: {verdict})",
        f"- the same by pairs of turns: median {statistics.median(pairs):.2f}, "
        f"from {min(pairs):.2f} to {max(pairs):.2f}",
    ]
    return "\n".join(lines) + "\n"


def _turns(arms: dict[str, Arm]) -> tuple[list[list[int]], list[list[int]]]:
    return arms["on"].turns, arms["off"].turns


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
        Arm(spark, work, "warm", "true").turn(WARM_UP_SECONDS)  # what is compiled in its course serves both arms
        arms = {name: Arm(spark, work, name, enabled) for name, enabled in ARMS.items()}
        load = taking_turns(arms, max(1, round(minutes * 60 / TURN_SECONDS)))
        text = report(arms, load, minutes)
        spark.stop()
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "stream_auto.md").write_text(text)


if __name__ == "__main__":
    main()
