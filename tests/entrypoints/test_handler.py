"""`lambda_handler`: what a cold start loads, and what Lambda lets through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regelate.errors import NotFound
from regelate.handler import MAX_ANSWER_BYTES, make_handler
from tests.entrypoints.fakes import REPOSITORY, FakeService, LambdaContext

HEAVY = (
    "boto3",
    "botocore.loaders",
    "botocore.session",
    "duckdb",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyiceberg",
    "rich",
    "sqlalchemy",
)
"""Of botocore, Powertools imports the package itself (half a millisecond) to put its name into the user agent."""
PROGRAM = """
import json, sys
from regelate.handler import lambda_handler
class Context:
    function_name, memory_limit_in_mb, invoked_function_arn, aws_request_id = "f", 128, "arn", "r"
after_import = [m for m in {heavy!r} if m in sys.modules]
path = {{"httpMethod": "GET", "path": "/openapi.json"}}
answers = [lambda_handler(event, Context()) for event in (path, {{"operation": "NONE"}}, {{"operation": "WRITE"}})]
after_refusals = [m for m in {heavy!r} if m in sys.modules]
print(json.dumps([after_import, after_refusals, answers[0]["statusCode"], [a["error"]["code"] for a in answers[1:]]]))
"""


def test_importing_the_handler_and_refusing_a_request_load_no_engine_and_no_catalog() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(heavy=HEAVY)],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY / "src",
        env={"REGELATE_CONFIG": str(REPOSITORY / "config.json"), "HOME": "/nonexistent"},
    )
    assert json.loads(finished.stdout) == [[], [], 200, ["UNKNOWN_OPERATION", "MISSING_FIELD"]]


def as_v2(operation: str) -> dict[str, Any]:
    context = {"stage": "$default", "http": {"method": "POST", "path": "/database"}, "requestId": "r"}
    body = json.dumps({"operation": operation, "tenant_id": "t", "table": "users"})
    return {"version": "2.0", "rawPath": "/database", "headers": {}, "requestContext": context, "body": body}


@pytest.mark.parametrize("text", ['"', "ä", "𝄞", "x"])
@pytest.mark.parametrize("http", [True, False])
def test_an_answer_that_lambda_would_refuse_becomes_413_with_the_limit(text: str, http: bool) -> None:
    service = FakeService(preset=["default.users"])
    event = as_v2("QUERY") if http else {"operation": "QUERY", "tenant_id": "t", "table": "users"}
    handler = make_handler(lambda: service)
    for rows in (10, 20, 40, 80, 160):
        service.known["default.users"].rows = [{"a": text * 50_000}] * rows
        answer = handler(event, LambdaContext())
        assert len(json.dumps(answer)) <= MAX_ANSWER_BYTES
        body = json.loads(answer["body"]) if http else answer
        if not body["success"]:
            assert body["error"]["code"] == "RESULT_TOO_LARGE"
            assert body["error"]["details"]["max_bytes"] == MAX_ANSWER_BYTES
            assert answer.get("statusCode", 413) == 413
            return
    pytest.fail("no answer was too large")


def test_an_answer_just_inside_the_limit_passes_whole() -> None:
    service = FakeService(preset=["default.users"])
    service.known["default.users"].rows = [{"a": "x" * 6_200_000}]
    answer = make_handler(lambda: service)(as_v2("QUERY"), LambdaContext())
    assert answer["statusCode"] == 200


def test_an_event_without_a_context_is_answered_like_one_with_it() -> None:
    handler = make_handler(FakeService)
    health = {"operation": "HEALTH_CHECK"}
    assert handler(health, None)["success"] is True
    assert handler(as_v2("QUERY"), None)["statusCode"] == handler(as_v2("QUERY"), LambdaContext())["statusCode"]


def test_what_json_cannot_say_is_an_internal_error_and_not_a_broken_answer(log_lines: Any) -> None:
    service = FakeService(preset=["default.users"])
    service.known["default.users"].rows = [{"a": float("nan")}]
    answer = make_handler(lambda: service)(as_v2("QUERY"), LambdaContext())
    assert (answer["statusCode"], json.loads(answer["body"])["error"]["code"]) == (500, "INTERNAL_ERROR")
    assert "ValueError" in log_lines()[-1]["stack"]


def test_a_fault_of_the_service_keeps_its_code_status_and_details() -> None:
    service = FakeService()

    def gone(spec: object) -> None:
        raise NotFound("SNAPSHOT_NOT_FOUND", "no snapshot 7", snapshot_id=7)

    service.before_query = gone
    answer = make_handler(lambda: service)(as_v2("QUERY"), LambdaContext())
    body = json.loads(answer["body"])
    assert answer["statusCode"] == 404
    assert body["error"] == {
        "code": "SNAPSHOT_NOT_FOUND",
        "message": "no snapshot 7",
        "retryable": False,
        "details": {"snapshot_id": 7},
    }


WORKER = """
import gc, json, sys
import regelate.worker
loaded = {name.partition(".")[0] for name in sys.modules}
class Context:
    function_name, memory_limit_in_mb, invoked_function_arn, aws_request_id = "f", 2048, "arn", "r"
table = {"tenant_id": "t", "table": "five"}
def ask(**request):
    return regelate.worker.lambda_handler({**table, **request}, Context())
ask(operation="CREATE_TABLE", schema={"fields": {"a": {"type": "long"}}})
for number in range(5):
    ask(operation="WRITE", records=[{"a": number}])
status = ask(operation="COMPACT")["status"]
later = {name.partition(".")[0] for name in sys.modules} - loaded - sys.stdlib_module_names
print(json.dumps([status, sorted(later), gc.isenabled()]))
"""


def run(program: str, **environment: str) -> Any:
    """The JSON on the last line that a program prints, run as a process of its own."""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY / "src",
        env={"REGELATE_CONFIG": str(REPOSITORY / "config.json"), "HOME": "/nonexistent", **environment},
    )
    return json.loads(finished.stdout.splitlines()[-1])


def test_a_worker_has_loaded_every_library_of_a_compaction_before_its_first_request(tmp_path: Path) -> None:
    assert run(WORKER, REGELATE_HOME=str(tmp_path)) == ["COMPLETED", [], True]


def test_a_worker_that_is_configured_wrongly_starts_and_says_so_in_its_answer() -> None:
    program = WORKER.partition("ask(operation")[0] + "print(json.dumps(ask(operation='LIST_TABLES')))"
    assert run(program, REGELATE_ENVIRONMENT="production")["error"]["code"] == "INVALID_CONFIG"
