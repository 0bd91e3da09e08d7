"""Columns and partition fields of a table change in one commit, or are refused by their names and nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField as NativeField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from regelate.adapters.iceberg.admin import IcebergAdmin
from regelate.core.table.evolution import ColumnChange, Evolution
from regelate.core.table.schema import Column, PartitionField, SortSpec, TableDefinition
from regelate.errors import Conflict, InvalidRequest
from tests.support.iceberg_tables import make_catalog, make_table

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "n", IntegerType()),
    NestedField(3, "f", FloatType()),
    NestedField(4, "d", DecimalType(9, 2)),
    NestedField(5, "kind", StringType(), doc="what it is"),
    NestedField(6, "at", TimestampType()),
    NestedField(7, "who", StructType(NestedField(8, "name", StringType()), NestedField(9, "age", IntegerType()))),
    NestedField(10, "tags", ListType(11, StructType(NestedField(12, "t", IntegerType())), element_required=False)),
    NestedField(13, "m", MapType(14, IntegerType(), 15, IntegerType(), value_required=False)),
    identifier_field_ids=[1],
)
REMAIN = {name: name for name in ("id", "n", "d", "at", "who", "tags", "tags.element.t", "m.key", "m.value")}
REMAIN |= {"kind": "sort", "who.name": "who.called"}
"""What the columns that nobody drops are called before and after."""
SPEC = PartitionSpec(NativeField(5, 1000, IdentityTransform(), "kind"))


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return make_catalog(tmp_path)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return make_table(catalog, "n.t", SCHEMA, SPEC)


@pytest.fixture
def admin(catalog: SqlCatalog) -> IcebergAdmin:
    return IcebergAdmin(catalog, defaults={}, sleep=lambda _: None)


def alter(admin: IcebergAdmin, ident: str = "n.t", **change: Any) -> tuple[bool, Any]:
    return admin.alter(ident, set_properties={}, unset_properties=[], evolution=Evolution(**change))


def column(name: str, kind: str = "string", **more: Any) -> dict[str, Column]:
    return {name: Column(name=name.rpartition(".")[2], type=kind, **more)}


def test_every_kind_of_change_lands_in_one_commit_and_keeps_the_ids(
    admin: IcebergAdmin, catalog: SqlCatalog, table: Table
) -> None:
    before = len(table.metadata.metadata_log)
    changed, found = admin.alter(
        "n.t",
        set_properties={"owner": "me"},
        unset_properties=[],
        evolution=Evolution(
            add_columns={**column("note", doc="free"), **column("who.zip"), **column("tags.u", "long")},
            drop_columns=("who.age", "f"),
            rename_columns={"kind": "sort", "who.name": "called"},
            alter_columns={
                "n": ColumnChange(type="long", doc="how many"),
                "d": ColumnChange(type="decimal(18,2)"),
                "m.value": ColumnChange(type="bigint"),
                "tags.element.t": ColumnChange(type="long"),
            },
            add_partition_fields=(PartitionField(source="at", transform="day"),),
            rename_partition_fields={"kind": "sorts"},
        ),
    )
    assert changed
    loaded = catalog.load_table("n.t")
    assert len(loaded.metadata.metadata_log) == before + 1
    was = {name: table.schema().find_field(name).field_id for name in REMAIN}
    assert {name: loaded.schema().find_field(REMAIN[name]).field_id for name in REMAIN} == was
    known = table.schema().field_ids
    names = {loaded.schema().find_column_name(i) for i in set(loaded.schema().field_ids) - set(known)}
    assert names == {"note", "who.zip", "tags.element.u"}
    assert set(known) - set(loaded.schema().field_ids) == {
        table.schema().find_field(name).field_id for name in ("who.age", "f")
    }
    types = {c.name: c.type for top in found.columns for c in top.walk()}
    assert (types["n"], types["d"], types["t"], types["value"]) == ("long", "decimal(18,2)", "long", "long")
    assert {c.name: c.doc for c in found.columns if c.doc} == {"n": "how many", "sort": "what it is", "note": "free"}
    assert found.partition_spec == (
        {"source": "sort", "transform": "identity", "name": "sorts"},
        {"source": "at", "transform": "day", "name": "at_day"},
    )
    assert found.properties["owner"] == "me"
    assert loaded.spec().fields[0].field_id == 1000


def test_what_is_so_already_is_no_commit(admin: IcebergAdmin, catalog: SqlCatalog, table: Table) -> None:
    same = {"n": ColumnChange(type="int"), "kind": ColumnChange(doc="what it is"), "id": ColumnChange(required=True)}
    changed, found = alter(
        admin, alter_columns=same, rename_columns={"f": "f"}, rename_partition_fields={"kind": "kind"}
    )
    assert (changed, found) == (False, admin.describe("n.t"))
    assert catalog.load_table("n.t").metadata_location == table.metadata_location


def test_a_required_column_becomes_optional(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    make_table(catalog, "n.r", Schema(NestedField(1, "id", LongType(), required=True)))
    _, found = alter(admin, "n.r", alter_columns={"id": ColumnChange(required=False)})
    assert not found.columns[0].required


def test_a_column_that_comes_back_has_another_id(admin: IcebergAdmin, catalog: SqlCatalog, table: Table) -> None:
    alter(admin, drop_columns=("f",))
    alter(admin, add_columns=column("f", "float"))
    assert catalog.load_table("n.t").schema().find_field("f").field_id > 15
    alter(admin, drop_columns=("f",), add_columns=column("f", "string"))
    assert str(catalog.load_table("n.t").schema().find_field("f").field_type) == "string"


def test_a_name_mapping_and_properties_of_columns_follow_their_columns(
    admin: IcebergAdmin, catalog: SqlCatalog, table: Table
) -> None:
    metrics, bloom = "write.metadata.metrics.column.", "write.parquet.bloom-filter-enabled.column."
    mapping = '[{"field-id": 2, "names": ["n"]}, {"field-id": 3, "names": ["f"]}]'
    given = {f"{metrics}n": "full", f"{metrics}who.age": "none", f"{bloom}f": "true", f"{metrics}nowhere": "counts"}
    with table.transaction() as other:
        other.set_properties({**given, "schema.name-mapping.default": mapping})
    _, found = alter(admin, rename_columns={"n": "number", "who": "person"}, drop_columns=("f",))
    of_columns = {k: v for k, v in found.properties.items() if k.startswith((metrics, bloom))}
    assert of_columns == {
        f"{metrics}number": "full",
        f"{metrics}person.age": "none",
        f"{metrics}nowhere": "counts",
    }
    assert '"number"' in found.properties["schema.name-mapping.default"]


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a column of the spec": ({"drop_columns": ("kind",)}, "INVALID_SCHEMA", "partitioned by it"),
    "an identifier field": ({"drop_columns": ("id",)}, "INVALID_SCHEMA", "identifier field"),
    "an optional identifier": ({"alter_columns": {"id": ColumnChange(required=False)}}, "INVALID_SCHEMA", "identifier"),
    "no such column": ({"drop_columns": ("ID",)}, "INVALID_SCHEMA", "no such column"),
    "a list's element": ({"drop_columns": ("tags.element",)}, "INVALID_SCHEMA", "list or a map"),
    "a map's value": ({"rename_columns": {"m.value": "v"}}, "INVALID_SCHEMA", "list or a map"),
    "the last fields": ({"drop_columns": ("who.name", "who.age")}, "INVALID_SCHEMA", "no field of this struct"),
    "narrowing": ({"alter_columns": {"id": ColumnChange(type="int")}}, "INVALID_SCHEMA", "long cannot become int"),
    "text to bytes": ({"alter_columns": {"kind": ColumnChange(type="binary")}}, "INVALID_SCHEMA", "cannot become"),
    "int to double": ({"alter_columns": {"n": ColumnChange(type="double")}}, "INVALID_SCHEMA", "cannot become"),
    "another scale": ({"alter_columns": {"d": ColumnChange(type="decimal(18,4)")}}, "INVALID_SCHEMA", "cannot become"),
    "fewer digits": ({"alter_columns": {"d": ColumnChange(type="decimal(8,2)")}}, "INVALID_SCHEMA", "cannot become"),
    "a struct's type": ({"alter_columns": {"who": ColumnChange(type="string")}}, "INVALID_SCHEMA", "plain type"),
    "to a struct": ({"alter_columns": {"n": ColumnChange(type="struct")}}, "INVALID_SCHEMA", "struct"),
    "an unknown type": ({"alter_columns": {"n": ColumnChange(type="int128")}}, "INVALID_SCHEMA", "unknown type"),
    "a map's key": ({"alter_columns": {"m.key": ColumnChange(type="long")}}, "INVALID_SCHEMA", "key of a map"),
    "required": ({"alter_columns": {"n": ColumnChange(required=True)}}, "INVALID_SCHEMA", "cannot become required"),
    "an element's doc": ({"alter_columns": {"m.value": ColumnChange(doc="x")}}, "INVALID_SCHEMA", "no doc"),
    "a new required one": ({"add_columns": column("x", required=True)}, "INVALID_SCHEMA", "optional"),
    "a name that is there": ({"add_columns": column("n")}, "INVALID_SCHEMA", "already exists"),
    "a name but for case": ({"add_columns": column("N")}, "INVALID_SCHEMA", "only in case"),
    "a new name but for case": ({"rename_columns": {"n": "KIND"}}, "INVALID_SCHEMA", "only in case"),
    "a new name that is there": ({"rename_columns": {"n": "f"}}, "INVALID_SCHEMA", "multiple fields for name f"),
    "two new ones": ({"add_columns": {**column("x"), **column("X")}}, "INVALID_SCHEMA", "only in case"),
    "a reserved name": ({"add_columns": column("_FILE")}, "INVALID_SCHEMA", "reserved"),
    "no name": ({"rename_columns": {"n": ""}}, "INVALID_SCHEMA", "empty name"),
    "a new name with a dot": ({"rename_columns": {"n": "who.n"}}, "INVALID_SCHEMA", "dot"),
    "below a number": ({"add_columns": column("n.x")}, "INVALID_SCHEMA", "no struct"),
    "below a typo": ({"add_columns": column("whom.x")}, "INVALID_SCHEMA", "no such column"),
    "dropped and renamed": ({"drop_columns": ("n",), "rename_columns": {"n": "x"}}, "INVALID_SCHEMA", "deleted"),
    "a partition's name": ({"add_columns": column("at_day")}, "INVALID_SCHEMA", "at_day"),
    "a field that is there": (
        {"add_partition_fields": (PartitionField(source="kind", transform="identity"),)},
        "INVALID_PARTITION_SPEC", "kind",
    ),
    "a like transform": (
        {"add_partition_fields": (PartitionField(source="at", transform="hour"),)}, "INVALID_PARTITION_SPEC", "like",
    ),
    "a transform of another type": (
        {"add_partition_fields": (PartitionField(source="n", transform="day"),)}, "INVALID_PARTITION_SPEC", "apply",
    ),
    "an unknown source": (
        {"add_partition_fields": (PartitionField(source="x", transform="day"),)}, "INVALID_PARTITION_SPEC", "no column",
    ),
    "64 fields beside two": (
        {"add_partition_fields": tuple(PartitionField(source="id", transform=f"bucket[{n}]") for n in range(2, 66))},
        "INVALID_PARTITION_SPEC", "66 partition fields; at most 64",
    ),
    "an unknown field": ({"drop_partition_fields": ("id",)}, "INVALID_PARTITION_SPEC", "no such partition field"),
    "a column's name": ({"rename_partition_fields": {"at_day": "n"}}, "INVALID_PARTITION_SPEC", "n"),
    "another field's name": ({"rename_partition_fields": {"at_day": "KIND"}}, "INVALID_PARTITION_SPEC", "column"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_change_that_no_reader_could_follow_is_refused_and_nothing_changes(
    case: str, admin: IcebergAdmin, catalog: SqlCatalog, table: Table
) -> None:
    alter(admin, add_partition_fields=(PartitionField(source="at", transform="day"),))
    before = catalog.load_table("n.t").metadata_location
    change, code, words = REFUSED[case]
    with pytest.raises(InvalidRequest) as caught:
        alter(admin, **change)
    assert (caught.value.code, caught.value.status) == (code, 400)
    assert words in caught.value.message, caught.value.message
    assert catalog.load_table("n.t").metadata_location == before


def test_a_column_that_the_table_is_sorted_by_stays(admin: IcebergAdmin) -> None:
    columns = (Column(name="id", type="long"), Column(name="at", type="timestamp"))
    admin.create("n.s", TableDefinition(columns=columns, sort_order=(SortSpec(column="at"),)), if_not_exists=False)
    with pytest.raises(InvalidRequest, match="sorted by it"):
        alter(admin, "n.s", drop_columns=("at",))


def test_a_partition_field_is_replaced_in_one_request_and_an_old_one_comes_back_with_its_id(
    admin: IcebergAdmin, catalog: SqlCatalog, table: Table
) -> None:
    alter(admin, add_partition_fields=(PartitionField(source="at", transform="day"),))
    hour = PartitionField(source="at", transform="hour", name="hourly")
    alter(admin, drop_partition_fields=("at_day",), add_partition_fields=(hour,))
    assert [f.name for f in catalog.load_table("n.t").spec().fields] == ["kind", "hourly"]
    day = PartitionField(source="at", transform="day")
    alter(admin, drop_partition_fields=("hourly",), add_partition_fields=(day,))
    loaded = catalog.load_table("n.t")
    assert [(f.name, f.field_id) for f in loaded.spec().fields] == [("kind", 1000), ("at_day", 1001)]
    assert (loaded.metadata.default_spec_id, len(loaded.metadata.partition_specs)) == (1, 3)


def test_in_format_1_a_dropped_partition_field_stays_as_a_void_one(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    make_table(catalog, "n.v1", SCHEMA, SPEC, {}, 1)
    alter(admin, "n.v1", drop_partition_fields=("kind",))
    (field,) = catalog.load_table("n.v1").spec().fields
    assert (field.source_id, str(field.transform)) == (5, "void")
    with pytest.raises(InvalidRequest, match="no such partition field"):
        alter(admin, "n.v1", drop_partition_fields=("kind",))


class Interfering(SqlCatalog):
    """Somebody else commits right before each of the next commits of ours; or ours lands and is answered with a no."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.before: list[dict[str, Any]] = []
        self.denies = 0

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        if self.before:
            other = IcebergAdmin(SqlCatalog(self.name, **self.properties), defaults={})
            alter(other, **self.before.pop(0))
        answered = super().commit_table(table, requirements, updates)
        if self.denies:
            self.denies -= 1
            raise CommitFailedException("the client sent it twice, and this is the answer to the second")
        return answered


@pytest.fixture
def interfering(catalog: SqlCatalog, table: Table) -> Interfering:
    return Interfering("default", **catalog.properties)


def test_two_that_add_a_column_at_once_both_get_theirs(interfering: Interfering, catalog: SqlCatalog) -> None:
    interfering.before = [{"add_columns": column("theirs")}, {"drop_columns": ("f",)}]
    changed, found = alter(
        IcebergAdmin(interfering, defaults={}, sleep=lambda _: None), add_columns=column("ours"), drop_columns=()
    )
    assert changed
    assert [c.name for c in found.columns if c.field_id > 15 or c.name == "f"] == ["theirs", "ours"]
    ids = [field.field_id for field in catalog.load_table("n.t").schema().fields]
    assert len(ids) == len(set(ids))


def test_a_change_that_another_one_makes_impossible_meanwhile_is_refused(interfering: Interfering) -> None:
    interfering.before = [{"add_columns": column("Ours")}]
    with pytest.raises(InvalidRequest, match="only in case"):
        alter(IcebergAdmin(interfering, defaults={}, sleep=lambda _: None), add_columns=column("ours"))


def test_a_change_that_landed_and_was_answered_with_a_conflict_is_found(interfering: Interfering) -> None:
    interfering.denies = 1
    day = PartitionField(source="at", transform="day")
    changed, found = alter(
        IcebergAdmin(interfering, defaults={}, sleep=lambda _: None),
        add_columns=column("ours"),
        add_partition_fields=(day,),
    )
    assert changed
    assert [c.name for c in found.columns].count("ours") == 1
    assert len(found.partition_spec) == 2


def test_a_change_that_always_loses_is_a_conflict(interfering: Interfering) -> None:
    interfering.before = [{"add_columns": column(f"theirs{number}")} for number in range(9)]
    with pytest.raises(Conflict) as caught:
        alter(IcebergAdmin(interfering, defaults={}, sleep=lambda _: None), add_columns=column("ours"))
    assert (caught.value.code, caught.value.retryable) == ("COMMIT_CONFLICT", True)
