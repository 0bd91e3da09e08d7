"""Measures a table by Spark: a fingerprint of all rows of a snapshot, and a query with its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from regelate.core.measures.impact import Fingerprint, QueryRuns, same_rows
from regelate.errors import InvalidRequest
from regelate.pipeline.names import quoted
from regelate.pipeline.spark_errors import spark_faults
from regelate.pipeline.tables import SparkTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

MOST_ROWS = 10_000
"""Rows of a query that are compared one by one in this process."""


def fingerprint(table: SparkTable, snapshot_id: int) -> Fingerprint:
    """Return the fingerprint of all rows of a snapshot; the order of rows does not matter, their number does.

    A hash of each row's columns with a flag for each null (Spark's hash passes over nulls: without the flag, two
    columns that swap a null would look alike), summed as DECIMAL: a pair of doubled rows would cancel in an xor.
    """
    with spark_faults(str(table.name)):
        frame = table.spark.read.option("snapshot-id", str(snapshot_id)).table(table.name.sql)
        parts = [text for field in frame.schema.fields for text in _hashed(quoted(field.name), field.dataType)]
        row = frame.selectExpr(f"xxhash64({', '.join(parts)}) AS h").selectExpr(
            "count(*) AS rows", "coalesce(sum(CAST(h AS DECIMAL(38, 0))), 0) AS total"
        )
        found: Any = row.first()
    return Fingerprint(rows=int(found["rows"]), hash_sum=str(found["total"]))


def _hashed(column: str, kind: DataType) -> tuple[str, str]:
    """Return what is hashed of a column: Spark hashes no maps, and 0.0 as -0.0, so those are hashed as their text."""
    return f"{column} IS NULL", f"CAST({column} AS STRING)" if _needs_text(kind) else column


def _needs_text(kind: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        return any(_needs_text(field.dataType) for field in kind.fields)
    if isinstance(kind, types.ArrayType):
        return _needs_text(kind.elementType)
    return isinstance(kind, types.MapType | types.FloatType | types.DoubleType)


class Query:
    """A query of the user's, which can only read: it runs as the source of a SELECT.

    Errors: InvalidRequest INVALID_FIELD for a text that is no query, and for one that answers differently each time.
    """

    def __init__(self, spark: SparkSession, text: str) -> None:
        self._spark = spark
        self._text = text
        with spark_faults("the query", query=text):
            spark._jsparkSession.sessionState().sqlParser().parseQuery(text)
        self._run()

    def measure(self, runs: int, *, clock: Callable[[], float] = time.perf_counter) -> QueryRuns:
        """Ask once for the warm-up, then `runs` times by the clock."""
        rows, took = self._run(), []
        for _ in range(runs):
            started = clock()
            again = self._run()
            took.append(clock() - started)
            if not same_rows(rows, again):
                raise _refused(self._text, "answers differently each time, so nothing can be compared")
        return QueryRuns(seconds=tuple(took), rows=rows)

    def _run(self) -> tuple[tuple[object, ...], ...]:
        with spark_faults("the query", query=self._text):
            found = self._spark.sql(f"SELECT * FROM (\n{self._text}\n)").limit(MOST_ROWS + 1).collect()
        if len(found) > MOST_ROWS:
            raise _refused(self._text, f"answers more than {MOST_ROWS:,} rows: aggregate, or limit it")
        return tuple(tuple(row) for row in found)


def _refused(text: str, why: str) -> InvalidRequest:
    return InvalidRequest("INVALID_FIELD", f"query {text[:200]!a} {why}", field="query")
