"""The tables of a SQLite catalog behind the REST protocol, in this process, and what a test lets go wrong on the way.

Only what a client of existing tables asks for: the configuration, what there is, a table, a commit. As a REST server
does, it checks the requirements of the specification, chooses the metadata file itself, and refuses by a status.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest


@dataclass
class Reply:
    """What a client is told in the place of what happened. `landed`: the commit is carried out all the same.

    `status` 0: the connection is dropped without a word.
    """

    status: int
    landed: bool = False
    before: Callable[[], object] = lambda: None
    """What others do just before the request is looked at."""
    late: bool = False
    """The request is still under way; `arrive` lets it come in."""
    passes: bool = False
    """The request is served and answered as it should be; only `before` is of interest."""


@dataclass
class RestStub:
    """`commits` and `loads`: what the next requests meet, one each; None lets one through."""

    catalog: SqlCatalog
    uri: str = ""
    commits: list[Reply | None] = field(default_factory=list)
    loads: list[Reply | None] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    """What the server says of a table's storage."""
    under_way: list[tuple[tuple[str, str], bytes]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    """While it is set, requests for tables are accepted and never answered."""
    hung: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if path == "/v1/config":
            return 200, {"defaults": {}, "overrides": {}}
        self._hang()
        match path.split("/")[2:]:
            case ["namespaces"]:
                return 200, {"namespaces": [list(found) for found in self.catalog.list_namespaces()]}
            case ["namespaces", namespace, "tables"]:
                found = self.catalog.list_tables(namespace)
                return 200, {"identifiers": [{"namespace": list(t[:-1]), "name": t[-1]} for t in found]}
            case [_, namespace, _, name]:
                return self._table(method, (namespace, name), body)
        return 404, error(404)

    def _table(self, method: str, ident: tuple[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        reply = self._next(self.commits if method == "POST" else self.loads)
        if reply is not None:
            reply.before()
            if reply.landed and self.silent.is_set():
                self._commit(ident, body)
            self._hang()
            if reply.late:
                self.under_way.append((ident, body))
            if reply.passes:
                reply = None
            elif not reply.landed:
                return reply.status, error(reply.status)
        told = self._commit(ident, body) if method == "POST" else self._load(ident)
        return told if reply is None else (reply.status, error(reply.status))

    def arrive(self) -> int:
        """Let the oldest request under way reach the catalog, and return what its sender would be told."""
        return self._commit(*self.under_way.pop(0))[0]

    def _hang(self) -> None:
        if self.silent.is_set():
            self.hung.set()
            self.closed.wait()

    def _next(self, replies: list[Reply | None]) -> Reply | None:
        return replies.pop(0) if replies else None

    def _load(self, ident: tuple[str, str]) -> tuple[int, dict[str, Any]]:
        try:
            table = self.catalog.load_table(ident)
        except NoSuchTableError:
            return 404, error(404)
        metadata = json.loads(table.metadata.model_dump_json())
        return 200, {"metadata-location": table.metadata_location, "metadata": metadata, "config": self.config}

    def _commit(self, ident: tuple[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        request = CommitTableRequest.model_validate_json(body)
        try:
            table = self.catalog.load_table(ident)
            self.catalog.commit_table(table, request.requirements, request.updates)
        except NoSuchTableError:
            return 404, error(404)
        except CommitFailedException as refused:
            return 409, error(409, str(refused))
        except ValueError as refused:
            return 400, error(400, str(refused))
        return self._load(ident)


def error(status: int, message: str = "as the test asked") -> dict[str, Any]:
    return {"error": {"message": message, "type": f"Status{status}", "code": status}}


@contextmanager
def rest_stub(catalog: SqlCatalog) -> Iterator[RestStub]:
    """Serve on a free port of loopback."""
    stub = RestStub(catalog)

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.partition("?")[0]
            stub.asked.append(f"{self.command} {path}")
            status, told = stub.answer(self.command, path, body)
            if stub.closed.is_set() or not status:
                self.close_connection = True
                return
            text = json.dumps(told).encode()
            self.send_response_only(status, "told")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = handle_any  # noqa: N815

        def log_message(self, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="rest stub", daemon=True)
    thread.start()
    stub.uri = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stub
    finally:
        stub.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
