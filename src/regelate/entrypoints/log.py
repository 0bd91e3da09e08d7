"""JSON log lines, each with the request that it belongs to, and the wall that keeps secrets out of them and out of
answers. One line per answered request; whatever is logged meanwhile names the same request, tenant and table.

Line breaks in what a caller sent are escaped by JSON; secrets are blotted out here, and long texts are cut.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger

from regelate.core.requests import IDENTIFIER
from regelate.core.values import dataclass

MAX_TEXT_CHARACTERS = 2_000
MAX_STACK_CHARACTERS = 8_000
_MOST_ITEMS = 100
_LOGGED = ("operation", "tenant_id", "catalog", "namespace", "table")
_LOGGED_CHARACTERS = 200
LIBRARIES = ("pyiceberg", "opentelemetry", "botocore")
_BLOT = "[redacted]"
_SECRET_NAME = (
    r"(?:password|passwd|pwd|secret|token|credentials?|signature|authorization"
    r"|(?:access|api|account|private|secret)[-_.]?key(?:[-_.]?id)?)"
)
_LIKE_A_KEY = r"[A-Za-z0-9._~+/-]*(?:[0-9=_~]|[a-z][A-Z]|[A-Z]{2})"
"""No word of English: a digit, a sign of base64, or letters of both cases in a row."""
_PROSE = r"(?<=:) (?:[a-z]+|NULL)\b[,;]? [a-z]+\b"
"""What is said of a field whose name sounds secret: plain words after a colon. A value stands alone, or in quotes."""
_NAMES_A_SECRET = re.compile(rf"(?i){_SECRET_NAME}$")
_SECRETS = (
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"), _BLOT),
    (re.compile(rf"\b((?i:bearer|basic))\s+(?={_LIKE_A_KEY})[A-Za-z0-9._~+/=-]{{8,}}"), rf"\1 {_BLOT}"),
    (re.compile(r"(?i)([a-z][a-z0-9+.-]{1,20}://)[^/\s@'\"]{1,500}@"), rf"\1{_BLOT}@"),
    (
        re.compile(rf"((?i:{_SECRET_NAME})[\"']?\s{{0,3}}[=:](?!{_PROSE})\s{{0,3}}[\"']?)[^\s\"',;&)}}\]]{{1,2000}}"),
        rf"\1{_BLOT}",
    ),
)

_INSIDES = (
    (re.compile(r"\s*\b(?:Stack Trace|Traceback \(most recent call last\)):.*", re.DOTALL | re.IGNORECASE), ""),
    (re.compile(r"(?:\s+at)?\s+\[?0x[0-9a-f]{8,16}\b\]?(?=[>\s.,;)]|$)"), ""),
)
"""Stacks of C++ and Python, and addresses in memory: for whoever has the log, not for whoever asked."""

logger = Logger(service="regelate", stream=sys.stderr, json_serializer=partial(json.dumps, default=str))
"""Standard error, so that a command's own output on standard output stays clean; Lambda collects both. ASCII, so that
no character of a caller's can end a line anywhere.
"""


class _Wall(logging.Filter):
    """Blots secrets out of lines that are not ours: what a library logs, it has not redacted."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            record.msg, record.args = redacted(record.getMessage()), None
        if record.exc_info and record.exc_info[1] is not None:
            record.stack, record.exc_info, record.exc_text = stack_of(record.exc_info[1]), None, None
        return True


logger.registered_handler.addFilter(_Wall())


def adopt_libraries() -> None:
    """Let the warnings of libraries be lines of ours: in JSON, redacted, with the request they belong to."""
    for name in LIBRARIES:
        library = logging.getLogger(name)
        library.handlers, library.propagate = [logger.registered_handler], False
        library.setLevel(logging.WARNING)


def redacted(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return `text` with what looks like a secret blotted out, cut to `limit` characters, encodable as UTF-8."""
    shown = text[: 4 * limit]
    for pattern, instead in _SECRETS:
        shown = pattern.sub(instead, shown)
    shown = shown.encode("utf-8", "backslashreplace").decode()
    return shown if len(shown) <= limit and len(text) <= 4 * limit else shown[:limit] + "..."


def told(text: str) -> str:
    """Return `text` as an answer may hold it: redacted, cut, without a stack or an address in memory."""
    shown = text[: 4 * MAX_TEXT_CHARACTERS]
    for pattern, instead in _INSIDES:
        shown = pattern.sub(instead, shown)
    return redacted(shown)


def safe(value: object, depth: int = 6) -> object:
    """Return details for an answer, every text as `told`; long collections are cut, what is not JSON becomes text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return told(value)
    if depth == 0:
        return "..."
    if isinstance(value, Mapping):
        items = [(redacted(str(key), 200), item) for key, item in list(value.items())[:_MOST_ITEMS]]
        return {key: _BLOT if _NAMES_A_SECRET.search(key) else safe(item, depth - 1) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [safe(item, depth - 1) for item in list(value)[:_MOST_ITEMS]]
    return told(str(value))


def stack_of(fault: BaseException) -> str:
    """Return the stack of a fault for the log, redacted; never for an answer."""
    text = "".join(traceback.format_exception(fault))
    return redacted(text[-4 * MAX_STACK_CHARACTERS :], 4 * MAX_STACK_CHARACTERS)[-MAX_STACK_CHARACTERS:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a log line says about a request; from the raw payload, so that a refused one is told apart too."""

    request_id: str
    correlation_id: str
    about: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, payload: Mapping[str, object], envelope_id: str) -> Subject:
        """Name the request by its own `request_id` where that is a sound one, else by the envelope's. The envelope's is
        its `correlation_id`: what API Gateway, Lambda or the queue calls it.
        """
        about = {name: value for name in _LOGGED if isinstance(value := payload.get(name), str)}
        asked = payload.get("request_id")
        own = isinstance(asked, str) and IDENTIFIER.fullmatch(asked) is not None
        return cls(request_id=str(asked) if own else envelope_id, correlation_id=envelope_id, about=about)

    def fields(self) -> dict[str, str]:
        shown = {name: redacted(text, _LOGGED_CHARACTERS) for name, text in self.about.items()}
        return {**shown, "request_id": self.request_id, "correlation_id": self.correlation_id}


def forget_subject() -> None:
    """Let the lines that follow in this thread belong to no request."""
    logger.thread_safe_clear_keys()


def speak_of(subject: Subject) -> None:
    """Let every line that follows in this thread name this request, until another is spoken of."""
    forget_subject()
    logger.thread_safe_append_keys(**subject.fields())


def log_answer(
    subject: Subject, status: int, made: Mapping[str, Any], seconds: float, stack: str | None = None
) -> None:
    """Log the one line of an answered request; a fault of ours (500 and above) as an error, with its stack if given."""
    fields: dict[str, Any] = {**subject.fields(), "status": status, "milliseconds": round(seconds * 1000, 1)}
    if made["success"] is False:
        fields |= {"code": made["error"]["code"], "error": made["error"]["message"]}
    if stack is not None:
        fields["stack"] = stack
    if status >= 500:
        logger.error("failed", **fields)
    else:
        logger.info("refused" if status >= 400 else "answered", **fields)
