"""An automatic run on Spark: the tiers that core chooses, each partition's named to rewrite_data_files by their size.

What core takes of a partition are its smallest files, up to some size: so Spark, which can be told no list of files,
can be told by `min-file-size-bytes` and a filter on the partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regelate.core.planning.plan import FileGroup, plan_compaction
from regelate.core.planning.trigger import has_enough_files
from regelate.core.policy.options import AUTO_PROPERTY, AUTOMATIC, CompactionDefaults, resolve_policy
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.policy.table_properties import Use, refuse_unusable
from regelate.core.table.table import TOTAL_FILES, Partition, told_total
from regelate.core.values import dataclass
from regelate.pipeline.choose import predicate
from regelate.pipeline.names import TableName
from regelate.pipeline.options import STARTING_SEQUENCE_NUMBER
from regelate.pipeline.rewrite import STEP
from regelate.pipeline.spark_errors import spark_faults
from regelate.pipeline.tables import SparkTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_CALLS = 20
"""Partitions of one run: each is one CALL and one commit. The others come with the next look."""
_FIRST_SEQUENCED_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """As much of a table's head as is asked after each commit: how many data files, and whether it is switched on."""

    files: int | None
    switch: Mapping[str, str]


def head_of(spark: SparkSession, name: TableName) -> TableHead:
    """Load a table without its history, which grows with every commit. Errors: as `SparkTable`."""
    jvm: Any = spark._jvm
    with spark_faults(str(name), loading=True):
        java = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name.sql)
        java.refresh()
        head, told = java.currentSnapshot(), java.properties().get(AUTO_PROPERTY)
        files = None if head is None else told_total(head.summary(), TOTAL_FILES)
    return TableHead(files=files, switch={} if told is None else {AUTO_PROPERTY: str(told)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A look at a table with so many data `files`. Before there are `next_at`, no tier of any partition can be full."""

    files: int
    next_at: int

    def is_due(self, files: int | None) -> bool:
        """Say whether to look again. Where files have gone, somebody else has rewritten some: nothing is known then."""
        return files is None or files >= self.next_at or files < self.files


NEVER = Looked(files=0, next_at=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiersDone:
    """What came of it."""

    told: str
    looked: Looked


def compact_tiers(table: SparkTable) -> TiersDone:
    """Merge the full tiers of small files of a table, if there are any by the rule of automatic runs.

    Errors: InvalidRequest INVALID_TABLE_PROPERTY, and those of a rewrite; what landed before stays.
    """
    refuse_unusable(table.properties, Use.COMPACT, Use.AUTO, Use.SPARK)
    config = CompactionDefaults()
    policy = resolve_policy(
        request=AUTOMATIC,
        table_properties=table.properties,
        config=config,
        now_ms=0,
        table_bytes=table.stored_bytes,
    )
    files = _files_of(table)
    if not has_enough_files(files, policy.min_input_files):
        return TiersDone(told="not due", looked=Looked(files=files or 0, next_at=policy.min_input_files))
    snapshot = table.snapshot(policy)
    taken = _taken(plan_compaction(snapshot, policy).groups)
    statements = [_statement(table, policy, partition, sizes) for partition, sizes in taken.items()]
    named = [statement for statement in statements if statement is not None][:MOST_CALLS]
    for statement in named:
        table.run(statement)
    if named:
        table.refresh()
    left = [t.small_files - len(taken.get(t.partition, ())) + (t.partition in taken) for t in snapshot.totals]
    found = _files_of(table) or 0
    looked = Looked(files=found, next_at=found + max(policy.min_input_files - max(left, default=0), 1))
    return TiersDone(told=f"{len(named)} partition(s) compacted" if named else "not due", looked=looked)


def _files_of(table: SparkTable) -> int | None:
    """Return how many data files the summary of the head counts."""
    return None if table.head is None else told_total(table.head.summary, TOTAL_FILES)


def _taken(groups: tuple[FileGroup, ...]) -> Mapping[Partition, tuple[int, ...]]:
    """Return the sizes of the files that are taken, by partition."""
    found: dict[Partition, tuple[int, ...]] = {}
    for group in groups:
        sizes = tuple(task.data_file.size_bytes for task in group.tasks)
        found[group.partition] = (*found.get(group.partition, ()), *sizes)
    return found


def _statement(table: SparkTable, policy: CompactionPolicy, partition: Partition, sizes: tuple[int, ...]) -> str | None:
    """Return the CALL for one partition; None for one that no filter can name, as of an older spec."""
    where = predicate(table.metadata, table.name.catalog, table.spec_id, partition)
    if where is None and (table.is_partitioned or partition.spec_id != table.spec_id):
        return None
    found = {
        "target-file-size-bytes": policy.target_file_size_bytes,
        "min-file-size-bytes": max(sizes) + 1,
        "max-file-size-bytes": policy.max_file_size_bytes,
        "min-input-files": 2,
    }
    options = {name: str(value) for name, value in found.items()}
    if table.format_version >= _FIRST_SEQUENCED_VERSION:
        options[STARTING_SEQUENCE_NUMBER] = "false"
    return table.statement(STEP, {"strategy": "binpack", "where": where, "options": options})
