"""Who does a COMPACT: this process, a job of a worker of ours, a job of Spark's, or nobody. One decision, pure.

It is asked up to three times, and each time knows more: of the request alone, of a table that only Spark reads, and of
the plan. The cases stand in tests/unit/golden/route_*.txt.
"""

from __future__ import annotations

from regelate.core.engines import HERE, Engine
from regelate.core.jobs.spark_job import ZORDER
from regelate.core.planning.plan import CompactionPlan
from regelate.core.policy.policy import CompactionPolicy, PlacementPolicy, Selection
from regelate.core.requests import AUTO, CompactRequest
from regelate.core.running.batches import next_batch, usable_seconds
from regelate.core.running.placement import Placement, PlacementReason, place, too_much_for_machine
from regelate.core.table.table import MAIN_BRANCH
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest, RegelateError, ResourceExhausted, Unsupported

UNSUPPORTED_TABLE = "UNSUPPORTED_TABLE"
"""The code of a table that only Spark reads: format version 3, deletion vectors, ORC, Avro."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Who there is beside this process.

    `spark`: the deployment has Spark, and this is no later part of a run that was begun without it. `delegates`:
    whoever asks can wait for a job; a command line cannot. `worker`: what a worker of ours takes, None where there is
    none. `larger_worker`: it is another machine, which may have more memory and disk.
    """

    spark: bool = False
    delegates: bool = True
    worker: PlacementPolicy | None = None
    larger_worker: bool = False


HERE_ALONE = Capabilities(delegates=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This process does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job does it. `reason` as in the answer, `why` as a sentence."""

    engine: Engine
    reason: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    error: RegelateError


Route = Here | Job | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """This process cannot read the table."""

    fault: Unsupported


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What a plan asks of this process and of a worker.

    `partial_progress`: this process begins what fits, whatever the whole takes. `strain`: why it asks too much of this
    machine though it fits. `at_worker` None: there is no worker; `nothing_fits`: not even one group fits into it.
    """

    here: Placement
    dollars: float
    plan_id: str | None
    partial_progress: bool = False
    strain: tuple[PlacementReason, str] | None = None
    at_worker: Placement | None = None
    nothing_fits: ResourceExhausted | None = None


def route(request: CompactRequest, capabilities: Capabilities, placement: Placed | Unreadable | None = None) -> Route:
    """Say who does a request. `placement` None: nothing has been read yet."""
    if isinstance(placement, Unreadable):
        if _may_be_sparks(request, capabilities) and placement.fault.code == UNSUPPORTED_TABLE:
            return Job(engine=Engine.SPARK, reason=placement.fault.code, why=placement.fault.message)
        return Refused(error=placement.fault)
    if placement is not None:
        return _planned(request, capabilities, placement)
    asked = _asked_of_spark(request, capabilities)
    if asked is not None:
        return asked
    return Job(engine=HERE, reason="ASYNC") if request.run_async else Here()


def _asked_of_spark(request: CompactRequest, capabilities: Capabilities) -> Job | Refused | None:
    named, zorder = _named(request), request.strategy == ZORDER
    if zorder and named is HERE:
        return _invalid("strategy", "zorder needs engine spark")
    by_name = named is Engine.SPARK
    if not by_name and not zorder:
        return None
    if only := _only_here(request):
        return _invalid(only[0], "Spark knows nothing of it")
    if request.dry_run:  # the files are chosen by the same rule, whoever rewrites them
        return _invalid("dry_run", "zorder is planned in Spark only") if zorder else None
    if not capabilities.spark:
        return Refused(error=no_spark())
    why = "the request asks for Spark" if by_name else "only Spark has the strategy zorder"
    return Job(engine=Engine.SPARK, reason="ENGINE", why=why)


def _only_here(request: CompactRequest) -> list[str]:
    """Name the fields of a request that Spark knows nothing of; its planner takes all small files, not some tiers."""
    names = ("max_files", "max_cost", "plan_id", "resume_token", "time_budget_seconds")
    asked = {name: getattr(request, name) is not None for name in names}
    asked |= {"ref": request.ref != MAIN_BRANCH, "selection": request.selection == Selection.SIZE_TIERED}
    return [name for name, is_asked in asked.items() if is_asked]


def _named(request: CompactRequest) -> Engine | None:
    return None if request.engine in (None, AUTO) else Engine(request.engine)


def _may_be_sparks(request: CompactRequest, capabilities: Capabilities) -> bool:
    """Say whether Spark may take what does not fit here, or cannot be read here."""
    free = _named(request) is not HERE and not request.dry_run and not _only_here(request)
    return capabilities.spark and capabilities.delegates and free


def _planned(request: CompactRequest, capabilities: Capabilities, placed: Placed) -> Route:
    """A worker takes what fits into it; Spark what does not, and where there is none a worker takes it in parts. What
    asks too much of this machine goes to a larger one."""
    spark, fits = _may_be_sparks(request, capabilities), placed.here.fits
    nobody_else = placed.at_worker is None and not spark
    if not fits and not placed.partial_progress and nobody_else:
        return Refused(error=too_large(placed.here, placed.plan_id))
    dear = too_dear(request, placed.dollars)
    if dear is not None:
        return Refused(error=dear)
    if fits:
        larger = capabilities.larger_worker and capabilities.delegates
        if placed.strain is None or not (larger or spark):
            return Here()
        reason, why = placed.strain
        return Job(engine=HERE if larger else Engine.SPARK, reason=reason.value, why=why)
    takes = placed.at_worker or placed.here
    if spark and not takes.fits:
        return Job(engine=Engine.SPARK, reason=takes.reason.value, why=takes.explanation)
    if placed.at_worker is None:
        return Here()
    if placed.nothing_fits is not None:
        return Refused(error=placed.nothing_fits)
    return Job(engine=HERE, reason=placed.here.reason.value, why=placed.here.explanation)


def placed(
    plan: CompactionPlan,
    policy: CompactionPolicy,
    here: PlacementPolicy,
    capabilities: Capabilities,
    *,
    dollars: float,
    partial_progress: bool = False,
) -> Placed:
    """Weigh a plan. `here`: what this process takes; `dollars`: what that costs."""
    at_here, worker = place(plan, here), capabilities.worker if capabilities.delegates else None
    begins = worker is None or _begins(plan, worker)
    return Placed(
        here=at_here,
        dollars=dollars,
        plan_id=plan.plan_id,
        partial_progress=partial_progress,
        strain=too_much_for_machine(plan, policy, here),
        at_worker=None if worker is None else place(plan, worker),
        nothing_fits=None if begins or worker is None else nothing_fits(plan, worker),
    )


def _begins(plan: CompactionPlan, worker: PlacementPolicy) -> bool:
    seconds = usable_seconds(worker.max_in_process_seconds)
    return bool(
        next_batch(
            plan.groups,
            threads=worker.threads,
            batch_seconds=seconds,
            seconds_left=seconds,
            bytes_left=worker.max_in_process_bytes,
        )
    )


def nothing_fits(plan: CompactionPlan, policy: PlacementPolicy) -> ResourceExhausted:
    """Make the error of a run in parts that could begin no group at all: to send it again would not help."""
    least = min(plan.groups, key=lambda g: g.size_bytes)
    if least.size_bytes > policy.max_in_process_bytes:
        reason, limit = PlacementReason.TOO_LARGE, f"{policy.max_in_process_bytes:,} bytes that this process takes"
    else:
        reason, limit = PlacementReason.TOO_LONG, "time that is left"
    message = (
        f"the smallest group has {len(least.tasks)} files and {least.size_bytes:,} bytes, too much for the {limit}; "
        "nothing was written: give it more time, or send it with async"
    )
    return ResourceExhausted(reason.value, message, plan_id=plan.plan_id, bytes=least.size_bytes)


def too_large(found: Placement, plan_id: str | None) -> ResourceExhausted:
    return ResourceExhausted(
        found.reason.value, found.advice, plan_id=plan_id, bytes=found.size_bytes, files=found.files
    )


def no_spark() -> Unsupported:
    return Unsupported(
        "SPARK_DISABLED",
        "this deployment has no Spark: set spark.run in config.json, and for local install regelate[spark]",
        engine=Engine.SPARK.value,
    )


def too_dear(request: CompactRequest, dollars: float) -> InvalidRequest | None:
    """Make the error of a plan that costs more than the request allows; None where it does not."""
    max_cost = request.max_cost
    if max_cost is None or dollars <= max_cost:
        return None
    return InvalidRequest(
        "COST_LIMIT_EXCEEDED",
        f"this run is estimated at {dollars:.6f} dollars, above max_cost {max_cost:g}; narrow it",
        status=422,
        estimated_dollars=round(dollars, 6),
    )


def _invalid(field: str, rule: str) -> Refused:
    return Refused(error=InvalidRequest("INVALID_FIELD", f"{field}: {rule}", field=field))
