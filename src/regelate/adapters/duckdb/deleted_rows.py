"""Counts the rows that a group's deletes remove, independently of the scan that produces the outputs (law 7: rows are
conserved).

The scan applies deletes inside DuckDB's Iceberg reader; this count reads the delete files as plain Parquet and joins
them to the inputs itself, so a view that lost a delete file cannot agree with it by accident.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import duckdb

from regelate.adapters.duckdb.sql import file_name, identifier, key_value, literal, scans, view_column
from regelate.core.planning.plan import FileGroup
from regelate.core.running.group_view import GroupView
from regelate.core.table.schema import Column
from regelate.core.table.table import DeleteContent, DeleteFile
from regelate.errors import Unsupported
from regelate.ports.engine import GroupViews


def count_deleted_rows(connection: duckdb.DuckDBPyConnection, views: GroupViews, group: FileGroup) -> int:
    """Return how many distinct rows of the group's inputs are deleted. Opens no data file without equality deletes.

    Errors: Unsupported UNSUPPORTED_DELETES for an equality delete on a key that the schema or the delete file lacks.
    """
    deletes = {d.path: d for t in group.tasks for d in t.deletes}
    if not deletes:
        return 0
    hits = [_positions(d) for d in deletes.values() if d.content is DeleteContent.POSITION]
    by_key: dict[tuple[int, ...], list[DeleteFile]] = defaultdict(list)
    for delete in deletes.values():
        if delete.content is DeleteContent.EQUALITY:
            by_key[delete.equality_ids].append(delete)
    if by_key:
        view = views.write(group.tasks, with_deletes=False)
        hits += [_matches(connection, view, ids, members) for ids, members in by_key.items()]
    inputs = ", ".join(
        f"({literal(t.data_file.path)}, {t.data_file.record_count}, {t.data_file.sequence_number})" for t in group.tasks
    )
    query = (
        f"WITH inputs(path, row_count, sequence_number) AS (VALUES {inputs}) "
        f"SELECT count(*) FROM (SELECT DISTINCT path, pos FROM ({' UNION ALL '.join(hits)}))"
    )
    found = connection.execute(query).fetchone()
    return int(found[0]) if found else 0


def parquet(path: str) -> str:
    """Read one delete file as it is: DuckDB would take `name=value` folders for columns, over the file's own."""
    return f"read_parquet({file_name(path)}, hive_partitioning = false)"


def _positions(delete: DeleteFile) -> str:
    return (
        f"SELECT i.path, d.pos FROM {parquet(delete.path)} d JOIN inputs i ON d.file_path = i.path "
        f"WHERE d.pos >= 0 AND d.pos < i.row_count AND i.sequence_number <= {delete.sequence_number}"
    )


def _matches(
    connection: duckdb.DuckDBPyConnection, view: GroupView, ids: Sequence[int], deletes: Sequence[DeleteFile]
) -> str:
    """Select the rows that the delete files of one key match, in one scan of the inputs.

    A join, not an EXISTS: a correlated subquery would take -0.0 and 0.0 for one key (trap T24: the sign of zero).
    """
    current = {c.field_id: c for c in view.columns}
    if any(field_id not in current for field_id in ids):
        raise _unsupported(deletes[0])
    key = [current[field_id] for field_id in ids]
    keys = " UNION ALL ".join(_keys(connection, key, d) for d in deletes)
    terms = (f"{key_value(view_column(c, view), c)} IS NOT DISTINCT FROM e.k{i}" for i, c in enumerate(key))
    return (
        f"SELECT s.filename AS path, s.file_row_number AS pos FROM {scans(view)} s "
        f"JOIN inputs i ON s.filename = i.path SEMI JOIN ({keys}) e "
        f"ON {' AND '.join(terms)} AND i.sequence_number < e.sequence_number"
    )


def _keys(connection: duckdb.DuckDBPyConnection, key: Sequence[Column], delete: DeleteFile) -> str:
    """Select the keys of one delete file; its columns are found by field id, because its names may be older."""
    found = connection.execute(
        f"SELECT field_id, name, num_children FROM parquet_schema({file_name(delete.path)}) WHERE field_id IS NOT NULL"
    ).fetchall()
    stored = {int(field_id): identifier(name) for field_id, name, children in found if not children}
    if any(c.field_id not in stored for c in key):
        raise _unsupported(delete)
    wanted = ", ".join(f"{key_value(_cast(stored[c.field_id], c), c)} AS k{i}" for i, c in enumerate(key))
    return f"SELECT {wanted}, {delete.sequence_number} AS sequence_number FROM {parquet(delete.path)}"


def _cast(name: str, column: Column) -> str:
    """Bring a float key that was promoted to double to the text of a double."""
    return f"CAST({name} AS DOUBLE)" if column.type == "double" else name


def _unsupported(delete: DeleteFile) -> Unsupported:
    return Unsupported(
        "UNSUPPORTED_DELETES",
        f"equality delete {delete.path} uses a field that is nested or that the schema or the file does not have; "
        "compact with Spark's rewrite_data_files",
        path=delete.path,
    )
