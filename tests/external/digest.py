"""What Spark says a table holds: a digest of every column and of whole rows, independent of order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

Digest = dict[str, tuple[int, int]]
"""By column: values that are not null, and the sum of the hashes of their exact texts. `*`: of whole rows."""
VECTORIZED = "spark.sql.iceberg.vectorization.enabled"
BOTH_READERS = ("true", "false")
"""Values of that option."""
PLAIN_READER = ("false",)
NULL = "'\\u0000'"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def digest(spark: SparkSession, name: str, at: str = "", *, readers: Sequence[str] = BOTH_READERS) -> Digest:
    """Read a table with Spark's vectorized reader and without, which must agree. `at`: a branch, tag or snapshot."""
    found = []
    for vectorized in readers:
        with configured(spark, VECTORIZED, vectorized):
            found.append(_digest(spark, f"{name} {at}"))
    assert found[0] == found[-1], f"Spark's two readers disagree about {name}"
    return found[0]


def _digest(spark: SparkSession, source: str) -> Digest:
    fields = spark.sql(f"SELECT * FROM {source}").schema.fields
    texts = [f"coalesce({_text(quoted(f.name), f.dataType)}, {NULL})" for f in fields]
    sums = [
        f"sum(cast(xxhash64({text}) AS decimal(38, 0)))" for text in [*texts, f"concat_ws('|', {', '.join(texts)})"]
    ]
    counts = [*(f"count({quoted(f.name)})" for f in fields), "count(*)"]
    row = spark.sql(f"SELECT {', '.join([*counts, *sums])} FROM {source}").collect()[0]
    names = [*(f.name for f in fields), "*"]
    return {n: (row[i], int(row[len(names) + i] or 0)) for i, n in enumerate(names)}


def _text(expression: str, kind: Any, depth: int = 0) -> str:
    """Return an expression for the exact text of a value; bytes as hex, nested values with all of their parts."""
    inner = f"x{depth}"
    match kind.typeName():
        case "binary":
            return f"hex({expression})"
        case "struct":
            parts = (_part(f"{expression}.{quoted(f.name)}", f.dataType, depth) for f in kind.fields)
            return f"if({expression} IS NULL, NULL, concat('(', concat_ws(',', {', '.join(parts)}), ')'))"
        case "array":
            part = _part(inner, kind.elementType, depth + 1)
            return f"concat('[', array_join(transform({expression}, {inner} -> {part}), ','), ']')"
        case "map":
            key = _part(f"{inner}.key", kind.keyType, depth + 1)
            value = _part(f"{inner}.value", kind.valueType, depth + 1)
            entries = f"transform(map_entries({expression}), {inner} -> concat({key}, '=', {value}))"
            return f"concat('{{', array_join(array_sort({entries}), ','), '}}')"
    return f"cast({expression} AS string)"


def _part(expression: str, kind: DataType, depth: int) -> str:
    return f"coalesce({_text(expression, kind, depth)}, {NULL})"


@contextmanager
def configured(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set one option of the session for a while."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)
