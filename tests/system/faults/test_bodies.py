"""Rows 1 to 5: bodies that are no request are refused before anything is opened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from regelate.settings.models import LimitSettings
from tests.system.faults.stack import Stack, request

LIMITS = LimitSettings()
QUERY = json.dumps(request("QUERY", "t"))
WRITE = '{"operation": "WRITE", "tenant_id": "default", "table": "t", "records": [%s]}'
COMPACT = '{"operation": "COMPACT", "tenant_id": "default", "table": "t", %s}'


@pytest.mark.parametrize(
    ("body", "offset", "word"),
    [
        ("", 0, "Expecting value"),
        ("operation=QUERY", 0, "Expecting value"),
        (QUERY[:-1], len(QUERY) - 1, "byte"),
        (QUERY[: len(QUERY) // 2], None, "byte"),
        (QUERY + "}", len(QUERY), "Extra data"),
        (QUERY.replace('"', "'"), 1, "byte 1"),
        ("\ufeff" + QUERY, 0, "byte order mark"),
        (QUERY.encode("utf-8-sig"), 0, "byte order mark"),
        (QUERY.encode("utf-16"), 0, "UTF-16"),
        (QUERY.encode("utf-16-le"), 0, "UTF-16"),
        (QUERY.encode("utf-16-be"), 0, "UTF-16"),
        (b'{"table": "Zo\xeb"}', 13, "not UTF-8 at byte 13"),
        ('{"operation": "QUERY", "tenant_id": "\ud800"}', 37, "surrogate"),
    ],
)
def test_row_01_what_is_no_json_is_refused_with_the_offset(
    stack: Stack, body: str | bytes, offset: int | None, word: str
) -> None:
    with stack.no_catalog_call():
        error = stack.refused(400, "INVALID_JSON", [word], body)
    assert isinstance(error["details"]["offset"], int)
    assert offset in (None, error["details"]["offset"])
    assert not error["retryable"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("[" + QUERY + "]", "one JSON object"),
        ('"QUERY"', "one JSON object"),
        ("null", "one JSON object"),
        ("17", "one JSON object"),
        (WRITE % ('{"v":' * 63 + "1" + "}" * 63), "deeper than 64"),
        (QUERY[:-1] + ', "filter": ' + "[" * 64 + "]" * 64 + "}", "deeper than 64"),
        ("[" * 100_000, "deeper than 64"),
        (QUERY[:-1] + ', "table": "u"}', '"table" appears twice'),
        (WRITE % '{"id": 1, "id": 2}', '"id" appears twice'),
    ],
)
def test_row_02_json_that_is_no_plain_object_is_refused(stack: Stack, body: str, word: str) -> None:
    with stack.no_catalog_call():
        stack.refused(400, "INVALID_REQUEST", [word], body)


def test_row_02_nesting_of_64_is_still_a_request(shared: Stack) -> None:
    with shared.untouched():
        body = QUERY[:-1] + ', "filter": ' + '{"not":' * 62 + "{}" + "}" * 63
        assert shared.accepted("QUERY", body)["row_count"] == 2


@pytest.mark.parametrize("as_bytes", [False, True])
def test_row_03_a_body_over_the_limit_is_refused_by_the_limits_name(stack: Stack, as_bytes: bool) -> None:
    assert LIMITS.max_request_bytes == 6 * 1024 * 1024
    health = '{"operation": "HEALTH_CHECK"}'
    largest = health + " " * (LIMITS.max_request_bytes - len(health))
    too_large = largest + " "
    with stack.no_catalog_call():
        error = stack.refused(
            413, "PAYLOAD_TOO_LARGE", ["6291456 bytes", "split"], too_large.encode() if as_bytes else too_large
        )
    assert error["details"]["max_bytes"] == LIMITS.max_request_bytes
    assert stack.post(largest.encode() if as_bytes else largest)[0] == 200


def test_row_03_characters_count_as_the_bytes_they_take(stack: Stack) -> None:
    body = WRITE % ('{"v": "' + "€" * (LIMITS.max_request_bytes // 3) + '"}')
    assert len(body) < LIMITS.max_request_bytes < len(body.encode())
    with stack.no_catalog_call():
        stack.refused(413, "PAYLOAD_TOO_LARGE", ["6291456"], body)


def test_row_03_more_rows_than_the_limit_are_refused_by_the_limits_name(stack: Stack) -> None:
    rows = WRITE % ",".join(["{}"] * (LIMITS.max_records + 1))
    with stack.no_catalog_call():
        error = stack.refused(413, "PAYLOAD_TOO_LARGE", ["100001 rows", "100000", "split"], rows)
        direct = stack.invoke(request("WRITE", "t", records=[{}] * (LIMITS.max_records + 1)))
    assert error["details"]["max_records"] == LIMITS.max_records
    assert direct["error"]["details"] == error["details"]


@pytest.mark.parametrize(
    ("body", "code", "field", "words"),
    [
        ({}, "MISSING_FIELD", "operation", ["operation", "QUERY"]),
        ({"operation": "SELECT"}, "UNKNOWN_OPERATION", None, ["SELECT", "known are", "QUERY"]),
        ({"operation": "query"}, "UNKNOWN_OPERATION", None, ["query"]),
        ({"operation": "QUERY", "table": "t"}, "MISSING_FIELD", "tenant_id", ["tenant_id"]),
        ({"operation": "QUERY", "tenant_id": "default"}, "MISSING_FIELD", "table", ["table"]),
        (request("WRITE", "t"), "MISSING_FIELD", "records", ["records"]),
        (request("CREATE_TABLE", "t"), "MISSING_FIELD", "schema", ["schema"]),
        (request("WRITE", "t", records=[{}], mode="upsert"), "MISSING_FIELD", "key", ["key", "columns"]),
        (request("ALTER_TABLE", "t"), "MISSING_FIELD", "set_properties", ["set_properties"]),
        (request("QUERY", "t", where="id = 1"), "UNKNOWN_FIELD", "where", ["where", "filter"]),
        (request("COMPACT", "t", dryrun=True), "UNKNOWN_FIELD", "dryrun", ["dryrun", "dry_run"]),
        (request("COMPACT", "t", engine_="spark"), "UNKNOWN_FIELD", "engine_", ["engine_"]),
        (request("HEALTH_CHECK", "t"), "UNKNOWN_FIELD", None, ["known are"]),
    ],
)
def test_row_04_an_unknown_operation_or_field_or_a_missing_one_is_named(
    stack: Stack, body: dict[str, Any], code: str, field: str | None, words: list[str]
) -> None:
    with stack.no_catalog_call():
        error = stack.refused(400, code, words, body)
        if "operation" in body:
            assert stack.invoke(body)["error"] == error
    assert field in (None, error["details"].get("field"))


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        (request("QUERY", "t", limit="10"), "INVALID_FIELD", "limit"),
        (request("QUERY", "t", limit=True), "INVALID_FIELD", "limit"),
        (request("QUERY", "t", limit=1.0), "INVALID_FIELD", "limit"),
        (request("QUERY", "t", limit=-1), "INVALID_FIELD", "limit"),
        (request("QUERY", "t", columns="id"), "INVALID_FIELD", "columns"),
        (request("QUERY", 7), "INVALID_FIELD", "table"),
        (request("COMPACT", "t", force=1), "INVALID_FIELD", "force"),
        (request("COMPACT", "t", max_files=True), "INVALID_OPTION", "max_files"),
        (request("COMPACT", "t", target_file_size_mb="128"), "INVALID_OPTION", "target_file_size_mb"),
        (request("WRITE", "t", records={"id": 1}), "INVALID_FIELD", "records"),
        (request("WRITE", "t", records=[[1]]), "INVALID_FIELD", "row 0"),
        (request("WRITE", "t", records=[{}], idempotency_key="a b"), "INVALID_FIELD", "idempotency_key"),
        (request("WRITE", "t", records=[], key=["id"]), "INVALID_FIELD", "upsert"),
        (request("DROP_TABLE", "t", purge="yes"), "INVALID_FIELD", "purge"),
        (request("EXPIRE_SNAPSHOTS", "t", retention_hours="1"), "INVALID_FIELD", "retention_hours"),
        (WRITE % '{"d": 1e400}', "INVALID_FIELD", "1e400"),
        (WRITE % '{"d": -1e400}', "INVALID_FIELD", "-1e400"),
        (WRITE % '{"d": 1e-400}', "INVALID_FIELD", "1e-400"),
        (WRITE % '{"d": NaN}', "INVALID_FIELD", 'as the text "NaN"'),
        (WRITE % '{"d": [-Infinity]}', "INVALID_FIELD", 'as the text "-Infinity"'),
        (COMPACT % '"max_cost": Infinity', "INVALID_FIELD", "Infinity"),
        (COMPACT % '"max_cost": 1e999', "INVALID_FIELD", "1e999"),
        (COMPACT % '"snapshot_retention_hours": NaN', "INVALID_FIELD", "NaN"),
        (WRITE % f'{{"id": {"9" * 5000}}}', "INVALID_FIELD", "thousands of digits"),
    ],
)
def test_row_05_a_field_of_another_type_is_refused_and_named(stack: Stack, body: object, code: str, word: str) -> None:
    with stack.no_catalog_call():
        stack.refused(400, code, [word], body)
        if isinstance(body, dict):
            assert stack.invoke(body)["error"]["code"] == code


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ("id >", "not an Iceberg row filter"),
        ("id in ()", "not an Iceberg row filter"),
        ("(" * 100, "not an Iceberg row filter"),
        ("(" * 101, "at most 10000 characters and 100 parentheses"),
        (f"id in ({', '.join(map(str, range(100_000)))})", "at most 10000 characters"),
        ("id = 1; drop table t", "not an Iceberg row filter"),
        ("nope > 3", "nope"),
        ("id > 'x'", "x into a long"),
        ("day = '2020-13-01'", "day"),
    ],
)
@pytest.mark.parametrize("table", ["t", "empty"])
def test_row_05_a_where_that_no_row_filter_is_is_refused_also_where_there_is_nothing_to_read(
    shared: Stack, table: str, where: str, word: str
) -> None:
    shared.ok("CREATE_TABLE", "empty", schema={"fields": {"id": {"type": "long"}}}, if_not_exists=True)
    with shared.untouched():
        error = shared.refused(400, "INVALID_FIELD", ["where", word], request("COMPACT", table, where=where))
    assert error["details"]["field"] == "where"


@pytest.mark.parametrize(
    "option",
    ['"options": {"delete-ratio-threshold": 0.30000000000000000001}', '"max_cost": 0.10000000000000000001'],
)
def test_row_05_an_option_may_have_more_digits_than_a_double(shared: Stack, option: str) -> None:
    with shared.untouched():
        assert shared.accepted("COMPACT", COMPACT % option)["status"] == "NOTHING_TO_DO"


def test_row_05_a_size_is_never_rounded_to_a_whole_number(shared: Stack) -> None:
    body = COMPACT % '"options": {"target-file-size-bytes": 1048576.00000000000000000001}'
    with shared.untouched():
        shared.refused(400, "INVALID_OPTION", ["1048576.00000000000000000001", "whole number"], body)
