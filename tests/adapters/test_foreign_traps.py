"""Traps T40 to T42: what DuckDB 1.5.5 and PyArrow 26.0.1 make of files that other writers left.

A red test here means that the ground has moved: the workaround it names may be able to go.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, TimestampType

from tests.support.foreign_files import TWO_LEVELS, put, put_whole
from tests.support.iceberg_tables import duckdb_rows, make_catalog, make_table

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return make_catalog(tmp_path)


def test_t40_columns_after_one_without_an_id_are_null(catalog: SqlCatalog) -> None:
    """Our answer: each layout has a mapping that names every column of the file (`layouts.layout_of`)."""
    schema = Schema(*(NestedField(i, name, LongType()) for i, name in ((1, "x"), (2, "y"), (3, "z"))))
    file = pa.table({"x": [1], "y": [2], "z": [3]})
    for gap in ([1, 3], [1, 2, 3]):
        mapping = json.dumps([{"field-id": i, "names": ["xyz"[i - 1]]} for i in gap])
        table = make_table(catalog, f"ns.t{len(gap)}", schema, properties={"schema.name-mapping.default": mapping})
        put(table, file)
        assert duckdb_rows(table) == [(1, 2, 3) if len(gap) == 3 else (1, None, None)]
    some = make_table(catalog, "ns.some", schema)
    put(some, file, [1, None, 3])
    assert duckdb_rows(some) == [(1, None, None)]


def test_t40_names_of_a_mapping_are_looked_up_without_regard_to_case(catalog: SqlCatalog) -> None:
    mapping = json.dumps([{"field-id": 1, "names": ["ID"]}, {"field-id": 2, "names": ["p"]}])
    table = make_table(catalog, "ns.t", SCHEMA, properties={"schema.name-mapping.default": mapping})
    put(table, pa.table({"id": [1], "P": ["a"]}))
    assert duckdb_rows(table) == [(1, "a")]


def test_t41_a_list_of_two_levels_is_null_and_nanoseconds_are_cut(catalog: SqlCatalog) -> None:
    """Our answer: both are refused by their reason (`layouts`)."""
    lists = Schema(NestedField(1, "id", LongType()), NestedField(2, "l", ListType(3, LongType(), False)))
    table = make_table(catalog, "ns.lists", lists)
    put_whole(table, TWO_LEVELS, 3)
    assert duckdb_rows(table) == [(1, None), (2, None), (3, None)]
    stamps = make_table(catalog, "ns.stamps", Schema(NestedField(1, "t", TimestampType())))
    put(stamps, pa.table({"t": pa.array([1_999], pa.timestamp("ns"))}), [1])
    assert [row[0].microsecond for row in duckdb_rows(stamps)] == [1]


def test_t42_statistics_of_far_dates_are_no_dates_of_python(tmp_path: Path) -> None:
    """Our answer: bounds come from the stored numbers (`footer_metrics`)."""
    place = tmp_path / "far.parquet"
    pq.write_table(pa.table({"d": pa.array([2_932_897], pa.int32()).view(pa.date32())}), place)
    statistics = pq.read_metadata(place).row_group(0).column(0).statistics
    with pytest.raises(OverflowError):
        _ = statistics.min
    assert statistics.min_raw == 2_932_897
