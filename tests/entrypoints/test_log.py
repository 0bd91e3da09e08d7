"""Row 67: log lines cannot be forged, secrets are blotted out of logs and answers, long texts are cut."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from regelate.entrypoints.dispatch import dispatch
from regelate.entrypoints.log import (
    LIBRARIES,
    MAX_STACK_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    adopt_libraries,
    redacted,
    safe,
    told,
)
from regelate.errors import Unavailable
from tests.entrypoints.fakes import FakeService, LambdaContext


@pytest.fixture
def adopted() -> Iterator[None]:
    """The loggers of libraries as Lambda and `regelate serve` have them, for one test."""
    libraries = [logging.getLogger(name) for name in LIBRARIES]
    before = [(library.handlers, library.propagate, library.level) for library in libraries]
    adopt_libraries()
    yield
    for library, (handlers, propagate, level) in zip(libraries, before, strict=True):
        library.handlers, library.propagate = handlers, propagate
        library.setLevel(level)


QUERY = {"operation": "QUERY", "tenant_id": "t", "namespace": "default", "table": "users"}
Lines = Callable[[], list[dict[str, Any]]]
SECRETS = [
    ("key AKIAIOSFODNN7EXAMPLE is wrong", "AKIAIOSFODNN7EXAMPLE"),
    ("postgresql://admin:hunter2hunter2@db.internal:5432/cat failed", "hunter2hunter2"),
    ("s3.secret-access-key=wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI/K7MDENG"),
    ("{'s3.secret-access-key': 'wJalrXUtnFEMI/K7MDENG'}", "wJalrXUtnFEMI/K7MDENG"),
    ('"password": "correct horse"', "correct"),
    ("Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.x", "eyJhbGciOiJIUzI1NiJ9"),
    ("GET https://b.s3.amazonaws.com/k?X-Amz-Signature=0a1b2c3d4e&X-Amz-Expires=60", "0a1b2c3d4e"),
    ("https://b.s3.amazonaws.com/k?X-Amz-Security-Token=IQoJb3JpZ2luX2Vj", "IQoJb3JpZ2luX2Vj"),
    ("token=ghp_abcdefghijklmnop", "ghp_abcdefghijklmnop"),
    ("credential = id:verysecret", "verysecret"),
    ("token: plainword", "plainword"),
    ("secret=two words", "two"),
    ("api_key: abcdef123 is not known", "abcdef123"),
    ("the header was basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("the header was bearer mF_9.B5f-4.1JqM", "mF_9.B5f-4.1JqM"),
]


def ask(service: FakeService, event: object) -> dict[str, Any]:
    return dispatch(event, LambdaContext(), lambda: service)


def failing(service: FakeService, fault: Exception) -> FakeService:
    def fail(spec: object) -> None:
        raise fault

    service.before_query = fail
    return service


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_is_blotted_out_and_the_rest_stays(text: str, secret: str) -> None:
    shown = redacted(text)
    assert secret not in shown
    assert "[redacted]" in shown
    assert shown[:3] == text[:3]


@pytest.mark.parametrize(
    "text",
    [
        "no table default.users",
        "file s3://bucket/warehouse/users/data/00000-0-abc.parquet is missing",
        "records: this field is missing",
        "the token of a plan is not secret",
        "row 3, column secret_santa: expected long",
        "column token: expected long, got a string",
        "column api_key: NULL in a required column",
        "resume_token: the token already holds the first request's fields",
        "secret: this field is missing",
        "credentials: none of this service",
        "a basic operation, and its bearer authorises nothing",
        "Basic authentication is what the catalog wants",
    ],
)
def test_an_ordinary_message_stays_word_for_word(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_in_a_fault_reaches_neither_the_answer_nor_the_log(
    service: FakeService, log_lines: Lines, text: str, secret: str
) -> None:
    for fault in (
        Unavailable("CATALOG_UNAVAILABLE", text, cause=text, list=[{"deep": text, "s3.token": secret}]),
        RuntimeError(text),
    ):
        answer = ask(failing(service, fault), QUERY)
        assert secret not in json.dumps(answer)
    assert secret not in json.dumps(log_lines())


STACKS = [
    "Out of memory\n\nStack Trace:\n/lib/duckdb.so(_ZN6duckdb9ExceptionC2Ev+0x1a) [0x7f12ab34cd56]\n[0x7f00aa]",
    "Out of memory in <Scan object at 0x7f12ab34cd56>",
    'Out of memory: Traceback (most recent call last):\n  File "/app/regelate/x.py", line 3',
]


@pytest.mark.parametrize("text", STACKS)
def test_a_stack_and_an_address_in_memory_are_no_part_of_an_answer(service: FakeService, text: str) -> None:
    fault = Unavailable("CATALOG_UNAVAILABLE", text, cause=text, of={"deep": [text]})
    answer = json.dumps(ask(failing(service, fault), QUERY))
    assert answer.count("Out of memory") == 3
    assert not any(inside in answer for inside in ("0x7f", "_ZN", "duckdb.so", "regelate/x.py"))


@pytest.mark.parametrize(
    "text", ["column id: '0x7f12ab34cd56' is no long", "0x1F is 31", "the stack trace is in the log"]
)
def test_a_value_that_looks_like_an_address_stays(text: str) -> None:
    assert told(text) == text


def test_an_unexpected_fault_is_answered_without_a_stack_and_logged_once_with_it(
    service: FakeService, log_lines: Lines
) -> None:
    answer = ask(failing(service, ZeroDivisionError("inner detail")), {**QUERY, "request_id": "r-1"})
    assert answer["error"]["code"] == "INTERNAL_ERROR"
    assert "inner detail" not in json.dumps(answer)
    assert "Traceback" not in json.dumps(answer)
    (line,) = log_lines()
    assert "ZeroDivisionError: inner detail" in line["stack"]
    found = [line[name] for name in ("level", "request_id", "tenant_id", "table", "operation", "status", "code")]
    assert found == ["ERROR", "r-1", "t", "users", "QUERY", 500, "INTERNAL_ERROR"]


def test_a_line_break_in_a_request_cannot_forge_a_log_line(service: FakeService, log_lines: Lines) -> None:
    forged = 'users\n{"level":"ERROR","message":"all tables dropped"}\r\n\u2028\x1b[31m'
    ask(service, {**QUERY, "table": forged})
    ask(service, {**QUERY, "operation": forged})
    ask(service, {**QUERY, forged: 1})
    lines = log_lines()
    assert len(lines) == 3
    assert all(line["message"] == "refused" for line in lines)


def test_a_log_line_of_a_refused_request_says_who_asked_for_what(service: FakeService, log_lines: Lines) -> None:
    ask(service, {**QUERY, "limit": "ten"})
    (line,) = log_lines()
    found = [line[name] for name in ("level", "tenant_id", "table", "operation", "status", "code")]
    assert found == ["INFO", "t", "users", "QUERY", 400, "INVALID_FIELD"]


def test_long_texts_are_cut_in_answers_and_logs(service: FakeService, log_lines: Lines) -> None:
    endless = "long " * 1_000_000
    answer = ask(failing(service, Unavailable("CATALOG_UNAVAILABLE", endless, cause=endless)), QUERY)
    assert len(answer["error"]["message"]) <= MAX_TEXT_CHARACTERS + 3
    assert len(json.dumps(answer)) < 3 * MAX_TEXT_CHARACTERS
    ask(failing(service, RuntimeError(endless)), {**QUERY, "table": endless})
    assert all(len(json.dumps(line)) < 2 * MAX_STACK_CHARACTERS for line in log_lines())


def test_details_are_json_whatever_they_hold() -> None:
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    held = safe({"set": {1}, "object": object, "bytes": b"x", "many": list(range(10_000)), "deep": deep, 3: "\ud800"})
    assert len(json.dumps(held).encode()) < 5_000


def test_every_line_of_a_request_names_it_with_its_tenant_and_table(
    service: FakeService, log_lines: Lines, adopted: None
) -> None:
    def noisy(spec: object) -> None:
        logging.getLogger("regelate.adapters.iceberg.files.outputs").warning("left behind")
        logging.getLogger("pyiceberg.table").warning("retrying (%d/4)", 1)

    service.before_query = noisy
    ask(service, {**QUERY, "request_id": "r-1"})
    lines = log_lines()
    assert [line["message"] for line in lines] == ["left behind", "retrying (1/4)", "answered"]
    for line in lines:
        found = [line[name] for name in ("request_id", "correlation_id", "tenant_id", "namespace", "table")]
        assert found == ["r-1", LambdaContext().aws_request_id, "t", "default", "users"]


def test_the_next_request_does_not_inherit_what_lines_say_of_the_last(service: FakeService, log_lines: Lines) -> None:
    ask(service, {**QUERY, "request_id": "r-1"})
    ask(service, {"operation": "HEALTH_CHECK"})
    last = log_lines()[-1]
    assert last["request_id"] == LambdaContext().aws_request_id
    assert {"tenant_id", "table"}.isdisjoint(last)


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_in_what_a_library_logs_is_blotted_out(
    log_lines: Lines, adopted: None, text: str, secret: str
) -> None:
    library = logging.getLogger("pyiceberg.catalog")
    library.warning("refused: %s", text)
    try:
        raise RuntimeError(text)
    except RuntimeError:
        library.exception("refused")
    lines = log_lines()
    assert "RuntimeError" in lines[1]["stack"]
    assert secret not in json.dumps(lines)
