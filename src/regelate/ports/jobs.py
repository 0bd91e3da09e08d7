"""What jobs need: a place that remembers them, one worker per table, and a way to the next worker."""

from __future__ import annotations

from typing import Protocol

from regelate.core.jobs.job import JobRecord, Lease
from regelate.core.jobs.listing import JobFilter
from regelate.core.jobs.spark_job import SparkJobSpec, SparkRun


class JobStore(Protocol):
    """Remembers jobs and leases. Times are the store's own: workers' clocks may differ.

    `add` stores a new job unless one with its id is known, or the table has a live one: the job that holds is returned.
    `save` stores a change unless somebody changed the record since `before` was read; it then returns false. `live` is
    the table's job that is not at its end. `acquire` returns None while somebody else holds an unexpired lease; `renew`
    returns false where it is lost. `due` are the jobs that a worker of this process may begin now: queued ones, and
    those whose worker died. Stores with a queue beside them name none. `waiting` counts
    those that are QUEUED. `listed` are the newest jobs first, by
    `place_of`, from the one after the place `after` on; a job that was just stored may be missing for a moment.
    """

    def now_ms(self) -> int: ...
    def add(self, record: JobRecord) -> JobRecord: ...
    def get(self, job_id: str) -> JobRecord | None: ...
    def live(self, lock: str) -> JobRecord | None: ...
    def save(self, before: JobRecord, after: JobRecord) -> bool: ...
    def acquire(self, lock: str, holder: str, seconds: float) -> Lease | None: ...
    def held(self, lock: str) -> bool: ...
    def renew(self, lease: Lease, seconds: float) -> bool: ...
    def release(self, lease: Lease) -> None: ...
    def due(self, limit: int) -> tuple[str, ...]: ...
    def waiting(self) -> int: ...
    def listed(self, wanted: JobFilter, limit: int, *, after: str | None = None) -> tuple[JobRecord, ...]: ...


class JobQueue(Protocol):
    """Tells a worker of a job's present part, at least once, and one after the other for each table.

    `postpone` makes an unserved message come again after so many seconds; `receipt` is the queue's word for it.
    """

    def send(self, record: JobRecord) -> None: ...
    def postpone(self, receipt: str, seconds: float) -> None: ...


class SparkJobs(Protocol):
    """Runs the pipeline's jobs in Spark. Such a job commits by itself, and survives the process that started it.

    `start` returns the run's id; the same name gives the same run, whoever asks and however often. `look` says where it
    stands; one that is not known has ENDED without an answer. `cancel` asks for its end, also again. `job_of` names the
    job that a run was started for, None for a run of somebody else's.
    Errors: Unavailable, where asking again later may help.
    """

    def start(self, spec: SparkJobSpec) -> str: ...
    def look(self, run_id: str) -> SparkRun: ...
    def cancel(self, run_id: str) -> None: ...
    def job_of(self, run_id: str) -> str | None: ...
