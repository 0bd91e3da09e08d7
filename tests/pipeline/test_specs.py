"""Partitions as Spark shows them are the service's partitions: same names, same texts, same time ranges."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from regelate.adapters.iceberg.metadata.partitions import partition_of
from regelate.pipeline.specs import Spec, SpecField, internal, specs_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "day", DateType(), required=False),
    NestedField(4, "at", TimestamptzType(), required=False),
    NestedField(5, "local", TimestampType(), required=False),
    NestedField(6, "price", DecimalType(9, 2), required=False),
    NestedField(7, "ratio", DoubleType(), required=False),
    NestedField(8, "ok", BooleanType(), required=False),
    NestedField(9, "raw", BinaryType(), required=False),
    NestedField(10, "who", StructType(NestedField(11, "it's `me`", StringType(), required=False)), required=False),
)
MOMENT = round(datetime(2025, 1, 17, 5, 6, 7, 8, tzinfo=UTC).timestamp() * 1_000_000)
CASES: list[tuple[int, str, Any, Any, str]] = [
    (2, "identity", "it's", "it's", "`kind` = 'it\\'s'"),
    (2, "identity", None, None, "`kind` IS NULL"),
    (2, "truncate[3]", "pur", "pur", "`c`.system.truncate(3, `kind`) = 'pur'"),
    (1, "identity", -5, -5, "`id` = -5"),
    (1, "bucket[16]", 3, 3, "`c`.system.bucket(16, `id`) = 3"),
    (1, "truncate[10]", 40, 40, "`c`.system.truncate(10, `id`) = 40"),
    (3, "identity", date(2025, 1, 17), 20105, "`day` = DATE '2025-01-17'"),
    (3, "month", 660, 660, "`c`.system.months(`day`) = 660"),
    (4, "year", 55, 55, "`c`.system.years(`at`) = 55"),
    (4, "month", -1, -1, "`c`.system.months(`at`) = -1"),
    (4, "day", date(2025, 1, 17), 20105, "`c`.system.days(`at`) = DATE '2025-01-17'"),
    (4, "hour", 482525, 482525, "`c`.system.hours(`at`) = 482525"),
    (4, "hour", None, None, "`c`.system.hours(`at`) IS NULL"),
    (4, "identity", MOMENT, MOMENT, "`at` = TIMESTAMP '2025-01-17 05:06:07.000008+00:00'"),
    (5, "identity", datetime(2025, 1, 17, 5, 6, 7, 8), MOMENT, "`local` = TIMESTAMP_NTZ '2025-01-17 05:06:07.000008'"),  # noqa: DTZ001  as Spark shows it
    (6, "identity", Decimal("12.50"), Decimal("12.50"), "`price` = CAST('12.50' AS decimal(9, 2))"),
    (7, "identity", float("nan"), float("nan"), "`ratio` = CAST('NaN' AS DOUBLE)"),
    (7, "identity", -0.5, -0.5, "`ratio` = CAST('-0.5' AS DOUBLE)"),
    (8, "identity", True, True, "`ok` = true"),
    (9, "identity", bytearray(b"\x00'"), b"\x00'", "`raw` = X'0027'"),
    (11, "identity", "x", "x", "`who`.`it's ``me``` = 'x'"),
]


def made_spec(source_id: int, transform: str) -> tuple[PartitionSpec, Spec]:
    native = PartitionSpec(PartitionField(source_id, 1000, parse_transform(transform), "part"), spec_id=4)
    metadata = {
        "current-schema-id": 0,
        "schemas": [{**json.loads(SCHEMA.model_dump_json()), "schema-id": 0}],
        "partition-specs": [json.loads(native.model_dump_json())],
    }
    return native, specs_of(metadata)[4]


@pytest.mark.parametrize(("source_id", "transform", "shown", "stored", "predicate"), CASES)
def test_a_partition_reads_the_same_through_spark_and_through_the_service(
    source_id: int, transform: str, shown: Any, stored: Any, predicate: str
) -> None:
    native, spec = made_spec(source_id, transform)
    ours, theirs = spec.partition([internal(shown)]), partition_of(native, SCHEMA, Record(stored))
    assert repr(ours.values) == repr(theirs.values)
    assert ours.source_values == theirs.source_values
    assert ours.ends_at_ms == theirs.ends_at_ms
    assert spec.predicate("c", ours) == predicate


def test_a_partition_that_sql_cannot_name_has_no_predicate() -> None:
    dropped_column = SpecField(field_id=1000, name="part", transform="identity", source=(), source_type="")
    dropped = Spec(spec_id=4, fields=(dropped_column,))
    assert dropped.predicate("c", dropped.partition(["x"])) is None


def test_void_fields_leave_a_spec_unpartitioned() -> None:
    _, spec = made_spec(2, "void")
    assert spec.is_unpartitioned
    assert spec.predicate("c", spec.partition([None])) is None
