"""Columns, partition specs and sort orders: what becomes a table, and what is refused by name (rows 11 and 12)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    GeometryType,
    ListType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    UnknownType,
)

from regelate.adapters.iceberg.tables.schema import check_size, columns_of, same_columns, schema_of
from regelate.adapters.iceberg.tables.spec import describe_order, describe_spec, order_of, spec_of
from regelate.core.table.schema import Column, PartitionField, SortSpec
from regelate.errors import InvalidRequest
from tests.support.iceberg_tables import make_catalog, make_table
from tests.system.faults.stack import Stack, edit_metadata, request

PLAIN_TYPES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "string",
    "uuid",
    "binary",
    "decimal(1,0)",
    "decimal(9,2)",
    "decimal(38,38)",
    "fixed[1]",
    "fixed[16]",
]
PLACES = st.sampled_from(PLAIN_TYPES)


def column(name: str, kind: str = "long", *children: Column, required: bool = False) -> Column:
    return Column(name=name, type=kind, required=required, children=children)


def columns_of_unique_names(kinds: st.SearchStrategy[Column]) -> st.SearchStrategy[list[Column]]:
    return st.lists(kinds, min_size=1, max_size=4, unique_by=lambda c: c.name)


def a_struct(fields: Sequence[Column]) -> Column:
    return column("struct_", "struct", *fields)


NAMES = st.sampled_from(["a", "b", "c d", "é", "x-y", "1", "select", '"', "日本"])
PRIMITIVES = st.builds(column, NAMES, PLACES, required=st.booleans())


def nested(inner: st.SearchStrategy[Column]) -> st.SearchStrategy[Column]:
    def renamed(child: Column, name: str, required: bool) -> Column:
        return column(name, child.type, *child.children, required=required)

    return st.one_of(
        st.builds(lambda n, fs: column(n, "struct", *fs), NAMES, columns_of_unique_names(inner)),
        st.builds(lambda n, e, r: column(n, "list", renamed(e, "element", r)), NAMES, inner, st.booleans()),
        st.builds(
            lambda n, k, v, r: column(n, "map", renamed(k, "key", True), renamed(v, "value", r)),
            NAMES,
            PRIMITIVES,
            inner,
            st.booleans(),
        ),
    )


SCHEMAS = columns_of_unique_names(st.recursive(PRIMITIVES, nested, max_leaves=6))


def refused(columns: Sequence[Column]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        schema_of(columns)
    assert (caught.value.code, caught.value.status) == ("INVALID_SCHEMA", 400)
    return caught.value


@given(SCHEMAS)
def test_columns_become_a_schema_and_come_back_the_same(columns: list[Column]) -> None:
    schema = schema_of(columns)
    assert same_columns(columns_of(schema), columns)
    ids = [c.field_id for top in columns_of(schema) for c in top.walk()]
    assert sorted(ids) == list(range(1, len(ids) + 1))


@given(SCHEMAS)
def test_the_field_ids_are_those_that_a_catalog_assigns(columns: list[Column]) -> None:
    from pyiceberg.schema import assign_fresh_schema_ids

    schema = schema_of(columns)
    assert assign_fresh_schema_ids(schema) == schema


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("integer", "int"),
        ("bigint", "long"),
        ("text", "string"),
        ("varchar", "string"),
        ("bool", "boolean"),
        (" LONG ", "long"),
        ("Decimal( 9 , 2 )", "decimal(9,2)"),
        ("decimal(9,2)", "decimal(9,2)"),
        ("fixed(3)", "fixed[3]"),
        ("fixed[3]", "fixed[3]"),
    ],
)
def test_friendly_type_names_become_those_of_iceberg(written: str, stored: str) -> None:
    assert columns_of(schema_of([column("a", written)]))[0].type == stored


@pytest.mark.parametrize("kind", PLAIN_TYPES)
def test_every_plain_type_survives_a_real_catalog(kind: str, tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path), "n.t", schema_of([column("a", kind, required=True)]))
    assert [(c.name, c.type, c.required, c.field_id) for c in columns_of(table.schema())] == [("a", kind, True, 1)]


@pytest.mark.parametrize(
    "kind",
    [
        "timestamp_ns",
        "timestamptz_ns",
        "variant",
        "geometry",
        "geography",
        "unknown",
        "geometry('x')",
        "nothing",
        "struct<a:int>",
        "decimal",
        "decimal(0,0)",
        "decimal(39,2)",
        "decimal(5,6)",
        "decimal(-1,2)",
        "fixed",
        "fixed[0]",
        "fixed(0)",
        "fixed[99999999999]",
        "list<int>",
    ],
)
def test_a_type_that_cannot_be_kept_is_refused_naming_the_column(kind: str) -> None:
    assert refused([column("good"), column("bad one", kind)]).details["field"] == "bad one"


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ([column("a"), column("a")], "a"),
        ([column("a"), column("A")], "A"),
        ([column("É"), column("é")], "é"),
        ([column("s", "struct", column("x"), column("X"))], "s.X"),
        ([column("s", "struct", column("a")), column("s.a")], "s.a"),
        ([column("l", "list", column("element")), column("L.element")], "L.element"),
        ([column("s", "struct")], "s"),
        ([column("s", "struct", column("inner", "struct"))], "s.inner"),
        ([column("l", "list")], "l"),
        ([column("l", "list", column("item"))], "l"),
        ([column("m", "map", column("key"))], "m"),
        ([column("a", "long", column("b"))], "a"),
        ([column("")], ""),
        ([column("a\n")], "a\n"),
        ([column("\ud800")], "\ud800"),
        ([column("x" * 256)], "x" * 255),
        ([], "schema"),
    ],
)
def test_clashing_missing_and_impossible_fields_are_refused_by_name(columns: list[Column], field: str) -> None:
    assert refused(columns).details["field"] == field


@pytest.mark.parametrize(
    "name",
    [
        "_row_id",
        "_file",
        "_pos",
        "_partition",
        "_spec_id",
        "_deleted",
        "_last_updated_sequence_number",
        "_ROW_ID",
        "_Pos",
    ],
)
def test_names_of_metadata_columns_are_refused_at_the_top_only(name: str) -> None:
    refused([column("a"), column(name)])
    assert schema_of([column("s", "struct", column(name))])


@pytest.mark.parametrize("name", ["a b", "a.b", "日本", '"; drop', "x" * 255, "select", "1", "%2F/..", "\u200d"])
def test_any_other_name_without_control_characters_is_a_column(name: str, tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path), "n.t", schema_of([column(name), column("other")]))
    assert [c.name for c in columns_of(table.schema())] == [name, "other"]


def test_a_doc_is_kept_where_iceberg_keeps_it_and_refused_where_it_would_be_lost() -> None:
    assert columns_of(schema_of([Column(name="a", type="int", doc="why")]))[0].doc == "why"
    refused([column("l", "list", Column(name="element", type="int", doc="why"))])


def test_types_of_version_3_are_described_even_though_they_cannot_be_created() -> None:
    schema = Schema(
        NestedField(1, "ns", TimestampNanoType()),
        NestedField(2, "g", GeometryType()),
        NestedField(3, "l", ListType(element_id=4, element=UnknownType())),
    )
    assert [c.type for c in columns_of(schema)][::2] == ["timestamp_ns", "list"]


SCHEMA = schema_of(
    [
        column("id"),
        column("at", "timestamp"),
        column("day", "date"),
        column("name", "string"),
        column("price", "decimal(9,2)"),
        column("ratio", "double"),
        column("tags", "list", column("element", "string")),
        column("geo", "struct", column("zone", "string"), column("more", "struct", column("deep", "long"))),
    ]
)


def spec_fault(*fields: PartitionField) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        spec_of(fields, SCHEMA)
    assert (caught.value.code, caught.value.status) == ("INVALID_PARTITION_SPEC", 400)
    assert caught.value.details["field"] == fields[-1].source
    return caught.value


@pytest.mark.parametrize(
    ("source", "written", "stored", "name"),
    [
        ("id", "identity", "identity", "id"),
        ("id", "bucket[16]", "bucket[16]", "id_bucket"),
        ("id", "bucket(16)", "bucket[16]", "id_bucket"),
        ("name", "TRUNCATE [ 4 ]", "truncate[4]", "name_trunc"),
        ("at", "year", "year", "at_year"),
        ("at", "years", "year", "at_year"),
        ("at", "months", "month", "at_month"),
        ("at", "Day", "day", "at_day"),
        ("at", "days", "day", "at_day"),
        ("at", "hours", "hour", "at_hour"),
        ("day", "month", "month", "day_month"),
        ("id", "void", "void", "id_null"),
        ("geo.zone", "identity", "identity", "geo.zone"),
        ("geo.more.deep", "bucket[2]", "bucket[2]", "geo.more.deep_bucket"),
    ],
)
def test_a_partition_field_becomes_icebergs_transform_with_icebergs_default_name(
    source: str, written: str, stored: str, name: str
) -> None:
    (field,) = spec_of([PartitionField(source=source, transform=written)], SCHEMA).fields
    assert (field.transform, field.name) == (parse_transform(stored), name)
    assert (SCHEMA.find_column_name(field.source_id), field.field_id) == (source, 1000)


@pytest.mark.parametrize(
    ("source", "transform"),
    [
        ("nothing", "identity"),
        ("ID", "identity"),
        ("id", "bucket[0]"),
        ("id", "bucket(0)"),
        ("id", "bucket"),
        ("id", "bucket[-1]"),
        ("id", "bucket[2147483648]"),
        ("id", "bucket[16"),
        ("id", "bucket[16)"),
        ("id", "truncate[0]"),
        ("id", "identity[3]"),
        ("id", "year[3]"),
        ("id", "zorder"),
        ("id", "identitys"),
        ("id", ""),
        ("id", "year"),
        ("day", "hour"),
        ("name", "month"),
        ("ratio", "bucket[4]"),
        ("ratio", "truncate[4]"),
        ("tags", "identity"),
        ("tags.element", "identity"),
        ("geo", "identity"),
    ],
)
def test_a_bad_transform_or_source_is_refused_naming_the_source(source: str, transform: str) -> None:
    spec_fault(PartitionField(source=source, transform=transform))


@pytest.mark.parametrize("name", ["", "a\tb", "x" * 256, "id", "NAME", "geo.zone"])
def test_a_partition_name_must_be_one_and_must_not_name_another_column(name: str) -> None:
    spec_fault(PartitionField(source="at", transform="day", name=name))


def test_an_identity_field_may_bear_its_own_columns_name_and_no_other() -> None:
    assert spec_of([PartitionField(source="id", transform="identity", name="id")], SCHEMA)
    spec_fault(PartitionField(source="id", transform="identity", name="name"))


@pytest.mark.parametrize(
    "fields",
    [
        [("id", "bucket[4]", "x"), ("name", "bucket[4]", "X")],
        [("id", "identity", "one"), ("id", "identity", "two")],
        [("at", "day", None), ("at", "hour", None)],
        [("at", "year", None), ("at", "months", None)],
        [("id", "bucket[4]", "a"), ("id", "bucket[4]", "b")],
    ],
)
def test_two_fields_may_share_neither_name_nor_meaning(fields: list[tuple[str, str, str | None]]) -> None:
    spec_fault(*(PartitionField(source=s, transform=t, name=n) for s, t, n in fields))


def test_different_transforms_of_one_column_are_allowed() -> None:
    fields = [
        PartitionField(source="id", transform="bucket[4]", name="b4"),
        PartitionField(source="id", transform="bucket[8]", name="b8"),
        PartitionField(source="id", transform="truncate[10]"),
    ]
    spec = spec_of(fields, SCHEMA)
    assert [f.field_id for f in spec.fields] == [1000, 1001, 1002]
    assert describe_spec(spec, SCHEMA)[0] == {"source": "id", "transform": "bucket[4]", "name": "b4"}


def test_a_spec_is_described_even_when_its_column_is_gone() -> None:
    spec = spec_of([PartitionField(source="at", transform="day")], SCHEMA)
    other = Schema(NestedField(77, "x", StringType()))
    assert describe_spec(spec, other) == ({"source": "2", "transform": "day", "name": "at_day"},)


def test_a_sort_order_keeps_columns_directions_and_nulls() -> None:
    wanted = [SortSpec(column="at", direction="desc", nulls="nulls-last"), SortSpec(column="geo.zone")]
    order = order_of(wanted, SCHEMA)
    assert [(f.direction, f.null_order) for f in order.fields] == [
        (SortDirection.DESC, NullOrder.NULLS_LAST),
        (SortDirection.ASC, NullOrder.NULLS_FIRST),
    ]
    assert describe_order(order, SCHEMA)[1] == {
        "column": "geo.zone",
        "transform": "identity",
        "direction": "asc",
        "nulls": "nulls-first",
    }
    assert order_of([], SCHEMA).is_unsorted


@pytest.mark.parametrize(
    "wanted",
    [
        [SortSpec(column="nothing")],
        [SortSpec(column="tags")],
        [SortSpec(column="tags.element")],
        [SortSpec(column="id", direction="up")],
        [SortSpec(column="id", nulls="first")],
        [SortSpec(column="id"), SortSpec(column="id", direction="desc")],
    ],
)
def test_a_bad_sort_order_is_refused_naming_the_column(wanted: list[SortSpec]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        order_of(wanted, SCHEMA)
    assert (caught.value.code, caught.value.details["field"]) == ("INVALID_FIELD", wanted[-1].column)


def test_schema_and_spec_are_what_a_real_catalog_stores(tmp_path: Path) -> None:
    spec = spec_of([PartitionField(source="geo.more.deep", transform="bucket[3]")], SCHEMA)
    table = make_table(make_catalog(tmp_path), "n.t", SCHEMA, spec)
    assert table.schema() == SCHEMA
    assert describe_spec(table.spec(), table.schema()) == describe_spec(spec, SCHEMA)
    assert table.schema().find_type("at") == TimestampType()


def listed(depth: int) -> Column:
    inner = column("element")
    for _ in range(depth - 2):
        inner = column("element", "list", inner)
    return column("a", "list", inner)


@pytest.mark.parametrize(
    "columns",
    [
        [column(f"c{i}") for i in range(2_000)],
        [column("s", "struct", *(column(f"c{i}") for i in range(1_999)))],
        [listed(64)],
    ],
    ids=["columns", "fields", "depth"],
)
def test_a_schema_at_its_limits_becomes_a_table(columns: list[Column]) -> None:
    check_size(schema_of(columns))


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ([column(f"c{i}") for i in range(2_001)], "2,001 columns"),
        ([column("s", "struct", *(column(f"c{i}") for i in range(2_000)))], "2,001 columns"),
        ([listed(65)], "64 deep"),
        ([listed(100_000)], "64 deep"),
    ],
    ids=["columns", "fields", "depth", "far too deep"],
)
def test_a_schema_beyond_them_is_refused_by_its_number(columns: list[Column], told: str) -> None:
    fault = refused(columns)
    assert told in fault.message
    assert (fault.details["maximum"], fault.details["maximum_depth"]) == (2_000, 64)


def deep(kind: str, depth: int) -> object:
    found: object = "long"
    for number in range(depth - 1):
        found = (
            {"type": "list", "element-id": number + 2, "element": found, "element-required": False}
            if kind == "list"
            else {"type": "struct", "fields": [{"id": number + 2, "name": "f", "type": found, "required": False}]}
        )
    return found


@pytest.mark.parametrize("kind", ["list", "struct"])
@pytest.mark.parametrize("depth", [65, 66, 90, 150, 250])
def test_a_table_of_another_engine_that_is_nested_too_deep_is_refused_by_name(
    kind: str, depth: int, tmp_path: Path
) -> None:
    stack = Stack(tmp_path)
    stack.create("t", {"id": "long"})

    def nest(document: dict[str, Any]) -> None:
        document["schemas"][0]["fields"][0]["type"] = deep(kind, depth)
        document["last-column-id"] = depth + 1

    edit_metadata(stack.table("default.t"), nest)
    for operation in ("WRITE", "QUERY", "COMPACT", "TABLE_HEALTH"):
        fields = {"records": [{"id": None}]} if operation == "WRITE" else {}
        stack.refused(422, "SCHEMA_TOO_LARGE", ["64"], request(operation, "t", **fields))


def test_a_table_of_another_engine_that_is_too_wide_is_refused_by_name_and_can_be_dropped(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    stack.create("t", {"id": "long"})

    def widen(document: dict[str, Any]) -> None:
        fields = [{"id": i + 1, "name": f"c{i}", "type": "long", "required": False} for i in range(2_001)]
        document["schemas"][0]["fields"] = fields
        document["last-column-id"] = len(fields)

    edit_metadata(stack.table("default.t"), widen)
    for operation in ("QUERY", "COMPACT"):
        stack.refused(422, "SCHEMA_TOO_LARGE", ["2,001 columns", "2,000"], request(operation, "t"))
    assert len(stack.ok("DESCRIBE_TABLE", "t")["schema"]["fields"]) == 2_001
    stack.ok("DROP_TABLE", "t", purge=True)
