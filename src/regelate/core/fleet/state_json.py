"""A table's state <-> plain JSON values, as a store keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from regelate.core.fleet.observation import OverwriteRate, TableObservation
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetTrigger, PauseKind
from regelate.core.fleet.reads import Reads
from regelate.core.fleet.state import FleetRun, Pause, Spent, TableState
from regelate.core.planning.health import PointsLost

Json = Any
_OPERATIONS = frozenset(operation.value for operation in FleetOperation)
"""A later version may have others, and this one may be put back: what it did then is passed over."""


def state_json(state: TableState) -> dict[str, Json]:
    """Return a state as JSON values; None and what is empty included."""
    return asdict(state)


def state_of_json(found: Mapping[str, Json]) -> TableState:
    """Read a state back; fields that a later version may have added are passed over."""
    observation, live, pause, reads = found["observation"], found["live"], found["pause"], found.get("reads")
    nested = {
        "observation": None if observation is None else observation_of_json(observation),
        "runs": tuple(run_of_json(run) for run in found["runs"] if run["operation"] in _OPERATIONS),
        "live": None if live is None else run_of_json(live),
        "spent": Spent(**_known(Spent, found["spent"])),
        "reads": None if reads is None else Reads(**_known(Reads, reads)),
        "pause": None if pause is None else Pause(**{**_known(Pause, pause), "kind": PauseKind(pause["kind"])}),
    }
    return TableState(**{**_known(TableState, found), **nested})


def run_json(run: FleetRun) -> dict[str, Json]:
    """Return one run as JSON values: a line of the history."""
    return asdict(run)


def run_of_json(found: Mapping[str, Json]) -> FleetRun:
    """Read a run back."""
    outcome = found["outcome"]
    kinds = {
        "operation": FleetOperation(found["operation"]),
        "trigger": FleetTrigger(found["trigger"]),
        "outcome": None if outcome is None else FleetOutcome(outcome),
    }
    return FleetRun(**{**_known(FleetRun, found), **kinds})


def observation_json(observation: TableObservation) -> dict[str, Json]:
    """Return one observation as JSON values."""
    return asdict(observation)


def observation_of_json(found: Mapping[str, Json]) -> TableObservation:
    """Read an observation back."""
    nested = {
        "commit_kinds": tuple((kind, count) for kind, count in found["commit_kinds"]),
        "overwrites": tuple(OverwriteRate(**_known(OverwriteRate, rate)) for rate in found["overwrites"]),
        "fleet_properties": tuple((name, value) for name, value in found.get("fleet_properties", ())),
        "lost": PointsLost(**_known(PointsLost, found["lost"])),
    }
    return TableObservation(**{**_known(TableObservation, found), **nested})


def _known(kind: type[Any], found: Mapping[str, Json]) -> dict[str, Json]:
    return {each.name: found[each.name] for each in fields(kind) if each.name in found}
