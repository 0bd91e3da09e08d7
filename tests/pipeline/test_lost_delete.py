"""A rewrite that loses a concurrent equality delete (trap T9), pinned against Iceberg's own code on local Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_t09_iceberg_brings_deleted_rows_back_and_compact_does_not(spark: SparkSession, lake: Lake) -> None:
    from tests.spark.lost_delete import DELETED, RIGHT, side_by_side  # pyspark is not in the development environment

    with_number, without, ours = side_by_side(spark, lake.folder)
    assert (with_number.answer, with_number.back, with_number.delete_files) == ("committed", len(DELETED), 0)
    assert (without.answer.startswith("refused"), without.rows, without.back) == (True, RIGHT, 0)
    assert (ours.answer, ours.rows, ours.back, ours.delete_files) == ("COMPLETED", RIGHT, 0, 1)
