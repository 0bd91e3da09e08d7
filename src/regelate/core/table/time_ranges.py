"""When the time range of a partition ends, by its transforms: what time-series selection and Spark's planner go by."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import date

DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000


def partition_ends_at_ms(ends: Iterable[tuple[Hashable, int | None]]) -> int | None:
    """Return the end of a partition from (source column, end) of its fields, None where none covers a time range.

    Fields of one column narrow each other; of several time columns, the last to end ends the partition.
    """
    by_source: dict[Hashable, int] = {}
    for source, end in ends:
        if end is not None:
            by_source[source] = min(end, by_source.get(source, end))
    return max(by_source.values(), default=None)


def ends_at_ms(transform: str, source_type: str | None, value: object) -> int | None:
    """Return the end (exclusive, UTC) of the time range that one partition value covers, None where it covers none.

    `transform` and `source_type` are Iceberg's names; `value` is in Iceberg's internal form (ordinals since 1970).
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if transform == "hour":
        return (value + 1) * HOUR_MS
    if transform == "day" or (transform == "identity" and source_type == "date"):
        return (value + 1) * DAY_MS
    if transform == "month":
        return _month_start_ms(value + 1)
    if transform == "year":
        return _month_start_ms((value + 1) * 12)
    return None


def _month_start_ms(months: int) -> int | None:
    years, month = divmod(months, 12)
    try:
        return (date(1970 + years, month + 1, 1) - date(1970, 1, 1)).days * DAY_MS
    except (OverflowError, ValueError):
        return None
