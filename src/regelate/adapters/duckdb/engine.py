"""The rewrite engine: reads file groups through views and writes one Parquet file per part, several parts at once."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import duckdb

from regelate.adapters.duckdb import sql
from regelate.adapters.duckdb.deleted_rows import count_deleted_rows
from regelate.adapters.duckdb.faults import located, miscounted, reading_fault
from regelate.adapters.duckdb.fingerprints import of_file, of_views
from regelate.adapters.duckdb.inputs import check_checksums, check_remote, wrong_size
from regelate.adapters.duckdb.row_groups import too_large
from regelate.adapters.duckdb.session import exhausted
from regelate.adapters.duckdb.writer import write_rows
from regelate.core.plan import FileGroup
from regelate.core.policy import MAX_FILES_PER_GROUP, CompactionPolicy, Strategy
from regelate.core.rewrite import Fingerprint, NewDataFile, RewriteResult
from regelate.core.schema import Column
from regelate.core.slices import Part, group_start, split
from regelate.core.table import FileScanTask
from regelate.ports import GroupViews, OutputFiles, OutputTarget

SCAN_BYTES_PER_COLUMN = 5 * 1024
"""What DuckDB holds per file, leaf column and thread of a scan: 3.5 to 4.4 KB measured (trap T13), rounded up."""
MIN_FILES_PER_SCAN = 16
SCAN_SHARE = 4
"""A quarter of a worker's memory may go to what its scan holds per file; the rest decodes, sorts and encodes."""
PROBE_SHARE = 0.05
PROBE_BYTES = 32 * 1024 * 1024
"""A table without a history of rewrites is probed with the first 5 % of a group, at most 32 MB."""

Progress = Callable[[int, int], None]


@dataclass
class _Work:
    """One group under way: its outputs so far, and the first fault that spoiled it."""

    group: FileGroup
    added: list[NewDataFile] = field(default_factory=list)
    reserved: list[str] = field(default_factory=list)
    rows_deleted: int = 0
    fault: Exception | None = None

    def spoil(self, fault: Exception) -> None:
        self.fault = self.fault or fault

    @property
    def result(self) -> RewriteResult:
        added = tuple(sorted(self.added, key=lambda f: self.reserved.index(f.path)))
        return RewriteResult(group=self.group, added=added, rows_deleted=self.rows_deleted)


Step = tuple[_Work, Callable[[], None]]


class DuckDBRewriteEngine:
    """Implements RewriteEngine on one DuckDB session; `workers` parts run at once, each on a cursor of its own.

    A group whose part fails is given back with its fault and its outputs are deleted; the other groups go on.
    """

    def __init__(
        self,
        connect: Callable[[], duckdb.DuckDBPyConnection],
        views: GroupViews,
        outputs: OutputFiles,
        *,
        folder: Path,
        workers: int,
        threads: int,
        worker_memory_bytes: int,
    ) -> None:
        self._connect = connect
        self._views = views
        self._outputs = outputs
        self._folder = folder
        self._workers = max(workers, 1)
        self._threads = max(threads, 1)
        self._worker_memory_bytes = worker_memory_bytes

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """Opened by the first work: a plan without groups must not pay for loading the extensions."""
        return self._connect()

    def achieved_ratio(self, group: FileGroup, policy: CompactionPolicy) -> float:
        """Return bytes out per byte in, measured by writing a sample of the group to the spill folder."""
        part = group_start(group, min(max(group.size_bytes * PROBE_SHARE, 1), PROBE_BYTES))
        path = self._folder / "probe.parquet"
        try:
            self._copy(self._connection.cursor(), part, str(path), policy)
            return path.stat().st_size / max(part.size_bytes, 1)
        except duckdb.Error as error:
            raise reading_fault(error, part.tasks) from error
        finally:
            path.unlink(missing_ok=True)

    def rewrite(
        self, groups: Sequence[FileGroup], policy: CompactionPolicy, *, progress: Progress | None = None
    ) -> tuple[tuple[RewriteResult, ...], tuple[tuple[FileGroup, Exception], ...]]:
        """Rewrite every group; return results in plan order, and the groups that failed with their faults."""
        works = [_Work(group, fault=self._unfit(group.tasks)) for group in groups]
        steps: list[Step] = [(work, partial(check_checksums, self._cursor, work.group.tasks)) for work in works]
        if policy.strategy is Strategy.SORT:
            steps += [(work, _sorted_step(self, work, policy)) for work in works]
        else:
            steps += self._part_steps(works, policy)
        steps += [(work, _count_step(self, work)) for work in works if any(t.deletes for t in work.group.tasks)]
        try:
            self._run(steps, progress)
        except BaseException:  # interrupted: nothing of this run can have been committed
            for work in works:
                self._outputs.discard(work.reserved)
            raise
        results: list[RewriteResult] = []
        failed: list[tuple[FileGroup, Exception]] = []
        for work in works:
            if work.fault is None:
                work.fault = self._miscounted(work)
            if work.fault is None:
                results.append(work.result)
            else:
                self._outputs.discard(work.reserved)
                failed.append((work.group, work.fault))
        return tuple(results), tuple(failed)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        return self._connection.cursor()

    def _unfit(self, tasks: Sequence[FileScanTask]) -> Exception | None:
        return wrong_size(tasks) or too_large(self._connection.cursor(), tasks, self._worker_memory_bytes)

    def _miscounted(self, work: _Work) -> Exception | None:
        """Where rows do not add up, ask the inputs' own footers whether the manifests count them wrongly (row 26)."""
        result = work.result
        if result.rows_read - result.rows_deleted == result.rows_written:
            return None
        try:
            return miscounted(self._connection.cursor(), work.group.tasks)
        except duckdb.Error as error:
            return reading_fault(error, work.group.tasks)

    def fingerprints(self, result: RewriteResult) -> tuple[Fingerprint, Fingerprint]:
        """Return the fingerprints of what a rewrite read, by a scan of its own, and of its outputs as PyArrow reads
        them back from where they lie. Remote inputs, whose page checksums nobody has looked at yet, are checked too."""
        group, cursor = result.group, self._connection.cursor()
        check_remote(self._cursor, group.tasks, self._outputs.open)
        written = Fingerprint()
        for added in result.added:
            with self._outputs.open(added.path) as source:
                written += of_file(cursor, source, self._views.columns, added.path)
        try:
            scans = Part(group=group, tasks=group.tasks).scans(self._files_per_scan())
            return of_views(cursor, self._views, scans), written
        except duckdb.Error as error:
            raise reading_fault(error, group.tasks) from error

    def _run(self, steps: list[Step], progress: Progress | None) -> None:
        done = 0
        lock = threading.Lock()

        def guarded(work: _Work, step: Callable[[], None]) -> None:
            nonlocal done
            if work.fault is None:
                try:
                    step()
                except duckdb.Error as error:
                    fault = reading_fault(error, work.group.tasks)
                    work.spoil(located(fault, self._connection.cursor(), work.group.tasks))
                except Exception as error:  # noqa: BLE001  the group is given back with it: nothing is swallowed
                    work.spoil(exhausted(error) or error)
            with lock:
                done += 1
                if progress is not None:
                    progress(done, len(steps))

        _ = self._connection  # before the threads: they would open one each
        with ThreadPoolExecutor(max_workers=self._workers, thread_name_prefix="rewrite") as pool:
            waiting: list[Future[None]] = [pool.submit(guarded, work, step) for work, step in steps]
            for future in waiting:
                future.result()

    def _part_steps(self, works: Sequence[_Work], policy: CompactionPolicy) -> list[Step]:
        """Reserve all outputs before any step runs: one ledger entry, and names that follow the order of the parts."""
        parts = [(work, part) for work in works for part in split(work.group)]
        targets = self._outputs.reserve([work.group.partition for work, _ in parts])
        for (work, _), target in zip(parts, targets, strict=True):
            work.reserved.append(target.location)
        return [
            (work, _part_step(self, work, part, target, policy))
            for (work, part), target in zip(parts, targets, strict=True)
        ]

    def write_part(self, work: _Work, part: Part, target: OutputTarget, policy: CompactionPolicy) -> None:
        rows = self._copy(self._connection.cursor(), part, target.local_path, policy)
        if rows:
            work.added.append(self._outputs.publish(target, sort_order_id=None))
        else:
            Path(target.local_path).unlink(missing_ok=True)

    def _copy(self, cursor: duckdb.DuckDBPyConnection, part: Part, path: str, policy: CompactionPolicy) -> int:
        size = self._row_group_rows(part.rows, part.size_bytes)
        limit = self._files_per_scan()
        if len(part.tasks) <= limit:
            view = self._views.write(part.tasks)
            return self._write(cursor, sql.select_part(view, part), path, view.columns, policy, size)
        with self._staged(cursor, part.scans(limit), f"staged_{uuid.uuid4().hex}") as (name, columns):
            return self._write(cursor, f"SELECT {sql.renamed(columns)} FROM {name}", path, columns, policy, size)

    def _row_group_rows(self, rows: int, size_bytes: int) -> int:
        return sql.row_group_rows(rows, size_bytes, self._views.columns, self._worker_memory_bytes // self._threads)

    def _files_per_scan(self) -> int:
        """Return how many files one scan may bind: the cap, or fewer where the table is wide or memory is short."""
        leaves = sum(len(column.leaves) for column in self._views.columns)
        each = max(leaves, 1) * self._threads * SCAN_BYTES_PER_COLUMN
        return max(MIN_FILES_PER_SCAN, min(MAX_FILES_PER_GROUP, self._worker_memory_bytes // (SCAN_SHARE * each)))

    @contextmanager
    def _staged(
        self, cursor: duckdb.DuckDBPyConnection, scans: Sequence[Part], name: str
    ) -> Iterator[tuple[str, tuple[Column, ...]]]:
        """Read many files in several scans into one temporary table, which spills: a scan's memory grows by the
        file."""
        view = self._views.write(scans[0].tasks)
        try:
            cursor.execute(f"CREATE TEMP TABLE {name} AS {sql.select_part(view, scans[0], own_names=False)}")
            for scan in scans[1:]:
                view = self._views.write(scan.tasks)
                cursor.execute(f"INSERT INTO {name} {sql.select_part(view, scan, own_names=False)}")
            yield name, view.columns
        finally:
            cursor.execute(f"DROP TABLE IF EXISTS {name}")

    def _write(
        self,
        cursor: duckdb.DuckDBPyConnection,
        select: str,
        path: str,
        columns: tuple[Column, ...],
        policy: CompactionPolicy,
        row_group_size: int,
    ) -> int:
        return write_rows(cursor, select, path, columns, codec=policy.compression_codec, row_group_size=row_group_size)

    def write_sorted(self, work: _Work, policy: CompactionPolicy) -> None:
        """Sort one group into a temporary table, which spills, then write contiguous ranges of it."""
        group = work.group
        cursor = self._connection.cursor()
        order = sql.order_by(policy.sort_order, self._views.columns)
        scans = Part(group=group, tasks=group.tasks).scans(self._files_per_scan())
        with self._staged(cursor, scans, f"staged_{group.index}") as (staged, columns):
            name = f"sorted_{group.index}"
            found = cursor.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {staged} ORDER BY {order}").fetchone()
            rows = int(found[0]) if found else 0
            try:
                self._write_ranges(cursor, work, name, columns, rows, policy)
            finally:
                cursor.execute(f"DROP TABLE {name}")

    def _write_ranges(
        self,
        cursor: duckdb.DuckDBPyConnection,
        work: _Work,
        name: str,
        columns: tuple[Column, ...],
        rows: int,
        policy: CompactionPolicy,
    ) -> None:
        group = work.group
        size = self._row_group_rows(group.rows, group.size_bytes)
        order_id = self._outputs.sort_order_id(policy.sort_order)
        files = min(group.expected_output_files, rows)
        targets = self._outputs.reserve([group.partition] * files)
        work.reserved += [target.location for target in targets]
        for number, target in enumerate(targets):
            low, high = rows * number // files, rows * (number + 1) // files
            select = f"SELECT {sql.renamed(columns)} FROM {name} WHERE rowid >= {low} AND rowid < {high}"
            self._write(cursor, select, target.local_path, columns, policy, size)
            work.added.append(self._outputs.publish(target, sort_order_id=order_id))

    def count_deleted(self, work: _Work) -> None:
        limit, tasks = self._files_per_scan(), work.group.tasks
        for low in range(0, len(tasks), limit):  # a row is counted with its own file, so parts add up
            part = replace(work.group, tasks=tasks[low : low + limit])
            work.rows_deleted += count_deleted_rows(self._connection.cursor(), self._views, part)


def _part_step(
    engine: DuckDBRewriteEngine, work: _Work, part: Part, target: OutputTarget, policy: CompactionPolicy
) -> Callable[[], None]:
    return lambda: engine.write_part(work, part, target, policy)


def _sorted_step(engine: DuckDBRewriteEngine, work: _Work, policy: CompactionPolicy) -> Callable[[], None]:
    return lambda: engine.write_sorted(work, policy)


def _count_step(engine: DuckDBRewriteEngine, work: _Work) -> Callable[[], None]:
    return lambda: engine.count_deleted(work)
