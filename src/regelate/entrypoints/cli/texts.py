"""What people write after a flag -> the JSON that a request holds. Standard library only, so that help starts fast.

Each reader raises ValueError with the rule that was broken; the parser puts the flag's name before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DEFAULT_NAMESPACE = "default"
_OPENING, _CLOSING = "([<{", ")]>}"
_TRANSFORM = re.compile(r"([A-Za-z]+)(?:\[(\d+)\])?\((.+)\)")
_AGGREGATE = re.compile(r"([a-z_]+)\((.*?)\)(?:\s+as\s+(.+))?", re.IGNORECASE)
_ORDER = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls[\s-](first|last))?", re.IGNORECASE)


def split_top(text: str, separator: str = ",") -> Iterator[str]:
    """Yield the parts of a list; what stands in brackets is not split: `a:decimal(9,2),b:int` has two parts."""
    depth = start = 0
    for position, character in enumerate(text):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == separator and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    yield text[start:].strip()


def table(text: str) -> tuple[str, str]:
    """Read `namespace.table`, also `a.b.table`; a bare name lies in the namespace `default`."""
    namespace, dot, name = text.rpartition(".")
    if not name or (dot and not namespace):
        raise ValueError(f"{text!r} is not NAMESPACE.TABLE")
    return (namespace, name) if dot else (DEFAULT_NAMESPACE, name)


def names(text: str) -> list[str]:
    """Read `a,b,c`."""
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise ValueError(f"{text!r} holds an empty name")
    return found


def schema(text: str) -> dict[str, Any]:
    """Read `name:type,...` (`name:type!` is required), or a file of the JSON that CREATE_TABLE takes as `schema`."""
    if ":" not in text or text.lower().endswith(".json"):
        return _schema_file(Path(text))
    fields: dict[str, Any] = {}
    for part in split_top(text):
        name, colon, kind = (piece.strip() for piece in part.partition(":"))
        required = kind.endswith("!")
        kind = kind.removesuffix("!").strip()
        if not name or not colon or not kind:
            raise ValueError(f"{part!r} is not name:type")
        if kind.partition("<")[0] in ("struct", "list", "map"):
            raise ValueError(f"{part!r}: write nested types in a JSON file, as CREATE_TABLE takes them")
        if name in fields:
            raise ValueError(f"the column {name!r} appears twice")
        fields[name] = {"type": kind, "required": required}
    return {"fields": fields}


def _schema_file(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise ValueError(f"cannot read {str(path)!r} ({fault.strerror}); or write name:type,...") from None
    except ValueError as fault:
        raise ValueError(f"{path} is not valid JSON: {fault}") from None
    found = found.get("schema", found) if isinstance(found, dict) else found
    if not isinstance(found, dict):
        raise ValueError(f'{path} must hold {{"fields": {{...}}}}')
    return found


def partition_field(text: str) -> dict[str, str]:
    """Read `month(day)`, `bucket[16](id)`, `bucket(16, id)` or a column's name."""
    match = _TRANSFORM.fullmatch(text.strip())
    if match is None:
        if not text.strip() or set(text) & set("()[]"):
            raise ValueError(f"{text!r} is not TRANSFORM(COLUMN), such as month(day) or bucket[16](id)")
        return {"source": text.strip(), "transform": "identity"}
    transform, number, source = match[1], match[2], match[3].strip()
    first, comma, rest = source.partition(",")
    if number is None and comma and first.strip().isdigit():
        number, source = first.strip(), rest.strip()
    return {"source": source, "transform": transform if number is None else f"{transform}[{number}]"}


def sort_field(text: str) -> dict[str, str]:
    """Read `column`, `column desc` or `column desc nulls last` as a sort order takes it."""
    column, direction, nulls = _ordering(text)
    found = {"column": column, "direction": direction}
    return found if nulls is None else {**found, "nulls": f"nulls-{nulls}"}


def order_field(text: str) -> dict[str, str]:
    """Read `column`, `column desc` or `column desc nulls last` as a query takes it."""
    column, direction, nulls = _ordering(text)
    found = {"column": column, "direction": direction}
    return found if nulls is None else {**found, "nulls": nulls}


def _ordering(text: str) -> tuple[str, str, str | None]:
    match = _ORDER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not COLUMN [asc|desc] [nulls first|last]")
    return match[1], (match[2] or "asc").lower(), match[3].lower() if match[3] else None


def aggregate(text: str) -> dict[str, str]:
    """Read `count(*)`, `avg(column)` or `avg(column) as name`."""
    match = _AGGREGATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not FUNCTION(COLUMN) [as NAME], such as avg(price) or count(*) as n")
    found = {"function": match[1].lower()}
    column = match[2].strip()
    if column not in ("", "*"):
        found["column"] = column
    return found if match[3] is None else {**found, "as": match[3].strip()}


def pair(text: str) -> tuple[str, str]:
    """Read `key=value`; the value may hold more of the signs."""
    key, sign, value = text.partition("=")
    if not key.strip() or not sign:
        raise ValueError(f"{text!r} is not key=value")
    return key.strip(), value


def partition_values(text: str) -> dict[str, str]:
    """Read `month=2025-01` or `region=eu,month=2025-01`: values that must all hold."""
    found = [pair(part) for part in text.split(",")]
    if len(dict(found)) != len(found):
        raise ValueError(f"{text!r} names a key twice; repeat the flag for one value or the other")
    return dict(found)


def json_value(text: str) -> Any:
    """Read JSON, such as a query's filter."""
    try:
        value = json.loads(text)
    except ValueError as fault:
        raise ValueError(f"is not valid JSON: {fault}") from None
    if not isinstance(value, dict | list):
        raise ValueError('must be an object or a list, such as {"column": "age", "op": ">=", "value": 18}')
    return value


def row_filter(text: str) -> Any:
    """Read a query's filter: JSON where it is or begins like JSON, else a row filter as text."""
    if re.match(r"\s*([{\[]|[0-9.+-]*$)", text):
        return json_value(text)
    return text


def whole(low: int = 0) -> Callable[[str], int]:
    """Return a reader of whole numbers from `low` on."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip(), re.ASCII) or int(text) < low:
            raise ValueError(f"{text!r} is not a whole number from {low} on")
        return int(text)

    return read


def hours(text: str) -> float:
    """Read a number of hours; which ones may be kept is the service's to judge."""
    if not re.fullmatch(r"[+-]?[0-9]{1,12}(\.[0-9]{1,6})?", text.strip(), re.ASCII):
        raise ValueError(f"{text!r} is not a number of hours")
    return float(text)
