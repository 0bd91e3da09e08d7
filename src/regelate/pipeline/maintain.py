"""The job that everyone runs: look, choose, rewrite, clear away, and say what happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import field, replace

from regelate.core.policy.sizes import size_text
from regelate.core.running.stats import CompactionStats
from regelate.core.values import dataclass
from regelate.pipeline.after_rewrite import decisions
from regelate.pipeline.options import Rewrite
from regelate.pipeline.proof import Impact, Proof, Prover
from regelate.pipeline.result import Result, Status, Step
from regelate.pipeline.rewrite import Planned, Rewritten, plan_rewrite, run_rewrite, tell_plan
from regelate.pipeline.steps import CLEARING, MERGING, StepKnobs, StepName, run_step
from regelate.pipeline.summary import tell_impact
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

Clock = Callable[[], float]
ONLY_REWRITE = (StepName.REWRITE,)
MAINTAINED = "MAINTAINED"
"""The reason of a job that rewrote no data files because it was not asked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one maintenance run was asked for; the steps run in the safe order."""

    rewrite: Rewrite = field(default_factory=Rewrite)
    steps: tuple[StepName, ...] = ONLY_REWRITE
    knobs: StepKnobs = field(default_factory=StepKnobs)
    proof: Proof | None = None
    dry_run: bool = False
    clears_only_after_a_rewrite: bool = False
    """As COMPACT does: where no file was rewritten, nothing is deleted either."""


def maintain(table: SparkTable, job: Job, terminal: Terminal, *, clock: Clock = time.time) -> Result:
    """Run one job on one table and return what it did.

    Errors: RegelateError, with nothing changed. After the rewrite only a wrong option is raised; a step that fails
    otherwise is told in the result, and does not keep the others from running. A validation that failed is told in the
    result too, and nothing is deleted after it.
    """
    now_ms = round(clock() * 1000)
    before = table.snapshot_id
    prover = None if job.proof is None or job.dry_run else Prover(table, job.proof)
    planned, done = None, None
    if StepName.REWRITE in job.steps:
        planned = plan_rewrite(table, job.rewrite, now_ms=now_ms)
        terminal.say(f"{table.name}: {planned.before.file_count} data files, {size_text(planned.before.size_bytes)}")
        tell_plan(planned, terminal)
        done = _planned_only(planned, terminal) if job.dry_run else run_rewrite(table, planned, terminal)
        if done.stats is not None:
            tell_stats(done.stats, terminal)
    decide = decisions(job.knobs, now_ms=now_ms)

    def run(names: Iterable[StepName]) -> list[Step]:
        asked = (name for name in names if name in job.steps)
        return [run_step(name, table, decide[name], terminal, dry_run=job.dry_run) for name in asked]

    steps = run(MERGING)
    impact = None if prover is None else _prove(prover, planned, done, terminal)
    idle = job.clears_only_after_a_rewrite and (done is None or done.stats is None)
    if not idle and (impact is None or impact.error is None):
        steps += run(CLEARING)
    return _result(table, job, now_ms, before, planned, done, steps, impact)


def _prove(prover: Prover, planned: Planned | None, done: Rewritten | None, terminal: Terminal) -> Impact:
    """Judge before anything is deleted that a rollback would need."""
    files = (0, 0) if planned is None else (planned.plan.files, planned.plan.expected_output_files)
    target = None if planned is None else planned.policy.target_file_size_bytes
    stats = None if done is None else done.stats
    impact = prover.judge(stats, planned=files, target_bytes=target)
    tell_impact(impact, stats, terminal)
    return prover.conclude(impact, terminal)


def _planned_only(planned: Planned, terminal: Terminal) -> Rewritten:
    for statement in planned.statements:
        terminal.say(f"would run: {statement}")
    step = Step(
        step=StepName.REWRITE,
        status=Status.PLANNED if planned.statements else Status.NOTHING_TO_DO,
        reason=planned.plan.reason.value,
        seconds=round(planned.seconds, 3),
        statements=planned.statements,
    )
    return Rewritten(step=step, stats=None, warnings=planned.choice.notes)


def tell_stats(stats: CompactionStats, terminal: Terminal) -> None:
    terminal.say(
        f"Done: {stats.files_compacted} data files became {stats.files_added}; the table has {stats.files_after} "
        f"({size_text(stats.bytes_after)}), {size_text(stats.bytes_saved)} less, after {stats.seconds.total:.1f} s."
    )


def _result(
    table: SparkTable,
    job: Job,
    started_at_ms: int,
    before: int | None,
    planned: Planned | None,
    done: Rewritten | None,
    later: list[Step],
    impact: Impact | None,
) -> Result:
    steps = (*([] if done is None else [done.step]), *later)
    error = None if impact is None else impact.error
    failed = [f"{step.step}: {step.error.message}" for step in later if step.error is not None]
    return Result(
        job="maintain",
        table=str(table.name),
        status=overall(steps) if error is None else Status.FAILED,
        reason=MAINTAINED if planned is None else planned.plan.reason.value,
        dry_run=job.dry_run,
        started_at_ms=started_at_ms,
        snapshot_before=before,
        snapshot_after=table.snapshot_id,
        plan=None if planned is None else planned.plan,
        snapshot_ids=() if done is None else done.commits,
        stats=None if done is None or done.stats is None else replace(done.stats, snapshots_expired=_expired(later)),
        steps=steps,
        warnings=(*(() if done is None else done.warnings), *failed),
        versions=table.versions,
        impact=None if impact is None else impact.as_dict(),
        error=error,
    )


def _expired(steps: list[Step]) -> int:
    done = [step for step in steps if step.step == StepName.EXPIRE and step.status is Status.COMPLETED]
    return sum(int(str(step.found.get("snapshots_to_expire", 0))) for step in done)


def overall(steps: tuple[Step, ...]) -> Status:
    """Return what the steps come to: one that failed makes the job partial, as the others are in the table."""
    statuses = {step.status for step in steps}
    if statuses & {Status.PARTIAL, Status.FAILED}:
        return Status.FAILED if statuses == {Status.FAILED} else Status.PARTIAL
    return next((s for s in (Status.COMPLETED, Status.PLANNED) if s in statuses), Status.NOTHING_TO_DO)
