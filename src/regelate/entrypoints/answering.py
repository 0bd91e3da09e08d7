"""From an event's request to its answer, whatever happens: the last wall, and the one line in the log."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regelate.core.answers import Answer, CompactAnswer, Status
from regelate.core.values import dataclass
from regelate.entrypoints.actions import Payload, execute
from regelate.entrypoints.api.requests import AnyRequest
from regelate.entrypoints.api.responses import failed, succeeded
from regelate.entrypoints.caller import Caller
from regelate.entrypoints.log import Subject, log_answer, speak_of, stack_of
from regelate.errors import InvalidRequest, InvariantViolated, RegelateError
from regelate.service.facade import Provider, Service
from regelate.settings import Settings

Parser = Callable[[Payload, Service, Caller], AnyRequest]


ACCEPTED = 202
"""The status of an answer that a job will complete."""


def new_request_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer: its HTTP status, as an object, and as JSON text. `told`: the value that it was made of, None of a
    fault."""

    status: int
    told: Answer | None = None
    made: dict[str, Any]
    text: str

    def fitting(self, max_bytes: int | None, caller: Caller, *, in_body: bool = False) -> Answered:
        """Return this answer, or 413 where it is too large. Measured as Lambda's runtime writes it: JSON in ASCII, and
        escaped once more where it is the `body` of an HTTP answer.
        """
        if max_bytes is None or len(self.text) * _MOST_BYTES_PER_CHARACTER + _HEADERS_BYTES <= max_bytes:
            return self
        size = len(json.dumps(self.text if in_body else self.made)) + _HEADERS_BYTES
        if size <= max_bytes:
            return self
        message = f"the answer has {size} bytes, more than {max_bytes}; ask for less, for example by limit or columns"
        fault = InvalidRequest("RESULT_TOO_LARGE", message, status=413, max_bytes=max_bytes)
        return refusal(fault, replace(caller, request_id=self.made["request_id"]))


_MOST_BYTES_PER_CHARACTER = 12
"""A character beyond the first plane becomes two escapes of six."""
_HEADERS_BYTES = 1_000
"""More than status, headers and flags of an HTTP answer of ours take."""


def answer(provider: Provider, load: Callable[[Settings], Payload], parse: Parser, caller: Caller) -> Answered:
    """Return the answer to one request, whatever happens: the last wall. Logs one line.

    `load` gives the request as one JSON object, `parse` makes the model of it; both may raise a RegelateError.
    """
    started, subject, stack = time.monotonic(), Subject.of({}, caller.request_id), None
    speak_of(subject)
    try:
        service = provider()
        caller = caller.known_to(service.settings)
        payload = load(service.settings)
        subject = Subject.of(payload, caller.request_id)
        speak_of(subject)
        request = parse(payload, service, caller)
        told = execute(service, request, caller)
        left = isinstance(told, CompactAnswer) and told.status is Status.DELEGATED
        answered = _answered(ACCEPTED if left else 200, succeeded(told, subject.request_id), told)
    except RegelateError as fault:
        answered = _answered(fault.status, failed(fault, subject.request_id))
        stack = stack_of(fault) if isinstance(fault, InvariantViolated) else None
    except Exception as fault:  # noqa: BLE001  the caller gets an answer without a stack, the log gets the stack
        stack = stack_of(fault)
        message = "an unexpected fault; report it with the request_id, and look at the table before writing again"
        bug = RegelateError("INTERNAL_ERROR", message)
        answered = _answered(bug.status, failed(bug, subject.request_id))
    log_answer(subject, answered.status, answered.made, time.monotonic() - started, stack)
    return answered


def refusal(fault: RegelateError, caller: Caller) -> Answered:
    """Return the answer to what never became a request."""
    answered = _answered(fault.status, failed(fault, caller.request_id))
    log_answer(Subject.of({}, caller.request_id), answered.status, answered.made, 0.0)
    return answered


def _answered(status: int, made: dict[str, Any], told: Answer | None = None) -> Answered:
    text = json.dumps(made, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Answered(status=status, told=told, made=made, text=text)
