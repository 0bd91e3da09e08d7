"""What a fleet's page shows, as values. Times are milliseconds since 1970, money is dollars; None is not known."""

from __future__ import annotations

from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetStatus
from regelate.core.planning.health import PointsLost
from regelate.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """Where one table stands: its status, the sentence that says why, and what is left to do for it at which price.

    `lost` is None for a table that was not looked at. `next_ms`: when it may have its next run. `backlog_bytes`
    and `cost_dollars`: what that run would read, and its price.
    """

    catalog: str
    table: str
    tenant: str
    status: FleetStatus
    sentence: str
    lost: PointsLost | None = None
    next_ms: int | None = None
    backlog_files: int | None = None
    backlog_bytes: int | None = None
    cost_dollars: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendLine:
    """What was spent in this day and month of UTC, against what may be; a budget of None is no limit."""

    name: str
    day_dollars: float
    day_budget: float | None = None
    month_dollars: float = 0.0
    month_budget: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run that has ended: what was predicted, what it took, and the table before and after it."""

    started_ms: int
    catalog: str
    table: str
    operation: FleetOperation
    outcome: FleetOutcome
    asked_by: str = ""
    reason: str = ""
    predicted_dollars: float | None = None
    actual_dollars: float | None = None
    predicted_seconds: float | None = None
    actual_seconds: float | None = None
    files_before: int | None = None
    files_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogPoint:
    """What was left to do in the whole fleet at one time."""

    at_ms: int
    files: int
    size_bytes: int
    tables: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetContents:
    """All that a page shows, as of `made_ms`; `spend` is one line per tenant, `whole` that of the fleet. `left_out`:
    tables of the fleet that are not among `tables`. Without a `backlog` nothing is drawn of it.
    """

    made_ms: int
    title: str = "Fleet"
    tables: tuple[TableLine, ...] = ()
    left_out: int = 0
    whole: SpendLine | None = None
    spend: tuple[SpendLine, ...] = ()
    runs: tuple[RunLine, ...] = ()
    backlog: tuple[BacklogPoint, ...] = ()
