"""The copy-on-write of a WRITE: finds the data files that hold given keys, and writes what is left of them and the rows
of the request as few files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa

from regelate.adapters.duckdb import sql
from regelate.adapters.duckdb.deleted_rows import count_deleted_rows
from regelate.adapters.duckdb.duckdb_errors import reading_fault
from regelate.adapters.duckdb.inputs import check_checksums, wrong_size
from regelate.adapters.duckdb.question import scan_paths
from regelate.adapters.duckdb.writer import write_rows
from regelate.core.engines import DUCKDB_COST
from regelate.core.planning.plan import FileGroup
from regelate.core.running.given_rows import RECORD
from regelate.core.running.group_view import GroupView, name_in_view
from regelate.core.running.merging import Merge, TouchedFile
from regelate.core.running.rewrite import NewDataFile
from regelate.core.running.slices import Slice
from regelate.core.table.table import FileScanTask, Partition
from regelate.errors import InvariantViolated
from regelate.ports.engine import DamageCheck, GroupViews
from regelate.ports.files import OutputFiles

KEYS = "upsert_keys"
STAGED = "upsert_rows"
MAX_FILES_PER_SCAN = DUCKDB_COST.max_files_per_scan
WRITER_BYTES = 128 * 1024 * 1024
"""Memory for the row group under way; an upsert writes one file at a time."""


class DuckDBKeyRewriter:
    """Implements KeyRewriter. Keys compare null-safe; one view per partition (trap T2: deletes reach other partitions)
    and per 500 files (trap T13: memory for every input file).

    Errors: InvariantViolated ROWS_NOT_CONSERVED when what is left is not the visible rows minus the matched ones; the
    reading faults. Outputs of a failed call are deleted.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        views: GroupViews,
        outputs: OutputFiles,
        *,
        damaged: DamageCheck,
        codec: str = "zstd",
    ) -> None:
        self._connection = connection
        self._views = views
        self._outputs = outputs
        self._damaged = damaged
        self._codec = codec

    def touched(self, tasks: Sequence[FileScanTask], rows: object, key: Sequence[str]) -> tuple[TouchedFile, ...]:
        """Return the tasks that hold any of the keys in `rows` (Arrow), and how many rows of them have one."""
        touched: list[TouchedFile] = []
        with self._keyed(rows, key, tasks) as cursor:
            for members in _scans(tasks):
                found = self._touched(cursor, members, key)
                self._check([f.task for f in found])
                touched += found
        return tuple(touched)

    def merge(
        self, merges: Sequence[Merge], rows: object, key: Sequence[str], *, target_bytes: int
    ) -> tuple[tuple[NewDataFile, ...], ...]:
        """Return the new files of each merge: its rows but those of the keys in `rows` (Arrow) in its touched files."""
        reserved: list[str] = []
        try:
            with self._keyed(rows, key, [t for merge in merges for t in merge.replaced]) as cursor:
                return tuple(self._merged(cursor, merge, key, target_bytes, reserved) for merge in merges)
        except BaseException:
            self._outputs.discard(reserved)
            raise

    def stored(
        self, tasks: Sequence[FileScanTask], rows: object, key: Sequence[str], fields: Collection[int]
    ) -> pa.Table:
        """Return some columns of the live rows that have any of the keys in `rows` (Arrow), and whose key it is."""
        found: list[pa.Table] = []
        with self._keyed(rows, key, tasks) as cursor:
            cursor.execute("SET arrow_lossless_conversion = true")  # else a uuid comes out as text
            cursor.execute("SET arrow_large_buffer_size = true")  # texts of one column may be more than 2 GB
            for members in _scans(tasks):
                view = self._views.write(members)
                columns = (c for c in view.columns if c.field_id in fields)
                named = (f"{sql.view_column(c, view)} AS {name_in_view(c.field_id)}" for c in columns)
                wanted = ", ".join((f"k.{RECORD} AS {RECORD}", *named))
                text = f"SELECT {wanted} FROM {sql.source(view)} JOIN {KEYS} AS k ON {_same_key(view, key)}"
                found.append(cursor.execute(text).to_arrow_table())
        return pa.concat_tables(found)

    @contextmanager
    def _keyed(
        self, rows: object, key: Sequence[str], tasks: Sequence[FileScanTask]
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a cursor with the keys of `rows`, numbered, in a table; what DuckDB raises is named by these tasks."""
        cursor = self._connection.cursor()
        keys = pa.table({RECORD: range(len(rows)), **{f"k{i}": rows[name] for i, name in enumerate(key)}})  # type: ignore[arg-type,index]
        cursor.register("incoming", keys)
        cursor.execute(f"CREATE TEMP TABLE {KEYS} AS FROM incoming")
        try:
            yield cursor
        except duckdb.Error as error:
            raise reading_fault(error, scan_paths(tasks)) from error
        finally:
            cursor.execute(f"DROP TABLE {KEYS}")
            cursor.close()

    def _touched(
        self, cursor: duckdb.DuckDBPyConnection, tasks: Sequence[FileScanTask], key: Sequence[str]
    ) -> list[TouchedFile]:
        view = self._views.write(tasks)
        found = cursor.execute(
            f"SELECT s.filename, count(*) FROM {sql.source(view)} WHERE {_matches(view, key)} GROUP BY ALL"
        ).fetchall()
        matched = dict(found)
        return [
            TouchedFile(task=t, matched_rows=matched[t.data_file.path]) for t in tasks if t.data_file.path in matched
        ]

    def _check(self, tasks: Sequence[FileScanTask]) -> None:
        fault = wrong_size(tasks)
        if fault is not None:
            raise fault
        check_checksums(self._damaged, self._connection.cursor, tasks)

    def _merged(
        self,
        cursor: duckdb.DuckDBPyConnection,
        merge: Merge,
        key: Sequence[str],
        target_bytes: int,
        reserved: list[str],
    ) -> tuple[NewDataFile, ...]:
        self._check(merge.whole)
        slices = merge.slices(target_bytes)
        group = slices[0].group
        targets = self._outputs.reserve([merge.partition] * len(slices))
        reserved += [target.location for target in targets]
        added: list[NewDataFile] = []
        written = 0
        for piece, target in zip(slices, targets, strict=True):
            rows = self._write(cursor, piece, len(merge.touched), key, target.local_path)
            if rows:
                added.append(self._outputs.publish(target, sort_order_id=None))
            else:
                Path(target.local_path).unlink(missing_ok=True)
            written += rows
        expected = group.rows - self._deleted(group) - merge.matched_rows
        if written != expected:
            raise InvariantViolated(
                "ROWS_NOT_CONSERVED", f"{written} rows are left where {expected} should be; nothing was committed"
            )
        return tuple(added)

    def _deleted(self, group: FileGroup) -> int:
        """Count the deleted rows of files that have deletes; a row is counted with its own file, so scans add up."""
        tasks = tuple(t for t in group.tasks if t.deletes)
        batches = (tasks[low : low + MAX_FILES_PER_SCAN] for low in range(0, len(tasks), MAX_FILES_PER_SCAN))
        cursor = self._connection.cursor()
        return sum(count_deleted_rows(cursor, self._views, replace(group, tasks=batch)) for batch in batches)

    def _write(
        self, cursor: duckdb.DuckDBPyConnection, piece: Slice, touched: int, key: Sequence[str], path: str
    ) -> int:
        """Write one output: of the first `touched` files of the group the rows that have none of the keys, of the
        others all."""
        filtered, whole = piece.parted(touched)
        scans = [(s, True) for s in (filtered.scans(MAX_FILES_PER_SCAN) if filtered else ())]
        scans += [(s, False) for s in (whole.scans(MAX_FILES_PER_SCAN) if whole else ())]
        columns = self._views.columns
        size = sql.row_group_rows(piece.rows, piece.size_bytes, columns, WRITER_BYTES)
        if len(piece.tasks) <= MAX_FILES_PER_SCAN:
            select = " UNION ALL ".join(self._select(scan, keyed, key) for scan, keyed in scans)
            return write_rows(cursor, select, path, columns, codec=self._codec, row_group_size=size)
        try:  # in several scans: the memory of one grows by the file (trap T13: memory for every input file)
            for number, (scan, keyed) in enumerate(scans):
                into = f"INSERT INTO {STAGED}" if number else f"CREATE TEMP TABLE {STAGED} AS"
                cursor.execute(f"{into} {self._select(scan, keyed, key, own_names=False)}")
            select = f"SELECT {sql.renamed(columns)} FROM {STAGED}"
            return write_rows(cursor, select, path, columns, codec=self._codec, row_group_size=size)
        finally:
            cursor.execute(f"DROP TABLE IF EXISTS {STAGED}")

    def _select(self, scan: Slice, keyed: bool, key: Sequence[str], *, own_names: bool = True) -> str:
        view = self._views.write(scan.tasks)
        also = (f"NOT ({_matches(view, key)})",) if keyed else ()
        return sql.select_slice(view, scan, also, own_names=own_names)


def _scans(tasks: Sequence[FileScanTask]) -> Iterator[list[FileScanTask]]:
    """Cut tasks into what one view may name: files of one partition, as many as one scan may bind."""
    by_partition: dict[Partition, list[FileScanTask]] = defaultdict(list)
    for task in tasks:
        by_partition[task.data_file.partition].append(task)
    for members in by_partition.values():
        for low in range(0, len(members), MAX_FILES_PER_SCAN):
            yield members[low : low + MAX_FILES_PER_SCAN]


def _matches(view: GroupView, key: Sequence[str]) -> str:
    return f"EXISTS (SELECT 1 FROM {KEYS} k WHERE {_same_key(view, key)})"


def _same_key(view: GroupView, key: Sequence[str]) -> str:
    columns = {c.name: c for c in view.columns}
    terms = (f"k.k{i} IS NOT DISTINCT FROM {sql.view_column(columns[n], view)}" for i, n in enumerate(key))
    return " AND ".join(terms)
