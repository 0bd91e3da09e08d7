"""Rows 10 to 12 and 23: tables that exist already, that cannot be made, and that do not exist."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.iceberg_tables import rows
from tests.system.faults.stack import EVERY_TABLE_OPERATION, Stack, request, schema

ID = schema({"id": "long!", "v": "string"})
OTHER = schema({"id": "string"})
Definition = dict[str, Any]


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ({"schema": ID}, ["default.t", "exists already"]),
        ({"schema": OTHER}, ["default.t", "exists already"]),
        ({"schema": OTHER, "if_not_exists": True}, ["default.t", "another schema"]),
        ({"schema": schema({"id": "long", "v": "string"}), "if_not_exists": True}, ["another schema"]),
        ({"schema": schema({"v": "string", "id": "long!"}), "if_not_exists": True}, ["another schema"]),
        (
            {"schema": ID, "partition_spec": [{"source": "id", "transform": "bucket[4]"}], "if_not_exists": True},
            ["another partition spec"],
        ),
    ],
)
def test_row_10_creating_a_table_that_exists_is_refused_and_the_old_one_untouched(
    shared: Stack, definition: Definition, words: list[str]
) -> None:
    uuid = shared.table("default.t").metadata.table_uuid
    with shared.untouched():
        error = shared.refused(
            409, "TABLE_EXISTS", [*words, "nothing was changed"], request("CREATE_TABLE", "t", **definition)
        )
    assert not error["retryable"]
    assert shared.table("default.t").metadata.table_uuid == uuid
    assert len(rows(shared.table("default.t"))) == 2


def test_row_10_with_if_not_exists_the_same_table_is_answered_as_it_is(shared: Stack) -> None:
    table = shared.table("default.t")
    with shared.untouched():
        answer = shared.ok("CREATE_TABLE", "t", schema=ID, if_not_exists=True, properties={"a": "b"})
    assert (answer["created"], answer["table_uuid"]) == (False, str(table.metadata.table_uuid))
    assert answer["location"] == table.location()


def test_row_10_of_several_creations_at_once_one_makes_the_table(stack: Stack) -> None:
    together = threading.Barrier(4, timeout=60)
    answers: list[tuple[int, Any]] = []

    def create(if_not_exists: bool) -> None:
        together.wait()
        body = request("CREATE_TABLE", "t", schema=ID, if_not_exists=if_not_exists)
        answers.append(stack.post(body))

    threads = [threading.Thread(target=create, args=(number > 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [answer for status, answer in answers if status == 200]
    assert [answer["created"] for answer in found].count(True) == 1
    assert len({answer["table_uuid"] for answer in found}) == 1
    assert len(found) >= 3
    assert [a["error"]["code"] for status, a in answers if status != 200] in ([], ["TABLE_EXISTS"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": {"type": "long"}, "ID": {"type": "long"}}, ["ID", "only in case"]),
        ({"a": {"type": "struct", "fields": {"x": {"type": "int"}, "X": {"type": "int"}}}}, ["a.X", "two fields"]),
        ({"_row_id": {"type": "long"}}, ["_row_id", "reserved"]),
        ({"_last_updated_sequence_number": {"type": "long"}}, ["reserved"]),
        ({"_file": {"type": "string"}}, ["_file", "reserved"]),
        ({"_pos": {"type": "long"}}, ["_pos", "reserved"]),
        ({}, ["no columns"]),
        ({"": {"type": "long"}}, ["empty name"]),
        ({"a": {"type": "money"}}, ["money", "known: boolean"]),
        ({"a": {"type": ""}}, ["known: boolean"]),
        ({"a": {"type": "variant"}}, ["variant", "format version 3"]),
        ({"a": {"type": "timestamp_ns"}}, ["timestamp_ns", "format version 3"]),
        ({"a": {"type": "decimal(39,2)"}}, ["decimal(39,2)", "1 to 38"]),
        ({"a": {"type": "decimal(5,6)"}}, ["decimal(5,6)", "scale"]),
        ({"a": {"type": "fixed[0]"}}, ["fixed[0]"]),
        ({"a": {"type": "struct"}}, ["struct", "`fields`"]),
        ({"a": {"type": "struct", "fields": {}}}, ["a"]),
        ({"a": {"type": "list"}}, ["list", "`element`"]),
        ({"a": {"type": "map", "key": {"type": "string"}}}, ["map", "`value`"]),
        ({"a": {"type": "long", "element": {"type": "int"}}}, ["long", "no `element`"]),
    ],
)
def test_row_11_a_schema_that_cannot_be_is_refused_and_nothing_created(
    shared: Stack, fields: Definition, words: list[str]
) -> None:
    with shared.untouched():
        body = request("CREATE_TABLE", "made", namespace="never", schema={"fields": fields})
        shared.refused(400, "INVALID_SCHEMA", words, body)
    assert not shared.built.catalog().namespace_exists("never")


def test_row_11_the_same_column_twice_never_reaches_the_schema(shared: Stack) -> None:
    body = (
        '{"operation": "CREATE_TABLE", "tenant_id": "default", "table": "made", '
        '"schema": {"fields": {"id": {"type": "long"}, "id": {"type": "string"}}}}'
    )
    with shared.untouched():
        shared.refused(400, "INVALID_REQUEST", ['"id" appears twice'], body)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ([{"source": "nope", "transform": "identity"}], ["nope", "columns are id, v"]),
        ([{"source": "id", "transform": "wat"}], ["wat", "known: identity"]),
        ([{"source": "id", "transform": ""}], ["known: identity"]),
        ([{"source": "id", "transform": "bucket[0]"}], ["bucket[0]", "from 1"]),
        ([{"source": "id", "transform": "bucket[-1]"}], ["bucket[-1]"]),
        ([{"source": "id", "transform": "bucket[99999999999]"}], ["bucket[99999999999]"]),
        ([{"source": "id", "transform": "truncate[0]"}], ["truncate[0]"]),
        ([{"source": "id", "transform": "month"}], ["month", "long"]),
        ([{"source": "v", "transform": "hour"}], ["hour", "string"]),
        ([{"source": "d", "transform": "bucket[4]"}], ["bucket", "double"]),
        ([{"source": "id", "transform": "identity"}] * 2, ["'id'", "twice"]),
        ([{"source": "id", "transform": "bucket[2]", "name": "v"}], ["v"]),
        ([{"source": "id", "transform": "identity", "name": ""}], ["empty name"]),
    ],
)
def test_row_12_a_partition_spec_that_cannot_be_is_refused_and_nothing_created(
    shared: Stack, spec: list[Definition], words: list[str]
) -> None:
    columns = schema({"id": "long", "v": "string"} | ({"d": "double"} if spec[0]["source"] == "d" else {}))
    with shared.untouched():
        body = request("CREATE_TABLE", "made", namespace="never", schema=columns, partition_spec=spec)
        shared.refused(400, "INVALID_PARTITION_SPEC", words, body)
    assert not shared.built.catalog().namespace_exists("never")


@pytest.mark.parametrize("operation", [*EVERY_TABLE_OPERATION, "LIST_TABLES"])
@pytest.mark.parametrize("place", [{"table": "nope"}, {"namespace": "nowhere"}, {"namespace": "a.b.c"}])
def test_row_23_an_unknown_table_or_namespace_is_not_found(
    shared: Stack, operation: str, place: dict[str, str]
) -> None:
    if operation == "LIST_TABLES":
        body = request(operation, namespace=place.get("namespace", "nope"))
    else:
        body = request(operation, **{"table": "t", **place, **EVERY_TABLE_OPERATION[operation]})
    with shared.untouched():
        code = "TABLE_NOT_FOUND" if "table" in place and operation != "LIST_TABLES" else "NAMESPACE_NOT_FOUND"
        error = shared.refused(404, code, ["check the namespace"], body)
    assert not error["retryable"]


def test_row_23_an_unknown_catalog_is_not_found_either(shared: Stack) -> None:
    with shared.untouched():
        error = shared.refused(404, "CATALOG_NOT_FOUND", ["'nope'"], request("QUERY", "t", catalog="nope"))
    assert "local" not in str(error)
