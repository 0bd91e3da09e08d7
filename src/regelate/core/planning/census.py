"""Counts the live files of one table while they stream by, and keeps only the candidates."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from regelate.core.planning.selection import Reason, is_small
from regelate.core.policy.policy import MB, CompactionPolicy
from regelate.core.table.deletes import DeleteIndex
from regelate.core.table.table import DeleteFile, FileScanTask, Partition, PartitionTotals

HISTOGRAM_EDGES = tuple(int(m * MB) for m in (0.0625, 0.25, 1, 4, 16, 32, 64, 128, 256, 512, 1024))
LAST_EDGE = 2**63 - 1


class _Tally:
    __slots__ = ("candidate_files", "delete_files", "files", "oldest_candidate_ms", "rows", "size_bytes", "small_files")

    def __init__(self) -> None:
        self.files = self.size_bytes = self.rows = self.delete_files = self.candidate_files = self.small_files = 0
        self.oldest_candidate_ms: int | None = None


class Census:
    """Every live file is counted once, with its reason; `timestamps`: milliseconds by snapshot id, for their age."""

    def __init__(self, policy: CompactionPolicy, timestamps: Mapping[int, int]) -> None:
        self.index = DeleteIndex(())
        self.candidates: list[FileScanTask] = []
        self.partitions: dict[Partition, _Tally] = {}
        self._policy = policy
        self._timestamps = timestamps
        self._oldest_known_ms = min(timestamps.values(), default=0)
        self._sizes = [0] * (len(HISTOGRAM_EDGES) + 1)

    def count(self, task: FileScanTask, reason: Reason) -> None:
        data_file = task.data_file
        tally = self.partitions.setdefault(data_file.partition, _Tally())
        tally.files += 1
        tally.size_bytes += data_file.size_bytes
        tally.rows += data_file.record_count
        tally.small_files += is_small(data_file.size_bytes, self._policy)
        self._sizes[bisect_right(HISTOGRAM_EDGES, data_file.size_bytes)] += 1
        if reason.selected:
            self.candidates.append(task)
            tally.candidate_files += 1
            written = self._timestamps.get(data_file.snapshot_id, self._oldest_known_ms)
            oldest = tally.oldest_candidate_ms
            tally.oldest_candidate_ms = written if oldest is None else min(written, oldest)

    def count_deletes(self, deletes: tuple[DeleteFile, ...]) -> None:
        """Count delete files in their partitions, global ones in all; ask when every data file has been counted."""
        for delete in deletes:
            for partition in tuple(self.partitions) if delete.is_global else (delete.partition,):
                if partition in self.partitions:
                    self.partitions[partition].delete_files += 1

    def totals(self) -> tuple[PartitionTotals, ...]:
        return tuple(
            PartitionTotals(
                partition=partition,
                files=t.files,
                size_bytes=t.size_bytes,
                rows=t.rows,
                delete_files=t.delete_files,
                candidate_files=t.candidate_files,
                small_files=t.small_files,
                oldest_candidate_ms=t.oldest_candidate_ms,
            )
            for partition, t in self.partitions.items()
        )

    def histogram(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip((*HISTOGRAM_EDGES, LAST_EDGE), self._sizes, strict=True))
