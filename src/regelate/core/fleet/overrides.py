"""What the properties of a table say of its part in a fleet, beside what the fleet's policy says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from regelate.core.fleet.policy import FleetPolicy, OperationPolicy, TablePolicy
from regelate.core.fleet.state import TableState
from regelate.core.policy.fleet_properties import (
    FLEET_ENABLED,
    FLEET_PREFIX,
    FLEET_PROPERTIES,
    FLEET_TARGET,
    SWITCHED,
    switch_of,
)
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

TARGET_OPTION = "target-file-size-bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What holds for a table. `not_obeyed`: a sentence about its properties that are not, or nothing."""

    policy: TablePolicy
    not_obeyed: str = ""


def fleet_properties(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what an observation keeps of a table's properties."""
    return tuple(sorted((name, value) for name, value in properties.items() if name.startswith(FLEET_PREFIX)))


def allowed_for(policy: FleetPolicy, table: TableState) -> Allowed:
    """Return what holds for a table by the policy and, where that allows it, by the table's own properties.

    A property that cannot be read changes nothing, and is told.
    """
    allowed = policy.for_table(table.catalog, table.ident)
    asked = () if table.observation is None else table.observation.fleet_properties
    if not asked:
        return Allowed(policy=allowed)
    if not allowed.overrides:
        names = ", ".join(name for name, _ in asked)
        return Allowed(
            policy=allowed, not_obeyed=f"{names} of the table is not obeyed, by {allowed.overrides_decided_by}"
        )
    found: dict[str, object] = {}
    faults: list[str] = []
    for name, value in asked:
        read = FLEET_PROPERTIES.get(name)
        try:
            if read is None:
                faults.append(f"nothing reads {name}")
            else:
                found[name] = read(name, value)
        except InvalidRequest as fault:
            faults.append(fault.message)
    told = f"a property of the table is not obeyed: {'; '.join(faults)}" if faults else ""
    return Allowed(policy=_overridden(allowed, found), not_obeyed=told)


def _overridden(allowed: TablePolicy, found: Mapping[str, object]) -> TablePolicy:
    operations = dict(allowed.operations)
    for operation in SWITCHED:
        name = switch_of(operation)
        if name in found:
            operations[operation] = _switched(operations[operation], name, on=bool(found[name]))
    if found.get(FLEET_ENABLED) is False:
        operations = {name: _switched(each, FLEET_ENABLED, on=False) for name, each in operations.items()}
    options = dict(allowed.compact_options)
    if FLEET_TARGET in found:
        options[TARGET_OPTION] = found[FLEET_TARGET]
    return replace(allowed, operations=operations, compact_options=options)


def _switched(operation: OperationPolicy, name: str, *, on: bool) -> OperationPolicy:
    return replace(operation, enabled=on, decided_by=f"the table's property {name}")
