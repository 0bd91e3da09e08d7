"""Iceberg's single-value binary bounds, decoded far enough to compare.

Rule: Iceberg spec, appendix D "Single-value serialization". String and binary bounds may be truncated: a lower bound
is a prefix, an upper bound a prefix whose last unit was raised.
"""

from __future__ import annotations

import struct
from typing import Any

HIGHEST_CHARACTER = "\U0010ffff"
FIRST_SURROGATE, AFTER_SURROGATES = 0xD800, 0xE000


def _textual(type_text: str) -> bool:
    """Say whether writers may cut bounds of a type: Java cuts those of fixed like those of binary (1.10)."""
    return type_text in ("string", "binary") or type_text.startswith("fixed")


def decode(type_text: str, raw: bytes) -> Any:
    """Return a comparable value for a bound of the given Iceberg type text, or None where order is not defined here.

    An int bound of a column promoted to long (4 bytes), and float to double, decode by their length. UUIDs have no
    order here, because writers differ on it: as unsigned bytes or, in Java until 1.10, as two signed numbers.
    """
    if type_text in ("int", "long", "date", "time", "timestamp", "timestamptz"):
        return int.from_bytes(raw, "little", signed=True)
    if type_text in ("float", "double"):
        value = struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
        return None if value != value else value
    if type_text.startswith("decimal"):
        return int.from_bytes(raw, "big", signed=True)
    if type_text == "boolean":
        return raw != b"\x00"
    if _textual(type_text):
        return raw
    return None


def truncated(type_text: str, lower: bytes, length: int) -> bytes:
    """Return the lower bound of at most `length` characters, or bytes where the type is not string."""
    return lower.decode()[:length].encode() if type_text == "string" else lower[:length]


def raised(type_text: str, upper: bytes, length: int) -> bytes | None:
    """Return the least upper bound of at most `length` characters (or bytes) above a longer one; None: there is none.

    Characters skip the surrogates, which UTF-8 does not have (Iceberg's UnicodeUtil.truncateStringMax and
    BinaryUtil.truncateBinaryMax, 1.10).
    """
    if type_text != "string":
        cut = upper[:length].rstrip(b"\xff")
        return upper if len(upper) <= length else (cut[:-1] + bytes([cut[-1] + 1]) if cut else None)
    text = upper.decode()
    if len(text) <= length:
        return upper
    head = text[:length].rstrip(HIGHEST_CHARACTER)
    if not head:
        return None
    following = ord(head[-1]) + 1
    return (head[:-1] + chr(AFTER_SURROGATES if following == FIRST_SURROGATE else following)).encode()


def order_key(type_text: str, raw: bytes) -> Any:
    """Sort key of a bound; a NaN, which no bound should be, sorts first."""
    value = decode(type_text, raw)
    return (value is not None, value)


def overlong_lower(type_text: str, inner: Any, outer: Any) -> Any:
    """Cut `outer` to the length at which `inner` was truncated, so that two truncations compare."""
    return outer[: len(inner)] if _textual(type_text) else outer


def shortened_upper(type_text: str, inner: Any) -> Any:
    """Drop the unit that truncation may have raised; what is left is not above the true maximum.

    A string's last character may be up to four bytes: the cut goes to a character boundary.
    """
    if type_text == "string":
        return inner.decode("utf-8", "ignore")[:-1].encode()
    return inner[:-1] if _textual(type_text) else inner


def contained(type_text: str, inner: tuple[bytes, bytes], outer: tuple[bytes, bytes]) -> bool:
    """Say whether the inner (lower, upper) lies within the outer one, allowing for truncation on either side."""
    in_low, in_high = decode(type_text, inner[0]), decode(type_text, inner[1])
    out_low, out_high = decode(type_text, outer[0]), decode(type_text, outer[1])
    if None in (in_low, in_high, out_low, out_high):
        return True
    low_fits = bool(in_low >= overlong_lower(type_text, in_low, out_low))
    return low_fits and bool(shortened_upper(type_text, in_high) <= out_high)
