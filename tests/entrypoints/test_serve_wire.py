"""What comes over the wire of `regelate serve` and is no plain HTTP, or comes too slowly, or too often."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from regelate.entrypoints.serve import Server
from regelate.entrypoints.server import room
from tests.entrypoints.fakes import FakeService
from tests.entrypoints.serving import serving, until

BODY = json.dumps({"operation": "QUERY", "tenant_id": "t", "table": "users"}).encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
IN_CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
BOTH = b"Content-Length: %d\r\n" % len(IN_CHUNKS)
HOST = b"Host: localhost\r\n"
GET = b"GET /health HTTP/1.1\r\n" + HOST


def post(headers: bytes, body: bytes = BODY) -> bytes:
    return b"POST /database HTTP/1.1\r\n" + HOST + headers + b"\r\n" + body


def limited(service: FakeService, **limits: Any) -> FakeService:
    """Give a service's server other limits."""
    serve = service.settings.serve.model_copy(update=limits)
    service.settings = service.settings.model_copy(update={"serve": serve})
    return service


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def all_of(connection: socket.socket) -> bytes:
    """What comes until the server ends the connection; a reset after the answer is an end as well."""
    answer = b""
    try:
        while piece := connection.recv(65_536):
            answer += piece
    except ConnectionResetError:
        pass
    return answer


def talk(server: Server, request: bytes) -> bytes:
    with connected(server) as connection:
        connection.sendall(request)
        return all_of(connection)


def told(raw: bytes) -> tuple[int, str]:
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]["code"]


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        pytest.param(post(b""), 411, "LENGTH_REQUIRED", id="no length"),
        pytest.param(post(LENGTH + b"Content-Length: 3\r\n"), 400, "INVALID_REQUEST", id="two lengths"),
        pytest.param(post(LENGTH + LENGTH), 400, "INVALID_REQUEST", id="the same length twice"),
        pytest.param(post(b"Content-Length: 2, 2\r\n"), 400, "INVALID_REQUEST", id="a list of lengths"),
        pytest.param(post(b"Content-Length: -1\r\n"), 400, "INVALID_REQUEST", id="a negative length"),
        pytest.param(post(b"Content-Length: +2\r\n"), 400, "INVALID_REQUEST", id="a signed length"),
        pytest.param(post(b"Content-Length: 0x2\r\n"), 400, "INVALID_REQUEST", id="a hexadecimal length"),
        pytest.param(post(b"Content-Length: \xc2\xb2\r\n"), 400, "INVALID_REQUEST", id="another script's digit"),
        pytest.param(post(b"Content-Length: " + b"9" * 40 + b"\r\n"), 400, "INVALID_REQUEST", id="an endless length"),
        pytest.param(post(b"Content-Length: 9999999999\r\n", b""), 413, "PAYLOAD_TOO_LARGE", id="ten gigabytes"),
        pytest.param(post(BOTH + CHUNKED, IN_CHUNKS), 400, "INVALID_REQUEST", id="length and chunks"),
        pytest.param(post(CHUNKED + BOTH, IN_CHUNKS), 400, "INVALID_REQUEST", id="chunks and length"),
        pytest.param(post(CHUNKED + CHUNKED, IN_CHUNKS), 400, "INVALID_REQUEST", id="chunks twice"),
        pytest.param(post(b"Transfer-Encoding: gzip, chunked\r\n"), 400, "INVALID_REQUEST", id="another coding"),
        pytest.param(post(b"Transfer-Encoding: xchunked\r\n"), 400, "INVALID_REQUEST", id="almost chunked"),
        pytest.param(post(b"Transfer-Encoding : chunked\r\n"), 400, "INVALID_REQUEST", id="a space before the colon"),
        pytest.param(post(CHUNKED, b"zz\r\n{}\r\n0\r\n\r\n"), 400, "INVALID_REQUEST", id="a chunk of no size"),
        pytest.param(post(CHUNKED, b"-2\r\n{}\r\n0\r\n\r\n"), 400, "INVALID_REQUEST", id="a chunk below nothing"),
        pytest.param(post(CHUNKED, b"2\r\n{}XX0\r\n\r\n"), 400, "INVALID_REQUEST", id="a chunk without an end"),
        pytest.param(post(CHUNKED, b"f" * 30 + b"\r\n"), 400, "INVALID_REQUEST", id="an endless chunk"),
        pytest.param(post(CHUNKED, b"1\r\n \r\n" * 50_000), 400, "INVALID_REQUEST", id="tiny chunks without end"),
        pytest.param(post(LENGTH + b"X: a\r\n b\r\n"), 400, "INVALID_REQUEST", id="a folded header"),
        pytest.param(post(b" X: a\r\n" + LENGTH), 400, "INVALID_REQUEST", id="a first header that is indented"),
        pytest.param(post(b"X: a\nContent-Length: 2\r\n"), 400, "INVALID_REQUEST", id="a bare LF"),
        pytest.param(b"GET /health HTTP/1.1\nHost: localhost\n\n", 400, "INVALID_REQUEST", id="bare LFs alone"),
        pytest.param(post(b"X: a\rContent-Length: 2\r\n"), 400, "INVALID_REQUEST", id="a bare CR"),
        pytest.param(post(b"X: a\x00b\r\n" + LENGTH), 400, "INVALID_REQUEST", id="a NUL"),
        pytest.param(post(b"X: a\x1bb\r\n" + LENGTH), 400, "INVALID_REQUEST", id="a control character"),
        pytest.param(post(b"no colon\r\n" + LENGTH), 400, "INVALID_REQUEST", id="a header without a colon"),
        pytest.param(post(b": empty\r\n" + LENGTH), 400, "INVALID_REQUEST", id="a header without a name"),
        pytest.param(post(HOST + LENGTH), 400, "INVALID_REQUEST", id="two hosts"),
        pytest.param(b"GET /health HTTP/1.1\r\n\r\n", 400, "INVALID_REQUEST", id="no host"),
        pytest.param(b"GET /health HTTP/1.0\r\n\r\n", 400, "INVALID_REQUEST", id="no host in HTTP/1.0"),
        pytest.param(b"GET /health HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "INVALID_REQUEST", id="a host that is none"),
        pytest.param(b"GET http://localhost/ HTTP/1.1\r\n" + HOST + b"\r\n", 400, "INVALID_REQUEST", id="a whole URL"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 400, "INVALID_REQUEST", id="everything at once"),
        pytest.param(b"CONNECT localhost:1 HTTP/1.1\r\n" + HOST + b"\r\n", 400, "INVALID_REQUEST", id="a tunnel"),
        pytest.param(b"GET /health\r\n\r\n", 400, "INVALID_REQUEST", id="HTTP/0.9"),
        pytest.param(b"GET\r\n\r\n", 400, "INVALID_REQUEST", id="a method alone"),
        pytest.param(b"\r\n\r\n", 400, "INVALID_REQUEST", id="nothing"),
        pytest.param(b"GET  /health HTTP/1.1\r\n", 400, "INVALID_REQUEST", id="two spaces"),
        pytest.param(b"GET /he alth HTTP/1.1\r\n", 400, "INVALID_REQUEST", id="a space in the path"),
        pytest.param(b"GET /\xff HTTP/1.1\r\n", 400, "INVALID_REQUEST", id="a path that is no ASCII"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", 400, "INVALID_REQUEST", id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "INVALID_REQUEST", id="HTTP/2"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", 505, "INVALID_REQUEST", id="a version to come"),
        pytest.param(b"BREW /pot HTTP/1.1\r\n" + HOST + b"\r\n", 405, "METHOD_NOT_ALLOWED", id="another method"),
        pytest.param(b"GET /" + b"x" * 70_000, 414, "INVALID_REQUEST", id="an endless path"),
        pytest.param(GET + b"X: " + b"x" * 70_000, 431, "INVALID_REQUEST", id="an endless header"),
        pytest.param(GET + b"X: x\r\n" * 200 + b"\r\n", 431, "INVALID_REQUEST", id="many headers"),
        pytest.param(post(LENGTH + b"Origin: https://elsewhere.example\r\n"), 403, "FORBIDDEN", id="another site"),
        pytest.param(post(LENGTH + b"Origin: null\r\n"), 403, "FORBIDDEN", id="a page of no site"),
    ],
)
def test_what_is_no_plain_request_is_refused_in_the_houses_shape_and_its_connection_ends(
    server: Server, service: FakeService, request_bytes: bytes, status: int, code: str
) -> None:
    with connected(server) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        assert told(all_of(connection)) == (status, code)
    assert service.calls == []


@pytest.fixture
def server(service: FakeService) -> Any:
    with serving(limited(service, header_seconds=20.0)) as made:
        yield made


def test_a_second_request_before_the_answer_to_the_first_is_not_looked_at(server: Server, service: FakeService) -> None:
    raw = talk(server, post(LENGTH) + post(LENGTH) + post(LENGTH))
    assert raw.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in raw.lower()
    assert [name for name, *_ in service.calls] == ["QUERY"]


def test_a_request_that_hides_in_the_body_of_another_is_part_of_that_body(server: Server, service: FakeService) -> None:
    hidden = post(LENGTH)
    raw = talk(server, post(b"Connection: close\r\nContent-Length: %d\r\n" % len(hidden), hidden))
    assert b"INVALID_JSON" in raw
    assert service.calls == []


def test_a_client_that_ends_its_side_after_the_request_gets_its_answer(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(post(LENGTH))
        connection.shutdown(socket.SHUT_WR)
        assert all_of(connection).startswith(b"HTTP/1.1 200")


def test_a_body_that_ends_early_is_refused(server: Server, service: FakeService) -> None:
    with connected(server) as connection:
        connection.sendall(post(LENGTH, BODY[:5]))
        connection.shutdown(socket.SHUT_WR)
        assert told(all_of(connection)) == (400, "INVALID_REQUEST")
    assert service.calls == []


def test_a_head_that_trickles_in_is_told_so_and_a_silent_connection_ends(service: FakeService) -> None:
    with serving(limited(service, header_seconds=0.3)) as server:
        assert told(talk(server, GET)) == (408, "REQUEST_TIMEOUT")
        assert talk(server, b"") == b""


def test_the_seconds_of_a_head_are_those_of_all_its_bytes(service: FakeService) -> None:
    """Each byte comes in time; the head does not."""
    with serving(limited(service, header_seconds=0.5)) as server, connected(server) as connection:
        answered = threading.Event()
        answer: list[bytes] = []

        def read() -> None:
            answer.append(all_of(connection))
            answered.set()

        reader = threading.Thread(target=read)
        reader.start()
        connection.sendall(GET + b"X: ")
        while not answered.wait(0.05):
            try:
                connection.sendall(b"x")
            except OSError:
                break
        reader.join()
        assert told(answer[0]) == (408, "REQUEST_TIMEOUT")


def test_a_body_that_trickles_in_is_told_so(service: FakeService) -> None:
    with serving(limited(service, body_seconds=0.3)) as server:
        assert told(talk(server, post(LENGTH, BODY[:-1]))) == (408, "REQUEST_TIMEOUT")
    assert service.calls == []


def test_a_connection_that_is_done_is_ended_after_a_while(service: FakeService) -> None:
    with serving(limited(service, idle_seconds=1)) as server:
        assert talk(server, GET + b"\r\n").startswith(b"HTTP/1.1 200")


def test_a_client_that_never_reads_its_answer_is_cut_off(service: FakeService) -> None:
    service.known["default.users"].rows = [{"text": "x" * 1_000_000} for _ in range(30)]
    with serving(limited(service, answer_seconds=0.3)) as server, connected(server) as connection:
        connection.sendall(post(LENGTH))
        assert connection.recv(10) == b"HTTP/1.1 2"
        until(lambda: server.connections == 0)  # the client reads nothing more, and yet it ends
        assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.fixture
def without_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "GRACE_SECONDS", 0.0)


@pytest.mark.usefixtures("without_grace")
@pytest.mark.parametrize(
    ("half", "told_why"),
    [
        pytest.param(b"", False, id="nothing"),
        pytest.param(b"GET /he", True, id="a line"),
        pytest.param(GET, True, id="headers"),
        pytest.param(post(LENGTH, BODY[:-1]), True, id="a body"),
        pytest.param(post(CHUNKED, b"10\r\n{"), True, id="a chunk"),
    ],
)
def test_whoever_waits_longest_makes_room_for_the_next_connection(
    service: FakeService, half: bytes, told_why: bool
) -> None:
    with serving(limited(service, max_connections=8, header_seconds=600.0)) as server, ExitStack() as held:
        waiting = [held.enter_context(connected(server)) for _ in range(8)]
        for connection in waiting:
            connection.sendall(half)
        for _ in range(12):
            assert httpx.get(f"{server.url}/health", timeout=30).status_code == 200
            assert httpx.post(f"{server.url}/database", content=BODY, timeout=30).status_code == 200
        raw = all_of(waiting[0])
        assert told(raw) == (408, "REQUEST_TIMEOUT") if told_why else raw == b""


@pytest.mark.usefixtures("without_grace")
def test_a_crowd_that_comes_at_once_pushes_out_no_request_that_was_sent_whole(service: FakeService) -> None:
    whole: list[socket.socket] = []
    with ExitStack() as held:

        def crowd(server: Server) -> None:
            for number in range(300):
                connection = held.enter_context(connected(server))
                half = (b"", GET, post(LENGTH, BODY[:-1]))[number % 3]
                connection.sendall(half if number % 25 else post(LENGTH + b"Connection: close\r\n"))
                whole.extend([] if number % 25 else [connection])

        with serving(limited(service, max_connections=12, header_seconds=600.0), before=crowd):
            assert [all_of(connection)[:12] for connection in whole] == [b"HTTP/1.1 200"] * 12


def test_where_all_connections_are_at_work_the_next_one_is_told_to_come_again(service: FakeService) -> None:
    inside, go_on = threading.Semaphore(0), threading.Event()

    def wait(spec: object) -> None:
        inside.release()
        assert go_on.wait(60)

    service.before_query = wait
    with serving(limited(service, max_connections=3)) as server, ExitStack() as held:
        busy = [held.enter_context(connected(server)) for _ in range(3)]
        for connection in busy:
            connection.sendall(post(LENGTH + b"Connection: close\r\n"))
            assert inside.acquire(timeout=60)
        with connected(server) as late:
            assert told(all_of(late)) == (503, "SERVER_BUSY")
        go_on.set()
        assert all(all_of(connection).startswith(b"HTTP/1.1 200") for connection in busy)


def test_four_hundred_half_sent_requests_stop_nobody_else(server: Server) -> None:
    with ExitStack() as held, httpx.Client(base_url=server.url, timeout=30) as client:
        for number in range(400):
            connection = held.enter_context(connected(server))
            connection.sendall(GET if number % 2 else post(LENGTH, BODY[:-1]))
        assert client.get("/health").status_code == 200
        assert client.post("/database", content=BODY).json()["success"] is True
