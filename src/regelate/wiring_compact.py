"""COMPACT, wired: here and at once, here within a time, or by a job."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from regelate.core.job import JobRecord, Origin, lock_of, run_of_part
from regelate.core.options import CompactOptions, resolve_verify
from regelate.core.placement import parallelism
from regelate.core.policy import CompactionPolicy, Engine, PlacementPolicy, RetentionPolicy
from regelate.core.resume import read_token
from regelate.core.spark_job import ZORDER
from regelate.core.waves import usable_seconds
from regelate.errors import Unsupported
from regelate.operations import answers
from regelate.operations.compaction import CompactCommand, CompactionTools, Status
from regelate.operations.continuing import RanPart, RunPart, ran
from regelate.operations.jobs import JobTools, running_job
from regelate.operations.pacing import Pacing
from regelate.ports import Clock, Telemetry
from regelate.settings import Settings
from regelate.tenancy import Address
from regelate.wiring_storage import local_copies

if TYPE_CHECKING:
    from regelate.adapters.iceberg.session import TableSession

Fields = Mapping[str, object]
Progress = Callable[[int, int], None]
HOW = ("run_async", "time_budget_seconds", "resume_token")
"""Fields of a COMPACT that say how it is run, not what it does: no token and no job carries them on."""
UNSUPPORTED_TABLE = "UNSUPPORTED_TABLE"
"""The fault of a table that only Spark reads: format version 3, deletion vectors, ORC, Avro."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How a run is done here: in which time, on which machine, and who takes it where it does not fit."""

    pacing: Pacing
    placement: PlacementPolicy
    delegate_to: PlacementPolicy | None = None
    larger_worker: bool = False
    spark: bool = False


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
        self, address: Address, part: RunPart, origin: Origin, *, engine: Engine = Engine.DUCKDB, why: str = ""
    ) -> JobRecord: ...
    def spark_is_asked_for(self, options: Mapping[str, Any]) -> str | None: ...
    def may_go_to_spark(self, options: Mapping[str, Any]) -> bool: ...
    def _left_to_spark(self, address: Address, part: RunPart, origin: Origin, reason: str, why: str) -> Fields: ...
    def _check_command(self, address: Address, part: RunPart, *, spark: bool) -> None: ...
    def _run_part(self, address: Address, part: RunPart, how: How, progress: Progress | None = None) -> RanPart: ...
    def _command(self, session: TableSession, part: RunPart) -> CompactCommand: ...
    def _session(self, address: Address) -> AbstractContextManager[TableSession]: ...
    def _engine_session(self, session: TableSession) -> AbstractContextManager[Any]: ...
    def _tools(self, session: TableSession) -> AbstractContextManager[CompactionTools]: ...
    def _policy(
        self, session: TableSession, options: CompactOptions, *, now_ms: int | None = None
    ) -> CompactionPolicy: ...
    def _retention(self, session: TableSession, hours: object, *, hours_field: str) -> RetentionPolicy: ...


class Compacting:
    """Mixed into `wiring.Application`."""

    def compact(
        self: Parts,
        address: Address,
        options: Mapping[str, Any],
        *,
        request_id: str,
        idempotency_key: str | None,
        progress: Progress | None = None,
        seconds_left: float | None = None,
        may_delegate: bool = True,
    ) -> Fields:
        """Compact a table, or leave it to a job: on request, where its job is at it, or where it does not fit here.

        `seconds_left`: until this process is ended from outside.
        """
        what = {name: value for name, value in options.items() if name not in HOW}
        part = _part(what, options.get("resume_token"), idempotency_key)
        why = self.spark_is_asked_for(options)
        if why is not None:
            return self._left_to_spark(address, part, Origin.REQUEST, "ENGINE", why)
        spark = may_delegate and part.part == 1 and self.may_go_to_spark(options)
        if options.get("run_async", False):
            self._check_command(address, part, spark=spark)
            return answers.delegated(self.submit_job(address, part, Origin.REQUEST), "ASYNC")
        dry_run, jobs = bool(what.get("dry_run", False)), self.jobs
        running = None if jobs is None or dry_run else running_job(jobs, lock_of(address.catalog, address.ident))
        if running is not None:
            return answers.delegated(running, "JOB_RUNNING")
        how = How(
            pacing=_pacing(self.settings, options.get("time_budget_seconds"), seconds_left, self.clock.monotonic()),
            placement=_within(self.placement, seconds_left),
            delegate_to=_of_worker(self.settings, self.placement) if jobs is not None and may_delegate else None,
            larger_worker=may_delegate and self.settings.jobs.store == "dynamodb",
            spark=spark,
        )
        try:
            ran = self._run_part(address, part, how, progress)
        except Unsupported as fault:
            if not spark or fault.code != UNSUPPORTED_TABLE:
                raise
            return self._left_to_spark(address, part, Origin.REQUEST, fault.code, fault.message)
        outcome = ran.outcome
        if outcome.status is Status.DELEGATED and outcome.engine is Engine.SPARK:
            return self._left_to_spark(address, part, Origin.TOO_LONG, outcome.reason, outcome.explanation or "")
        if outcome.status is Status.DELEGATED:
            return answers.delegated(self.submit_job(address, part, Origin.TOO_LONG), outcome.reason)
        return answers.compacted(outcome, with_plan=dry_run, resume_token=ran.token)

    def _left_to_spark(self: Parts, address: Address, part: RunPart, origin: Origin, reason: str, why: str) -> Fields:
        """Submit a job that Spark does, or name the one that the table has: that one knows nothing of this request.

        Errors: as `submit_job`; what is wrong with the request itself.
        """
        self._check_command(address, part, spark=True)
        job = self.submit_job(address, part, origin, engine=Engine.SPARK, why=why)
        return answers.delegated(job, reason if job.run_id == part.base_run_id else "JOB_RUNNING")

    def _check_command(self: Parts, address: Address, part: RunPart, *, spark: bool) -> None:
        """Say now what is wrong with a request, not to a job that nobody reads.

        `spark`: it may also do what only Spark can, on a table that only Spark reads.
        """
        options = part.options
        if options.get("strategy") == ZORDER:
            options = {name: value for name, value in options.items() if name not in ("strategy", "sort_order")}
        try:
            with self._session(address) as session:
                self._command(session, replace(part, options=options))
        except Unsupported as fault:
            if not spark or fault.code != UNSUPPORTED_TABLE:
                raise

    def _run_part(self: Parts, address: Address, part: RunPart, how: How, progress: Progress | None = None) -> RanPart:
        from regelate.operations.compact import compact
        from regelate.operations.observing import observed_compaction

        dry_run = bool(part.options.get("dry_run", False))
        observed = nullcontext() if dry_run else observed_compaction(self.telemetry, table=address.ident)
        with observed, self._session(address) as session:
            command = replace(
                self._command(session, part),
                pacing=how.pacing,
                delegate_to=how.delegate_to,
                larger_worker=how.larger_worker,
                spark=how.spark,
            )
            here = replace(how.placement, disk_bytes=shutil.disk_usage(session.folder).free)
            with self._tools(session) as tools:
                outcome = compact(replace(tools, placement=here), command, progress=progress)
            return ran(part, outcome, now_ms=command.policy.now_ms, head=session.committer.head)

    def _command(self: Parts, session: TableSession, part: RunPart) -> CompactCommand:
        """Resolve every knob of a run. Errors: InvalidRequest, Conflict PLAN_CHANGED or TABLE_REPLACED."""
        from regelate.operations.planning import planned

        options, token, plan_id = part.options, part.token, part.options.get("plan_id")
        if token is not None:
            token.check_table(str(session.table.metadata.table_uuid))
        now_ms = None if token is None else token.now_ms
        if plan_id is not None:
            now_ms = planned(str(plan_id))[1]
        expires = options.get("expire_snapshots", True)
        hours = options.get("snapshot_retention_hours")
        return CompactCommand(
            policy=self._policy(session, CompactOptions.of(options), now_ms=now_ms),
            run_id=part.run_id,
            dry_run=bool(options.get("dry_run", False)),
            plan_id=None if plan_id is None else str(plan_id),
            retention=self._retention(session, hours, hours_field="snapshot_retention_hours") if expires else None,
            max_cost_dollars=None if part.part > 1 else options.get("max_cost"),  # type: ignore[arg-type]  # the door judged it
            verify=resolve_verify(options.get("verify"), session.properties, self.settings.verify),
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


def _part(what: Mapping[str, Any], token: str | None, idempotency_key: str | None) -> RunPart:
    """Return the first part of a request, or the later one that its token asks for."""
    if token is None:
        return RunPart(base_run_id=run_id_of("compact", idempotency_key), part=1, options=what)
    found = read_token(token)
    return RunPart(base_run_id=found.run_id, part=found.part, options=found.options, token=found)


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
