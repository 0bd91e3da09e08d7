"""What is answered of a fleet: what was seen of it, what is to be done, where each table stands, what was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from regelate.core.answers.json import LEFT_OUT
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetStatus, FleetTrigger
from regelate.core.planning.health import Grade
from regelate.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenTable:
    """A table that could not be looked at, and why."""

    table: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetScanAnswer:
    """`observed` tables were looked at, `unchanged` of them had the head that they had before: one request each.

    `backlog`: tables left to the next scan, which begins with them. `gone`: no longer in their catalog. `settled`: runs
    that were found to have ended. `statuses` counts all tables of the scope by where they stand.
    """

    observed: int
    unchanged: int
    backlog: int
    gone: tuple[str, ...]
    errors: tuple[UnseenTable, ...]
    settled: int
    statuses: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run in the order in which they begin. Money in dollars by list prices.

    `removes`: files, snapshots, manifests or orphans, whichever the operation takes away. `max_dollars` is set aside
    for it. `max_files`: it takes no more, where the budget is for a part of the work only.
    `benefit_per_day`: dollars of readers' time; null where nobody reports reads.
    """

    rank: int
    table: str
    operation: FleetOperation
    reason: str
    score: float
    removes: int
    bytes: int
    seconds: float
    dollars: float
    max_dollars: float
    max_files: int | None
    benefit_per_day: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetBill:
    """What of a budget is gone: spent by runs that ended, and set aside for live ones. A null budget is none."""

    tenant: str | None
    day_dollars: float
    day_budget_dollars: float | None
    day_gb_seconds: float
    day_budget_gb_seconds: float | None
    month_dollars: float
    month_budget_dollars: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """What another service lists for the rewrites of a plan, where its free part is used up; `source` was read `as_of`.

    `is_least`: it charges by its working time, and this is the least of that.
    """

    service: str
    dollars: float
    is_least: bool
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlanAnswer:
    """What would begin now, in order. `plan_id` makes FLEET_APPLY do exactly that; null where there is nothing to do.

    `pace_error`: the median of how far predicted seconds were off, as a share; null before the first run.
    """

    plan_id: str | None
    runs: tuple[PlannedRun, ...]
    dollars: float
    elsewhere: tuple[ListedPrice, ...]
    bills: tuple[FleetBill, ...]
    pace_error: float | None
    statuses: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRunAnswer:
    """One run: what was predicted, and what came of it. Null is what is not known, or not known yet.

    `outcome` is null while it is queued or running. Files are data files and delete files together.
    """

    run_id: str
    table: str
    operation: FleetOperation
    trigger: FleetTrigger
    asked_by: str
    reason: str
    queued_at: str
    started_at: str | None
    ended_at: str | None
    outcome: FleetOutcome | None
    error: str | None
    predicted_seconds: float
    seconds: float | None
    predicted_dollars: float
    dollars: float | None
    bytes: int
    files_before: int | None
    files_after: int | None
    row_groups_before: int | None
    row_groups_after: int | None
    job_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRun:
    """A run of the plan that was not begun, and why; the next plan has it again if it is still worth doing."""

    table: str
    operation: FleetOperation
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetApplyAnswer:
    """What was begun, in order: COMPACTs are jobs that go on, the rest is done. `left`: what was not begun."""

    plan_id: str | None
    runs: tuple[FleetRunAnswer, ...]
    left: tuple[LeftRun, ...]
    predicted_dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStanding:
    """Where one table stands, and why, in a sentence. `next_eligible_at`: when it may have a run; null where only
    somebody can say so. `score`, its `grade` and the points it lost of 100 are null before the first look."""

    table: str
    tenant: str
    status: FleetStatus
    sentence: str
    next_eligible_at: str | None
    next_look_at: str | None
    observed_at: str | None
    score: float | None
    grade: Grade | None
    files_lost: float | None
    deletes_lost: float | None
    metadata_lost: float | None
    files: int | None
    candidate_files: int | None
    files_after: int | None
    size_bytes: int | None
    snapshots: int | None
    manifests: int | None
    month_dollars: float
    last_run: FleetRunAnswer | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatusAnswer:
    """The tables, those that lost most points first; `more` of them were left out by `limit`. `statuses` counts all."""

    tables: tuple[TableStanding, ...]
    more: int
    statuses: Mapping[str, int]
    bills: tuple[FleetBill, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetBacklog:
    """What was left to do at one time, over all catalogs: tables, the files that would go, and what that would read and
    cost."""

    at: str
    tables: int
    files: int
    bytes: int
    dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHistoryAnswer:
    """Runs that ended, the newest first; the backlog of the days that were asked for, the oldest first."""

    runs: tuple[FleetRunAnswer, ...]
    backlog: tuple[FleetBacklog, ...] = ()
