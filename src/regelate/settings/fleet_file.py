"""Every key of regelate.yaml: its type, its range and its default, and the JSON schema that editors check it by.

`python -m regelate.settings.fleet_file > docs/regelate.schema.json` writes the schema anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import core_schema

from regelate.core.fleet.conditions import MAX_CHARACTERS, Metric
from regelate.core.policy.options import ICEBERG_OPTIONS
from regelate.settings.section import Section

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""Monday is 0 in core."""
_SWITCH = {"on": True, "off": False}
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class _Switch:
    """`on` and `off` beside true and false: YAML 1.1 reads booleans where YAML 1.2 reads these texts."""

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> Any:
        read = core_schema.no_info_before_validator_function(_switched, core_schema.bool_schema(strict=True))
        shown = {"anyOf": [{"type": "boolean"}, {"enum": list(_SWITCH)}]}
        read["metadata"] = {"pydantic_js_functions": [lambda _schema, _handler: shown]}
        return read


def _switched(value: object) -> object:
    return _SWITCH.get(value, value) if isinstance(value, str) else value


class _OrSwitch:
    """An operation's settings, or `on` or `off` alone."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"anyOf": [{"type": "boolean"}, {"enum": list(_SWITCH)}, handler(schema)]}


def _opened(value: object) -> object:
    found = _switched(value)
    return {"enabled": found} if isinstance(found, bool) else found


class FleetSection(Section):
    """A section of regelate.yaml, whose keys have hyphens as Iceberg's options have."""

    model_config = ConfigDict(alias_generator=_kebab)


Dollars = Annotated[float, Field(ge=0, le=1e9)]
Switch = Annotated[bool, _Switch()]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Glob = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
Clock = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
Option = Annotated[str, Field(json_schema_extra={"enum": sorted(ICEBERG_OPTIONS)})]
_WHEN = f"Only while this holds, such as `small-file-ratio > 0.3 and files > 100`. Metrics: {', '.join(Metric)}."


class BudgetsSection(FleetSection):
    """What may be spent in a day and a month of UTC; what is left out has no limit."""

    dollars_per_day: Dollars | None = None
    gb_seconds_per_day: Annotated[float, Field(ge=0, le=1e15)] | None = None
    dollars_per_month: Dollars | None = None


class WindowSection(FleetSection):
    """Hours of UTC in which nothing is started; an end at or before the start lies on the next day."""

    days: Annotated[tuple[Day, ...], Field(min_length=1)] = DAYS
    start: Clock
    end: Clock


class OperationSection(FleetSection):
    """One operation: whether it is done at all, and while what holds."""

    enabled: Switch | None = None
    when: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS)] | None = Field(
        default=None, description=_WHEN
    )


Operation = Annotated[OperationSection, BeforeValidator(_opened), _OrSwitch()]


class RuleSection(FleetSection):
    """What holds for some tables; what is left out is inherited."""

    inherits: Name | None = None
    enabled: Switch | None = None
    compact: Operation | None = None
    expire_snapshots: Operation | None = None
    rewrite_manifests: Operation | None = None
    remove_orphan_files: Operation | None = None
    apply_deletes: Operation | None = None
    max_cost_per_day: Dollars | None = None
    max_cost_per_run: Dollars | None = None
    quiet_windows: tuple[WindowSection, ...] | None = None
    compact_options: Mapping[Option, str | int | float | bool] | None = None
    overrides: Literal["allowed", "refused"] | None = Field(
        default=None, description="Whether the properties `regelate.fleet.*` of a table win; `refused` if unset."
    )


class TenantsSection(FleetSection):
    """Budgets of the tenants that are named, and of all others."""

    default_budgets: BudgetsSection | None = None
    budgets: Mapping[Annotated[str, StringConstraints(min_length=1, max_length=64)], BudgetsSection] = Field(
        default_factory=dict
    )


class LimitsSection(FleetSection):
    """How many operations run at once."""

    max_running: Annotated[int, Field(ge=1, le=10_000)] = 4
    max_running_per_catalog: Annotated[int, Field(ge=1, le=10_000)] | None = None


class PriceSection(FleetSection):
    """What a service lists for compaction, in dollars: by GB read and written, by data file read, by run."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    per_gb: Dollars = 0.0
    per_million_files: Dollars = 0.0
    per_run: Dollars = 0.0
    source: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    as_of: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class PolicyFile(FleetSection):
    """What the operators of a fleet of Iceberg tables allow: docs/fleet.md."""

    version: Literal[1] = 1
    budgets: BudgetsSection = BudgetsSection()
    tenants: TenantsSection = TenantsSection()
    limits: LimitsSection = LimitsSection()
    prices: Mapping[Name, PriceSection] = Field(default_factory=dict)
    quiet_windows: tuple[WindowSection, ...] = ()
    profiles: Mapping[Name, RuleSection] = Field(default_factory=dict)
    defaults: RuleSection = RuleSection()
    catalogs: Mapping[Glob, RuleSection] = Field(default_factory=dict)
    namespaces: Mapping[Glob, RuleSection] = Field(default_factory=dict)
    tables: Mapping[Glob, RuleSection] = Field(default_factory=dict)


def fleet_schema() -> dict[str, Any]:
    """Return the JSON schema of regelate.yaml. What may be left out may not be null."""
    return {"$schema": _DRAFT, **_without_null(PolicyFile.model_json_schema(by_alias=True)), "title": "regelate.yaml"}


def _without_null(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_null(part) for part in schema if part != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    left = {key: _without_null(part) for key, part in schema.items() if not _says_nothing(key, part)}
    either = left.pop("anyOf", None)
    if either is None:
        return left
    return {**left, **either[0]} if len(either) == 1 else {**left, "anyOf": either}


def _says_nothing(key: str, part: object) -> bool:
    """Of the titles that pydantic makes of names, and of what stands for `left out`."""
    return (key == "title" and isinstance(part, str)) or (key == "default" and part is None)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fleet_schema(), indent=2, sort_keys=True) + "\n")
