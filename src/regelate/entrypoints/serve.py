"""`regelate serve`: the same dispatch behind a plain HTTP server of the standard library, one thread per connection.

Every route of http.py, and two of its own. The Lambda emulator's path takes an event and answers as Lambda would, and
so hands anybody the trust of a direct invoke; `/metrics` names every tenant's tables. Both exist only where `auth` is
none.
"""

from __future__ import annotations

import base64
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from regelate.entrypoints.answering import new_request_id
from regelate.entrypoints.api.responses import failed
from regelate.entrypoints.aws.body import drain, parse_body, read_body
from regelate.entrypoints.dispatch import dispatch
from regelate.entrypoints.job_workers import DueJobs, JobWorkers
from regelate.entrypoints.log import adopt_libraries, forget_subject, logger, redacted, stack_of
from regelate.errors import InvalidRequest, NotAllowed, RegelateError
from regelate.service.facade import Service

METRICS_PATH = "/metrics"
INVOCATIONS_PATH = "/2015-03-31/functions/function/invocations"
IDLE_SECONDS = 60.0
"""How long a connection may say nothing, between requests or within one."""
_SHOWN_CHARACTERS = 200
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_JSON = {"Content-Type": "application/json"}
_METRICS = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What an operation may ask of Lambda's context."""

    aws_request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    status: int
    headers: Mapping[str, str]
    data: bytes


class Server(ThreadingHTTPServer):
    """One service on one socket. `stop` lets every request under way be answered, then returns."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, service: Service) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.service = service
        if service.settings.auth == "none":
            service.process.metrics_text()  # from now on they are kept
        self.stopping = False
        self._idle: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((host, port), _Connection)

    @property
    def url(self) -> str:
        """Return where clients find it; with port 0 the port that the system chose."""
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if self.address_family is socket.AF_INET6 else f"http://{host!s}:{port}"

    def stop(self) -> None:
        """Take no more connections, end the idle ones, wait for the busy ones. Call it from another thread."""
        self.shutdown()
        with self._lock:
            self.stopping = True
            for connection in self._idle:
                with suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RD)
        self.server_close()

    def waits(self, connection: socket.socket) -> bool:
        """Note that a connection waits for its next request; false when there will be none."""
        with self._lock:
            if not self.stopping:
                self._idle.add(connection)
            return not self.stopping

    def works(self, connection: socket.socket) -> None:
        with self._lock:
            self._idle.discard(connection)

    def shutdown_request(self, request: Any) -> None:
        self.works(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what broke a connection; a client that hung up is no fault of ours."""
        fault = sys.exception()
        if fault is not None and not isinstance(fault, ConnectionError | TimeoutError):
            logger.error("connection failed", stack=stack_of(fault))


class _Connection(BaseHTTPRequestHandler):
    """Requests of one connection, one after the other."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "regelate"
    sys_version = ""
    wbufsize = -1
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS

    def handle_one_request(self) -> None:
        if self.server.waits(self.connection):
            super().handle_one_request()
        else:
            self.close_connection = True

    def _request(self) -> None:
        self.server.works(self.connection)
        forget_subject()
        started, path = time.monotonic(), urlsplit(self.path).path
        limit = self.server.service.settings.limits.max_request_bytes
        try:
            self._check_origin()
            body = read_body(self, limit)
        except RegelateError as fault:
            reply = _refused(fault)
            self.close_connection = True
            self._send(reply)
            self.wfile.flush()
            drain(self.connection, limit)
        else:
            reply = self._reply(path, body)
            self._send(reply)
        logger.info(
            "access",
            method=self.command,
            path=redacted(path, _SHOWN_CHARACTERS),
            status=reply.status,
            bytes=len(reply.data),
            client=self.client_address[0],
            milliseconds=round((time.monotonic() - started) * 1000, 1),
        )

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _request  # noqa: N815  the names are http.server's

    def handle_expect_100(self) -> bool:
        """Say nothing yet: `read_body` asks for the body once it has judged the length."""
        return True

    def _check_origin(self) -> None:
        """Refuse what a page of another site sends from a browser on this machine: there may be no other guard."""
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != self.headers.get("Host"):
            raise NotAllowed("FORBIDDEN", "requests from pages of other sites are refused")

    def _reply(self, path: str, body: bytes) -> _Reply:
        service = self.server.service
        if service.settings.auth == "none":
            if path == INVOCATIONS_PATH and self.command == "POST":
                return _invoked(service, body)
            if path == METRICS_PATH and self.command in ("GET", "HEAD"):
                return _Reply(status=200, headers=_METRICS, data=service.process.metrics_text().encode())
        event = _event(self, path, body)
        answered = dispatch(event, _Context(aws_request_id=new_request_id()), lambda: service)
        return _Reply(status=answered["statusCode"], headers=answered["headers"], data=answered["body"].encode())

    def _send(self, reply: _Reply) -> None:
        if self.server.stopping:
            self.close_connection = True
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what http.server itself refuses (a malformed request line, too many headers) in the house's shape."""
        self.close_connection = True
        self.request_version = self.protocol_version  # of a line without one, http.server makes HTTP/0.9: no headers
        fault = InvalidRequest("INVALID_REQUEST", "this is not an HTTP request that can be read", status=code)
        if code == 501:
            fault = InvalidRequest("METHOD_NOT_ALLOWED", f"methods are {', '.join(_METHODS)}", status=405)
        self._send(_refused(fault))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is http.server's
        """Say nothing: each request has its own log line."""


def _refused(fault: RegelateError) -> _Reply:
    text = json.dumps(failed(fault, new_request_id()), ensure_ascii=False)
    return _Reply(status=fault.status, headers=_JSON, data=text.encode())


def _event(request: BaseHTTPRequestHandler, path: str, body: bytes) -> dict[str, Any]:
    """Return the event that an HTTP API would make of this request, payload format 2.0."""
    request_id = new_request_id()
    try:
        text, encoded = body.decode(), False
    except UnicodeDecodeError:
        text, encoded = base64.b64encode(body).decode(), True
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": urlsplit(request.path).query,
        "headers": {name.lower(): value for name, value in request.headers.items()},
        "requestContext": {
            "http": {
                "method": request.command,
                "path": path,
                "protocol": request.request_version,
                "sourceIp": request.client_address[0],
                "userAgent": request.headers.get("User-Agent", ""),
            },
            "requestId": request_id,
            "routeKey": "$default",
            "stage": "$default",
        },
        "body": text,
        "isBase64Encoded": encoded,
    }


def _invoked(service: Service, body: bytes) -> _Reply:
    """Answer as Lambda's invoke does: the function's result, or 200 with the error's name and its header."""
    limits = service.settings.limits
    try:
        event = parse_body(body, max_bytes=limits.max_request_bytes, max_nesting=limits.max_nesting)
    except RegelateError as fault:
        return _refused(fault)
    try:
        made = dispatch(event, _Context(aws_request_id=new_request_id()), lambda: service)
    except RegelateError as fault:
        made = {"errorMessage": str(fault), "errorType": type(fault).__name__}
        return _Reply(
            status=200, headers={**_JSON, "X-Amz-Function-Error": "Unhandled"}, data=json.dumps(made).encode()
        )
    return _Reply(status=200, headers=_JSON, data=json.dumps(made).encode())


def serve(
    host: str,
    port: int,
    service: Service,
    *,
    on_ready: Callable[[str], None] | None = None,
    jobs: DueJobs | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish what has arrived. Call it in the main thread. Raises OSError when the
    port is taken. `on_ready` gets the URL; a second signal ends the process at once. `jobs` are worked on beside.
    """
    server = Server(host, port, service)
    adopt_libraries()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stopper = threading.Thread(target=server.stop)

    def stop(number: int, frame: FrameType | None) -> None:
        for known, handler in before.items():
            signal.signal(known, handler)
        stopper.start()

    for number in before:
        signal.signal(number, stop)
    workers = None if jobs is None else JobWorkers(jobs)
    if on_ready is not None:
        on_ready(server.url)
    server.serve_forever(poll_interval=0.1)
    if workers is not None:
        workers.stop()
    stopper.join()
