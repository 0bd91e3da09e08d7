"""Bodies that are no request, and requests to paths and by methods that nobody serves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.system.attack.attack import (
    BAD_JSON,
    BAD_REQUEST,
    FIELD,
    FORBIDDEN,
    MISSING,
    NAME,
    NO_TABLE,
    OK,
    OPTION,
    UNKNOWN_FIELD,
    VICTIM,
    Attack,
    Post,
    post,
)
from tests.system.attack.scene import Scene

LARGE = "413 PAYLOAD_TOO_LARGE"
UNKNOWN = "400 UNKNOWN_OPERATION"
NOT_FOUND = "404 NOT_FOUND"
METHOD = "405 METHOD_NOT_ALLOWED"
NO_JOB = "404 JOB_NOT_FOUND"
EVENT = "400 UNKNOWN_EVENT"
MILLION = 1_000_000
BODIES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "nothing": (b"", (BAD_JSON, "411 LENGTH_REQUIRED")),
    "a space": (b" ", (BAD_JSON,)),
    "null": (b"null", (BAD_REQUEST,)),
    "a number": (b"1", (BAD_REQUEST,)),
    "a list": (b"[]", (BAD_REQUEST,)),
    "a text": (b'"x"', (BAD_REQUEST,)),
    "an empty object": (b"{}", (MISSING,)),
    "an object that ends early": (b'{"operation": "HEALTH_CHECK"', (BAD_JSON,)),
    "two objects": (b'{"operation": "HEALTH_CHECK"}{}', (BAD_JSON,)),
    "a comma too many": (b'{"operation": "HEALTH_CHECK",}', (BAD_JSON,)),
    "single quotes": (b"{'operation': 'HEALTH_CHECK'}", (BAD_JSON,)),
    "a comment": (b'{"operation": "HEALTH_CHECK" /* x */}', (BAD_JSON,)),
    "XML": (b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>', (BAD_JSON,)),
    "a pickle": (b"\x80\x04cos\nsystem\n(S'true'\ntR.", (BAD_JSON,)),
    "gzip": (b"\x1f\x8b\x08\x00" + b"\0" * 100, (BAD_JSON,)),
    "a byte order mark": (b'\xef\xbb\xbf{"operation": "HEALTH_CHECK"}', (BAD_JSON,)),
    "UTF-16": ('{"operation": "HEALTH_CHECK"}'.encode("utf-16"), (BAD_JSON,)),
    "Latin-1": (b'{"operation": "\xe9"}', (BAD_JSON,)),
    "overlong UTF-8": (b'{"operation": "\xc0\xaf"}', (BAD_JSON,)),
    "NUL": (b'{"operation": "\0"}', (BAD_JSON,)),
    "a key twice": (b'{"operation": "HEALTH_CHECK", "operation": "DROP_TABLE"}', (BAD_REQUEST,)),
    "a key twice by an escape": (b'{"operation": "HEALTH_CHECK", "operati\\u006fn": "DROP_TABLE"}', (BAD_REQUEST,)),
    "NaN": (b'{"operation": "HEALTH_CHECK", "x": NaN}', (FIELD,)),
    "Infinity": (b'{"operation": "HEALTH_CHECK", "x": -Infinity}', (FIELD,)),
    "1e400": (b'{"operation": "HEALTH_CHECK", "x": 1e400}', (FIELD,)),
    "1e-400": (b'{"operation": "HEALTH_CHECK", "x": 1e-400}', (FIELD,)),
    "an integer of a million digits": (b'{"operation": "HEALTH_CHECK", "x": ' + b"9" * MILLION + b"}", (FIELD,)),
    "a fraction of a million digits": (b'{"operation": "HEALTH_CHECK", "x": 0.' + b"9" * MILLION + b"}", (FIELD, UNKNOWN_FIELD)),
    "65 levels": (b"[" * 65 + b"]" * 65, (BAD_REQUEST,)),
    "three million levels": (b"[" * 3 * MILLION, (BAD_REQUEST,)),
    "three million levels, closed": (b"[" * 2 * MILLION + b"]" * 2 * MILLION, (BAD_REQUEST,)),
    "a million levels of objects": (b'{"a":' * MILLION, (BAD_REQUEST,)),
    "levels behind quotes": (b'{"a": "\\"", "b": ' + b"[" * 100_000 + b"}", (BAD_REQUEST,)),
    "two million empty lists": (b'{"operation": "HEALTH_CHECK", "x": [' + b"[]," * 1_900_000 + b"[]]}", (UNKNOWN_FIELD, FIELD)),
    "two million numbers": (b'{"operation": "HEALTH_CHECK", "x": [' + b"1," * 2_900_000 + b"1]}", (UNKNOWN_FIELD, FIELD)),
    "half a million keys": (
        b'{"operation": "HEALTH_CHECK", ' + b",".join(b'"%x":1' % i for i in range(500_000)) + b"}", (UNKNOWN_FIELD,)
    ),
    "a key of 5 MB": (b'{"operation": "HEALTH_CHECK", "' + b"k" * 5 * MILLION + b'": 1}', (UNKNOWN_FIELD,)),
    "an operation of 5 MB": (b'{"operation": "' + b"O" * 5 * MILLION + b'"}', (UNKNOWN, FIELD)),
    "a million escapes": (b'{"operation": "' + b"\\u0041" * 900_000 + b'"}', (UNKNOWN, FIELD)),
    "half of a surrogate pair": (b'{"operation": "\\ud800"}', (BAD_JSON, UNKNOWN, FIELD)),
    "6 MB and one byte": (b" " * (6 * 1024 * 1024 + 1), (LARGE,)),
    "20 MB": (b"x" * 20 * MILLION, (LARGE, "closed")),
    "an operation of nobody": (b'{"operation": "SHELL"}', (UNKNOWN,)),
    "an operation in lower case": (b'{"operation": "health_check"}', (UNKNOWN,)),
    "an operation with a space": (b'{"operation": "HEALTH_CHECK "}', (UNKNOWN,)),
    "an operation that is a list": (b'{"operation": ["HEALTH_CHECK"]}', (FIELD, UNKNOWN)),
    "an operation that is a method": (b'{"operation": "__init__"}', (UNKNOWN,)),
}  # fmt: skip


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


HEALTH = _json({"operation": "HEALTH_CHECK"})
SHORT = "/api/v1/compact"
INVOKE = "/2015-03-31/functions/function/invocations"


def _invoked(path: str, body: Any, method: str = "POST") -> bytes:
    return _json({"httpMethod": method, "path": path, "body": body})


PATHS: dict[str, tuple[str, str, bytes, tuple[str, ...]]] = {
    "PUT": ("PUT", "/database", HEALTH, (METHOD,)),
    "DELETE": ("DELETE", "/database", b"", (METHOD,)),
    "TRACE": ("TRACE", "/database", b"", (METHOD, BAD_REQUEST)),
    "GET of a POST": ("GET", "/database", b"", (METHOD,)),
    "a path of nobody": ("GET", "/admin", b"", (NOT_FOUND,)),
    "a way out": ("GET", "/../../etc/passwd", b"", (NOT_FOUND, BAD_REQUEST)),
    "an encoded way out": ("GET", "/%2e%2e/%2e%2e/etc/passwd", b"", (NOT_FOUND, BAD_REQUEST)),
    "doubled slashes": ("POST", "//database", HEALTH, (NOT_FOUND, BAD_REQUEST)),
    "a slash at the end": ("POST", "/database/", HEALTH, (OK, NOT_FOUND, METHOD)),
    "an encoded path": ("POST", "/%64atabase", HEALTH, (OK, NOT_FOUND)),
    "a path in upper case": ("POST", "/DATABASE", HEALTH, (NOT_FOUND,)),
    "a path with a semicolon": ("POST", "/database;x=y", HEALTH, (NOT_FOUND,)),
    "a job by a way out": ("GET", "/jobs/..%2f..%2fjobs.db?tenant_id=mallory", b"", (NO_JOB, NOT_FOUND, FIELD)),
    "a job of NUL": ("GET", "/jobs/%00?tenant_id=mallory", b"", (NO_JOB, NOT_FOUND, FIELD, BAD_REQUEST)),
    "a job by SQL": ("GET", "/jobs/x'%20OR%201=1?tenant_id=mallory", b"", (NO_JOB, NOT_FOUND, FIELD)),
    "a job without a tenant": ("GET", "/jobs/x", b"", (MISSING, NO_JOB)),
    "a job of nobody's tenant": ("GET", "/jobs/x?tenant_id=nobody", b"", (FORBIDDEN,)),
    "a job of two tenants": ("GET", "/jobs/x?tenant_id=mallory&tenant_id=nobody", b"", (FORBIDDEN, NO_JOB, FIELD)),
    "jobs with a limit that is none": ("GET", "/jobs?tenant_id=mallory&limit=x", b"", (FIELD,)),
    "jobs with an endless limit": ("GET", "/jobs?tenant_id=mallory&limit=" + "9" * 5000, b"", (FIELD,)),
    "jobs by an unknown parameter": ("GET", "/jobs?tenant_id=mallory&x=1", b"", (UNKNOWN_FIELD,)),
    "10,000 parameters": ("GET", "/jobs?tenant_id=mallory&" + "&".join(["a=1"] * 4000), b"", (UNKNOWN_FIELD, FIELD)),
    "short form: a way out": ("POST", SHORT, _json({"table": "../../x", "tenant_id": "mallory"}), (NAME,)),
    "short form: the victim's": ("POST", SHORT, _json({"table": "default.orders", "tenant_id": "mallory"}), (NO_TABLE,)),
    "short form: no tenant": ("POST", SHORT, _json({"table": "default.orders"}), (MISSING, FORBIDDEN)),
    "short form: a size of nobody": (
        "POST", SHORT, _json({"table": "events", "tenant_id": "mallory", "options": {"target_file_size": "1e999GB"}}),
        (OPTION, FIELD),
    ),
    "short form: a size of 100,000 digits": (
        "POST", SHORT, _json({"table": "events", "tenant_id": "mallory", "options": {"target_file_size": "9" * 100_000 + "GB"}}),
        (OPTION, FIELD),
    ),
    "short form: -1GB": (
        "POST", SHORT, _json({"table": "events", "tenant_id": "mallory", "options": {"target_file_size": "-1GB"}}),
        (OPTION, FIELD),
    ),
    "short form: 10,000 dots": ("POST", SHORT, _json({"table": "." * 10_000, "tenant_id": "mallory"}), (NAME,)),
    "emulator: a list": ("POST", INVOKE, b"[]", (EVENT, BAD_REQUEST, OK)),
    "emulator: NaN": ("POST", INVOKE, b"NaN", (BAD_JSON, BAD_REQUEST, FIELD, OK)),
    "emulator: a path of nobody": ("POST", INVOKE, _invoked("/../x", "{}"), (OK,)),
    "emulator: a body that is an object": ("POST", INVOKE, _invoked("/database", {"operation": "HEALTH_CHECK"}), (OK,)),
    "emulator: itself": ("POST", INVOKE, _invoked(INVOKE, "{}"), (OK,)),
    "emulator: a deep body": ("POST", INVOKE, b'{"httpMethod": "POST", "path": "/database", "body": ' + b"[" * 100_000, (BAD_JSON, BAD_REQUEST)),
    "docs by POST": ("POST", "/docs", b"{}", (METHOD,)),
    "metrics by POST": ("POST", "/metrics", b"{}", (METHOD, NOT_FOUND)),
}  # fmt: skip
HEADERS: dict[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "another host": ({"Host": "evil.example"}, ("421 HOST_NOT_ALLOWED",)),
    "a host that leads here": ({"Host": "localhost.evil.example"}, ("421 HOST_NOT_ALLOWED",)),
    "a host with another's name before": ({"Host": "evil.example@localhost"}, ("421 HOST_NOT_ALLOWED", BAD_REQUEST)),
    "a page of another site": ({"Origin": "https://evil.example"}, (FORBIDDEN,)),
    "a page of no site": ({"Origin": "null"}, (FORBIDDEN,)),
    "a forwarded host": ({"X-Forwarded-Host": "evil.example", "X-Forwarded-For": VICTIM}, (OK,)),
    "another method by a header": ({"X-HTTP-Method-Override": "DELETE"}, (OK,)),
    "a content type of nobody": ({"Content-Type": "application/x-python-pickle"}, (OK,)),
    "a content encoding": ({"Content-Encoding": "gzip"}, (OK, BAD_REQUEST, "415 INVALID_REQUEST")),
    "a token of nobody": ({"Authorization": "Bearer " + "x" * 8000}, (OK,)),
    "claims by a header": ({"X-Amzn-Oidc-Data": "x", "X-Tenant-Id": VICTIM}, (OK,)),
    "a range": ({"Range": "bytes=0-" + ",1-2" * 1000}, (OK,)),
    "an upgrade": ({"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x"}, (OK, BAD_REQUEST)),
    "Expect of nobody": ({"Expect": "the-spanish-inquisition"}, (OK, BAD_REQUEST, "417 INVALID_REQUEST")),
}


def attacks(_: Scene) -> Iterator[Attack]:
    for name, (body, allowed) in BODIES.items():
        yield post("Bodies", name, body, *allowed)
    for name, (method, path, body, allowed) in PATHS.items():
        wanted = Post(body=body, method=method, path=path)
        yield Attack(part="Paths and methods", name=name, request=wanted, allowed=frozenset(allowed))
    for name, (headers, allowed) in HEADERS.items():
        yield Attack(part="Headers", name=name, request=Post(body=HEALTH, headers=headers), allowed=frozenset(allowed))
