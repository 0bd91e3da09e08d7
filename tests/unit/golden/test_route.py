"""Who does a COMPACT, as a table of cases (route_*.txt).

State:    deployment [spark] [jobs] [larger-worker] [command-line]
Command:  request [engine=..] [strategy=..] [selection=..] [dry-run] [async] [max-files=N]
          [max-cost=D] [budget=S] [plan-id=..] [token=..]
then, where more is known:  unreadable <code>
or what the plan asks:      plan here=<how> [worker=<how>] [begins=no] [strain=MEMORY] [dollars=D] [partial-progress]
where <how> is fits, TOO_LARGE or TOO_LONG.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from regelate.core.policy.policy import PlacementPolicy
from regelate.core.requests import CompactRequest
from regelate.core.running.placement import Placement, PlacementReason
from regelate.core.running.routing import Capabilities, Here, Job, Placed, Refused, Route, Unreadable, route
from regelate.errors import ResourceExhausted, Unsupported
from tests.unit.golden.datadriven import run, words

WORKER = PlacementPolicy(memory_bytes=1, threads=1)
REASONS = (
    "ASYNC",
    "ENGINE",
    "UNSUPPORTED_TABLE",
    *(r.value for r in PlacementReason if r is not PlacementReason.IN_PROCESS),
)


def placement(text: str) -> Placement:
    reason = PlacementReason.IN_PROCESS if text == "fits" else PlacementReason(text)
    return Placement(
        reason=reason,
        explanation="" if text == "fits" else f"it is {text}",
        size_bytes=1,
        files=1,
        estimated_seconds=1.0,
    )


class RouteBook:
    def __init__(self) -> None:
        self.capabilities = Capabilities()

    def interpret(self, lines: list[str]) -> str:
        first, *rest = lines
        named, pairs = words(first)
        if named[0] == "deployment":
            self.capabilities = Capabilities(
                spark="spark" in named,
                delegates="command-line" not in named,
                worker=WORKER if "jobs" in named else None,
                larger_worker="larger-worker" in named,
            )
            return ""
        return told(route(asked(named, pairs), self.capabilities, self._known(rest)))

    def _known(self, lines: list[str]) -> Placed | Unreadable | None:
        if not lines:
            return None
        named, pairs = words(lines[0])
        if named[0] == "unreadable":
            return Unreadable(fault=Unsupported(named[1], "it holds AVRO data files"))
        strain = PlacementReason(pairs["strain"]) if "strain" in pairs else None
        worker = self.capabilities.worker if self.capabilities.delegates else None
        return Placed(
            here=placement(pairs["here"]),
            dollars=float(pairs.get("dollars", 0)),
            plan_id="1-a",
            partial_progress="partial-progress" in named,
            strain=None if strain is None else (strain, f"it is {strain.value}"),
            at_worker=None if worker is None else placement(pairs.get("worker", "fits")),
            nothing_fits=ResourceExhausted("TOO_LARGE", "not one group") if pairs.get("begins") == "no" else None,
        )


def asked(named: list[str], pairs: dict[str, str]) -> CompactRequest:
    return CompactRequest(
        engine=pairs.get("engine"),
        strategy=pairs.get("strategy"),
        selection=pairs.get("selection"),
        dry_run="dry-run" in named,
        run_async="async" in named,
        max_files=int(pairs["max-files"]) if "max-files" in pairs else None,
        max_cost=float(pairs["max-cost"]) if "max-cost" in pairs else None,
        time_budget_seconds=float(pairs["budget"]) if "budget" in pairs else None,
        plan_id=pairs.get("plan-id"),
        resume_token=pairs.get("token"),
        ref=pairs.get("ref", "main"),
    )


def told(found: Route) -> str:
    if isinstance(found, Here):
        return "here"
    if isinstance(found, Job):
        return f"job engine={found.engine.value} reason={found.reason}" + (f"\n{found.why}" if found.why else "")
    assert isinstance(found, Refused)
    return f"refused {found.error.status} {found.error.code}\n{found.error.message}"


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("route_*.txt")), ids=lambda path: path.stem)
def test_the_route_is_the_golden_one(path: Path, rewrite_golden: bool) -> None:
    run(path, RouteBook().interpret, rewrite=rewrite_golden)


def test_every_reason_of_the_api_has_a_case() -> None:
    written = "\n".join(path.read_text() for path in Path(__file__).parent.glob("route_*.txt"))
    assert [reason for reason in REASONS if f"reason={reason}" not in written] == []
