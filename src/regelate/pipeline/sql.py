"""Values -> Spark SQL. No text of a caller gets into a statement but through here.

Spark replaces `${...}` in every statement unless `spark.sql.variable.substitute` is off; session.py turns it off.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from regelate.pipeline.names import quoted

Argument = str | bool | int | datetime | Mapping[str, str] | tuple[str, ...]


def text(value: str) -> str:
    """Return a string literal: backslash is Spark's escape character, and nothing else ends a literal but a quote."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def argument(value: Argument) -> str:
    """Return the SQL of one argument of a procedure; a time is written in UTC."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP {text(value.isoformat(sep=' '))}"
    if isinstance(value, Mapping):
        return f"map({', '.join(text(part) for pair in value.items() for part in pair)})"
    return f"array({', '.join(text(part) for part in value)})"


def call(catalog: str, procedure: str, arguments: Mapping[str, Argument | None]) -> str:
    """Return the CALL of an Iceberg procedure; arguments that are None are left out, procedures have defaults."""
    given = [f"{name} => {argument(value)}" for name, value in arguments.items() if value is not None]
    return f"CALL {quoted(catalog)}.system.{procedure}({', '.join(given)})"
