"""The handler in the real Runtime Interface Emulator: `make test-rie`. One call after another: two at once kill it."""

from __future__ import annotations

import base64
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from regelate.entrypoints.server.door import INVOCATIONS_PATH
from tests.entrypoints.fakes import REPOSITORY
from tests.support.answers import check_answer

pytestmark = pytest.mark.rie

MACHINE = {"x86_64": "x86_64", "aarch64": "arm64"}[platform.machine()]
EVENTS = {path.stem: json.loads(path.read_text()) for path in sorted((REPOSITORY / "events").glob("*.json"))}
FIRST = ["create_table", "emulator_seed_create", "write", "apigw_v2_write"]
OF_THE_PAST = {
    "expire_snapshots_undo": "UNDO_NOT_FOUND",
    "job_status": "JOB_NOT_FOUND",
    "job_cancel": "JOB_NOT_FOUND",
    "apigw_v2_job": "JOB_NOT_FOUND",
    "apigw_v2_job_status": "JOB_NOT_FOUND",
    "compact_ref": "REF_NOT_FOUND",
    "drop_tag": "REF_NOT_FOUND",
    "rollback": "SNAPSHOT_NOT_FOUND",
    "write_ref": "REF_NOT_FOUND",
    "fleet_apply": "FLEET_PLAN_NOT_FOUND",
    "fleet_status": "FLEET_TABLE_NOT_FOUND",
    "report_metrics": "FLEET_TABLE_NOT_FOUND",
    "apigw_v2_report": "FLEET_TABLE_NOT_FOUND",
    "apigw_v2_report_of_catalog": "FLEET_TABLE_NOT_FOUND",
}
"""Events that name what happened in another lake, and the code that they are refused with in a new one."""
LAST = ["alter_table_columns", "drop_table"]
PATHS = {
    "/jobs": "LIST_JOBS",
    "/health": "HEALTH_CHECK",
    "/api/v1/compact": "COMPACT",
    "/events/commit": "NOTIFY_COMMIT",
    "/v1/namespaces/default/tables/users/metrics": "REPORT_METRICS",
    "/v1/local/namespaces/default/tables/users/metrics": "REPORT_METRICS",
}
PAGES = {"apigw_v2_openapi", "function_url_docs"}


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


class Emulator:
    """The real emulator, which starts the real runtime client, which starts our handler."""

    def __init__(self, folder: Path, seconds: int) -> None:
        (binary,) = (REPOSITORY / ".sam").glob(
            f"lib/python3*/site-packages/samcli/local/rapid/aws-lambda-rie-{MACHINE}"
        )
        port, inner = free_ports()
        self.url = f"http://127.0.0.1:{port}{INVOCATIONS_PATH}"
        self.log = folder / "log.txt"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "PYTHONPATH": str(REPOSITORY / "src"),
            "AWS_LAMBDA_FUNCTION_TIMEOUT": str(seconds),
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769",
            "AWS_REGION": "eu-central-1",
            "REGELATE_CONFIG": str(REPOSITORY / "config.json"),
            "REGELATE_DEVELOPMENT_ON_LAMBDA": "yes",
            "REGELATE_HOME": str(folder / "lake"),
        }
        client = [sys.executable, "-m", "awslambdaric", "regelate.handler.lambda_handler"]
        listen = ["--runtime-interface-emulator-address", f"127.0.0.1:{port}"]
        listen += ["--runtime-api-address", f"127.0.0.1:{inner}"]
        command = [binary, *listen, "--log-level", "error", *client]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        self.client = httpx.Client(timeout=60)
        while self.process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60):
                break

    def invoke(self, event: object) -> httpx.Response:
        try:
            answer = self.client.post(self.url, json=event)
        except httpx.TransportError as fault:
            raise AssertionError(f"{fault!r}; {self.log.read_text()[-2000:]}") from None
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        return answer

    def asked(self, event: object) -> Any:
        """The function's answer; the log in its place where it is no JSON."""
        answer = self.invoke(event)
        try:
            return answer.json()
        except ValueError:
            raise AssertionError(f"{answer.text!r}; {self.log.read_text()[-2000:]}") from None

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    running = Emulator(tmp_path_factory.mktemp("rie"), seconds=60)
    yield running
    running.close()


def answer_in(made: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(made["body"]) if "statusCode" in made else made
    return answer


def test_every_event_is_answered_as_openapi_promises(emulator: Emulator) -> None:
    sales = {**EVENTS["create_table"], "table": "sales"}
    assert emulator.asked(sales)["success"] is True
    middle = [name for name in EVENTS if name not in (*FIRST, *LAST)]
    for name in (*FIRST, *middle, *LAST):
        made = emulator.asked(EVENTS[name])
        assert made.get("statusCode", 200) in ((200, 404) if name in OF_THE_PAST else (200,)), (name, made)
        if name in ("sqs_job", "sqs_s3_notice"):
            assert made == {"batchItemFailures": []}  # a job, and a place, that nobody knows
            continue
        if name == "emr_run_ended":
            assert made == {"success": True, "job_id": None}  # a run of somebody else's
            continue
        if name in PAGES:
            assert len(made["body"]) > 1000
            continue
        answer = answer_in(made)
        if name in OF_THE_PAST:
            assert answer["error"]["code"] == OF_THE_PAST[name]
            continue
        operation = operation_of(EVENTS[name])
        assert answer["success"] is True, (name, answer)
        check_answer(operation, answer)


def operation_of(event: dict[str, Any]) -> str:
    if "operation" in event:
        return str(event["operation"])
    if "detail" in event:
        return str(event["detail"].get("operation", "NOTIFY_COMMIT"))
    path = str(event.get("rawPath", event.get("path")))
    if path in PATHS:
        return PATHS[path]
    body = base64.b64decode(event["body"]) if event.get("isBase64Encoded") else event["body"]
    return str(json.loads(body)["operation"])


def test_five_writes_recommend_and_a_compaction_heals(emulator: Emulator) -> None:
    table = {"tenant_id": "t", "namespace": "rie", "table": "five"}
    schema = {"fields": {"a": {"type": "long"}}}
    assert emulator.asked({"operation": "CREATE_TABLE", **table, "schema": schema})["created"] is True
    written = [emulator.asked({"operation": "WRITE", **table, "records": [{"a": n}]}) for n in range(5)]
    assert [answer["compaction_recommended"] for answer in written] == [False] * 4 + [True]
    stats = emulator.asked({"operation": "COMPACT", **table})["stats"]
    assert (stats["files_before"], stats["files_after"], stats["rows"]) == (5, 1, 5)
    rows = emulator.asked({"operation": "QUERY", **table})["rows"]
    assert sorted(row["a"] for row in rows) == list(range(5))


def test_lines_for_cloudwatch_leave_the_function(emulator: Emulator) -> None:
    lines = [json.loads(line) for line in emulator.log.read_text().splitlines() if line.startswith("{")]
    metrics = {
        metric["Name"] for line in lines if "_aws" in line for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]
    }
    assert {"compactions_succeeded", "writes", "small_files"} <= metrics


def test_an_event_of_a_queue_fails_the_invocation(emulator: Emulator) -> None:
    failed = emulator.asked({"Records": [{"body": "{}"}]})
    assert failed["errorType"] == "InvalidRequest"
    assert emulator.asked({"operation": "HEALTH_CHECK"})["success"] is True


def test_a_function_that_runs_out_of_time_is_ended_and_answers_the_next_request(tmp_path: Path) -> None:
    table = {"tenant_id": "t", "table": "slow"}
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    running = Emulator(tmp_path, seconds=15)  # less than `limits.query_seconds`, more than the first imports take
    try:
        schema = {"fields": {"a": {"type": "long"}}}
        assert running.asked({"operation": "CREATE_TABLE", **table, "schema": schema})["created"] is True
        assert (
            "Task timed out after 15.00 seconds" in running.invoke({"operation": "QUERY", **table, "sql": endless}).text
        )
        assert running.asked(EVENTS["apigw_v2_openapi"])["statusCode"] == 200
    finally:
        running.close()
