"""Partition values as people write them, in answers and in filters: the same for the service and for Spark."""

from __future__ import annotations

import base64
import math
from datetime import UTC, datetime, timedelta

NULL_TEXT = "null"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR_CHARACTERS = len("2025-01-17T05")


def value_text(transform: str, kind: str, value: object) -> str:
    """Return `2025`, `2025-01`, `2025-01-17`, `2025-01-17T05`, the value, or `null`.

    `value` in Iceberg's internal form: years, months, days, hours and microseconds since 1970 as int. `kind`: the type
    of the source column as Iceberg writes it; empty where the column was dropped: identity values then show that form.
    """
    if value is None:
        return NULL_TEXT
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return _number_text(transform, kind, value)
    except OverflowError:
        return str(value)  # a date beyond year 9999, which Python cannot write: its ordinal still names it
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return float_text(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _number_text(transform: str, kind: str, value: int) -> str:
    if transform == "year":
        return f"{1970 + value:04d}"
    if transform == "month":
        return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
    if transform == "hour":
        return (_EPOCH + timedelta(hours=value)).isoformat(timespec="hours")[:_HOUR_CHARACTERS]
    if transform == "day" or (transform == "identity" and kind == "date"):
        return date_text(value)
    if transform == "identity" and kind in ("timestamp", "timestamptz"):
        return moment(value, zoned=kind == "timestamptz").isoformat()
    if transform == "identity" and kind == "time":
        return moment(value, zoned=False).time().isoformat()
    return str(value)


def date_text(days: int) -> str:
    return (_EPOCH.date() + timedelta(days=days)).isoformat()


def moment(microseconds: int, *, zoned: bool) -> datetime:
    found = _EPOCH + timedelta(microseconds=microseconds)
    return found if zoned else found.replace(tzinfo=None)


def float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
