"""A part of the corpus, so that every run of the tests on Spark sees it; `make corpus` goes through all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.external.bench import Bench
from tests.external.tables import TABLES
from tests.external.trial import run
from tests.support.lake import Lake
from tests.system.faults.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PART = (
    "equality_and_position_deletes",
    "no_field_ids_no_mapping_and_swapped_names",
    "promoted",
    "version_3_with_deletion_vectors",
)
"""Each kind once: deletes, files of other writers, evolution, what is refused. A few seconds a table."""


@pytest.mark.parametrize("name", PART)
def test_spark_reads_the_same_before_and_after_everything_that_is_done_to_a_table(
    spark: SparkSession, lake: Lake, name: str
) -> None:
    outcome = run(Bench(spark=spark, stack=Stack(lake.folder), catalog="local"), TABLES[name])
    assert outcome.faults == []


def test_the_corpus_holds_thirty_tables_and_more() -> None:
    assert len(TABLES) >= 30
    assert set(PART) <= set(TABLES)
