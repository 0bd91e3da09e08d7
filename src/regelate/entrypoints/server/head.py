"""The bytes of a request up to its empty line, judged as they come.

h11 reads kindly: a line may end in a bare LF, be folded, or name its body's length twice. Two programs that read one
request differently are how a request is smuggled past the first of them, so what is not plain HTTP/1.1 is refused.
"""

from __future__ import annotations

import re

from regelate.errors import InvalidRequest
from regelate.settings.serving import ServeSettings

_END = b"\r\n\r\n"
_BROKEN = re.compile(rb"\x00|(?<!\r)\n|\r(?!\n|\Z)")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ (?P<target>[\x21-\x7e]+) HTTP/(?P<version>[0-9]\.[0-9])")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_VERSIONS = (b"1.0", b"1.1")


class Head:
    """Gathers one request's head; made anew for the next."""

    def __init__(self, limits: ServeSettings) -> None:
        self._limits = limits
        self._bytes = bytearray()
        self._has_line = False

    def __bool__(self) -> bool:
        return bool(self._bytes)

    def take(self, data: bytes) -> bytes | None:
        """Return all that has come, once the head is complete; what of the body came with it stands behind.

        Errors: InvalidRequest, 414 or 431 for one that is too long, 505 for another HTTP, 400 for all else.
        """
        seen = max(len(self._bytes) - 3, 0)  # the end may have begun in what came before
        self._bytes += data
        end = self._bytes.find(_END, seen)
        head = bytes(self._bytes) if end < 0 else bytes(self._bytes[: end + len(_END)])
        if _BROKEN.search(head, seen):
            raise _unreadable("a line that does not end in CR LF, or a NUL")
        if not self._has_line and b"\r\n" in head:
            _judge_line(head.partition(b"\r\n")[0])
            self._has_line = True
        most = self._limits.max_header_bytes
        if len(head) > most:
            what, status = ("headers are", 431) if self._has_line else ("request line is", 414)
            raise _no_request(f"the {what} longer than {most} bytes", status)
        if end < 0:
            return None
        _judge_fields(head[:end].split(b"\r\n")[1:], self._limits.max_headers)
        return bytes(self._bytes)


def _judge_line(line: bytes) -> None:
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise _unreadable("its first line is not METHOD /path HTTP/1.1")
    if found["version"] not in _VERSIONS:
        raise _no_request("send HTTP/1.1", 505)
    if not found["target"].startswith(b"/"):
        raise _unreadable("its target must be a path, such as /database")


def _judge_fields(lines: list[bytes], most: int) -> None:
    if len(lines) > most:
        raise _no_request(f"there are more than {most} headers", 431)
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            raise _unreadable("a header is folded over two lines")
        if _CONTROL.search(line):
            raise _unreadable("a header holds a control character")
    fields = [(name.lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise _unreadable("it says more than once how long its body is")
    if not all(map(_LENGTH.fullmatch, lengths)):
        raise _unreadable("the Content-Length is not one whole number")
    if any(value.lower() != b"chunked" for value in codings):
        raise _unreadable("of Transfer-Encoding only chunked is known")


def _unreadable(why: str) -> InvalidRequest:
    return _no_request(f"this is not an HTTP request that can be trusted: {why}", 400)


def _no_request(why: str, status: int) -> InvalidRequest:
    return InvalidRequest("INVALID_REQUEST", why, status=status)
