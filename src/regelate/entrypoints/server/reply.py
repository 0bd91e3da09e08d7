"""An HTTP answer before it is sent, and the log line that every one of them has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from regelate.core.values import dataclass
from regelate.entrypoints.answering import new_request_id
from regelate.entrypoints.api.responses import failed
from regelate.entrypoints.log import logger, redacted
from regelate.errors import RegelateError

JSON = {"Content-Type": "application/json"}
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    data: bytes

    def fields(self) -> list[tuple[bytes, bytes]]:
        """Return the headers as they are sent; what has no content by its status may not tell its length."""
        length = {} if self.status == HTTPStatus.NO_CONTENT else {"Content-Length": str(len(self.data))}
        named = {**self.headers, **length}
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]

    def as_bytes(self) -> bytes:
        """Return the answer to what no HTTP library has read; the connection ends with it."""
        line = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}".encode()
        fields = [b": ".join(field) for field in (*self.fields(), (b"Connection", b"close"))]
        return b"\r\n".join([line, *fields, b"", self.data])


def refused(fault: RegelateError) -> Reply:
    """Return what the server itself refuses, in the shape that every error has."""
    text = json.dumps(failed(fault, new_request_id()), ensure_ascii=False)
    return Reply(status=fault.status, headers=JSON, data=text.encode())


def log_access(reply: Reply, client: str | None, method: str | None, path: str | None, seconds: float) -> None:
    """Log one line; method and path are null where the request never came that far."""
    logger.info(
        "access",
        method=method,
        path=None if path is None else redacted(path, _SHOWN_CHARACTERS),
        status=reply.status,
        bytes=len(reply.data),
        client=client,
        milliseconds=round(seconds * 1000, 1),
    )
