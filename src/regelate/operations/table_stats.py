"""TABLE_STATS: how much a table holds, and where it lies: files, bytes and rows by partition, from the manifests."""

from __future__ import annotations

from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.table import PartitionTotals
from regelate.core.values import dataclass
from regelate.ports.table import TableReader

LISTED_PARTITIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStats:
    partition: str
    files: int
    size_bytes: int
    rows: int
    delete_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatsAnswer:
    """What the head of `main` names. `rows` still counts those that a delete file takes away.

    `largest_partitions` lists up to a hundred, those with the most bytes first; the counts cover all of them.
    """

    table: str
    snapshot_id: int | None
    files: int
    size_bytes: int
    rows: int
    delete_files: int
    partitions: int
    manifest_count: int
    largest_partitions: tuple[PartitionStats, ...]


def table_stats(reader: TableReader, policy: CompactionPolicy) -> TableStatsAnswer:
    """Count the live files of one table. Errors: as reading its metadata has."""
    snapshot = reader.read(policy)
    largest = sorted(snapshot.totals, key=lambda t: (-t.size_bytes, t.partition.path))
    return TableStatsAnswer(
        table=snapshot.ident,
        snapshot_id=snapshot.snapshot_id,
        files=snapshot.file_count,
        size_bytes=sum(t.size_bytes for t in snapshot.totals),
        rows=sum(t.rows for t in snapshot.totals),
        delete_files=len(snapshot.delete_files),
        partitions=len(snapshot.totals),
        manifest_count=snapshot.manifest_count,
        largest_partitions=tuple(_of(totals) for totals in largest[:LISTED_PARTITIONS]),
    )


def _of(totals: PartitionTotals) -> PartitionStats:
    return PartitionStats(
        partition=totals.partition.path,
        files=totals.files,
        size_bytes=totals.size_bytes,
        rows=totals.rows,
        delete_files=totals.delete_files,
    )
