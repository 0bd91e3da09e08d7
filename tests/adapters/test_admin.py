"""Tables as names in a real catalog: created once, altered, described, dropped; and the faults of catalogs."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import exceptions as native
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from sqlalchemy.exc import OperationalError

from regelate.adapters.iceberg.admin import WRITE_PROPERTIES, IcebergAdmin
from regelate.adapters.iceberg.catalogs import open_table
from regelate.adapters.iceberg.pyiceberg_errors import catalog_faults, storage_faults, translate
from regelate.adapters.iceberg.tables.properties import is_inside
from regelate.core.table.schema import Column, PartitionField, SortSpec, TableDefinition
from regelate.core.table.table import RefKind
from regelate.errors import (
    CommitStateUnknown,
    Conflict,
    DataUnavailable,
    InvalidRequest,
    NotAllowed,
    NotFound,
    RegelateError,
    ResourceExhausted,
    Unavailable,
    Unsupported,
)
from tests.support.deletes_writer import truncate_file
from tests.support.iceberg_tables import append, live_data_paths, local_path, make_catalog, rows, stored_files

COLUMNS = (
    Column(name="id", type="long", required=True),
    Column(name="at", type="timestamp"),
    Column(name="note", type="string", doc="free text"),
)
DEFINITION = TableDefinition(
    columns=COLUMNS,
    partition_spec=(PartitionField(source="at", transform="months"),),
    sort_order=(SortSpec(column="id", direction="desc", nulls="nulls-last"),),
)
DEFAULTS = {"write.target-file-size-bytes": "134217728"}


def defined(**properties: str) -> TableDefinition:
    return TableDefinition(columns=COLUMNS, properties={k.replace("__", "."): v for k, v in properties.items()})


def with_properties(properties: Mapping[str, str]) -> TableDefinition:
    return TableDefinition(columns=COLUMNS, properties=properties)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return make_catalog(tmp_path)


@pytest.fixture
def admin(catalog: SqlCatalog) -> IcebergAdmin:
    return IcebergAdmin(catalog, defaults=DEFAULTS)


def warehouse(catalog: SqlCatalog) -> str:
    return str(catalog.properties["warehouse"])


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_a_created_table_has_its_columns_spec_order_and_write_properties(
    admin: IcebergAdmin, catalog: SqlCatalog
) -> None:
    created, made = admin.create("sales.orders", DEFINITION, if_not_exists=False)
    assert created
    assert made == admin.describe("sales.orders")
    assert [(c.name, c.type, c.required, c.doc) for c in made.columns] == [
        ("id", "long", True, None),
        ("at", "timestamp", False, None),
        ("note", "string", False, "free text"),
    ]
    assert made.partition_spec == ({"source": "at", "transform": "month", "name": "at_month"},)
    assert made.sort_order == ({"column": "id", "transform": "identity", "direction": "desc", "nulls": "nulls-last"},)
    assert made.properties == {**WRITE_PROPERTIES, **DEFAULTS}
    assert (made.format_version, made.snapshot_id, made.snapshot_count, made.refs) == (2, None, 0, ())
    assert made.location == f"{warehouse(catalog)}/sales/orders"
    assert made.table_uuid == str(catalog.load_table("sales.orders").metadata.table_uuid)


def test_a_request_wins_over_the_defaults(admin: IcebergAdmin) -> None:
    wanted = {"write.target-file-size-bytes": "1048576", "write.parquet.compression-codec": "snappy", "mine": "x"}
    _, made = admin.create("n.t", with_properties({**wanted, "format-version": "1"}), if_not_exists=False)
    assert made.properties.items() >= wanted.items()
    assert made.format_version == 1
    assert "format-version" not in made.properties


def test_a_nested_namespace_is_made_where_it_is_missing(admin: IcebergAdmin) -> None:
    admin.create("a.b.c.t", DEFINITION, if_not_exists=False)
    admin.create("a.b.c.s", DEFINITION, if_not_exists=False)
    assert admin.list_tables("a.b.c") == ("s", "t")


def test_a_table_is_created_once(admin: IcebergAdmin, catalog: SqlCatalog, tmp_path: Path) -> None:
    _, made = admin.create("n.t", defined(), if_not_exists=True)
    append(catalog.load_table("n.t"), [(1, None, "x")])
    before = files_below(tmp_path / "warehouse")
    with pytest.raises(Conflict) as caught:
        admin.create("n.t", defined(), if_not_exists=False)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("TABLE_EXISTS", 409, False)
    again, found = admin.create("n.t", defined(), if_not_exists=True)
    assert (again, found.table_uuid, found.snapshot_count) == (False, made.table_uuid, 1)
    assert files_below(tmp_path / "warehouse") == before


@pytest.mark.parametrize(
    "other",
    [
        TableDefinition(columns=COLUMNS[:2], partition_spec=DEFINITION.partition_spec),
        TableDefinition(
            columns=(*COLUMNS[:2], Column(name="note", type="int")), partition_spec=DEFINITION.partition_spec
        ),
        TableDefinition(
            columns=(Column(name="id", type="long"), *COLUMNS[1:]), partition_spec=DEFINITION.partition_spec
        ),
        TableDefinition(columns=COLUMNS),
        TableDefinition(columns=COLUMNS, partition_spec=(PartitionField(source="at", transform="day"),)),
    ],
)
def test_an_existing_table_of_another_shape_is_a_conflict_and_stays_as_it_is(
    admin: IcebergAdmin, other: TableDefinition
) -> None:
    _, made = admin.create("n.t", DEFINITION, if_not_exists=False)
    with pytest.raises(Conflict, match="TABLE_EXISTS"):
        admin.create("n.t", other, if_not_exists=True)
    assert admin.describe("n.t") == made


def test_friendly_type_names_ask_for_the_same_table(admin: IcebergAdmin) -> None:
    admin.create("n.t", TableDefinition(columns=(Column(name="a", type="bigint"),)), if_not_exists=False)
    created, _ = admin.create("n.t", TableDefinition(columns=(Column(name="a", type="LONG"),)), if_not_exists=True)
    assert not created


@pytest.mark.parametrize("if_not_exists", [True, False])
def test_of_many_creations_at_once_exactly_one_makes_the_table(tmp_path: Path, if_not_exists: bool) -> None:
    make_catalog(tmp_path)
    start = threading.Barrier(4)

    def create(_: int) -> str:
        admin = IcebergAdmin(make_catalog(tmp_path), defaults=DEFAULTS)
        start.wait()
        try:
            return str(admin.create("n.t", DEFINITION, if_not_exists=if_not_exists)[0])
        except RegelateError as error:
            return error.code

    with ThreadPoolExecutor(4) as pool:
        found = sorted(pool.map(create, range(4)))
    assert found == sorted(["True", *(["False"] if if_not_exists else ["TABLE_EXISTS"]) * 3])


class RacedCatalog(SqlCatalog):
    """A catalog in which another client is always a moment faster."""

    other: SqlCatalog
    wanted: TableDefinition = DEFINITION
    lost_commits = 0

    def create_table(self, *args: Any, **kwargs: Any) -> Table:
        IcebergAdmin(self.other, defaults={}).create("n.t", self.wanted, if_not_exists=False)
        return super().create_table(*args, **kwargs)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        if self.lost_commits > 0:
            self.lost_commits -= 1
            raise native.CommitFailedException("Table has been updated by another process")
        return super().commit_table(table, requirements, updates)


def raced(folder: Path) -> RacedCatalog:
    other = make_catalog(folder)
    catalog = RacedCatalog("default", **other.properties)
    catalog.other = other
    return catalog


def test_a_creation_that_loses_a_race_finds_the_winners_table(tmp_path: Path) -> None:
    catalog = raced(tmp_path)
    admin = IcebergAdmin(catalog, defaults={})
    created, found = admin.create("n.t", DEFINITION, if_not_exists=True)
    assert (created, found) == (False, IcebergAdmin(catalog.other, defaults={}).describe("n.t"))


def test_a_creation_that_loses_a_race_to_another_schema_is_a_conflict(tmp_path: Path) -> None:
    catalog = raced(tmp_path)
    catalog.wanted = defined()
    with pytest.raises(Conflict, match="TABLE_EXISTS"):
        IcebergAdmin(catalog, defaults={}).create("n.t", DEFINITION, if_not_exists=True)


@pytest.mark.parametrize("name", ["location", "write.data.path", "write.metadata.path", "write.object-storage.path"])
@pytest.mark.parametrize(
    "where",
    [
        "/etc",
        "{up}",
        "{warehouse}",
        "{warehouse}-evil/x",
        "{warehouse}/../x",
        "{warehouse}/a/%2e%2e/x",
        "s3://bucket/x",
        "",
    ],
)
def test_a_place_outside_the_warehouse_is_refused_and_nothing_is_made(
    name: str, where: str, admin: IcebergAdmin, catalog: SqlCatalog, tmp_path: Path
) -> None:
    place = where.format(warehouse=warehouse(catalog), up=tmp_path.as_uri())
    with pytest.raises(InvalidRequest) as caught:
        admin.create("n.t", with_properties({name: place}), if_not_exists=False)
    assert (caught.value.code, caught.value.status, caught.value.details["field"]) == ("INVALID_LOCATION", 400, name)
    assert files_below(tmp_path / "warehouse") == set()
    assert not catalog.namespace_exists("n")


def test_a_place_inside_the_warehouse_is_where_the_table_lives(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    place = f"{warehouse(catalog)}/elsewhere/t"
    _, made = admin.create(
        "n.t", with_properties({"location": place, "write.data.path": f"{place}/d"}), if_not_exists=False
    )
    assert made.location == place
    assert "location" not in made.properties
    append(catalog.load_table("n.t"), [(1, None, "x")])
    assert all(path.startswith(f"{place}/d/") for path in live_data_paths(catalog.load_table("n.t")))


@pytest.mark.parametrize(
    ("inner", "outer", "inside"),
    [
        ("s3://b/wh/t", "s3://b/wh", True),
        ("s3a://b/wh/t", "s3://b/wh/", True),
        ("S3N://b//wh//t/", "s3://b/wh", True),
        ("s3://B/wh/t", "s3://b/wh", False),
        ("s3://b/whatever", "s3://b/wh", False),
        ("s3://b/wh", "s3://b/wh", False),
        ("gs://b/wh/t", "s3://b/wh", False),
        ("s3://b2/wh/t", "s3://b/wh", False),
        ("s3://b/wh/../t", "s3://b/wh", False),
        ("s3://b/wh/./t", "s3://b/wh", False),
        ("s3://b/wh/%2e%2e/t", "s3://b/wh", False),
        ("s3://b/wh/t?x", "s3://b/wh", False),
        ("s3://b/wh/t#x", "s3://b/wh", False),
        ("s3://b/wh/t\n", "s3://b/wh", False),
        ("s3://b/wh\\t", "s3://b/wh", False),
        ("file:///wh/t", "/wh", True),
        ("/wh/t", "file:///wh", True),
        ("file:/wh/t", "file:///wh", True),
        ("file://localhost/wh/t", "file:///wh", True),
        ("file://host/wh/t", "file:///wh", False),
        ("//wh/t", "/wh", True),
        ("wh/t", "/wh", False),
        ("", "/wh", False),
        ("/wh/t", "", False),
        ("wh", "wh", False),
    ],
)
def test_places_are_compared_after_one_spelling_is_made_of_each(inner: str, outer: str, inside: bool) -> None:
    assert is_inside(inner, outer) is inside


@given(st.text(alphabet="ab./%\\:sS3", max_size=12))
def test_no_spelling_of_a_path_leads_out_of_the_folder(text: str) -> None:
    if is_inside(f"/wh/{text}", "/wh"):
        assert Path(f"/wh/{text}").resolve().is_relative_to("/wh")
        assert Path(f"/wh/{text}").resolve() != Path("/wh")


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"format-version": "0"}, "INVALID_OPTION"),
        ({"format-version": "two"}, "INVALID_OPTION"),
        ({"uuid": "x"}, "INVALID_OPTION"),
        ({"current-snapshot-id": "1"}, "INVALID_OPTION"),
        ({"py-io-impl": "os.system"}, "INVALID_OPTION"),
        ({"write.py-location-provider.impl": "a.b"}, "INVALID_OPTION"),
        ({"s3.endpoint": "http://evil"}, "INVALID_OPTION"),
        ({"client.region": "x"}, "INVALID_OPTION"),
        ({"": "x"}, "INVALID_OPTION"),
        ({"a\nb": "x"}, "INVALID_OPTION"),
        ({"write.target-file-size-bytes": "0"}, "INVALID_OPTION"),
        ({"write.target-file-size-bytes": "128MB"}, "INVALID_OPTION"),
        ({"write.target-file-size-bytes": "9" * 30}, "INVALID_OPTION"),
        ({"write.parquet.compression-codec": "lzo"}, "INVALID_OPTION"),
    ],
)
def test_a_property_that_is_not_the_callers_to_give_is_refused_by_name(
    properties: dict[str, str], code: str, admin: IcebergAdmin, catalog: SqlCatalog
) -> None:
    (name,) = properties
    with pytest.raises(InvalidRequest) as caught:
        admin.create("n.t", with_properties(properties), if_not_exists=False)
    assert (caught.value.code, caught.value.details["field"]) == (code, name)
    assert not catalog.namespace_exists("n")


def buckets(number: int) -> tuple[PartitionField, ...]:
    return tuple(PartitionField(source="id", transform=f"bucket[{n + 1}]", name=f"b{n}") for n in range(number))


def test_format_version_3_is_left_to_other_engines(admin: IcebergAdmin) -> None:
    with pytest.raises(Unsupported, match="UNSUPPORTED_TABLE"):
        admin.create("n.t", with_properties({"format-version": "3"}), if_not_exists=False)


@pytest.mark.parametrize(
    ("definition", "code"),
    [
        (TableDefinition(columns=(*COLUMNS, Column(name="ID", type="int"))), "INVALID_SCHEMA"),
        (
            TableDefinition(columns=COLUMNS, partition_spec=(PartitionField(source="id", transform="bucket(0)"),)),
            "INVALID_PARTITION_SPEC",
        ),
        (TableDefinition(columns=COLUMNS, sort_order=(SortSpec(column="none"),)), "INVALID_FIELD"),
        (TableDefinition(columns=COLUMNS, partition_spec=buckets(65)), "INVALID_PARTITION_SPEC.*65.*at most 64"),
        (TableDefinition(columns=COLUMNS, sort_order=(SortSpec(column="id"),) * 65), "INVALID_FIELD.*65.*at most 64"),
    ],
)
def test_a_bad_definition_makes_neither_table_nor_namespace(
    definition: TableDefinition, code: str, admin: IcebergAdmin, catalog: SqlCatalog, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match=code):
        admin.create("n.t", definition, if_not_exists=True)
    assert not catalog.namespace_exists("n")
    assert files_below(tmp_path / "warehouse") == set()


def test_altering_sets_and_unsets_and_answers_with_all(admin: IcebergAdmin) -> None:
    admin.create("n.t", defined(a="1", b="2"), if_not_exists=False)
    changed, found = admin.alter("n.t", set_properties={"c": "3", "a": "9"}, unset_properties=["b", "unknown"])
    assert changed
    assert {k: v for k, v in found.properties.items() if k in "abc"} == {"a": "9", "c": "3"}
    assert admin.describe("n.t") == found


def test_altering_nothing_commits_nothing(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    admin.create("n.t", defined(a="1"), if_not_exists=False)
    before = catalog.load_table("n.t").metadata_location
    changed, found = admin.alter("n.t", set_properties={"a": "1"}, unset_properties=["none"])
    assert (changed, found.properties["a"]) == (False, "1")
    assert catalog.load_table("n.t").metadata_location == before


@pytest.mark.parametrize("name", ["location", "write.data.path"])
@pytest.mark.parametrize("below", ["x" * 100_000, "x" * 256, "\u00e4" * 128, "x/" * 300])
def test_a_place_too_long_for_a_store_is_refused_before_any_is_asked(
    name: str, below: str, admin: IcebergAdmin, catalog: SqlCatalog, tmp_path: Path
) -> None:
    place = f"{warehouse(catalog)}/n/{below}"
    with pytest.raises(InvalidRequest, match=r"INVALID_LOCATION.*512 bytes, and 255 between two slashes"):
        admin.create("n.t", with_properties({name: place}), if_not_exists=False)
    assert files_below(tmp_path / "warehouse") == set()
    assert not catalog.namespace_exists("n")


def test_a_folder_as_long_as_a_file_system_takes_is_a_place(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    place = f"{warehouse(catalog)}/{'x' * 255}"
    assert admin.create("n.t", with_properties({"location": place}), if_not_exists=False)[1].location == place


@pytest.mark.parametrize(
    ("to_set", "to_unset", "code"),
    [
        ({"format-version": "2"}, [], "INVALID_OPTION"),
        ({"location": "{warehouse}/x"}, [], "INVALID_OPTION"),
        ({}, ["location"], "INVALID_OPTION"),
        ({}, ["uuid"], "INVALID_OPTION"),
        ({"s3.access-key-id": "x"}, [], "INVALID_OPTION"),
        ({"write.data.path": "/etc"}, [], "INVALID_LOCATION"),
        ({"write.data.path": "{warehouse}/" + "x" * 256}, [], "INVALID_LOCATION"),
        ({"a": "1"}, ["a"], "INVALID_FIELD"),
    ],
)
def test_a_change_that_is_not_the_callers_to_make_is_refused_and_nothing_changes(
    to_set: dict[str, str], to_unset: list[str], code: str, admin: IcebergAdmin, catalog: SqlCatalog
) -> None:
    _, made = admin.create("n.t", defined(a="0"), if_not_exists=False)
    changes = {name: value.format(warehouse=warehouse(catalog)) for name, value in to_set.items()}
    with pytest.raises(InvalidRequest, match=code):
        admin.alter("n.t", set_properties=changes, unset_properties=to_unset)
    assert admin.describe("n.t") == made


def test_altering_tries_again_after_a_lost_race_and_keeps_the_others_change(tmp_path: Path) -> None:
    catalog = raced(tmp_path)
    others = IcebergAdmin(catalog.other, defaults={})
    others.create("n.t", defined(), if_not_exists=False)
    waits: list[float] = []

    def meanwhile(seconds: float) -> None:
        waits.append(seconds)
        others.alter("n.t", set_properties={"theirs": str(len(waits))}, unset_properties=[])

    catalog.lost_commits = 2
    _, table = IcebergAdmin(catalog, defaults={}, sleep=meanwhile).alter(
        "n.t", set_properties={"ours": "1"}, unset_properties=[]
    )
    found = table.properties
    assert (found["ours"], found["theirs"], len(waits)) == ("1", "2", 2)
    assert 0 < waits[0] < 0.2 < 0.5 > waits[1] > waits[0] / 3


def test_altering_gives_up_after_five_lost_races(tmp_path: Path) -> None:
    catalog = raced(tmp_path)
    IcebergAdmin(catalog.other, defaults={}).create("n.t", defined(), if_not_exists=False)
    catalog.lost_commits = 99
    with pytest.raises(Conflict) as caught:
        IcebergAdmin(catalog, defaults={}, sleep=lambda _: None).alter(
            "n.t", set_properties={"ours": "1"}, unset_properties=[]
        )
    assert (caught.value.code, caught.value.retryable, catalog.lost_commits) == ("COMMIT_CONFLICT", True, 94)


def test_altering_prunes_metadata_files_as_the_table_says(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    admin.create("n.t", with_properties({"write.metadata.previous-versions-max": "2"}), if_not_exists=False)
    for number in range(6):
        admin.alter("n.t", set_properties={"a": str(number)}, unset_properties=[])
    assert len([f for f in stored_files(catalog.load_table("n.t")) if f.endswith(".metadata.json")]) == 3


def test_a_described_table_shows_snapshots_and_refs(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    admin.create("n.t", defined(), if_not_exists=False)
    table = catalog.load_table("n.t")
    append(table, [(1, None, "x")])
    append(table, [(2, None, "x")])
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_tag(first, "v1").commit()
    found = admin.describe("n.t")
    assert (found.snapshot_count, found.snapshot_id) == (2, table.metadata.current_snapshot_id)
    assert {(r.name, r.kind, r.snapshot_id) for r in found.refs} == {
        ("main", RefKind.BRANCH, found.snapshot_id),
        ("v1", RefKind.TAG, first),
    }


@pytest.mark.parametrize("ident", ["n.missing", "nowhere.t"])
def test_an_unknown_table_or_namespace_is_not_found(ident: str, admin: IcebergAdmin) -> None:
    admin.create("n.t", defined(), if_not_exists=False)
    for call in (
        lambda: admin.describe(ident),
        lambda: admin.alter(ident, set_properties={"a": "1"}, unset_properties=[]),
        lambda: admin.drop(ident, purge=False),
        lambda: admin.drop(ident, purge=True),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        code = "TABLE_NOT_FOUND" if ident == "n.missing" else "NAMESPACE_NOT_FOUND"
        assert (caught.value.code, caught.value.status) == (code, 404)
    with pytest.raises(NotFound, match="NAMESPACE_NOT_FOUND"):
        admin.list_tables("nowhere")


def test_who_may_not_ask_for_a_namespace_is_told_of_the_table(
    admin: IcebergAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> bool:
        raise native.ForbiddenError("no")

    monkeypatch.setattr(admin._catalog, "namespace_exists", refused)
    with pytest.raises(NotFound, match="TABLE_NOT_FOUND"):
        admin.describe("nowhere.t")


def test_a_namespace_lists_its_own_tables_only(admin: IcebergAdmin) -> None:
    for ident in ("n.b", "n.a", "n2.c", "n.inner.d"):
        admin.create(ident, defined(), if_not_exists=False)
    assert admin.list_tables("n") == ("a", "b")
    assert admin.list_tables("n.inner") == ("d",)


def test_a_dropped_table_keeps_its_files(admin: IcebergAdmin, catalog: SqlCatalog, tmp_path: Path) -> None:
    admin.create("n.t", defined(), if_not_exists=False)
    append(catalog.load_table("n.t"), [(1, None, "x")])
    before = files_below(tmp_path / "warehouse")
    admin.drop("n.t", purge=False)
    assert admin.list_tables("n") == ()
    assert files_below(tmp_path / "warehouse") == before


def history(catalog: SqlCatalog) -> Table:
    """A table with a rewritten file, an old snapshot, a tag and several metadata files."""
    table = catalog.load_table("n.t")
    append(table, [(1, None, "x"), (2, None, "y")])
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "v1").commit()
    append(table, [(3, None, "x")])
    table.delete("id = 1")
    return table


def test_purging_deletes_every_file_of_the_table_and_of_no_other(
    admin: IcebergAdmin, catalog: SqlCatalog, tmp_path: Path
) -> None:
    for ident in ("n.t", "n.other"):
        admin.create(ident, defined(), if_not_exists=False)
    append(catalog.load_table("n.other"), [(7, None, "x")])
    others = files_below(tmp_path / "warehouse" / "n" / "other")
    history(catalog)
    assert len(files_below(tmp_path / "warehouse" / "n" / "t")) > 10
    admin.drop("n.t", purge=True)
    assert files_below(tmp_path / "warehouse") == others
    assert rows(catalog.load_table("n.other")) == [(7, None, "x")]


def test_purging_leaves_files_that_were_added_from_elsewhere(
    admin: IcebergAdmin, catalog: SqlCatalog, tmp_path: Path
) -> None:
    for ident in ("n.source", "n.t"):
        admin.create(ident, defined(), if_not_exists=False)
    source = catalog.load_table("n.source")
    append(source, [(1, None, "x")])
    catalog.load_table("n.t").add_files(live_data_paths(source))
    admin.drop("n.t", purge=True)
    assert rows(catalog.load_table("n.source")) == [(1, None, "x")]


@pytest.mark.parametrize("value", ["false", "False"])
def test_purging_is_refused_where_files_may_be_shared(
    value: str, admin: IcebergAdmin, catalog: SqlCatalog, tmp_path: Path
) -> None:
    admin.create("n.t", with_properties({"gc.enabled": value}), if_not_exists=False)
    append(catalog.load_table("n.t"), [(1, None, "x")])
    before = files_below(tmp_path / "warehouse")
    with pytest.raises(NotAllowed) as caught:
        admin.drop("n.t", purge=True)
    assert (caught.value.code, caught.value.status) == ("GC_DISABLED", 403)
    assert files_below(tmp_path / "warehouse") == before
    assert admin.list_tables("n") == ("t",)
    admin.drop("n.t", purge=False)
    assert admin.list_tables("n") == ()


def test_purging_drops_nothing_when_the_metadata_cannot_be_read(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    admin.create("n.t", defined(), if_not_exists=False)
    table = history(catalog)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    truncate_file(snapshot.manifest_list, keep_bytes=100)
    before = stored_files(table)
    with pytest.raises(DataUnavailable, match="METADATA_CORRUPT"):
        admin.drop("n.t", purge=True)
    assert stored_files(table) == before
    assert admin.list_tables("n") == ("t",)


def test_a_manifest_that_cannot_be_read_keeps_its_files_and_nothing_else(
    admin: IcebergAdmin, catalog: SqlCatalog
) -> None:
    admin.create("n.t", defined(), if_not_exists=False)
    table = catalog.load_table("n.t")
    (lost,) = append(table, [(1, None, "x")])
    snapshot = table.current_snapshot()
    assert snapshot is not None
    truncate_file(snapshot.manifests(table.io)[0].manifest_path, keep_bytes=100)
    admin.drop("n.t", purge=True)
    assert stored_files(table) == {str(local_path(lost).relative_to(local_path(table.location())))}


def test_metadata_that_is_gone_or_cut_is_a_fault_of_the_data(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    admin.create("n.t", defined(), if_not_exists=False)
    location = local_path(catalog.load_table("n.t").metadata_location)
    whole = location.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"{}", b"\xff\xfe", None):
        if damaged is None:
            location.unlink()
        else:
            location.write_bytes(damaged)
        with pytest.raises(DataUnavailable) as caught:
            admin.describe("n.t")
        assert (caught.value.code, caught.value.status) == ("METADATA_CORRUPT", 424)


def test_a_catalog_is_reachable_or_not(admin: IcebergAdmin, tmp_path: Path) -> None:
    assert admin.reachable()
    catalog = make_catalog(tmp_path / "gone")
    (tmp_path / "gone" / "catalog.db").write_bytes(b"no database")
    lost = IcebergAdmin(catalog, defaults={})
    assert not lost.reachable()
    with pytest.raises(Unavailable) as caught:
        lost.describe("n.t")
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("CATALOG_UNAVAILABLE", 503, True)


@pytest.mark.parametrize(
    ("error", "kind", "code", "status"),
    [
        (native.NoSuchTableError("n.t"), NotFound, "TABLE_NOT_FOUND", 404),
        (native.NoSuchIcebergTableError("n.t"), NotFound, "TABLE_NOT_FOUND", 404),
        (native.NoSuchNamespaceError("n"), NotFound, "NAMESPACE_NOT_FOUND", 404),
        (native.TableAlreadyExistsError("n.t"), Conflict, "TABLE_EXISTS", 409),
        (native.CommitFailedException("lost"), Conflict, "COMMIT_CONFLICT", 409),
        (native.CommitStateUnknownException("?"), CommitStateUnknown, "COMMIT_STATE_UNKNOWN", 503),
        (native.UnauthorizedError("no"), Unavailable, "CATALOG_AUTH", 502),
        (native.ForbiddenError("no"), Unavailable, "CATALOG_AUTH", 502),
        (native.OAuthError("no"), Unavailable, "CATALOG_AUTH", 502),
        (native.BadRequestError("bad"), InvalidRequest, "CATALOG_REFUSED", 400),
        (native.ServiceUnavailableError("down"), Unavailable, "CATALOG_UNAVAILABLE", 503),
        (native.ServerError("500"), Unavailable, "CATALOG_UNAVAILABLE", 503),
        (native.TooManyRequestsError("429"), Unavailable, "CATALOG_UNAVAILABLE", 503),
        (requests.ConnectionError("reset"), Unavailable, "CATALOG_UNAVAILABLE", 503),
        (requests.Timeout("slow"), Unavailable, "CATALOG_UNAVAILABLE", 503),
        (sqlite3.OperationalError("database is locked"), Unavailable, "CATALOG_UNAVAILABLE", 503),
        (FileNotFoundError("/x/metadata.json"), DataUnavailable, "METADATA_CORRUPT", 424),
        (native.ValidationError("no schema"), DataUnavailable, "METADATA_CORRUPT", 424),
        (OSError(errno.ENOSPC, "No space left on device"), ResourceExhausted, "LOCAL_STORAGE_FULL", 507),
        (PermissionError("denied"), Unavailable, "STORAGE_AUTH", 502),
        (OSError("AWS Error ACCESS_DENIED during PutObject"), Unavailable, "STORAGE_AUTH", 502),
        (OSError("AWS Error SLOW_DOWN during PutObject"), Unavailable, "STORAGE_UNAVAILABLE", 503),
    ],
)
def test_what_a_catalog_raises_has_its_code(
    error: Exception, kind: type[RegelateError], code: str, status: int
) -> None:
    found = translate(error)
    assert type(found) is kind
    assert (found.code, found.status) == (code, status)
    with pytest.raises(kind) as caught, catalog_faults():
        raise error
    assert caught.value.__cause__ is error


def test_an_error_of_ours_and_one_of_nobody_pass_unchanged() -> None:
    ours, foreign = Conflict("X", "x"), KeyError("x")
    assert translate(ours) is ours
    assert translate(foreign) is None
    for error in (ours, foreign):
        with pytest.raises(type(error)) as caught, catalog_faults():
            raise error
        assert caught.value is error


def test_a_missing_folder_of_a_write_is_a_fault_of_the_storage() -> None:
    with pytest.raises(Unavailable, match="STORAGE_UNAVAILABLE"), storage_faults():
        raise FileNotFoundError("data/")


def test_no_secret_and_no_statement_reaches_the_text() -> None:
    wrapped = OperationalError("SELECT secret FROM t", {"p": "hidden"}, sqlite3.OperationalError("unable to open"))
    found = translate(wrapped)
    assert found is not None
    assert "secret" not in found.message
    assert "hidden" not in found.message
    texts = ["https://user:hunter2@catalog/v1 failed", "GET /v1?token=hunter2&x=1", "password=hunter2 is wrong"]
    for text in texts:
        found = translate(native.ServerError(text))
        assert found is not None
        assert "hunter2" not in found.message
    found = translate(native.ServerError("x" * 10_000 + "\n\nline"))
    assert found is not None
    assert len(found.message) < 400


def test_a_table_opened_by_ident_is_the_catalogs(admin: IcebergAdmin, catalog: SqlCatalog) -> None:
    admin.create("a.b.t", defined(), if_not_exists=False)
    assert open_table(catalog, "a.b.t").name() == ("a", "b", "t")
