"""One COMPACT from its request to whoever does it: this process, through `compact`, or a job that is left with it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from regelate.core.engines import Engine
from regelate.core.jobs.job import JobRecord, Origin, run_of_part
from regelate.core.jobs.spark_job import ZORDER
from regelate.core.policy.option_retention import RetentionDefaults, resolve_retention
from regelate.core.policy.options import CompactionDefaults, resolve_policy, resolve_verify
from regelate.core.policy.policy import PlacementPolicy, SortField, Verify, digest
from regelate.core.requests import CompactRequest, request_json
from regelate.core.running.batches import usable_seconds
from regelate.core.running.resume import read_token
from regelate.core.running.routing import Capabilities, Job, Refused, Unreadable, route
from regelate.core.values import dataclass
from regelate.errors import Unsupported
from regelate.operations.compacting.command import CompactCommand
from regelate.operations.compacting.continuing import RanPart, RunPart
from regelate.operations.compacting.partial_progress import PartialProgress
from regelate.operations.compacting.planning import planned


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How a run is done here: in which time, on which machine, and who there is where it does not fit.

    `request` is the one that this run was asked for, with what is not carried on to others.
    """

    request: CompactRequest
    partial_progress: PartialProgress
    placement: PlacementPolicy
    capabilities: Capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What this process leaves to a job; `origin` is where that was found out."""

    job: Job
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegated:
    """The job that does it, or is at it already."""

    job: JobRecord
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactEnv:
    """What a COMPACT of one table may use. `run` does one part in this process, through `operations.compact`; `check`
    says what is wrong with a part, and writes nothing; `running` is the job that somebody is at on this table."""

    run: Callable[[RunPart, How], RanPart]
    check: Callable[[RunPart], None]
    running: Callable[[], JobRecord | None]
    submit: Callable[[RunPart, Left], JobRecord]


def compact_requested(part: RunPart, how: How, env: CompactEnv) -> RanPart | Delegated:
    """Compact a table, or leave it to a job: on request, where its job is at it, or where it does not fit here.

    Errors: InvalidRequest and Unsupported of the route, all of `compact`, and those of a submission.
    """
    asked = route(how.request, how.capabilities)
    if isinstance(asked, Refused):
        raise asked.error
    if isinstance(asked, Job):
        return _delegated(part, how, env, Left(job=asked, origin=Origin.REQUEST))
    running = None if how.request.dry_run else env.running()
    if running is not None and running.request.ref == part.request.ref:
        return Delegated(job=running, reason="JOB_RUNNING")
    done = run_or_leave(part, how, env.run)
    return _delegated(part, how, env, done) if isinstance(done, Left) else done


def run_or_leave(part: RunPart, how: How, run: Callable[[RunPart, How], RanPart]) -> RanPart | Left:
    """Run a part here, unless its table turns out to be one for Spark, or its plan not to fit here."""
    try:
        done = run(part, how)
    except Unsupported as fault:
        elsewhere = route(how.request, how.capabilities, Unreadable(fault=fault))
        if not isinstance(elsewhere, Job):
            raise
        return Left(job=elsewhere, origin=Origin.REQUEST)
    if done.outcome.left_to is not None:
        return Left(job=done.outcome.left_to, origin=Origin.TOO_LONG)
    return done


def _delegated(part: RunPart, how: How, env: CompactEnv, left: Left) -> Delegated:
    """Submit a job, or name the one that the table has. On the way to Spark that one knows nothing of this request.

    Errors: those of a submission; what is wrong with the request itself, where nothing has been read yet.
    """
    to_spark = left.job.engine is Engine.SPARK
    if to_spark or left.origin is Origin.REQUEST:
        _check(part, how.capabilities, env)
    record = env.submit(part, left)
    known = to_spark and record.run_id != part.base_run_id
    return Delegated(job=record, reason="JOB_RUNNING" if known else left.job.reason)


def _check(part: RunPart, capabilities: Capabilities, env: CompactEnv) -> None:
    """Say now what is wrong with a request, not to a job that nobody reads.

    Spark may be left what only it can do, on a table that only it reads.
    """
    asked = part.request
    request = replace(asked, strategy=None, sort_order=None) if asked.strategy == ZORDER else asked
    try:
        env.check(replace(part, request=request))
    except Unsupported as fault:
        if not isinstance(route(asked, capabilities, Unreadable(fault=fault)), Job):
            raise


def run_id_of(operation: str, idempotency_key: str | None) -> str:
    """Name one run in its snapshot's summary; a key of the caller's makes the repeated event find its first result."""
    return f"{operation}:{idempotency_key}" if idempotency_key is not None else uuid.uuid4().hex


def part_asked(request: CompactRequest) -> RunPart:
    """Return the first part of a request, or the later one that its token asks for."""
    if request.resume_token is None:
        return RunPart(base_run_id=run_id_of("compact", request.idempotency_key), part=1, request=request.work)
    found = read_token(request.resume_token)
    return RunPart(base_run_id=found.run_id, part=found.part, request=found.request, token=found)


def part_of(record: JobRecord) -> RunPart:
    """Return the part that a job has come to."""
    token = None if record.resume_token is None else read_token(record.resume_token)
    request = record.request if token is None else token.request
    return RunPart(base_run_id=record.run_id, part=record.part, request=request, token=token, in_job=True)


def partial_progress_asked(
    request: CompactRequest, *, batch_seconds: float, seconds_left: float | None, now: float
) -> PartialProgress:
    """Within the caller's budget the plan is run in parts; the end of the process alone only stops one that drags."""
    budget = request.time_budget_seconds
    partial_progress = PartialProgress(enabled=budget is not None, batch_seconds=batch_seconds)
    known = [seconds for seconds in (budget, seconds_left) if seconds is not None]
    return partial_progress.within(min(known), now) if known else partial_progress


def placement_within(placement: PlacementPolicy, seconds_left: float | None) -> PlacementPolicy:
    """Return what this process takes where it is ended from outside in so many seconds."""
    if seconds_left is None:
        return placement
    most = min(placement.max_in_process_seconds, usable_seconds(seconds_left))
    return replace(placement, max_in_process_seconds=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredKnobs:
    """The layer of config.json."""

    compaction: CompactionDefaults
    retention: RetentionDefaults
    verify: Verify


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKnobs:
    """The layer of a loaded table."""

    uuid: str
    properties: Mapping[str, str]
    stored_bytes: int
    sort_order: tuple[SortField, ...]


def command_of(part: RunPart, table: TableKnobs, config: ConfiguredKnobs, *, now_ms: int) -> CompactCommand:
    """Resolve every knob of a run. Errors: InvalidRequest, Conflict PLAN_CHANGED or TABLE_REPLACED."""
    request, token = part.request, part.token
    asked_ms = None if token is None else token.now_ms
    if token is not None:
        token.check_table(table.uuid)
    if request.plan_id is not None:
        asked_ms = planned(request.plan_id)[1]
    retention = None
    if request.expire_snapshots:
        retention = resolve_retention(
            request_hours=request.snapshot_retention_hours,
            table_properties=table.properties,
            config=config.retention,
            hours_field="snapshot_retention_hours",
        )
    policy = resolve_policy(
        request=request,
        table_properties=table.properties,
        config=config.compaction,
        now_ms=now_ms if asked_ms is None else asked_ms,
        table_bytes=table.stored_bytes,
        table_sort_order=table.sort_order,
    )
    return CompactCommand(
        policy=policy,
        run_id=part.run_id,
        request_digest=digest(request_json(request)),
        dry_run=request.dry_run,
        plan_id=request.plan_id,
        retention=retention,
        verify=resolve_verify(request.verify, table.properties, config.verify),
        through=None if token is None else token.starting_sequence_number,
        earlier_runs=frozenset(run_of_part(part.base_run_id, number) for number in range(1, part.part)),
    )
