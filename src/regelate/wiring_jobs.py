"""Jobs, wired: the configured store, and what one part of a job does."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from regelate.core.engines import HERE, Engine
from regelate.core.job import JobRecord, Origin
from regelate.core.options import Auto
from regelate.core.requests import CompactRequest, request_json
from regelate.core.resume import read_token
from regelate.core.routing import Capabilities, Job, Unreadable, route
from regelate.core.waves import MOST_RESERVE_SECONDS
from regelate.errors import InvalidRequest, NotFound, RegelateError, Unsupported
from regelate.operations import answers, job_answers
from regelate.operations.continuing import RanPart, RunPart
from regelate.operations.job_parts import MAX_STORED_WARNINGS, Elsewhere, Later, PartDone, run_part
from regelate.operations.jobs import JobTools, cancel, give_up, look_after, submit
from regelate.operations.pacing import Pacing, Watcher
from regelate.tenancy import Address
from regelate.wiring_compact import How

if TYPE_CHECKING:
    from regelate.adapters.jobstore.sqlite import SqliteJobs
    from regelate.adapters.telemetry import ProcessTelemetry
    from regelate.core.policy import PlacementPolicy
    from regelate.ports.clock import Clock
    from regelate.settings import Settings

log = logging.getLogger(__name__)
Fields = Mapping[str, object]
OVERRUN = 2
"""A part may take so many times as long as it was given: what it estimates may be wrong, a commit may have to wait."""
MAX_STORED_REQUEST_BYTES = 64 * 1024
"""As JSON. They are in the record twice, as given and in the token of the next part; base64 and escapes add to them."""


class Parts(Protocol):
    """What jobs take from the Application."""

    settings: Settings
    placement: PlacementPolicy

    @property
    def clock(self) -> Clock: ...
    @property
    def jobs(self) -> JobTools | None: ...
    def _jobs_or_refuse(self) -> JobTools: ...
    def _known_job(self, job_id: str, tenant_id: str) -> JobRecord: ...
    def run_job(
        self,
        job_id: str,
        part: int,
        *,
        seconds_left: float | None = None,
        stopping: Callable[[], bool] = lambda: False,
        at_once: bool = False,
    ) -> float | None: ...
    def _run_part(self, address: Address, part: RunPart, how: How) -> RanPart: ...
    def submit_job(
        self, address: Address, part: RunPart, origin: Origin, *, engine: Engine = HERE, why: str = ""
    ) -> JobRecord: ...
    @property
    def has_spark(self) -> bool: ...
    def spark_part(self, record: JobRecord, why: str) -> PartDone | Elsewhere: ...
    def _done_here(self, record: JobRecord, pacing: Pacing) -> PartDone | Elsewhere: ...
    def compact(
        self,
        address: Address,
        request: CompactRequest,
        *,
        seconds_left: float | None = None,
    ) -> Fields: ...


class Jobs:
    """Mixed into `wiring.Application`."""

    settings: Settings
    if TYPE_CHECKING:
        telemetry: ProcessTelemetry

    @cached_property
    def jobs(self) -> JobTools | None:
        """The configured store and queue; None where config.json has none."""
        found = self.settings.jobs
        if found.store == "none":
            return None
        store: Any = self.embedded_jobs
        queue: Any = store
        if found.store == "dynamodb":
            from regelate.adapters.jobstore.dynamodb import DynamoJobs
            from regelate.adapters.jobstore.sqs import SqsQueue

            timeouts = self.settings.network.timeouts
            store = DynamoJobs(found.table or "", retention_seconds=found.retention_hours * 3600, timeouts=timeouts)
            queue = SqsQueue(found.queue_url or "", timeouts=timeouts)
        return JobTools(
            store=store,
            queue=queue,
            telemetry=self.telemetry,
            lease_seconds=found.lease_seconds,
            max_attempts=found.max_attempts,
        )

    @cached_property
    def embedded_jobs(self) -> SqliteJobs | None:
        """The store that `regelate serve` works on by itself; None where jobs are kept elsewhere or not at all."""
        found = self.settings.jobs
        if found.store != "sqlite":
            return None
        from regelate.adapters.jobstore.sqlite import SqliteJobs

        return SqliteJobs(Path(found.path or ""), retention_seconds=found.retention_hours * 3600)

    def submit_job(
        self: Parts,
        address: Address,
        part: RunPart,
        origin: Origin,
        *,
        engine: Engine = HERE,
        why: str = "",
    ) -> JobRecord:
        """Store and announce a job for this part and those after it; return it, or the one that the table has.

        Errors: Unsupported JOBS_DISABLED, Unavailable JOBS_UNAVAILABLE, InvalidRequest PAYLOAD_TOO_LARGE.
        """
        tools = self._jobs_or_refuse()
        if len(request_json(part.request)) > MAX_STORED_REQUEST_BYTES:
            told = f"a job keeps {MAX_STORED_REQUEST_BYTES} bytes of its request; send less, or compact without a job"
            raise InvalidRequest("PAYLOAD_TOO_LARGE", told, status=413, max_bytes=MAX_STORED_REQUEST_BYTES)
        now = tools.store.now_ms()
        return submit(
            tools,
            JobRecord(
                job_id=_job_id(address, part.base_run_id),
                tenant_id=address.tenant_id,
                catalog=address.catalog,
                ident=address.ident,
                table=address.table or "",
                run_id=part.base_run_id,
                request=part.request,
                origin=origin,
                created_ms=now,
                updated_ms=now,
                part=part.part,
                resume_token=None if part.token is None else part.token.encoded(),
                engine=engine,
                why=why,
            ),
        )

    def after_write(
        self: Parts, address: Address, auto: Auto, snapshot_id: int | None, seconds_left: float | None
    ) -> Fields:
        """Do what `compaction.auto` says after a WRITE that found enough small files; nothing here fails the write."""
        found: dict[str, object] = {"compaction_job_id": None, "compaction_status": None}
        try:
            if auto is Auto.ASYNC and self.jobs is not None:
                part = RunPart(base_run_id=f"write-{snapshot_id}", part=1, request=CompactRequest())
                found["compaction_job_id"] = self.submit_job(address, part, Origin.WRITE).job_id
            elif auto is Auto.SYNC:
                asked = CompactRequest(idempotency_key=f"write-{snapshot_id}")
                done = self.compact(address, asked, seconds_left=seconds_left)
                found |= {"compaction_status": done["status"], "compaction_job_id": done.get("job_id")}
        except RegelateError as error:
            found["compaction_status"] = error.code
        except Exception:
            log.exception("the compaction after a write failed")
            found["compaction_status"] = "INTERNAL_ERROR"
        return found

    def job_status(self: Parts, tenant_id: str, job_id: str) -> Fields:
        """Tell how a job stands; of one that runs elsewhere a worker is asked to look, where that is due."""
        record = self._known_job(job_id, tenant_id)
        look_after(self._jobs_or_refuse(), record)
        return job_answers.told(record)

    def job_cancel(self: Parts, tenant_id: str, job_id: str) -> Fields:
        self._known_job(job_id, tenant_id)
        return job_answers.told(cancel(self._jobs_or_refuse(), job_id))

    def recent_jobs(self: Parts, limit: int) -> tuple[Fields, ...]:
        """Return the newest jobs of the store, whoever's they are: for the command line on its machine."""
        return tuple(job_answers.told(record) for record in self._jobs_or_refuse().store.recent(limit))

    def run_job(
        self: Parts,
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
        tools = self._jobs_or_refuse()
        limit = self.settings.placement.max_in_process_seconds
        seconds = limit if seconds_left is None else min(seconds_left, limit + MOST_RESERVE_SECONDS)

        def work(record: JobRecord, watcher: Watcher) -> PartDone | Elsewhere:
            if record.engine is Engine.SPARK:
                return self.spark_part(record, record.why)
            pacing = Pacing(in_parts=True, wave_seconds=self.settings.jobs.seconds_between_looks, watcher=watcher)
            return self._done_here(record, pacing.within(seconds, self.clock.monotonic()))

        later = run_part(
            tools,
            job_id,
            part,
            work,
            stopping=stopping,
            at_once=at_once,
            longest_seconds=OVERRUN * seconds,
        )
        return later.seconds if isinstance(later, Later) else None

    def give_up_job(self: Parts, job_id: str, part: int, why: str) -> None:
        give_up(self._jobs_or_refuse(), job_id, part, why)

    def _done_here(self: Parts, record: JobRecord, pacing: Pacing) -> PartDone | Elsewhere:
        """Run the part in this process, or hand it over where it turns out to be Spark's."""
        part = _part(record)
        capabilities = Capabilities(spark=self.has_spark and part.part == 1)
        how = How(request=part.request, pacing=pacing, placement=self.placement, capabilities=capabilities)
        try:
            done = self._run_part(_address(record), part, how)
        except Unsupported as fault:
            elsewhere = route(part.request, capabilities, Unreadable(fault=fault))
            if not isinstance(elsewhere, Job):
                raise
            return Elsewhere(remote=None, why=elsewhere.why)
        if done.outcome.left_to is not None:
            return Elsewhere(remote=None, why=done.outcome.left_to.why)
        fields = answers.compacted(done.outcome, with_plan=False)
        fields["warnings"] = list(done.outcome.warnings[:MAX_STORED_WARNINGS])
        return PartDone(answer=json.dumps(fields), did=done.did, token=done.token, stopped=done.outcome.stopped)

    def postpone_message(self: Parts, receipt: str, seconds: float) -> None:
        self._jobs_or_refuse().queue.postpone(receipt, seconds)

    @property
    def job_threads(self) -> int:
        """How many threads of this process work on jobs: none where a queue brings them to workers of their own."""
        return 0 if self.embedded_jobs is None else self.settings.jobs.workers

    @cached_property
    def job_bell(self) -> threading.Event:
        """Rings when this process has queued a job."""
        return threading.Event() if self.embedded_jobs is None else self.embedded_jobs.woken

    def run_due_job(self: Parts, *, stopping: threading.Event) -> bool:
        """Run one part of a job that waits in the embedded store; false where none is due."""
        tools = self._jobs_or_refuse()
        for job_id in tools.store.due(1):
            record = tools.store.get(job_id)
            if record is not None:
                self.run_job(job_id, record.part, stopping=stopping.is_set)
                return True
        return False

    def _jobs_or_refuse(self: Parts) -> JobTools:
        if self.jobs is None:
            raise Unsupported(
                "JOBS_DISABLED", "this deployment has no jobs: set jobs.store in config.json, or compact without async"
            )
        return self.jobs

    def _known_job(self: Parts, job_id: str, tenant_id: str) -> JobRecord:
        """Return a job of this tenant. Another tenant's is not told apart from one that does not exist.

        Where tenants are only labels of one catalog, they hide nothing from each other here either.
        """
        record = self._jobs_or_refuse().store.get(job_id)
        shared = record is not None and record.catalog in self.settings.catalogs
        multi = not shared or record is None or self.settings.catalogs[record.catalog].multi_tenant
        if record is None or (multi and record.tenant_id != tenant_id):
            raise NotFound("JOB_NOT_FOUND", "there is no such job, or it ended long ago", job_id=job_id)
        return record


def _job_id(address: Address, run_id: str) -> str:
    """Name a job by its run: the same event asks for the same job, also when that one has ended."""
    text = json.dumps([address.tenant_id, address.catalog, address.ident, run_id])
    return f"job-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _address(record: JobRecord) -> Address:
    return Address(tenant_id=record.tenant_id, catalog=record.catalog, ident=record.ident, table=record.table)


def _part(record: JobRecord) -> RunPart:
    token = None if record.resume_token is None else read_token(record.resume_token)
    request = record.request if token is None else token.request
    return RunPart(base_run_id=record.run_id, part=record.part, request=request, token=token, in_job=True)
