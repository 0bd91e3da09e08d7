"""The real Lambda runtime client (awslambdaric) runs our handler against a small Runtime API of our own.

Lambda's own side of it, as its documentation describes it: `next` blocks until there is an event, `response` and
`error` end an invocation, `init/error` ends the start.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from regelate.handler import MAX_ANSWER_BYTES
from tests.entrypoints.fakes import REPOSITORY

FUNCTION = """
from regelate.handler import make_handler
from tests.entrypoints.fakes import FakeService

service = FakeService(preset=["default.users", "default.test_users", "default.sales"])
lambda_handler = make_handler(lambda: service)
"""
LONGEST_SECONDS = 60.0
END = b""


@dataclass
class Ended:
    """How one invocation ended: the body that the client posted, and whether to `response`, `error` or `init`."""

    kind: str
    body: bytes


@dataclass
class RuntimeApi:
    events: queue.Queue[bytes] = field(default_factory=queue.Queue)
    ended: queue.Queue[Ended] = field(default_factory=queue.Queue)

    def invoke(self, event: object) -> Any:
        self.events.put(json.dumps(event).encode())
        return self.answered()

    def answered(self) -> Any:
        ended = self.ended.get(timeout=LONGEST_SECONDS)
        assert ended.kind == "response", ended
        assert len(ended.body) <= MAX_ANSWER_BYTES
        return json.loads(ended.body)

    def fail(self, event: object) -> Any:
        self.events.put(json.dumps(event).encode())
        ended = self.ended.get(timeout=LONGEST_SECONDS)
        assert ended.kind == "error", ended
        return json.loads(ended.body)


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: RuntimeApi

    def do_GET(self) -> None:
        event = self.api.events.get()
        if event == END:
            self.close_connection = True
            return
        self.reply(
            200,
            event,
            {
                "Lambda-Runtime-Aws-Request-Id": "8476a536-e9f4-11e8-9739-2dfe598c3fcd",
                "Lambda-Runtime-Deadline-Ms": "4102444800000",
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:eu-central-1:123456789012:function:regelate",
                "Content-Type": "application/json",
            },
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = "init" if "/init/" in self.path else self.path.rpartition("/")[2]
        self.reply(202, b"{}", {})
        self.api.ended.put(Ended(kind, body))

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is http.server's
        """Keep the test's output to the test."""


@contextmanager
def running(handler: str, folder: Path) -> Iterator[RuntimeApi]:
    api = RuntimeApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Endpoint,), {"api": api}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY), str(folder)]),
        "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{server.server_port}",
        "AWS_LAMBDA_FUNCTION_NAME": "regelate",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "3008",
        "AWS_REGION": "eu-central-1",
        "LAMBDA_TASK_ROOT": str(folder),
        "_HANDLER": handler,
        "REGELATE_CONFIG": str(REPOSITORY / "config.json"),
        "REGELATE_DEVELOPMENT_ON_LAMBDA": "yes",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "awslambdaric", handler],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield api
    finally:
        process.kill()
        process.wait()
        api.events.put(END)
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeApi]:
    folder = tmp_path_factory.mktemp("task")
    (folder / "function.py").write_text(FUNCTION)
    with running("function.lambda_handler", folder) as api:
        yield api


def event(name: str) -> Any:
    return json.loads((REPOSITORY / "events" / f"{name}.json").read_text())


def test_direct_and_http_events_come_back_as_lambda_hands_them_on(runtime: RuntimeApi) -> None:
    direct = runtime.invoke(event("compact"))
    assert (direct["success"], direct["request_id"]) == (True, "8476a536-e9f4-11e8-9739-2dfe598c3fcd")
    for name in ("apigw_v1_compact", "emulator_seed_compact", "short_form_compact"):
        answer = runtime.invoke(event(name))
        assert (answer["statusCode"], json.loads(answer["body"])["stats"]["files_before"]) == (200, 15)
        assert answer["headers"]["Content-Type"] == "application/json"


def test_a_refusal_is_an_answer_and_the_function_lives_on(runtime: RuntimeApi) -> None:
    assert runtime.invoke({"operation": "JOB_LIST"})["error"]["code"] == "UNKNOWN_OPERATION"
    assert runtime.invoke({"operation": "HEALTH_CHECK"})["success"] is True


def test_an_event_of_a_queue_fails_the_invocation_and_the_function_lives_on(runtime: RuntimeApi) -> None:
    failed = runtime.fail({"Records": [{"body": "{}"}]})
    assert failed["errorType"] == "InvalidRequest"
    assert "UNKNOWN_EVENT" in failed["errorMessage"]
    assert runtime.invoke({"operation": "HEALTH_CHECK"})["success"] is True


def test_nan_never_gets_past_the_runtime_and_a_number_made_infinite_there_is_refused_here(runtime: RuntimeApi) -> None:
    assert runtime.fail({**event("compact"), "max_cost": float("nan")})["errorType"] == "Runtime.UnmarshalError"
    text = json.dumps({**event("compact"), "max_cost": 0}).replace('"max_cost": 0', '"max_cost": 1e400')
    runtime.events.put(text.encode())
    refused = runtime.answered()
    assert (refused["error"]["code"], refused["error"]["details"]["field"]) == ("INVALID_FIELD", "max_cost")


def test_an_answer_as_large_as_lambda_lets_through_arrives(runtime: RuntimeApi) -> None:
    write = {"operation": "WRITE", "tenant_id": "t", "table": "sales", "records": [{"a": "ä" * 1_000_000}]}
    query = {"operation": "QUERY", "tenant_id": "t", "table": "sales"}
    runtime.invoke(write)
    assert runtime.invoke(query)["row_count"] == 1
    runtime.invoke(write)
    assert runtime.invoke(query)["error"]["code"] == "RESULT_TOO_LARGE"


def test_the_shipped_handler_starts_without_opening_a_catalog(tmp_path: Path) -> None:
    with running("regelate.handler.lambda_handler", tmp_path) as api:
        answer = api.invoke(event("apigw_v2_openapi"))
    assert json.loads(answer["body"])["openapi"] == "3.1.0"
    assert list(tmp_path.iterdir()) == []
