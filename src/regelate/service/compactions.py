"""COMPACT as a request: here and at once, here within a time, or by a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from regelate.core.answers import CompactAnswer
from regelate.core.policy.policy import PlacementPolicy
from regelate.core.requests import CompactRequest
from regelate.core.running.routing import Capabilities
from regelate.operations import answers
from regelate.operations.compacting.conducting import (
    CompactEnv,
    Delegated,
    How,
    compact_requested,
    part_asked,
    partial_progress_asked,
    placement_within,
)
from regelate.ports.clock import Clock
from regelate.service.compaction_runs import CompactionRuns, Progress
from regelate.service.job_desk import JobDesk
from regelate.settings import Settings
from regelate.tenancy import Address


class Compactions:
    """Brings requests to `operations.conducting`. `placement` is what this process takes, and `has_spark` says whether
    the deployment can leave a table to Spark."""

    def __init__(
        self,
        runs: CompactionRuns,
        jobs: JobDesk,
        has_spark: Callable[[], bool],
        settings: Settings,
        placement: PlacementPolicy,
        clock: Clock,
    ) -> None:
        self._runs = runs
        self._jobs = jobs
        self._has_spark = has_spark
        self._settings = settings
        self._placement = placement
        self._clock = clock

    def compact(
        self,
        address: Address,
        request: CompactRequest,
        *,
        progress: Progress | None = None,
        seconds_left: float | None = None,
        may_delegate: bool = True,
    ) -> CompactAnswer:
        """Compact a table, or leave it to a job: on request, where its job is at it, or where it does not fit here.

        `seconds_left`: until this process is ended from outside. `may_delegate`: whoever asks can wait for a job.
        """
        part = part_asked(request)
        worker = None
        if may_delegate and self._jobs.enabled:  # this process may be a function that ends sooner than a worker
            worker = replace(self._placement, max_in_process_seconds=self._settings.placement.max_in_process_seconds)
        how = How(
            request=request,
            partial_progress=partial_progress_asked(
                request,
                batch_seconds=self._settings.jobs.seconds_between_looks,
                seconds_left=seconds_left,
                now=self._clock.monotonic(),
            ),
            placement=placement_within(self._placement, seconds_left),
            capabilities=Capabilities(
                spark=self._has_spark() and part.part == 1,
                delegates=may_delegate,
                worker=worker,
                larger_worker=self._settings.jobs.store == "dynamodb",
            ),
        )
        env = CompactEnv(
            run=lambda part, how: self._runs.run(address, part, how, progress),
            check=lambda part: self._runs.check(address, part),
            running=lambda: self._jobs.running(address),
            submit=lambda part, left: self._jobs.submit(
                address, part, left.origin, engine=left.job.engine, why=left.job.why
            ),
        )
        done = compact_requested(part, how, env)
        if isinstance(done, Delegated):
            return answers.delegated(done.job, done.reason)
        return answers.compacted(done.outcome, with_plan=request.dry_run, resume_token=done.token)
