"""A job: the durable decision to compact one table, and the only ways in which it may change.

    QUEUED -> RUNNING -> SUCCEEDED | FAILED          RUNNING -> QUEUED      continued, or tried again
    QUEUED -> CANCELLED                              RUNNING -> CANCELLING -> CANCELLED | SUCCEEDED | FAILED

A job runs in parts: a worker that is out of time commits what is done, and the next part takes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from regelate.core.engines import HERE, Engine
from regelate.core.requests import CompactRequest
from regelate.core.values import dataclass
from regelate.errors import Conflict

MAX_PARTS = 1_000
"""A job that has not come to its end after so many parts never will: somebody adds files faster than it merges them."""
PAID_UP = "PRICE"
"""Why a job left something over that had taken `most_seconds`."""
RETRY_SECONDS = 30.0
MAX_RETRY_SECONDS = 900.0


class JobState(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    CANCELLING = "CANCELLING"
    """Somebody asked for its end; the worker sees it between two groups."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        return not NEXT[self]


_RUNNING_ON = frozenset({JobState.SUCCEEDED, JobState.FAILED})
NEXT: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED, JobState.FAILED}),
    JobState.RUNNING: _RUNNING_ON | {JobState.RUNNING, JobState.QUEUED, JobState.CANCELLING},
    JobState.CANCELLING: _RUNNING_ON | {JobState.CANCELLING, JobState.CANCELLED},
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}
"""From each state, those that may follow. RUNNING to RUNNING: progress, or a worker in the place of a dead one."""
LIVE = tuple(state for state in JobState if not state.is_final)


class Origin(StrEnum):
    """Who asked for a job."""

    REQUEST = "REQUEST"
    """A COMPACT with `async`."""
    TOO_LONG = "TOO_LONG"
    """A COMPACT that did not fit into the time or the size that its process had."""
    WRITE = "WRITE"
    EVENT = "EVENT"
    """A notice that somebody has committed."""
    WATCH = "WATCH"
    """Somebody who polls a catalog."""
    SWEEP = "SWEEP"
    FLEET = "FLEET"
    """A fleet's plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTotals:
    """What all parts of a job did together."""

    files_compacted: int = 0
    files_added: int = 0
    bytes_saved: int = 0
    rows: int = 0
    snapshot_ids: tuple[int, ...] = ()

    def plus(self, other: JobTotals) -> JobTotals:
        """Add what another part did. A snapshot that is known already counts once: a part may be told of twice."""
        if other.snapshot_ids and set(other.snapshot_ids) <= set(self.snapshot_ids):
            return self
        return JobTotals(
            files_compacted=self.files_compacted + other.files_compacted,
            files_added=self.files_added + other.files_added,
            bytes_saved=self.bytes_saved + other.bytes_saved,
            rows=self.rows + other.rows,
            snapshot_ids=(*self.snapshot_ids, *other.snapshot_ids),
        )


NOTHING_DONE = JobTotals()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job as the store keeps it: the COMPACT that it does, and in JSON `result` and `error` of its last part.

    `version` counts changes: a change is stored only where nobody else changed the record meanwhile. `attempts` counts
    the starts of the present `part`; `fence` is the token of the lease that it runs under. `groups_before` were done by
    earlier parts. `remote` names the run where another `engine` than this process does the work, since `remote_ms`, and
    `why` says why it does. `worked_seconds`: what its attempts took together, but those whose worker died; where they
    come to `most_seconds`, the job ends with what is in the table. Times in milliseconds, by the store's clock.
    """

    job_id: str
    tenant_id: str
    catalog: str
    ident: str
    table: str
    run_id: str
    request: CompactRequest
    origin: Origin
    created_ms: int
    updated_ms: int
    not_before_ms: int = 0
    state: JobState = JobState.QUEUED
    version: int = 1
    part: int = 1
    attempts: int = 0
    fence: int = 0
    resume_token: str | None = None
    groups_before: int = 0
    groups_done: int = 0
    groups_all: int = 0
    totals: JobTotals = NOTHING_DONE
    result: str | None = None
    error: str | None = None
    engine: Engine = HERE
    why: str = ""
    remote: str | None = None
    remote_ms: int = 0
    most_seconds: float | None = None
    worked_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.groups_before <= self.groups_done <= self.groups_all:
            done, every = self.groups_done, self.groups_all
            raise ValueError(f"{done} of {every} groups done, {self.groups_before} by earlier parts")
        if self.part < 1 or self.attempts < 0 or self.version < 1:
            raise ValueError(f"part {self.part}, attempts {self.attempts}, version {self.version}")
        if self.state is JobState.FAILED and self.error is None:
            raise ValueError(f"{self.job_id} is FAILED without an error")
        if self.state is JobState.SUCCEEDED and self.result is None:
            raise ValueError(f"{self.job_id} is SUCCEEDED without a result")

    @property
    def lock(self) -> str:
        """Name the table for leases: one live job, and one worker, per table."""
        return lock_of(self.catalog, self.ident)

    def started(self, fence: int, now_ms: int) -> JobRecord:
        """A worker holds the lease and begins, or begins again where another one died."""
        if fence <= self.fence:
            raise Conflict("LEASE_LOST", f"the lease {fence} of {self.job_id} is older than {self.fence}")
        return self._to(JobState.RUNNING, now_ms, fence=fence, attempts=self.attempts + 1, error=None)

    def worked(self, seconds: float) -> JobRecord:
        """An attempt took so long, however it ended."""
        return replace(self, worked_seconds=round(self.worked_seconds + seconds, 3))

    def taken_over(self, fence: int, now_ms: int) -> JobRecord:
        """Somebody holds the lease and looks after what runs elsewhere: no new start."""
        if fence <= self.fence:
            raise Conflict("LEASE_LOST", f"the lease {fence} of {self.job_id} is older than {self.fence}")
        return self._to(self.state, now_ms, fence=fence)

    def handed_over(self, why: str, now_ms: int) -> JobRecord:
        """Spark is to do it, and has not begun: who comes next starts it, and whoever cancels it first keeps it so."""
        return self._to(JobState.QUEUED, now_ms, engine=Engine.SPARK, why=why, attempts=0, not_before_ms=now_ms)

    def placed(self, remote: str, why: str, now_ms: int, look_again_seconds: float) -> JobRecord:
        """Spark does it, under this name. Nobody here is at it until the next look."""
        return self._to(
            self.state,
            now_ms,
            engine=Engine.SPARK,
            why=why,
            remote=remote,
            remote_ms=self.remote_ms or now_ms,
            not_before_ms=now_ms + int(look_again_seconds * 1000),
        )

    def progressed(self, done: int, total: int, now_ms: int) -> JobRecord:
        """`done` of `total` groups of the present part are rewritten."""
        every = self.groups_before + max(total, done)
        return self._to(self.state, now_ms, groups_done=self.groups_before + done, groups_all=every)

    def continued(self, token: str, did: JobTotals, result: str, now_ms: int) -> JobRecord:
        """This part is in the table, the rest is for the next one."""
        return self._to(
            JobState.QUEUED,
            now_ms,
            part=self.part + 1,
            attempts=0,
            resume_token=token,
            groups_before=self.groups_done,
            totals=self.totals.plus(did),
            result=result,
            not_before_ms=now_ms,
        )

    def retried(self, error: str, now_ms: int) -> JobRecord:
        """What stopped this part may pass: it is tried again, later with every attempt."""
        pause = retry_seconds(self.attempts)
        return self._to(JobState.QUEUED, now_ms, error=error, not_before_ms=now_ms + int(pause * 1000))

    def succeeded(self, did: JobTotals, result: str, now_ms: int) -> JobRecord:
        every = max(self.groups_all, self.groups_done)
        return self._to(
            JobState.SUCCEEDED, now_ms, totals=self.totals.plus(did), result=result, error=None, groups_all=every
        )

    def failed(self, error: str, now_ms: int) -> JobRecord:
        return self._to(JobState.FAILED, now_ms, error=error)

    def cancel_asked(self, now_ms: int) -> JobRecord:
        """End it now where nobody works on it, else at the next group. Asking twice changes nothing.

        Errors: Conflict JOB_FINISHED, where there is nothing left to cancel.
        """
        if self.state in (JobState.CANCELLING, JobState.CANCELLED):
            return self
        if self.state.is_final:
            told = f"{self.job_id} has ended as {self.state.value}: there is nothing to cancel"
            raise Conflict("JOB_FINISHED", told, retryable=False, state=self.state.value)
        wanted = JobState.CANCELLED if self.state is JobState.QUEUED else JobState.CANCELLING
        return self._to(wanted, now_ms, not_before_ms=min(self.not_before_ms, now_ms))

    def cancelled(self, now_ms: int, did: JobTotals = NOTHING_DONE) -> JobRecord:
        """It has stopped. What `did` land in its last part, and in those before, stays."""
        return self._to(JobState.CANCELLED, now_ms, totals=self.totals.plus(did))

    def put_back(self, now_ms: int) -> JobRecord:
        """The worker stops before it began a group: another one takes the part, and this attempt does not count."""
        return self._to(JobState.QUEUED, now_ms, attempts=max(self.attempts - 1, 0), not_before_ms=now_ms)

    def _to(self, state: JobState, now_ms: int, **changes: object) -> JobRecord:
        if state not in NEXT[self.state]:
            raise Conflict("JOB_STATE", f"{self.job_id} is {self.state.value} and cannot become {state.value}")
        later = max(now_ms, self.updated_ms)
        return replace(self, state=state, version=self.version + 1, updated_ms=later, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on one table for a while. `fence` is higher than that of every lease of the table before.

    Whoever stores something under a lease compares the fence, so that a worker that was taken for dead, and was not,
    changes nothing any more.
    """

    lock: str
    holder: str
    fence: int


def lock_of(catalog: str, ident: str) -> str:
    """Name a table as leases do."""
    return f"{catalog}/{ident}"


def automatic_run(snapshot_id: int | None) -> str:
    """Name the automatic run of one state of a table: whoever sees that state asks for the same job."""
    return f"auto-{snapshot_id}"


def run_of_part(run_id: str, part: int) -> str:
    return run_id if part == 1 else f"{run_id}:part-{part}"


def retry_seconds(attempts: int) -> float:
    """Return the pause after so many attempts: 30 s, doubled each time, at most a quarter of an hour."""
    return min(RETRY_SECONDS * float(2 ** min(max(attempts - 1, 0), 10)), MAX_RETRY_SECONDS)
