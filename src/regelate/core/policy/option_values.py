"""JSON values and texts of options -> numbers, sizes, filters, sort fields. A refusal names option and range."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from regelate.core.policy.policy import SortField
from regelate.core.table.schema import MAX_ORDERED_FIELDS
from regelate.errors import InvalidRequest

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
"""Iceberg's `write.parquet.compression-codec` values."""
_POWERS = ("", "k", "m", "g", "t")
_SIZE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,9})?)\s*(?:([kmgt])(?:i?b)?|b)?\s*", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_MOST_DIGITS = 20
_NUMBER = re.compile(rf"[+-]?[0-9]{{0,20}}\.?[0-9]{{1,{_MOST_DIGITS}}}(?:[eE][+-]?[0-9]{{1,3}})?", re.ASCII)
_SHOWN_CHARACTERS = 100
Choice = TypeVar("Choice", bound=StrEnum)


def refused(option: str, value: object, rule: str, **details: Any) -> InvalidRequest:
    """Make the 400 INVALID_OPTION that names an option, its value (cut) and the rule it breaks."""
    shown = str(value) if isinstance(value, Decimal) else repr(value)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    return InvalidRequest("INVALID_OPTION", f"{option} = {shown}: {rule}", option=option, **details)


def whole(option: str, value: object, low: int, high: int) -> int:
    """Read a whole number between `low` and `high`: an int, or its decimal digits as Iceberg's options have them."""
    rule = f"must be a whole number between {low} and {high}"
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise refused(option, value, rule, minimum=low, maximum=high)
    return value


def ratio(option: str, value: object) -> float:
    """Read a number above 0 and at most 1, as a JSON number or as text; a job keeps a Decimal as its text."""
    text = str(value) if isinstance(value, Decimal) else value
    number = float(text) if isinstance(text, str) and _NUMBER.fullmatch(text) else text
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or not math.isfinite(number)
        or not 0 < number <= 1
    ):
        rule = f"must be a number above 0 and at most 1, of at most {_MOST_DIGITS} digits after the point"
        raise refused(option, value, rule, maximum=1)
    return float(number)


def boolean(option: str, value: object) -> bool:
    """Read `true` or `false`, in any case, or a JSON boolean. Java takes any other text for false; we refuse it."""
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else None
    if text not in ("true", "false"):
        raise refused(option, value, "must be true or false", valid=["true", "false"])
    return text == "true"


def choice(option: str, value: object, kinds: type[Choice]) -> Choice:
    """Read one of an enumeration's values."""
    valid = [k.value for k in kinds]
    if not isinstance(value, str) or value not in valid:
        raise refused(option, value, f"must be one of {', '.join(valid)}", valid=valid)
    return kinds(value)


def codec(option: str, value: object) -> str:
    """Read a Parquet compression codec, in any case."""
    text = value.lower() if isinstance(value, str) else ""
    if text not in CODECS:
        raise refused(option, value, f"must be one of {', '.join(CODECS)}", valid=list(CODECS))
    return text


def parse_size(text: object, *, option: str = "size") -> int:
    """Return the bytes of a size as people write it: `1GB`, `512 MB`, `128MiB`, `1.5g`, `1048576`.

    A unit is a power of 1024 with or without the `i`, as where Iceberg says 512 MB. A part of a byte is dropped.
    """
    rule = "must be a size such as 512MB, 1.5GB or a number of bytes"
    match = _SIZE.fullmatch(str(text)) if isinstance(text, str | int) and not isinstance(text, bool) else None
    if match is None:
        raise refused(option, text, rule)
    size = int(Decimal(match[1]) * 1024 ** _POWERS.index((match[2] or "").lower()))
    if size > MAX_LONG:
        raise refused(option, text, rule, maximum=MAX_LONG)
    return size


def partition_filters(value: object) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Read `partition_filter`: an object, or a list of them (OR). Values become text, as partitions are compared.

    An empty object or list is refused: it could mean every partition as well as none.
    """
    if value is None:
        return ()
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not items:
        raise _bad_filter("partition_filter", "is an empty list; leave it out to select every partition")
    return tuple(_partition_filter(item, index) for index, item in enumerate(items))


def _partition_filter(item: object, index: int) -> tuple[tuple[str, str], ...]:
    path = f"partition_filter[{index}]"
    if not isinstance(item, Mapping) or not item:
        raise _bad_filter(path, "must be an object such as {'month': '2025-01'} with at least one key")
    return tuple(sorted((_filter_key(path, key), _filter_text(f"{path}.{key}", item[key])) for key in item))


def _filter_key(path: str, key: object) -> str:
    if not isinstance(key, str) or not key:
        raise _bad_filter(path, "has a key that is no name")
    return key


def _filter_text(path: str, value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | Decimal):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise _bad_filter(path, "must be a text, a number, true, false or null")


def _bad_filter(path: str, rule: str) -> InvalidRequest:
    path = path[:_SHOWN_CHARACTERS]
    return InvalidRequest("INVALID_FIELD", f"{path} {rule}", field=path)


def sort_fields(value: object) -> tuple[SortField, ...]:
    """Read `sort_order`, a list of `{column, direction?, nulls?}`. Iceberg's defaults: asc, nulls first; desc, last."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise refused("sort_order", value, "must be a list of {column, direction, nulls} with at least one entry")
    if len(value) > MAX_ORDERED_FIELDS:
        raise refused("sort_order", f"{len(value)} columns", f"may name at most {MAX_ORDERED_FIELDS}")
    fields = tuple(_sort_field(f"sort_order[{index}]", item) for index, item in enumerate(value))
    repeated = _first_repeated(f.column for f in fields)
    if repeated is not None:
        raise refused("sort_order", repeated, "names a column twice")
    return fields


def _sort_field(path: str, item: object) -> SortField:
    if not isinstance(item, Mapping) or not isinstance(item.get("column"), str) or not item["column"]:
        raise refused(path, item, "must be an object {column, direction, nulls} with a column name")
    unknown = sorted(set(item) - {"column", "direction", "nulls"})
    if unknown:
        raise refused(f"{path}.{unknown[0]}", item[unknown[0]], "unknown; valid are column, direction, nulls")
    direction = item.get("direction")
    direction = direction.lower() if isinstance(direction, str) else direction
    descending = _one_of(f"{path}.direction", direction, ("asc", "desc")) == "desc"
    default = "nulls-last" if descending else "nulls-first"
    nulls = _one_of(f"{path}.nulls", item.get("nulls") or default, ("nulls-first", "nulls-last", "first", "last"))
    return SortField(column=item["column"], descending=descending, nulls_first=nulls.endswith("first"))


def _one_of(path: str, value: object, valid: tuple[str, ...]) -> str:
    if value is None:
        return valid[0]
    if not isinstance(value, str) or value not in valid:
        raise refused(path, value, f"must be one of {', '.join(valid)}", valid=list(valid))
    return value


def _first_repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
