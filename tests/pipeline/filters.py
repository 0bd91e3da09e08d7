"""Random filters over typed columns, each in three tongues: QUERY's structured form, DuckDB's SQL and Spark's."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OPPOSITES = {
    "=": "!=",
    "<": ">=",
    ">": "<=",
    "in": "not_in",
    "is_null": "is_not_null",
    "starts_with": "not starts_with",
}
OPPOSITES |= {negated: op for op, negated in OPPOSITES.items()}
FLOATING = ("float", "double")
SPARK_TYPES = {"long": "BIGINT", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP"}
DUCKDB_TYPES = {"long": "BIGINT", "timestamptz": "TIMESTAMPTZ"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One filter. Structured comparisons match no NaN; SQL's do, by both engines' order, where NaN is the greatest."""

    structured: Any
    structured_in_spark: str
    duckdb: str
    spark: str


class Filters:
    """Draws filters over columns (dotted paths into structs, Iceberg's types) with values from pools, as in JSON."""

    def __init__(self, columns: Mapping[str, tuple[str, Sequence[Any]]], chance: random.Random) -> None:
        self._columns = columns
        self._chance = chance

    def draw(self) -> Written:
        tree = self._tree(self._chance.choice((0, 0, 1, 1, 2)))
        return Written(
            structured=tree,
            structured_in_spark=self._text(tree, spark, strict=True),
            duckdb=self._text(tree, duckdb, strict=False),
            spark=self._text(tree, spark, strict=False),
        )

    def _tree(self, depth: int) -> Any:
        if depth == 0:
            return self._leaf()
        word = self._chance.choice(("and", "or", "not"))
        if word == "not":
            return {"not": self._tree(depth - 1)}
        return {word: [self._tree(depth - 1) for _ in range(self._chance.randint(1, 3))]}

    def _leaf(self) -> Any:
        name = self._chance.choice(list(self._columns))
        kind, pool = self._columns[name]
        ops = ["=", "!=", "<", "<=", ">", ">=", "in", "not_in", "between", "is_null", "is_not_null"]
        op = self._chance.choice(ops + ["starts_with"] * (3 * (kind == "string")))
        if op in ("is_null", "is_not_null"):
            return {"column": name, "op": op}
        ordered = [value for value in pool if value != "NaN"]
        if op in ("in", "not_in"):
            return {"column": name, "op": op, "value": self._chance.choices(pool, k=self._chance.randint(1, 4))}
        if op == "between":
            return {"column": name, "op": op, "value": self._chance.choices(ordered, k=2)}
        if op == "starts_with":
            return {"column": name, "op": op, "value": self._chance.choice(pool)[: self._chance.choice((1, 2, 16, 99))]}
        return {"column": name, "op": op, "value": self._chance.choice(pool if op in ("=", "!=") else ordered)}

    def _text(self, tree: Any, tongue: Callable[[str, Any], str], *, strict: bool, negated: bool = False) -> str:
        """Write a filter as SQL; `strict`: comparisons leave NaN out, whether they are negated or not."""
        if "not" in tree:
            if not strict:
                return f"(NOT {self._text(tree['not'], tongue, strict=False)})"
            return self._text(tree["not"], tongue, strict=True, negated=not negated)
        for word in ("and", "or"):
            if word in tree:
                parts = [self._text(part, tongue, strict=strict, negated=negated) for part in tree[word]]
                return "(" + (" AND " if (word == "and") is not negated else " OR ").join(parts) + ")"
        name, op, value = tree["column"], tree["op"], tree.get("value")
        kind = self._columns[name][0]
        if op == "between":
            low, high = (
                self._compared(name, kind, o, v, tongue, strict, negated)
                for o, v in zip((">=", "<="), value, strict=True)
            )
            return f"({low} {'OR' if negated else 'AND'} {high})"
        return self._compared(name, kind, op, value, tongue, strict, negated)

    def _compared(
        self, name: str, kind: str, op: str, value: Any, tongue: Callable[[str, Any], str], strict: bool, negated: bool
    ) -> str:
        op = OPPOSITES[op] if negated else op
        column = ".".join(f"{name_quote(tongue)}{part}{name_quote(tongue)}" for part in name.split("."))
        if op in ("is_null", "is_not_null"):
            return f"({column} IS {'NOT ' * (op == 'is_not_null')}NULL)"
        if op in ("in", "not_in"):
            return f"({column} {'NOT ' * (op == 'not_in')}IN ({', '.join(tongue(kind, v) for v in value)}))"
        if op in ("starts_with", "not starts_with"):
            function = "startswith" if tongue is spark else "starts_with"
            return f"({'NOT ' * (op != 'starts_with')}{function}({column}, {tongue(kind, value)}))"
        compared = f"{column} {op} {tongue(kind, value)}"
        unordered = strict and kind in FLOATING and op not in ("=", "!=")
        return f"({compared} AND NOT isnan({column}))" if unordered else f"({compared})"


def name_quote(tongue: Callable[[str, Any], str]) -> str:
    return "`" if tongue is spark else '"'


def spark(kind: str, value: Any) -> str:
    """Write a JSON value as a literal of Spark's."""
    if kind == "string":
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    if kind == "binary":
        return f"X'{base64.b64decode(value).hex()}'"
    return f"CAST('{str(value).lower() if kind == 'boolean' else value}' AS {SPARK_TYPES.get(kind, kind)})"


def duckdb(kind: str, value: Any) -> str:
    """Write a JSON value as a literal of DuckDB's."""
    if kind == "string":
        return f"decode(unhex('{value.encode().hex()}'))"
    if kind == "binary":
        return f"unhex('{base64.b64decode(value).hex()}')"
    return f"CAST('{value}' AS {DUCKDB_TYPES.get(kind, kind)})"
