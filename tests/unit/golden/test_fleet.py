"""Where the tables of a fleet stand and what is said of them, as a table of cases (fleet_*.txt).

State:    policy [day=D] [month=D] [tenant-day=D] [run=D] [places=N] [off=OPERATION] [when=A_B_C] [quiet=H-H]
Command:  one line per table: table NAME [ill] [field=N ...] [tenant=T] [unseen] [managed=WHO] [ran=OUTCOME@MINUTES ...]
          [live] [started] [paused=WHY] [spent=D]
Answer:   one line per table: NAME STATUS: sentence [eligible: time or never]

It is noon of 2024-10-04. A `_` is a space.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import time
from pathlib import Path

import pytest

from regelate.core.fleet.conditions import parse_condition
from regelate.core.fleet.operation import FleetOutcome, FleetStatus, PauseKind
from regelate.core.fleet.policy import Budgets, FleetPolicy, OperationLayer, PolicyLayer, QuietWindow
from regelate.core.fleet.propose import propose
from regelate.core.fleet.sentences import at
from regelate.core.fleet.state import FleetState, Pause, TableState
from tests.unit.core.fleet_values import NOW_MS, ended, ill, live_run, observed, table
from tests.unit.golden.datadriven import run, words

SEEN = ("files", "files_after", "snapshots", "expirable_snapshots", "manifests", "manifests_after", "metadata_bytes")
MORE_SEEN = ("delete_files", "deleting_files", "deleting_bytes", "orphan_files", "candidate_bytes", "files_per_hour")


class FleetBook:
    def __init__(self) -> None:
        self.policy = FleetPolicy()

    def interpret(self, lines: list[str]) -> str:
        named, pairs = words(lines[0])
        if named[0] == "policy":
            self.policy = policy_of(pairs)
            return ""
        state = FleetState(tables=tuple(table_of(*words(line)) for line in lines))
        found = propose(state, self.policy, NOW_MS)
        return "\n".join(
            f"{v.ident} {v.status.value}: {v.sentence} [{'never' if v.eligible_ms is None else at(v.eligible_ms)}]"
            for v in found.verdicts
        )


def policy_of(pairs: dict[str, str]) -> FleetPolicy:
    amounts = {name: float(pairs[name]) for name in ("day", "month", "tenant-day", "run") if name in pairs}
    operations = {}
    if "off" in pairs:
        operations[pairs["off"]] = OperationLayer(enabled=False, decided_by="tables of line 7 in regelate.yaml")
    if "when" in pairs:
        when = parse_condition(pairs["when"].replace("_", " "))
        operations["compact"] = OperationLayer(when=when, decided_by="the defaults of regelate.yaml")
    start, _, end = pairs.get("quiet", "").partition("-")
    return FleetPolicy(
        budgets=Budgets(dollars_per_day=amounts.get("day"), dollars_per_month=amounts.get("month")),
        default_tenant_budgets=Budgets(dollars_per_day=amounts.get("tenant-day")),
        max_running=int(pairs.get("places", 9)),
        layers=(PolicyLayer(operations=operations, max_cost_per_run=amounts.get("run")),),
        quiet_windows=(QuietWindow(start=time(int(start)), end=time(int(end))),) if start else (),
    )


def table_of(named: list[str], pairs: dict[str, str]) -> TableState:
    name = named[1]
    seen = ill(name, int(pairs.get("files", 400))) if "ill" in named else observed(name)
    seen = replace(seen, **{field: int(pairs[field]) for field in (*SEEN, *MORE_SEEN) if field in pairs})
    seen = replace(
        seen, tenant=pairs.get("tenant", "acme"), managed_by=pairs.get("managed", "").replace("_", " ") or None
    )
    state = table(seen)
    for number, past in enumerate(filter(None, pairs.get("ran", "").split(","))):
        outcome, _, minutes = past.partition("@")
        when, dollars = NOW_MS - int(minutes) * 60_000, float(pairs.get("spent", 0.001))
        begun = live_run(f"run-{number}", queued_ms=when, predicted_dollars=dollars, max_dollars=dollars)
        error = "the disk was full." if outcome == "FAILED" else ""
        done = ended(begun, FleetOutcome(outcome), ended_ms=when, snapshot_before=number, snapshot_after=number + 1)
        state = state.queued(begun).settled(replace(done, error=error))
    if "live" in named:
        state = state.queued(live_run("live", queued_ms=NOW_MS - 60_000))
    if "started" in named:
        state = state.started(NOW_MS)
    if "paused" in pairs:
        state = state.paused(Pause(kind=PauseKind.ASKED, reason=pairs["paused"].replace("_", " "), since_ms=NOW_MS))
    return replace(state, observation=None) if "unseen" in named else state


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("fleet_*.txt")), ids=lambda path: path.stem)
def test_the_verdicts_are_the_golden_ones(path: Path, rewrite_golden: bool) -> None:
    run(path, FleetBook().interpret, rewrite=rewrite_golden)


def test_every_status_has_a_case() -> None:
    written = "\n".join(path.read_text() for path in Path(__file__).parent.glob("fleet_*.txt"))
    assert [status.value for status in FleetStatus if f" {status.value}: " not in written] == []
