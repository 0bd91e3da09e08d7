"""Rows 6 to 9: other tenants, names that are paths, and places outside of what is the caller's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers import check_answer
from tests.support.iceberg_tables import local_path
from tests.support.table_model import model_rows
from tests.system.faults.stack import (
    EVERY_TABLE_OPERATION,
    Stack,
    Stored,
    data_files,
    request,
    schema,
    stack_of_tenants,
)

ACME, OTHER, NOBODY = ({"custom:tenant_id": name} for name in ("acme", "other", "nobody"))
OF_NAMESPACES = ("LIST_TABLES", "SWEEP")
"""Operations that name no table."""
OF_JOBS: Mapping[str, Mapping[str, object]] = {
    "JOB_STATUS": {"job_id": "j"},
    "JOB_CANCEL": {"job_id": "j"},
    "LIST_JOBS": {},
    "LIST_NAMESPACES": {},
    "FLEET_SCAN": {},
    "FLEET_PLAN": {},
    "FLEET_APPLY": {},
    "FLEET_STATUS": {},
    "FLEET_HISTORY": {},
}
"""Operations that name neither table nor namespace."""
ID = schema({"id": "long"})
LOCATIONS = (
    "location",
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """Two tenants, each with a table `t`; no test of this module may change what the other one has."""
    made = stack_of_tenants(tmp_path_factory.mktemp("tenants") / "lake", "acme", "other")
    for name, claims in (("acme", ACME), ("other", OTHER)):
        for operation, fields in (("CREATE_TABLE", {"schema": ID}), ("WRITE", {"records": [{"id": 1}, {"id": 2}]})):
            made.accepted(operation, request(operation, "t", tenant_id=name, **fields), claims=claims)
    return made


def warehouse(stack: Stack) -> str:
    return (stack.folder / "warehouse").as_uri()


def without_request_id(answer: dict[str, Any]) -> str:
    return json.dumps({**answer, "request_id": ""})


def test_the_namespaces_that_are_listed_are_the_tenants_own_as_it_names_them(tmp_path: Path) -> None:
    stack = stack_of_tenants(tmp_path / "lake", "acme", "acme_", "other")
    made = {"acme": ("sales", "b"), "acme_": ("of_another",), "other": ("sales", "c")}
    for name, namespaces in made.items():
        for namespace in namespaces:
            body = request("CREATE_TABLE", "t", tenant_id=name, namespace=namespace, schema=ID)
            stack.accepted("CREATE_TABLE", body, claims={"custom:tenant_id": name})
    for name, namespaces in made.items():
        body = {"operation": "LIST_NAMESPACES", "tenant_id": name}
        told = stack.accepted("LIST_NAMESPACES", body, claims={"custom:tenant_id": name})
        assert told["namespaces"] == sorted(namespaces)


@pytest.mark.parametrize("operation", [*EVERY_TABLE_OPERATION, "CREATE_TABLE", *OF_NAMESPACES, *OF_JOBS])
def test_row_06_an_unknown_tenant_and_a_foreign_one_get_the_same_answer(tenants: Stack, operation: str) -> None:
    fields = {"CREATE_TABLE": {"schema": ID}, **OF_JOBS}.get(operation, EVERY_TABLE_OPERATION.get(operation))
    named = {} if operation in (*OF_NAMESPACES, *OF_JOBS) else {"table": "t"}
    answers = []
    with tenants.untouched():
        for tenant, claims in (
            ("other", ACME),
            ("nobody", ACME),
            ("nobody", NOBODY),
            ("acme", None),
            ("acme", {}),
            ("acme", {"sub": "acme"}),
        ):
            status, answer = tenants.post(
                {"operation": operation, "tenant_id": tenant, **named, **(fields or {})}, claims=claims
            )
            assert (status, answer["error"]["code"]) == (403, "FORBIDDEN")
            answers.append(without_request_id(answer))
    assert len(set(answers)) == 1
    assert "tenant" in answers[0]
    assert not any(name in answers[0] for name in ("acme", "other", "nobody"))


def test_row_06_the_short_form_knows_no_other_way_in(tenants: Stack) -> None:
    with tenants.untouched():
        for body, claims in (
            ({"table": "t", "tenant_id": "other"}, ACME),
            ({"table": "t"}, NOBODY),
            ({"table": "t"}, None),
        ):
            tenants.refused(403, "FORBIDDEN", ["tenant"], body, path="/api/v1/compact", claims=claims)


@pytest.mark.parametrize("operation", EVERY_TABLE_OPERATION)
@pytest.mark.parametrize("table", ["t", "no_such_table"])
def test_row_07_another_tenants_table_is_refused_whether_it_exists_or_not(
    tenants: Stack, operation: str, table: str
) -> None:
    theirs = tenants.table("other__default.t")
    before = model_rows(theirs)
    with tenants.untouched():
        body = request(operation, table, tenant_id="other", **EVERY_TABLE_OPERATION[operation])
        error = tenants.refused(403, "FORBIDDEN", ["tenant"], body, claims=ACME)
    assert error["details"] == {}
    assert model_rows(theirs) == before


@pytest.mark.parametrize("namespace", ["other__default", "other", "../other__default", "acme__other__default"])
def test_row_07_no_namespace_leads_into_another_tenants(tenants: Stack, namespace: str) -> None:
    with tenants.untouched():
        status, answer = tenants.post(request("QUERY", "t", tenant_id="acme", namespace=namespace), claims=ACME)
    expected = (404, "NAMESPACE_NOT_FOUND") if namespace == "other" else (400, "INVALID_IDENTIFIER")
    assert (status, answer["error"]["code"]) == expected


@pytest.mark.parametrize("name", LOCATIONS)
@pytest.mark.parametrize(
    "place",
    [
        "/other__default/t",
        "/other__default/t/data/..",
        "//other__default//t/",
        "/acme__default/../other__default/t",
        "/acme__default/./../other__default",
        "/acme__other/t",
        "/acme__default_/t",
        "/ACME__default/t",
        "",
    ],
)
def test_row_07_another_tenants_location_is_refused_however_it_is_spelled(
    tenants: Stack, name: str, place: str
) -> None:
    for location in (f"{warehouse(tenants)}{place}", f"{local_path(warehouse(tenants))}{place}"):
        properties = {name: location}
        with tenants.untouched():
            body = request("CREATE_TABLE", "mine", tenant_id="acme", schema=ID, properties=properties)
            error = tenants.refused(403, "FORBIDDEN", ["own folder"], body, claims=ACME)
            alter = request("ALTER_TABLE", "t", tenant_id="acme", set_properties=properties)
            tenants.refused(403, "FORBIDDEN", ["own folder"], alter, claims=ACME)
        assert error["details"] == {"field": name}


def test_row_07_the_tenants_own_folder_is_accepted_and_used(tmp_path: Path) -> None:
    stack = stack_of_tenants(tmp_path / "lake", "acme", "other")
    own = f"{warehouse(stack)}/acme__default/elsewhere"
    properties = {"write.data.path": own}
    made = request("CREATE_TABLE", "mine", tenant_id="acme", schema=ID, properties=properties)
    stack.accepted("CREATE_TABLE", made, claims=ACME)
    stack.accepted("WRITE", request("WRITE", "mine", tenant_id="acme", records=[{"id": 1}]), claims=ACME)
    assert [path.suffix for path in local_path(own).rglob("*") if path.is_file()] == [".parquet"]


NAMES = ["..", "../t", "a/b", "a\\b", "/t", "a\0b", "a\nb", "a\u2028b", "\x7f", "x" * 129, "", ".", "a..b", "Ä" * 65]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["table", "namespace", "tenant_id"])
def test_row_08_a_name_that_is_a_path_or_no_text_is_refused_by_every_operation(
    tmp_path: Path, name: str, place: str
) -> None:
    stack = Stack(tmp_path / "lake")
    operations = {**EVERY_TABLE_OPERATION, "CREATE_TABLE": {"schema": ID}}
    if place != "table":
        operations |= {other: {} for other in OF_NAMESPACES}
    if place == "tenant_id":
        operations |= OF_JOBS
    with stack.no_catalog_call():
        for operation, fields in operations.items():
            named = {} if operation in (*OF_NAMESPACES, *OF_JOBS) else {"table": "t"}
            body = {"operation": operation, "tenant_id": "default", **named, **fields, place: name}
            error = stack.refused(400, "INVALID_IDENTIFIER", [place], body)
            assert error["details"] == {"field": place}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["T", "a b", "a__b", "_a", "-a", "ä", "a.b", "a:b", "a%2fb", "~", "*"])
def test_row_08_names_that_we_create_are_plain(tmp_path: Path, name: str) -> None:
    stack = Stack(tmp_path / "lake")
    with stack.no_catalog_call():
        stack.refused(400, "INVALID_IDENTIFIER", ["table"], request("CREATE_TABLE", name, schema=ID))
        if name != "a.b":
            body = request("CREATE_TABLE", "t", namespace=name, schema=ID)
            stack.refused(400, "INVALID_IDENTIFIER", ["namespace"], body)
    assert list(tmp_path.iterdir()) == []


def test_row_08_whatever_name_is_tried_no_object_lies_outside_of_the_tenants_prefix(tmp_path: Path) -> None:
    stack = stack_of_tenants(tmp_path / "lake", "acme", "other")
    for name in [*NAMES, "A", "a__b", "a.b", "ok-1", "x" * 128]:
        for fields in ({"table": name}, {"table": "t", "namespace": name}):
            body = {"operation": "CREATE_TABLE", "tenant_id": "acme", "schema": ID, **fields}
            status, answer = stack.post(body, claims=ACME)
            assert status == 200 or answer["error"]["code"] == "INVALID_IDENTIFIER", answer
    found = stack.stored()
    assert len(found.tables) == 3
    assert {Path(path).parts[:2] for path in found.files} == {
        ("warehouse", "acme__default"),
        ("warehouse", "acme__ok-1"),
    }
    assert {path.name for path in tmp_path.iterdir()} == {"lake", "lake.json"}


OUTSIDE = [
    "/etc/regelate",
    "file:///etc/regelate",
    "s3://elsewhere/t",
    "file://elsewhere/t",
    "{warehouse}/../t",
    "{warehouse}2/t",
    "{home}/t",
]
NOWHERE = ["t", ""]
"""Texts that name no place at all; of a tenant's they are FORBIDDEN (test_tenancy.py)."""


@pytest.mark.parametrize("name", LOCATIONS)
@pytest.mark.parametrize(
    ("place", "many"), [*((p, False) for p in (*OUTSIDE, *NOWHERE)), *((place, True) for place in OUTSIDE)]
)
def test_row_09_a_location_outside_of_the_warehouse_is_refused(
    shared: Stack, tenants: Stack, name: str, place: str, many: bool
) -> None:
    stack, claims, tenant = (tenants, ACME, "acme") if many else (shared, None, "default")
    location = place.format(warehouse=warehouse(stack), home=stack.folder)
    with stack.untouched():
        body = request("CREATE_TABLE", "outside", tenant_id=tenant, schema=ID, properties={name: location})
        error = stack.refused(400, "INVALID_LOCATION", [name, "inside the catalog's warehouse"], body, claims=claims)
        assert error["details"]["field"] == name
        if name != "location":
            alter = request("ALTER_TABLE", "t", tenant_id=tenant, set_properties={name: location})
            stack.refused(400, "INVALID_LOCATION", [name], alter, claims=claims)
    assert not (stack.folder / "t").exists()


def test_row_09_the_location_of_a_table_that_exists_cannot_be_changed(shared: Stack) -> None:
    inside = f"{warehouse(shared)}/default/elsewhere"
    with shared.untouched():
        body = request("ALTER_TABLE", "t", set_properties={"location": inside})
        shared.refused(400, "INVALID_OPTION", ["location", "cannot be changed"], body)


def test_row_09_a_location_inside_of_the_warehouse_is_where_the_files_go(stack: Stack) -> None:
    inside = f"{warehouse(stack)}/of-my-own/place"
    assert stack.create("t", {"id": "long"}, properties={"location": inside})["location"] == inside
    stack.ok("WRITE", "t", records=[{"id": 1}])
    assert {Path(path).parts[:3] for path in stack.stored().files} == {("warehouse", "of-my-own", "place")}
    assert len(data_files(stack.table("default.t"))) == 1


def test_no_operation_of_rows_6_to_9_is_missing_here() -> None:
    from regelate.entrypoints.actions import OPERATIONS

    assert set(OPERATIONS) == {*EVERY_TABLE_OPERATION, "CREATE_TABLE", *OF_NAMESPACES, *OF_JOBS, "HEALTH_CHECK"}


def test_health_tells_no_tenant_and_needs_none(tenants: Stack) -> None:
    status, answer = tenants.post({"operation": "HEALTH_CHECK"})
    check_answer("HEALTH_CHECK", answer)
    assert status == 200
    assert not any(name in json.dumps(answer) for name in ("acme", "other"))


def test_an_empty_lake_is_what_a_refusal_leaves(tmp_path: Path) -> None:
    """The check that rows 1 to 9 rest on can fail."""
    stack = Stack(tmp_path)
    assert stack.stored() == Stored(tables={}, files={})
    with pytest.raises(AssertionError), stack.no_catalog_call():
        stack.create("t", {"id": "long"})
    with pytest.raises(AssertionError), stack.untouched():
        stack.ok("WRITE", "t", records=[{"id": 1}])
