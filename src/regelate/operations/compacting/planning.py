"""The plan of one COMPACT: read, plan, and probe where sizes are not known yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from regelate.core.answers import Status
from regelate.core.planning.plan import CompactionPlan, FileGroup, plan_compaction
from regelate.core.planning.prediction import achieved_ratio
from regelate.core.policy.policy import CompactionPolicy, PlacementPolicy
from regelate.core.running.placement import place
from regelate.core.running.routing import Job
from regelate.core.table.table import TableSnapshot
from regelate.errors import Conflict, NotFound, RegelateError
from regelate.operations.compacting.command import CompactOutcome
from regelate.operations.compacting.partial_progress import Stop
from regelate.ports.engine import RewriteEngine
from regelate.ports.table import TableReader


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
    partial_progress: bool = False,
) -> tuple[TableSnapshot, CompactionPlan]:
    """Read a table, at the snapshot that `plan_id` pins if given, and plan its rewrite.

    A table without a history of rewrites is probed, but not for a dry run, which writes nothing anywhere, nor where
    the plan is too much for this process anyway: then no data file is opened. Files that are younger than the sequence
    number `through`, and those that `earlier_runs` (parts of the same COMPACT) have made, are left alone.
    Errors: Conflict PLAN_CHANGED.
    """
    pinned = None if plan_id is None else planned(plan_id)[0]
    try:
        snapshot = reader.read(policy, snapshot_id=pinned)
    except NotFound as error:
        raise error if pinned is None else plan_changed(f"the snapshot of {plan_id} has expired") from error
    if through is not None:
        done = {s.snapshot_id for s in snapshot.snapshots if s.run_id in earlier_runs}
        files = [(task, task.data_file) for task in snapshot.candidates]
        left = tuple(t for t, f in files if f.sequence_number <= through and f.snapshot_id not in done)
        snapshot = replace(snapshot, candidates=left)
    ratio = achieved_ratio(s for s in snapshot.snapshots if s.sequence_number <= snapshot.sequence_number)
    plan = plan_compaction(snapshot, policy, size_ratio=ratio)
    if plan_id is not None and plan.plan_id != plan_id:
        raise plan_changed(f"the plan at this snapshot is now {plan.plan_id}, not {plan_id}")
    unsure = _cut_by_size(plan.groups)
    if ratio is not None or not unsure or dry_run or (not place(plan, placement).fits and not partial_progress):
        return snapshot, plan
    try:
        measured = engine.achieved_ratio(max(unsure, key=lambda g: g.size_bytes), policy)
    except RegelateError:  # a file that cannot be read: the rewrite leaves its group out and says so
        return snapshot, plan
    probed = plan_compaction(snapshot, policy, size_ratio=measured)
    return snapshot, probed if plan_id in (None, probed.plan_id) else plan


def _cut_by_size(groups: Sequence[FileGroup]) -> list[FileGroup]:
    """Return the groups that would be others if outputs came out smaller than inputs: those that become several files,
    and those that a partition has several of, because one was thought right-sized already.

    What is copied comes out as large as it is: where nothing else is in a group, a probe tells nothing.
    """
    of_partition = Counter(group.partition for group in groups)
    several = (g for g in groups if g.expected_output_files > 1 or of_partition[g.partition] > 1)
    return [g for g in several if g.spliced_bytes < g.size_bytes]


def left_to(job: Job, plan: CompactionPlan) -> CompactOutcome:
    return CompactOutcome(status=Status.DELEGATED, reason=job.reason, compacted=False, plan=plan, left_to=job)


def stopped_before_commit(plan: CompactionPlan, why: Stop) -> CompactOutcome:
    """Return the outcome of a run that was stopped, and of which nothing is in the table."""
    status = Status.CANCELLED if why is Stop.CANCELLED else Status.PARTIAL
    return CompactOutcome(status=status, reason=why.value, compacted=False, plan=plan, stopped=why)


def plan_changed(what: str) -> Conflict:
    return Conflict("PLAN_CHANGED", f"{what}; plan again", retryable=False)


def planned(plan_id: str) -> tuple[int, int | None]:
    """Return the snapshot of a plan id, and the time of its request where the selection depends on it.

    Errors: Conflict PLAN_CHANGED when the text is no plan id.
    """
    parts = plan_id.split("-")
    if len(parts) not in (2, 3) or not parts[0].isdecimal() or not parts[-1].isalnum():
        raise plan_changed(f"{plan_id[:80]!r} was not made by this service")
    if len(parts) == 2:
        return int(parts[0]), None
    if not parts[2].isdecimal():
        raise plan_changed(f"{plan_id[:80]!r} was not made by this service")
    return int(parts[0]), int(parts[2])
