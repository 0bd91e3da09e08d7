"""What expiry keeps: request > the table's `history.expire.*` > config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping

from regelate.core.policy.option_values import MAX_INT, MAX_LONG, NO_PROPERTIES, whole
from regelate.core.policy.policy import RetentionPolicy
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

HOUR_MS = 3_600_000
MAX_RETENTION_HOURS = 876_000
"""A hundred years: an age that no table reaches, and still a number of milliseconds that fits a long."""
MAX_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
MIN_KEEP_PROPERTY = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE_PROPERTY = "history.expire.max-ref-age-ms"
GRACE_PROPERTY = "regelate.expiry.grace-hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDefaults:
    """The config layer of expiry.

    `minimum_age_ms`: no request may ask for less, and a table's shorter age is raised to it. `grace_ms`: how long an
    expiry can be undone. `minimum_orphan_age_ms`: orphan files younger than that are never deleted.
    """

    max_snapshot_age_ms: int = 168 * HOUR_MS
    min_snapshots_to_keep: int = 1
    minimum_age_ms: int = HOUR_MS
    grace_ms: int = 24 * HOUR_MS
    minimum_orphan_age_ms: int = 72 * HOUR_MS


def resolve_retention(
    *,
    request_hours: object = None,
    request_min: object = None,
    request_grace: object = None,
    table_properties: Mapping[str, str] = NO_PROPERTIES,
    config: RetentionDefaults,
    hours_field: str = "retention_hours",
) -> RetentionPolicy:
    """Resolve what expiry keeps: request > the table's `history.expire.*` > config. INVALID_RETENTION.

    `request_hours` may have a fraction; `hours_field` is what the request calls it. A request below `minimum_age_ms`
    is refused; a table's shorter age is raised to it, which keeps more than asked.
    """
    tabled_age = _retained(MAX_AGE_PROPERTY, table_properties, config)
    tabled_min = _retained(MIN_KEEP_PROPERTY, table_properties, config)
    asked_age = None if request_hours is None else _age(hours_field, request_hours, config)
    tabled = max(tabled_age or config.max_snapshot_age_ms, config.minimum_age_ms)
    asked_min = None if request_min is None else _keep("min_snapshots_to_keep", request_min, MAX_INT, config)
    return RetentionPolicy(
        max_snapshot_age_ms=tabled if asked_age is None else asked_age,
        min_snapshots_to_keep=asked_min or tabled_min or config.min_snapshots_to_keep,
        max_ref_age_ms=_retained(MAX_REF_AGE_PROPERTY, table_properties, config) or MAX_LONG,
        grace_ms=_grace(request_grace, table_properties, config),
    )


def resolve_orphan_age(request_hours: object, config: RetentionDefaults) -> int:
    """Return how old an orphan file must be, in milliseconds: the request's `older_than_hours`, else the least allowed.

    Errors: InvalidRequest INVALID_RETENTION below `minimum_orphan_age_ms`: a writer may still commit such a file.
    """
    if request_hours is None:
        return config.minimum_orphan_age_ms
    return _hours("older_than_hours", request_hours, config.minimum_orphan_age_ms / HOUR_MS, config)


def _grace(request_hours: object, properties: Mapping[str, str], config: RetentionDefaults) -> int:
    if request_hours is not None:
        return _hours("grace_hours", request_hours, 0, config)
    text = properties.get(GRACE_PROPERTY)
    if text is None:
        return config.grace_ms
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    return _hours(GRACE_PROPERTY, hours, 0, config, shown=text)


def _age(name: str, value: object, config: RetentionDefaults) -> int:
    return _hours(name, value, config.minimum_age_ms / HOUR_MS, config)


def _hours(name: str, value: object, low: float, config: RetentionDefaults, *, shown: object = None) -> int:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not low <= number <= MAX_RETENTION_HOURS:
        rule = f"must be a number of hours between {low:g} and {MAX_RETENTION_HOURS}"
        raise _bad_retention(name, value if shown is None else shown, rule, config, minimum_hours=low)
    return int(number * HOUR_MS)


def _retained(name: str, properties: Mapping[str, str], config: RetentionDefaults) -> int | None:
    high = MAX_INT if name == MIN_KEEP_PROPERTY else MAX_LONG
    return _keep(name, properties[name], high, config) if name in properties else None


def _keep(name: str, value: object, high: int, config: RetentionDefaults) -> int:
    try:
        return whole(name, value, 1, high)
    except InvalidRequest as fault:
        raise _bad_retention(name, value, f"must be a whole number between 1 and {high}", config) from fault


def _bad_retention(
    name: str, value: object, rule: str, config: RetentionDefaults, *, minimum_hours: float | None = None
) -> InvalidRequest:
    message = f"{name} = {repr(value)[:100]}: {rule}"
    hours = config.minimum_age_ms / HOUR_MS if minimum_hours is None else minimum_hours
    return InvalidRequest("INVALID_RETENTION", message, option=name, minimum_hours=hours, minimum_snapshots=1)
