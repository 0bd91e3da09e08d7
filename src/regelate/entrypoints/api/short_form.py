"""`POST /api/v1/compact`: the short form of COMPACT, for schedulers and command lines.

`table` is `namespace.table` or a bare name in the namespace `default`. `strategy` is one of ours (`binpack`, `sort`) or
a selection (`small-files`, `size-tiered`, `time-series`, `partition`). `options` are Iceberg's, and sizes as people
write them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from regelate.core.policy.option_values import refused
from regelate.core.policy.options import ICEBERG_OPTIONS, parse_size
from regelate.core.policy.policy import Selection, Strategy
from regelate.entrypoints.api.fields import Identifier, unknown_option
from regelate.entrypoints.api.request_base import Request
from regelate.entrypoints.api.requests import Compact
from regelate.entrypoints.api.validation import validated
from regelate.settings.section import OneOf

DEFAULT_NAMESPACE = "default"
_SIZES = {"target_file_size": "target-file-size-bytes", "min_file_size": "min-file-size-bytes"}
_MAX_COST = "max_cost"
_KNOWN = (*_SIZES, _MAX_COST, *ICEBERG_OPTIONS)


def _options(value: object) -> object:
    """Judge the names here, the values by the request that they become."""
    if not isinstance(value, dict):
        raise refused("options", value, "must be an object of option names")
    for name in value:
        if name not in _KNOWN:
            raise unknown_option(name, value[name], _KNOWN)
    for size, name in _SIZES.items():
        if size in value and name in value:
            raise refused(f"options.{size}", value[size], f"cannot be combined with {name}")
    return value


_OPTIONS_SCHEMA = {
    "type": "object",
    "description": "Iceberg's option names; sizes such as 1GB or 512MB; max_cost in US dollars as in COMPACT.",
    "properties": {
        **{name: {"type": ["string", "integer"], "examples": ["1GB"]} for name in _SIZES},
        _MAX_COST: {"type": "number", "exclusiveMinimum": 0},
        **{name: {"type": ["string", "number", "boolean"]} for name in ICEBERG_OPTIONS},
    },
    "additionalProperties": False,
}


class ShortCompact(Request):
    """The tenant is the caller's; without authorisation the body's, or the only one there is."""

    table: str
    strategy: Annotated[str, OneOf(*Selection, *Strategy)] | None = None
    options: Annotated[dict[str, Any], PlainValidator(_options), WithJsonSchema(_OPTIONS_SCHEMA)] = Field(
        default_factory=dict
    )
    tenant_id: str | None = None
    catalog: str | None = None
    dry_run: bool = False
    idempotency_key: Identifier | None = None


def parse_short_form(payload: Mapping[str, object], tenant_of: Callable[[ShortCompact], str]) -> Compact:
    """Return the COMPACT that a short form means; `tenant_of` names its tenant. Errors: as `parse_request`."""
    short = validated(ShortCompact, payload)
    namespace, table = split_table(short.table)
    options = {name: value for name, value in short.options.items() if name not in (*_SIZES, _MAX_COST)}
    for size, name in _SIZES.items():
        if size in short.options:
            options[name] = str(parse_size(short.options[size], option=f"options.{size}"))
    wanted: dict[str, Any] = {
        **short.model_dump(include={"request_id", "catalog", "idempotency_key"}, exclude_none=True),
        "operation": "COMPACT",
        "tenant_id": tenant_of(short),
        "namespace": namespace,
        "table": table,
        "dry_run": short.dry_run,
        "options": options,
    }
    if short.strategy is not None:
        wanted["selection" if short.strategy in list(Selection) else "strategy"] = short.strategy
    if _MAX_COST in short.options:
        wanted[_MAX_COST] = short.options[_MAX_COST]
    return validated(Compact, wanted)


def split_table(text: str) -> tuple[str, str]:
    """Return (namespace, table) of `a.b.table`; a bare name is in the namespace `default`."""
    namespace, dot, table = text.rpartition(".")
    return (namespace, table) if dot else (DEFAULT_NAMESPACE, table)
