"""What QUERY finds is what Spark's WHERE finds: random filters over a table that went through everything."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from regelate.core.requests import QueryRequest
from tests.pipeline.filters import Filters, Written
from tests.support.extreme_values import POOLS
from tests.support.lake import Lake, address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
T = "local.by_spark.evolved"
STRUCTURED, IN_SQL, AT_ONCE = 40, 120, 10
ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "1"))
"""Rounds of so many filters; the seed of the first one is FUZZ_SEED."""
SEED = int(os.environ.get("FUZZ_SEED", "38"))
ROWS = 6


def pool(kind: PrimitiveType) -> list[Any]:
    return list(POOLS[kind][1])


OLD = {
    "i": (IntegerType(), pool(IntegerType())),
    "f": (FloatType(), [*pool(FloatType()), 0.1, 16777216.0]),
    "d": (DecimalType(9, 2), pool(DecimalType(9, 2))),
    "txt": (StringType(), pool(StringType())),
    "da": (DateType(), pool(DateType())),
    "tn": (TimestampType(), pool(TimestampType())),
    "ts": (TimestamptzType(), pool(TimestamptzType())),
    "b": (BooleanType(), pool(BooleanType())),
    "bin": (BinaryType(), pool(BinaryType())),
    "old": (StringType(), ["gone", "", "\ud7ff"]),
}
NEW = {
    **OLD,
    "i": (LongType(), [*pool(LongType()), *pool(IntegerType()), -(2**31) - 1, 2**31, 3_000_000_000]),
    "f": (DoubleType(), [*pool(DoubleType()), 0.1, 0.10000000149011612, 1e-300, 16777217.0, 3.5e38]),
    "d": (DecimalType(18, 2), [*pool(DecimalType(9, 2)), "-9999999999999999.50", "10000000.00", "9999999999999999.99"]),
}
SPECS: Sequence[Sequence[str]] = (
    ("truncate(10, i)", "months(da)", "identity(b)"),
    ("truncate(7, i)", "years(ts)", "truncate(1, txt)"),
    ("f", "days(tn)", "bucket(4, txt)"),
    ("da", "truncate(50, d)", "hours(ts)"),
    ("truncate(10, st.i)", "days(da)", "bin", "years(tn)"),
    ("st.f", "txt", "years(da)", "bucket(5, d)"),
    ("p", "days(ts)", "months(tn)", "d"),
)


def schema(columns: dict[str, tuple[PrimitiveType, list[Any]]]) -> Schema:
    """The columns, and a struct of three of them."""
    fields = [NestedField(1, "id", IntegerType())]
    fields += [NestedField(i, name, kind) for i, (name, (kind, _)) in enumerate(columns.items(), 2)]
    inner = (NestedField(100 + i, name, columns[name][0]) for i, name in enumerate(("i", "f", "txt")))
    return Schema(*fields, NestedField(50, "st", StructType(*inner)))


def rows(columns: dict[str, tuple[PrimitiveType, list[Any]]], first: int, chance: random.Random) -> Iterator[Any]:
    for n in range(first, first + ROWS):
        drawn = {name: chance.choice([*values, None]) for name, (_, values) in columns.items()}
        inner = {name: chance.choice([*columns[name][1], None]) for name in ("i", "f", "txt")}
        yield {"id": n, **drawn, "st": chance.choice((inner, inner, inner, None))}


@pytest.fixture(scope="module")
def evolved(spark: SparkSession, lake: Lake) -> str:
    """A table of Spark's with every promotion, a rename, columns dropped, added again and moved, and eight specs."""
    chance, first = random.Random(SEED), itertools.count(0, ROWS)
    old = lake.table(schema(OLD), ident="by_service.stage_of_old")
    new = lake.table(schema(NEW), ident="by_service.stage_of_new")
    lake.write(old, list(rows(OLD, next(first), chance)))
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.by_spark")
    spark.sql(
        f"CREATE TABLE {T} USING iceberg PARTITIONED BY (bucket(3, i), bucket(2, old)) TBLPROPERTIES "
        "('format-version'='2', 'write.delete.mode'='merge-on-read') AS SELECT * FROM local.by_service.stage_of_old"
    )
    spark.sql(f"DELETE FROM {T} WHERE id % 5 = 3")
    for change in (
        "ALTER COLUMN i TYPE bigint",
        "ALTER COLUMN f TYPE double",
        "ALTER COLUMN d TYPE decimal(18, 2)",
        "ALTER COLUMN st.i TYPE bigint",
        "ALTER COLUMN st.f TYPE double",
        "RENAME COLUMN st.txt TO word",
        "RENAME COLUMN txt TO words",
        "DROP PARTITION FIELD bucket(2, old)",
        "DROP COLUMN old",
        "ADD COLUMN old string",
        "ADD COLUMN p int",
        "ALTER COLUMN words FIRST",
        "ALTER COLUMN f AFTER st",
    ):
        spark.sql(f"ALTER TABLE {T} {change}")
    dropped = ["bucket(3, i)"]
    for number, spec in enumerate(SPECS):
        for field in dropped:
            spark.sql(f"ALTER TABLE {T} DROP PARTITION FIELD {field}")
        fields = [field.replace("txt", "words").replace("identity(b)", "b") for field in spec]
        for position, field in enumerate(fields):
            spark.sql(f"ALTER TABLE {T} ADD PARTITION FIELD {field} AS p{number}_{position}")
        dropped = [f"p{number}_{position}" for position in range(len(fields))]
        lake.write(new, list(rows(NEW, next(first), chance)), mode="overwrite_partitions")
        spark.sql(
            f"INSERT INTO {T} (words, id, i, d, da, tn, ts, b, bin, st, f, old, p) SELECT txt, id, i, d, da, tn, ts, "
            "b, bin, named_struct('i', st.i, 'f', st.f, 'word', st.txt), f, old, id % 3 "
            "FROM local.by_service.stage_of_new"
        )
    for field in dropped:
        spark.sql(f"ALTER TABLE {T} DROP PARTITION FIELD {field}")
    spark.sql(f"ALTER TABLE {T} DROP COLUMN p")
    spark.sql(f"ALTER TABLE {T} ADD PARTITION FIELD months(da)")
    spark.sql(
        f"INSERT INTO {T} (words, id, i, d, da, tn, ts, b, bin, st, f, old) SELECT words, 1000 + n, i, d, "
        "date_add(DATE'9999-12-31', n), TIMESTAMP_NTZ'9999-12-31' + make_dt_interval(n), "
        "timestamp_micros(253402214400000000L * n), b, bin, st, f, old "
        f"FROM {T} CROSS JOIN (SELECT CAST(id AS int) AS n FROM range(3)) WHERE id = 1"
    )
    return "by_spark.evolved"


COLUMNS: dict[str, tuple[str, list[Any]]] = {
    ("words" if name == "txt" else name): (str(kind).replace(", ", ","), values) for name, (kind, values) in NEW.items()
}
COLUMNS |= {f"st.{name}": COLUMNS[name] for name in ("i", "f")}
COLUMNS["st.word"] = COLUMNS["words"]


def ids(found: Any) -> list[int]:
    return sorted(int(row["id"]) for row in found)


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_query_finds_what_spark_finds(spark: SparkSession, lake: Lake, evolved: str, seed: int) -> None:
    filters = Filters(COLUMNS, random.Random(seed))
    structured = [filters.draw() for _ in range(STRUCTURED)]
    in_sql = [filters.draw() for _ in range(IN_SQL)]
    wanted = by_spark(spark, [w.structured_in_spark for w in structured] + [w.spark for w in in_sql])
    assert misses(lake, evolved, structured, in_sql, wanted) == [], f"seed {seed}"
    if seed == SEED + ROUNDS - 1:
        compacted = lake.compact(evolved, force=True)
        assert compacted["status"] == "COMPLETED", compacted
        some = wanted[:STRUCTURED:4] + wanted[STRUCTURED:][:AT_ONCE]
        assert misses(lake, evolved, structured[::4], in_sql[:AT_ONCE], some) == [], f"seed {seed}, after a COMPACT"


def misses(
    lake: Lake, table: str, structured: Sequence[Written], in_sql: Sequence[Written], wanted: Sequence[list[int]]
) -> list[Any]:
    """Return the filters that find other rows than wanted, with both."""
    at = address(table)
    texts: list[Any] = [w.structured for w in structured] + [w.duckdb for w in in_sql]
    found = [
        ids(lake.service.queries.query(at, QueryRequest(columns=["id"], filter=w.structured, limit=10_000)).rows)
        for w in structured
    ]
    for low in range(0, len(in_sql), AT_ONCE):
        found += by_service(lake, table, in_sql[low : low + AT_ONCE])
    return [each for each in zip(texts, found, wanted, strict=True) if each[1] != each[2]][:10]


def by_spark(spark: SparkSession, conditions: Sequence[str]) -> list[list[int]]:
    """One SELECT with a column per filter: no pruning of Iceberg's has a part in it."""
    found: list[list[int]] = []
    for low in range(0, len(conditions), 60):
        columns = ", ".join(f"{text} AS w{i}" for i, text in enumerate(conditions[low : low + 60]))
        answers = [tuple(row) for row in spark.sql(f"SELECT id, {columns} FROM {T}").collect()]
        found += [sorted(a[0] for a in answers if a[i]) for i in range(1, len(answers[0]))]
    return found


def by_service(lake: Lake, table: str, written: Sequence[Written]) -> list[list[int]]:
    lists = (f"(SELECT list(id) FROM t WHERE {w.duckdb})" for w in written)
    asked = QueryRequest(sql=f"SELECT [{', '.join(lists)}] AS found")
    (row,) = lake.service.queries.query(address(table), asked).rows
    return [sorted(ids or ()) for ids in row["found"]]
