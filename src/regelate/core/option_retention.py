"""What expiry keeps: request > the table's `history.expire.*` > config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from regelate.core.option_values import MAX_INT, MAX_LONG, NO_PROPERTIES, whole
from regelate.core.policy import RetentionPolicy
from regelate.errors import InvalidRequest

HOUR_MS = 3_600_000
MAX_RETENTION_HOURS = 876_000
"""A hundred years: an age that no table reaches, and still a number of milliseconds that fits a long."""
MAX_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
MIN_KEEP_PROPERTY = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE_PROPERTY = "history.expire.max-ref-age-ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDefaults:
    """The config layer of expiry.

    `minimum_age_ms`: no request may ask for less, and a table's shorter age is raised to it.
    """

    max_snapshot_age_ms: int = 168 * HOUR_MS
    min_snapshots_to_keep: int = 1
    minimum_age_ms: int = HOUR_MS


def resolve_retention(
    *,
    request_hours: object = None,
    request_min: object = None,
    table_properties: Mapping[str, str] = NO_PROPERTIES,
    config: RetentionDefaults,
) -> RetentionPolicy:
    """Resolve what expiry keeps: request > the table's `history.expire.*` > config. INVALID_RETENTION (row 51).

    `request_hours` may have a fraction. A request below `minimum_age_ms` is refused; a table's shorter age is raised
    to it, which keeps more than asked.
    """
    tabled_age = _retained(MAX_AGE_PROPERTY, table_properties, config)
    tabled_min = _retained(MIN_KEEP_PROPERTY, table_properties, config)
    asked_age = None if request_hours is None else _hours(request_hours, config)
    age = asked_age or max(tabled_age or config.max_snapshot_age_ms, config.minimum_age_ms)
    asked_min = None if request_min is None else _keep("min_snapshots_to_keep", request_min, MAX_INT, config)
    return RetentionPolicy(
        max_snapshot_age_ms=age,
        min_snapshots_to_keep=asked_min or tabled_min or config.min_snapshots_to_keep,
        max_ref_age_ms=_retained(MAX_REF_AGE_PROPERTY, table_properties, config) or MAX_LONG,
    )


def _hours(value: object, config: RetentionDefaults) -> int:
    low, high = config.minimum_age_ms / HOUR_MS, MAX_RETENTION_HOURS
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not low <= number <= high:
        raise _bad_retention("retention_hours", value, f"must be a number between {low:g} and {high}", config)
    return int(number * HOUR_MS)


def _retained(name: str, properties: Mapping[str, str], config: RetentionDefaults) -> int | None:
    high = MAX_INT if name == MIN_KEEP_PROPERTY else MAX_LONG
    return _keep(name, properties[name], high, config) if name in properties else None


def _keep(name: str, value: object, high: int, config: RetentionDefaults) -> int:
    try:
        return whole(name, value, 1, high)
    except InvalidRequest as fault:
        raise _bad_retention(name, value, f"must be a whole number between 1 and {high}", config) from fault


def _bad_retention(name: str, value: object, rule: str, config: RetentionDefaults) -> InvalidRequest:
    message = f"{name} = {repr(value)[:100]}: {rule}"
    hours = config.minimum_age_ms / HOUR_MS
    return InvalidRequest("INVALID_RETENTION", message, option=name, minimum_hours=hours, minimum_snapshots=1)
