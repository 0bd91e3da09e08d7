"""The walls around a query: what SQL may say, what the engine may open, how long it may run.

Trap T15: holes in a locked session; rows 20 to 22 of the fault catalogue: more than a SELECT, no end, a wrong query.

Three walls, because none holds alone. The guard reads the parsed statement: one SELECT over the table, by functions
that name no file and no setting. The locked session opens exactly the files of the view. The deadline interrupts.

Known gap: one function call on one huge value runs to its end before an interrupt is seen, outside the memory limit. So
functions that blow a value up take constant sizes only, up to MAX_EXPANSION.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import duckdb

from regelate.adapters.duckdb.duckdb_errors import not_ours_to_read, reading_fault
from regelate.adapters.duckdb.session import exhausted
from regelate.adapters.duckdb.sql import literal
from regelate.core.table.table import FileScanTask
from regelate.errors import InvalidRequest, InvariantViolated, RegelateError, Unavailable

MAX_SQL_CHARACTERS = 100_000
MAX_EXPANSION = 10_000
"""Longest text or list that one call of a function such as `repeat` or `range` may make of one character or number."""

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
TABLE_SHAPES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "EMPTY", "PIVOT"})
"""What a FROM clause may hold besides table functions and DESCRIBE, by the names of DuckDB's syntax tree."""
FORBIDDEN_FUNCTIONS = frozenset(
    {"current_setting", "getenv", "getvariable", "write_log", "get_block_size", "format_type", "json_serialize_plan"}
)
FORBIDDEN_PREFIXES = ("pg_", "duckdb_", "pragma_", "iceberg_", "read_", "parquet_")
EXPANDING: Mapping[str, tuple[int, ...]] = {
    "range": (0, 1, 2),
    "generate_series": (0, 1, 2),
    "repeat": (1,),
    "lpad": (1,),
    "rpad": (1,),
    "bar": (3,),
    "list_resize": (1,),
    "array_resize": (1,),
    "format": (0,),
    "printf": (0,),
}
"""Positions of the arguments that say how long the result of a function will be."""
INTERRUPT_EVERY_SECONDS = 0.05
DATA_ERRORS = frozenset({"IO", "HTTP", "Serialization"})
BUGS = frozenset({"INTERNAL", "FATAL"})
"""Kinds of DuckDB's errors, as its messages begin: about the table's files, about the engine itself."""


def guard(sql: str, names: Collection[str]) -> None:
    """Let one SELECT over tables of these names pass.

    Errors: InvalidRequest QUERY_NOT_ALLOWED, QUERY_ERROR when the text does not parse.
    """
    if len(sql) > MAX_SQL_CHARACTERS or "\0" in sql or _has_surrogates(sql):
        raise InvalidRequest(
            "QUERY_ERROR", f"sql must be a text without NUL, of at most {MAX_SQL_CHARACTERS} characters"
        )
    with duckdb.connect(config={"autoload_known_extensions": "false", "enable_external_access": "false"}) as scratch:
        try:
            statements = scratch.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                kinds = ", ".join(s.type.name for s in statements) or "none"
                raise refused(f"send exactly one SELECT statement; found: {kinds}")
            found = scratch.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
            builtin = scratch.execute("SELECT lower(view_name) FROM duckdb_views()").fetchall()
        except duckdb.Error as error:
            raise InvalidRequest("QUERY_ERROR", plain_message(str(error))) from error
    try:
        tree = json.loads(found[0]) if found else {"error": True}
    except RecursionError:
        raise refused("the statement is nested too deeply") from None
    if tree["error"]:
        raise refused("only plain SELECT statements can be checked; this one cannot")
    _check(tree, frozenset(name.lower() for name in names), frozenset(name for (name,) in builtin))


def refused(why: str) -> InvalidRequest:
    return InvalidRequest("QUERY_NOT_ALLOWED", why)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def _check(tree: Any, names: frozenset[str], builtin: frozenset[str]) -> None:
    nodes = list(_nodes(tree))
    streaming = {id(n["function"]) for n in nodes if n.get("type") == "TABLE_FUNCTION"}
    common = {entry["key"].lower() for n in nodes for entry in n.get("cte_map", {}).get("map", ())}
    for name in sorted(common & builtin):  # where such a CTE is out of scope, its name would mean the built-in view
        raise refused(f"the name {name} is taken by a built-in view; name the WITH clause otherwise")
    known = names | common
    for node in nodes:
        if node.get("class") == "FUNCTION" and id(node) not in streaming:
            _check_function(node)
        elif "alias" in node and "sample" in node:
            _check_source(node, known)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _check_source(node: Mapping[str, Any], known: frozenset[str]) -> None:
    """Refuse whatever a FROM clause names but the table itself, CTEs and functions that read nothing."""
    kind, name = node["type"], str(node.get("table_name") or "")
    if kind == "TABLE_FUNCTION":
        name = str(node["function"]["function_name"])
        if name.lower() not in TABLE_FUNCTIONS:
            allowed = ", ".join(sorted(TABLE_FUNCTIONS))
            raise refused(f"the table function {name[:100]} is not allowed; allowed are {allowed}")
    elif kind == "SHOW_REF":
        if name:
            raise refused("SHOW is not allowed; DESCRIBE and SUMMARIZE of the table are")
    elif kind not in TABLE_SHAPES:
        raise refused(f"{kind} is not allowed in FROM")
    elif kind == "BASE_TABLE" and (name.lower() not in known or node["schema_name"] or node["catalog_name"]):
        raise refused(f"no table {name[:100]!r} here; the queried table is t, or its own name without namespace")


def _check_function(node: Mapping[str, Any]) -> None:
    name = str(node["function_name"]).lower()
    if name in FORBIDDEN_FUNCTIONS or name.startswith(FORBIDDEN_PREFIXES):
        raise refused(f"the function {name[:100]} is not allowed")
    for position in EXPANDING.get(name, ()):
        if position < len(node["children"]) and not _is_small(node["children"][position]):
            raise refused(
                f"{name} needs constant sizes of at most {MAX_EXPANSION}; as a table in FROM, range may be longer"
            )


def _is_small(argument: Mapping[str, Any]) -> bool:
    """Say whether an argument is a number, or a format, that makes nothing longer than MAX_EXPANSION."""
    value = argument.get("value", {}).get("value") if argument.get("class") == "CONSTANT" else None
    if isinstance(value, str):
        return re.search(r"\d{5}|\{[^{}]*\{|\*", value) is None
    return isinstance(value, int) and abs(value) <= MAX_EXPANSION


def lock(connection: duckdb.DuckDBPyConnection, paths: Iterable[str]) -> None:
    """Close the session for good: it reads these files, no others, and nothing in it can be set any more."""
    allowed = ", ".join(literal(path) for path in paths)
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


class Deadline:
    """Interrupts whatever the connection runs once the seconds are over, again and again until left.

    Once is not enough: an interrupt between two statements is forgotten.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._left = threading.Event()
        self._passed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="query-deadline", daemon=True)

    def __enter__(self) -> Deadline:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()

    def _watch(self) -> None:
        if self._left.wait(self._seconds):
            return
        self._passed.set()
        while not self._left.is_set():
            self._connection.interrupt()
            self._left.wait(INTERRUPT_EVERY_SECONDS)

    def check(self) -> None:
        """Raise Unavailable QUERY_TIMEOUT (504) once the seconds are over."""
        if self._passed.is_set():
            raise self.exceeded()

    def exceeded(self) -> Unavailable:
        return Unavailable(
            "QUERY_TIMEOUT",
            f"the query was stopped after {self._seconds:g} seconds; filter more rows or read fewer columns",
            status=504,
            retryable=False,
        )


def query_fault(error: Exception, tasks: Sequence[FileScanTask], deadline: Deadline) -> RegelateError:
    """Name what a failed query means to the caller; errors amid a stream are plain OSErrors, so the text decides."""
    kind, _, message = str(error).partition(" Error: ")
    if kind == "INTERRUPT":
        return deadline.exceeded()
    ran_out = exhausted(duckdb.OutOfMemoryException(str(error)) if kind == "Out of Memory" else error)
    if ran_out is not None:
        return ran_out
    if kind == "Permission":
        return refused(plain_message(message))
    paths = (path for t in tasks for path in (t.data_file.path, *(d.path for d in t.deletes)))
    unnamed = isinstance(error, duckdb.Error) and not message  # a damaged footer: its reader has no errors of its own
    unread = not_ours_to_read(str(error)) is not None and kind != "Not implemented"
    if unread or unnamed or kind in DATA_ERRORS or any(path.removeprefix("file://") in message for path in paths):
        known = error if isinstance(error, duckdb.Error) else duckdb.IOException(str(error))
        return reading_fault(known, tasks)
    if kind in BUGS:
        return InvariantViolated("ENGINE_FAULT", f"the query failed in the engine: {plain_message(message)}")
    return InvalidRequest("QUERY_ERROR", plain_message(str(error)))


def plain_message(text: str) -> str:
    """Return an engine's message cut to its first lines, without paths and without names from its own catalog."""
    kept = [
        line
        for line in text.partition("Stack Trace:")[0].splitlines()
        if line.strip() and not line.startswith("Did you mean")
    ][:3]
    return re.sub(r"(?:[a-z0-9]+:/|(?<![\w/]))/[^\s\"',;()]+/[^\s\"',;()]*", "<path>", "\n".join(kept))[:600]
