"""What a fleet's values are as answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from regelate.core.answers.fleet import (
    FleetApplyAnswer,
    FleetBacklog,
    FleetBill,
    FleetRunAnswer,
    LeftRun,
    ListedPrice,
    PlannedRun,
    TableStanding,
    UnseenTable,
)
from regelate.core.fleet.backlog import BacklogAt
from regelate.core.fleet.candidates import Candidate
from regelate.core.fleet.policy import Budgets, FleetPolicy
from regelate.core.fleet.proposals import Bill, Proposal, Proposals, Verdict
from regelate.core.fleet.state import FleetRun, TableState
from regelate.core.planning.health import grade_of
from regelate.core.running.stats import iso_time
from regelate.errors import RegelateError
from regelate.operations.fleet.applying import Begun


def run_told(ident: str, run: FleetRun) -> FleetRunAnswer:
    return FleetRunAnswer(
        run_id=run.run_id,
        table=ident,
        operation=run.operation,
        trigger=run.trigger,
        asked_by=run.asked_by,
        reason=run.reason,
        queued_at=iso_time(run.queued_ms),
        started_at=iso_time(run.started_ms),
        ended_at=iso_time(run.ended_ms),
        outcome=run.outcome,
        error=run.error or None,
        predicted_seconds=round(run.predicted_seconds, 3),
        seconds=run.actual_seconds,
        predicted_dollars=round(run.predicted_dollars, 6),
        dollars=None if run.actual_dollars is None else round(run.actual_dollars, 6),
        bytes=run.rewritten_bytes,
        files_before=run.files_before,
        files_after=run.files_after,
        row_groups_before=run.row_groups_before,
        row_groups_after=run.row_groups_after,
        job_id=run.job_id,
    )


def begun(plan_id: str | None, found: Sequence[Begun], names: Mapping[str, str]) -> FleetApplyAnswer:
    """Tell what was begun of a plan, and what was left. `names`: what the tables are called, by UUID."""
    runs = tuple(run_told(names[b.item.table_uuid], b.run) for b in found if b.run is not None)
    left = tuple(
        LeftRun(table=names[b.item.table_uuid], operation=b.item.run.operation, why=b.why)
        for b in found
        if b.run is None
    )
    predicted = round(sum(run.predicted_dollars for run in runs), 6)
    return FleetApplyAnswer(plan_id=plan_id, runs=runs, left=left, predicted_dollars=predicted)


def elsewhere(policy: FleetPolicy, runs: Sequence[Candidate]) -> tuple[ListedPrice, ...]:
    return tuple(
        ListedPrice(
            service=price.name,
            dollars=round(price.dollars(runs), 6),
            is_least=price.is_least,
            source=price.source,
            as_of=price.as_of,
        )
        for price in policy.list_prices.values()
    )


def planned(proposal: Proposal) -> PlannedRun:
    candidate = proposal.candidate
    benefit = candidate.benefit_per_day
    return PlannedRun(
        rank=proposal.rank,
        table=candidate.ident,
        operation=candidate.operation,
        reason=proposal.reason,
        score=round(proposal.score, 4),
        removes=candidate.removed,
        bytes=candidate.read_bytes,
        seconds=round(candidate.seconds, 3),
        dollars=round(candidate.dollars, 6),
        max_dollars=round(proposal.max_dollars, 6),
        max_files=proposal.max_files,
        benefit_per_day=None if benefit is None else round(benefit, 6),
    )


def standing(state: TableState, verdict: Verdict, *, now_ms: int, private: bool) -> TableStanding:
    """Say where a table stands. `private`: to one of several tenants, whom the fleet's account is none of."""
    seen, last = state.observation, state.live or state.last_run
    return TableStanding(
        table=state.ident,
        tenant=state.tenant,
        status=verdict.status,
        sentence=verdict.told(private=private),
        next_eligible_at=iso_time(verdict.eligible_ms),
        next_look_at=iso_time(verdict.next_look_ms or None),
        observed_at=None if seen is None else iso_time(seen.observed_ms),
        score=None if seen is None else seen.score,
        grade=None if seen is None else grade_of(seen.score),
        files_lost=None if seen is None else seen.lost.files,
        deletes_lost=None if seen is None else seen.lost.deletes,
        metadata_lost=None if seen is None else seen.lost.metadata,
        files=None if seen is None else seen.files,
        candidate_files=None if seen is None else seen.candidate_files,
        files_after=None if seen is None else seen.files_after,
        size_bytes=None if seen is None else seen.size_bytes,
        snapshots=None if seen is None else seen.snapshots,
        manifests=None if seen is None else seen.manifests,
        month_dollars=round(state.spent.on(now_ms).month_dollars, 6),
        last_run=None if last is None else run_told(state.ident, last),
    )


def bills(found: Proposals, policy: FleetPolicy, tenants: Iterable[str]) -> tuple[FleetBill, ...]:
    """Return the bill of the whole fleet first, which has no tenant's name, then those of `tenants`."""
    fleet = _bill(None, found.fleet, policy.budgets)
    of_tenants = [_bill(t, found.tenants.get(t, Bill()), policy.budgets_of(t)) for t in sorted(set(tenants))]
    return (fleet, *of_tenants)


def _bill(tenant: str | None, bill: Bill, limits: Budgets) -> FleetBill:
    return FleetBill(
        tenant=tenant,
        day_dollars=round(bill.day_dollars, 6),
        day_budget_dollars=limits.dollars_per_day,
        day_gb_seconds=round(bill.day_gb_seconds, 3),
        day_budget_gb_seconds=limits.gb_seconds_per_day,
        month_dollars=round(bill.month_dollars, 6),
        month_budget_dollars=limits.dollars_per_month,
    )


def backlog(found: BacklogAt, tenants: Iterable[str] | None) -> FleetBacklog:
    """Tell the backlog of some tenants together; None: of all."""
    left = found.of(tenants)
    return FleetBacklog(
        at=iso_time(found.at_ms),
        tables=left.tables,
        files=left.files,
        bytes=left.read_bytes,
        dollars=round(left.dollars, 6),
    )


def statuses(verdicts: Sequence[Verdict]) -> Mapping[str, int]:
    return dict(sorted(Counter(verdict.status.value for verdict in verdicts).items()))


def unseen(ident: str, error: RegelateError) -> UnseenTable:
    return UnseenTable(table=ident, code=error.code, message=error.message)
