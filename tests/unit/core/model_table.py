"""A table as plain values, for tests of what decides: files come and go, a snapshot is a photograph of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from regelate.core.planning.packing import predicted
from regelate.core.planning.plan import CompactionPlan, FileGroup
from regelate.core.planning.prediction import weighed, written_by_us
from regelate.core.planning.selection import classify, is_small
from regelate.core.policy.policy import MB, CompactionPolicy
from regelate.core.policy.targets import target_suffix
from regelate.core.table.table import (
    RUN_ID,
    DataFile,
    DeleteContent,
    DeleteFile,
    FileScanTask,
    Partition,
    PartitionTotals,
    SnapshotEntry,
    TableSnapshot,
)

HOUR_MS = 3_600_000
UNPARTITIONED = Partition(spec_id=0, values=(), path="")

OutputSizes = Callable[[FileGroup, int], Sequence[int]]
"""Group and its predicted bytes -> sizes of the files that a rewrite of it leaves."""


def month(text: str, *, spec_id: int = 0, ends_at_ms: int | None = None) -> Partition:
    """Return the partition `month=<text>` of a month transform on column `day`."""
    names = {"month": text, "day": text}
    return Partition(spec_id=spec_id, values=(text,), path=f"month={text}", source_values=names, ends_at_ms=ends_at_ms)


def data_file(
    path: str,
    size_bytes: int,
    *,
    partition: Partition = UNPARTITIONED,
    rows: int = 1000,
    seq: int = 1,
    snapshot: int = 1,
) -> DataFile:
    return DataFile(
        path=path,
        file_format="PARQUET",
        partition=partition,
        record_count=rows,
        size_bytes=size_bytes,
        sequence_number=seq,
        snapshot_id=snapshot,
    )


def position_delete(path: str, rows: int, *, of: DataFile, also: DataFile | None = None) -> DeleteFile:
    """Return a position delete file of one data file, or of a range of them when `also` is given."""
    return DeleteFile(
        path=path,
        file_format="PARQUET",
        content=DeleteContent.POSITION,
        partition=of.partition,
        record_count=rows,
        size_bytes=1000,
        sequence_number=of.sequence_number,
        snapshot_id=of.snapshot_id,
        referenced_lower=of.path,
        referenced_upper=(also or of).path,
    )


def equality_delete(path: str, rows: int, *, of: DataFile) -> DeleteFile:
    return DeleteFile(
        path=path,
        file_format="PARQUET",
        content=DeleteContent.EQUALITY,
        partition=of.partition,
        record_count=rows,
        size_bytes=1000,
        sequence_number=of.sequence_number + 1,
        snapshot_id=of.snapshot_id,
        equality_ids=(1,),
    )


class ModelTable:
    """Live tasks and a snapshot log. Every change is one snapshot, one hour after the one before."""

    def __init__(self, *, format_version: int = 2) -> None:
        self.format_version = format_version
        self.tasks: list[FileScanTask] = []
        self.log: list[SnapshotEntry] = []

    @property
    def now_ms(self) -> int:
        return (len(self.log) + 1) * HOUR_MS

    def commit(self, operation: str = "append", summary: Mapping[str, str] | None = None) -> SnapshotEntry:
        number = len(self.log) + 1
        entry = SnapshotEntry(
            snapshot_id=number,
            parent_id=number - 1 or None,
            sequence_number=number if self.format_version > 1 else 0,
            timestamp_ms=number * HOUR_MS,
            operation=operation,
            summary=summary or {},
        )
        self.log.append(entry)
        return entry

    def append(
        self,
        sizes: Iterable[int],
        *,
        partition: Partition = UNPARTITIONED,
        summary: Mapping[str, str] | None = None,
        suffix: str = ".parquet",
    ) -> tuple[DataFile, ...]:
        """Append one data file per size in one snapshot; `summary` with a run id makes the snapshot ours."""
        entry = self.commit("append", summary)
        added = tuple(
            data_file(
                f"{partition.path}/{entry.snapshot_id:05}-{number:05}{suffix}",
                size,
                partition=partition,
                seq=entry.sequence_number,
                snapshot=entry.snapshot_id,
            )
            for number, size in enumerate(sizes)
        )
        self.tasks += [FileScanTask(data_file=f) for f in added]
        return added

    def add(self, task: FileScanTask) -> None:
        """Put a task into the table as it is."""
        self.tasks.append(task)

    def photograph(self, policy: CompactionPolicy) -> TableSnapshot:
        """Return the table as the reader would: candidates whole, all other files counted."""
        head = self.log[-1] if self.log else None
        reasons = [classify(t.data_file, t.deletes, policy) for t in self.tasks]
        candidates = tuple(t for t, reason in zip(self.tasks, reasons, strict=True) if reason.selected)
        deletes = {d.path: d for t in self.tasks for d in t.deletes}
        return TableSnapshot(
            ident="ns.t",
            uuid="4f1c0f2e-0000-4000-8000-000000000001",
            format_version=self.format_version,
            location="file:///warehouse/ns/t",
            metadata_location="file:///warehouse/ns/t/metadata/1.metadata.json",
            snapshot_id=head.snapshot_id if head else None,
            sequence_number=head.sequence_number if head else 0,
            timestamp_ms=head.timestamp_ms if head else 0,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
            candidates=candidates,
            totals=self._totals(candidates, policy),
            manifest_paths=frozenset(f"m{number}" for number in range(len(self.log))),
            delete_files=tuple(deletes.values()),
            snapshots=tuple(self.log),
        )

    def _totals(self, candidates: Sequence[FileScanTask], policy: CompactionPolicy) -> tuple[PartitionTotals, ...]:
        times = {s.snapshot_id: s.timestamp_ms for s in self.log}
        found = []
        for partition in dict.fromkeys(t.data_file.partition for t in self.tasks):
            tasks = [t for t in self.tasks if t.data_file.partition == partition]
            mine = [t.data_file for t in candidates if t.data_file.partition == partition]
            found.append(
                PartitionTotals(
                    partition=partition,
                    files=len(tasks),
                    size_bytes=sum(t.data_file.size_bytes for t in tasks),
                    rows=sum(t.data_file.record_count for t in tasks),
                    delete_files=len({d.path for t in tasks for d in t.deletes}),
                    candidate_files=len(mine),
                    small_files=sum(is_small(t.data_file.size_bytes, policy) for t in tasks),
                    oldest_candidate_ms=min((times.get(f.snapshot_id, 0) for f in mine), default=None),
                )
            )
        return tuple(found)

    def apply(
        self, plan: CompactionPlan, sizes: OutputSizes, policy: CompactionPolicy, *, named: bool = True
    ) -> tuple[int, ...]:
        """Commit a plan as one `replace` of ours; return the sizes of all outputs, which are `named` as ours are."""
        suffix = target_suffix(policy.target_file_size_bytes if named else None)
        gone = {path for group in plan.groups for path in group.paths}
        written: list[int] = []
        left = [t for t in self.tasks if t.data_file.path not in gone]
        entry = self.commit("replace", {RUN_ID: f"run-{len(self.log)}"})
        for group in plan.groups:
            live = predicted_bytes(group, plan, policy, self.log)
            rows = max(group.rows // group.expected_output_files, 1)
            for number, size in enumerate(sizes(group, live)):
                written.append(size)
                output = data_file(
                    f"{group.partition.path}/out-{entry.snapshot_id:05}-{group.index:05}-{number:05}{suffix}",
                    size,
                    partition=group.partition,
                    rows=rows,
                    seq=plan.starting_sequence_number,
                    snapshot=entry.snapshot_id,
                )
                left.append(FileScanTask(data_file=output))
        self.tasks = left
        return tuple(written)


def predicted_bytes(
    group: FileGroup, plan: CompactionPlan, policy: CompactionPolicy, log: Iterable[SnapshotEntry]
) -> int:
    """Return what the plan expects a group to weigh after its rewrite."""
    ours = {s.snapshot_id for s in log if written_by_us(s)}
    return predicted(
        weighed(
            t, classify(t.data_file, t.deletes, policy), policy, plan.size_ratio, own=t.data_file.snapshot_id in ours
        )
        for t in group.tasks
    )


def even(group: FileGroup, live_bytes: int) -> tuple[int, ...]:
    """Outputs exactly as predicted."""
    return (live_bytes // group.expected_output_files,) * group.expected_output_files


def sized_policy(target_mb: int = 128, **knobs: object) -> CompactionPolicy:
    """Return a policy with Iceberg's 0.75 and 1.80 of a target in MB."""
    target = target_mb * MB
    given = {"min_file_size_bytes": int(0.75 * target), "max_file_size_bytes": int(1.8 * target), **knobs}
    return CompactionPolicy(target_file_size_bytes=target, **given)  # type: ignore[arg-type]
