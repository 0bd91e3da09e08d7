"""The rewrite engine: reads file groups through views and writes one Parquet file per slice, several slices at once."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb

from regelate.adapters.duckdb import sql
from regelate.adapters.duckdb.arrow_writer import Misfit
from regelate.adapters.duckdb.copies import LocalCopies
from regelate.adapters.duckdb.cursors import Cursors
from regelate.adapters.duckdb.deleted_rows import count_deleted_rows
from regelate.adapters.duckdb.duckdb_errors import located, miscounted, reading_fault
from regelate.adapters.duckdb.fingerprints import of_file, of_views
from regelate.adapters.duckdb.group_rewrite import Assembly, Call, GroupRewrite, Piece, Queued
from regelate.adapters.duckdb.inputs import check_checksums, check_remote, wrong_size
from regelate.adapters.duckdb.lanes import NoLane, recode
from regelate.adapters.duckdb.makeups import Makeups, Recipe, sources_of
from regelate.adapters.duckdb.question import scan_paths
from regelate.adapters.duckdb.row_groups import too_large
from regelate.adapters.duckdb.secrets import use_store
from regelate.adapters.duckdb.session import exhausted
from regelate.adapters.duckdb.writer import write_rows
from regelate.core.engines import DUCKDB_COST
from regelate.core.planning.lanes import Lane
from regelate.core.planning.plan import FileGroup
from regelate.core.policy.policy import CompactionPolicy, Strategy
from regelate.core.running.rewrite import Fingerprint, OutputTarget, RewriteResult
from regelate.core.running.slices import Slice, group_start, split
from regelate.core.table.schema import Column
from regelate.core.table.storage import ObjectStoreAccess
from regelate.core.table.table import DeleteContent
from regelate.errors import Unavailable
from regelate.ports.engine import DamageCheck, GroupViews, Progress, Splicer
from regelate.ports.files import OutputFiles

SCAN_BYTES_PER_COLUMN = 5 * 1024
"""What DuckDB holds per file, leaf column and thread of a scan: 3.5 to 4.4 KB measured (trap T13: memory for every
input file), rounded up."""
MIN_FILES_PER_SCAN, MAX_FILES_PER_SCAN = 16, DUCKDB_COST.max_files_per_scan
SCAN_SHARE = 4
"""A quarter of a worker's memory may go to what its scan holds per file; the rest decodes, sorts and encodes."""
LANE_SHARE = 3
"""A third of a worker's memory may go to the rows of a row group, decoded; as much again to their pages."""
PROBE_SHARE = 0.05
PROBE_BYTES = 32 * 1024 * 1024
"""A table without a history of rewrites is probed with the first 5 % of a group, at most 32 MB."""


class DuckDBRewriteEngine:
    """Implements RewriteEngine on one DuckDB session; `workers` slices are written at once, each by a cursor.

    A group of which a slice fails is given back with its fault and its outputs are deleted; the other groups go on.
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
        splicer: Splicer,
        damaged: DamageCheck,
        copies: LocalCopies | None = None,
        renew: Callable[[], ObjectStoreAccess | None] = lambda: None,
    ) -> None:
        """`splicer` makes one file of an output's pieces and the row groups of inputs. `renew` returns other
        credentials for the files that are read where they lie, once these were refused."""
        self._views = views
        self._outputs = outputs
        self._folder = folder
        self._workers = max(workers, 1)
        self._threads = max(threads, 1)
        self._cursor = Cursors(connect, self._threads)
        self._worker_memory_bytes = worker_memory_bytes
        self._splicer = splicer
        self._damaged = damaged
        self._lane_memory_bytes = worker_memory_bytes // LANE_SHARE
        self._makeups = Makeups(splicer, views.columns, folder, self._files_per_scan, self._lane_memory_bytes)
        self._copies = copies
        self._renew = renew

    def achieved_ratio(self, group: FileGroup, policy: CompactionPolicy) -> float:
        """Return bytes out per byte in, measured by writing a sample of the group to the spill folder."""
        piece = group_start(group, min(max(group.size_bytes * PROBE_SHARE, 1), PROBE_BYTES))
        path = self._folder / "probe.parquet"
        try:
            with self._copied(replace(group, tasks=piece.tasks)) as here:
                sample = replace(piece, group=here, tasks=here.tasks)
                self._copy(self._cursor(), sample, str(path), policy, self._rows_of(sample))
            return path.stat().st_size / max(piece.size_bytes, 1)
        except duckdb.Error as error:
            raise reading_fault(error, scan_paths(piece.tasks)) from error
        finally:
            path.unlink(missing_ok=True)

    def rewrite(
        self, groups: Sequence[FileGroup], policy: CompactionPolicy, *, progress: Progress | None = None
    ) -> tuple[tuple[RewriteResult, ...], tuple[tuple[FileGroup, Exception], ...]]:
        """Rewrite every group; return results in plan order, and the groups that failed with their faults."""
        rewrites = [GroupRewrite(group) for group in groups]
        if self._copies is not None:
            self._copies.begin(groups)
        try:
            queue, writes = self._queue(rewrites, policy)
            with self._threads_for(writes):
                self._run(queue, progress)
        except BaseException:  # interrupted: nothing of this run can have been committed
            for rewrite in rewrites:
                self._outputs.discard(rewrite.reserved)
            raise
        finally:
            for assembly in (assembly for rewrite in rewrites for assembly in rewrite.assemblies):
                assembly.discard()
        results: list[RewriteResult] = []
        failed: list[tuple[FileGroup, Exception]] = []
        for rewrite in rewrites:
            if rewrite.fault is None:
                rewrite.fault = self._miscounted(rewrite)
            if rewrite.fault is None:
                results.append(rewrite.result)
            else:
                self._outputs.discard(rewrite.reserved)
                failed.append((rewrite.group, rewrite.fault))
        return tuple(results), tuple(failed)

    def _threads_for(self, writes: int) -> AbstractContextManager[None]:
        """Give each worker one thread while there is a file for each to write: two that share two threads take up to
        twice the memory, and more time."""
        return self._cursor.of_one_thread() if writes >= self._workers > 1 else nullcontext()

    def _queue(self, rewrites: Sequence[GroupRewrite], policy: CompactionPolicy) -> tuple[list[Queued], int]:
        """Return what is to be done, group by group, for the copies of one group make room for those of the next; and
        how much of it writes."""
        writing: list[list[Call]]
        if policy.strategy is Strategy.SORT:
            writing = [[partial(self.write_sorted, rewrite, policy)] for rewrite in rewrites]
        else:
            writing = self._slice_calls(rewrites, policy)
        queue: list[Queued] = []
        for rewrite, calls in zip(rewrites, writing, strict=True):
            own: list[Call] = [partial(self.check, rewrite), *calls]
            if any(t.deletes for t in rewrite.group.tasks):
                own.append(partial(self.count_deleted, rewrite))
            rewrite.calls_left = len(own)
            queue += [(rewrite, call) for call in own]
        return queue, sum(map(len, writing))

    def check(self, rewrite: GroupRewrite) -> None:
        check_checksums(self._damaged, self._cursor, self._here(rewrite).tasks)

    def _here(self, rewrite: GroupRewrite) -> FileGroup:
        """Return the group as it can be read, once it has arrived and its files are found fit to be read."""
        with rewrite.arriving:
            if rewrite.here is None:
                here = rewrite.group if self._copies is None else self._copies.of(rewrite.group)
                fault = wrong_size(here.tasks) or too_large(self._cursor, here.tasks, self._worker_memory_bytes)
                if fault is not None:
                    raise fault
                rewrite.here = here
            return rewrite.here

    @contextmanager
    def _copied(self, group: FileGroup) -> Iterator[FileGroup]:
        """Read one group by itself, beside a rewrite."""
        if self._copies is None:
            yield group
            return
        self._copies.begin([group])
        try:
            yield self._copies.of(group)
        finally:
            self._copies.release(group)

    def _miscounted(self, rewrite: GroupRewrite) -> Exception | None:
        """Where rows do not add up, ask the inputs' own footers whether the manifests count them wrongly."""
        result = rewrite.result
        if result.rows_read - result.rows_deleted == result.rows_written:
            return None
        try:
            return miscounted(self._cursor(), rewrite.group.tasks)
        except duckdb.Error as error:
            return reading_fault(error, scan_paths(rewrite.group.tasks))

    def fingerprints(self, result: RewriteResult) -> tuple[Fingerprint, Fingerprint]:
        """Return the fingerprints of what a rewrite read, by a scan of its own, and of its outputs as PyArrow reads
        them back from where they lie. Remote inputs, whose page checksums nobody has looked at yet, are checked too."""
        group, cursor = result.group, self._cursor()
        written = Fingerprint()
        for added in result.added:
            with self._outputs.open(added.path) as source:
                written += of_file(cursor, source, self._views.columns, added.path)
        try:
            with self._copied(group) as here:
                check_remote(self._damaged, self._cursor, here.tasks, self._outputs.open)
                scans = Slice(group=here, tasks=here.tasks).scans(self._files_per_scan())
                return of_views(cursor, self._views, scans), written
        except duckdb.Error as error:
            raise reading_fault(error, scan_paths(group.tasks)) from error

    def _run(self, queue: list[Queued], progress: Progress | None) -> None:
        done = 0
        lock = threading.Lock()

        def guarded(rewrite: GroupRewrite, call: Call) -> None:
            nonlocal done
            if rewrite.fault is None:
                fault = self._fault_of(rewrite, call)
                if fault is not None and _is_refused(fault) and self._renewed():
                    fault = self._fault_of(rewrite, call)
                if fault is not None:
                    rewrite.spoil(fault if self._copies is None else self._copies.named(fault))
            with lock:
                done += 1
                rewrite.calls_left -= 1
                if self._copies is not None and not rewrite.calls_left:
                    self._copies.release(rewrite.group)
                if progress is not None:
                    progress(done, len(queue))

        with ThreadPoolExecutor(max_workers=self._workers, thread_name_prefix="rewrite") as pool:
            waiting: list[Future[None]] = [pool.submit(guarded, rewrite, call) for rewrite, call in queue]
            for future in waiting:
                future.result()

    def _fault_of(self, rewrite: GroupRewrite, call: Call) -> Exception | None:
        try:
            call()
        except duckdb.Error as error:
            scanned = scan_paths(rewrite.tasks)
            return located(reading_fault(error, scanned), self._cursor, scanned)
        except Exception as error:  # noqa: BLE001  the group is given back with it: nothing is swallowed
            return exhausted(error) or error
        return None

    def _renewed(self) -> bool:
        """Give the session other credentials; say whether there were any."""
        access = self._renew()
        if access is not None:
            use_store(self._cursor(), access)
        return access is not None

    def _slice_calls(self, rewrites: Sequence[GroupRewrite], policy: CompactionPolicy) -> list[list[Call]]:
        """Reserve all outputs before any call runs: one ledger entry, and names that follow the order of the slices."""
        slices = [(rewrite, piece) for rewrite in rewrites for piece in split(rewrite.group)]
        partitions = [rewrite.group.partition for rewrite, _ in slices]
        targets = self._outputs.reserve(partitions, target_bytes=policy.target_file_size_bytes)
        wanted = -(-self._workers // max(len(slices), 1))
        calls: dict[int, list[Call]] = {rewrite.group.index: [] for rewrite in rewrites}
        for (rewrite, whole), target in zip(slices, targets, strict=True):
            rewrite.reserved.append(target.location)
            own = calls[rewrite.group.index]
            remote = self._copies is not None  # and nobody can look at the files before they are here
            recipe = Recipe(whole=whole) if remote else self._makeups.recipe(whole, policy)
            waits = remote and self._makeups.may_splice(whole, policy)
            assembly = None if waits else self._makeups.assembly(recipe, target, wanted)
            if assembly is None:
                write = self.write_arrived if remote else partial(self.write_slice, lane=recipe.lane)
                own.append(partial(write, rewrite, whole, target, policy))
                continue
            if remote:
                read = partial(self._as_read, rewrite, whole)
                assembly.lane_on_arrival = lambda read=read: self._makeups.recipe(read(), policy).lane
            rewrite.assemblies.append(assembly)
            pieces = assembly.pieces or (None,)
            own += [partial(self.write_piece, rewrite, assembly, piece, policy) for piece in pieces]
        return [calls[rewrite.group.index] for rewrite in rewrites]

    def _as_read(self, rewrite: GroupRewrite, piece: Slice) -> Slice:
        here = self._here(rewrite)
        end = piece.first_task + len(piece.tasks)
        return replace(piece, group=here, tasks=here.tasks[piece.first_task : end])

    def write_arrived(
        self, rewrite: GroupRewrite, whole: Slice, target: OutputTarget, policy: CompactionPolicy
    ) -> None:
        """Write an output of files whose footers can be looked at once they have been fetched, piece by piece."""
        recipe = self._makeups.recipe(self._as_read(rewrite, whole), policy)
        assembly = self._makeups.assembly(recipe, target, 1)
        if assembly is None:
            self.write_slice(rewrite, whole, target, policy, recipe.lane)
            return
        rewrite.assemblies.append(assembly)
        for piece in assembly.pieces or (None,):
            self.write_piece(rewrite, assembly, piece, policy)

    def write_slice(
        self,
        rewrite: GroupRewrite,
        piece: Slice,
        target: OutputTarget,
        policy: CompactionPolicy,
        lane: Lane | None = None,
    ) -> None:
        """Write an output as a whole; `lane`: that is to do it, if it can."""
        here = self._as_read(rewrite, piece)
        try:
            rows = self._in_lane(lane, here, target.local_path, policy, self._rows_of(here))
        except NoLane:
            rows = self._copy(self._cursor(), here, target.local_path, policy, self._rows_of(here))
        if rows:
            rewrite.added.append(self._outputs.publish(target, sort_order_id=None))
        else:
            Path(target.local_path).unlink(missing_ok=True)

    def write_piece(
        self, rewrite: GroupRewrite, assembly: Assembly, piece: Piece | None, policy: CompactionPolicy
    ) -> None:
        """Write one piece of an output, if it has any; whoever writes the last one joins them and what is spliced."""
        if assembly.is_spent:  # and an upload was refused: the pieces are gone
            self.write_slice(rewrite, assembly.whole, assembly.target, policy)
            return
        if piece is not None and not assembly.is_misfit:
            here = self._as_read(rewrite, piece.slice)
            size = sql.even_row_groups(here.rows, self._rows_of(here))
            try:
                lane = assembly.lane_of(piece)
                if lane is not None:
                    self._in_lane(lane, here, piece.path, policy, size)
                else:
                    self._copy(self._cursor(), here, piece.path, policy, size, shaped=piece.columns)
            except (Misfit, NoLane):
                assembly.is_misfit = True
        if not assembly.completes(piece):
            return
        assembly.is_spent = True
        sources = list(sources_of(assembly, self._here(rewrite)))
        if not assembly.is_misfit and self._splicer.join(sources, assembly.target.local_path):
            rewrite.added.append(self._outputs.publish(assembly.target, sort_order_id=None))
            rewrite.spliced.append(assembly.spliced_bytes)
        else:  # one piece alone has a -0.0, and so another writer; a null where what is copied has none; or an input is
            # not what its footer said
            assembly.discard()
            self.write_slice(rewrite, assembly.whole, assembly.target, policy)

    def _in_lane(self, lane: Lane | None, piece: Slice, path: str, policy: CompactionPolicy, size: int) -> int:
        """Write a slice by a dictionary lane and return its rows. Errors: NoLane."""
        if lane is None:
            raise NoLane("a query has to do it")
        return recode(
            lane, piece, path, codec=policy.compression_codec, rows=size, memory_bytes=self._lane_memory_bytes
        )

    def _copy(
        self,
        cursor: duckdb.DuckDBPyConnection,
        piece: Slice,
        path: str,
        policy: CompactionPolicy,
        size: int,
        *,
        shaped: Sequence[Column] | None = None,
    ) -> int:
        limit, codec = self._files_per_scan(), policy.compression_codec
        if len(piece.tasks) <= limit:
            view = self._views.write(piece.tasks)
            select = sql.select_slice(view, piece)
            return write_rows(cursor, select, path, view.columns, codec=codec, row_group_size=size, shaped=shaped)
        with self._staged(cursor, piece.scans(limit), f"staged_{uuid.uuid4().hex}") as (name, columns):
            select = f"SELECT {sql.renamed(columns)} FROM {name}"
            return write_rows(cursor, select, path, columns, codec=codec, row_group_size=size, shaped=shaped)

    def _rows_of(self, piece: Slice) -> int:
        return self._row_group_rows(piece.rows, piece.size_bytes)

    def _row_group_rows(self, rows: int, size_bytes: int) -> int:
        return sql.row_group_rows(rows, size_bytes, self._views.columns, self._worker_memory_bytes // self._threads)

    def _files_per_scan(self) -> int:
        """Return how many files one scan may bind: the cap, or fewer where the table is wide or memory is short."""
        leaves = sum(len(column.leaves) for column in self._views.columns)
        each = max(leaves, 1) * self._threads * SCAN_BYTES_PER_COLUMN
        return max(MIN_FILES_PER_SCAN, min(MAX_FILES_PER_SCAN, self._worker_memory_bytes // (SCAN_SHARE * each)))

    @contextmanager
    def _staged(
        self, cursor: duckdb.DuckDBPyConnection, scans: Sequence[Slice], name: str
    ) -> Iterator[tuple[str, tuple[Column, ...]]]:
        """Read many files in several scans into one temporary table, which spills: a scan's memory grows by the
        file."""
        view = self._views.write(scans[0].tasks)
        try:
            cursor.execute(f"CREATE TEMP TABLE {name} AS {sql.select_slice(view, scans[0], own_names=False)}")
            for scan in scans[1:]:
                view = self._views.write(scan.tasks)
                cursor.execute(f"INSERT INTO {name} {sql.select_slice(view, scan, own_names=False)}")
            yield name, view.columns
        finally:
            cursor.execute(f"DROP TABLE IF EXISTS {name}")

    def write_sorted(self, rewrite: GroupRewrite, policy: CompactionPolicy) -> None:
        """Sort one group into a temporary table, which spills, then write contiguous ranges of it."""
        group = self._here(rewrite)
        cursor = self._cursor()
        order = sql.order_by(policy.sort_order, self._views.columns)
        scans = Slice(group=group, tasks=group.tasks).scans(self._files_per_scan())
        with self._staged(cursor, scans, f"staged_{group.index}") as (staged, columns):
            name = f"sorted_{group.index}"
            found = cursor.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {staged} ORDER BY {order}").fetchone()
            rows = int(found[0]) if found else 0
            try:
                self._write_ranges(cursor, rewrite, name, columns, rows, policy)
            finally:
                cursor.execute(f"DROP TABLE {name}")

    def _write_ranges(
        self,
        cursor: duckdb.DuckDBPyConnection,
        rewrite: GroupRewrite,
        name: str,
        columns: tuple[Column, ...],
        rows: int,
        policy: CompactionPolicy,
    ) -> None:
        group = rewrite.group
        size = self._row_group_rows(group.rows, group.size_bytes)
        order_id = self._outputs.sort_order_id(policy.sort_order)
        files = min(group.expected_output_files, rows)
        targets = self._outputs.reserve([group.partition] * files, target_bytes=policy.target_file_size_bytes)
        rewrite.reserved += [target.location for target in targets]
        for number, target in enumerate(targets):
            low, high = rows * number // files, rows * (number + 1) // files
            select = f"SELECT {sql.renamed(columns)} FROM {name} WHERE rowid >= {low} AND rowid < {high}"
            codec = policy.compression_codec
            write_rows(cursor, select, target.local_path, columns, codec=codec, row_group_size=size)
            rewrite.added.append(self._outputs.publish(target, sort_order_id=order_id))

    def count_deleted(self, rewrite: GroupRewrite) -> None:
        limit, here = self._files_per_scan(), self._here(rewrite)
        if any(d.content is DeleteContent.POSITION for t in rewrite.group.tasks for d in t.deletes):
            here = rewrite.group  # counted under the paths that they name, wherever the rows were read
        batches = [replace(here, tasks=here.tasks[low : low + limit]) for low in range(0, len(here.tasks), limit)]
        # a row is counted with its own file, so batches add up
        rewrite.rows_deleted = sum(count_deleted_rows(self._cursor(), self._views, batch) for batch in batches)


def _is_refused(fault: Exception) -> bool:
    return isinstance(fault, Unavailable) and fault.code == "STORAGE_AUTH"
