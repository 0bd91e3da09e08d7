"""Stand-ins for DuckDB: they read what a task names, apply the deletes it names, and write through the actor's IO."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from regelate.adapters.iceberg.encoding.encode import encode_given
from regelate.adapters.iceberg.encoding.kept_values import fill
from regelate.adapters.iceberg.files.outputs import TableOutputs
from regelate.adapters.iceberg.metadata.partitions import partition_of
from regelate.adapters.iceberg.pyiceberg_errors import translate
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.core.planning.plan import FileGroup
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.running.given_rows import RECORD, GivenRows
from regelate.core.running.group_view import name_in_view
from regelate.core.running.merging import Merge, TouchedFile
from regelate.core.running.rewrite import Fingerprint, NewDataFile, OutputTarget, RewriteResult
from regelate.core.table.table import DeleteContent, FileScanTask, Partition
from regelate.errors import DataUnavailable, RegelateError, Unavailable
from regelate.ports.files import Ledger
from tests.system.simulation.rows import FIRST_EXTRA, Row, decode, decode_keys, decode_positions, describe, encode
from tests.system.simulation.store import Door

TARGET_BYTES = 320


@contextmanager
def _faults() -> Any:
    try:
        yield
    except FileNotFoundError as error:
        raise DataUnavailable("DATA_FILE_MISSING", str(error)) from error
    except OSError as error:
        raise translate(error) or error from error


def no_footer(*arguments: object) -> None:
    raise AssertionError("the simulator writes no Parquet")


class SimOutputs(TableOutputs):
    """The shipped outputs, but for the bytes: names and deletions are theirs, the content is rows as JSON."""

    def __init__(self, metadata: TableMetadata, io: Any, ledger: Ledger, *, run_id: str, folder: Any) -> None:
        super().__init__(metadata, io, ledger, run_id=run_id, folder=folder, annotate=no_footer)
        self.field_ids = sorted(metadata.schema().field_ids)
        self._door: Door = io.door

    def put(self, partition: Partition, rows: Sequence[Row], reserved: list[str]) -> NewDataFile:
        (target,) = self.reserve([partition])
        reserved.append(target.location)
        data = encode([r.within(self.field_ids) for r in rows])
        with _faults():
            self._door.write(target.location, data, whole=False)
            stored = self._door.size(target.location)
        if stored != len(data):
            raise Unavailable("STORAGE_INCONSISTENT", f"{stored} bytes after an upload of {len(data)}", status=502)
        return describe(target.location, partition, rows, len(data), self.field_ids)

    def publish(self, target: OutputTarget, *, sort_order_id: int | None) -> NewDataFile:
        raise AssertionError("the simulator's engine uploads by itself")


def visible_rows(door: Door, task: FileScanTask, *, with_deletes: bool = True) -> list[Row]:
    """Return a data file's rows without those that the deletes named in its task remove."""
    with _faults():
        rows = decode(door.read(task.data_file.path))
        gone: set[int] = set()
        for delete in task.deletes if with_deletes else ():
            data = door.read(delete.path)
            if delete.content is DeleteContent.POSITION:
                gone.update(at for path, at in decode_positions(data) if path == task.data_file.path)
            else:
                keys = decode_keys(data)
                gone.update(at for at, row in enumerate(rows) if row.key in keys)
    return [row for at, row in enumerate(rows) if at not in gone]


class SimEngine:
    """Implements RewriteEngine. `lie` is told in one group of the rewrite; verification must find it out (law 7)."""

    def __init__(self, door: Door, outputs: SimOutputs, lie: str | None) -> None:
        self._door = door
        self._outputs = outputs
        self._lie = lie
        self.lied = False
        self.hang_ms = 0

    def achieved_ratio(self, group: FileGroup, policy: CompactionPolicy) -> float:
        return 1.0

    def rewrite(
        self,
        groups: Sequence[FileGroup],
        policy: CompactionPolicy,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[tuple[RewriteResult, ...], tuple[tuple[FileGroup, Exception], ...]]:
        if self.hang_ms:
            self._door.scheduler.step(self._door.actor, "hang", wait_ms=self.hang_ms)
        done: list[RewriteResult] = []
        failed: list[tuple[FileGroup, Exception]] = []
        for group in groups:
            reserved: list[str] = []
            try:
                done.append(self._result(group, reserved))
            except RegelateError as fault:
                self._outputs.discard(reserved)
                failed.append((group, fault))
        return tuple(done), tuple(failed)

    def _result(self, group: FileGroup, reserved: list[str]) -> RewriteResult:
        rows = [row for task in group.tasks for row in visible_rows(self._door, task)]
        deleted = group.rows - len(rows)
        rows = self._told(group, rows)
        files = min(group.expected_output_files, len(rows))
        parts = [rows[len(rows) * n // files : len(rows) * (n + 1) // files] for n in range(files)]
        added = tuple(self._outputs.put(group.partition, part, reserved) for part in parts)
        return RewriteResult(group=group, added=added, rows_deleted=deleted)

    def _told(self, group: FileGroup, rows: list[Row]) -> list[Row]:
        lie, self._lie = self._lie, None
        if lie == "loses a row" and rows:
            told = rows[:-1]
        elif lie == "doubles a row" and rows:
            told = [*rows, rows[0]]
        elif lie == "doubles one row for another" and len(rows) > 1:
            told = [*rows[:-1], rows[0]]
        elif lie == "forgets the deletes":
            told = [r for task in group.tasks for r in visible_rows(self._door, task, with_deletes=False)]
        else:
            return rows
        self.lied = told != rows
        return told

    def fingerprints(self, result: RewriteResult) -> tuple[Fingerprint, Fingerprint]:
        with _faults():
            written = [row for f in result.added for row in decode(self._door.read(f.path))]
        read = [row for task in result.group.tasks for row in visible_rows(self._door, task)]
        return _fingerprint(r.within(self._outputs.field_ids) for r in read), _fingerprint(written)


def _fingerprint(rows: Iterable[Row]) -> Fingerprint:
    return sum((Fingerprint(rows=1, total=zlib.crc32(repr(row).encode())) for row in rows), Fingerprint())


class SimKeyRewriter:
    """Implements KeyRewriter."""

    def __init__(self, door: Door, outputs: SimOutputs) -> None:
        self._door = door
        self._outputs = outputs

    def touched(self, tasks: Sequence[FileScanTask], rows: object, key: Sequence[str]) -> tuple[TouchedFile, ...]:
        keys = set(rows["key"].to_pylist())  # type: ignore[index]
        counts = ((task, sum(row.key in keys for row in visible_rows(self._door, task))) for task in tasks)
        return tuple(TouchedFile(task=task, matched_rows=count) for task, count in counts if count)

    def merge(
        self, merges: Sequence[Merge], rows: object, key: Sequence[str], *, target_bytes: int
    ) -> tuple[tuple[NewDataFile, ...], ...]:
        keys = set(rows["key"].to_pylist()) if key else set()  # type: ignore[index]
        reserved: list[str] = []
        try:
            return tuple(self._merged(merge, keys, target_bytes, reserved) for merge in merges)
        except BaseException:
            self._outputs.discard(reserved)
            raise

    def _merged(self, merge: Merge, keys: set[Any], target_bytes: int, reserved: list[str]) -> tuple[NewDataFile, ...]:
        group = merge.group(target_bytes)
        count = len(merge.touched)
        rows = [r for task in group.tasks[:count] for r in visible_rows(self._door, task) if r.key not in keys]
        rows += [row for task in group.tasks[count:] for row in visible_rows(self._door, task)]
        files = min(group.expected_output_files, len(rows))
        parts = [rows[len(rows) * n // files : len(rows) * (n + 1) // files] for n in range(files)]
        return tuple(self._outputs.put(merge.partition, part, reserved) for part in parts)

    def stored(
        self, tasks: Sequence[FileScanTask], rows: object, key: Sequence[str], fields: Collection[int]
    ) -> object:
        at = {value: number for number, value in enumerate(rows["key"].to_pylist())}  # type: ignore[index]
        found = [row for task in tasks for row in visible_rows(self._door, task) if row.key in at]
        columns = {name_in_view(f): pa.array([row.value(f) for row in found], pa.int64()) for f in fields}
        return pa.table({RECORD: pa.array([at[row.key] for row in found], pa.int64()), **columns})


class SimRowWriter:
    """Implements RowWriter: records are Rows, `encode` makes of them what the committer's pruner reads. What they lack
    is filled by the shipped `fill`."""

    def __init__(self, metadata: TableMetadata, outputs: SimOutputs) -> None:
        self._metadata = metadata
        self._outputs = outputs
        self._records: Sequence[Row] = ()
        self._columns = columns_of(metadata.schema())
        self._arrow = schema_to_pyarrow(metadata.schema())

    @property
    def schema_id(self) -> int:
        return self._metadata.current_schema_id

    @property
    def target_bytes(self) -> int:
        return TARGET_BYTES

    def digest(self, rows: object) -> str:
        raise AssertionError("the simulator sends no keys")

    def encode(self, records: Sequence[Any]) -> pa.Table:
        self._records = records
        return pa.table({"key": pa.array([r.key for r in records], pa.int64())})

    def coerce(self, arrow_table: object) -> object:
        raise AssertionError("the simulator writes records")

    def given(self, rows: Any, key: Sequence[str]) -> GivenRows:
        self._records = rows
        records = [{"id": str(r.id), "key": str(r.key), "part": r.part} for r in rows]
        return encode_given(self._columns, self._arrow, records, key)

    def fill(self, given: GivenRows, stored: Any, key: Sequence[str]) -> object:
        filled = fill(self._columns, self._arrow, given, stored, key)
        extras = {c.field_id: filled[c.name].to_pylist() for c in self._columns if c.field_id >= FIRST_EXTRA}
        self._records = [
            Row(r.id, r.key, r.part, tuple((f, v[at]) for f, v in sorted(extras.items()) if v[at] is not None))
            for at, r in enumerate(self._records)
        ]
        return filled

    def check_key(self, rows: object, key: Sequence[str]) -> None:
        return None

    def write(self, rows: object, *, max_partitions: int | None = None) -> tuple[NewDataFile, ...]:
        reserved: list[str] = []
        try:
            homes = by_partition(self._metadata, self._records)
            return tuple(self._outputs.put(home, part, reserved) for home, part in homes.items())
        except BaseException:
            self._outputs.discard(reserved)
            raise

    def discard(self, locations: Sequence[str]) -> None:
        self._outputs.discard(locations)


def by_partition(metadata: TableMetadata, rows: Iterable[Row]) -> Mapping[Partition, list[Row]]:
    spec = metadata.spec()
    found: dict[Partition, list[Row]] = defaultdict(list)
    for row in rows:
        record = Record(row.part) if spec.fields else Record()
        found[partition_of(spec, metadata.schema(), record)].append(row)
    return found
