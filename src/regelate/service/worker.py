"""Who works on jobs: one part at a time, here or by Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from regelate.core.jobs.job import JobRecord
from regelate.core.policy.policy import PlacementPolicy
from regelate.core.running.batches import MOST_RESERVE_SECONDS
from regelate.core.running.routing import Capabilities
from regelate.errors import Unavailable
from regelate.operations import answers
from regelate.operations.compacting.conducting import How, Left, part_of, run_or_leave
from regelate.operations.compacting.partial_progress import PartialProgress, Watcher
from regelate.operations.jobs.parts import MAX_STORED_WARNINGS, Elsewhere, Later, PartDone, run_part
from regelate.ports.clock import Clock
from regelate.service.compaction_runs import CompactionRuns
from regelate.service.job_stores import JobStores
from regelate.service.spark_runs import SparkRuns
from regelate.settings import Settings
from regelate.tenancy import address_of

OVERRUN = 2
"""A part may take so many times as long as it was given: what it estimates may be wrong, a commit may have to wait."""


class Worker:
    """Runs the parts of jobs. Errors: Unsupported JOBS_DISABLED."""

    def __init__(
        self,
        stores: JobStores,
        runs: CompactionRuns,
        spark: SparkRuns,
        settings: Settings,
        placement: PlacementPolicy,
        clock: Clock,
    ) -> None:
        self._stores = stores
        self._runs = runs
        self._spark = spark
        self._settings = settings
        self._placement = placement
        self._clock = clock

    def run_job(
        self,
        job_id: str,
        part: int,
        *,
        seconds_left: float | None = None,
        stopping: Callable[[], bool] = lambda: False,
        at_once: bool = False,
    ) -> float | None:
        """Run one part of a job; return after how many seconds its message must come again, or None.

        `at_once`: of a job that runs elsewhere something is known to have happened.
        `seconds_left`: until this process is ended from outside; a job is then continued by another message.
        """
        limit = self._settings.placement.max_in_process_seconds
        seconds = limit if seconds_left is None else min(seconds_left, limit + MOST_RESERVE_SECONDS)

        def work(record: JobRecord, watcher: Watcher) -> PartDone | Elsewhere:
            if record.engine.is_remote:
                return self._spark.part(record)
            batch_seconds = self._settings.jobs.seconds_between_looks
            partial_progress = PartialProgress(enabled=True, batch_seconds=batch_seconds, watcher=watcher)
            return self._done_here(record, partial_progress.within(seconds, self._clock.monotonic()))

        later = run_part(
            self._stores.needed(),
            job_id,
            part,
            work,
            stopping=stopping,
            at_once=at_once,
            longest_seconds=OVERRUN * seconds,
            monotonic=self._clock.monotonic,
        )
        return later.seconds if isinstance(later, Later) else None

    def _done_here(self, record: JobRecord, partial_progress: PartialProgress) -> PartDone | Elsewhere:
        """Run the part in this process, or hand it over where it turns out to be Spark's."""
        part = part_of(record)
        capabilities = Capabilities(spark=self._spark.available and part.part == 1)
        how = How(
            request=part.request,
            partial_progress=partial_progress,
            placement=self._placement,
            capabilities=capabilities,
        )
        done = run_or_leave(part, how, partial(self._runs.run, address_of(record)))
        if isinstance(done, Left):
            return Elsewhere(remote=None, why=done.job.why)
        answer = answers.compacted(done.outcome, with_plan=False)
        answer = replace(answer, warnings=answer.warnings[:MAX_STORED_WARNINGS])
        return PartDone(answer=answer, did=done.did, token=done.token, stopped=done.outcome.stopped)

    def spark_run_changed(self, run_id: str) -> str | None:
        """Look after the job of a run that has another state; return its id, None for a run that is none of ours.

        Errors: Unavailable JOB_BUSY where somebody else is looking just now, and may have seen the state before; where
        the run is not noted yet; and where Spark could not be asked.
        """
        if not self._spark.available:
            return None
        job_id = self._spark.job_of(run_id)
        record = None if job_id is None else self._stores.needed().store.get(job_id)
        if record is None or record.state.is_final or record.remote not in (None, run_id):
            return None
        if record.remote is None or self.run_job(record.job_id, record.part, at_once=True) is not None:
            raise Unavailable(
                "JOB_BUSY", f"{job_id} is being looked after by another worker, or cannot be asked about now; ask again"
            )
        return job_id

    @property
    def job_threads(self) -> int:
        """How many threads of this process work on jobs: none where a queue brings them to workers of their own."""
        return 0 if self._stores.embedded is None else self._settings.jobs.workers

    @property
    def job_bell(self) -> threading.Event:
        """Rings when this process has queued a job; never where jobs are kept elsewhere."""
        return threading.Event() if self._stores.embedded is None else self._stores.embedded.woken

    def run_due_job(self, *, stopping: threading.Event) -> bool:
        """Run one part of a job that waits in the embedded store; false where none is due."""
        store = self._stores.needed().store
        for job_id in store.due(1):
            record = store.get(job_id)
            if record is not None:
                self.run_job(job_id, record.part, stopping=stopping.is_set)
                return True
        return False
