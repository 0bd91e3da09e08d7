"""The plan of one COMPACT: read, plan, probe where sizes are not known yet, and refuse what is too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from regelate.core.placement import Placement, PlacementReason, estimate_dollars, place, too_much_for_machine
from regelate.core.plan import CompactionPlan, FileGroup, plan_compaction
from regelate.core.policy import CompactionPolicy, Engine, PlacementPolicy
from regelate.core.prediction import achieved_ratio
from regelate.core.table import TableSnapshot
from regelate.core.waves import next_wave, usable_seconds
from regelate.errors import Conflict, InvalidRequest, RegelateError, ResourceExhausted
from regelate.operations.compaction import CompactCommand, CompactOutcome, Status
from regelate.operations.pacing import Stop
from regelate.ports import RewriteEngine, TableReader


def plan_table(
    reader: TableReader,
    engine: RewriteEngine,
    policy: CompactionPolicy,
    placement: PlacementPolicy,
    *,
    plan_id: str | None,
    dry_run: bool,
    through: int | None = None,
    earlier_runs: frozenset[str] = frozenset(),
    in_parts: bool = False,
) -> tuple[TableSnapshot, CompactionPlan]:
    """Read a table, at the snapshot that `plan_id` pins if given, and plan its rewrite.

    A table without a history of rewrites is probed, but not for a dry run, which writes nothing anywhere, nor where
    the plan is too much for this process anyway: then no data file is opened. Files that are younger than the sequence
    number `through`, and those that `earlier_runs` (parts of the same COMPACT) have made, are left alone.
    Errors: Conflict PLAN_CHANGED.
    """
    snapshot = reader.read(policy, snapshot_id=None if plan_id is None else planned(plan_id)[0])
    if through is not None:
        done = {s.snapshot_id for s in snapshot.snapshots if s.run_id in earlier_runs}
        files = [(task, task.data_file) for task in snapshot.candidates]
        left = tuple(t for t, f in files if f.sequence_number <= through and f.snapshot_id not in done)
        snapshot = replace(snapshot, candidates=left)
    ratio = achieved_ratio(s for s in snapshot.snapshots if s.sequence_number <= snapshot.sequence_number)
    plan = plan_compaction(snapshot, policy, size_ratio=ratio)
    if plan_id is not None and plan.plan_id != plan_id:
        raise Conflict(
            "PLAN_CHANGED", f"the plan at this snapshot is now {plan.plan_id}, not {plan_id}", retryable=False
        )
    unsure = _cut_by_size(plan.groups)
    if ratio is not None or not unsure or dry_run or (place(plan, placement).engine is None and not in_parts):
        return snapshot, plan
    try:
        measured = engine.achieved_ratio(max(unsure, key=lambda g: g.size_bytes), policy)
    except RegelateError:  # a file that cannot be read: the rewrite leaves its group out and says so
        return snapshot, plan
    probed = plan_compaction(snapshot, policy, size_ratio=measured)
    return snapshot, probed if plan_id in (None, probed.plan_id) else plan


def _cut_by_size(groups: Sequence[FileGroup]) -> list[FileGroup]:
    """Return the groups that would be others if outputs came out smaller than inputs: those that become several files,
    and those that a partition has several of, because one was thought right-sized already."""
    of_partition = Counter(group.partition for group in groups)
    return [g for g in groups if g.expected_output_files > 1 or of_partition[g.partition] > 1]


def check_placement(
    plan: CompactionPlan, policy: PlacementPolicy, max_cost_dollars: float | None, *, refuses: bool = True
) -> Placement:
    """Refuse, before any work, what is dearer than the caller allows, and what is too large for this process.

    The latter not where `refuses` is false: a run in parts begins what fits, and a job may take the whole.
    Errors: ResourceExhausted TOO_LARGE or TOO_LONG; InvalidRequest COST_LIMIT_EXCEEDED (422).
    """
    placement = place(plan, policy)
    if placement.engine is None and refuses:
        raise ResourceExhausted(
            placement.reason.value, placement.advice, plan_id=plan.plan_id, bytes=plan.size_bytes, files=plan.files
        )
    cost = estimate_dollars(placement.estimated_seconds, policy.memory_bytes)
    if max_cost_dollars is not None and cost > max_cost_dollars:
        raise InvalidRequest(
            "COST_LIMIT_EXCEEDED",
            f"this run is estimated at {cost:.6f} dollars, above max_cost {max_cost_dollars:g}; narrow it",
            status=422,
            estimated_dollars=round(cost, 6),
        )
    return placement


def delegated(
    plan: CompactionPlan, placement: Placement, command: CompactCommand, here: PlacementPolicy
) -> CompactOutcome | None:
    """Say who else takes a plan, and why: a worker of this service, Spark, or nobody (None).

    A worker takes what fits into it; Spark what does not, and where there is none a worker takes it in parts. What asks
    too much of this machine goes to a larger one.
    Errors: ResourceExhausted TOO_LARGE or TOO_LONG, where no group of it would fit into the worker either.
    """
    if placement.engine is not None:
        strained = too_much_for_machine(plan, command.policy, here)
        if strained is None or not (command.larger_worker or command.spark):
            return None
        return _left_to(Engine.DUCKDB if command.larger_worker else Engine.SPARK, plan, *strained)
    worker = here if command.delegate_to is None else command.delegate_to
    at_worker = place(plan, worker)
    if command.spark and at_worker.engine is None:
        return _left_to(Engine.SPARK, plan, at_worker.reason, at_worker.explanation)
    if command.delegate_to is None:
        return None
    seconds = usable_seconds(worker.max_in_process_seconds)
    if not next_wave(
        plan.groups,
        threads=worker.threads,
        wave_seconds=seconds,
        seconds_left=seconds,
        bytes_left=worker.max_in_process_bytes,
    ):
        raise nothing_fits(plan, worker)
    return _left_to(Engine.DUCKDB, plan, placement.reason, placement.explanation)


def _left_to(engine: Engine, plan: CompactionPlan, reason: PlacementReason, why: str) -> CompactOutcome:
    return CompactOutcome(
        status=Status.DELEGATED, reason=reason.value, compacted=False, plan=plan, engine=engine, explanation=why
    )


def stopped_before_commit(plan: CompactionPlan, why: Stop) -> CompactOutcome:
    """Return the outcome of a run that was stopped, and of which nothing is in the table."""
    status = Status.CANCELLED if why is Stop.CANCELLED else Status.PARTIAL
    return CompactOutcome(status=status, reason=why.value, compacted=False, plan=plan, stopped=why)


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


def planned(plan_id: str) -> tuple[int, int | None]:
    """Return the snapshot of a plan id, and the time of its request where the selection depends on it.

    Errors: Conflict PLAN_CHANGED when the text is no plan id.
    """
    parts = plan_id.split("-")
    if len(parts) not in (2, 3) or not parts[0].isdecimal() or not parts[-1].isalnum():
        raise Conflict("PLAN_CHANGED", f"{plan_id[:80]!r} is not a plan id of this service", retryable=False)
    if len(parts) == 2:
        return int(parts[0]), None
    if not parts[2].isdecimal():
        raise Conflict("PLAN_CHANGED", f"{plan_id[:80]!r} is not a plan id of this service", retryable=False)
    return int(parts[0]), int(parts[2])
