"""A store's front door on loopback: counts what passes, takes its time, and breaks what a test asks it to break."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding")
Fault = Callable[["Exchange"], None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    method: str
    key: str
    query: dict[str, list[str]]
    headers: dict[str, str]

    @property
    def kind(self) -> str:
        """GET, HEAD, PUT, ... of one object; LIST of many; POST and PUT of uploads as such."""
        if self.method == "GET" and ("list-type" in self.query or "uploads" in self.query):
            return "LIST"
        return f"{self.method} upload" if {"uploads", "uploadId"} & self.query.keys() else self.method


@dataclass
class Exchange:
    """One request at the door, with the means to answer it, rightly or not."""

    asked: Asked
    body: bytes
    door: Door
    handler: BaseHTTPRequestHandler

    def forward(self) -> tuple[int, list[tuple[str, str]], bytes]:
        split = urlsplit(self.door.target)
        connection = http.client.HTTPConnection(split.hostname or "", split.port, timeout=30)
        try:
            connection.request(self.asked.method, self.handler.path, self.body, self.asked.headers)
            answer = connection.getresponse()
            headers = [(n, v) for n, v in answer.getheaders() if n.lower() not in HOP_BY_HOP]
            return answer.status, headers, answer.read()
        finally:
            connection.close()

    def answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, *, sent: int | None = None, length: int = -1
    ) -> None:
        """Send an answer; `sent` bytes of the body only, under a Content-Length of `length` or the body's own."""
        self.handler.send_response_only(status)
        for name, value in headers:
            if name.lower() != "content-length":
                self.handler.send_header(name, value)
        if self.asked.method == "HEAD":
            length = next((int(v) for n, v in headers if n.lower() == "content-length"), 0)
        self.handler.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.handler.end_headers()
        self.handler.wfile.write(body[:sent])
        if sent is not None:
            self.handler.close_connection = True

    def drop(self) -> None:
        """End the connection with a reset."""
        self.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.handler.connection.close()
        self.handler.close_connection = True


@dataclass
class Rule:
    matches: Callable[[Asked], bool]
    fault: Fault
    times: int
    met: int = 0


@dataclass
class Door:
    """Stands between a client and `target`."""

    target: str
    url: str = ""
    delay_seconds: float = 0.0
    asked: list[Asked] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    at_once: int = 0
    most_at_once: int = 0

    def breaks(self, matches: Callable[[Asked], bool], fault: Fault, times: int = 1_000_000) -> Rule:
        """Let a fault meet the next so many requests that match."""
        rule = Rule(matches, fault, times)
        with self.lock:
            self.rules.append(rule)
        return rule

    def heal(self) -> None:
        with self.lock:
            self.rules.clear()
            self.asked.clear()
            self.most_at_once = 0

    def count(self, ending: str = "") -> Counter[str]:
        """Return how many requests came for objects whose keys end so, by kind."""
        with self.lock:
            return Counter(a.kind for a in self.asked if a.key.endswith(ending))

    def meet(self, exchange: Exchange) -> None:
        with self.lock:
            self.asked.append(exchange.asked)
            rule = next((r for r in self.rules if r.met < r.times and r.matches(exchange.asked)), None)
            if rule is not None:
                rule.met += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            time.sleep(self.delay_seconds)
            if rule is not None:
                rule.fault(exchange)
            else:
                exchange.answer(*exchange.forward())
        finally:
            with self.lock:
                self.at_once -= 1


@contextmanager
def door_before(target: str) -> Iterator[Door]:
    """Open a door on a free port of loopback."""
    door = Door(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True

        def handle_expect_100(self) -> bool:
            super().handle_expect_100()
            self.wfile.flush()  # a client that asks before it sends waits a second for it
            return True

        def handle_any(self) -> None:
            split = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = Asked(
                method=self.command,
                key=unquote(split.path).lstrip("/").partition("/")[2],
                query=parse_qs(split.query, keep_blank_values=True),
                headers=dict(self.headers),
            )
            try:
                door.meet(Exchange(asked, body, door, self))
            except (ConnectionError, OSError):  # the client went away, as a fault may want it to
                self.close_connection = True

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815

        def finish(self) -> None:
            try:
                super().finish()
            except (OSError, ValueError):
                return

        def log_message(self, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="door", daemon=True)
    thread.start()
    door.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield door
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def error(status: int, code: str) -> Fault:
    """Answer with an S3 error."""
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as the test asked</Message></Error>".encode()
    return lambda exchange: exchange.answer(status, [("Content-Type", "application/xml")], text)


def reset(exchange: Exchange) -> None:
    exchange.drop()


def reset_amid_the_body(exchange: Exchange) -> None:
    status, headers, body = exchange.forward()
    exchange.answer(status, headers, body, sent=len(body) // 2, length=len(body))
    exchange.handler.wfile.flush()
    exchange.drop()


def drip(exchange: Exchange) -> None:
    """Send ten bytes a second until the client has had enough."""
    status, headers, body = exchange.forward()
    exchange.answer(status, headers, body, sent=0, length=len(body))
    for byte in body[:100]:
        exchange.handler.wfile.write(bytes([byte]))
        exchange.handler.wfile.flush()
        time.sleep(0.1)


def cut_short(exchange: Exchange) -> None:
    """End the body before the length that was promised."""
    status, headers, body = exchange.forward()
    exchange.answer(status, headers, body, sent=len(body) // 2, length=len(body))


def an_older_state(exchange: Exchange) -> None:
    """Answer whole and in itself consistent, with fewer bytes than the object has."""
    status, headers, body = exchange.forward()
    exchange.answer(status, headers, body[: len(body) // 2])


def another_range(exchange: Exchange) -> None:
    """Answer a request for a range with the one that begins a byte earlier or later."""
    low, _, high = exchange.asked.headers.get("Range", "").removeprefix("bytes=").partition("-")
    if low:
        shift = -1 if int(low) else 1
        exchange.asked.headers["Range"] = f"bytes={int(low) + shift}-{int(high) + shift if high else ''}"
    exchange.answer(*exchange.forward())


def the_whole_object(exchange: Exchange) -> None:
    """Ignore the range that was asked for."""
    exchange.asked.headers.pop("Range", None)
    exchange.answer(*exchange.forward())


def gone(exchange: Exchange) -> None:
    exchange.answer(404, [], b"")
