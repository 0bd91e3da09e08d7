"""regelate.yaml -> `FleetPolicy`, or a refusal that says each fault with its line and column."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import time
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from regelate.core.fleet.conditions import Condition, parse_condition
from regelate.core.fleet.list_prices import LIST_PRICES, ListPrice
from regelate.core.fleet.operation import FleetOperation
from regelate.core.fleet.policy import (
    Budgets,
    FleetPolicy,
    OperationLayer,
    PolicyLayer,
    PolicyRule,
    QuietWindow,
    Scope,
    unmatched,
)
from regelate.core.policy.option_values import parse_size
from regelate.core.policy.options import CompactionDefaults, resolve_policy
from regelate.core.requests import CompactRequest
from regelate.errors import InvalidRequest
from regelate.settings.fleet_file import (
    DAYS,
    BudgetsSection,
    OperationSection,
    PolicyFile,
    RuleSection,
    WindowSection,
    fleet_schema,
)
from regelate.settings.located_yaml import MAX_BYTES, LocatedYaml, Mark, YamlFault, read_located_yaml
from regelate.settings.located_yaml import Path as KeyPath

POLICY_FILE_NAME = "regelate.yaml"
_MOST_SHOWN = 5
_KEY_OF_MAPPING = "[key]"
_SIZE_OPTIONS = "-bytes"
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFault:
    """One thing that is wrong in a policy; `line` and `column` count from 1. `place`: the keys that lead to it."""

    line: int
    column: int
    message: str
    place: KeyPath = ()


class BrokenPolicy(InvalidRequest):
    """A policy of which nothing holds: FLEET_POLICY_INVALID. `details.faults` has each fault with its place."""

    def __init__(self, source: str, faults: Iterable[PolicyFault]) -> None:
        found = sorted(faults, key=lambda fault: (fault.line, fault.column))
        shown = "; ".join(f"line {f.line}, column {f.column}: {f.message}" for f in found[:_MOST_SHOWN])
        more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
        listed = [{"line": f.line, "column": f.column, "message": f.message} for f in found]
        super().__init__("FLEET_POLICY_INVALID", f"{source} {shown}{more}; nothing of it is applied", faults=listed)
        self._source, self._faults = source, found

    def told_to(self, tenants: Collection[str], tables: Collection[tuple[str, str]]) -> InvalidRequest:
        """Return what one of several tenants is told: the faults of lines about its budgets and its tables, which are
        given as (catalog, ident), and of others that there are some."""
        own = [fault for fault in self._faults if _concerns(fault.place, tenants, tables)]
        if own:
            return BrokenPolicy(self._source, own)
        told = "the policy of this fleet is broken, in no line about your tables, and nothing of it is applied"
        return InvalidRequest("FLEET_POLICY_INVALID", f"{told}; its operators have to mend it", faults=[])


def _concerns(place: KeyPath, tenants: Collection[str], tables: Collection[tuple[str, str]]) -> bool:
    if place[:2] == ("tenants", "budgets"):
        return place[2:3] != () and place[2] in tenants
    if len(place) < 2 or place[0] not in list(Scope):
        return False
    rule = PolicyRule(scope=Scope(str(place[0])), glob=str(place[1]), layers=())
    return not unmatched(FleetPolicy(rules=(rule,)), tables)


def load_fleet_policy(path: Path) -> FleetPolicy:
    """Read a policy file. Errors: BrokenPolicy."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as fault:
        told = f"the file cannot be read: {fault.strerror}"
        raise BrokenPolicy(path.name, [PolicyFault(line=1, column=1, message=told)]) from fault
    return read_fleet_policy(content, path.name)


def read_fleet_policy(content: bytes, source: str = POLICY_FILE_NAME) -> FleetPolicy:
    """Read a policy; `source` is what it is called in sentences. Errors: BrokenPolicy."""
    try:
        document = read_located_yaml(content)
    except YamlFault as fault:
        found = PolicyFault(line=fault.mark[0], column=fault.mark[1], message=fault.rule)
        raise BrokenPolicy(source, [found]) from fault
    faults = list(_shape_faults(document))
    if faults:
        raise BrokenPolicy(source, faults)
    return _Reading(source=source, document=document).policy(_typed(document, source))


def refuse_unmatched(policy: FleetPolicy, idents: Iterable[tuple[str, str]]) -> None:
    """Refuse a policy with a glob that names none of these tables, given as (catalog, ident). Errors: BrokenPolicy."""
    faults = [
        PolicyFault(line=rule.line, column=rule.column, message=f"{rule.scope} {_shown(rule.glob)}: matches nothing")
        for rule in unmatched(policy, idents)
    ]
    if faults:
        raise BrokenPolicy(policy.source or POLICY_FILE_NAME, faults)


def _shown(text: object) -> str:
    found = json.dumps(text, ensure_ascii=False)
    return found if len(found) <= _SHOWN_CHARACTERS else f"{found[:_SHOWN_CHARACTERS]}..."


def _shape_faults(document: LocatedYaml) -> Iterator[PolicyFault]:
    """Yield what no model has to be asked for: a file that is no mapping, keys without a value."""
    if not isinstance(document.value, dict):
        yield PolicyFault(line=1, column=1, message="must hold keys and values, such as `defaults:`; see docs/fleet.md")
    for path in document.values:
        here: Any = document.value
        for part in path:
            here = here[part]
        if here is None and path:
            line, column = document.key_mark(path)
            told = f"{_told(path)}: has no value; leave it out instead"
            yield PolicyFault(line=line, column=column, message=told, place=path)


def _told(path: KeyPath) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else part for part in path]
    return " > ".join(_shown(part) if " " in part or "*" in part else part[:_SHOWN_CHARACTERS] for part in parts)


def _typed(document: LocatedYaml, source: str) -> PolicyFile:
    from pydantic import ValidationError

    try:
        # From JSON text: strict mode then takes an array for a tuple, and still no "5" for 5.
        return PolicyFile.model_validate_json(json.dumps(document.value))
    except ValidationError as fault:
        errors = fault.errors(include_url=False, include_input=False, include_context=False)
        raise BrokenPolicy(source, [_model_fault(error, document) for error in errors]) from None


def _model_fault(error: Any, document: LocatedYaml) -> PolicyFault:
    loc: KeyPath = tuple(part for part in error["loc"] if part != _KEY_OF_MAPPING)
    if error["type"] == "extra_forbidden":
        mark, rule = document.key_mark(loc), _unknown_key(loc)
    elif _KEY_OF_MAPPING in error["loc"]:
        mark, rule = document.key_mark(loc), f"is no name for this place: {error['msg']}"
    else:
        mark, rule = document.value_mark(loc), str(error["msg"])
    return PolicyFault(line=mark[0], column=mark[1], message=f"{_told(loc)}: {rule}" if loc else rule, place=loc)


def _unknown_key(loc: KeyPath) -> str:
    known = _known_keys(loc[:-1])
    near = get_close_matches(str(loc[-1]), known, n=1)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; valid are {', '.join(known)}"


def _known_keys(path: KeyPath) -> list[str]:
    """Return the keys that may stand at a path, by the published schema."""
    schema = fleet_schema()
    here: Any = schema
    for part in path:
        found = _branch(schema, here)
        here = found.get("items", {}) if isinstance(part, int) else _member(found, part)
    return sorted(_branch(schema, here).get("properties", {}))


def _member(schema: Mapping[str, Any], name: str) -> Any:
    properties = schema.get("properties", {})
    return properties[name] if name in properties else schema.get("additionalProperties", {})


def _branch(schema: Mapping[str, Any], here: Any) -> Mapping[str, Any]:
    """Follow a reference, and of several branches take the one with keys."""
    if not isinstance(here, Mapping):
        return {}
    if "$ref" in here:
        found: Mapping[str, Any] = schema["$defs"][here["$ref"].rpartition("/")[2]]
        return found
    return next((_branch(schema, part) for part in here.get("anyOf", ()) if "$ref" in part), here)


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One typed file on its way to a policy; what is wrong between its keys is collected."""

    source: str
    document: LocatedYaml
    faults: list[PolicyFault] = field(default_factory=list)

    def policy(self, file: PolicyFile) -> FleetPolicy:
        """Return the policy, or refuse it."""
        defaults = self._layers(file, ("defaults",), file.defaults)
        rules = [rule for scope in Scope for rule in self._rules(file, scope, defaults)]
        for name in file.profiles:
            self._layers(file, ("profiles", name), file.profiles[name])
        if self.faults:
            raise BrokenPolicy(self.source, dict.fromkeys(self.faults))
        tenants, limits = file.tenants, file.limits
        return FleetPolicy(
            budgets=_budgets(file.budgets),
            tenant_budgets={name: _budgets(found) for name, found in tenants.budgets.items()},
            default_tenant_budgets=None if tenants.default_budgets is None else _budgets(tenants.default_budgets),
            max_running=limits.max_running,
            max_running_per_catalog=limits.max_running_per_catalog,
            quiet_windows=_windows(file.quiet_windows),
            layers=defaults,
            list_prices={**LIST_PRICES, **{key: ListPrice(**found.model_dump()) for key, found in file.prices.items()}},
            rules=tuple(rules),
            source=self.source,
        )

    def _rules(self, file: PolicyFile, scope: Scope, defaults: tuple[PolicyLayer, ...]) -> Iterator[PolicyRule]:
        sections: Mapping[str, RuleSection] = getattr(file, scope.value)
        for glob, section in sections.items():
            path = (scope.value, glob)
            layers = self._layers(file, path, section)
            self._check_options(path, (*defaults, *layers))
            if rule := _glob_fault(scope, glob):
                self._fault(self.document.key_mark(path), path, rule)
            line, column = self.document.key_mark(path)
            yield PolicyRule(scope=scope, glob=glob, layers=layers, line=line, column=column)

    def _layers(self, file: PolicyFile, path: KeyPath, section: RuleSection) -> tuple[PolicyLayer, ...]:
        """Return the profiles that a section inherits, the farthest first, and itself."""
        found = [self._layer(path, section)]
        seen = [path[1]] if path[0] == "profiles" else []
        here, at = section, path
        while here.inherits is not None:
            name, mark = here.inherits, self.document.value_mark((*at, "inherits"))
            if name in seen:
                self._fault(mark, (*at, "inherits"), f"goes in a circle: {' -> '.join(map(str, [*seen, name]))}")
                break
            if name not in file.profiles:
                near = get_close_matches(name, list(file.profiles), n=1)
                rule = f"no profile is called {name}" + (f"; did you mean {near[0]}?" if near else "")
                self._fault(mark, (*at, "inherits"), rule)
                break
            seen.append(name)
            here, at = file.profiles[name], ("profiles", name)
            found.insert(0, self._layer(at, here))
        self._check_options(path, tuple(found))
        return tuple(found)

    def _layer(self, path: KeyPath, section: RuleSection) -> PolicyLayer:
        operations = {}
        for operation in FleetOperation:
            said: OperationSection | None = getattr(section, operation.value.replace("-", "_"))
            if said is not None:
                at = (*path, operation.value)
                when = None if said.when is None else self._condition((*at, "when"), said.when)
                operations[operation.value] = OperationLayer(
                    enabled=said.enabled, when=when, decided_by=self._decided_by(at)
                )
        return PolicyLayer(
            decided_by=self._decided_by((*path, "enabled")),
            enabled=section.enabled,
            operations=operations,
            max_cost_per_day=section.max_cost_per_day,
            max_cost_per_run=section.max_cost_per_run,
            quiet_windows=None if section.quiet_windows is None else _windows(section.quiet_windows),
            compact_options=self._options(path, section.compact_options or {}),
            overrides=None if section.overrides is None else section.overrides == "allowed",
        )

    def _decided_by(self, path: KeyPath) -> str:
        place, line = path[0], self.document.key_mark(path)[0]
        named = "" if place == "defaults" else f" {_shown(path[1])}"
        return f"{self.source} line {line}, {place}{named}"

    def _condition(self, path: KeyPath, text: str) -> Condition | None:
        try:
            return parse_condition(text)
        except InvalidRequest as fault:
            offset = fault.details["offset"]
            assert isinstance(offset, int)
            self._fault(self.document.text_mark(path, offset), path, fault.message)
            return None

    def _options(self, path: KeyPath, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return COMPACT's options with sizes as numbers."""
        found: dict[str, Any] = {}
        for name, value in options.items():
            at = (*path, "compact-options", name)
            try:
                is_size = name.endswith(_SIZE_OPTIONS) and isinstance(value, str) and value[:1].isdigit()
                found[name] = parse_size(value, option=name) if is_size else value
            except InvalidRequest as fault:
                self._fault(self.document.value_mark(at), at, fault.message)
        return found

    def _check_options(self, path: KeyPath, layers: tuple[PolicyLayer, ...]) -> None:
        """Hold what COMPACT would be asked for against its own rules: ranges, and sizes that clash."""
        options = {name: value for layer in layers for name, value in layer.compact_options.items()}
        if not options:
            return
        asked = CompactRequest(options=options)
        try:
            resolve_policy(request=asked, config=CompactionDefaults(), now_ms=0, table_bytes=0)
        except InvalidRequest as fault:
            at = (*path, "compact-options")
            mark = self.document.key_mark((*at, str(fault.details.get("option"))))
            self._fault(mark, at, fault.message)

    def _fault(self, mark: Mark, path: KeyPath, rule: str) -> None:
        told = f"{_told(path)}: {rule}"
        self.faults.append(PolicyFault(line=mark[0], column=mark[1], message=told, place=path))


def _glob_fault(scope: Scope, glob: str) -> str | None:
    catalog, separator, name = glob.rpartition("/")
    if separator and (scope is Scope.CATALOGS or not catalog or "/" in catalog):
        return "holds a `/`, which stands between a catalog and a name, once, in namespaces and tables"
    if not name:
        return "names nothing behind its `/`"
    if scope is Scope.TABLES and "." not in name and "*" not in name:
        return f"names no namespace; write `*.{name}` for the table of this name in each"
    return None


def _budgets(section: BudgetsSection) -> Budgets:
    return Budgets(
        dollars_per_day=section.dollars_per_day,
        gb_seconds_per_day=section.gb_seconds_per_day,
        dollars_per_month=section.dollars_per_month,
    )


def _windows(sections: Iterable[WindowSection]) -> tuple[QuietWindow, ...]:
    return tuple(
        QuietWindow(
            days=tuple(sorted({DAYS.index(day) for day in section.days})),
            start=time.fromisoformat(section.start),
            end=time.fromisoformat(section.end),
        )
        for section in sections
    )
