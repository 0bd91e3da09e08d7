"""Answers queries: makes SQL of structured ones, has either form answered by a process of its own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from regelate.adapters.duckdb.query_pool import QueryPool
from regelate.adapters.duckdb.question import Kind, Limits, Question, ResultColumn, Statement, as_line, scan_paths
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
from regelate.core.table.storage import ObjectStoreAccess, is_remote
from regelate.core.table.table import FileScanTask
from regelate.ports.engine import GroupViews

TABLE = "t"
"""The name under which SQL of the caller finds the table, besides its own."""
ENGINES_OWN = frozenset({"information_schema", "memory", "pg_catalog", "system", "temp"})
"""Schemas and catalogs that every session has: after a namespace of that name SQL cannot find the table."""
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
class QueryResult:
    """Rows are objects by column name, ready for JSON. `truncated`: there were more rows than asked for or allowed.

    Where the rows were too many bytes, `rows` is empty and the file `stored` has them, one JSON object a line.
    """

    columns: tuple[ResultColumn, ...]
    rows: tuple[dict[str, Any], ...]
    row_count: int
    truncated: bool
    stored: str | None = None


class DuckDBQueryEngine:
    """Plans queries over views, and has each answered by a process of the pool, lent to `who`.

    Spill files are in a private folder, and go with the answer. With `max_stored_bytes`, a result that is too large for
    an answer becomes a file in `folder`, up to that size.
    Errors: InvalidRequest QUERY_NOT_ALLOWED, QUERY_ERROR, QUERY_CRASHED (422), RESULT_TOO_LARGE (413); Unavailable
    QUERY_TIMEOUT (504), TOO_MANY_QUERIES (429); ResourceExhausted; DataUnavailable for a missing or corrupt file of the
    table.
    """

    def __init__(
        self,
        pool: QueryPool,
        *,
        who: str = "",
        folder: Path,
        threads: int,
        max_stored_bytes: int | None = None,
        store: Callable[[], ObjectStoreAccess | None] = lambda: None,
    ) -> None:
        """`store` says how to read files that are not on this machine."""
        self._pool = pool
        self._who = who
        self._folder = folder
        self._threads = threads
        self._max_stored_bytes = max_stored_bytes
        self._store = store

    def select(
        self, query: StructuredQuery, groups: Groups, views: GroupViews, *, max_bytes: int, seconds: float
    ) -> QueryResult:
        """Answer a structured query over the files of the groups; each group becomes one view."""
        names = [path.name for path in query.columns] + [a.name for a in query.aggregates]
        types = [path.column.type for path in query.columns]
        limits = self._limits(query.limit, max_bytes, seconds)
        found = self._run(groups, views, limits, lambda source: structured_statement(query, source), labels=names)
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
        """Answer one SELECT over the table, which it finds as `t`, and under its own name with or without namespace."""
        namespace, _, table = table_name.rpartition(".")
        names = {name.lower(): name for name in (TABLE, table) if name}
        qualified = (namespace, table) if namespace and namespace.lower() not in ENGINES_OWN else None
        limits = self._limits(max_rows, max_bytes, seconds)
        return self._run(
            groups, views, limits, lambda source: Statement(text=text), names=tuple(names.values()), qualified=qualified
        )

    def _limits(self, max_rows: int, max_bytes: int, seconds: float) -> Limits:
        return Limits(max_rows=max_rows, max_bytes=max_bytes, seconds=seconds, max_stored_bytes=self._max_stored_bytes)

    def _run(
        self,
        groups: Groups,
        views: GroupViews,
        limits: Limits,
        statement: Callable[[str], Statement],
        *,
        names: tuple[str, ...] = (),
        qualified: tuple[str, str] | None = None,
        labels: Sequence[str] | None = None,
    ) -> QueryResult:
        ends = time.monotonic() + limits.seconds
        written = [views.write(tasks) for tasks in groups or ((),)]
        tasks = [task for group in groups for task in group]
        files = files_of(written, tasks)
        remote = any(map(is_remote, files))
        source = source_of(written)
        question = Question(
            statement=statement(source),
            source=source,
            names=names,
            qualified=qualified,
            labels=None if labels is None else tuple(labels),
            files=tuple(files),
            scanned=scan_paths(tasks),
            limits=limits,
            threads=self._threads,
            folder=str(self._folder),
            remote=remote,
            store=self._store() if remote else None,
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            with ExitStack() as stack, self._pool.process(self._who, ends) as process:
                gathered = _Gathered(path=self._folder / "result.ndjson", stack=stack)
                left = replace(limits, seconds=max(ends - time.monotonic(), 0.001))
                done = process.ask(replace(question, limits=left), ends, gathered.take)
            return gathered.result(done)
        finally:
            shutil.rmtree(self._folder / "spill", ignore_errors=True)


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """What has come of an answer: rows in memory, or all of them in the file, from the first line on."""

    path: Path
    stack: ExitStack
    columns: tuple[ResultColumn, ...] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)
    file: BinaryIO | None = None

    def take(self, kind: Kind, words: Any) -> None:
        if kind is Kind.COLUMNS:
            self.columns = tuple(ResultColumn(name=c["name"], type=c["type"]) for c in words)
        elif kind is Kind.ROWS:
            self.rows += words
        elif kind is Kind.LINES:
            if self.file is None:
                self.file = self.stack.enter_context(self.path.open("wb"))
                self.file.writelines(as_line(row).encode() for row in self.rows)
                self.rows = []
            self.file.write(words)

    def result(self, done: Any) -> QueryResult:
        return QueryResult(
            columns=self.columns,
            rows=tuple(self.rows),
            row_count=done["row_count"],
            truncated=done["truncated"],
            stored=None if self.file is None else str(self.path),
        )


def source_of(views: Sequence[GroupView]) -> str:
    """Return a SELECT of all live rows of all views; they share one schema."""
    return " UNION ALL ".join(select(view) for view in views)


def files_of(views: Sequence[GroupView], tasks: Sequence[FileScanTask]) -> list[str]:
    """Return every file that reading the views opens, and no other."""
    of_views = (str(file) for view in views for file in sorted(Path(view.metadata_paths[0]).parent.iterdir()))
    of_table = (path for t in tasks for path in (t.data_file.path, *(d.path for d in t.deletes)))
    return list(dict.fromkeys((*of_views, *of_table)))


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
    if aggregate.function == "avg" and aggregate.path is not None and aggregate.path.column.type.startswith("decimal"):
        return decimal_average(aggregate.path.column.type, _column(aggregate.path, alias))
    return AGGREGATES[aggregate.function].format("*" if aggregate.path is None else _column(aggregate.path, alias))


AVERAGE_DIGITS = 4
"""What an average of decimals has after the point beyond its column, as in Spark, while 38 digits hold it."""


def decimal_average(type_text: str, column: str) -> str:
    """Write the exact average of a decimal column, halves away from zero; DuckDB's own is a double.

    In integers of the column's last digit: first whole ones for each row, then what is left over, so that no step is
    larger than the sum, which has 38 digits in any case.
    """
    precision, scale = map(int, type_text[len("decimal(") : -1].split(","))
    more = min(AVERAGE_DIGITS, 38 - precision)
    total = f"CAST(replace(CAST(sum({column}) AS VARCHAR), '.', '') AS HUGEINT)"
    rows = f"CAST(count({column}) AS HUGEINT)"
    rest = f"(({total} % {rows}) * {2 * 10**more} + sign({total}) * {rows}) // (2 * {rows})"
    units = f"(({total} // {rows}) * {10**more} + {rest})"
    digits = scale + more
    one = f"CAST('{Decimal(1).scaleb(-digits):f}' AS DECIMAL({digits or 1},{digits}))"
    return f"CAST(CAST({units} AS DECIMAL(38,0)) * {one} AS DECIMAL({precision + more},{digits}))"


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
