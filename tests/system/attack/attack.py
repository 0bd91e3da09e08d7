"""One hostile request, by which door it comes, and which answers to it are right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

ATTACKER = "mallory"
VICTIM = "victim"
QUERY_SECONDS = 3.0
HEADER_SECONDS = 2.0
BODY_SECONDS = 4.0
OTHER_SECONDS = 10.0
"""For operations that have no limit of their own in so short a time: a limit of this program, on small tables."""

OK = "200"
NOT_ALLOWED = "400 QUERY_NOT_ALLOWED"
ERROR = "400 QUERY_ERROR"
CRASHED = "422 QUERY_CRASHED"
MEMORY = "507 OUT_OF_MEMORY"
TIMEOUT = "504 QUERY_TIMEOUT"
TOO_LARGE = "413 RESULT_TOO_LARGE"
BUSY = "429 TOO_MANY_QUERIES"
ENDED = (CRASHED, MEMORY, TIMEOUT)
"""What a query is answered that would have ended or frozen its process."""
FIELD = "400 INVALID_FIELD"
UNKNOWN_FIELD = "400 UNKNOWN_FIELD"
MISSING = "400 MISSING_FIELD"
NAME = "400 INVALID_IDENTIFIER"
OPTION = "400 INVALID_OPTION"
SCHEMA = "400 INVALID_SCHEMA"
SPEC = "400 INVALID_PARTITION_SPEC"
LOCATION = "400 INVALID_LOCATION"
FORBIDDEN = "403 FORBIDDEN"
NO_TABLE = "404 TABLE_NOT_FOUND"
NO_NAMESPACE = "404 NAMESPACE_NOT_FOUND"
MISMATCH = "422 SCHEMA_MISMATCH"
RANGE = "422 VALUE_OUT_OF_RANGE"
BAD_JSON = "400 INVALID_JSON"
BAD_REQUEST = "400 INVALID_REQUEST"
CLOSED = "closed"
"""The connection was ended without an answer."""


ORDINARY = {"tenant_id": ATTACKER, "table": "events"}


class Door(StrEnum):
    HTTP = "HTTP"
    WIRE = "wire"
    """Bytes on a socket, which need not be HTTP."""
    HANDLER = "handler"


@dataclass(frozen=True, kw_only=True)
class Post:
    """One HTTP request that is well-formed, whatever it asks."""

    body: bytes = b""
    method: str = "POST"
    path: str = "/database"
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Bytes:
    """What is sent on a connection: pieces, and how long to pause after each; then it is left open, or half closed."""

    pieces: Sequence[bytes]
    pause: float = 0.0
    half_close: bool = False


@dataclass(frozen=True, kw_only=True)
class Attack:
    """`allowed`: the answers that are right, as `status CODE`. `limit`: seconds by which one of them must be there.

    `copies`: how many clients send it at once; each must be answered as allowed. Of the handler the request is an event.
    """

    part: str
    name: str
    door: Door = Door.HTTP
    request: Any
    allowed: frozenset[str]
    limit: float = OTHER_SECONDS
    copies: int = 1

    @property
    def shown(self) -> str:
        """Return the request as one line of a table."""
        found = self.request
        if isinstance(found, Post):
            text = found.body[:4000].decode(errors="backslashreplace")
            what = "" if (found.method, found.path) == ("POST", "/database") else f"{found.method} {found.path} "
            return f"{what}{_told(text)}"
        if isinstance(found, Bytes):
            return " / ".join(piece[:200].decode(errors="backslashreplace") for piece in found.pieces[:4])
        return json.dumps(found, default=str)


def _told(text: str) -> str:
    """Leave out of a body what every one has."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(body, dict):
        return text
    if "sql" in body and set(body) == {"operation", "tenant_id", "table", "sql"}:
        return str(body["sql"])
    kept = {name: value for name, value in body.items() if ORDINARY.get(name) != value}
    return json.dumps(kept)


def body_of(operation: Any, **fields: Any) -> dict[str, Any]:
    """Return a request of the attacker's about its own table; a field that is None is left out."""
    found = {"operation": operation, "tenant_id": ATTACKER, "table": "events", **fields}
    return {name: value for name, value in found.items() if value is not None}


def post(part: str, name: str, body: Any, *allowed: str, limit: float = OTHER_SECONDS, copies: int = 1) -> Attack:
    """Return an attack by POST /database; `body` is bytes, or JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Attack(part=part, name=name, request=Post(body=raw), allowed=frozenset(allowed), limit=limit, copies=copies)


def asks(part: str, name: str, operation: str, *allowed: str, limit: float = OTHER_SECONDS, **fields: Any) -> Attack:
    """Return an attack by one operation."""
    return post(part, name, body_of(operation, **fields), *allowed, limit=limit)


def query(part: str, name: str, *allowed: str, copies: int = 1, **fields: Any) -> Attack:
    """Return an attack by QUERY, which has a limit of its own."""
    return post(part, name, body_of("QUERY", **fields), *allowed, limit=QUERY_SECONDS, copies=copies)
