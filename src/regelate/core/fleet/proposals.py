"""What a fleet should do now, and where every one of its tables stands."""

from __future__ import annotations

from collections.abc import Mapping

from regelate.core.fleet.cadence import Cadence
from regelate.core.fleet.candidates import Candidate, Pace
from regelate.core.fleet.operation import FleetOperation, FleetStatus, FleetTrigger
from regelate.core.fleet.state import FleetRun, Pause
from regelate.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One run that fits into every budget, the `rank`-th of its fleet, from 1.

    `max_dollars` are set aside for it; a rewrite ends after `max_seconds`, whatever is left. Below a `share` of 1 it
    does a part of the work: `max_files` says how many of the files it may read.
    """

    rank: int
    candidate: Candidate
    score: float
    max_dollars: float
    max_gb_seconds: float
    max_seconds: float
    max_files: int | None
    reason: str

    @property
    def operation(self) -> FleetOperation:
        return self.candidate.operation

    def run(self, run_id: str, *, asked_by: str, trigger: FleetTrigger, now_ms: int) -> FleetRun:
        """Return the run to queue for it."""
        candidate = self.candidate
        return FleetRun(
            run_id=run_id,
            operation=candidate.operation,
            trigger=trigger,
            asked_by=asked_by,
            reason=self.reason,
            queued_ms=now_ms,
            predicted_seconds=candidate.seconds,
            predicted_dollars=candidate.dollars,
            predicted_gb_seconds=candidate.gb_seconds,
            predicted_bytes=candidate.read_bytes,
            predicted_files_removed=candidate.removed,
            model_seconds=candidate.model_seconds,
            max_dollars=self.max_dollars,
            read_files=candidate.read_files,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Where one table stands: a status, a sentence that says why, and when that may change.

    `eligible_ms`: when it may have a run, None where nobody can say (somebody has to resume it or change the policy).
    `next_look_ms`: when it should be looked at again, 0 for at once. `best` is what would be done first, with its
    `score`, also where it is not done. `pause` is the breaker that is open, if one is. `discreet` is the sentence for
    one of several tenants, whom the others' affairs are none of, where it is another.
    """

    table_uuid: str
    catalog: str
    ident: str
    tenant: str
    status: FleetStatus
    sentence: str
    cadence: Cadence
    eligible_ms: int | None
    next_look_ms: int
    best: Candidate | None = None
    score: float | None = None
    pause: Pause | None = None
    discreet: str | None = None

    def told(self, *, private: bool) -> str:
        """Return the sentence; `private`: for one of several tenants."""
        return self.discreet if private and self.discreet is not None else self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What of a tenant's or the fleet's budgets is gone: spent by runs that ended, and set aside for live ones."""

    day_dollars: float = 0.0
    day_gb_seconds: float = 0.0
    month_dollars: float = 0.0
    hour_seconds: float = 0.0
    """Of runs that ended within the last hour, or live: what the turns of tenants go by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """What to do at `now_ms`, in order, and a verdict on every table, in the order of the state.

    `fleet` and `tenants` are the bills before the proposals, `pace` what the predictions were made with.
    """

    now_ms: int
    proposed: tuple[Proposal, ...]
    verdicts: tuple[Verdict, ...]
    fleet: Bill
    tenants: Mapping[str, Bill]
    pace: Pace
