"""Jobs: submit, look, cancel, and run the present part of one.

A message says which part of which job; the record says what is true. So a message may come twice, late or out of order:
what it asks for is done already, or is done now, and each part lands in the table once (row 40).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from regelate.core.job import MAX_PARTS, NOTHING_DONE, JobRecord, JobState, JobTotals, retry_seconds
from regelate.core.measures import JobGivenUp
from regelate.core.policy import Engine
from regelate.errors import Conflict, NotFound, RegelateError, Unavailable
from regelate.operations.leasing import Held, kept
from regelate.operations.pacing import Stop, Watcher
from regelate.ports import Telemetry
from regelate.ports_jobs import JobQueue, JobStore

MAX_CHANGES = 50
"""Tries to store a change before somebody else does; a worker and one who cancels are all there are."""
MAX_STORED_WARNINGS = 20
"""A job keeps so many of its last part's: a record in DynamoDB ends at 400 KB."""
TRIED_AGAIN = ("COMMIT_STATE_UNKNOWN", "INTERNAL_ERROR")
"""Not retryable for a caller, but here: the same run id finds what landed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTools:
    """`lease_seconds`: after so long without a sign a worker is taken for dead."""

    store: JobStore
    queue: JobQueue
    telemetry: Telemetry
    lease_seconds: float
    max_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDone:
    """What one part came to: its answer in JSON, and the token of the next part where groups are left over.

    `failed`: how it ended elsewhere, where nothing is tried again.
    """

    answer: str
    did: JobTotals = NOTHING_DONE
    token: str | None = None
    stopped: Stop | None = None
    failed: RegelateError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The part runs under Spark, as `remote`: somebody is to look after it in so many seconds.

    `remote` None: it is Spark's, as has turned out, and somebody is to start it there.
    """

    remote: str | None
    why: str
    look_again_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """The message must come again after so many seconds."""

    seconds: float


Work = Callable[[JobRecord, Watcher], PartDone | Elsewhere]


def submit(tools: JobTools, record: JobRecord) -> JobRecord:
    """Store and announce a job; return it, or the one that its table has already.

    One that nobody is at is announced again: whoever submitted it may have died before it could, and a message may be
    lost that died with its worker too often. The queue, or the record, knows one that comes twice. A job that FAILED is
    submitted anew under the next name, with its run id: what had landed of it is found, and lands once.
    """
    held = tools.store.add(replace(record, job_id=_free_name(tools.store, record.job_id)))
    _announce(tools, held)
    return held


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
    return record


def give_up(tools: JobTools, job_id: str, part: int, why: str) -> None:
    """End a job of whose present part no worker will hear any more.

    One that a worker is at is left to it, and one that has come to another part has a message for that.
    """

    error = RegelateError("JOB_UNSERVED", why)

    def ended(record: JobRecord) -> JobRecord:
        elsewhere = record.remote is not None
        left = record.state.is_final or record.part != part or elsewhere or worked_on(tools, record)
        return record if left else record.failed(_text(error), tools.store.now_ms())

    if tools.store.get(job_id) is None:
        return
    record = changed(tools.store, job_id, ended)
    if record.error == _text(error):
        tools.telemetry.tell(JobGivenUp(table=record.ident, code=error.code))


def run_part(
    tools: JobTools,
    job_id: str,
    part: int,
    work: Work,
    *,
    stopping: Callable[[], bool] = lambda: False,
    at_once: bool = False,
) -> Later | None:
    """Run one part of a job, if it is still to be run; return when the message must come again, or None.

    A part that runs elsewhere needs no message: its record says when to look. `at_once`: something has happened to it,
    so look now. Whatever an error says is stored with the job. Anything else that `work` raises is a bug: the job
    fails, and the exception goes on to the log.
    """
    record = tools.store.get(job_id)
    if record is None or record.state.is_final:
        return None
    if part < record.part:
        if record.state is JobState.QUEUED:  # whoever ran the part before may have died before it could say so
            tools.queue.send(record)
        return None
    early = (record.not_before_ms - tools.store.now_ms()) / 1000
    if early > 0 and not at_once:
        return Later(seconds=early)
    lease = tools.store.acquire(record.lock, f"{job_id}-{uuid.uuid4().hex}", tools.lease_seconds)
    if lease is None:
        return Later(seconds=tools.lease_seconds)
    with kept(tools.store, lease, tools.lease_seconds) as held:
        return _Part(tools, job_id, held, stopping).run(work)


class _Part:
    """One part under a lease. Implements Watcher."""

    def __init__(self, tools: JobTools, job_id: str, held: Held, stopping: Callable[[], bool]) -> None:
        self._tools = tools
        self._job_id = job_id
        self._held = held
        self._stopping = stopping
        self._given_up: RegelateError | None = None

    def run(self, work: Work) -> Later | None:
        record = changed(self._tools.store, self._job_id, self._started)
        if self._given_up is not None:
            self._tools.telemetry.tell(JobGivenUp(table=record.ident, code=self._given_up.code))
        if record.state is not JobState.RUNNING and not _is_elsewhere(record):
            return None
        try:
            done = work(record, self)
            self._held.check()
        except RegelateError as error:
            return self._faulted(error)
        except BaseException as error:
            fault = RegelateError("INTERNAL_ERROR", f"{type(error).__name__}; the log has more")
            self._faulted(fault)
            raise
        if isinstance(done, Elsewhere):
            self._stays_elsewhere(record, done)
            return None
        after = self._change(lambda r: self._ended(r, done))
        if after.state is JobState.QUEUED:
            self._tools.queue.send(after)
        return None

    def _stays_elsewhere(self, looked_at: JobRecord, found: Elsewhere) -> None:
        """Note where the part runs. One that was cancelled during the look is looked at again at once: Spark knows
        nothing of it yet, and whoever cancelled saw a worker here and announced nothing."""

        def noted(record: JobRecord) -> JobRecord:
            if found.remote is None:
                cancelled = record.state is JobState.CANCELLING
                return record.cancelled(self._now()) if cancelled else record.handed_over(found.why, self._now())
            pause = found.look_again_seconds if record.state is looked_at.state else 0.0
            return record.placed(found.remote, found.why, self._now(), pause)

        after = self._change(noted)
        if after.state is not looked_at.state and not after.state.is_final:
            self._tools.queue.send(after)

    def passed(self, done: int, total: int) -> Stop | None:
        """Store how far the part is. That is information: a store that does not answer for once stops nobody."""
        self._held.check()
        with suppress(Unavailable):
            record = self._change(lambda r: r.progressed(done, total, self._now()))
            if record.state is JobState.CANCELLING:
                return Stop.CANCELLED
        return Stop.STOPPING if self._stopping() else None

    def _started(self, record: JobRecord) -> JobRecord:
        """Begin, or end at once what was cancelled, or has killed every worker that tried."""
        self._given_up = None
        if record.state.is_final:
            return record
        if _is_elsewhere(record):
            return record.taken_over(self._held.lease.fence, self._now())
        if record.state is JobState.CANCELLING:
            return record.cancelled(self._now())
        if record.attempts >= self._tools.max_attempts:
            message = f"{record.attempts} workers died over part {record.part}: memory or time did not suffice"
            return self._lost(record, RegelateError("WORKER_LOST", message))
        if record.part > MAX_PARTS:
            message = f"not at its end after {MAX_PARTS} parts: files come faster than they are merged"
            return self._lost(record, RegelateError("TOO_MANY_PARTS", message))
        return record.started(self._held.lease.fence, self._now())

    def _lost(self, record: JobRecord, error: RegelateError) -> JobRecord:
        self._given_up = error
        return record.failed(_text(error), self._now())

    def _ended(self, record: JobRecord, done: PartDone) -> JobRecord:
        now = self._now()
        if done.failed is not None:
            return record.failed(_text(done.failed), now)
        if done.stopped is Stop.CANCELLED:
            return record.cancelled(now)
        if done.token is not None and record.state is JobState.CANCELLING:
            return record.cancelled(now, done.did)
        if done.token is not None:
            return record.continued(done.token, done.did, done.answer, now)
        if done.stopped is Stop.STOPPING:
            return record.put_back(now) if record.state is JobState.RUNNING else record.cancelled(now)
        return record.succeeded(done.did, done.answer, now)

    def _faulted(self, error: RegelateError) -> Later | None:
        if error.code == "LEASE_LOST":
            return Later(seconds=self._tools.lease_seconds)
        again = (error.retryable or error.code in TRIED_AGAIN) and not self._held.lost.is_set()

        def how(record: JobRecord) -> JobRecord:
            if record.remote is not None:  # a look failed, not the run: it is asked again, or nobody can read it
                pause = retry_seconds(1)
                asked_again = error.retryable and record.placed(record.remote, record.why, self._now(), pause)
                return asked_again or record.failed(_text(error), self._now())
            if again and record.state is JobState.RUNNING and record.attempts < self._tools.max_attempts:
                return record.retried(_text(error), self._now())
            return record.failed(_text(error), self._now())

        after = self._change(how)
        return None if after.state.is_final else Later(seconds=retry_seconds(after.attempts))

    def _change(self, how: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """Store a change as the worker that holds the lease; one that lost it changes nothing any more."""

        def fenced(record: JobRecord) -> JobRecord:
            if record.fence != self._held.lease.fence:
                self._held.lost.set()
                self._held.check()
            return how(record)

        return changed(self._tools.store, self._job_id, fenced)

    def _now(self) -> int:
        return self._tools.store.now_ms()


def _is_elsewhere(record: JobRecord) -> bool:
    """Say whether Spark is at a job, or may be: a worker that died over its start did not say."""
    begun = record.remote is not None or (record.engine is Engine.SPARK and record.state is JobState.CANCELLING)
    return begun and not record.state.is_final


def _text(error: RegelateError) -> str:
    return json.dumps(error.as_error(), default=str)
