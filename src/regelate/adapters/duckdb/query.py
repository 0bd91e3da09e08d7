"""Answers queries: makes SQL of structured ones, runs either form in a locked session, encodes what comes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pyarrow as pa

from regelate.adapters.duckdb.collect import Limits, Overflow, QueryResult, collect
from regelate.adapters.duckdb.duckdb_errors import located
from regelate.adapters.duckdb.encode import ResultColumn
from regelate.adapters.duckdb.sandbox import Deadline, guard, lock, query_fault
from regelate.adapters.duckdb.session import EXTENSIONS, LOCAL_EXTENSIONS, open_session
from regelate.adapters.duckdb.sql import identifier, select
from regelate.core.query.predicate import (
    Aggregate,
    ColumnPath,
    Condition,
    Every,
    Op,
    Ordering,
    Predicate,
    StructuredQuery,
)
from regelate.core.running.group_view import GroupView
from regelate.core.table.storage import ObjectStoreAccess
from regelate.core.table.table import FileScanTask
from regelate.ports.engine import GroupViews

TABLE = "t"
"""The name under which SQL of the caller finds the table, besides its own."""
AGGREGATES = {
    "count": "count({})",
    "count_distinct": "count(DISTINCT {})",
    "sum": "sum({})",
    "avg": "avg({})",
    "min": "min({})",
    "max": "max({})",
}
TYPES = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "string": "VARCHAR",
    "uuid": "UUID",
    "binary": "BLOB",
}
Groups = Sequence[Sequence[FileScanTask]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    text: str
    parameters: tuple[object, ...] = ()


class DuckDBQueryEngine:
    """Runs one query at a time in a session of its own, with its spill files in a private folder that it removes.

    With `max_stored_bytes`, a result that is too large for an answer becomes a file in `folder`, up to that size.
    Errors: InvalidRequest QUERY_NOT_ALLOWED, QUERY_ERROR, RESULT_TOO_LARGE (413); Unavailable QUERY_TIMEOUT (504);
    ResourceExhausted; DataUnavailable for a missing or corrupt file of the table.
    """

    def __init__(
        self,
        *,
        folder: Path,
        memory_bytes: int,
        threads: int,
        max_stored_bytes: int | None = None,
        store: Callable[[], ObjectStoreAccess | None] = lambda: None,
    ) -> None:
        """`store` says how to read files that are not on this machine."""
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._store = store
        stored = folder / "result.ndjson"
        self._overflow = None if max_stored_bytes is None else Overflow(path=stored, max_bytes=max_stored_bytes)

    def select(
        self, query: StructuredQuery, groups: Groups, views: GroupViews, *, max_bytes: int, seconds: float
    ) -> QueryResult:
        """Answer a structured query over the files of the groups; each group becomes one view."""
        names = [path.name for path in query.columns] + [a.name for a in query.aggregates]
        types = [path.column.type for path in query.columns]

        def prepare(connection: duckdb.DuckDBPyConnection, source: str) -> Statement:
            return structured_statement(query, source)

        limits = Limits(max_rows=query.limit, max_bytes=max_bytes, seconds=seconds, overflow=self._overflow)
        found = self._run(prepare, groups, views, limits, names)
        return replace(found, columns=_with_fixed(found.columns, types))

    def sql(
        self,
        text: str,
        table_name: str,
        groups: Groups,
        views: GroupViews,
        *,
        max_rows: int,
        max_bytes: int,
        seconds: float,
    ) -> QueryResult:
        """Answer one SELECT over the table, which it finds as `t` and under its own name."""
        names = {name.lower(): name for name in (TABLE, table_name) if name}
        guard(text, names)

        def prepare(connection: duckdb.DuckDBPyConnection, source: str) -> Statement:
            for name in names.values():
                connection.execute(f"CREATE VIEW {identifier(name)} AS {source}")
            return Statement(text=text)

        limits = Limits(max_rows=max_rows, max_bytes=max_bytes, seconds=seconds, overflow=self._overflow)
        return self._run(prepare, groups, views, limits)

    def _run(
        self,
        prepare: Callable[[duckdb.DuckDBPyConnection, str], Statement],
        groups: Groups,
        views: GroupViews,
        limits: Limits,
        names: Sequence[str] | None = None,
    ) -> QueryResult:
        written = [views.write(tasks) for tasks in groups or ((),)]
        tasks = [task for group in groups for task in group]
        files = files_of(written, tasks)
        remote = any(map(_is_remote, files))
        connection = open_session(
            memory_bytes=self._memory_bytes,
            threads=self._threads,
            folder=self._folder,
            extensions=EXTENSIONS if remote else LOCAL_EXTENSIONS,
            store=self._store() if remote else None,
        )
        try:
            with Deadline(connection, limits.seconds) as deadline:
                try:
                    lock(connection, files)
                    statement = prepare(connection, source_of(written))
                    result = connection.execute(statement.text, statement.parameters)
                    return collect(result, deadline, limits, names)
                except (duckdb.Error, OSError, pa.ArrowException) as error:
                    raise located(query_fault(error, tasks, deadline), connection, tasks) from error
        finally:
            connection.close()
            shutil.rmtree(self._folder / "spill", ignore_errors=True)


def source_of(views: Sequence[GroupView]) -> str:
    """Return a SELECT of all live rows of all views; they share one schema."""
    return " UNION ALL ".join(select(view) for view in views)


def files_of(views: Sequence[GroupView], tasks: Sequence[FileScanTask]) -> list[str]:
    """Return every file that reading the views opens, and no other."""
    of_views = (str(file) for view in views for file in sorted(Path(view.metadata_paths[0]).parent.iterdir()))
    of_table = (path for t in tasks for path in (t.data_file.path, *(d.path for d in t.deletes)))
    return list(dict.fromkeys((*of_views, *of_table)))


def _is_remote(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def _with_fixed(columns: Sequence[ResultColumn], types: Sequence[str]) -> tuple[ResultColumn, ...]:
    """Name the type of `fixed[n]` columns, which the engine reads as plain binary."""
    fixed = {i: text for i, text in enumerate(types) if text.startswith("fixed")}
    return tuple(replace(c, type=fixed.get(i, c.type)) for i, c in enumerate(columns))


def structured_statement(query: StructuredQuery, source: str) -> Statement:
    """Make the SQL of a structured query: identifiers quoted, values bound. Asks for one row more than the limit."""
    alias = "source"
    while any(path.lineage[0].name.lower() == alias for path in _paths(query)):
        alias += "_"
    parameters: list[object] = []
    outputs = [_column(p, alias) for p in query.columns] + [_aggregate(a, alias) for a in query.aggregates]
    parts = [f"SELECT {', '.join(outputs)} FROM ({source}) AS {alias}"]
    condition = _condition(query.predicate, alias, parameters)
    if condition:
        parts.append(f"WHERE {condition}")
    if query.group_by:
        parts.append(f"GROUP BY {', '.join(_column(p, alias) for p in query.group_by)}")
    if query.order_by:
        parts.append(f"ORDER BY {', '.join(_ordering(o, alias) for o in query.order_by)}")
    parts.append(f"LIMIT {query.limit + 1} OFFSET {query.offset}")
    return Statement(text=" ".join(parts), parameters=tuple(parameters))


def _paths(query: StructuredQuery) -> Sequence[ColumnPath]:
    found = [*query.columns, *query.group_by]
    found += [a.path for a in query.aggregates if a.path is not None]
    found += [o.target for o in query.order_by if isinstance(o.target, ColumnPath)]
    waiting: list[Predicate] = [query.predicate]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Condition):
            found.append(part.path)
        else:
            waiting.extend(part.parts)
    return found


def _column(path: ColumnPath, alias: str) -> str:
    return ".".join([alias, *(identifier(c.name) for c in path.lineage)])


def _aggregate(aggregate: Aggregate, alias: str) -> str:
    return AGGREGATES[aggregate.function].format("*" if aggregate.path is None else _column(aggregate.path, alias))


def _ordering(ordering: Ordering, alias: str) -> str:
    target = ordering.target
    what = str(target + 1) if isinstance(target, int) else _column(target, alias)
    return f"{what} {'DESC' if ordering.descending else 'ASC'} NULLS {'FIRST' if ordering.nulls_first else 'LAST'}"


def _condition(part: Predicate, alias: str, parameters: list[object]) -> str:
    if isinstance(part, Condition):
        return _comparison(part, _column(part.path, alias), parameters)
    if not part.parts:
        return "" if isinstance(part, Every) else "false"
    word = " AND " if isinstance(part, Every) else " OR "
    return "(" + word.join(_condition(p, alias, parameters) or "true" for p in part.parts) + ")"


def _comparison(condition: Condition, column: str, parameters: list[object]) -> str:
    """Write one comparison. NaN is looked for by isnan: file statistics leave it out, so `= NaN` would skip files.

    A zero among the values stands for both zeros: IN tells them apart in some plans, and `=` never does.
    """
    op, type_text = condition.op, condition.path.column.type
    if op in (Op.IS_NULL, Op.IS_NOT_NULL):
        return f"{column} IS {'NOT ' if op is Op.IS_NOT_NULL else ''}NULL"
    plain = [v for v in condition.values if v == v]
    floating = type_text in ("float", "double")
    if floating and 0 in plain and op in (Op.EQUAL, Op.NOT_EQUAL, Op.IN, Op.NOT_IN):
        plain += [0.0, -0.0]
    parameters += plain
    marks = [f"CAST(? AS {engine_type(type_text)})" for _ in plain]
    if op in (Op.STARTS_WITH, Op.NOT_STARTS_WITH):
        return f"{'NOT ' if op is Op.NOT_STARTS_WITH else ''}starts_with({column}, {marks[0]})"
    if op in (Op.EQUAL, Op.IN):
        terms = [f"{column} IN ({', '.join(marks)})"] if marks else []
        terms += [f"isnan({column})"] if len(plain) < len(condition.values) else []
        return f"({' OR '.join(terms) or 'false'})"
    if op in (Op.NOT_EQUAL, Op.NOT_IN):
        among = f"{column} NOT IN ({', '.join(marks)})" if marks else "true"
        if len(plain) < len(condition.values):
            return f"({among} AND NOT isnan({column}))"
        return f"({among} OR isnan({column}))" if floating and marks else among
    compared = f"{column} {op.value} {marks[0]}"
    return f"({compared} AND NOT isnan({column}))" if floating and op in (Op.GREATER, Op.GREATER_EQUAL) else compared


def engine_type(type_text: str) -> str:
    """Return DuckDB's name for a primitive Iceberg type."""
    return "BLOB" if type_text.startswith("fixed") else TYPES.get(type_text, type_text)
