"""Partitions: the texts that people use for values, the ends of time ranges, and the exact cut of rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from regelate.adapters.iceberg.encoding.row_partitions import split_by_partition
from regelate.adapters.iceberg.metadata.partitions import partition_of
from regelate.adapters.iceberg.tables.schema import schema_of
from regelate.adapters.iceberg.tables.spec import spec_of
from regelate.core.table.schema import Column, PartitionField
from regelate.core.table.table import Partition
from regelate.errors import InvalidRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS = {
    "b": "boolean",
    "i": "int",
    "l": "long",
    "f": "float",
    "x": "double",
    "d": "date",
    "t": "time",
    "ts": "timestamp",
    "tz": "timestamptz",
    "s": "string",
    "u": "uuid",
    "raw": "binary",
    "fix": "fixed[2]",
    "dec": "decimal(9,2)",
}
SCHEMA = schema_of(
    [
        *(Column(name=name, type=kind) for name, kind in KINDS.items()),
        Column(
            name="o",
            type="struct",
            children=(
                Column(name="a.b", type="string"),
                Column(name="p", type="struct", children=(Column(name="q", type="int"),)),
            ),
        ),
    ]
)


def spec(*fields: tuple[str, str] | tuple[str, str, str]) -> PartitionSpec:
    return spec_of(
        [PartitionField(source=f[0], transform=f[1], name=f[2] if len(f) == 3 else None) for f in fields], SCHEMA
    )


def partition(values: Sequence[Any], *fields: tuple[str, str] | tuple[str, str, str]) -> Partition:
    return partition_of(spec(*fields), SCHEMA, Record(*values))


def ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def days(year: int, month: int, day: int) -> int:
    return (date(year, month, day) - date(1970, 1, 1)).days


MOMENT = (datetime(2025, 1, 17, 5, 6, 7, 123456, UTC) - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("source", "transform", "value", "text"),
    [
        ("ts", "year", 55, "2025"),
        ("ts", "month", 55 * 12, "2025-01"),
        ("ts", "day", days(2025, 1, 17), "2025-01-17"),
        ("ts", "hour", days(2025, 1, 17) * 24 + 5, "2025-01-17T05"),
        ("ts", "hour", -1, "1969-12-31T23"),
        ("ts", "month", -1, "1969-12"),
        ("d", "year", -1970 + 900, "0900"),
        ("ts", "hour", days(900, 1, 2) * 24, "0900-01-02T00"),
        ("d", "identity", days(2025, 1, 17), "2025-01-17"),
        ("t", "identity", 5 * 3600 * 10**6 + 1, "05:00:00.000001"),
        ("ts", "identity", MOMENT, "2025-01-17T05:06:07.123456"),
        ("tz", "identity", MOMENT, "2025-01-17T05:06:07.123456+00:00"),
        ("l", "identity", -7, "-7"),
        ("l", "bucket[8]", 3, "3"),
        ("l", "truncate[10]", 40, "40"),
        ("s", "identity", "a/b=c", "a/b=c"),
        ("s", "identity", "", ""),
        ("s", "truncate[2]", "ab", "ab"),
        ("b", "identity", True, "true"),
        ("x", "identity", -0.0, "-0.0"),
        ("x", "identity", math.nan, "NaN"),
        ("x", "identity", -math.inf, "-Infinity"),
        ("f", "identity", math.inf, "Infinity"),
        ("dec", "identity", Decimal("12.50"), "12.50"),
        ("raw", "identity", b"\x00\xff", "AP8="),
        ("u", "identity", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("u", "identity", UUID(int=1).bytes, "00000000-0000-0000-0000-000000000001"),
        ("l", "void", None, "null"),
        ("s", "identity", None, "null"),
        ("ts", "month", None, "null"),
        ("s", "identity", "null", "null"),
    ],
)
def test_values_are_written_as_people_write_them(source: str, transform: str, value: object, text: str) -> None:
    assert partition([value], (source, transform, "field")).source_values["field"] == text


def test_values_are_found_by_field_name_and_by_a_source_that_only_one_field_uses() -> None:
    found = partition([3, 40, "x", None], ("l", "bucket[8]"), ("l", "truncate[10]"), ("s", "identity"), ("i", "void"))
    assert found.source_values == {"l_bucket": "3", "l_trunc": "40", "s": "x", "i_null": "null"}
    assert partition([55 * 12], ("ts", "month")).source_values == {"ts_month": "2025-01", "ts": "2025-01"}


def test_a_partition_fields_name_wins_over_a_source_of_the_same_name() -> None:
    found = partition([7, "x"], ("l", "bucket[8]", "bucket"), ("s", "identity", "s"))
    assert found.source_values == {"bucket": "7", "l": "7", "s": "x"}


def test_a_void_field_does_not_hide_the_source_of_another() -> None:
    assert partition([None, 55], ("ts", "void"), ("ts", "year")).source_values["ts"] == "2025"


def test_an_unpartitioned_table_has_one_partition_without_values() -> None:
    found = partition([])
    assert (found.values, found.path, dict(found.source_values), found.ends_at_ms) == ((), "", {}, None)


def test_the_path_names_fields_and_values_and_escapes_what_a_path_may_not_hold() -> None:
    assert partition([55 * 12, "a/b ../"], ("ts", "month"), ("s", "identity")).path == "ts_month=2025-01/s=a%2Fb+..%2F"


def test_a_very_long_value_gets_a_path_that_a_file_system_can_hold_and_that_is_its_own() -> None:
    paths = {partition(["é" * 300 + end], ("s", "identity")).path for end in "ab"}
    assert len(paths) == 2
    assert all(len(path.encode()) <= 255 for path in paths)


@pytest.mark.parametrize(
    ("fields", "values", "end"),
    [
        ([("ts", "year")], [55], datetime(2026, 1, 1, tzinfo=UTC)),
        ([("ts", "month")], [55 * 12 + 11], datetime(2026, 1, 1, tzinfo=UTC)),
        ([("tz", "day")], [days(2025, 1, 17)], datetime(2025, 1, 18, tzinfo=UTC)),
        ([("tz", "hour")], [days(2025, 1, 17) * 24 + 5], datetime(2025, 1, 17, 6, tzinfo=UTC)),
        ([("d", "identity")], [days(2025, 1, 17)], datetime(2025, 1, 18, tzinfo=UTC)),
        ([("ts", "month")], [-1], datetime(1970, 1, 1, tzinfo=UTC)),
        ([("s", "identity"), ("d", "month")], ["x", 55 * 12], datetime(2025, 2, 1, tzinfo=UTC)),
        ([("ts", "day"), ("d", "year")], [days(2025, 1, 17), 55], datetime(2026, 1, 1, tzinfo=UTC)),
        ([("ts", "month")], [None], None),
        ([("ts", "identity")], [MOMENT], None),
        ([("l", "identity")], [3], None),
        ([("l", "bucket[8]")], [3], None),
        ([("b", "identity")], [True], None),
        ([], [], None),
    ],
)
def test_a_time_partition_knows_its_end(
    fields: list[tuple[str, str]], values: list[object], end: datetime | None
) -> None:
    assert partition(values, *fields).ends_at_ms == (None if end is None else ms(end))


@pytest.mark.parametrize("transform", ["year", "month", "day", "identity"])
def test_a_date_beyond_what_python_can_write_still_has_a_partition(transform: str) -> None:
    found = partition([10_000_000], ("d", transform, "field"))
    assert found.source_values["field"]
    assert found.path.startswith("field=")


def test_a_dropped_source_column_leaves_the_fields_own_name() -> None:
    other = Schema(NestedField(99, "else", LongType()))
    found = partition_of(spec(("ts", "month"), ("s", "identity")), other, Record(55 * 12, "x"))
    assert found.source_values == {"ts_month": "2025-01", "s": "x"}


def test_equal_values_give_the_same_partition_and_nan_minus_zero_and_null_are_their_own() -> None:
    by_ratio = spec(("x", "identity"))
    made = [partition_of(by_ratio, SCHEMA, Record(v)) for v in (math.nan, float("nan"), 0.0, -0.0, None)]
    assert made[0] is made[1]
    assert len(set(made)) == 4


def test_two_tables_with_like_specs_do_not_share_partitions() -> None:
    other = schema_of([Column(name="when", type="timestamp")])
    theirs = spec_of([PartitionField(source="when", transform="month")], other)
    ours = spec(("ts", "month"))
    assert (ours.spec_id, ours.fields[0].field_id) == (theirs.spec_id, theirs.fields[0].field_id)
    assert partition_of(ours, SCHEMA, Record(660)).path == "ts_month=2025-01"
    assert partition_of(theirs, other, Record(660)).path == "when_month=2025-01"


FULL_MOMENTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
"""Microseconds of the years 0001 to 9999."""
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "b": st.booleans(),
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63) + 2**32, 2**63 - 1),
    "f": st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5]),
    "x": st.floats(allow_nan=True) | st.sampled_from([0.0, -0.0, math.nan]),
    "d": st.integers(-719_162, 2_932_896),
    "t": st.integers(0, 86_399_999_999),
    "ts": FULL_MOMENTS,
    "tz": FULL_MOMENTS,
    "s": st.text(max_size=4),
    "u": st.binary(min_size=16, max_size=16),
    "raw": st.binary(max_size=3),
    "fix": st.binary(min_size=2, max_size=2),
    "dec": st.decimals(-9_999_999, 9_999_999, places=2),
}
TRANSFORMS = {
    "b": ["identity"],
    "i": ["identity", "bucket[4]", "truncate[10]", "void"],
    "l": ["identity", "bucket[4]", "truncate[10]"],
    "f": ["identity"],
    "x": ["identity"],
    "d": ["identity", "bucket[4]", "year", "month", "day"],
    "t": ["identity", "bucket[4]"],
    "ts": ["identity", "bucket[4]", "year", "month", "day", "hour"],
    "tz": ["identity", "bucket[4]", "year", "month", "day", "hour"],
    "s": ["identity", "bucket[4]", "truncate[2]"],
    "u": ["identity", "bucket[4]"],
    "raw": ["identity", "bucket[4]", "truncate[2]"],
    "fix": ["identity", "bucket[4]"],
    "dec": ["identity", "bucket[4]", "truncate[10]"],
}
FIELDS = st.sampled_from([(source, transform) for source, found in TRANSFORMS.items() for transform in found])


def arrow_column(name: str, values: Sequence[Any]) -> pa.Array:
    kind = schema_to_pyarrow(SCHEMA).field(name).type
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if pa.types.is_date(storage):
        return pa.array(values, pa.int32()).view(storage)
    if pa.types.is_temporal(storage):
        return pa.array(values, pa.int64()).view(storage)
    array = pa.array(values, storage)
    return array if storage is kind else pa.ExtensionArray.from_storage(kind, array)


def table_of(columns: dict[str, Sequence[Any]]) -> pa.Table:
    wanted = schema_to_pyarrow(SCHEMA)
    count = len(next(iter(columns.values())))
    arrays = [arrow_column(f.name, columns[f.name]) if f.name in columns else pa.nulls(count, f.type) for f in wanted]
    return pa.Table.from_arrays(arrays, schema=wanted)


@st.composite
def cuts(draw: st.DrawFn) -> tuple[PartitionSpec, dict[str, list[Any]]]:
    fields = draw(st.lists(FIELDS, min_size=1, max_size=3, unique_by=lambda f: f[0]))
    count = draw(st.integers(1, 12))
    pools = {name: draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=4)) for name, _ in fields}
    columns = {n: draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count)) for n, pool in pools.items()}
    return spec(*((s, t, f"field_{i}") for i, (s, t) in enumerate(fields))), columns


def expected_groups(wanted: PartitionSpec, columns: dict[str, list[Any]]) -> dict[str, list[int]]:
    """Apply PyIceberg's transforms row by row."""
    applied = []
    for field in wanted.fields:
        source = SCHEMA.find_field(field.source_id)
        applied.append([field.transform.transform(source.field_type)(v) for v in columns[source.name]])
    groups: dict[str, list[int]] = defaultdict(list)
    for row, values in enumerate(zip(*applied, strict=True)):
        groups[partition_of(wanted, SCHEMA, values).key].append(row)
    return dict(groups)


@given(cuts())
def test_every_row_lands_in_exactly_its_partition_and_rows_keep_their_order(
    case: tuple[PartitionSpec, dict[str, list[Any]]],
) -> None:
    wanted, columns = case
    numbered = table_of(columns).append_column("row", pa.array(range(len(next(iter(columns.values()))))))
    parts = list(split_by_partition(numbered, wanted, SCHEMA))
    found = {partition.key: rows.column("row").to_pylist() for partition, rows in parts}
    assert len(found) == len(parts)
    assert found == expected_groups(wanted, columns)


def test_a_partition_column_inside_structs_is_found_and_a_null_struct_is_null() -> None:
    kind = schema_to_pyarrow(SCHEMA).field("o").type
    rows = table_of({"i": [1, 2, 3, 4]})
    values = [{"a.b": "x", "p": {"q": 1}}, None, {"a.b": "x", "p": None}, {"a.b": "x", "p": {"q": 1}}]
    rows = rows.set_column(rows.schema.get_field_index("o"), rows.schema.field("o"), pa.array(values, kind))
    parts = {
        p.values: t.column("i").to_pylist()
        for p, t in split_by_partition(rows, spec(("o.a.b", "identity"), ("o.p.q", "truncate[1]")), SCHEMA)
    }
    assert parts == {("x", 1): [1, 4], (None, None): [2], ("x", None): [3]}


def test_rows_of_more_partitions_than_wanted_are_refused_before_the_first_of_them() -> None:
    rows, cut = table_of({"i": [1, 2, 3, 1]}), spec(("i", "identity"))
    assert len(list(split_by_partition(rows, cut, SCHEMA, 3))) == 3
    with pytest.raises(InvalidRequest, match=r"TOO_MANY_PARTITIONS.*belong to 3 partitions.*may touch 2"):
        next(split_by_partition(rows, cut, SCHEMA, 2))


def test_no_rows_have_no_partition() -> None:
    assert list(split_by_partition(table_of({"i": []}), spec(("i", "identity")), SCHEMA)) == []
    assert list(split_by_partition(table_of({"i": []}), spec(), SCHEMA)) == []


@pytest.mark.parametrize(
    ("name", "value", "hashed"),
    [
        ("i", 34, 2017239379),
        ("l", 34, 2017239379),
        ("dec", Decimal("14.20"), -500754589),
        ("d", days(2017, 11, 16), -653330422),
        ("t", (22 * 3600 + 31 * 60 + 8) * 10**6, -662762989),
        ("ts", (days(2017, 11, 16) * 86400 + 22 * 3600 + 31 * 60 + 8) * 10**6, -2047944441),
        ("s", "iceberg", 1210000089),
        ("u", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
        ("raw", b"\x00\x01\x02\x03", -188683207),
    ],
)
def test_buckets_are_those_of_the_spec(name: str, value: object, hashed: int) -> None:
    """Iceberg spec, appendix B, "32-bit hash requirements"."""
    ((found, _),) = split_by_partition(table_of({name: [value]}), spec((name, "bucket[1000]")), SCHEMA)
    assert found.values == ((hashed & 0x7FFFFFFF) % 1000,)
