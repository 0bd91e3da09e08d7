"""One part of a job, run by a worker that holds the table's lease.

A message says which part of which job; the record says what is true. So a message may come twice, late or out of order:
what it asks for is done already, or is done now, and each part lands in the table once (row 40 of the fault catalogue:
one event on two processes at once).
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable
from contextlib import suppress

from regelate.core.answers import CompactAnswer, answer_fields
from regelate.core.jobs.job import MAX_PARTS, NOTHING_DONE, JobRecord, JobState, JobTotals, retry_seconds
from regelate.core.measures.measures import JobGivenUp
from regelate.core.values import dataclass
from regelate.errors import RegelateError, Unavailable
from regelate.operations.compacting.partial_progress import Stop, Watcher
from regelate.operations.jobs.jobs import JobTools, changed, error_text, tell_pending
from regelate.operations.jobs.leasing import Held, kept

MAX_STORED_WARNINGS = 20
"""A job keeps so many of its last part's: a record in DynamoDB ends at 400 KB."""
TRIED_AGAIN = ("COMMIT_STATE_UNKNOWN", "INTERNAL_ERROR")
"""Not retryable for a caller, but here: the same run id finds what landed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDone:
    """What one part came to, and the token of the next part where groups are left over.

    `failed`: how it ended elsewhere, where nothing is tried again.
    """

    answer: CompactAnswer | None = None
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


def run_part(
    tools: JobTools,
    job_id: str,
    part: int,
    work: Work,
    *,
    stopping: Callable[[], bool] = lambda: False,
    at_once: bool = False,
    longest_seconds: float = math.inf,
    monotonic: Callable[[], float] = time.monotonic,
) -> Later | None:
    """Run one part of a job, if it is still to be run; return when the message must come again, or None.

    A part that runs elsewhere needs no message: its record says when to look. `at_once`: something has happened to it,
    so look now. `longest_seconds`: work that takes longer hangs, and its lease runs out. `monotonic`: the clock that
    work is paid by. Whatever an error says is stored with the job. Anything else that `work` raises is a bug: the job
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
    with kept(tools.store, lease, tools.lease_seconds, longest_seconds=longest_seconds) as held:
        return _Part(tools, job_id, held, stopping, monotonic).run(work)


class _Part:
    """One part under a lease. Implements Watcher."""

    def __init__(
        self,
        tools: JobTools,
        job_id: str,
        held: Held,
        stopping: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._tools = tools
        self._job_id = job_id
        self._held = held
        self._stopping = stopping
        self._given_up: RegelateError | None = None
        self._monotonic = monotonic
        self._begun: float | None = None

    def run(self, work: Work) -> Later | None:
        record = changed(self._tools.store, self._job_id, self._started)
        tell_pending(self._tools)
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
            with suppress(RegelateError):  # who has the lease by now says what became of the job
                self._faulted(fault)
            raise
        if isinstance(done, Elsewhere):
            self._stays_elsewhere(record, done)
            return None
        after = self._change(lambda r: self._ended(r, done))
        if after.state is JobState.QUEUED:
            self._tools.queue.send(after)
            tell_pending(self._tools)
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
            if record.most_seconds is not None and record.worked_seconds + self._seconds() >= record.most_seconds:
                return Stop.PRICE
        return Stop.STOPPING if self._stopping() else None

    def _started(self, record: JobRecord) -> JobRecord:
        """Begin, or end at once what was cancelled, or has killed every worker that tried."""
        self._given_up = None
        if record.state.is_final:
            return record
        if record.fence >= self._held.lease.fence:  # it slept since it got its lease: another is at the job
            self._held.lost.set()
            self._held.check()
        if _is_elsewhere(record):
            return record.taken_over(self._held.lease.fence, self._now())
        if record.state is JobState.CANCELLING:
            return record.cancelled(self._now())
        if record.attempts >= self._tools.max_attempts:
            message = (
                f"{record.attempts} workers died on part {record.part} of the job: their memory or time was not enough"
            )
            return self._lost(record, RegelateError("WORKER_LOST", message))
        if record.part > MAX_PARTS:
            message = f"the job has not ended after {MAX_PARTS} parts: files arrive faster than they are merged"
            return self._lost(record, RegelateError("TOO_MANY_PARTS", message))
        self._begun = self._monotonic()
        return record.started(self._held.lease.fence, self._now())

    def _seconds(self) -> float:
        """Return how long this attempt has worked."""
        return 0.0 if self._begun is None else self._monotonic() - self._begun

    def _lost(self, record: JobRecord, error: RegelateError) -> JobRecord:
        self._given_up = error
        return record.failed(error_text(error), self._now())

    def _ended(self, record: JobRecord, done: PartDone) -> JobRecord:
        now, record = self._now(), record.worked(self._seconds())
        if done.failed is not None:
            return record.failed(error_text(done.failed), now)
        if done.stopped is Stop.CANCELLED:
            return record.cancelled(now)
        if done.token is not None and record.state is JobState.CANCELLING:
            return record.cancelled(now, done.did)
        if done.token is not None:
            return record.continued(done.token, done.did, _text(done.answer), now)
        if done.stopped is Stop.STOPPING:
            return record.put_back(now) if record.state is JobState.RUNNING else record.cancelled(now)
        return record.succeeded(done.did, _text(done.answer), now)

    def _faulted(self, error: RegelateError) -> Later | None:
        if error.code == "LEASE_LOST":
            return Later(seconds=self._tools.lease_seconds)
        again = (error.retryable or error.code in TRIED_AGAIN) and not self._held.lost.is_set()

        def how(record: JobRecord) -> JobRecord:
            record = record.worked(self._seconds())
            if record.remote is not None:  # a look failed, not the run: it is asked again, or nobody can read it
                pause = retry_seconds(1)
                asked_again = error.retryable and record.placed(record.remote, record.why, self._now(), pause)
                return asked_again or record.failed(error_text(error), self._now())
            if again and record.state is JobState.RUNNING and record.attempts < self._tools.max_attempts:
                return record.retried(error_text(error), self._now())
            return record.failed(error_text(error), self._now())

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
    begun = record.remote is not None or (record.engine.is_remote and record.state is JobState.CANCELLING)
    return begun and not record.state.is_final


def _text(answer: CompactAnswer | None) -> str:
    """Return an answer as the record of a job keeps it."""
    return json.dumps(None if answer is None else answer_fields(answer))
