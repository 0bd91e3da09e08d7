"""The requests about a fleet: every table of a tenant in one catalog or, from a schedule, of all tenants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from regelate.core.fleet.operation import BACKLOG_DAYS, FleetStatus
from regelate.entrypoints.api.fields import Identifier
from regelate.entrypoints.api.request_base import Request, TableRequest
from regelate.settings.section import OneOf

EVERY_CATALOG = "*"


class FleetRequest(Request):
    """`tenant_id` may be left out by a schedule, a queue or a direct invoke only: it is then about all tenants."""

    tenant_id: str | None = None
    catalog: str | None = None


class FleetScan(FleetRequest):
    """Look at tables, those first that nobody has looked at for the longest. What is unset comes from config.json.

    `catalog` `*`: in each of the configured catalogs, of all tenants.
    """

    operation: Literal["FLEET_SCAN"]
    max_tables: Annotated[int, Field(ge=1)] | None = None
    time_budget_seconds: Annotated[float, Field(gt=0)] | None = None


class FleetPlan(FleetRequest):
    """Say what would begin now, in which order, at which price."""

    operation: Literal["FLEET_PLAN"]


class FleetApply(FleetRequest):
    """Begin what a plan says or, without `plan_id`, what would be planned now; `catalog` as in FLEET_SCAN."""

    operation: Literal["FLEET_APPLY"]
    plan_id: Identifier | None = None
    time_budget_seconds: Annotated[float, Field(gt=0)] | None = None


class FleetStatusOf(FleetRequest):
    """Say where tables stand; one of them by `namespace` and `table`, or those of one `status`."""

    operation: Literal["FLEET_STATUS"]
    namespace: str = "default"
    table: str | None = None
    status: Annotated[str, OneOf(*FleetStatus)] | None = None
    limit: int = Field(default=100, ge=1, le=10_000)


class FleetHistory(FleetRequest):
    """List the runs that ended, newest first; those of one table by `namespace` and `table`. `backlog_days`: tell too
    what was left to do in so many days."""

    operation: Literal["FLEET_HISTORY"]
    namespace: str = "default"
    table: str | None = None
    limit: int = Field(default=100, ge=1, le=1_000)
    backlog_days: Annotated[int, Field(ge=1, le=BACKLOG_DAYS)] | None = None


class ReportMetrics(TableRequest):
    """What a reader or writer of Iceberg reports of a table: a ScanReport or a CommitReport of Iceberg."""

    operation: Literal["REPORT_METRICS"]
    report: dict[str, Any]
