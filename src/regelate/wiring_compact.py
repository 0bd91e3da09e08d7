"""COMPACT, wired: here and at once, here within a time, or by a job."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from regelate.core.engines import HERE, Engine
from regelate.core.job import JobRecord, Origin, lock_of, run_of_part
from regelate.core.options import resolve_verify
from regelate.core.placement import parallelism
from regelate.core.policy import CompactionPolicy, PlacementPolicy, RetentionPolicy
from regelate.core.requests import CompactRequest
from regelate.core.resume import read_token
from regelate.core.routing import Capabilities, Job, Refused, Unreadable, route
from regelate.core.spark_job import ZORDER
from regelate.core.waves import usable_seconds
from regelate.errors import Unsupported
from regelate.operations import answers
from regelate.operations.compaction import CompactCommand, CompactionTools
from regelate.operations.continuing import RanPart, RunPart, ran
from regelate.operations.jobs import JobTools, running_job
from regelate.operations.pacing import Pacing
from regelate.ports.clock import Clock
from regelate.ports.telemetry import Telemetry
from regelate.settings import Settings
from regelate.tenancy import Address
from regelate.wiring_storage import local_copies

if TYPE_CHECKING:
    from regelate.adapters.iceberg.session import TableSession

Fields = Mapping[str, object]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How a run is done here: in which time, on which machine, and who there is where it does not fit.

    `request` is the one that this run was asked for, with what is not carried on to others.
    """

    request: CompactRequest
    pacing: Pacing
    placement: PlacementPolicy
    capabilities: Capabilities


class Parts(Protocol):
    """What a compaction takes from the Application."""

    settings: Settings
    placement: PlacementPolicy

    @property
    def telemetry(self) -> Telemetry: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def jobs(self) -> JobTools | None: ...
    def submit_job(
        self, address: Address, part: RunPart, origin: Origin, *, engine: Engine = HERE, why: str = ""
    ) -> JobRecord: ...
    @property
    def has_spark(self) -> bool: ...
    def _left(
        self, address: Address, part: RunPart, job: Job, origin: Origin, capabilities: Capabilities
    ) -> Fields: ...
    def _check_command(self, address: Address, part: RunPart, capabilities: Capabilities) -> None: ...
    def _run_part(self, address: Address, part: RunPart, how: How, progress: Progress | None = None) -> RanPart: ...
    def _command(self, session: TableSession, part: RunPart) -> CompactCommand: ...
    def _session(self, address: Address) -> AbstractContextManager[TableSession]: ...
    def _engine_session(self, session: TableSession) -> AbstractContextManager[Any]: ...
    def _tools(self, session: TableSession) -> AbstractContextManager[CompactionTools]: ...
    def _policy(
        self, session: TableSession, request: CompactRequest, *, now_ms: int | None = None
    ) -> CompactionPolicy: ...
    def _retention(self, session: TableSession, hours: object, *, hours_field: str) -> RetentionPolicy: ...


class Compacting:
    """Mixed into `wiring.Application`."""

    def compact(
        self: Parts,
        address: Address,
        request: CompactRequest,
        *,
        progress: Progress | None = None,
        seconds_left: float | None = None,
        may_delegate: bool = True,
    ) -> Fields:
        """Compact a table, or leave it to a job: on request, where its job is at it, or where it does not fit here.

        `seconds_left`: until this process is ended from outside.
        """
        part = _part(request)
        capabilities = Capabilities(
            spark=self.has_spark and part.part == 1,
            delegates=may_delegate,
            worker=_of_worker(self.settings, self.placement) if self.jobs is not None and may_delegate else None,
            larger_worker=self.settings.jobs.store == "dynamodb",
        )
        asked = route(request, capabilities)
        if isinstance(asked, Refused):
            raise asked.error
        if isinstance(asked, Job):
            return self._left(address, part, asked, Origin.REQUEST, capabilities)
        jobs = None if request.dry_run else self.jobs
        running = None if jobs is None else running_job(jobs, lock_of(address.catalog, address.ident))
        if running is not None:
            return answers.delegated(running, "JOB_RUNNING")
        how = How(
            request=request,
            pacing=_pacing(self.settings, request.time_budget_seconds, seconds_left, self.clock.monotonic()),
            placement=_within(self.placement, seconds_left),
            capabilities=capabilities,
        )
        try:
            ran = self._run_part(address, part, how, progress)
        except Unsupported as fault:
            elsewhere = route(request, capabilities, Unreadable(fault=fault))
            if not isinstance(elsewhere, Job):
                raise
            return self._left(address, part, elsewhere, Origin.REQUEST, capabilities)
        outcome = ran.outcome
        if outcome.left_to is not None:
            return self._left(address, part, outcome.left_to, Origin.TOO_LONG, capabilities)
        return answers.compacted(outcome, with_plan=request.dry_run, resume_token=ran.token)

    def _left(
        self: Parts, address: Address, part: RunPart, job: Job, origin: Origin, capabilities: Capabilities
    ) -> Fields:
        """Submit a job, or name the one that the table has. On the way to Spark that one knows nothing of this request.

        Errors: as `submit_job`; what is wrong with the request itself, where nothing has been read yet.
        """
        if origin is Origin.REQUEST or job.engine is Engine.SPARK:
            self._check_command(address, part, capabilities)
        record = self.submit_job(address, part, origin, engine=job.engine, why=job.why)
        known = job.engine is Engine.SPARK and record.run_id != part.base_run_id
        return answers.delegated(record, "JOB_RUNNING" if known else job.reason)

    def _check_command(self: Parts, address: Address, part: RunPart, capabilities: Capabilities) -> None:
        """Say now what is wrong with a request, not to a job that nobody reads.

        Spark may be left what only it can do, on a table that only it reads.
        """
        asked = part.request
        request = replace(asked, strategy=None, sort_order=None) if asked.strategy == ZORDER else asked
        try:
            with self._session(address) as session:
                self._command(session, replace(part, request=request))
        except Unsupported as fault:
            if not isinstance(route(asked, capabilities, Unreadable(fault=fault)), Job):
                raise

    def _run_part(self: Parts, address: Address, part: RunPart, how: How, progress: Progress | None = None) -> RanPart:
        from regelate.operations.compact import compact
        from regelate.operations.observing import observed_compaction

        dry_run = part.request.dry_run
        observed = nullcontext() if dry_run else observed_compaction(self.telemetry, table=address.ident)
        with observed, self._session(address) as session:
            command = replace(
                self._command(session, part),
                pacing=how.pacing,
                request=how.request,
                capabilities=how.capabilities,
            )
            here = replace(how.placement, disk_bytes=shutil.disk_usage(session.folder).free)
            with self._tools(session) as tools:
                outcome = compact(replace(tools, placement=here), command, progress=progress)
            return ran(part, outcome, now_ms=command.policy.now_ms, head=session.committer.head)

    def _command(self: Parts, session: TableSession, part: RunPart) -> CompactCommand:
        """Resolve every knob of a run. Errors: InvalidRequest, Conflict PLAN_CHANGED or TABLE_REPLACED."""
        from regelate.operations.planning import planned

        request, token = part.request, part.token
        if token is not None:
            token.check_table(str(session.table.metadata.table_uuid))
        now_ms = None if token is None else token.now_ms
        if request.plan_id is not None:
            now_ms = planned(request.plan_id)[1]
        retention = None
        if request.expire_snapshots:
            hours = request.snapshot_retention_hours
            retention = self._retention(session, hours, hours_field="snapshot_retention_hours")
        return CompactCommand(
            policy=self._policy(session, request, now_ms=now_ms),
            run_id=part.run_id,
            dry_run=request.dry_run,
            plan_id=request.plan_id,
            retention=retention,
            verify=resolve_verify(request.verify, session.properties, self.settings.verify),
            through=None if token is None else token.starting_sequence_number,
            earlier_runs=frozenset(run_of_part(part.base_run_id, number) for number in range(1, part.part)),
        )

    @contextmanager
    def _tools(self: Parts, session: TableSession) -> Iterator[CompactionTools]:
        from regelate.adapters.duckdb.engine import DuckDBRewriteEngine

        with ExitStack() as stack:
            workers = parallelism(self.placement)
            engine = DuckDBRewriteEngine(
                lambda: stack.enter_context(self._engine_session(session)),
                session.views,
                session.outputs,
                folder=session.folder,
                workers=workers,
                threads=self.placement.threads,
                worker_memory_bytes=self.placement.memory_bytes // workers,
                copies=stack.enter_context(local_copies(self.settings, session)),
                renew=session.renewed_access,
            )
            yield CompactionTools(
                reader=session.reader,
                engine=engine,
                outputs=session.outputs,
                committer=session.committer,
                reclaimer=session.reclaimer,
                telemetry=self.telemetry,
                clock=self.clock,
                placement=self.placement,
            )


def run_id_of(operation: str, idempotency_key: str | None) -> str:
    """Name one run in its snapshot's summary; a key of the caller's makes the repeated event find its first result."""
    return f"{operation}:{idempotency_key}" if idempotency_key is not None else uuid.uuid4().hex


def _part(request: CompactRequest) -> RunPart:
    """Return the first part of a request, or the later one that its token asks for."""
    if request.resume_token is None:
        return RunPart(base_run_id=run_id_of("compact", request.idempotency_key), part=1, request=request.work)
    found = read_token(request.resume_token)
    return RunPart(base_run_id=found.run_id, part=found.part, request=found.request, token=found)


def _pacing(settings: Settings, budget: float | None, seconds_left: float | None, now: float) -> Pacing:
    """Within the caller's budget the plan is run in parts; the end of the process alone only stops one that drags."""
    pacing = Pacing(in_parts=budget is not None, wave_seconds=settings.jobs.seconds_between_looks)
    known = [seconds for seconds in (budget, seconds_left) if seconds is not None]
    return pacing.within(min(known), now) if known else pacing


def _within(placement: PlacementPolicy, seconds_left: float | None) -> PlacementPolicy:
    if seconds_left is None:
        return placement
    return replace(
        placement, max_in_process_seconds=min(placement.max_in_process_seconds, usable_seconds(seconds_left))
    )


def _of_worker(settings: Settings, placement: PlacementPolicy) -> PlacementPolicy:
    """Return what a worker takes: this process may be a function that ends sooner."""
    return replace(placement, max_in_process_seconds=settings.placement.max_in_process_seconds)
