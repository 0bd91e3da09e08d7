"""Jobs: submit, look, cancel, give up. What a worker does with one is in `job_parts`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count

from regelate.core.jobs.job import JobRecord, JobState
from regelate.core.measures.measures import JobGivenUp, JobsCounted
from regelate.core.values import dataclass
from regelate.errors import Conflict, NotFound, RegelateError, Unavailable
from regelate.ports.jobs import JobQueue, JobStore
from regelate.ports.telemetry import Telemetry

MAX_CHANGES = 50
"""Tries to store a change before somebody else does; a worker and one who cancels are all there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTools:
    """`lease_seconds`: after so long without a sign a worker is taken for dead."""

    store: JobStore
    queue: JobQueue
    telemetry: Telemetry
    lease_seconds: float
    max_attempts: int


def submit(tools: JobTools, record: JobRecord) -> JobRecord:
    """Store and announce a job; return it, or the one that its table has already.

    One that nobody is at is announced again: whoever submitted it may have died before it could, and a message may be
    lost that died with its worker too often. The queue, or the record, knows one that comes twice. A job that FAILED is
    submitted anew under the next name, with its run id: what had landed of it is found, and lands once.
    """
    held = tools.store.add(replace(record, job_id=_free_name(tools.store, record.job_id)))
    _announce(tools, held)
    tell_pending(tools)
    return held


def tell_pending(tools: JobTools) -> None:
    """Tell how many jobs wait. A store that cannot say so now has said so to whoever needs it: a metric is no reason to
    refuse."""
    with suppress(Unavailable):
        tools.telemetry.tell(JobsCounted(pending=tools.store.waiting()))


def _free_name(store: JobStore, job_id: str) -> str:
    """Return the first of `job-x`, `job-x-2`, `job-x-3` and so on that is not the name of a job that failed."""
    for number in count(1):
        name = job_id if number == 1 else f"{job_id}-{number}"
        known = store.get(name)
        if known is None or known.state is not JobState.FAILED:
            return name
    raise AssertionError("there is always a next number")


def _announce(tools: JobTools, record: JobRecord) -> None:
    if not record.state.is_final and not worked_on(tools, record):
        tools.queue.send(record)


def worked_on(tools: JobTools, record: JobRecord) -> bool:
    """Say whether a worker is at a job: one began it, and its table's lease is held."""
    return record.state is not JobState.QUEUED and tools.store.held(record.lock)


def running_job(tools: JobTools, lock: str) -> JobRecord | None:
    """Return the job that a worker or Spark is at on this table. One that only waits keeps nobody from compacting."""
    job = tools.store.live(lock)
    return job if job is not None and (job.remote is not None or worked_on(tools, job)) else None


def look_after(tools: JobTools, record: JobRecord) -> None:
    """Announce a job that runs elsewhere, once its next look is due: a worker then asks how it stands."""
    if record.remote is not None and record.not_before_ms <= tools.store.now_ms():
        _announce(tools, record)


def live_job(tools: JobTools, lock: str, *, announce: bool) -> JobRecord | None:
    """Return a table's job that is not at its end; announce it again where its message or its worker is lost.

    One that is to be tried again later has a message that comes then.
    """
    job = tools.store.live(lock)
    if job is not None and announce:
        later = job.state is JobState.QUEUED and job.not_before_ms > tools.store.now_ms()
        if not later:
            _announce(tools, job)
    return job


def changed(store: JobStore, job_id: str, how: Callable[[JobRecord], JobRecord]) -> JobRecord:
    """Store what `how` makes of a job, and make it again where somebody was faster; return the job as it is then.

    A store that sends again what had no reply is refused by its own change: one that is there already is ours.
    Errors: NotFound JOB_NOT_FOUND; what `how` raises.
    """
    for _ in range(MAX_CHANGES):
        before = store.get(job_id)
        if before is None:
            raise NotFound("JOB_NOT_FOUND", "there is no such job, or it ended long ago", job_id=job_id)
        after = how(before)
        if after is before or store.save(before, after) or store.get(job_id) == after:
            return after
    raise Conflict("JOB_STATE", f"{job_id} was changed {MAX_CHANGES} times meanwhile; try again")


def cancel(tools: JobTools, job_id: str) -> JobRecord:
    """Cancel a job: at once where it waits, between two groups where it runs. What is committed stays.

    Errors: NotFound JOB_NOT_FOUND, Conflict JOB_FINISHED.
    """
    record = changed(tools.store, job_id, lambda record: record.cancel_asked(tools.store.now_ms()))
    _announce(tools, record)
    tell_pending(tools)
    return record


def give_up(tools: JobTools, job_id: str, part: int, why: str) -> None:
    """End a job of whose present part no worker will hear any more.

    One that a worker is at is left to it, and one that has come to another part has a message for that.
    """

    error = RegelateError("JOB_UNSERVED", why)

    def ended(record: JobRecord) -> JobRecord:
        elsewhere = record.remote is not None
        left = record.state.is_final or record.part != part or elsewhere or worked_on(tools, record)
        return record if left else record.failed(error_text(error), tools.store.now_ms())

    if tools.store.get(job_id) is None:
        return
    record = changed(tools.store, job_id, ended)
    if record.error == error_text(error):
        tools.telemetry.tell(JobGivenUp(table=record.ident, code=error.code))


def error_text(error: RegelateError) -> str:
    """Return an error as a job's record keeps it."""
    return json.dumps(error.as_error().as_dict(), default=str)
