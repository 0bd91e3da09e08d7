"""What can be wrong with rows that somebody wants to write: another schema, nulls, values out of range, time zones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
NULL_IN_REQUIRED = "NULL_IN_REQUIRED"
VALUE_OUT_OF_RANGE = "VALUE_OUT_OF_RANGE"
TIMEZONE_MISMATCH = "TIMEZONE_MISMATCH"
NULL_IN_KEY = "NULL_IN_KEY"
DUPLICATE_KEY = "DUPLICATE_KEY"
DUPLICATE_KEY_IN_TABLE = "DUPLICATE_KEY_IN_TABLE"
MAX_FAULTS = 5
_SHOWN_CHARACTERS = 60
_SHOWN_BITS = 256


class _Missing:
    """Stands for a key that a record does not have."""


MISSING: Any = _Missing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with one value: the code of the fault catalogue, the column's path, what was wanted and found."""

    code: str
    path: str
    expected: str
    got: str


class Refused(Exception):
    """Carries the fault of one value out of nested calls."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def refused(code: str, path: str, expected: str, value: object) -> Refused:
    return Refused(Fault(code=code, path=path, expected=expected, got=shown(value)))


def shown(value: object) -> str:
    """Name a JSON value by kind and by the beginning of its text in JSON."""
    if value is MISSING:
        return "no value"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean {str(value).lower()}"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, int | float):
        return f"number {value!r}"
    if isinstance(value, Decimal):
        return f"number {str(value)[:_SHOWN_CHARACTERS]}"
    if isinstance(value, str):
        return f"string {_cut(json.dumps(value[: _SHOWN_CHARACTERS + 1]))}"
    if isinstance(value, Mapping | list):
        return f"{'an object' if isinstance(value, Mapping) else 'an array'} {_cut(_beginning(value))}".rstrip()
    return f"a value of type {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS + 2 else f"{text[:_SHOWN_CHARACTERS]}..."


def _beginning(value: object) -> str:
    """Return the beginning of an object or array in JSON, written no further than it is shown."""
    text = ""
    try:
        for part in json.JSONEncoder(default=str).iterencode(value):
            text += part
            if len(text) > _SHOWN_CHARACTERS + 2:
                break
    except (RecursionError, ValueError):  # deeper, or with a longer number, than Python writes
        return ""
    return text


def rows_error(faults: Iterable[tuple[int, Fault]]) -> InvalidRequest:
    """Return the 422 for faults by 0-based row: code and text of the first one, up to five in `faults`."""
    listed = sorted(faults, key=lambda found: found[0])[:MAX_FAULTS]
    row, first = listed[0]
    more = f" ({len(listed) - 1} more in `faults`)" if len(listed) > 1 else ""
    return InvalidRequest(
        first.code,
        f"row {row}, column {first.path!a}: expected {first.expected}, got {first.got}{more}; no row was written",
        status=422,
        row=row,
        column=first.path,
        expected=first.expected,
        got=first.got,
        faults=[{"row": r, "column": f.path, "code": f.code, "expected": f.expected, "got": f.got} for r, f in listed],
    )
