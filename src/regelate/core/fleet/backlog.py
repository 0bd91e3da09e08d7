"""What is left to do for each tenant at one time: what a fleet's page draws over time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from regelate.core.fleet.operation import FleetStatus
from regelate.core.fleet.proposals import Verdict
from regelate.core.values import dataclass

MOST_TENANTS = 2_000
OTHERS = "*"
"""Those with least to do, where there are more: a store keeps so much in one row."""
_WANTED = frozenset({FleetStatus.DUE, FleetStatus.OVER_BUDGET})


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Tables that something should be done for now; the files that would go, and what is read and paid for that."""

    tables: int = 0
    files: int = 0
    read_bytes: int = 0
    dollars: float = 0.0

    def plus(self, other: Backlog) -> Backlog:
        return Backlog(
            tables=self.tables + other.tables,
            files=self.files + other.files,
            read_bytes=self.read_bytes + other.read_bytes,
            dollars=self.dollars + other.dollars,
        )


NOTHING_LEFT = Backlog()


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogAt:
    """The backlog of each tenant that has any at one time."""

    at_ms: int
    tenants: Mapping[str, Backlog]

    def of(self, tenants: Iterable[str] | None) -> Backlog:
        """Return the backlog of some tenants together; None: of all."""
        names = self.tenants if tenants is None else tenants
        found = NOTHING_LEFT
        for name in names:
            found = found.plus(self.tenants.get(name, NOTHING_LEFT))
        return found


def backlog_at(verdicts: Iterable[Verdict], now_ms: int) -> BacklogAt:
    """Add up what is due, or would be if it could be paid: of each table what would be done first."""
    found: dict[str, Backlog] = {}
    for verdict in verdicts:
        best = verdict.best
        if verdict.status not in _WANTED or best is None:
            continue
        files = best.removed if best.operation.rewrites_data else 0
        mine = Backlog(tables=1, files=files, read_bytes=best.read_bytes, dollars=best.dollars)
        found[verdict.tenant] = found.get(verdict.tenant, NOTHING_LEFT).plus(mine)
    ranked = sorted(found.items(), key=lambda each: (-each[1].files, -each[1].tables, each[0]))
    kept = dict(ranked[:MOST_TENANTS])
    for _, left in ranked[MOST_TENANTS:]:
        kept[OTHERS] = kept.get(OTHERS, NOTHING_LEFT).plus(left)
    return BacklogAt(at_ms=now_ms, tenants=kept)


def backlog_json(found: BacklogAt) -> str:
    """Return it as a store keeps it."""
    return json.dumps({"at_ms": found.at_ms, "tenants": {name: asdict(each) for name, each in found.tenants.items()}})


def backlog_of_json(text: str) -> BacklogAt:
    """Read it back."""
    found = json.loads(text)
    return BacklogAt(at_ms=found["at_ms"], tenants={name: Backlog(**each) for name, each in found["tenants"].items()})
