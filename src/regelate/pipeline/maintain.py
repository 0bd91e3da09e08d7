"""The job that everyone runs: look, choose, rewrite, and say what happened."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from regelate.core.plan import CompactionPlan
from regelate.core.stats import CompactionStats
from regelate.pipeline.options import Rewrite
from regelate.pipeline.result import Result, Status, Step
from regelate.pipeline.rewrite import STEP, plan_rewrite, run_rewrite, tell_plan
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal, megabytes

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one maintenance run was asked for."""

    rewrite: Rewrite = field(default_factory=Rewrite)
    dry_run: bool = False


def maintain(table: SparkTable, job: Job, terminal: Terminal, *, clock: Clock = time.time) -> Result:
    """Run one job on one table and return what it did. Errors: RegelateError, with nothing changed."""
    now_ms = round(clock() * 1000)
    before = table.snapshot_id
    planned = plan_rewrite(table, job.rewrite, now_ms=now_ms)
    terminal.say(f"{table.name}: {planned.before.file_count} data files, {megabytes(planned.before.size_bytes)}")
    tell_plan(planned, terminal)
    if job.dry_run:
        step = Step(
            step=STEP,
            status=Status.PLANNED if planned.statements else Status.NOTHING_TO_DO,
            reason=planned.plan.reason.value,
            seconds=round(planned.seconds, 3),
            statements=planned.statements,
        )
        for statement in planned.statements:
            terminal.say(f"would run: {statement}")
        return _result(table, job, now_ms, before, planned.plan, (step,), warnings=planned.choice.notes)
    done = run_rewrite(table, planned, terminal)
    if done.stats is not None:
        tell_stats(done.stats, terminal)
    return _result(table, job, now_ms, before, planned.plan, (done.step,), stats=done.stats, warnings=done.warnings)


def tell_stats(stats: CompactionStats, terminal: Terminal) -> None:
    terminal.say(
        f"Done: {stats.files_compacted} data files became {stats.files_added}; the table has {stats.files_after} "
        f"({megabytes(stats.bytes_after)}), {megabytes(stats.bytes_saved)} less, after {stats.seconds.total:.1f} s."
    )


def _result(
    table: SparkTable,
    job: Job,
    started_at_ms: int,
    before: int | None,
    plan: CompactionPlan,
    steps: tuple[Step, ...],
    *,
    stats: CompactionStats | None = None,
    warnings: tuple[str, ...] = (),
) -> Result:
    statuses = {step.status for step in steps}
    overall = next(s for s in (Status.PARTIAL, Status.COMPLETED, Status.PLANNED, Status.NOTHING_TO_DO) if s in statuses)
    return Result(
        job="maintain",
        table=str(table.name),
        status=overall,
        reason=plan.reason.value,
        dry_run=job.dry_run,
        started_at_ms=started_at_ms,
        snapshot_before=before,
        snapshot_after=table.snapshot_id,
        plan=plan,
        stats=stats,
        steps=steps,
        warnings=warnings,
        versions=table.versions,
    )
