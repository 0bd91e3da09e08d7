"""What all answers have in common."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


class Answer(Shape):
    success: Literal[True]
    request_id: str


class ErrorDetail(Shape):
    """`code` is stable, `retryable` says whether the same request may succeed later; docs/errors.md lists the codes."""

    code: str
    message: str
    retryable: bool
    details: dict[str, Any]
