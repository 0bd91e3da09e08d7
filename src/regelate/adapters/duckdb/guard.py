"""What SQL of a caller may say: one SELECT over the table, by functions that DuckDB has for values."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import duckdb

from regelate.adapters.duckdb.functions import ALLOWED, EXPANDING, MAX_EXPANSION, TABLE_FUNCTIONS
from regelate.adapters.duckdb.sandbox import plain_message
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

MAX_SQL_CHARACTERS = 100_000
TABLE_SHAPES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "EMPTY", "PIVOT"})
"""What a FROM clause may hold besides table functions and DESCRIBE, by the names of DuckDB's syntax tree."""
QUERY_SHAPES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"})
CALLS = frozenset({"FUNCTION", "WINDOW"})
OWN_SCHEMAS = frozenset({("", ""), ("", "main"), ("system", "main")})
"""Catalog and schema that a call may name."""
OF_ITS_SHELL = frozenset({"getenv"})
"""Functions that only DuckDB's own program has."""
Scope = frozenset[str]
"""Names of WITH clauses that a place in the statement sees, in lower case."""


def guard(sql: str, names: Collection[str], qualified: tuple[str, str] | None = None) -> None:
    """Let one SELECT over tables of these names pass, or over one `qualified` as namespace and name.

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
                kinds = ", ".join([s.type.name for s in statements][:5]) or "none"
                raise refused(f"send exactly one SELECT statement; found: {kinds}")
            found = scratch.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
            views = scratch.execute("SELECT lower(view_name) FROM duckdb_views()").fetchall()
        except duckdb.Error as error:
            raise InvalidRequest("QUERY_ERROR", plain_message(str(error), sql)) from error
        tree = _parsed(found[0] if found else "")
        tables, builtin = frozenset(name.lower() for name in names), frozenset(name for (name,) in views)
        full = None if qualified is None else (qualified[0].lower(), qualified[1].lower())
        _Guard(tables=tables, qualified=full, builtin=builtin, scratch=scratch).check(tree)


def _parsed(text: str) -> Any:
    try:
        tree = json.loads(text)
    except RecursionError:
        raise refused("the statement is nested too deeply") from None
    if tree["error"]:
        raise refused("only plain SELECT statements can be checked; this one cannot")
    return tree


def refused(why: str) -> InvalidRequest:
    return InvalidRequest("QUERY_NOT_ALLOWED", why)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guard:
    """Judges a syntax tree node by node; `tables` may be read, and `qualified`, a namespace and its table; `builtin`
    are views that every session has.

    `scratch` only says what a session knows.
    """

    tables: frozenset[str]
    qualified: tuple[str, str] | None
    builtin: frozenset[str]
    scratch: duckdb.DuckDBPyConnection

    def check(self, tree: Any) -> None:
        streaming: set[int] = set()
        for node, scope in self._nodes(tree):
            is_table_function = node.get("type") == "TABLE_FUNCTION"
            if is_table_function:
                streaming.add(id(node["function"]))
            if node.get("class") in CALLS and id(node) not in streaming:
                self._check_call(node)
            elif is_table_function or ("alias" in node and "sample" in node):
                self._check_source(node, scope)

    def _nodes(self, tree: Any) -> Iterator[tuple[dict[str, Any], Scope]]:
        """Yield every object of the tree, parents first, with the WITH clauses that it sees."""
        waiting: list[tuple[Any, Scope]] = [(tree, frozenset())]
        while waiting:
            node, scope = waiting.pop()
            if isinstance(node, list):
                waiting += [(item, scope) for item in node]
            elif isinstance(node, dict):
                yield node, scope
                waiting += self._below(node, scope) if "cte_map" in node else [(v, scope) for v in node.values()]

    def _below(self, query: Mapping[str, Any], scope: Scope) -> Iterator[tuple[Any, Scope]]:
        """Yield the parts of a query: a WITH clause sees those before it, a recursive one sees itself on its right."""
        if query["type"] not in QUERY_SHAPES:
            raise refused(f"{str(query['type'])[:100]} is not allowed")
        for entry in query["cte_map"].get("map", ()):
            yield entry["value"], scope
            scope |= {self._named(entry["key"])}
        for part, value in query.items():
            own = query["type"] == "RECURSIVE_CTE_NODE" and part == "right"
            if part != "cte_map":
                yield value, scope | {self._named(query["cte_name"])} if own else scope

    def _named(self, name: str) -> str:
        if name.lower() in self.builtin:  # the engine would find a view of its own wherever we are wrong about scopes
            raise refused(f"the name {name[:100]} is taken by a built-in view; name the WITH clause otherwise")
        return name.lower()

    def _check_source(self, node: Mapping[str, Any], scope: Scope) -> None:
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
        elif kind == "BASE_TABLE" and not self._is_known(node, name.lower(), scope):
            raise refused(
                f"no table {name[:100]!r} here; the queried table is t, or its own name, with or without its namespace "
                '(of several parts: "a.b".name)'
            )

    def _is_known(self, node: Mapping[str, Any], name: str, scope: Scope) -> bool:
        schema = str(node["schema_name"] or "").lower()
        known = (schema, name) == self.qualified if schema else name in self.tables or name in scope
        return known and not node["catalog_name"]

    def _check_call(self, node: Mapping[str, Any]) -> None:
        name = str(node["function_name"]).lower()
        place = (str(node.get("catalog") or "").lower(), str(node.get("schema") or "").lower())
        if name not in ALLOWED or place not in OWN_SCHEMAS:
            raise self._no_function(name)
        for position in EXPANDING.get(name, ()):
            if position < len(node["children"]) and not _is_small(node["children"][position]):
                raise refused(
                    f"{name} needs constant sizes of at most {MAX_EXPANSION}; as a table in FROM, range may be longer"
                )

    def _no_function(self, name: str) -> InvalidRequest:
        """Tell a name that is misspelt from one that is refused."""
        text = "SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = ?"
        known = self.scratch.execute(text, [name]).fetchone() != (0,)
        if known or name in OF_ITS_SHELL:
            return refused(f"the function {name[:100]} is not allowed")
        return InvalidRequest("QUERY_ERROR", f"there is no function {name[:100]}")


def _is_small(argument: Mapping[str, Any]) -> bool:
    """Say whether an argument is a number, or a format, that makes nothing longer than MAX_EXPANSION."""
    value = argument.get("value", {}).get("value") if argument.get("class") == "CONSTANT" else None
    if isinstance(value, str):
        return re.search(r"\d{5}|\{[^{}]*\{|\*", value) is None
    return isinstance(value, int) and abs(value) <= MAX_EXPANSION
