"""Answers as they leave the house: the fields of an operation's answer, or of a fault, in their frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Literal, cast

from regelate.core.answers import Answer, answer_fields
from regelate.core.values import dataclass
from regelate.entrypoints.log import safe, told
from regelate.errors import ErrorDetail, RegelateError


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    success: Literal[False]
    error: ErrorDetail
    request_id: str


def succeeded(answer: Answer, request_id: str) -> dict[str, object]:
    """Return the answer of an operation that did what it was asked, as JSON values."""
    return {"success": True, **answer_fields(answer), "request_id": request_id}


def failed(fault: RegelateError, request_id: str) -> dict[str, object]:
    """Return the answer of a fault: what was wrong and what to do; secrets blotted out, long texts cut."""
    details = cast(Mapping[str, Any], safe(fault.details))
    error = replace(fault.as_error(), message=told(fault.message), details=details)
    return answer_fields(ErrorAnswer(success=False, error=error, request_id=request_id))


class Outcome(Enum):
    """What a caller who has only the JSON of an answer can tell of it."""

    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"
    RETRYABLE = "retryable"


def outcome_of(made: Mapping[str, Any]) -> Outcome:
    """Read the outcome back from the JSON of an answer, or of any page, which stands for DONE."""
    if made.get("success") is False:
        return Outcome.RETRYABLE if made["error"]["retryable"] else Outcome.FAILED
    return Outcome.PARTIAL if made.get("status") == "PARTIAL" else Outcome.DONE
