"""A long tail of small partitions beside a large one: `ingest --optimized-write` makes one file of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from regelate.pipeline.ingest import Ingest, append, create, distribution, ingest, whole_partitions
from regelate.pipeline.names import TableName
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TARGET_BYTES = 256 * 1024
SMALL, SMALL_ROWS, LARGE_ROWS = 12, 20, 60_000
SOURCE = "regelate_long_tail"


@pytest.fixture
def source(spark: SparkSession) -> Iterator[str]:
    """A view of one large partition and twelve of twenty rows, in eight tasks that have rows of all."""
    large = spark.range(LARGE_ROWS).selectExpr("id", "'large' AS kind", "md5(cast(id AS string)) AS text")
    small = spark.range(SMALL * SMALL_ROWS).selectExpr("-1 - id", f"concat('small-', id % {SMALL})", "'few'")
    large.unionAll(small).repartition(8).createOrReplaceTempView(SOURCE)
    yield SOURCE
    spark.catalog.dropTempView(SOURCE)


@pytest.fixture
def table(spark: SparkSession, name: TableName) -> SparkTable:
    """An empty table with the properties of an optimized write."""
    properties = distribution(optimized=True, target_bytes=TARGET_BYTES)
    return create(spark, name, "id bigint, kind string, text string", "kind", properties)


def files_of(spark: SparkSession, name: TableName) -> dict[str, list[int]]:
    """Return the sizes of the files of each partition."""
    found: dict[str, list[int]] = {}
    for row in spark.sql(f"SELECT partition.kind AS kind, file_size_in_bytes AS size FROM {name.sql}.files").collect():
        found.setdefault(row.kind, []).append(row.size)
    return found


def test_small_partitions_get_one_file_each_and_a_large_one_is_cut_at_the_target(
    spark: SparkSession, table: SparkTable, source: str
) -> None:
    def write(into: SparkTable, terminal: Terminal) -> None:
        append(into, iter([spark.table(source)]), terminal)

    ingest(table, Ingest(source="events", mode="batches", optimized_write=True, write=write), Terminal(quiet=True))
    assert spark.table(table.name.sql).count() == LARGE_ROWS + SMALL * SMALL_ROWS
    assert spark.table(table.name.sql).exceptAll(spark.table(source)).isEmpty()
    found = files_of(spark, table.name)
    large = found.pop("large")
    assert Counter(map(len, found.values())) == {1: SMALL}
    *full, _ = sorted(large, reverse=True)
    assert len(full) > 2
    assert 0.3 * TARGET_BYTES < min(full) <= max(full) < 1.1 * TARGET_BYTES, full  # guessed before it is compressed
    assert max(full) < 1.1 * min(full)


def test_by_the_properties_alone_a_small_partition_that_shares_a_task_with_a_large_one_is_split_with_it(
    spark: SparkSession, table: SparkTable, source: str
) -> None:
    spark.table(source).writeTo(table.name.sql).append()
    found = files_of(spark, table.name)
    del found["large"]
    assert max(map(len, found.values())) > 1


def test_what_the_session_had_is_there_again_afterwards(spark: SparkSession) -> None:
    key = "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled"
    spark.conf.set(key, "true")
    with whole_partitions(spark):
        assert spark.conf.get(key) == "false"
    assert spark.conf.get(key) == "true"
    spark.conf.unset(key)
    with whole_partitions(spark):
        assert spark.conf.get(key) == "false"
    assert spark.conf.get(key, None) in {None, "true"}
