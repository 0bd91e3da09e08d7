"""Bytes on sockets: no HTTP, almost HTTP, two readings of one request, and clients that never finish."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.system.attack.attack import (
    BAD_REQUEST,
    BODY_SECONDS,
    CLOSED,
    FIELD,
    HEADER_SECONDS,
    MISSING,
    OK,
    UNKNOWN_FIELD,
    Attack,
    Bytes,
    Door,
)
from tests.system.attack.scene import Scene

SLOW = "408 REQUEST_TIMEOUT"
BUSY = "503 SERVER_BUSY"
BODY = json.dumps({"operation": "HEALTH_CHECK"}).encode()
HOST = b"Host: localhost\r\n"
POST = b"POST /database HTTP/1.1\r\n" + HOST
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
INNER = POST + LENGTH + b"\r\n" + BODY
REFUSED: dict[str, bytes] = {
    "two lengths": POST + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY,
    "one length twice": POST + LENGTH + LENGTH + b"\r\n" + BODY,
    "a list of lengths": POST + b"Content-Length: 5, 28\r\n\r\n" + BODY,
    "a length and chunks": POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
    "chunks and a length": POST + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
    "chunks twice": POST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
    "chunks in odd case, and a length": POST + b"tRANSFER-eNCODING: CHUNKED\r\n" + LENGTH + b"\r\n" + CHUNKS,
    "gzip, chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunked, identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKS,
    "a coding with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
    "a coding in a folded line": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + BODY,
    "a signed length": POST + b"Content-Length: +28\r\n\r\n" + BODY,
    "a hexadecimal length": POST + b"Content-Length: 0x1c\r\n\r\n" + BODY,
    "a length with an underscore": POST + b"Content-Length: 2_8\r\n\r\n" + BODY,
    "a length in another script": POST + "Content-Length: \u0662\u0668\r\n\r\n".encode() + BODY,
    "a length of 5,000 digits": POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + BODY,
    "a chunk of a negative size": POST + CHUNKED + b"\r\n-1\r\nx\r\n0\r\n\r\n",
    "a chunk of no size": POST + CHUNKED + b"\r\nzz\r\nx\r\n0\r\n\r\n",
    "a chunk of 2^64": POST + CHUNKED + b"\r\nffffffffffffffffff\r\nx",
    "a chunk without its end": POST + CHUNKED + b"\r\n2\r\n{}XX0\r\n\r\n",
    "chunks by bare LFs": POST + CHUNKED + b"\r\n" + CHUNKS.replace(b"\r\n", b"\n"),
    "bare LFs": INNER.replace(b"\r\n", b"\n"),
    "a bare CR": POST + b"X: a\rContent-Length: 3\r\n\r\n",
    "NUL in a header": POST + b"X: a\0b\r\n" + LENGTH + b"\r\n" + BODY,
    "NUL in the path": b"POST /data\0base HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + BODY,
    "a header without a colon": POST + b"nothing\r\n" + LENGTH + b"\r\n" + BODY,
    "a header without a name": POST + b": x\r\n" + LENGTH + b"\r\n" + BODY,
    "a folded line": POST + b"X: a\r\n\tb\r\n" + LENGTH + b"\r\n" + BODY,
    "two hosts": POST + b"Host: evil.example\r\n" + LENGTH + b"\r\n" + BODY,
    "no host": b"POST /database HTTP/1.1\r\n" + LENGTH + b"\r\n" + BODY,
    "a whole URL": b"POST http://evil.example/database HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + BODY,
    "a tunnel": b"CONNECT 169.254.169.254:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "OPTIONS *": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "a space in the path": b"GET /he alth HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path that is no ASCII": b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "SMTP": b"EHLO localhost\r\n",
    "a Redis command": b"*1\r\n$8\r\nFLUSHALL\r\n",
    "nothing but line ends": b"\r\n" * 1000,
    "a megabyte of zeros": b"\0" * 1_000_000,
}
OTHERS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ("505 INVALID_REQUEST",)),
    "HTTP/9.9": (b"GET / HTTP/9.9\r\n" + HOST + b"\r\n", ("505 INVALID_REQUEST",)),
    "an endless path": (b"GET /" + b"x" * 200_000, ("414 INVALID_REQUEST", CLOSED)),
    "an endless header": (POST + b"X: " + b"x" * 200_000, ("431 INVALID_REQUEST", CLOSED)),
    "10,000 headers": (POST + b"X: y\r\n" * 10_000 + b"\r\n", ("431 INVALID_REQUEST", CLOSED)),
    "an endless method": (b"A" * 200_000, ("414 INVALID_REQUEST", BAD_REQUEST, CLOSED)),
    "a method of nobody": (b"BREW /database HTTP/1.1\r\n" + HOST + b"\r\n", ("405 METHOD_NOT_ALLOWED",)),
    "no length": (POST + b"\r\n" + BODY, ("411 LENGTH_REQUIRED",)),
    "ten gigabytes": (POST + b"Content-Length: 10000000000\r\n\r\n", ("413 PAYLOAD_TOO_LARGE",)),
    "ten gigabytes in chunks": (POST + CHUNKED + b"\r\n2540be400\r\n" + b"x" * 100_000, ("413 PAYLOAD_TOO_LARGE", BAD_REQUEST, SLOW, CLOSED)),
    "300,000 chunks of one byte": (POST + CHUNKED + b"\r\n" + b"1\r\n \r\n" * 300_000, (SLOW, "413 PAYLOAD_TOO_LARGE", BAD_REQUEST, CLOSED)),
    "chunks with endless extensions": (POST + CHUNKED + b"\r\n1;" + b"x" * 200_000, (BAD_REQUEST, "431 INVALID_REQUEST", SLOW, CLOSED)),
    "endless trailers": (POST + CHUNKED + b"\r\n" + CHUNKS[:-2] + b"X: y\r\n" * 20_000, (BAD_REQUEST, "431 INVALID_REQUEST", CLOSED, OK)),
    "a request behind a request": (INNER + INNER + INNER, (OK,)),
    "a request hidden in a body": (POST + b"Content-Length: 5\r\n\r\n" + INNER, ("400 INVALID_JSON", BAD_REQUEST)),
    "a body longer than its length": (POST + LENGTH + b"\r\n" + BODY + b"GARBAGE", (OK,)),
    "chunks with an extension": (POST + CHUNKED + b"\r\n%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY), (OK, BAD_REQUEST)),
    "a continue that is waited for": (POST + LENGTH + b"Expect: 100-continue\r\n\r\n" + BODY, (OK, "100")),
}  # fmt: skip
HALVES: dict[str, bytes] = {
    "a head": b"POST /data",
    "headers": POST + b"X: y\r\n",
    "a body": POST + LENGTH + b"\r\n" + BODY[:5],
    "a chunk": POST + CHUNKED + b"\r\n10\r\n{",
}
LATE_LIMIT = HEADER_SECONDS + BODY_SECONDS
ENDED = (SLOW, CLOSED, BUSY)
CROWDS = (50, 400)


def attacks(_: Scene) -> Iterator[Attack]:
    for name, data in REFUSED.items():
        yield _wire("Malformed HTTP", name, Bytes(pieces=(data,), half_close=True), BAD_REQUEST)
    for name, (data, allowed) in OTHERS.items():
        yield _wire("Malformed HTTP", name, Bytes(pieces=(data,)), *allowed)
    for name, data in HALVES.items():
        yield _wire("Slow clients", f"{name}, then nothing", Bytes(pieces=(data,)), SLOW, CLOSED)
        broken = Bytes(pieces=(data,), half_close=True)
        yield _wire("Slow clients", f"{name}, then the end", broken, BAD_REQUEST, CLOSED, "400 INVALID_JSON")
    yield _wire("Slow clients", "nothing at all", Bytes(pieces=(b"",)), SLOW, CLOSED)
    drip = Bytes(pieces=(POST, *(b"X-%d: y\r\n" % n for n in range(40))), pause=0.2)
    yield _wire("Slow clients", "a header every 0.2 s", drip, SLOW, CLOSED)
    body = Bytes(pieces=(POST + b"Content-Length: 100000\r\n\r\n", *([b"x"] * 40)), pause=0.2)
    yield _wire("Slow clients", "a byte of a body every 0.2 s", body, SLOW, CLOSED)
    chunks = Bytes(pieces=(POST + CHUNKED + b"\r\n", *([b"1\r\nx\r\n"] * 40)), pause=0.2)
    yield _wire("Slow clients", "a chunk every 0.2 s", chunks, SLOW, CLOSED)
    for copies in CROWDS:
        for name, data in HALVES.items():
            yield _wire("Slow clients", f"{name}, then nothing", Bytes(pieces=(data,)), *ENDED, copies=copies)
    crowd = Bytes(pieces=(INNER,))
    yield _wire("Slow clients", "whole requests", crowd, OK, BUSY, CLOSED, copies=150)
    more = (FIELD, MISSING, UNKNOWN_FIELD, "400 INVALID_JSON", BAD_REQUEST)
    large = POST + b"Content-Length: 6000000\r\n\r\n" + b"[" * 6_000_000
    yield _wire("Slow clients", "6 MB of brackets", Bytes(pieces=(large,)), *more, *ENDED, copies=12)


def _wire(part: str, name: str, wanted: Bytes, *allowed: str, copies: int = 1) -> Attack:
    return Attack(
        part=part,
        name=name,
        door=Door.WIRE,
        request=wanted,
        allowed=frozenset(allowed),
        limit=LATE_LIMIT,
        copies=copies,
    )
