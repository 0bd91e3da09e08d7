"""What the operators of a fleet allow: what may be done to which table, when, and for how much.

Said once for all tables, and then for catalogs, namespaces and tables by globs; what is nearer to the table wins, key
by key, and of two globs at one distance the later one. `regelate.yaml` says it (docs/fleet.md).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import time
from enum import StrEnum
from fnmatch import translate
from types import MappingProxyType
from typing import Any

from regelate.core.fleet.conditions import Condition
from regelate.core.fleet.list_prices import LIST_PRICES, ListPrice
from regelate.core.fleet.operation import FleetOperation
from regelate.core.table.names import split_ident
from regelate.core.values import dataclass

DAY_SECONDS = 86_400
BUILT_IN = "the built-in defaults"
EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)
_FIRST_WEEKDAY = 3
"""1970-01-01 was a Thursday; Monday is 0."""
_SEPARATOR = "/"
"""Between catalog and ident in a glob; no name holds one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What may be spent in a day and a month of UTC; None: as much as it takes."""

    dollars_per_day: float | None = None
    gb_seconds_per_day: float | None = None
    dollars_per_month: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            _check_amount(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietWindow:
    """Hours of UTC in which nothing of ours is started: from `start` on each of `days` (0 is Monday) to `end`.

    An `end` at or before `start` lies on the next day.
    """

    days: tuple[int, ...] = EVERY_DAY
    start: time
    end: time

    def __post_init__(self) -> None:
        if not self.days or not set(self.days) <= set(EVERY_DAY):
            raise ValueError(f"days {self.days} are not some of 0 (Monday) to 6 (Sunday)")

    def covers(self, now_epoch: float) -> bool:
        """Say whether a time, in seconds since 1970, lies in the window; its end does not."""
        return self._end_of(now_epoch) is not None

    def ends(self, now_epoch: float) -> float:
        """Return when the window that covers a time ends, in seconds since 1970; the time itself where none does."""
        end = self._end_of(now_epoch)
        return now_epoch if end is None else end

    def _end_of(self, now_epoch: float) -> float | None:
        today = math.floor(now_epoch / DAY_SECONDS)
        start = _second_of_day(self.start)
        length = (_second_of_day(self.end) - start) % DAY_SECONDS or DAY_SECONDS
        begun = [day * DAY_SECONDS + start for day in (today - 1, today) if (day + _FIRST_WEEKDAY) % 7 in self.days]
        ends = [begin + length for begin in begun if begin <= now_epoch < begin + length]
        return max(ends, default=None)


def quiet_until(windows: Iterable[QuietWindow], now_epoch: float) -> float | None:
    """Return when the last of the windows ends that cover a time or follow each other from it; None where none does.

    A week of quiet without a gap has no end: its own is told.
    """
    found, until = tuple(windows), now_epoch
    while until - now_epoch < 8 * DAY_SECONDS and any(window.covers(until) for window in found):
        until = max(window.ends(until) for window in found)
    return until if until > now_epoch else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPolicy:
    """Whether a table is given an operation. `decided_by`: a part of a sentence that says by which line."""

    enabled: bool = True
    decided_by: str = BUILT_IN
    when: Condition | None = None


_DEFAULT_OPERATIONS: Mapping[str, OperationPolicy] = MappingProxyType(
    {
        # Removing orphans deletes what no metadata names: somebody has to say that nobody else writes there.
        operation.value: OperationPolicy(enabled=operation is not FleetOperation.REMOVE_ORPHANS)
        for operation in FleetOperation
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePolicy:
    """What holds for one table. `operations` has all of FleetOperation, by name; `quiet_windows` the fleet's too.

    `max_cost_per_day`, `max_cost_per_run`: dollars. `compact_options`: Iceberg's names, as COMPACT takes them.
    `overrides`: whether the table's own properties win (overrides.py).
    """

    operations: Mapping[str, OperationPolicy] = field(default_factory=lambda: _DEFAULT_OPERATIONS)
    max_cost_per_day: float | None = None
    max_cost_per_run: float | None = None
    quiet_windows: tuple[QuietWindow, ...] = ()
    compact_options: Mapping[str, Any] = field(default_factory=dict)
    overrides: bool = False
    overrides_decided_by: str = BUILT_IN


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLayer:
    """What one place says of one operation; None is left to the places further from the table."""

    enabled: bool | None = None
    when: Condition | None = None
    decided_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLayer:
    """What one place says of its tables; None, and what is not named, is left to the places further from the table.

    `enabled` is a switch of its own: off, it turns everything off, and on, nothing on that is off by itself.
    """

    decided_by: str = BUILT_IN
    enabled: bool | None = None
    operations: Mapping[str, OperationLayer] = field(default_factory=dict)
    max_cost_per_day: float | None = None
    max_cost_per_run: float | None = None
    quiet_windows: tuple[QuietWindow, ...] | None = None
    compact_options: Mapping[str, Any] = field(default_factory=dict)
    overrides: bool | None = None

    def __post_init__(self) -> None:
        _check_amount("max_cost_per_day", self.max_cost_per_day)
        _check_amount("max_cost_per_run", self.max_cost_per_run)


class Scope(StrEnum):
    """Which name of a table a rule's glob is held against, the farthest from the table first."""

    CATALOGS = "catalogs"
    NAMESPACES = "namespaces"
    TABLES = "tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """The layers, the farthest first, that hold for what `glob` names; `line` and `column` count from 1.

    In a glob `*` is any text, dots too, and `?` one character. `catalog/` before it keeps it to the catalogs of a glob.
    """

    scope: Scope
    glob: str
    layers: tuple[PolicyLayer, ...]
    line: int = 1
    column: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)  # of the standard library: two fields are made here
class FleetPolicy:
    """What holds for a fleet. `max_running`: operations at once; per catalog, None is no limit of its own.

    `layers`: what holds for every table, the farthest first. A tenant that `tenant_budgets` does not name has
    `default_tenant_budgets`. `list_prices`: of others, by a short name. `source` is the file's name.
    """

    budgets: Budgets = field(default_factory=Budgets)
    tenant_budgets: Mapping[str, Budgets] = field(default_factory=dict)
    default_tenant_budgets: Budgets | None = None
    max_running: int = 4
    max_running_per_catalog: int | None = None
    quiet_windows: tuple[QuietWindow, ...] = ()
    layers: tuple[PolicyLayer, ...] = ()
    rules: tuple[PolicyRule, ...] = ()
    list_prices: Mapping[str, ListPrice] = field(default_factory=lambda: dict(LIST_PRICES))
    source: str | None = None
    _indexes: tuple[_GlobIndex, ...] = field(init=False, repr=False, compare=False)
    _laid_out: dict[tuple[int, ...], TablePolicy] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_running < 1:
            raise ValueError(f"max_running {self.max_running} is below 1")
        if self.max_running_per_catalog is not None and self.max_running_per_catalog < 1:
            raise ValueError(f"max_running_per_catalog {self.max_running_per_catalog} is below 1")
        object.__setattr__(self, "_indexes", tuple(_GlobIndex(self.rules, scope) for scope in Scope))

    def for_table(self, catalog: str, ident: str) -> TablePolicy:
        """Return what holds for the table `ident`, `namespace.table`, of a catalog; microseconds each.

        Errors: InvalidRequest INVALID_IDENTIFIER for an ident without a namespace.
        """
        matching = self.matching(catalog, ident)
        if matching not in self._laid_out:  # most tables share their rules with others
            layers = [*self.layers, *(layer for at in matching for layer in self.rules[at].layers)]
            self._laid_out[matching] = _laid(layers, self.quiet_windows)
        return self._laid_out[matching]

    def budgets_of(self, tenant: str) -> Budgets:
        """Return what a tenant may spend."""
        return self.tenant_budgets.get(tenant, self.default_tenant_budgets or Budgets())

    def matching(self, catalog: str, ident: str) -> tuple[int, ...]:
        """Return which of the rules hold for a table, by their places in `rules`, the farthest from it first."""
        names = (catalog, split_ident(ident)[0], ident)
        return tuple(at for index, name in zip(self._indexes, names, strict=True) for at in index.find(catalog, name))


def unmatched(policy: FleetPolicy, idents: Iterable[tuple[str, str]]) -> tuple[PolicyRule, ...]:
    """Return the rules that hold for none of these tables, given as (catalog, ident): misspelt, or no longer needed."""
    left = set(range(len(policy.rules)))
    for catalog, ident in idents:
        left.difference_update(policy.matching(catalog, ident))
        if not left:
            break
    return tuple(policy.rules[at] for at in sorted(left))


class _GlobIndex:
    """Rules by the text before their first wildcard: few are held against a name, however many there are."""

    def __init__(self, rules: Sequence[PolicyRule], scope: Scope) -> None:
        self._by_prefix: dict[str, list[tuple[int, re.Pattern[str], re.Pattern[str] | None]]] = {}
        for at, rule in enumerate(rules):
            if rule.scope is scope:
                catalog, _, glob = rule.glob.rpartition(_SEPARATOR)
                entry = (at, _pattern(glob), _pattern(catalog) if catalog else None)
                self._by_prefix.setdefault(re.split(r"[*?]", glob, maxsplit=1)[0], []).append(entry)
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix})

    def find(self, catalog: str, name: str) -> list[int]:
        """Return the places of the rules whose globs match, in the order of the file."""
        return sorted(
            at
            for length in self._lengths
            if length <= len(name)
            for at, pattern, catalogs in self._by_prefix.get(name[:length], ())
            if pattern.match(name) and (catalogs is None or catalogs.match(catalog))
        )


def _pattern(glob: str) -> re.Pattern[str]:
    """Return a glob as a pattern that does not backtrack; a bracket, which names may hold, is a bracket."""
    return re.compile(translate(glob.replace("[", "[[]")))


def _laid(layers: Sequence[PolicyLayer], fleet_windows: tuple[QuietWindow, ...]) -> TablePolicy:
    """Lay each layer over those before it."""
    per_day = per_run = None
    windows: tuple[QuietWindow, ...] = ()
    options: dict[str, Any] = {}
    switch: PolicyLayer | None = None
    overrides: PolicyLayer | None = None
    for layer in layers:
        overrides = layer if layer.overrides is not None else overrides
        switch = layer if layer.enabled is not None else switch
        per_day = layer.max_cost_per_day if layer.max_cost_per_day is not None else per_day
        per_run = layer.max_cost_per_run if layer.max_cost_per_run is not None else per_run
        windows = layer.quiet_windows if layer.quiet_windows is not None else windows
        options.update(layer.compact_options)
    return TablePolicy(
        operations=_operations(layers, switch),
        max_cost_per_day=per_day,
        max_cost_per_run=per_run,
        quiet_windows=(*fleet_windows, *windows),
        compact_options=options,
        overrides=overrides is not None and overrides.overrides is True,
        overrides_decided_by=BUILT_IN if overrides is None else overrides.decided_by,
    )


def _operations(layers: Sequence[PolicyLayer], switch: PolicyLayer | None) -> Mapping[str, OperationPolicy]:
    found = dict(_DEFAULT_OPERATIONS)
    for layer in layers:
        for name, said in layer.operations.items():
            below = found[name]
            enabled = below.enabled if said.enabled is None else said.enabled
            when = below.when if said.when is None else said.when
            found[name] = OperationPolicy(enabled=enabled, decided_by=said.decided_by, when=when)
    if switch is None or switch.enabled:
        return found
    return {
        name: OperationPolicy(enabled=False, decided_by=switch.decided_by, when=below.when)
        for name, below in found.items()
    }


def _second_of_day(at: time) -> int:
    return at.hour * 3600 + at.minute * 60 + at.second


def _check_amount(name: str, amount: float | None) -> None:
    if amount is not None and not (math.isfinite(amount) and amount >= 0):
        raise ValueError(f"{name} {amount} is no amount of 0 or more")
