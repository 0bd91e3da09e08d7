"""The tables of the study, in one lake that Spark and our service share: merged, asked, compacted and counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.core.table.table import SnapshotEntry
from regelate.pipeline.ingest import MERGE_ON_READ
from regelate.pipeline.names import TableName
from regelate.pipeline.session import Launch, embedded_lake, open_session
from regelate.pipeline.sql import text
from regelate.pipeline.tables import SparkTable
from studies.small_files.arms import ORDER, SMALL_BYTES, Arm, Compaction
from studies.small_files.compactors import Compactor
from studies.small_files.logbook import Measured, Mismatch, Workload
from studies.small_files.workload import COLUMNS, Batch, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG, NAMESPACE, SOURCE = "local", "study", "batch"
QUERY = """\
SELECT sum(value1), avg(value2), sum(value3), max(date1), max(date2), category FROM {table} GROUP BY ALL"""
MERGE = """\
MERGE INTO {table} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
COUNTS = f"""\
SELECT count_if(content = 0) data_files, count_if(content = 0 AND file_size_in_bytes < {SMALL_BYTES}) small_files,
  count_if(content > 0) delete_files, coalesce(sum(greatest(size(split_offsets), 1)) FILTER (WHERE content = 0), 0)
  row_groups FROM {{table}}"""


def start_spark(home: Path, jars: Path | None) -> SparkSession:
    """Start Spark on the lake in a folder, on all cores. `jars`: where Iceberg's are kept."""
    conf = {} if jars is None else {"spark.jars.ivy": str(jars.absolute())}
    launch = Launch(master="local[*]", driver_memory="4g", conf=conf)
    return open_session(embedded_lake(home, CATALOG), launch, app_name="small-files")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a piece of work took: by the clock, and of all processors."""

    seconds: float
    processor_seconds: float


NOTHING = Spent(seconds=0.0, processor_seconds=0.0)


class Lake:
    """The tables of all arms. One that Spark was started for by `session`; `compactor` does what an arm asks for."""

    def __init__(self, spark: SparkSession, workload: Workload, compactor: Compactor) -> None:
        self._spark = spark
        self._workload = workload
        self._compactor = compactor
        self._tables: dict[str, SparkTable] = {}

    def create(self, arm: Arm) -> None:
        """Make an arm's table anew; one that is there goes, with its files."""
        written = arm.writer.table_properties(self._workload.rows)
        merged = MERGE_ON_READ if self._workload.merge_on_read else {}
        properties = {**written, **arm.properties, **merged}
        listed = ", ".join(f"{text(key)} = {text(value)}" for key, value in properties.items())
        columns = ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)
        name = _name(arm)
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
        self.drop(arm)
        self._spark.sql(f"CREATE TABLE {name.sql} ({columns}) USING iceberg TBLPROPERTIES ({listed})")
        self._spark.sql(f"ALTER TABLE {name.sql} WRITE ORDERED BY {ORDER}")
        self._tables[arm.key] = SparkTable(self._spark, name)

    def drop(self, arm: Arm) -> None:
        self._spark.sql(f"DROP TABLE IF EXISTS {_name(arm).sql} PURGE")

    def go_on(self, arm: Arm, snapshot_id: int) -> None:
        """Put a table back to what the log knows last; what came after it was not measured to its end.

        Errors: Mismatch where the table never was that, NotFound where it is gone.
        """
        table = SparkTable(self._spark, _name(arm))
        self._tables[arm.key] = table
        if table.snapshot_id == snapshot_id:
            return
        if snapshot_id not in {entry.snapshot_id for entry in table.log}:
            raise Mismatch(f"{table.name} has no snapshot {snapshot_id}, of which the log tells: choose another --home")
        table.run(table.statement("set_current_snapshot", {"snapshot_id": snapshot_id}))
        table.refresh()

    def iterate(self, arm: Arm, batch: Batch) -> Measured:
        """Merge a batch, compact where the arm says so, and query; the clock runs for these three alone."""
        table = self._tables[arm.key]
        before = int(table.metadata["last-sequence-number"])
        merge = self._merged(arm, table, batch)
        compaction = NOTHING
        if arm.compaction is Compaction.AUTOMATIC:
            compaction = self._spent(lambda: self._compactor.automatic(table.name))
        query = self._spent(lambda: self._spark.sql(QUERY.format(table=table.name.sql)).collect())
        if arm.compaction.is_scheduled(batch.iteration):
            compaction = self._spent(lambda: self._compactor.scheduled(table.name))
        table.refresh()
        added = sorted((e for e in table.log if e.sequence_number > before), key=lambda e: e.sequence_number)
        return Measured(
            arm=arm.key,
            iteration=batch.iteration,
            merge_seconds=merge.seconds,
            compaction_seconds=compaction.seconds,
            query_seconds=query.seconds,
            merge_processor_seconds=merge.processor_seconds,
            compaction_processor_seconds=compaction.processor_seconds,
            query_processor_seconds=query.processor_seconds,
            compactions=sum(entry.operation == "replace" for entry in added),
            files_after_merge=_number(added[0], "total-data-files"),
            bytes_written=sum(_number(entry, "added-files-size") for entry in added),
            bytes_rewritten=sum(_number(entry, "removed-files-size") for entry in added),
            rows_in=batch.rows,
            rows_written=sum(_number(entry, "added-records") for entry in added),
            snapshots=len(table.log),
            manifests=table.java.currentSnapshot().allManifests(table.java.io()).size(),
            snapshot_id=added[-1].snapshot_id,
            load=round(os.getloadavg()[0], 2),
            **self._counts(table.name),
        )

    def fingerprint(self, arm: Arm) -> tuple[int, ...]:
        """Return the rows of a table as numbers that no order and no file layout changes: count, ids, and a hash."""
        columns = ", ".join(name for name, _, _ in COLUMNS)
        asked = f"SELECT count(*), count(DISTINCT id), bit_xor(xxhash64({columns})) FROM {_name(arm).sql}"
        return tuple(self._spark.sql(asked).first())

    def _merged(self, arm: Arm, table: SparkTable, batch: Batch) -> Spent:
        rows = frame(self._spark, batch, tasks=self._workload.tasks, seed=self._workload.seed)
        # Spark merges nothing that it takes for random, and the rows that came are no part of what is measured.
        rows.localCheckpoint().createOrReplaceTempView(SOURCE)
        with self._set({"spark.sql.shuffle.partitions": str(self._workload.tasks), **arm.writer.settings}):
            return self._spent(lambda: self._spark.sql(MERGE.format(table=table.name.sql, source=SOURCE)))

    def _counts(self, name: TableName) -> Mapping[str, int]:
        counted: Mapping[str, int] = self._spark.sql(COUNTS.format(table=name.metadata_table("files"))).first().asDict()
        return counted

    def _spent(self, work: Callable[[], Any]) -> Spent:
        processor, started = self._processor_seconds(), time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        return Spent(seconds=round(seconds, 4), processor_seconds=round(self._processor_seconds() - processor, 4))

    def _processor_seconds(self) -> float:
        """Return what this process and Java have used so far, in all their threads."""
        jvm: Any = self._spark._jvm
        java = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toMillis()
        return time.process_time() + float(java) / 1000

    @contextmanager
    def _set(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Set what a MERGE runs under; the query of every arm runs under the same."""
        before = {key: self._spark.conf.get(key) for key in settings}
        for key, value in settings.items():
            self._spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, value in before.items():
                self._spark.conf.set(key, value)


def _name(arm: Arm) -> TableName:
    return TableName(catalog=CATALOG, namespace=(NAMESPACE,), table=arm.key)


def _number(entry: SnapshotEntry, key: str) -> int:
    return int(entry.summary.get(key, "0"))
