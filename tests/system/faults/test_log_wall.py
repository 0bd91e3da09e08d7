"""Row 67: what a caller or a broken file can put into answers and logs, through the whole program."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regelate.entrypoints.log import logger
from regelate.errors import MAX_MESSAGE_CHARACTERS
from regelate.service.queries import Queries
from tests.system.faults.hooks import Hooked
from tests.system.faults.stack import Answer, Stack, request

SECRETS = {
    "password in a URL": ("postgresql://admin:hunter2secret@db.internal/x", "hunter2secret"),
    "an access key": ("denied for AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    "a bearer token": ("401 for Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.abc", "eyJhbGciOiJIUzI1NiJ9"),
    "a secret key": ("s3.secret-access-key=wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
}
BREAKS = ["\n", "\r\n", "\r", "\u2028", "\u2029", "\x85", "\x1b[2J", "\x00"]
FORGED = '{"level": "INFO", "message": "answered", "status": 200}'
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """What the program logged since it was last asked, each line parsed as JSON: a line that is no JSON fails."""
    stream = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", stream)

    def read() -> list[dict[str, Any]]:
        text = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        assert text.isascii()
        return [json.loads(line) for line in text.splitlines()]

    return read


def failing(stack: Stack, text: str) -> tuple[int, Answer]:
    """Ask for a table while the catalog fails with this text."""
    assert isinstance(stack.built, Hooked)

    def fail() -> None:
        raise OSError(text)

    stack.built.hooked.on_load[:] = [fail]
    return stack.post(request("QUERY", "t"))


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    made = Stack(tmp_path)
    made.built = Hooked(tmp_path)
    made.create("t", {"id": "long!"})
    return made


@pytest.mark.parametrize("kind", SECRETS)
def test_row_67_a_secret_in_a_fault_is_in_neither_answer_nor_log(stack: Stack, lines: Lines, kind: str) -> None:
    text, secret = SECRETS[kind]
    status, answer = failing(stack, text)
    assert status >= 500
    assert secret not in json.dumps(answer)
    logged = lines()
    assert logged
    assert secret not in json.dumps(logged)


@pytest.mark.parametrize("kind", SECRETS)
def test_row_67_a_secret_in_an_unforeseen_fault_is_not_in_the_logged_stack(
    stack: Stack, lines: Lines, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    text, secret = SECRETS[kind]

    def broken(*arguments: Any, **options: Any) -> Any:
        raise ZeroDivisionError(text)

    monkeypatch.setattr(Queries, "query", broken)
    status, answer = stack.post(request("QUERY", "t"))
    assert (status, answer["error"]["code"]) == (500, "INTERNAL_ERROR")
    logged = lines()
    assert "ZeroDivisionError" in logged[-1]["stack"]
    assert secret not in json.dumps([answer, logged])


@pytest.mark.parametrize("line_break", BREAKS, ids=repr)
@pytest.mark.parametrize("field", ["table", "tenant_id", "namespace", "request_id", "sql", "catalog", "operation"])
def test_row_67_a_line_break_in_a_request_makes_no_line_of_its_own(
    stack: Stack, lines: Lines, field: str, line_break: str
) -> None:
    body = {**request("QUERY", "t", sql="SELECT 1"), field: f"x{line_break}{FORGED}"}
    status, _ = stack.post(body)
    assert 400 <= status < 500
    logged = lines()
    assert [line for line in logged if line.get("status") == 200] == []
    assert [line["message"] for line in logged if line["message"] == "refused"] == ["refused"]


@pytest.mark.parametrize("line_break", BREAKS, ids=repr)
def test_row_67_a_line_break_in_what_the_catalog_says_makes_no_line_of_its_own(
    stack: Stack, lines: Lines, line_break: str
) -> None:
    status, _ = failing(stack, f"x{line_break}{FORGED}")
    assert status >= 500
    assert [line for line in lines() if line.get("status") == 200] == []


def test_row_67_an_oversized_text_is_cut_in_answer_and_log(stack: Stack, lines: Lines) -> None:
    status, answer = failing(stack, "x" * 1_000_000)
    assert status >= 500
    assert len(json.dumps(answer)) < 2 * MAX_MESSAGE_CHARACTERS
    assert max(len(json.dumps(line)) for line in lines()) < 20_000
    refusal = stack.post(request("y" * 100_000, "z" * 100_000))
    assert refusal[0] == 400
    assert len(json.dumps(refusal[1])) < 2 * MAX_MESSAGE_CHARACTERS
    assert max(len(json.dumps(line)) for line in lines()) < 20_000


def test_row_67_a_data_file_whose_name_is_a_log_line_makes_no_line_of_its_own(stack: Stack, lines: Lines) -> None:
    """Paths come from manifests that anybody may have written; they are in messages, warnings and details."""
    from tests.support.iceberg_tables import add_data_files, append, changed_file, live_data_files

    table = stack.table("default.t")
    for number in range(2):
        append(table, [{"id": number}])
    name = f"{table.location()}/data/gone\n{FORGED}\nsecret_key=wJalrXUtnFEMI.parquet"
    add_data_files(table, [changed_file(live_data_files(table)[0], file_path=name)])
    lines()
    status, answer = stack.post(request("COMPACT", "t", force=True))
    assert (status, answer["error"]["code"]) == (424, "DATA_FILE_MISSING")
    logged = lines()
    assert [line for line in logged if line.get("status") == 200] == []
    assert "wJalrXUtnFEMI" not in json.dumps(logged)
