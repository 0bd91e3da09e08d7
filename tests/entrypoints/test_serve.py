"""`regelate serve` over real sockets on 127.0.0.1: concurrency, limits, the emulator's path, a graceful stop."""

from __future__ import annotations

import base64
import errno
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from regelate.entrypoints.serve import Server
from regelate.entrypoints.server import memory
from regelate.entrypoints.server.door import INVOCATIONS_PATH
from regelate.settings import SettingsError
from regelate.tenancy import Tenancy
from tests.entrypoints.fakes import REPOSITORY, FakeService, settings_for
from tests.entrypoints.serving import serving

QUERY = {"operation": "QUERY", "tenant_id": "t", "table": "users"}
POST = b"POST /database HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def server(service: FakeService) -> Iterator[Server]:
    with serving(service) as made:
        yield made


def talk(server: Server, request: bytes) -> bytes:
    """Send raw bytes and return everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
        return answer


def error_in(raw: bytes) -> tuple[int, str]:
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def test_every_route_answers_as_behind_an_api_gateway(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        assert client.post("/database", json=QUERY).json()["row_count"] == 0
        assert client.get("/health").json()["success"] is True
        assert client.get("/openapi.json").json()["openapi"] == "3.1.0"
        assert client.get("/docs").headers["content-type"].startswith("text/html")
        short = {"table": "sales", "strategy": "time-series", "options": {"target_file_size": "1GB", "max_cost": 10.0}}
        assert client.post("/api/v1/compact", json=short).json()["compacted"] is True
        assert client.get("/nowhere").status_code == 404
        wrong = client.put("/database", json={})
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert client.head("/health").content == b""


def test_one_connection_serves_many_requests(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for _ in range(3):
        connection.request("POST", "/database", json.dumps(QUERY))
        first = connection.sock
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["success"]) == (200, True)
        assert connection.sock is first
    connection.close()


def test_the_emulators_path_takes_an_event_and_answers_as_lambda_would(server: Server) -> None:
    events = {path.stem: json.loads(path.read_text()) for path in (REPOSITORY / "events").glob("emulator_seed_*.json")}
    with httpx.Client(base_url=server.url) as client:
        created = client.post(INVOCATIONS_PATH, json=events["emulator_seed_create"]).json()
        assert json.loads(created["body"])["created"] is False
        compacted = client.post(INVOCATIONS_PATH, json=events["emulator_seed_compact"]).json()
        assert json.loads(compacted["body"])["stats"]["files_before"] == 15
        assert client.post(INVOCATIONS_PATH, json=QUERY).json()["row_count"] == 0
        unknown = client.post(INVOCATIONS_PATH, json={"Records": []})
        assert (unknown.status_code, unknown.headers["x-amz-function-error"]) == (200, "Unhandled")
        assert unknown.json()["errorType"] == "InvalidRequest"
        assert client.post(INVOCATIONS_PATH, content="{").json()["error"]["code"] == "INVALID_JSON"
        assert client.get(INVOCATIONS_PATH).status_code == 404


def test_five_writes_by_the_emulators_path_recommend_a_compaction_at_the_fifth(server: Server) -> None:
    event = json.loads((REPOSITORY / "events" / "emulator_seed_write.json").read_text())
    with httpx.Client(base_url=server.url) as client:
        answers = [json.loads(client.post(INVOCATIONS_PATH, json=event).json()["body"]) for _ in range(5)]
    assert [answer["compaction_recommended"] for answer in answers] == [False] * 4 + [True]


def test_metrics_are_served_as_prometheus_reads_them(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        answer = client.get("/metrics")
        assert (answer.status_code, answer.text) == (200, "# nothing\n")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert client.head("/metrics").content == b""
        assert client.post("/metrics", json={}).status_code == 404


def test_a_report_of_a_reader_is_answered_without_content_or_its_length(server: Server) -> None:
    report = json.loads((REPOSITORY / "events" / "report_metrics.json").read_text())["report"]
    with httpx.Client(base_url=server.url) as client:
        answer = client.post("/v1/namespaces/default/tables/users/metrics", json=report)
        assert (answer.status_code, answer.content, "content-length" in answer.headers) == (204, b"", False)
        assert client.get("/health").status_code == 200


def test_metrics_name_tables_and_so_are_closed_where_callers_must_prove_their_tenant() -> None:
    with serving(FakeService(settings_for("production"))) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/metrics").status_code == 404


def test_the_emulators_path_is_closed_where_callers_must_prove_their_tenant() -> None:
    settings = settings_for("production", REGELATE_CONFIG="").model_copy(update={"tenants": ("acme",)})
    direct = {"operation": "QUERY", "tenant_id": "acme", "table": "users"}
    forged = {
        **json.loads((REPOSITORY / "events" / "apigw_v2_write.json").read_text()),
        "body": json.dumps({**direct, "tenant_id": "acme"}),
    }
    service = FakeService(settings, preset=["acme__default.users"])
    with serving(service) as server, httpx.Client(base_url=server.url) as client:
        for event in (direct, forged):
            assert client.post(INVOCATIONS_PATH, json=event).status_code == 404
        assert client.post("/database", json=direct).status_code == 403
    assert service.calls == []


def test_sixteen_requests_at_once_are_in_their_operations_together_and_all_answered(service: FakeService) -> None:
    together = threading.Barrier(16, timeout=60)
    service.before_query = lambda spec: together.wait()

    def ask(number: int) -> tuple[str, str]:
        request_id = f"r-{number}"
        event = {"httpMethod": "POST", "path": "/database", "body": json.dumps({**QUERY, "request_id": request_id})}
        with httpx.Client(base_url=server.url, timeout=60) as client:
            if number % 2:
                return request_id, client.post("/database", json={**QUERY, "request_id": request_id}).json()[
                    "request_id"
                ]
            return request_id, json.loads(client.post(INVOCATIONS_PATH, json=event).json()["body"])["request_id"]

    with serving(service) as server, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(16)))
    assert all(asked == answered for asked, answered in answers)
    assert len(service.calls) == 16


def test_a_body_beyond_the_limit_is_413_and_a_client_that_sends_it_all_gets_to_read_that(server: Server) -> None:
    limit = 6 * 1024 * 1024
    request = POST + b"Content-Length: %d\r\n\r\n" % (4 * limit) + b" " * (4 * limit)
    raw = talk(server, request)
    assert error_in(raw) == (413, "PAYLOAD_TOO_LARGE")
    assert b"connection: close" in raw.lower()
    assert str(limit).encode() in raw


def test_a_client_that_asks_first_is_told_413_before_it_sends_the_body(server: Server) -> None:
    head = POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    assert error_in(talk(server, head % 7_000_000)) == (413, "PAYLOAD_TOO_LARGE")


def test_a_client_that_asks_first_is_told_to_go_on_with_a_body_that_fits(server: Server) -> None:
    body = json.dumps(QUERY).encode()
    head = POST + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head % len(body))
        assert connection.recv(1_000).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(body)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


def test_a_body_in_chunks_is_read_like_one_in_one_piece(server: Server) -> None:
    body = json.dumps(QUERY).encode()
    answer = httpx.post(f"{server.url}/database", content=(body[at : at + 7] for at in range(0, len(body), 7)))
    assert answer.json()["success"] is True


def test_a_body_in_chunks_ends_at_the_limit(server: Server) -> None:
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    raw = talk(server, POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 7 + b"0\r\n\r\n")
    assert error_in(raw) == (413, "PAYLOAD_TOO_LARGE")


def test_a_page_of_our_own_may_send_requests(server: Server) -> None:
    answer = httpx.post(f"{server.url}/database", json=QUERY, headers={"Origin": server.url})
    assert answer.status_code == 200


THREADS_FREE_BODIES = """
import threading
from pathlib import Path
from regelate.entrypoints.server.memory import keep_little_memory

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

keep_little_memory()
begun, ready, end = resident_mb(), threading.Barrier(9), threading.Event()

def work():
    for size in (6, 3, 1):  # the first one that is freed teaches glibc to keep the others
        bodies = [bytes([65]) * (size * 2**20) for _ in range(4)]
        bodies.clear()
    ready.wait()
    end.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
ready.wait()
print(resident_mb() - begun)
end.set()
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""


def test_what_bodies_took_is_given_back_with_the_last_of_them() -> None:
    command = [sys.executable, "-c", THREADS_FREE_BODIES]
    environment = {"PYTHONPATH": str(REPOSITORY / "src")}
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kept_mb, pool = made.stdout.split()
    assert float(kept_mb) < 4
    assert pool == "system"


def test_where_the_c_library_has_nothing_to_set_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    monkeypatch.setattr(memory, "ctypes", SimpleNamespace(CDLL=lambda _: None))
    memory.keep_little_memory()
    assert os.environ["ARROW_DEFAULT_MEMORY_POOL"] == "jemalloc"


def test_a_body_that_is_not_utf_8_is_the_callers_fault(server: Server) -> None:
    answer = httpx.post(f"{server.url}/database", content=json.dumps(QUERY).encode("utf-16"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_JSON")


def test_a_client_that_hangs_up_within_its_body_harms_nobody(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST /database HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_each_request_has_one_access_line_in_json(service: FakeService, log_lines: Any) -> None:
    with serving(service) as server:
        httpx.get(f"{server.url}/health?token=abcdefgh")
        httpx.post(f"{server.url}/database", content=b"{")
    lines = [line for line in log_lines() if line["message"] == "access"]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("GET", "/health", 200),
        ("POST", "/database", 400),
    ]


def test_stop_answers_what_is_under_way_ends_idle_connections_and_takes_no_more(service: FakeService) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait(spec: object) -> None:
        inside.set()
        assert go_on.wait(60)

    service.before_query = wait
    with serving(service) as server, ThreadPoolExecutor(1) as pool:
        address = ("127.0.0.1", server.port)
        connection = http.client.HTTPConnection(*address, timeout=30)
        connection.request("GET", "/health")
        idle = connection.sock
        assert json.loads(connection.getresponse().read())["success"] is True
        busy = pool.submit(httpx.post, f"{server.url}/database", json=QUERY, timeout=60)
        assert inside.wait(60)
        server.stop()
        assert idle.recv(1) == b""
        with pytest.raises(ConnectionError):
            socket.create_connection(address)
        go_on.set()
        assert busy.result().json()["success"] is True
        idle.close()


def test_a_client_that_is_gone_when_the_server_stops_keeps_it_from_nothing(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be told that its request is refused, and the loop has not heard yet that it is gone."""
    inside, go_on = threading.Event(), threading.Event()

    def wait(spec: object) -> None:
        inside.set()
        assert go_on.wait(60)

    def not_connected(transport: object) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    service.before_query = wait
    with (
        serving(service) as server,
        ThreadPoolExecutor(1) as pool,
        socket.create_connection(("127.0.0.1", server.port)) as half,
    ):
        half.sendall(b"POST /database HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        busy = pool.submit(httpx.post, f"{server.url}/database", json=QUERY, timeout=60)
        assert inside.wait(60)
        monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write_eof", not_connected)
        server.stop()
        assert b"503" in half.recv(100)
        go_on.set()
        assert busy.result().json()["success"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_serve_after_the_request_under_way(number: signal.Signals) -> None:
    program = (
        "from regelate.entrypoints.serve import serve\n"
        "from tests.entrypoints.fakes import FakeService\n"
        "service = FakeService(preset=['default.users'])\n"
        "service.before_query = lambda spec: print('inside', flush=True) or input()\n"
        "serve('127.0.0.1', 0, service, on_ready=lambda url: print(url, flush=True))\n"
        "print('stopped', flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"}
    with (
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        ) as process,
        ThreadPoolExecutor(1) as pool,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        answer = pool.submit(httpx.post, f"{url.geturl()}/database", json=QUERY, timeout=60)
        assert process.stdout.readline() == "inside\n"
        process.send_signal(number)
        process.stdin.write("\n")
        process.stdin.flush()
        assert answer.result().json()["success"] is True
        assert process.stdout.readline() == "stopped\n"
        assert process.wait(60) == 0


def test_a_taken_port_is_an_error_at_once(server: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        Server("127.0.0.1", server.port, FakeService())


def test_bytes_that_are_no_text_reach_the_parser_as_they_are(server: Server) -> None:
    event = {
        "httpMethod": "POST",
        "path": "/database",
        "isBase64Encoded": True,
        "body": base64.b64encode(json.dumps(QUERY).encode()).decode(),
    }
    answer = httpx.post(f"{server.url}{INVOCATIONS_PATH}", json=event).json()
    assert answer["statusCode"] == 200


def test_whoever_reaches_the_machine_is_not_served_where_every_caller_is_every_tenant() -> None:
    for host in ("0.0.0.0", "::", ""):
        with pytest.raises(SettingsError, match="this machine only") as refused:
            Server(host, 0, FakeService())
        assert refused.value.code == "INVALID_CONFIG"


def test_where_callers_must_prove_their_tenant_others_may_reach_the_server() -> None:
    server = Server("0.0.0.0", 0, FakeService(settings_for("production")))
    server.stop()
    assert server.run() == 0


def test_another_loopback_address_is_this_machine_and_is_answered_by_its_name() -> None:
    for host in ("127.0.0.2", "::1", "localhost"):
        server = Server(host, 0, FakeService())
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            assert httpx.get(f"{server.url}/health").status_code == 200
        finally:
            server.stop()
            thread.join()


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]", "localhost.", "lake.example.com", "tunnel:9"]
)
def test_the_names_of_this_machine_and_those_that_are_allowed_are_answered(host: str) -> None:
    settings = settings_for("development")
    serve = settings.serve.model_copy(update={"hosts": ("lake.example.com",)})
    service = FakeService(settings.model_copy(update={"serve": serve}))
    with serving(service, allowed=["Tunnel"]) as server:
        assert httpx.get(f"{server.url}/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:8080", "10.0.0.7"])
def test_a_name_that_leads_here_from_elsewhere_is_refused_and_told_what_would_let_it_in(
    server: Server, service: FakeService, host: str
) -> None:
    sent = {"Host": host, "Origin": f"http://{host}"}
    answer = httpx.post(f"{server.url}/database", json=QUERY, headers=sent)
    assert (answer.status_code, answer.json()["error"]["code"]) == (421, "HOST_NOT_ALLOWED")
    assert "--allow-host" in answer.json()["error"]["message"]
    assert service.calls == []


def test_how_the_process_is_can_be_asked_while_all_threads_are_at_work(service: FakeService) -> None:
    settings = service.settings
    limits = settings.limits.model_copy(update={"max_concurrent_operations": 2})
    serve = settings.serve.model_copy(update={"threads": 3})
    service.settings = settings.model_copy(update={"limits": limits, "serve": serve})
    inside, go_on = threading.Semaphore(0), threading.Event()

    def wait(spec: object) -> None:
        inside.release()
        assert go_on.wait(60)

    service.before_query = wait
    with serving(service) as server, ThreadPoolExecutor(3) as pool, httpx.Client(base_url=server.url) as client:
        busy = [pool.submit(httpx.post, f"{server.url}/database", json=QUERY, timeout=60) for _ in range(3)]
        for _ in busy:
            assert inside.acquire(timeout=60)
        assert client.get("/health").json()["success"] is True
        assert client.post("/database", json={"operation": "HEALTH_CHECK"}).json()["success"] is True
        refused = client.post("/database", json={"operation": "LIST_TABLES", "tenant_id": "t"}, timeout=60)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "SERVER_BUSY")
        go_on.set()
        assert all(answer.result().json()["success"] for answer in busy)


def test_a_tenant_with_all_its_operations_under_way_leaves_threads_to_the_others(service: FakeService) -> None:
    most, settings = 4, service.settings
    limits = settings.limits.model_copy(update={"max_concurrent_operations": most})
    service.settings = settings.model_copy(update={"limits": limits})
    service.tenancy = Tenancy(service.settings)
    inside, go_on = threading.Semaphore(0), threading.Event()

    def wait(spec: object) -> None:
        if len(service.calls) <= most:
            inside.release()
            assert go_on.wait(60)

    service.before_query = wait
    with serving(service) as server, ThreadPoolExecutor(most) as pool, httpx.Client(base_url=server.url) as client:
        busy = [pool.submit(httpx.post, f"{server.url}/database", json=QUERY, timeout=60) for _ in range(most)]
        for _ in busy:
            assert inside.acquire(timeout=60)
        assert client.post("/database", json=QUERY).json()["error"]["code"] == "TOO_MANY_OPERATIONS"
        assert client.post("/database", json={**QUERY, "tenant_id": "other"}).json()["success"] is True
        go_on.set()
        assert all(answer.result().json()["success"] for answer in busy)
