"""Every type, name and value survives a COMPACT, and the files it writes say the truth about themselves."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo, GreaterThan, IsNaN, LessThan, NotNull
from pyiceberg.partitioning import PartitionField, PartitionSpec, _to_partition_representation
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from regelate.errors import RegelateError
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import (
    add_data_files,
    append,
    changed_file,
    live_data_files,
    live_data_paths,
    local_path,
    rows,
)
from tests.support.lake import Lake, add_file, footer, in_table_order, make_file
from tests.support.table_model import model_rows


def plain(year: int, month: int = 1, day: int = 1, *rest: int) -> datetime:
    """A timestamp without a zone."""
    return datetime(year, month, day, *rest, tzinfo=UTC).replace(tzinfo=None)


NAN, INF = float("nan"), float("inf")
ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2**127 + 7)
ALL_TYPES: list[tuple[str, Any, list[Any]]] = [
    ("boolean", BooleanType(), [True, False]),
    ("int", IntegerType(), [-(2**31), 2**31 - 1]),
    ("long", LongType(), [-(2**63), 2**63 - 1]),
    ("float", FloatType(), [1.1, -0.0]),
    ("double", DoubleType(), [0.1 + 0.2, -0.0]),
    ("decimal9", DecimalType(9, 2), [Decimal("-9999999.99"), Decimal("0.01")]),
    ("decimal18", DecimalType(18, 0), [Decimal("-999999999999999999"), Decimal(7)]),
    ("decimal38", DecimalType(38, 10), [Decimal("-9" * 1 + "9" * 27 + ".9999999999"), Decimal("0.0000000001")]),
    ("date", DateType(), [date(1, 1, 1), date(9999, 12, 31)]),
    ("time", TimeType(), [time(0, 0), time(23, 59, 59, 999999)]),
    ("timestamp", TimestampType(), [plain(1), plain(2262, 4, 12, 1, 2, 3, 4)]),
    (
        "timestamptz",
        TimestamptzType(),
        [datetime(1960, 1, 1, tzinfo=UTC), datetime(2300, 1, 1, 5, 6, 7, 8, tzinfo=UTC)],
    ),
    ("string", StringType(), ["", "naïve 😀 'quoted' \"twice\" \x00 end"]),
    ("uuid", UUIDType(), [ONE.bytes, TWO.bytes]),
    ("fixed", FixedType(5), [b"\x00\x01\x02\xfe\xff", b"abcde"]),
    ("binary", BinaryType(), [b"", b"\x00\xff"]),
]
EVERYTHING = Schema(*(NestedField(i, name, kind) for i, (name, kind, _) in enumerate(ALL_TYPES, 1)))
NESTED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(
        2,
        "deep",
        ListType(
            3,
            StructType(
                NestedField(4, "m", MapType(5, StringType(), 6, ListType(7, DoubleType(), False), False)),
                NestedField(
                    8, "s", StructType(NestedField(9, "u", TimestamptzType()), NestedField(10, "f", FixedType(2)))
                ),
            ),
            False,
        ),
    ),
    NestedField(11, "by_number", MapType(12, LongType(), 13, StructType(NestedField(14, "x", FloatType())), False)),
    NestedField(
        15,
        "s",
        StructType(NestedField(16, "a", StringType()), NestedField(17, "b", ListType(18, IntegerType(), False))),
    ),
)


def values_of(name: str) -> list[Any]:
    return next(values for known, _, values in ALL_TYPES if known == name)


def everything(index: int) -> dict[str, Any]:
    return {name: values[index] for name, _, values in ALL_TYPES}


# --- values -----------------------------------------------------------------------------------------------------------


def test_every_type_and_its_extreme_values_and_nulls_survive(lake: Lake) -> None:
    nothing = {name: None for name, _, _ in ALL_TYPES}
    table = lake.table(EVERYTHING, [everything(0), nothing], [everything(1)], [nothing, everything(0)])
    lake.assert_rows_kept(table)
    assert len(live_data_paths(table.refresh())) == 1


def test_nested_values_of_every_shape_survive(lake: Lake) -> None:
    table = lake.table(
        NESTED,
        [
            {
                "id": 1,
                "deep": [
                    {"m": [("k", [1.5, None, -0.0, NAN])], "s": {"u": datetime(2025, 1, 1, tzinfo=UTC), "f": b"ab"}},
                    None,
                ],
                "by_number": [(2**40, {"x": 1.1}), (-1, None)],
                "s": {"a": "", "b": [1, None, 3]},
            },
            {"id": 2, "deep": None, "by_number": None, "s": None},
        ],
        [
            {"id": 3, "deep": [], "by_number": [], "s": {"a": None, "b": []}},
            {
                "id": 4,
                "deep": [{"m": None, "s": None}, {"m": [], "s": {"u": None, "f": None}}],
                "by_number": [],
                "s": None,
            },
        ],
    )
    lake.assert_rows_kept(table)


ODD = [0.0, -0.0, NAN, INF, -INF, 5e-324, 1.7976931348623157e308, None]


@pytest.mark.parametrize("strategy", ["binpack", "sort"])
def test_odd_floats_survive_bit_for_bit(lake: Lake, strategy: str) -> None:
    """Repeated, so that a writer makes dictionaries of them: DuckDB's hold one zero only."""
    schema = Schema(NestedField(1, "d", DoubleType()), NestedField(2, "f", FloatType()))
    table = lake.table(schema, *([(v, v if v != 5e-324 and v != ODD[6] else 1.1) for v in ODD] * 20 for _ in range(2)))
    more: dict[str, Any] = {"strategy": "sort", "sort_order": [{"column": "d"}]} if strategy == "sort" else {}
    lake.assert_rows_kept(table, **more)
    texts = [repr(row[0]) for row in scanned(table)]
    assert sorted(texts) == sorted(list(map(repr, ODD)) * 40)
    if strategy == "sort":
        in_order = [None, -INF, -0.0, 0.0, 5e-324, 1.7976931348623157e308, INF, NAN]
        assert list(dict.fromkeys(texts)) == list(map(repr, in_order))


@pytest.mark.parametrize("place", ["column", "struct", "list", "map", "deep"])
def test_a_negative_zero_survives_among_zeros_at_every_depth(lake: Lake, place: str) -> None:
    kinds = {
        "column": (DoubleType(), lambda v: v),
        "struct": (StructType(NestedField(2, "x", FloatType())), lambda v: {"x": v}),
        "list": (ListType(2, DoubleType(), False), lambda v: [1.0, None, v]),
        "map": (MapType(2, StringType(), 3, DoubleType(), False), lambda v: [("k", v)]),
        "deep": (
            ListType(
                2, StructType(NestedField(3, "m", MapType(4, LongType(), 5, ListType(6, FloatType()), False))), False
            ),
            lambda v: [None, {"m": [(1, [2.0, v])]}],
        ),
    }
    kind, made = kinds[place]
    table = lake.table(Schema(NestedField(1, "v", kind)), [(made(0.0),)] * 30, [(made(-0.0),)] * 30 + [(None,)])
    lake.assert_rows_kept(table)


@pytest.mark.parametrize("kind", [name for name, _, _ in ALL_TYPES])
def test_partitions_of_every_type_with_a_null_partition_and_both_kinds_of_deletes(lake: Lake, kind: str) -> None:
    """One partition per value; a position delete in the first, an equality delete on the very key in the second."""
    source = EVERYTHING.find_type(kind)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "k", source), NestedField(3, "other", source))
    table = lake.table(schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "k")))
    first, second = values_of(kind)
    stored = {
        repr(v): Record(None if v is None else _to_partition_representation(source, v)) for v in (first, second, None)
    }
    files = [
        make_file(table, [(number, part, part), (10 + number, part, None)], stored[repr(part)])
        for part in (first, second, None)
        for number in range(3)
    ]
    add_data_files(table, files)
    add_position_deletes(table, {files[1].file_path: [0]}, partition=stored[repr(first)])
    add_equality_deletes(table, ["other"], [(second,)], partition=stored[repr(second)])
    assert len(model_rows(table)) == 18 - 1 - 3
    lake.assert_rows_kept(table)
    assert len(live_data_paths(table.refresh())) == 3


@pytest.mark.parametrize(
    "value", [NAN, -0.0, INF, "", "a/b", "50%", "a=b", "ü 😀", " ", "x" * 200, "..", "it's [a] *?"]
)
def test_partitions_with_odd_values(lake: Lake, value: object) -> None:
    kind = StringType() if isinstance(value, str) else DoubleType()
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", kind))
    table = lake.table(schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p")))
    for number in range(3):
        add_file(table, [(number, value), (10 + number, value)], Record(value))
    add_position_deletes(table, {in_table_order(table)[0]: [1]}, partition=Record(value))
    add_equality_deletes(table, ["id"], [(12,)], partition=Record(value))
    assert lake.assert_rows_kept(table)["stats"]["rows"] == 4


ODD_NAMES = ["filename", "file_row_number", "rowid", "a.b", 'quo"te', "it's", "with space", "ü😀", "select", "%41"]
ODD_NAMES += ["a/b", "path", "pos", "s", "e0", "f", "sequence_number", "k0", "c1", "c2"]


@pytest.mark.parametrize("strategy", ["binpack", "sort"])
def test_odd_column_names(lake: Lake, strategy: str) -> None:
    """Names of the scan's virtual columns, of our own SQL, of SQL itself, and such as must be quoted; nested too."""
    names = enumerate(ODD_NAMES, 1)
    inner = StructType(*(NestedField(100 + i, name, StringType()) for i, name in names))
    schema = Schema(
        *(NestedField(i, name, LongType()) for i, name in enumerate(ODD_NAMES, 1)), NestedField(99, "nested", inner)
    )
    batches = [
        [(*([10 * b + i] * len(ODD_NAMES)), {name: f"{name} {i}" for name in ODD_NAMES}) for i in range(4)]
        for b in range(3)
    ]
    table = lake.table(schema, *batches)
    add_position_deletes(table, {in_table_order(table)[1]: [0, 2]})
    keys = [name for name in ODD_NAMES if name != "a.b"]
    add_equality_deletes(table, keys, [(3,) * len(keys), (21,) * len(keys)])
    order = [{"column": name, "direction": "desc"} for name in (*ODD_NAMES, "nested.rowid", "nested.a.b")]
    more: dict[str, Any] = {"strategy": "sort", "sort_order": order} if strategy == "sort" else {}
    assert lake.assert_rows_kept(table, **more)["stats"]["rows"] == 8
    if strategy == "sort":
        assert [row[0] for row in scanned(table)] == [23, 22, 20, 13, 11, 2, 1, 0]


def scanned(table: Table) -> list[tuple[Any, ...]]:
    """Rows in the order in which the only data file holds them."""
    found = table.refresh().scan().to_arrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_odd_partition_field_names_and_a_warehouse_with_odd_characters(lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), 'p "ü" /%[*]'))
    lake.catalog.create_namespace("odd")
    place = f"file://{lake.folder}/ware house [1] ü*{{a,b}}'\" 100% +="
    table = lake.catalog.create_table("odd.t", schema, location=place, partition_spec=spec)
    for number in range(3):
        append(table, [(number, "x"), (10 + number, "y")])
    add_equality_deletes(table, ["id"], [(11,)], partition=Record("y"))
    add_position_deletes(table, {next(p for p in in_table_order(table) if "=x" in p): [0]}, partition=Record("x"))
    assert lake.assert_rows_kept(table)["stats"]["rows"] == 4


def test_names_that_differ_only_in_case_are_refused_because_duckdb_mixes_them_up(lake: Lake) -> None:
    nested = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "s", StructType(NestedField(3, "x", LongType()), NestedField(4, "X", LongType()))),
    )
    table = lake.table(nested, [(1, {"x": 1, "X": 2})], [(2, {"x": 3, "X": 4})])
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, force=True)
    assert (caught.value.code, caught.value.status) == ("UNSUPPORTED_TABLE", 501)


# --- tables of other kinds --------------------------------------------------------------------------------------------


PLAIN = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))


def test_a_v1_table_is_compacted_and_stays_v1(lake: Lake) -> None:
    table = lake.table(PLAIN, [(1, "a")], [(2, "b")], [(3, None)], format_version=1)
    lake.assert_rows_kept(table)
    assert table.refresh().format_version == 1
    append(table, [(4, "d")])
    append(table, [(5, "d")])
    lake.assert_rows_kept(table)
    assert rows(table.refresh()) == [(1, "a"), (2, "b"), (3, None), (4, "d"), (5, "d")]


def test_a_v1_table_that_was_upgraded_with_deletes_on_its_old_files(lake: Lake) -> None:
    table = lake.table(PLAIN, format_version=1)
    (first,) = append(table, [(1, "a"), (2, "b")])
    append(table, [(3, "c")])
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    append(table, [(1, "late"), (4, "d")])
    add_equality_deletes(table, ["id"], [(1,)])
    add_position_deletes(table, {first: [1]})
    append(table, [(1, "later")])
    lake.assert_rows_kept(table)
    assert rows(table.refresh()) == [(1, "later"), (3, "c"), (4, "d")]


def test_a_table_with_gzipped_metadata(lake: Lake) -> None:
    table = lake.table(
        PLAIN, [(1, "a")], [(2, "b")], [(3, "c")], properties={"write.metadata.compression-codec": "gzip"}
    )
    lake.assert_rows_kept(table)


def test_files_without_field_ids_are_read_by_the_name_mapping(lake: Lake) -> None:
    """Row 64; renamed since, so that the names in the files are no longer the table's."""
    mapping = create_mapping_from_schema(PLAIN).model_dump_json()
    table = lake.table(PLAIN, properties={"schema.name-mapping.default": mapping})
    for number in range(3):
        add_file(table, [(number, "x")], field_ids=False, metrics=False)
    with table.update_schema() as update:
        update.rename_column("p", "renamed")
    append(table, [(9, "y")])
    lake.assert_rows_kept(table)
    assert sorted(set(rows(table.refresh()))) == [(0, "x"), (1, "x"), (2, "x"), (9, "y")]


def test_files_without_field_ids_and_without_a_mapping_never_become_nulls(lake: Lake) -> None:
    """PyIceberg refuses such a file, DuckDB alone reads it as all null; we read it by position, as Iceberg does."""
    table = lake.table(PLAIN)
    for number in range(3):
        add_file(table, [(number, "x")], field_ids=False)
    with table.update_schema() as update:
        update.rename_column("p", "renamed")
    lake.compact(table, force=True)
    assert rows(table.refresh()) == [(0, "x"), (1, "x"), (2, "x")]


def test_a_partition_column_that_the_files_lack_is_read_from_the_partition(lake: Lake) -> None:
    """Files of a Hive table: the specification has identity partition values stand in for a missing column."""
    mapping = create_mapping_from_schema(PLAIN).model_dump_json()
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = lake.table(PLAIN, spec=spec, properties={"schema.name-mapping.default": mapping})
    for number in range(3):
        file = make_file(table, [(number, "hive")], Record("hive"), metrics=False)
        without_column(file.file_path, "p")
        size = local_path(file.file_path).stat().st_size
        add_data_files(table, [changed_file(file, file_size_in_bytes=size)])
    lake.assert_rows_kept(table)
    assert {row[1] for row in rows(table.refresh())} == {"hive"}


def without_column(path: str, name: str) -> None:
    import pyarrow.parquet as pq

    place = local_path(path)
    pq.write_table(pq.read_table(place).drop_columns([name]), place)


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(4)", "full"])
def test_tables_that_keep_few_metrics(lake: Lake, mode: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "p", StringType()), NestedField(3, "b", BinaryType())
    )
    batches = [[(i, f"prefix-{i}" + "\U0010ffff" * 3, b"\xff" * 20) for i in range(b, b + 3)] for b in range(3)]
    table = lake.table(schema, *batches, properties={"write.metadata.metrics.default": mode})
    lake.assert_rows_kept(table)


# --- what the written files say of themselves -------------------------------------------------------------------------


def output_of(lake: Lake, table: Table) -> str:
    lake.assert_rows_kept(table)
    (path,) = live_data_paths(table.refresh())
    return path


@pytest.mark.parametrize("with_fixed", [False, True])
def test_field_ids_are_written_at_every_depth(lake: Lake, with_fixed: bool) -> None:
    fields = [
        NestedField(1, "l", ListType(2, StructType(NestedField(3, "x", LongType())), False)),
        NestedField(4, "m", MapType(5, StringType(), 6, StructType(NestedField(7, "y", ListType(8, LongType()))))),
        *([NestedField(9, "f", FixedType(2))] if with_fixed else []),
    ]
    row = {"l": [{"x": 1}], "m": [("k", {"y": [1, 2]})], **({"f": b"ab"} if with_fixed else {})}
    table = lake.table(Schema(*fields), [row], [row])
    schema = footer(output_of(lake, table)).schema.to_arrow_schema()
    assert field_ids(schema) == set(table.schema()._lazy_id_to_field)


def field_ids(holder: Any) -> set[int]:
    found: set[int] = set()
    for field in holder:
        found.add(int(field.metadata[b"PARQUET:field_id"]))
        kind = field.type
        if hasattr(kind, "key_field"):
            found |= field_ids([kind.key_field, kind.item_field])
        elif hasattr(kind, "value_field"):
            found |= field_ids([kind.value_field])
        elif kind.num_fields:
            found |= field_ids(list(kind))
    return found


def test_physical_types_are_those_of_the_specification(lake: Lake) -> None:
    table = lake.table(EVERYTHING, [everything(0)], [everything(1)])
    columns = footer(output_of(lake, table)).schema
    found = {columns.column(i).name: columns.column(i) for i in range(len(EVERYTHING.fields))}
    assert (found["fixed"].physical_type, found["fixed"].length) == ("FIXED_LEN_BYTE_ARRAY", 5)
    assert (found["uuid"].physical_type, found["uuid"].length) == ("FIXED_LEN_BYTE_ARRAY", 16)
    assert str(found["uuid"].logical_type) == "UUID"
    assert found["decimal9"].physical_type == "INT32"
    assert found["decimal18"].physical_type == "INT64"
    assert found["decimal38"].physical_type == "FIXED_LEN_BYTE_ARRAY"
    assert found["date"].physical_type == "INT32"
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in str(found["timestamp"].logical_type)
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(found["timestamptz"].logical_type)
    assert "timeUnit=microseconds" in str(found["time"].logical_type)
    assert str(found["string"].logical_type) == "String"
    assert str(found["binary"].logical_type) == "None"


def test_bounds_omit_nan_and_tell_the_zeros_apart(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "d", DoubleType()), NestedField(2, "z", DoubleType()), NestedField(3, "n", FloatType())
    )
    table = lake.table(schema, [(NAN, 0.0, NAN), (1.0, -0.0, None)], [(-3.5, 0.0, NAN), (None, 0.0, NAN)])
    lake.assert_rows_kept(table)
    (file,) = live_data_files(table.refresh())
    low, high = file.lower_bounds or {}, file.upper_bounds or {}
    import struct

    if 1 in low:
        assert (struct.unpack("<d", low[1])[0], struct.unpack("<d", high[1])[0]) == (-3.5, 1.0)
    assert not any(math.isnan(struct.unpack("<f", b[3])[0]) for b in (low, high) if 3 in b)
    if 2 in low:
        assert math.copysign(1, struct.unpack("<d", low[2])[0]) == -1.0
        assert math.copysign(1, struct.unpack("<d", high[2])[0]) == 1.0
    assert (file.null_value_counts or {})[1] == 1


def test_pruning_by_the_new_bounds_still_finds_every_row(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "i", LongType()),
        NestedField(2, "d", DoubleType()),
        NestedField(3, "s", StringType()),
        NestedField(4, "t", TimestampType()),
        NestedField(5, "c", DecimalType(20, 3)),
    )
    content = [
        (-5, -0.0, "a" * 30, plain(1960), Decimal("-1.5")),
        (7, NAN, "\U0010ffff" * 20, plain(2025), Decimal("99999999999999999.999")),
        (9, INF, "", None, None),
        (None, None, None, plain(2300), Decimal(0)),
    ]
    table = lake.table(schema, content[:1], content[1:2], content[2:])
    filters = [
        EqualTo("i", -5),
        EqualTo("i", 9),
        EqualTo("d", 0.0),
        IsNaN("d"),
        GreaterThan("d", 1e300),
        EqualTo("s", "a" * 30),
        EqualTo("s", "\U0010ffff" * 20),
        EqualTo("s", ""),
        LessThan("t", "1970-01-01T00:00:00"),
        NotNull("t"),
        EqualTo("c", Decimal("99999999999999999.999")),
        LessThan("c", Decimal("0.000")),
    ]
    before = [table.scan(row_filter=f).to_arrow().num_rows for f in filters]
    assert min(before) >= 1
    lake.assert_rows_kept(table)
    assert [table.refresh().scan(row_filter=f).to_arrow().num_rows for f in filters] == before
