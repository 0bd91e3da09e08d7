"""What one WRITE makes of one partition: files that it rewrites, and a file of its own rows, as few files as fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from regelate.core.planning.plan import FileGroup
from regelate.core.running.rewrite import NewDataFile
from regelate.core.running.slices import Slice, cut_off
from regelate.core.table.table import DataFile, FileScanTask, Partition
from regelate.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedFile:
    """A live file with rows that an upsert replaces, and how many of its live rows these are."""

    task: FileScanTask
    matched_rows: int

    @property
    def bytes_left(self) -> int:
        """Bytes of what stays of it, pro rata by rows."""
        file = self.task.data_file
        return file.size_bytes * (file.record_count - self.matched_rows) // max(file.record_count, 1)

    @property
    def is_gone(self) -> bool:
        return self.matched_rows == self.task.data_file.record_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Files of one partition that become one, or as many as their bytes take.

    `touched` without the rows of their keys; `whole` as they are; `fresh`: written for this request, in no commit yet.
    """

    partition: Partition
    touched: tuple[TouchedFile, ...] = ()
    whole: tuple[FileScanTask, ...] = ()
    fresh: tuple[NewDataFile, ...] = ()

    @property
    def replaced(self) -> tuple[FileScanTask, ...]:
        """The live files that leave the table."""
        return (*(t.task for t in self.touched), *self.whole)

    @property
    def matched_rows(self) -> int:
        return sum(t.matched_rows for t in self.touched)

    @property
    def size_bytes(self) -> int:
        """Bytes that are written, as far as those of the inputs tell."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> tuple[int, ...]:
        kept = (t.bytes_left for t in self.touched)
        return (*kept, *(t.data_file.size_bytes for t in self.whole), *(f.size_bytes for f in self.fresh))

    def group(self, target_bytes: int) -> FileGroup:
        """Return its files as a group: those with rows that leave come first, the request's own last."""
        return FileGroup(
            index=0,
            partition=self.partition,
            tasks=(*self.replaced, *(_as_task(f) for f in self.fresh)),
            expected_output_files=max(1, -(-self.size_bytes // target_bytes)),
        )

    def slices(self, target_bytes: int) -> tuple[Slice, ...]:
        """Return one slice per output: each of the target size but for the last, which is what is left."""
        return cut_off(self.group(target_bytes), self._sizes, target_bytes)


def _as_task(new: NewDataFile) -> FileScanTask:
    """Return a file that no commit names as one to read: no delete can apply to it."""
    return FileScanTask(
        data_file=DataFile(
            path=new.path,
            file_format="PARQUET",
            partition=new.partition,
            record_count=new.record_count,
            size_bytes=new.size_bytes,
            sequence_number=0,
            snapshot_id=0,
        )
    )


def merges(touched: Iterable[TouchedFile], fresh: Sequence[NewDataFile], target_bytes: int) -> tuple[Merge, ...]:
    """Return what to merge of the files that an upsert touches, per partition.

    The file of the request's own rows that is below the target joins: it and the rest would be two small files. Not
    where no row is left of the others, which are read all the same: their rows are counted (law 7: rows are conserved).
    """
    by_partition: dict[Partition, list[TouchedFile]] = {}
    for file in touched:
        by_partition.setdefault(file.task.data_file.partition, []).append(file)
    ends = small_ends(fresh, target_bytes)
    return tuple(
        Merge(
            partition=partition,
            touched=tuple(files),
            fresh=(ends[partition],) if partition in ends and not all(f.is_gone for f in files) else (),
        )
        for partition, files in by_partition.items()
    )


def small_ends(fresh: Sequence[NewDataFile], target_bytes: int) -> dict[Partition, NewDataFile]:
    """Return the file of each partition that is below the target: of what one request writes, at most the last."""
    return {f.partition: f for f in fresh if f.size_bytes < target_bytes}
