"""Plain JSON values -> a strict model, or the one refusal that names the field.

MISSING_FIELD, UNKNOWN_FIELD, INVALID_FIELD, and INVALID_OPTION for the knobs of a compaction. Of the caller's input a
message holds names only, cut; never a value, never a link to another project's manual.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from regelate.errors import InvalidRequest

MAX_SHOWN_CHARACTERS = 200
MAX_VALUES = 20_000
"""Of all arrays and objects of a request, but for the two below and rows: enough for 2,000 columns with all that may be
said of each. A fault is made of each value that is wrong, and no other thread runs until they all are judged.
"""
MAX_FILTER_VALUES = 100_000
"""Of one array or object of a filter: what reads those stops at the first fault."""
_MOST_FAULTS = 5
_CODES = {"missing": "MISSING_FIELD", "extra_forbidden": "UNKNOWN_FIELD"}
_RULES = {
    "missing": "this field is missing",
    "extra_forbidden": "this field does not exist here",
}
_ROWS = "records"
_FILTERS = frozenset({"filter", "partition_filter"})
_KNOBS = frozenset({"target_file_size_mb", "max_files"})
"""Thresholds, whose wrong types are INVALID_OPTION like their wrong ranges."""
_KINDS = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    Decimal: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], payload: Mapping[str, object]) -> Model:
    """Return `payload` as `model`. Errors: InvalidRequest, for the first fault, with up to five in `details.faults`."""
    payload = _with_few_unknown(payload, model)
    _check_sizes(payload)
    _check_texts(payload)
    try:
        return model.model_validate(payload)
    except ValidationError as fault:
        raise _refusal(fault.errors(include_url=False, include_context=False), payload, model) from None


def _with_few_unknown(payload: Mapping[str, object], model: type[BaseModel]) -> Mapping[str, object]:
    """Leave out the unknown fields that no refusal would name: a body has room for half a million."""
    known = {field.alias or name for name, field in model.model_fields.items()}
    unknown = [name for name in payload if name not in known]
    left_out = set(unknown[_MOST_FAULTS:])
    return {name: value for name, value in payload.items() if name not in left_out} if left_out else payload


def _check_sizes(payload: Mapping[str, object]) -> None:
    found = 0
    for name, value in payload.items():
        waiting: list[object] = [] if name == _ROWS else [value]
        while waiting:
            here = waiting.pop()
            if not isinstance(here, dict | list):
                continue
            if name in _FILTERS:
                if len(here) > MAX_FILTER_VALUES:
                    raise _too_many(name, f"an array or object of more than {MAX_FILTER_VALUES:,}", MAX_FILTER_VALUES)
            else:
                found += len(here)
                if found > MAX_VALUES:
                    raise _too_many(name, f"with what stands before it more than {MAX_VALUES:,}", MAX_VALUES)
            waiting += here.values() if isinstance(here, dict) else here


def _too_many(name: str, how_many: str, limit: int) -> InvalidRequest:
    field = _step("", name)[:MAX_SHOWN_CHARACTERS]
    return InvalidRequest(
        "INVALID_FIELD", f"{field}: {how_many} values; split the request", field=field, max_values=limit
    )


def _check_texts(payload: Mapping[str, object]) -> None:
    """Refuse half surrogate pairs, which JSON can escape and no file can hold; rows have their own fault for it."""
    for name, value in payload.items():
        try:
            json.dumps({name: None if name == _ROWS else value}, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            field = _step("", name)[:MAX_SHOWN_CHARACTERS]
            message = f"{field}: holds half of a surrogate pair, which is not a character"
            raise InvalidRequest("INVALID_FIELD", message, field=field) from None


def _refusal(errors: Sequence[Any], payload: Mapping[str, object], model: type[BaseModel]) -> InvalidRequest:
    """Make one fault per field: the branches of a union that all failed are one rule, joined by `or`."""
    found: dict[str, tuple[str, list[str]]] = {}
    for error in errors:
        path = field_path(error["loc"], payload)
        if len(found) == _MOST_FAULTS and path not in found:
            break  # those of one field stand together
        _, rules = found.setdefault(path, (_code(error["type"], path), []))
        rule = _rule(error)
        if rule not in rules:
            rules.append(rule)
    faults = [{"field": path, "code": code, "rule": _cut(" or ".join(rules))} for path, (code, rules) in found.items()]
    first = faults[0]
    details: dict[str, Any] = {"field": first["field"], "faults": faults}
    message = f"{first['field']}: {first['rule']}"
    if first["code"] == "UNKNOWN_FIELD" and _is_top_level(first["field"]):
        details["known_fields"] = sorted(f.alias or name for name, f in model.model_fields.items())
        message += f"; known are {', '.join(details['known_fields'])}"
    return InvalidRequest(first["code"], message, **details)


def _code(kind: str, path: str) -> str:
    if kind not in _CODES and path in _KNOBS:
        return "INVALID_OPTION"
    return _CODES.get(kind, "INVALID_FIELD")


def _rule(error: Any) -> str:
    if error["type"] in _RULES:
        return _RULES[error["type"]]
    got = "null" if error["input"] is None else _KINDS.get(type(error["input"]), "something else")
    text = str(error["msg"]).replace("Input should be", "must be")
    return f"{text}, got {got}"


def field_path(loc: Sequence[str | int], payload: object) -> str:
    """Return where a fault is, as in `schema.fields.name.type` or `columns[3]`.

    pydantic puts the names of union branches between the real steps; what is no step into the payload is left out.
    """
    path, here = "", payload
    for index, part in enumerate(loc):
        if isinstance(here, Mapping) and part in here:
            path, here = _step(path, part), here[part]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path, here = f"{path}[{part}]", here[part]
        elif isinstance(here, Mapping) and index == len(loc) - 1 and part != "[key]":
            path = _step(path, part)
    return _cut(path)


def _step(path: str, part: object) -> str:
    name = str(part).encode("ascii", "backslashreplace").decode()
    return f"{path}.{name}" if path else name


def _is_top_level(path: str) -> bool:
    return "." not in path and "[" not in path


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."
