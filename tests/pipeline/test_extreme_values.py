"""Partitions and bounds of extreme values, as the service writes them and as Spark writes the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.types import DoubleType, FixedType, FloatType, NestedField, TimeType

from tests.support.extreme_values import TURNS, Extremes
from tests.support.iceberg_tables import live_data_files, make_table
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


ZEROS = {b"\x00\x00\x00\x80": bytes(4), b"\x00" * 7 + b"\x80": bytes(8)}
"""A footer does not tell the zeros of floats apart: our lower bound is always -0.0, and our upper one 0.0."""


def bounds(found: Mapping[int, bytes], fields: Sequence[NestedField]) -> list[bytes | None]:
    raw = [(f.field_type, found.get(f.field_id)) for f in fields]
    return [ZEROS.get(b, b) if b is not None and isinstance(kind, FloatType | DoubleType) else b for kind, b in raw]


def described(table: Table) -> dict[int, dict[str, list[Any]]]:
    """Each data file by its one row: its partition and the bounds of its columns, in their order."""
    fields = table.schema().fields
    return {
        int.from_bytes(file.lower_bounds[1], "little"): {
            "partition": [None, *(repr(file.partition[i]) for i in range(len(table.spec().fields)))],
            "lower bound": bounds(file.lower_bounds, fields),
            "upper bound": bounds(file.upper_bounds, fields),
            "nulls": [file.null_value_counts.get(f.field_id) for f in fields],
        }
        for file in live_data_files(table.refresh())
    }


@pytest.mark.parametrize("turn", range(TURNS))
def test_partitions_and_bounds_of_extreme_values_are_those_that_spark_writes(
    spark: SparkSession, lake: Lake, turn: int
) -> None:
    """Spark has no time of day, and Iceberg's Java (1.10) writes a partition value of a fixed type as bytes."""
    without = (TimeType, FixedType) if turn == 0 else (TimeType,)
    extremes = Extremes(*without, turn=turn)
    ours = lake.table(extremes.schema, spec=extremes.spec, ident=f"by_service.extremes{turn}")
    lake.write(ours, extremes.rows)
    theirs = make_table(lake.catalog, f"by_spark.extremes{turn}", extremes.schema, extremes.spec)
    spark.sql(f"INSERT INTO local.by_spark.extremes{turn} SELECT * FROM local.by_service.extremes{turn}")
    found, wanted = described(ours), described(theirs)
    assert sorted(found) == sorted(wanted) == [row["n"] for row in extremes.rows]
    kinds = {0: "n", **dict(enumerate((f"{kind}, {transform}" for kind, transform, _ in extremes.columns.values()), 1))}
    different = [
        (kinds[position], what, n, mine[position], theirs[position])
        for n in found
        for what, mine in found[n].items()
        for theirs in [wanted[n][what]]
        for position in range(len(mine))
        if mine[position] != theirs[position]
    ]
    assert different == [], "\n".join(map(repr, different))
