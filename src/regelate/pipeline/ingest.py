"""Writes tables as pipelines do, by many small commits: micro-batches and merges; and what prevents their files."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from regelate.core.jobs.exit_codes import DONE
from regelate.core.policy.policy import MB
from regelate.core.policy.sizes import size_text
from regelate.core.table.table import SnapshotEntry
from regelate.core.values import dataclass
from regelate.errors import RegelateError
from regelate.pipeline.metadata import shows_head_alone
from regelate.pipeline.names import TableName, quoted
from regelate.pipeline.result import Status
from regelate.pipeline.spark_errors import spark_faults
from regelate.pipeline.sql import text
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WRITERS = ("write", "write.merge", "write.update", "write.delete")
MERGE_ON_READ = {f"{writer}.mode": "merge-on-read" for writer in _WRITERS[1:]}
WHOLE_PARTITIONS = {"spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "false"}
"""Spark's settings for an optimized write. Else what one task has too much of is split by where it comes from: each
piece has rows of all partitions of that task, so a small one that shares it with a large one becomes as many files."""
TOLD_EVERY = 10
_SOURCE = "regelate_changes"


def distribution(*, optimized: bool, target_bytes: int = 128 * MB) -> dict[str, str]:
    """Return the table properties that make a writer shuffle rows together before it writes, or that forbid it.

    Optimized: by hash of the partition, in tasks of about one target; a write makes one file per partition where it
    can. Else each task writes a file into every partition that it has rows of, as writers without a shuffle do.
    """
    mode = "hash" if optimized else "none"
    found = {f"{writer}.distribution-mode": mode for writer in _WRITERS}
    if optimized:
        found["write.spark.advisory-partition-size-bytes"] = str(target_bytes)
        found["write.target-file-size-bytes"] = str(target_bytes)
    return found


@contextmanager
def whole_partitions(spark: SparkSession) -> Iterator[None]:
    """Give a session `WHOLE_PARTITIONS` for a while."""
    session: Any = spark
    before = {key: session.conf.get(key, None) for key in WHOLE_PARTITIONS}
    for key, value in WHOLE_PARTITIONS.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, was in before.items():
            if was is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, was)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was committed, by the summaries of the snapshots. `rows`: corrected ones too."""

    source: str
    mode: str
    optimized_write: bool
    commits: int
    rows: int
    files: int
    delete_files: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The answer of one ingest."""

    table: str
    ingest: Written
    started_at_ms: int
    snapshot_before: int | None
    snapshot_after: int | None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        return Status.COMPLETED if self.ingest.commits else Status.NOTHING_TO_DO

    @property
    def exit_code(self) -> int:
        return DONE

    @property
    def error(self) -> RegelateError | None:
        return None

    def as_dict(self) -> dict[str, object]:
        return {
            "success": True,
            "job": "ingest",
            "table": self.table,
            "status": self.status.value,
            "started_at_ms": self.started_at_ms,
            "snapshot_before": self.snapshot_before,
            "snapshot_after": self.snapshot_after,
            "ingest": asdict(self.ingest),
            "versions": dict(self.versions),
        }


def create(
    spark: SparkSession, name: TableName, columns: str, partition: str, properties: Mapping[str, str]
) -> SparkTable:
    """Return the table, made where it is missing; one that is there gets the properties."""
    listed = ", ".join(f"{text(key)} = {text(value)}" for key, value in properties.items())
    with spark_faults(str(name)):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quoted(name.catalog, *name.namespace)}")
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name.sql} ({columns}) USING iceberg PARTITIONED BY ({partition}) "
            f"TBLPROPERTIES ({listed})"
        )
        spark.sql(f"ALTER TABLE {name.sql} SET TBLPROPERTIES ({listed})")
    return SparkTable(spark, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """One ingest: `write` commits into the table; `source` and `mode` say what it is."""

    source: str
    mode: str
    optimized_write: bool
    write: Callable[[SparkTable, Terminal], None]


def ingest(
    table: SparkTable, work: Ingest, terminal: Terminal, *, clock: Callable[[], float] = time.time
) -> IngestResult:
    """Write, and count what became of it from the snapshots that this Spark application added."""
    started_at_ms, began = round(clock() * 1000), time.monotonic()
    before, known = table.head, {entry.snapshot_id for entry in table.log}
    with whole_partitions(table.spark) if work.optimized_write else nullcontext():
        work.write(table, terminal)
    table.refresh()
    counts = _counts(table, before, known)
    written = Written(
        source=work.source,
        mode=work.mode,
        optimized_write=work.optimized_write,
        seconds=round(time.monotonic() - began, 3),
        **counts,
    )
    average = written.size_bytes / written.files if written.files else 0
    terminal.say(
        f"{table.name}: {written.rows:,} rows in {written.commits} commits, {written.files:,} data files of "
        f"{size_text(average)} on average, {written.seconds:.1f} s"
    )
    return IngestResult(
        table=str(table.name),
        ingest=written,
        started_at_ms=started_at_ms,
        snapshot_before=None if before is None else before.snapshot_id,
        snapshot_after=table.snapshot_id,
        versions=table.versions,
    )


_COUNTED = {"rows": "records", "files": "data-files", "delete_files": "delete-files", "size_bytes": "files-size"}
"""Counts of `Written`, by what snapshot summaries call them after `added-` and `total-`."""


def _counts(table: SparkTable, before: SnapshotEntry | None, known: Collection[int]) -> dict[str, int]:
    """Count what this Spark application added, commit by commit; by the totals of first and last, and so with what
    others wrote meanwhile, where the catalog shows the head alone and commits between were never seen."""
    head, first = table.head, 0 if before is None else before.sequence_number
    if head is not None and shows_head_alone(table.log) and head.sequence_number > first + 1:
        ends = ((1, head.summary), (-1, {} if before is None else before.summary))
        return {"commits": head.sequence_number - first} | {
            count: sum(sign * int(summary.get(f"total-{name}", "0")) for sign, summary in ends)
            for count, name in _COUNTED.items()
        }
    added = [entry.summary for entry in table.own_commits(known)]
    return {"commits": len(added)} | {
        count: sum(int(summary.get(f"added-{name}", "0")) for summary in added) for count, name in _COUNTED.items()
    }


def append(table: SparkTable, batches: Iterator[DataFrame], terminal: Terminal) -> None:
    """Commit one append for each frame."""
    for number, frame in enumerate(batches, start=1):
        with spark_faults(str(table.name)):
            frame.writeTo(table.name.sql).append()
        if number % TOLD_EVERY == 0:
            terminal.say(f"  batch {number} written")


def merge(table: SparkTable, batches: Iterator[DataFrame], key: str, terminal: Terminal) -> None:
    """Commit one MERGE for each frame: rows whose key is there are updated, the others inserted."""
    same = f"t.{quoted(key)} = s.{quoted(key)}"
    statement = (
        f"MERGE INTO {table.name.sql} t USING {_SOURCE} s ON {same} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    for number, frame in enumerate(batches, start=1):
        with spark_faults(str(table.name)), _as_view(frame):
            table.spark.sql(statement)
        if number % TOLD_EVERY == 0:
            terminal.say(f"  merge {number} written")


@contextmanager
def _as_view(frame: DataFrame) -> Iterator[None]:
    spark: Any = frame.sparkSession
    frame.createOrReplaceTempView(_SOURCE)
    try:
        yield
    finally:
        spark.catalog.dropTempView(_SOURCE)
