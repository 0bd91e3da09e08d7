"""The ASGI application of `regelate serve`: request -> event -> dispatch in a thread -> answer.

Judged before the body is asked for: who is meant (`Host`), who sends (`Origin`), how much it will be.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from regelate.core.values import dataclass
from regelate.entrypoints.answering import new_request_id
from regelate.entrypoints.aws.body import LARGE_BODY_BYTES, parse_body, too_large
from regelate.entrypoints.dispatch import dispatch
from regelate.entrypoints.log import forget_subject, logger, stack_of
from regelate.entrypoints.server.connection import late
from regelate.entrypoints.server.fleet_page import FLEET_PATH, fleet_reply
from regelate.entrypoints.server.hosts import check_host
from regelate.entrypoints.server.lanes import Lane
from regelate.entrypoints.server.reply import JSON, Reply, log_access, refused
from regelate.errors import InvalidRequest, NotAllowed, RegelateError
from regelate.service.facade import Service

METRICS_PATH = "/metrics"
INVOCATIONS_PATH = "/2015-03-31/functions/function/invocations"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_WITHOUT_BODY = ("GET", "HEAD", "DELETE", "OPTIONS")
_QUICK_PATHS = ("/health", "/openapi.json", "/docs", METRICS_PATH)
_QUICK_FIELDS = {"operation", "request_id"}
_QUICK_BYTES = 1_000
_QUICK_THREADS = 4
_DRAIN_SECONDS = 5.0
_DRAIN_FACTOR = 16
_METRICS = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What an operation may ask of Lambda's context."""

    aws_request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    path: str
    query: str
    protocol: str
    headers: Mapping[str, str]
    client: str | None

    @classmethod
    def of(cls, scope: Message) -> _Request:
        return cls(
            method=scope["method"],
            path=scope["raw_path"].decode("ascii"),
            query=scope["query_string"].decode("ascii"),
            protocol=f"HTTP/{scope['http_version']}",
            headers={name.decode("ascii"): value.decode("latin-1") for name, value in scope["headers"]},
            client=scope["client"][0] if scope["client"] else None,
        )


class _HungUp(Exception):
    """There is nobody to answer."""


class Door:
    """One service for all connections."""

    def __init__(self, service: Service, names: frozenset[str]) -> None:
        settings = service.settings
        self._service = service
        self._names = names
        self._open = settings.auth == "none"
        self._limit = settings.limits.max_request_bytes
        self._body_seconds = settings.serve.body_seconds
        self._large_pieces = asyncio.Lock()
        self._work = Lane("requests", settings.serve.threads_for(settings.limits))
        self._quick = Lane("health", _QUICK_THREADS)

    @property
    def busy(self) -> int:
        """Return how many operations run now."""
        return self._work.busy + self._quick.busy

    def close(self) -> None:
        self._work.close()
        self._quick.close()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        forget_subject()
        started, request = time.monotonic(), _Request.of(scope)
        try:
            self._judge(request)
            body = await self._body(request, receive)
        except _HungUp:
            return
        except RegelateError as fault:
            reply = refused(fault)
            patient = fault.status != 408 and "expect" not in request.headers
            await _send_last(reply, send, receive if patient else None, self._limit * _DRAIN_FACTOR)
        else:
            reply = await self._reply(request, body)
            await _send(reply, send)
        log_access(reply, request.client, request.method, request.path, time.monotonic() - started)

    def _judge(self, request: _Request) -> None:
        check_host(request.headers.get("host"), self._names)
        if request.method not in METHODS:
            raise InvalidRequest("METHOD_NOT_ALLOWED", f"methods are {', '.join(METHODS)}", status=405)
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != request.headers["host"].lower():
            raise NotAllowed("FORBIDDEN", "requests from pages of other sites are refused")
        length = request.headers.get("content-length")
        if length is None and "transfer-encoding" not in request.headers and request.method not in _WITHOUT_BODY:
            raise InvalidRequest("LENGTH_REQUIRED", "send a Content-Length, or the body in chunks", status=411)
        if length is not None and int(length) > self._limit:
            raise too_large(self._limit)

    async def _body(self, request: _Request, receive: Receive) -> bytes:
        """Return the body; the first `receive` tells a client that asked first to go on."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_seconds):
                async for piece in _pieces(receive):
                    body += piece
                    if len(body) > self._limit:
                        raise too_large(self._limit)
                    if len(body) > LARGE_BODY_BYTES:
                        await self._turn_of_a_piece()
        except TimeoutError:
            raise late("body", self._body_seconds) from None
        return bytes(body)

    async def _turn_of_a_piece(self) -> None:
        """Let one piece of all large bodies be read in each round of the loop, in turns. A small request takes several
        rounds, and would wait for a piece of every large body in each.
        """
        async with self._large_pieces:
            await asyncio.sleep(0)

    async def _reply(self, request: _Request, body: bytes) -> Reply:
        lane = self._quick if _is_quick(request, body) else self._work
        try:
            return await lane.run(partial(self._answer, request, body))
        except RegelateError as fault:
            return refused(fault)
        except Exception as fault:  # noqa: BLE001  the caller gets an answer without a stack, the log gets the stack
            logger.error("request failed", stack=stack_of(fault))
            message = "an unexpected fault; report it, and look at the table before writing again"
            return refused(RegelateError("INTERNAL_ERROR", message))

    def _answer(self, request: _Request, body: bytes) -> Reply:
        forget_subject()
        service = self._service
        if self._open:
            if request.path == INVOCATIONS_PATH and request.method == "POST":
                return _invoked(service, body)
            if request.path == FLEET_PATH and request.method in ("GET", "HEAD"):
                return fleet_reply(service, request.query)
            if request.path == METRICS_PATH and request.method in ("GET", "HEAD"):
                return Reply(status=200, headers=_METRICS, data=service.process.metrics_text().encode())
        answered = dispatch(_event(request, body), _Context(aws_request_id=new_request_id()), lambda: service)
        return Reply(status=answered["statusCode"], headers=answered["headers"], data=answered["body"].encode())


def _is_quick(request: _Request, body: bytes) -> bool:
    """Say whether a request asks only for this process: it is not to wait behind the work of others."""
    if request.method in ("GET", "HEAD"):
        return request.path in _QUICK_PATHS
    if len(body) > _QUICK_BYTES:
        return False
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return False
    # Whatever else stands in it could make it another request: an event, for one.
    return isinstance(asked, dict) and asked.get("operation") == "HEALTH_CHECK" and asked.keys() <= _QUICK_FIELDS


async def _pieces(receive: Receive) -> Any:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _HungUp
        yield message["body"]
        more = message["more_body"]


async def _send(reply: Reply, send: Send, *, closing: bool = False, whole: bool = True) -> None:
    fields = [*reply.fields(), (b"connection", b"close")] if closing else reply.fields()
    await send({"type": "http.response.start", "status": reply.status, "headers": fields})
    await send({"type": "http.response.body", "body": reply.data, "more_body": not whole})


async def _send_last(reply: Reply, send: Send, receive: Receive | None, most: int) -> None:
    """Answer, and read away what the client still sends: closed at once, it would see a reset and not the answer."""
    await _send(reply, send, closing=True, whole=False)
    try:
        if receive is not None:
            async with asyncio.timeout(_DRAIN_SECONDS):
                async for piece in _pieces(receive):
                    most -= len(piece)
                    if most < 0:
                        break
    except (TimeoutError, _HungUp):
        pass
    await send({"type": "http.response.body", "body": b""})


def _event(request: _Request, body: bytes) -> dict[str, Any]:
    """Return the event that an HTTP API would make of this request, payload format 2.0."""
    try:
        text, encoded = body.decode(), False
    except UnicodeDecodeError:
        text, encoded = base64.b64encode(body).decode(), True
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": request.path,
        "rawQueryString": request.query,
        "headers": dict(request.headers),
        "requestContext": {
            "http": {
                "method": request.method,
                "path": request.path,
                "protocol": request.protocol,
                "sourceIp": request.client,
                "userAgent": request.headers.get("user-agent", ""),
            },
            "requestId": new_request_id(),
            "routeKey": "$default",
            "stage": "$default",
        },
        "body": text,
        "isBase64Encoded": encoded,
    }


def _invoked(service: Service, body: bytes) -> Reply:
    """Answer as Lambda's invoke does: the function's result, or 200 with the error's name and its header."""
    limits = service.settings.limits
    try:
        event = parse_body(body, max_bytes=limits.max_request_bytes, max_nesting=limits.max_nesting)
    except RegelateError as fault:
        return refused(fault)
    try:
        made = dispatch(event, _Context(aws_request_id=new_request_id()), lambda: service)
    except RegelateError as fault:
        made = {"errorMessage": str(fault), "errorType": type(fault).__name__}
        return Reply(status=200, headers={**JSON, "X-Amz-Function-Error": "Unhandled"}, data=json.dumps(made).encode())
    return Reply(status=200, headers=JSON, data=json.dumps(made).encode())
