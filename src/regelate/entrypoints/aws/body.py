"""Bodies of HTTP requests, parsed strictly.

What `json.loads` lets through is refused before anything else looks at it: it takes NaN, turns 1e400 into infinity and
keeps the last of duplicate keys (trap T21: lenient JSON). Rows 1, 2, 3 and 5 of the fault catalogue: no
JSON, no object, too large, values that no column holds. A direct invoke arrives parsed.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import accumulate
from typing import NoReturn

from regelate.errors import InvalidRequest

MAX_BODY_BYTES = 6 * 1024 * 1024
"""Lambda's own limit for one synchronous request."""
MAX_NESTING = 64
LARGE_BODY_BYTES = 256 * 1024
"""It takes a hundredth of a second to parse; the largest some tenths, in which no other thread runs."""
_SHOWN_CHARACTERS = 60
_FOREIGN_MARKS = (
    (codecs.BOM_UTF8, "it starts with a byte order mark"),
    (codecs.BOM_UTF16_LE, "it is UTF-16"),
    (codecs.BOM_UTF16_BE, "it is UTF-16"),
)
_NOT_ZERO = re.compile(r"[-0.]*[1-9]", re.ASCII)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NUMBER_SHAPES = bytes.maketrans(b"123456789.E-", b"0000000000e+")
_DELICATE_SHAPES = (b"0" * 16, b"0e000", b"0e+000")
"""A number may be infinite, or hold more than the 15 digits that every double keeps; elsewhere `float` is exact."""

_large_ones = threading.Lock()


@contextmanager
def turn(body_bytes: int) -> Iterator[None]:
    """Let large bodies be worked on one after the other until the block is left, and small ones beside them.

    The interpreter lock goes to any of those who wait for it. A small request asks for it at each read and write, and
    would wait behind every large one each time.
    """
    if body_bytes < LARGE_BODY_BYTES:
        yield
        return
    with _large_ones:
        yield


def parse_body(
    body: str | bytes | None, *, max_bytes: int = MAX_BODY_BYTES, max_nesting: int = MAX_NESTING
) -> dict[str, object]:
    """Return the one JSON object that `body` is.

    Numbers are int and float; one with more digits than a double keeps arrives as Decimal, so that nothing is rounded
    before the table's own type is known. Errors: InvalidRequest INVALID_JSON (with the offset in bytes),
    INVALID_REQUEST (no object, nesting, duplicate keys), INVALID_FIELD (NaN, Infinity, 1e400), PAYLOAD_TOO_LARGE (413).
    """
    raw = _encoded(body or b"", max_bytes)
    text = _decoded(raw)
    _check_nesting(raw, max_nesting)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_exact if _has_delicate_numbers(raw) else None,
        )
    except json.JSONDecodeError as fault:
        offset = len(text[: fault.pos].encode())
        raise _invalid_json(f"{fault.msg} at byte {offset} of {len(raw)}", offset) from None
    except RecursionError:
        raise _too_deep(max_nesting) from None
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise InvalidRequest("INVALID_FIELD", "the body holds an integer of thousands of digits") from None
    if not isinstance(value, dict):
        raise InvalidRequest("INVALID_REQUEST", "the body must be one JSON object: {...}")
    return value


def _encoded(body: str | bytes, max_bytes: int) -> bytes:
    if len(body) <= max_bytes:
        try:
            raw = body.encode() if isinstance(body, str) else body
        except UnicodeEncodeError as fault:
            offset = len(fault.object[: fault.start].encode())
            raise _invalid_json(f"half of a surrogate pair at byte {offset}", offset) from None
        if len(raw) <= max_bytes:
            return raw
    raise too_large(max_bytes)


def too_large(max_bytes: int) -> InvalidRequest:
    """Make the 413 that names the limit."""
    message = f"the body is larger than {max_bytes} bytes; split it into several requests"
    return InvalidRequest("PAYLOAD_TOO_LARGE", message, status=413, max_bytes=max_bytes)


def _decoded(raw: bytes) -> str:
    for mark, what in _FOREIGN_MARKS:
        if raw.startswith(mark):
            raise _invalid_json(f"the body must be UTF-8 without a byte order mark; {what}", 0)
    if b"\0" in raw[:2]:
        raise _invalid_json("the body must be UTF-8; it looks like UTF-16", 0)
    try:
        return raw.decode()
    except UnicodeDecodeError as fault:
        raise _invalid_json(f"the body is not UTF-8 at byte {fault.start}", fault.start) from None


def _check_nesting(raw: bytes, max_nesting: int) -> None:
    """Count brackets outside of strings, before the parser recurses into them; it also judges what is not JSON."""
    if raw.count(b"[") + raw.count(b"{") <= max_nesting:
        return
    outside_strings = raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    brackets = b"".join(outside_strings).translate(None, _NOT_BRACKETS)
    if any(depth > max_nesting for depth in accumulate(map(_STEP.__getitem__, brackets))):  # no further than that
        raise _too_deep(max_nesting)


def _has_delicate_numbers(raw: bytes) -> bool:
    shapes = raw.translate(_NUMBER_SHAPES)
    return any(shape in shapes for shape in _DELICATE_SHAPES)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        key = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise InvalidRequest("INVALID_REQUEST", f"the key {_shown(key)} appears twice in one object", key=_shown(key))
    return made


def _no_constant(text: str) -> NoReturn:
    message = f"{text} is not JSON; for a float or double column send it as the text {json.dumps(text)}"
    raise InvalidRequest("INVALID_FIELD", message, value=text)


def _exact(text: str) -> float | Decimal:
    number = float(text)
    if math.isinf(number) or (number == 0 and _NOT_ZERO.match(text)):
        raise InvalidRequest("INVALID_FIELD", f"{_shown(text)} is beyond the range of a double", value=_shown(text))
    exact = Decimal(text)
    return number if Decimal(repr(number)) == exact else exact


def _invalid_json(message: str, offset: int) -> InvalidRequest:
    return InvalidRequest("INVALID_JSON", message, offset=offset)


def _too_deep(max_nesting: int) -> InvalidRequest:
    message = f"the body is nested deeper than {max_nesting} levels"
    return InvalidRequest("INVALID_REQUEST", message, max_nesting=max_nesting)


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "...")
