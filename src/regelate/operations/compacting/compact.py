"""COMPACT: read, plan, rewrite, verify, commit, expire, summarise: one straight line with three crossings to the
outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regelate.core.answers import Status
from regelate.core.measures.measures import Compacted
from regelate.core.planning.plan import CompactionPlan, FileGroup, PlanReason
from regelate.core.policy.policy import Verify
from regelate.core.running.commit import SnapshotChange
from regelate.core.running.conflict import DroppedGroup, Verdict, judge
from regelate.core.running.estimate import Estimate, estimate
from regelate.core.running.rewrite import RewriteResult, verify_content, verify_rewrite
from regelate.core.running.routing import Job, Refused, Route, nothing_fits, placed, route, too_dear
from regelate.core.running.stats import PhaseSeconds, summarise
from regelate.core.table.deletes import dangling_after
from regelate.core.table.head import Head
from regelate.core.table.table import PLAN_ID, SPLICED_BYTES, TableSnapshot, TableTotals, run_summary
from regelate.errors import Conflict, InvariantViolated, NotAllowed, RegelateError, keeps_files
from regelate.operations.committing.attempt import Attempted, attempt
from regelate.operations.compacting.command import CompactCommand, CompactionTools, CompactOutcome
from regelate.operations.compacting.gone import all_changed, dropped_text, still_standing, taken_away
from regelate.operations.compacting.partial_progress import BatchesDone, Stop, rewrite_in_batches
from regelate.operations.compacting.planning import left_to, plan_table, stopped_before_commit
from regelate.operations.compacting.rewriting import as_error
from regelate.operations.timing import Stopwatch
from regelate.operations.upkeep.expire import Expired, ExpiryTools, expire_after_commit
from regelate.ports.engine import Progress

__all__ = ["CompactCommand", "CompactOutcome", "CompactionTools", "Status", "compact"]

PATIENCE_SECONDS = 60.0
"""To lose races in: waiting is cheaper than rewriting the files once more."""


@dataclass
class _Run:
    """What one run learned on its way, for the summary."""

    snapshot: TableSnapshot
    plan: CompactionPlan
    watch: Stopwatch
    failed: list[tuple[FileGroup, RegelateError]] = field(default_factory=list)
    gone: tuple[DroppedGroup, ...] = ()
    """Whose files were no longer in the table when the plan was executed, or when they could not be read; `dropped` has
    them too, after the commit."""
    dropped: tuple[DroppedGroup, ...] = ()
    warnings: list[str] = field(default_factory=list)
    row_groups: dict[int, int] = field(default_factory=dict)
    """Of the inputs of each group that was rewritten."""
    stopped: Stop | None = None


def compact(tools: CompactionTools, command: CompactCommand, *, progress: Progress | None = None) -> CompactOutcome:
    """Compact one table and say what was done and why.

    Errors: Conflict PLAN_CHANGED, COMMIT_CONFLICT, TABLE_REPLACED, BASE_NOT_ANCESTOR, BASE_EXPIRED; CommitStateUnknown;
    the fault of the rewrite when it spoiled every group. Whenever the commit is known not to have landed, every
    output of this run is deleted before the error leaves (law 8: clean up only what did not land).
    """
    watch = Stopwatch(tools.clock)
    head = tools.committer.head()
    earlier = head.run(command.run_id)
    if earlier is not None:
        earlier.check_request(command.request_digest)
        return _already_done("RUN_ALREADY_COMMITTED", earlier.snapshot_id)
    executed = None if command.plan_id is None else head.plan(command.plan_id)
    try:
        snapshot, plan, gone = _plan(tools, command, watch)
    except Conflict as changed:
        if executed is None or changed.code != "PLAN_CHANGED":
            raise
        return _already_done("PLAN_ALREADY_COMMITTED", executed.snapshot_id)
    price = estimate(plan, tools.placement, read_again=command.verify is Verify.STRICT)
    if command.dry_run:
        return _planned(command, plan, price)
    run = _Run(snapshot=snapshot, plan=plan, watch=watch, gone=gone)
    if not plan.groups:
        return _nothing_to_merge(tools, command, run)
    found = _routed(tools, command, plan, price)
    if isinstance(found, Refused):
        raise found.error
    if isinstance(found, Job):
        return left_to(found, plan)
    with tools.telemetry.span("execute", groups=len(plan.groups), files=plan.files):
        results = _rewritten(tools, command, run, progress)
    if run.stopped is Stop.CANCELLED or not results:
        tools.outputs.discard([f.path for r in results for f in r.added])
        return stopped_before_commit(run.plan, run.stopped or Stop.STOPPING)
    with tools.telemetry.span("commit", groups=len(results)), watch.phase("commit"):
        done = _committed(tools, command, run, results)
    return _outcome(tools, command, run, done, results)


def _plan(
    tools: CompactionTools, command: CompactCommand, watch: Stopwatch
) -> tuple[TableSnapshot, CompactionPlan, tuple[DroppedGroup, ...]]:
    """Plan, and of an earlier plan leave out what others have changed since. Errors: Conflict PLAN_CHANGED."""
    with tools.telemetry.span("plan"), watch.phase("plan"):
        snapshot, plan = plan_table(
            tools.reader,
            tools.engine,
            command.policy,
            tools.placement,
            plan_id=command.plan_id,
            dry_run=command.dry_run,
            through=command.through,
            earlier_runs=command.earlier_runs,
            partial_progress=command.partial_progress.enabled,
        )
        if command.plan_id is None or not plan.groups:
            return snapshot, plan, ()
        return snapshot, *still_standing(tools.committer, snapshot, plan)


def _routed(tools: CompactionTools, command: CompactCommand, plan: CompactionPlan, price: Estimate) -> Route:
    asked = placed(
        plan,
        command.policy,
        tools.placement,
        command.capabilities,
        dollars=price.dollars,
        partial_progress=command.partial_progress.enabled,
    )
    return route(command.request, command.capabilities, asked)


def _planned(command: CompactCommand, plan: CompactionPlan, price: Estimate) -> CompactOutcome:
    """Return the outcome of a dry run. Errors: InvalidRequest COST_LIMIT_EXCEEDED."""
    dear = too_dear(command.request, price.dollars)
    if dear is not None:
        raise dear
    return CompactOutcome(
        status=Status.PLANNED,
        reason=plan.reason.value,
        compacted=False,
        plan=plan,
        estimate=price,
        warnings=plan.warnings,
    )


def _nothing_to_merge(tools: CompactionTools, command: CompactCommand, run: _Run) -> CompactOutcome:
    """Expire all the same, where that was asked for: streams rot a table's history also where no file is small."""
    plan, before = run.plan, run.snapshot
    expired = _expired(tools, command, run)
    stats = None
    if expired.snapshot_ids or expired.files_deleted:
        stats = summarise(
            before,
            plan,
            (),
            command.policy,
            files_after=before.file_count,
            bytes_after=before.size_bytes,
            manifests_after=before.manifest_count,
            commit_attempts=0,
            dropped_groups=0,
            seconds=PhaseSeconds(**run.watch.seconds),
            **_of_expiry(expired),
        )
    return CompactOutcome(
        status=Status.NOTHING_TO_DO,
        reason=plan.reason.value,
        compacted=False,
        plan=plan,
        stats=stats,
        warnings=(*plan.warnings, *run.warnings),
    )


def _already_done(reason: str, snapshot_id: int | None) -> CompactOutcome:
    return CompactOutcome(status=Status.ALREADY_DONE, reason=reason, compacted=True, snapshot_id=snapshot_id)


def _rewritten(
    tools: CompactionTools, command: CompactCommand, run: _Run, progress: Progress | None
) -> list[RewriteResult]:
    """Rewrite and verify; a group that fails either is left out, its outputs deleted. All failing raises the first.

    Groups that were not begun in time become deferred ones of the plan.
    """
    batches, every, deferred = BatchesDone(), run.plan.groups, run.plan.deferred
    with run.watch.phase("plan"):  # before the rewrite: later these manifests may have been expired
        inputs = tools.reader.input_metrics(run.snapshot, every)
    strict, planned_seconds = command.verify is Verify.STRICT, run.watch.seconds.get("plan", 0.0)
    partial_progress = command.partial_progress.after_plan(planned_seconds, tools.clock.monotonic(), read_again=strict)
    try:
        with run.watch.phase("rewrite"):
            rewrite_in_batches(
                batches, tools.engine, every, command.policy, tools.placement, tools.clock, partial_progress, progress
            )
    except BaseException:  # also an interrupt: nothing of this run can have been committed
        tools.outputs.discard([f.path for r in batches.results for f in r.added])
        raise
    results = batches.results
    run.failed += batches.failed
    run.stopped = batches.stopped
    before_any = run.stopped in (Stop.STOPPING, Stop.PRICE) and batches.left == every
    if run.stopped is Stop.CANCELLED or before_any:
        return results
    if batches.left == every:
        raise nothing_fits(run.plan, tools.placement)
    begun = tuple(group for group in every if group not in batches.left)
    run.plan = replace(run.plan, groups=begun, deferred=(*deferred, *batches.left))
    verified: list[RewriteResult] = []
    with run.watch.phase("verify"):
        for result in results:
            try:
                whole = result.group.index in inputs  # half of a group that ran out of memory has its own number
                known = inputs if whole else tools.reader.input_metrics(run.snapshot, [result.group])
                verify_rewrite(result, known[result.group.index])
                run.row_groups[result.group.index] = known[result.group.index].row_groups
                if command.verify is Verify.STRICT:
                    verify_content(result, *tools.engine.fingerprints(result))
            except Exception as error:  # noqa: BLE001  what cannot be verified is not committed
                tools.outputs.discard([f.path for f in result.added])
                run.failed.append((result.group, as_error(error)))
            else:
                verified.append(result)
    try:
        gone, run.failed = taken_away(tools.committer, run.snapshot, run.failed)
        run.gone += gone
        if not verified:
            raise run.failed[0][1] if run.failed else all_changed(run.gone)
    except Exception:
        tools.outputs.discard([f.path for r in verified for f in r.added])
        raise
    return verified


def _committed(
    tools: CompactionTools, command: CompactCommand, run: _Run, results: Sequence[RewriteResult]
) -> Attempted:
    groups = [r.group for r in results]
    dropped: dict[int, tuple[DroppedGroup, ...]] = {}

    def decide(head: Head) -> SnapshotChange | None:
        """Make a change of its own for every attempt: what is found in the table later says which groups landed."""
        verdict: Verdict = judge(groups, tools.committer.window(run.snapshot, groups))
        kept = {g.index for g in verdict.kept}
        landing = [r for r in results if r.group.index in kept]
        snapshot_id = tools.committer.new_snapshot_id()
        dropped[snapshot_id] = run.dropped = verdict.dropped
        return _replace(command, run, snapshot_id, landing) if landing else None

    every_output = [f.path for r in results for f in r.added]
    try:
        patience = command.partial_progress.patience_seconds(PATIENCE_SECONDS, tools.clock.monotonic())
        done = attempt(tools.committer, tools.clock, decide, run_id=command.run_id, patience_seconds=patience)
    except Exception as error:
        if not keeps_files(error):
            tools.outputs.discard(every_output)
        raise
    run.dropped = (*run.gone, *dropped.get(done.snapshot_id or 0, run.dropped))
    landed = {f.path for f in done.landed.added} if isinstance(done.landed, SnapshotChange) else set()
    tools.outputs.discard([path for path in every_output if path not in landed | done.uncertain])
    if done.landed is None and not done.found_earlier:
        raise all_changed(run.dropped)
    return done


def _replace(command: CompactCommand, run: _Run, snapshot_id: int, landing: Sequence[RewriteResult]) -> SnapshotChange:
    base = run.snapshot
    tasks = [t for r in landing for t in r.group.tasks]
    spliced = sum(r.spliced_bytes for r in landing)
    return SnapshotChange(
        operation="replace",
        snapshot_id=snapshot_id,
        summary={**run_summary(command.run_id, command.request_digest), PLAN_ID: run.plan.plan_id}
        | ({SPLICED_BYTES: str(spliced)} if spliced else {}),
        added=tuple(f for r in landing for f in r.added),
        removed={t.data_file.path: t.data_file.manifest_path for t in tasks},
        removed_entries=len(tasks),
        base_manifests=base.manifest_paths - {t.data_file.manifest_path for t in tasks},
        dropped_delete_paths=dangling_after(
            tasks,
            base.delete_references,
            base.delete_files,
            base.sequence_number,
            [r.group.partition for r in landing if r.added],
        ),
        data_sequence_number=base.sequence_number,
    )


def _outcome(
    tools: CompactionTools,
    command: CompactCommand,
    run: _Run,
    done: Attempted,
    results: Sequence[RewriteResult],
) -> CompactOutcome:
    if done.found_earlier:
        return _already_done("RUN_ALREADY_COMMITTED", done.snapshot_id)
    change = done.landed
    if not isinstance(change, SnapshotChange):
        raise InvariantViolated("NO_CHANGE", "a compaction landed without a change")
    landed = [r for r in results if all(t.data_file.path in change.removed for t in r.group.tasks)]
    totals = _totals(tools, run, landed)
    expired = _expired(tools, command, run)
    run.warnings += run.plan.warnings
    run.warnings += [dropped_text(d) for d in run.dropped]
    run.warnings += [f"group {group.index} was left out: {error}" for group, error in run.failed]
    stats = summarise(
        run.snapshot,
        run.plan,
        landed,
        command.policy,
        files_after=totals.files,
        bytes_after=totals.size_bytes,
        manifests_after=totals.manifests,
        row_groups_before=sum(run.row_groups[r.group.index] for r in landed),
        delete_files_removed=len(change.dropped_delete_paths),
        commit_attempts=done.attempts,
        dropped_groups=len(run.dropped) + len(run.failed),
        seconds=PhaseSeconds(**run.watch.seconds),
        **_of_expiry(expired),
    )
    tools.telemetry.tell(Compacted.of(run.snapshot.ident, stats, landed, at_ms=tools.clock.now_ms()))
    partial = run.dropped or run.failed or run.plan.deferred
    reason = _reason(run) if partial else run.plan.reason.value
    return CompactOutcome(
        status=Status.PARTIAL if partial else Status.COMPLETED,
        reason=reason,
        compacted=True,
        plan=run.plan,
        stats=stats,
        snapshot_id=done.snapshot_id,
        warnings=tuple(run.warnings),
        stopped=run.stopped,
    )


def _totals(tools: CompactionTools, run: _Run, landed: Sequence[RewriteResult]) -> TableTotals:
    """Count what is live after the commit; when that fails, reckon from the plan: a landed run must not look failed."""
    try:
        tools.committer.head()
        return tools.committer.totals()
    except RegelateError as error:
        run.warnings.append(f"files_after and bytes_after are reckoned, not counted: {error}")
    before = run.snapshot
    removed = sum(len(r.group.tasks) for r in landed)
    saved = sum(r.group.size_bytes - r.bytes_written for r in landed)
    return TableTotals(
        files=before.file_count - removed + sum(len(r.added) for r in landed),
        size_bytes=before.size_bytes - saved,
        manifests=before.manifest_count,
    )


def _reason(run: _Run) -> str:
    if run.dropped:
        return run.dropped[0].code.value
    if run.failed:
        return run.failed[0][1].code
    return PlanReason.BUDGET_CAPPED.value if run.stopped is None else run.stopped.value


def _of_expiry(expired: Expired) -> dict[str, Any]:
    """Return what the stats say of an expiry."""
    return {
        "snapshots_expired": len(expired.snapshot_ids),
        "bytes_freed": expired.bytes_freed,
        "bytes_quarantined": expired.bytes_quarantined,
        "undo_id": expired.undo_id,
        "deletable_ms": expired.deletable_ms,
    }


def _expired(tools: CompactionTools, command: CompactCommand, run: _Run) -> Expired:
    """Expire after the commit; whatever goes wrong here never makes a landed compaction look failed."""
    if command.retention is None:
        return Expired()
    with tools.telemetry.span("expire"), run.watch.phase("expire"):
        try:
            done = expire_after_commit(
                ExpiryTools(committer=tools.committer, reclaimer=tools.reclaimer, clock=tools.clock),
                command.retention,
                table_uuid=run.snapshot.uuid,
                until=command.partial_progress.expire_until(run.watch.seconds.get("commit", 0.0)),
            )
            run.warnings += done.warnings
            return done
        except NotAllowed as error:
            run.warnings.append(f"snapshots were not expired: {error.message}")
        except Exception as error:  # noqa: BLE001  the compaction has landed
            run.warnings.append(f"snapshots were not expired, or their files not all deleted: {as_error(error)}")
    return Expired()
