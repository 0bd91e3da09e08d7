"""The body of an HTTP request off a socket: exactly as long as it says, and never longer than the limit."""

from __future__ import annotations

import re
import socket
from http.server import BaseHTTPRequestHandler

from regelate.entrypoints.body import too_large
from regelate.errors import InvalidRequest

_WITHOUT_BODY = ("GET", "HEAD", "DELETE", "OPTIONS")
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_DRAIN_SECONDS = 5.0
_DRAIN_FACTOR = 16


def read_body(request: BaseHTTPRequestHandler, max_bytes: int) -> bytes:
    """Return the body. After an error the connection cannot go on: what follows on it is no request.

    Errors: InvalidRequest: 411 LENGTH_REQUIRED (also for a chunked body), 413 PAYLOAD_TOO_LARGE, 400 INVALID_REQUEST.
    """
    length = _length(request)
    if length > max_bytes:
        raise too_large(max_bytes)
    if request.headers.get("Expect", "").lower() == "100-continue":
        request.send_response_only(100)
        request.end_headers()
        request.wfile.flush()
    body = request.rfile.read(length) if length else b""
    if len(body) < length:
        raise InvalidRequest("INVALID_REQUEST", f"the body ends after {len(body)} of {length} bytes")
    return body


def _length(request: BaseHTTPRequestHandler) -> int:
    lengths = request.headers.get_all("Content-Length", [])
    if "Transfer-Encoding" in request.headers or (not lengths and request.command not in _WITHOUT_BODY):
        raise InvalidRequest("LENGTH_REQUIRED", "send a Content-Length and the body in one piece", status=411)
    if len(set(lengths)) > 1 or not all(_LENGTH.fullmatch(text.strip()) for text in lengths):
        raise InvalidRequest("INVALID_REQUEST", "the Content-Length is not one whole number")
    return int(lengths[0]) if lengths else 0


def drain(connection: socket.socket, max_bytes: int) -> None:
    """Read away what a refused client still sends: closed at once, it would see a reset and not the answer."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(_DRAIN_SECONDS)
    left = max_bytes * _DRAIN_FACTOR
    try:
        while left > 0 and (piece := connection.recv(min(left, 65_536))):
            left -= len(piece)
    except OSError:  # it hung up, or says nothing more
        return
