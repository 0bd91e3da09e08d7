"""What became of the runs that a fleet began: the end of a job is the end of its run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from regelate.core.engines import Price
from regelate.core.fleet.operation import FleetOutcome
from regelate.core.fleet.state import FleetRun, TableState
from regelate.core.jobs.job import PAID_UP, JobRecord, JobState
from regelate.core.planning.plan import PlanReason
from regelate.core.values import dataclass
from regelate.errors import Conflict, RegelateError
from regelate.ports.fleet_store import FleetStore

LEFT_FOR_ITS_PRICE = frozenset({PAID_UP, PlanReason.BUDGET_CAPPED.value})
"""Of the answer of a COMPACT: there is more to do, for which its budget had no room."""
BEGUN_WITHIN_MS, DONE_WITHIN_MS = 15 * 60 * 1000, 24 * 3600 * 1000
"""A run that has no job after so long never got one: whoever began it was ended in between. What is no job is done by
who begins it, however long it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """What a second of work costs where it is done."""

    price: Price
    memory_bytes: int

    def paid(self, run: FleetRun, seconds: float, **ended: object) -> FleetRun:
        """Return the run with the bill of its seconds, and how it `ended`. Nobody counts its requests to the store:
        those that were predicted are on the bill of a run that took any time."""
        requests = max(run.predicted_dollars - self.price.dollars(run.predicted_seconds, self.memory_bytes), 0.0)
        return replace(
            run,
            actual_seconds=round(seconds, 3),
            actual_dollars=self.price.dollars(seconds, self.memory_bytes) + (requests if seconds else 0.0),
            actual_gb_seconds=seconds * self.memory_bytes / 2**30,
            **ended,  # type: ignore[arg-type]
        )


def settle(
    states: Sequence[TableState],
    job_of: Callable[[TableState, FleetRun], JobRecord | None],
    store: FleetStore,
    tariff: Tariff,
) -> int:
    """Settle the runs whose jobs have ended, and return how many there were. `job_of`: the job of a run, also of one
    whose id nobody noted."""
    now_ms = store.now_ms()
    ended = 0
    for state in states:
        run = state.live
        if run is None:
            continue
        job = job_of(state, run) if run.operation.rewrites_data else None
        done = _ended(run, job, tariff, now_ms)
        if done is not None:
            ended += settle_run(store, state.table_uuid, done)
    return ended


def settle_run(store: FleetStore, table_uuid: str, done: FleetRun) -> bool:
    """Store the end of a run; false where somebody else has settled it."""

    def change(state: TableState | None) -> TableState:
        if state is None:
            raise Conflict("RUN_NOT_LIVE", "the fleet has forgotten the table", retryable=False)
        return state.settled(done)

    try:
        store.change(table_uuid, change)
    except Conflict:
        return False
    return True


def failed(run: FleetRun, error: RegelateError, tariff: Tariff, *, now_ms: int, seconds: float = 0.0) -> FleetRun:
    """Return a run as it ends by an error."""
    told = f"{error.code}: {error.message}"
    return tariff.paid(run, seconds, ended_ms=now_ms, outcome=FleetOutcome.FAILED, error=told)


def _ended(run: FleetRun, job: JobRecord | None, tariff: Tariff, now_ms: int) -> FleetRun | None:
    """Return a run with what its job came to; None while that is under way."""
    if job is None:
        if now_ms - run.queued_ms < (BEGUN_WITHIN_MS if run.operation.rewrites_data else DONE_WITHIN_MS):
            return None
        lost = FleetOutcome.FAILED
        return tariff.paid(run, 0.0, ended_ms=now_ms, outcome=lost, error="its job was lost, or never made")
    if not job.state.is_final:
        return None
    before, totals, outcome = run.files_before, job.totals, _outcome(job)
    after = None if before is None else before - totals.files_compacted + totals.files_added
    return tariff.paid(
        run,
        _seconds(job),
        job_id=job.job_id,
        started_ms=run.started_ms or job.created_ms,
        ended_ms=job.updated_ms,
        outcome=outcome,
        error=_error(job),
        files_after=after,
        snapshot_after=totals.snapshot_ids[-1] if totals.snapshot_ids else run.snapshot_before,
    )


def _outcome(job: JobRecord) -> FleetOutcome:
    did = job.totals.files_compacted > 0
    if job.state is JobState.FAILED:
        return FleetOutcome.PARTIAL if did else FleetOutcome.FAILED
    if job.state is JobState.CANCELLED:
        return FleetOutcome.PARTIAL if did else FleetOutcome.CANCELLED
    if not did:
        return FleetOutcome.NO_EFFECT
    return FleetOutcome.PARTIAL if _reason(job) in LEFT_FOR_ITS_PRICE else FleetOutcome.DONE


def _ended_early(job: JobRecord) -> bool:
    return _reason(job) == PAID_UP


def _reason(job: JobRecord) -> object:
    """Return why its last part left something over."""
    return (json.loads(job.result) or {}).get("reason") if job.result else None


def _seconds(job: JobRecord) -> float:
    """Return the seconds of work: as its answer tells them, where one part did it all; else as its attempts took them
    or, of a job of Spark's, from door to door."""
    answer = json.loads(job.result) if job.result and job.part == 1 else {}
    stats = answer.get("stats")
    if isinstance(stats, dict) and isinstance(stats.get("compaction_time_ms"), int | float):
        return float(stats["compaction_time_ms"]) / 1000
    if job.worked_seconds:
        return job.worked_seconds
    return max(job.updated_ms - job.created_ms, 0) / 1000 if job.attempts or job.totals.snapshot_ids else 0.0


def _error(job: JobRecord) -> str:
    if job.error is None:
        return f"it was ended after the {job.most_seconds or 0:,.0f} s that it may cost" if _ended_early(job) else ""
    found = json.loads(job.error)
    return f"{found.get('code', 'FAILED')}: {found.get('message', '')}" if isinstance(found, dict) else str(found)
