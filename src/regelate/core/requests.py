"""What the verbs are asked, from the door to whoever does it, and the one way to write that as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from regelate.core.engines import Engine
from regelate.core.table.table import MAIN_BRANCH
from regelate.core.values import dataclass

JsonValue = Any
IDENTIFIER = re.compile(r"[\x21-\x7e]{1,128}")
"""A text of the caller's that ends up in answers, logs and snapshot summaries: visible ASCII only."""
AUTO = "auto"
ENGINES_ASKED_FOR = (AUTO, *(engine.value for engine in Engine))
"""`auto`, as with none: whoever the route names."""
Requested = TypeVar("Requested", "CompactRequest", "MaintainRequest", "QueryRequest")
_NESTED: Mapping[str, tuple[type, ...]] = {
    "aggregates": (list,),
    "as_of": (str, int),
    "columns": (list,),
    "filter": (dict, list, str),
    "group_by": (list,),
    "options": (dict,),
    "order_by": (list,),
    "partition_filter": (dict, list),
    "sort_order": (list,),
    "steps": (list,),
}
_PLAIN: Mapping[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}


class MissingColumns(StrEnum):
    """What an upsert does with a column that a record does not name."""

    NULL = "null"
    KEEP = "keep"


class WriteMode(StrEnum):
    APPEND = "append"
    UPSERT = "upsert"
    OVERWRITE_PARTITIONS = "overwrite_partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    """The fields of a COMPACT (docs/api.md); what is None comes from the table, config.json or Iceberg.

    Nested values are plain JSON: `partition_filter`, `sort_order` and `options` are judged where the policy is made.
    """

    force: bool = False
    target_file_size_mb: int | None = None
    max_files: int | None = None
    partition_filter: JsonValue = None
    where: str | None = None
    strategy: str | None = None
    selection: str | None = None
    sort_order: Sequence[Mapping[str, JsonValue]] | None = None
    engine: str | None = None
    expire_snapshots: bool = True
    snapshot_retention_hours: float | None = None
    dry_run: bool = False
    plan_id: str | None = None
    options: Mapping[str, JsonValue] | None = None
    verify: str | None = None
    max_cost: float | None = None
    idempotency_key: str | None = None
    run_async: bool = False
    time_budget_seconds: float | None = None
    resume_token: str | None = None
    ref: str = MAIN_BRANCH
    """The branch that is compacted."""

    @property
    def work(self) -> CompactRequest:
        """What is to be done, whenever and by whomever: without the fields that say how this one run is made."""
        return replace(self, idempotency_key=None, run_async=False, time_budget_seconds=None, resume_token=None)

    @property
    def rest(self) -> CompactRequest:
        """What the next part is asked: its plan is another one, and the price was judged at the beginning."""
        return replace(self.work, plan_id=None, max_cost=None, dry_run=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainRequest:
    """The fields of a MAINTAIN. `steps` None: all of them."""

    steps: Sequence[str] | None = None
    force: bool = False
    retention_hours: float | None = None
    min_snapshots_to_keep: int | None = None
    grace_hours: float | None = None
    older_than_hours: float | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """The fields of a QUERY; `sql` excludes the structured ones but `limit`; of snapshot, time and ref there is one."""

    columns: Sequence[str] | None = None
    filter: JsonValue = None
    aggregates: Sequence[Mapping[str, JsonValue]] = ()
    group_by: Sequence[str] = ()
    order_by: Sequence[Mapping[str, JsonValue]] = ()
    limit: int | None = None
    offset: int = 0
    sql: str | None = None
    snapshot_id: int | None = None
    as_of: str | int | None = None
    ref: str | None = None


def fields_of(request: CompactRequest | MaintainRequest | QueryRequest) -> dict[str, JsonValue]:
    """Return the fields that are not at their defaults, as plain JSON values.

    A number with more digits than a double keeps becomes its text, which whoever resolves it reads alike.
    """
    found = ((f, getattr(request, f.name)) for f in fields(request))
    return {f.name: _plain(value) for f, value in found if value != f.default}


def _plain(value: JsonValue) -> JsonValue:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def request_of(kind: type[Requested], given: Mapping[str, JsonValue]) -> Requested:
    """Read what `fields_of` returned, or an earlier version wrote, with every default spelled out.

    Raises ValueError for a name that is no field, and for a value of another JSON type.
    """
    known = {f.name: str(f.type).split(" | ")[0] for f in fields(kind)}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{name} is no field of it")
        expected = _NESTED.get(name) or _PLAIN[known[name]]
        is_flag = isinstance(value, bool)
        if value is not None and (not isinstance(value, expected) or (is_flag and bool not in expected)):
            raise ValueError(f"{name} is of another type")
    return kind(**{name: value for name, value in given.items() if value is not None})


def request_json(request: CompactRequest) -> str:
    return json.dumps(fields_of(request), separators=(",", ":"))


def request_of_json(text: str) -> CompactRequest:
    """Read what `request_json` wrote. Raises ValueError for anything else."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    return request_of(CompactRequest, found)
