"""A small S3 in memory, in a process of its own: `python -m benchmarks.object_store SECONDS` prints its address.

Once `/counted` was asked for the first time, every request takes so many seconds before it is answered, as a store
across a network does. `/counted` says what came since it was asked before. What COMPACT needs of S3 and no more:
nothing here checks who asks.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

OBJECTS: dict[str, bytes] = {}
COUNTED: Counter[str] = Counter()
DELAY_SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0


class Store(BaseHTTPRequestHandler):
    protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True
    delay_seconds = 0.0

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()  # a client that asks before it sends waits a second for it
        return True

    def do_GET(self) -> None:
        key = unquote(urlsplit(self.path).path)
        if key == "/counted":
            self.reply(200, json.dumps(COUNTED).encode())
            COUNTED.clear()
            Store.delay_seconds = DELAY_SECONDS
            return
        content = OBJECTS.get(key)
        self.waited()
        if content is None:
            self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if not asked:
            self.reply(200, content, content)
            return
        low, _, high = asked.partition("-")
        first = int(low) if low else max(len(content) - int(high), 0)
        last = min(int(high), len(content) - 1) if low and high else len(content) - 1
        self.reply(206, content[first : last + 1], content, f"bytes {first}-{last}/{len(content)}")

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.waited()
        OBJECTS[unquote(urlsplit(self.path).path)] = content
        self.reply(200, b"", content)

    def do_DELETE(self) -> None:
        self.waited()
        OBJECTS.pop(unquote(urlsplit(self.path).path), None)
        self.reply(204, b"")

    def waited(self) -> None:
        COUNTED[f"{self.command} {'data' if self.path.endswith('.parquet') else 'metadata'}"] += 1
        time.sleep(Store.delay_seconds)

    def reply(self, status: int, body: bytes, whole: bytes | None = None, content_range: str = "") -> None:
        self.send_response_only(status)
        if whole is not None:
            self.send_header("ETag", f'"{hashlib.md5(whole, usedforsecurity=False).hexdigest()}"')
            self.send_header("Last-Modified", formatdate(usegmt=True))
        if content_range:
            self.send_header("Content-Range", content_range)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        return


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hangs up in the midst of an object: Spark reads so."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Store)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
