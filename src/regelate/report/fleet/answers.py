"""What the API answers of a fleet, as what its page shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from regelate.core.answers import FleetHistoryAnswer, FleetPlanAnswer, FleetStatusAnswer
from regelate.core.answers.fleet import FleetBacklog, FleetBill, FleetRunAnswer, PlannedRun, TableStanding
from regelate.core.planning.health import PointsLost
from regelate.report.fleet.contents import BacklogPoint, FleetContents, RunLine, SpendLine, TableLine

MOST_TABLES, MOST_RUNS = 10_000, 1_000
"""What one request may ask for."""


def contents_of(
    status: FleetStatusAnswer, plan: FleetPlanAnswer, history: FleetHistoryAnswer, *, catalog: str, now_ms: int
) -> FleetContents:
    """Return what the page of a fleet in one catalog shows. What the next run of a table costs is the plan's to say."""
    first: dict[str, PlannedRun] = {}
    for run in plan.runs:
        first.setdefault(run.table, run)
    whole = next((bill for bill in status.bills if bill.tenant is None), None)
    return FleetContents(
        made_ms=now_ms,
        title=f"Fleet of {catalog}",
        tables=tuple(_table_line(table, catalog, first) for table in status.tables),
        left_out=status.more,
        whole=None if whole is None else _spend_line(whole, "the fleet"),
        spend=tuple(_spend_line(bill, bill.tenant) for bill in status.bills if bill.tenant is not None),
        runs=tuple(_run_line(run, catalog) for run in history.runs),
        backlog=tuple(_point(found) for found in history.backlog),
    )


def _table_line(table: TableStanding, catalog: str, planned: Mapping[str, PlannedRun]) -> TableLine:
    lost, run = None, planned.get(table.table)
    if table.files_lost is not None and table.deletes_lost is not None and table.metadata_lost is not None:
        lost = PointsLost(files=table.files_lost, deletes=table.deletes_lost, metadata=table.metadata_lost)
    return TableLine(
        catalog=catalog,
        table=table.table,
        tenant=table.tenant,
        status=table.status,
        sentence=table.sentence,
        lost=lost,
        next_ms=_ms(table.next_eligible_at),
        backlog_files=table.candidate_files,
        backlog_bytes=None if run is None else run.bytes,
        cost_dollars=None if run is None else run.dollars,
    )


def _spend_line(bill: FleetBill, name: str) -> SpendLine:
    return SpendLine(
        name=name,
        day_dollars=bill.day_dollars,
        day_budget=bill.day_budget_dollars,
        month_dollars=bill.month_dollars,
        month_budget=bill.month_budget_dollars,
    )


def _run_line(run: FleetRunAnswer, catalog: str) -> RunLine:
    if run.outcome is None:
        raise ValueError(f"the run {run.run_id} has not ended, and is no history")
    return RunLine(
        started_ms=_ms(run.started_at) or _ms(run.queued_at) or 0,
        catalog=catalog,
        table=run.table,
        operation=run.operation,
        outcome=run.outcome,
        asked_by=run.asked_by,
        reason=run.error or run.reason,
        predicted_dollars=run.predicted_dollars,
        actual_dollars=run.dollars,
        predicted_seconds=run.predicted_seconds,
        actual_seconds=run.seconds,
        files_before=run.files_before,
        files_after=run.files_after,
    )


def _point(found: FleetBacklog) -> BacklogPoint:
    return BacklogPoint(at_ms=_ms(found.at) or 0, files=found.files, size_bytes=found.bytes, tables=found.tables)


def _ms(at: str | None) -> int | None:
    return None if at is None else round(datetime.fromisoformat(at).timestamp() * 1000)
