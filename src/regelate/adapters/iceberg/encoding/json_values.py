"""One JSON value against one column: the strict rules of docs/api.md "JSON encodings", value by value.

The slow, exact half of `encode.py`: it says what is wrong with a value, or gives the plain form that the column-wise
half takes: ints for ints, digits for decimals, `{key, value}` arrays for maps.
"""

from __future__ import annotations

import binascii
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import TypeVar

from regelate.adapters.iceberg.encoding.row_faults import (
    MISSING,
    NULL_IN_REQUIRED,
    SCHEMA_MISMATCH,
    TIMEZONE_MISMATCH,
    VALUE_OUT_OF_RANGE,
    Refused,
    refused,
)
from regelate.core.table.schema import Column

T = TypeVar("T")

NOT_FINITE: Mapping[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
LONGEST_EXACT_INTEGER = 2**53
"""Up to here every integer is a double; beyond, a JSON number with a point may have been rounded before we saw it."""
EXACT_DOUBLE_DIGITS = 15
"""Decimal texts of at most this many digits survive text -> double -> text (DBL_DIG of C): such a number is exact."""
DECIMAL_TEXT = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,9})?", re.ASCII)
DIGITS = re.compile(r"-?\d{1,19}", re.ASCII)
UUID_TEXT = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.(\d+))?)?"
_TIME = re.compile(_CLOCK, re.ASCII)
_MOMENT = re.compile(rf"(\d{{4}}-\d{{2}}-\d{{2}})[T ]{_CLOCK}(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MICROSECOND_DIGITS = 6


def type_head(type_text: str) -> str:
    """Return a type's name without its numbers: `decimal` of `decimal(9,2)`, `fixed` of `fixed[16]`."""
    return type_text.partition("(")[0].partition("[")[0]


def plain_value(column: Column, value: object, path: str) -> object:
    """Return the plain form of one JSON value for a column, null included. Errors: Refused."""
    if value is None:
        if column.required:
            raise refused(NULL_IN_REQUIRED, path, f"required {column.type}", value)
        return None
    if isinstance(value, Decimal):
        value = exact_number(column, value, path)
    return _READERS[type_head(column.type)](column, value, path)


def filler(column: Column) -> object:
    """Return some value for a required field of a null struct: Arrow's Parquet writer wants one, and writes none."""
    if column.type == "struct":
        return {child.name: filler(child) for child in column.children if child.required}
    if column.type.startswith("fixed"):
        return binascii.b2a_base64(bytes(int(column.type[len("fixed[") : -1])), newline=False).decode()
    return _FILLERS[type_head(column.type)]


def _mismatch(column: Column, value: object, path: str, expected: str | None = None) -> Refused:
    return refused(SCHEMA_MISMATCH, path, expected or column.type, value)


def _out_of_range(column: Column, value: object, path: str, why: str) -> Refused:
    return refused(VALUE_OUT_OF_RANGE, path, f"{column.type}: {why}", value)


def _boolean(column: Column, value: object, path: str) -> object:
    if isinstance(value, bool):
        return value
    raise _mismatch(column, value, path)


def _integer(column: Column, value: object, path: str) -> object:
    bits = 32 if column.type == "int" else 64
    if isinstance(value, str) and bits == 64 and DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, float):
        if not value.is_integer() or abs(value) > LONGEST_EXACT_INTEGER:
            raise _out_of_range(column, value, path, "an exact integer")
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch(column, value, path)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise _out_of_range(column, value, path, f"an integer of {bits} bits")
    return value


def _floating(column: Column, value: object, path: str) -> object:
    """A number goes to the nearest double or float; what would become infinite, or an integer no double has, does not.

    JSON numbers are decimal texts: nearly none is exactly a float, so being near is all that one can ask for there.
    """
    if isinstance(value, str) and value in NOT_FINITE:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _mismatch(column, value, path, f'{column.type}: a number, "NaN", "Infinity" or "-Infinity"')
    if isinstance(value, float) and not math.isfinite(value):
        raise _out_of_range(column, value, path, 'a finite number, or the string "NaN", "Infinity" or "-Infinity"')
    try:
        struct.pack("<f" if column.type == "float" else "<d", value)
        nearest = float(value)
    except (OverflowError, struct.error):
        raise _out_of_range(column, value, path, "a number below the type's largest") from None
    if column.type == "double" and isinstance(value, int) and int(nearest) != value:
        raise _out_of_range(column, value, path, "an integer that a double holds exactly (use long or decimal)")
    return nearest


def _decimal(column: Column, value: object, path: str) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _mismatch(column, value, path, f'{column.type} as a string such as "12.50"')
    text = value if isinstance(value, str) else repr(value)
    try:
        if not DECIMAL_TEXT.fullmatch(text):
            raise InvalidOperation
        number = Decimal(text)
    except InvalidOperation:
        raise _out_of_range(column, value, path, "a decimal number") from None
    sign, digits, _ = number.as_tuple()
    significant = "".join(map(str, digits)).lstrip("0")
    stripped = significant.rstrip("0")
    exponent = int(number.as_tuple().exponent) + len(significant) - len(stripped)
    if isinstance(value, float) and len(stripped) > EXACT_DOUBLE_DIGITS:
        raise _out_of_range(column, value, path, f"more than {EXACT_DOUBLE_DIGITS} digits must come as a string")
    precision, scale = (int(n) for n in column.type[len("decimal(") : -1].split(","))
    if stripped and exponent < -scale:
        raise _out_of_range(column, value, path, f"at most {scale} digits after the point")
    if stripped and len(stripped) + exponent > precision - scale:
        raise _out_of_range(column, value, path, f"at most {precision - scale} digits before the point")
    unscaled = stripped + "0" * (exponent + scale) if stripped else "0"
    return format(Decimal((sign, tuple(map(int, unscaled)), -scale)), "f")


def _text(column: Column, value: object, path: str, expected: str) -> str:
    if isinstance(value, str):
        return value
    raise _mismatch(column, value, path, f"{column.type} as a string{expected}")


def _string(column: Column, value: object, path: str) -> object:
    text = _text(column, value, path, "")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _out_of_range(column, value, path, "text that UTF-8 can hold (no lone surrogate)") from None
    return text


def _uuid(column: Column, value: object, path: str) -> object:
    text = _text(column, value, path, "")
    if not UUID_TEXT.fullmatch(text):
        raise _out_of_range(column, value, path, "8-4-4-4-12 hexadecimal digits")
    return text.lower()


def _binary(column: Column, value: object, path: str) -> object:
    text = _text(column, value, path, " in base64")
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise _out_of_range(column, value, path, "base64") from None
    if column.type.startswith("fixed") and len(data) != int(column.type[len("fixed[") : -1]):
        raise _out_of_range(column, value, path, f"base64 of exactly that many bytes, not {len(data)}")
    return binascii.b2a_base64(data, newline=False).decode()


def _date(column: Column, value: object, path: str) -> object:
    text = _text(column, value, path, ' such as "2025-01-17"')
    if not _DATE.fullmatch(text) or _parsed(date.fromisoformat, text) is None:
        raise _out_of_range(column, value, path, "a day of the calendar, as YYYY-MM-DD")
    return text


def _time(column: Column, value: object, path: str) -> object:
    text = _text(column, value, path, ' such as "05:00:00.000001"')
    match = _TIME.fullmatch(text)
    if match is None:
        raise _out_of_range(column, value, path, "a time of day, as HH:MM:SS.ffffff")
    _check_microseconds(column, text, match[1], path)
    return time.fromisoformat(text).isoformat()


def _timestamp(column: Column, value: object, path: str) -> object:
    with_zone = column.type == "timestamptz"
    example = "2025-01-17T05:00:00.123456" + ("+01:00" if with_zone else "")
    text = _text(column, value, path, f' such as "{example}"')
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise _out_of_range(column, value, path, f'a moment such as "{example}"')
    if bool(match[3]) != with_zone:
        wanted = "with an offset or Z" if with_zone else "without offset and without Z"
        raise refused(TIMEZONE_MISMATCH, path, f"{column.type}: {wanted}", value)
    _check_microseconds(column, text, match[2], path)
    moment = _parsed(_utc if with_zone else datetime.fromisoformat, text)
    if moment is None:
        raise _out_of_range(column, value, path, "a day of the calendar, years 0001 to 9999 in UTC")
    return moment.isoformat()


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _check_microseconds(column: Column, text: str, fraction: str | None, path: str) -> None:
    if fraction is not None and len(fraction) > _MICROSECOND_DIGITS:
        raise _out_of_range(column, text, path, f"at most {_MICROSECOND_DIGITS} digits of a second")


def _parsed(parse: Callable[[str], T], text: str) -> T | None:
    try:
        return parse(text)
    except (ValueError, OverflowError):
        return None


def _struct(column: Column, value: object, path: str) -> object:
    if not isinstance(value, Mapping):
        raise _mismatch(column, value, path, "an object")
    names = {child.name for child in column.children}
    for name in value:
        if name not in names:
            raise _mismatch(column, value[name], f"{path}.{name}", f"no such field; known: {', '.join(sorted(names))}")
    for child in column.children:
        if child.required and child.name not in value:
            raise refused(SCHEMA_MISMATCH, f"{path}.{child.name}", f"required {child.type}", MISSING)
    return {c.name: plain_value(c, value.get(c.name), f"{path}.{c.name}") for c in column.children}


def _list(column: Column, value: object, path: str) -> object:
    if not isinstance(value, list):
        raise _mismatch(column, value, path, "an array")
    return [plain_value(column.children[0], item, f"{path}[{i}]") for i, item in enumerate(value)]


def _map(column: Column, value: object, path: str) -> object:
    key_column, value_column = column.children
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            if not isinstance(entry, Mapping) or set(entry) != {"key", "value"}:
                raise _mismatch(column, entry, f"{path}[{i}]", "an object with `key` and `value`")
        pairs = [(entry["key"], entry["value"]) for entry in value]
    else:
        raise _mismatch(column, value, path, "an object, or an array of {key, value}")
    entries: dict[str, object] = {}
    for key, item in pairs:
        plain_key = plain_value(key_column, key, f"{path}.key")
        plain_item = plain_value(value_column, item, f"{path}.value")
        if entries.setdefault(repr(plain_key), entry := {"key": plain_key, "value": plain_item}) is not entry:
            raise refused(VALUE_OUT_OF_RANGE, f"{path}.key", "every key of a map once", key)
    return list(entries.values())


_READERS: Mapping[str, Callable[[Column, object, str], object]] = {
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "string": _string,
    "uuid": _uuid,
    "binary": _binary,
    "fixed": _binary,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "struct": _struct,
    "list": _list,
    "map": _map,
}
WRITABLE_TYPES = frozenset(_READERS)
_FILLERS: Mapping[str, object] = {
    "boolean": False,
    **dict.fromkeys(("int", "long", "float", "double"), 0),
    "decimal": "0",
    **dict.fromkeys(("string", "binary"), ""),
    "uuid": "00000000-0000-0000-0000-000000000000",
    "date": "1970-01-01",
    "time": "00:00",
    "timestamp": "1970-01-01T00:00",
    "timestamptz": "1970-01-01T00:00Z",
    "list": [],
    "map": {},
}


DOUBLE_DIGITS = 17
"""What a printer of doubles needs at most (DBL_DECIMAL_DIG of C): more is no double, unless it is exactly one."""


def exact_number(column: Column, value: Decimal, path: str) -> int | float | str | Decimal:
    """Return the number in the form that the column's reader takes; Decimal where the column is no number at all.

    A whole number without exponent stays whole, so that a double column refuses 9007199254740993.0 as it refuses
    9007199254740993. Errors: Refused.
    """
    whole = value == value.to_integral_value()
    if column.type.startswith("decimal"):
        return str(value)
    if column.type in ("int", "long"):
        if not whole:
            raise refused(VALUE_OUT_OF_RANGE, path, f"{column.type}: an exact integer", value)
        return int(value)
    if column.type in ("float", "double"):
        if whole and int(value.as_tuple().exponent) <= 0:
            return int(value)
        nearest = float(value)
        if _digits(value) > DOUBLE_DIGITS and Decimal(nearest) != value:
            rule = f"{column.type}: a number of at most {DOUBLE_DIGITS} digits (use decimal)"
            raise refused(VALUE_OUT_OF_RANGE, path, rule, value)
        return nearest
    return value


def _digits(value: Decimal) -> int:
    """Count the digits that matter: not the zeros before and after."""
    return len("".join(map(str, value.as_tuple().digits)).strip("0"))
