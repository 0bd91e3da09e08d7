"""Types of request fields that judge themselves: each accepts what the core's own reader accepts, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from regelate.core.policy.option_values import MAX_LONG, partition_filters, refused
from regelate.core.policy.options import ICEBERG_OPTIONS
from regelate.core.policy.policy import MAX_TARGET_BYTES, MB
from regelate.core.requests import IDENTIFIER
from regelate.core.running.resume import MAX_TOKEN_CHARACTERS
from regelate.errors import InvalidRequest

_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
Identifier = Annotated[str, Field(pattern=f"^{IDENTIFIER.pattern}$")]
Token = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=MAX_TOKEN_CHARACTERS)]
Scalar = str | int | float | bool | None


def _records(value: object) -> object:
    if not isinstance(value, list):
        raise PydanticCustomError("list_type", "must be an array of objects")
    for row, record in enumerate(value):
        if not isinstance(record, dict):
            raise PydanticCustomError("row_type", "must hold only objects: row {row} is none", {"row": row})
    return value


def unknown_option(name: object, value: object, known: Iterable[str]) -> InvalidRequest:
    """Make the 400 INVALID_OPTION of an option name that does not exist."""
    valid = sorted(known)
    rule = f"unknown option; valid are {', '.join(valid)}"
    return refused(f"options.{str(name)[:100]}", value, rule, valid=valid)


def _iceberg_options(value: object) -> object:
    if not isinstance(value, dict):
        raise refused("options", value, "must be an object of Iceberg option names")
    for name, given in value.items():
        if name not in ICEBERG_OPTIONS:
            raise unknown_option(name, given, ICEBERG_OPTIONS)
        ICEBERG_OPTIONS[name][1](f"options.{name}", given)
    return value


def _partition_filter(value: object) -> object:
    partition_filters(value)
    return value


def _long(value: object) -> object:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_LONG:
        raise PydanticCustomError("long_type", "must be a whole number, or its digits as a string")
    return value


def _filter(value: object) -> object:
    if not isinstance(value, dict | list) and not (isinstance(value, str) and value.strip()):
        raise PydanticCustomError("filter_type", "must be an object, an array of objects, or a row filter as text")
    return value


_OPTIONS_SCHEMA = {
    "type": "object",
    "description": "Iceberg's option names; values are strings as in Iceberg, or plain numbers and booleans.",
    "properties": {name: {"type": ["string", "number", "boolean"]} for name in ICEBERG_OPTIONS},
    "additionalProperties": False,
}
IcebergOptions = Annotated[dict[str, Any], PlainValidator(_iceberg_options), WithJsonSchema(_OPTIONS_SCHEMA)]
PartitionFilter = Annotated[
    dict[str, Any] | list[dict[str, Any]],
    PlainValidator(_partition_filter, json_schema_input_type=dict[str, Scalar] | list[dict[str, Scalar]]),
]
Records = Annotated[list[dict[str, Any]], PlainValidator(_records, json_schema_input_type=list[dict[str, Any]])]
Long = Annotated[int, PlainValidator(_long, json_schema_input_type=int | str)]
Filter = Annotated[
    dict[str, Any] | list[Any] | str, PlainValidator(_filter, json_schema_input_type=dict[str, Any] | list[Any] | str)
]
Direction = Annotated[
    Literal["asc", "desc"],
    BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
    Field(description="In any case."),
]
Megabytes = Annotated[int, Field(ge=1, le=MAX_TARGET_BYTES // MB)]
Name = Annotated[str, Field(min_length=1)]
