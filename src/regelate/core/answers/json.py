"""Answers as plain JSON values, and which of their fields may be left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

Json = Any


LEFT_OUT = {"left_out": True}
"""Of a field that is no part of the JSON while it is None."""


def is_left_out(one: Any) -> bool:
    """Say whether a field (of `dataclasses.fields`) is part of the JSON only where it has a value."""
    return bool(one.metadata.get("left_out"))


def answer_fields(answer: Any) -> dict[str, Json]:
    """Return an answer as plain JSON values, in the order of its fields."""
    named = ((f, getattr(answer, f.name)) for f in fields(answer))
    told = ((f, value) for f, value in named if value is not None or not is_left_out(f))
    return {f.name: value if f.metadata.get("is_json") else _plain(value) for f, value in told}


def _plain(value: Any) -> Json:
    if is_dataclass(value):
        return answer_fields(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
