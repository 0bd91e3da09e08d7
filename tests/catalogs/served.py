"""The built over a catalog server, and a connection to it that can be cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regelate.adapters.clock import SystemClock
from tests.system.faults.stack import Stack, stack_with

HOUR_SECONDS = 3600


class LaterClock(SystemClock):
    """The time of this machine, some hours later: retention is over, and nobody waits for it."""

    def __init__(self, hours: float) -> None:
        self._hours = hours

    def now_ms(self) -> int:
        return super().now_ms() + int(self._hours * HOUR_SECONDS * 1000)


def stack_on(folder: Path, catalog: Mapping[str, str], **section: object) -> Stack:
    """Return the program behind its handler, with this catalog as its only one."""
    return stack_with(folder, auth="none", tenants="*", catalogs={"served": dict(catalog)}, **section)


@contextmanager
def lossy(uri: str) -> Iterator[LossyProxy]:
    """Run a proxy in front of a catalog; it is stopped at the end."""
    proxy = LossyProxy(uri)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


class LossyProxy(ThreadingHTTPServer):
    """Passes every request on. As often as `cut_commits` says, a commit is passed on and its answer thrown away."""

    daemon_threads = True
    cut_commits = 0
    commits_cut = 0

    def __init__(self, uri: str) -> None:
        self.target = urlsplit(uri).netloc
        super().__init__(("127.0.0.1", 0), _Passing)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Passing(BaseHTTPRequestHandler):
    server: LossyProxy
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = HTTPConnection(self.server.target, timeout=60)
        try:
            plain = {name: text for name, text in self.headers.items() if name.lower() != "accept-encoding"}
            connection.request(self.command, self.path, body, plain)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        is_commit = self.command == "POST" and self.path.rsplit("/", 2)[-2:-1] == ["tables"]
        if is_commit and self.server.cut_commits:
            self.server.cut_commits -= 1
            self.server.commits_cut += 1
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name in ("Content-Type", "ETag"):
            if value := answer.getheader(name):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815  http.server asks for these names

    def log_message(self, *_: Any) -> None:
        """Say nothing: the tests' output is not a log."""
