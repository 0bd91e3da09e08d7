"""Trap T37 on Spark: files of other writers hold the rows that tests/support/foreign_files.py says, before and after a
COMPACT by the service, vectorized and not."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.foreign_files import FOREIGN
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
VECTORIZED = "spark.sql.iceberg.vectorization.enabled"


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.asDict() if hasattr(value, "asDict") else value


def by_spark(spark: SparkSession, ident: str) -> list[list[str]]:
    """The rows as texts, sorted, as each of Iceberg's two readers has them."""
    found = []
    for vectorized in ("true", "false"):
        spark.conf.set(VECTORIZED, vectorized)
        spark.sql(f"REFRESH TABLE local.{ident}")
        rows = spark.table(f"local.{ident}").collect()
        found.append(sorted(repr([plain(value) for value in row]) for row in rows))
    spark.conf.unset(VECTORIZED)
    return found


def test_spark_reads_foreign_files_as_the_service_compacts_them(spark: SparkSession, lake: Lake) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.foreign")
    for number, (kind, case) in enumerate(FOREIGN.items()):
        if case.rows is None:
            continue
        table = case.make(lake, f"foreign.t{number}")
        expected = sorted(repr([plain(value) for value in row]) for row in case.rows)
        assert by_spark(spark, f"foreign.t{number}") == [expected, expected], kind
        answer = lake.compact(table, options={"rewrite-all": "true"}, verify="strict", expire_snapshots=False)
        assert answer["status"] == "COMPLETED", kind
        assert by_spark(spark, f"foreign.t{number}") == [expected, expected], kind
