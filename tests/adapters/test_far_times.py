"""Dates and timestamps before the year 1 and after 9999, to the ends of their numbers, go through rewrites (T42)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, TimestampType, TimestamptzType

from tests.support.foreign_files import put
from tests.support.iceberg_tables import live_data_files, local_path
from tests.support.lake import Lake

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "d", DateType()),
    NestedField(3, "t", TimestampType()),
    NestedField(4, "z", TimestamptzType()),
)
DAYS = [2_932_896, 2_932_897, 10_000_000, -719_162, -719_163, -1_000_000, 0]
DAY = 86_400_000_000
ENDS = {"d": [2**31 - 1, 2**31 - 2, -(2**31) + 1, -(2**31)], "t": [2**63 - 1, 2**63 - 2, -(2**63) + 1, -(2**63)]}
"""DuckDB has infinities at the last but one number of either end."""


def rows_of(days: list[int], stamps: list[int]) -> pa.Table:
    numbers = pa.array(stamps, pa.int64())
    return pa.table(
        {
            "id": list(range(len(days))),
            "d": pa.array(days, pa.int32()).view(pa.date32()),
            "t": numbers.view(pa.timestamp("us")),
            "z": numbers.view(pa.timestamp("us", tz="UTC")),
        }
    )


def numbers(table: Table) -> list[tuple[int, ...]]:
    """Return every row as the whole numbers that its files hold."""
    found: list[tuple[int, ...]] = []
    for file in live_data_files(table.refresh()):
        stored = pq.read_table(local_path(file.file_path), partitioning=None)
        days = stored["d"].combine_chunks().view(pa.int32()).to_pylist()
        stamps = [stored[name].combine_chunks().view(pa.int64()).to_pylist() for name in ("id", "t", "z")]
        found += zip(stamps[0], days, stamps[1], stamps[2], strict=True)
    return sorted(found)


@pytest.mark.parametrize("how", [{}, {"strategy": "sort", "sort_order": [{"column": "d"}, {"column": "z"}]}])
@pytest.mark.parametrize("kind", ["calendar", "ends"])
def test_times_beyond_the_calendar_come_out_as_they_went_in(lake: Lake, kind: str, how: dict[str, Any]) -> None:
    table = lake.table(SCHEMA)
    days = DAYS if kind == "calendar" else ENDS["d"]
    stamps = [day * DAY for day in DAYS] if kind == "calendar" else ENDS["t"]
    for _ in range(2):
        put(table, rows_of(days, stamps), [1, 2, 3, 4])
    before = numbers(table)
    answer = lake.compact(table, force=True, verify="strict", **how)
    assert answer["status"] == "COMPLETED", answer
    assert numbers(table) == before
    (file,) = live_data_files(table)
    low, high = ({i: int.from_bytes(b[i], "little", signed=True) for i in (2, 3, 4)} for b in bounds(file))
    assert low == {2: min(days), 3: min(stamps), 4: min(stamps)}
    assert high == {2: max(days), 3: max(stamps), 4: max(stamps)}


def bounds(file: Any) -> tuple[dict[int, bytes], dict[int, bytes]]:
    return file.lower_bounds, file.upper_bounds


def test_partitions_beyond_the_calendar_are_compacted_and_upserted(lake: Lake) -> None:
    table = lake.table(SCHEMA, spec=PartitionSpec(PartitionField(2, 1000, MonthTransform(), "month")))
    for number in range(2):
        put(table, rows_of([2_932_897 + number], [DAY]), [1, 2, 3, 4], partition=Record(96_360))
    lake.compact(table, force=True, verify="strict")
    assert [row[1] for row in numbers(table)] == [2_932_897, 2_932_898]
    row = {"id": 0, "d": "9999-12-31", "t": "2020-01-01T00:00:00", "z": "2020-01-01T00:00:00Z"}
    put(
        table,
        rows_of([2_932_897], [2 * DAY]).set_column(0, "id", pa.array([7])),
        [1, 2, 3, 4],
        partition=Record(96_360),
    )
    lake.write(table, [row], mode="upsert", key=["id"])
    assert [row[:2] for row in numbers(table)] == [(0, 2_932_896), (7, 2_932_897)]
