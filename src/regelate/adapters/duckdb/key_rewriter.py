"""Upsert's copy-on-write: finds the data files that hold given keys and writes what is left of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
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
from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.schema import Column
from regelate.core.table.table import FileScanTask, Partition
from regelate.errors import InvariantViolated
from regelate.ports.engine import GroupViews
from regelate.ports.files import OutputFiles

KEYS = "upsert_keys"
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
        self, connection: duckdb.DuckDBPyConnection, views: GroupViews, outputs: OutputFiles, *, codec: str = "zstd"
    ) -> None:
        self._connection = connection
        self._views = views
        self._outputs = outputs
        self._codec = codec

    def without(
        self, tasks: Sequence[FileScanTask], rows: object, key: Sequence[str]
    ) -> tuple[tuple[FileScanTask, ...], tuple[NewDataFile, ...]]:
        """Return the tasks that hold any of the keys in `rows` (Arrow), and new files with their other rows."""
        touched: list[FileScanTask] = []
        added: list[NewDataFile] = []
        reserved: list[str] = []
        try:
            with self._keyed(rows, key, tasks) as cursor:
                for partition, members in _scans(tasks):
                    found = self._touched(cursor, members, key)
                    fault = wrong_size(found)
                    if fault is not None:
                        raise fault
                    check_checksums(self._connection.cursor, found)
                    touched += found
                    added += self._rest(cursor, partition, found, key, reserved)
        except BaseException:
            self._outputs.discard(reserved)
            raise
        return tuple(touched), tuple(added)

    def stored(
        self, tasks: Sequence[FileScanTask], rows: object, key: Sequence[str], fields: Collection[int]
    ) -> pa.Table:
        """Return some columns of the live rows that have any of the keys in `rows` (Arrow), and whose key it is."""
        found: list[pa.Table] = []
        with self._keyed(rows, key, tasks) as cursor:
            cursor.execute("SET arrow_lossless_conversion = true")  # else a uuid comes out as text
            cursor.execute("SET arrow_large_buffer_size = true")  # texts of one column may be more than 2 GB
            for _, members in _scans(tasks):
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
    ) -> list[FileScanTask]:
        view = self._views.write(tasks)
        found = cursor.execute(
            f"SELECT DISTINCT s.filename FROM {sql.source(view)} WHERE {_matches(view, key)}"
        ).fetchall()
        names = {name for (name,) in found}
        return [t for t in tasks if t.data_file.path in names]

    def _rest(
        self,
        cursor: duckdb.DuckDBPyConnection,
        partition: Partition,
        tasks: Sequence[FileScanTask],
        key: Sequence[str],
        reserved: list[str],
    ) -> list[NewDataFile]:
        if not tasks:
            return []
        view = self._views.write(tasks)
        matched = _count(cursor, f"SELECT count(*) FROM {sql.source(view)} WHERE {_matches(view, key)}")
        group = FileGroup(
            index=0,
            partition=partition,
            tasks=tuple(tasks),
            expected_output_files=1,
            reasons=(),
        )
        expected = group.rows - count_deleted_rows(self._connection.cursor(), self._views, group) - matched
        (target,) = self._outputs.reserve([partition])
        reserved.append(target.location)
        select = sql.select(view, [f"NOT ({_matches(view, key)})"])
        written = self._write(cursor, select, target.local_path, view.columns, group)
        if written != expected:
            raise InvariantViolated(
                "ROWS_NOT_CONSERVED", f"{written} rows are left where {expected} should be; nothing was committed"
            )
        if not written:
            Path(target.local_path).unlink(missing_ok=True)
            return []
        return [self._outputs.publish(target, sort_order_id=None)]

    def _write(
        self,
        cursor: duckdb.DuckDBPyConnection,
        select: str,
        path: str,
        columns: tuple[Column, ...],
        group: FileGroup,
    ) -> int:
        size = sql.row_group_rows(group.rows, group.size_bytes, columns, WRITER_BYTES)
        return write_rows(cursor, select, path, columns, codec=self._codec, row_group_size=size)


def _scans(tasks: Sequence[FileScanTask]) -> Iterator[tuple[Partition, list[FileScanTask]]]:
    """Cut tasks into what one view may name."""
    by_partition: dict[Partition, list[FileScanTask]] = defaultdict(list)
    for task in tasks:
        by_partition[task.data_file.partition].append(task)
    for partition, members in by_partition.items():
        for low in range(0, len(members), MAX_FILES_PER_SCAN):
            yield partition, members[low : low + MAX_FILES_PER_SCAN]


def _matches(view: GroupView, key: Sequence[str]) -> str:
    return f"EXISTS (SELECT 1 FROM {KEYS} k WHERE {_same_key(view, key)})"


def _same_key(view: GroupView, key: Sequence[str]) -> str:
    columns = {c.name: c for c in view.columns}
    terms = (f"k.k{i} IS NOT DISTINCT FROM {sql.view_column(columns[n], view)}" for i, n in enumerate(key))
    return " AND ".join(terms)


def _count(cursor: duckdb.DuckDBPyConnection, text: str) -> int:
    found = cursor.execute(text).fetchone()
    return int(found[0]) if found else 0
