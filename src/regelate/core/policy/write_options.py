"""How a WRITE writes beyond its own rows: the table properties of an optimized write."""

from __future__ import annotations

from collections.abc import Mapping

from regelate.core.policy.option_values import MAX_LONG, boolean, whole
from regelate.core.policy.policy import MB
from regelate.core.values import dataclass

OPTIMIZED_PROPERTY = "regelate.write.optimized"
OPTIMIZED_BYTES_PROPERTY = "regelate.write.optimized.max-bytes"
TAKEN_BYTES = 32 * MB
"""Taken along by one request, at most, unless the table says otherwise: about a second of rewriting on two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedWrite:
    """A WRITE takes small neighbours along, of `max_bytes` in all."""

    max_bytes: int = TAKEN_BYTES


def taken_bytes(name: str, value: object) -> int:
    return whole(name, value, 1, MAX_LONG)


def resolve_optimized(table_properties: Mapping[str, str]) -> OptimizedWrite | None:
    """Return how far a WRITE takes neighbours along, None where the table does not ask for it.

    Errors: InvalidRequest INVALID_OPTION for a value that is none.
    """
    if not boolean(OPTIMIZED_PROPERTY, table_properties.get(OPTIMIZED_PROPERTY, "false")):
        return None
    bound = table_properties.get(OPTIMIZED_BYTES_PROPERTY)
    return OptimizedWrite() if bound is None else OptimizedWrite(max_bytes=taken_bytes(OPTIMIZED_BYTES_PROPERTY, bound))
