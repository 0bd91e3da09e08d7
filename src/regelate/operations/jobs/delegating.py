"""A part of a job that Spark does: start it, look after it until it is over, and take its answer for ours."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from regelate.core.answers import CompactAnswer
from regelate.core.answers.spark import SparkAnswer, spark_answer
from regelate.core.jobs.job import NOTHING_DONE, JobRecord, JobState, JobTotals
from regelate.core.jobs.spark_job import REMOTE_GRACE_SECONDS, SparkJobSpec, SparkRun, SparkState
from regelate.core.values import dataclass
from regelate.errors import RegelateError
from regelate.operations.compacting.partial_progress import Stop
from regelate.operations.jobs.parts import MAX_STORED_WARNINGS, Elsewhere, PartDone
from regelate.ports.jobs import SparkJobs

Settle = Callable[[CompactAnswer], CompactAnswer]
"""Completes the answer of a run that has landed."""
START_SECONDS = 60.0
"""A run's own time may begin so much before we note its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """`start_seconds`: until a run that waits is given up; `run_seconds`: until one that runs is."""

    start_seconds: float
    run_seconds: float
    look_again_seconds: float


def spark_part(
    spark: SparkJobs,
    record: JobRecord,
    spec: Callable[[], SparkJobSpec],
    patience: Patience,
    *,
    now_ms: int,
    why: str,
    settle: Settle,
) -> PartDone | Elsewhere:
    """Do what is next for a run: start it, cancel it, or see where it stands. `settle` completes its answer.

    A run that failed is not tried again: DELEGATION_FAILED, DELEGATION_TIMEOUT, or the code that it answered itself.
    Errors: Unavailable, where Spark could not be asked: the next look will.
    """
    run_id = record.remote or spark.start(spec())
    stays = Elsewhere(remote=run_id, why=why, look_again_seconds=patience.look_again_seconds)
    cancelling = record.state is JobState.CANCELLING
    if record.remote is None and not cancelling:
        return stays
    waited = (now_ms - record.remote_ms) / 1000 if record.remote_ms else 0.0
    late = waited > patience.run_seconds + REMOTE_GRACE_SECONDS
    try:
        run = spark.look(run_id)
    except RegelateError as fault:
        if not late:
            raise
        return _timeout(spark, run_id, f"cannot be asked after {waited:,.0f} s ({fault.code})")
    if run.is_over:  # however late somebody looks: what it did counts, not when that was seen
        if run.state is SparkState.CANCELLED and run.answer is None and not cancelling:
            return _cancelled_there(run_id, waited, patience)
        return _over(run, record, cancelling, _too_late if late else settle)
    if late or (waited > patience.run_seconds and not cancelling):
        return _timeout(spark, run_id, f"has not ended after {waited:,.0f} s")
    if cancelling:
        _cancel(spark, run_id)
    elif run.state is SparkState.WAITING and waited > patience.start_seconds:
        return _timeout(spark, run_id, f"has not begun after {waited:,.0f} s")
    return stays


def _cancel(spark: SparkJobs, run_id: str) -> None:
    """Ask for a run's end. One that is refused may have ended since: only the next look knows what became of it."""
    try:
        spark.cancel(run_id)
    except RegelateError as fault:
        if fault.retryable:
            raise


def _cancelled_there(run_id: str, waited: float, patience: Patience) -> PartDone:
    """Tell a run that nobody here has cancelled: by somebody at AWS, or by EMR because its time was over."""
    if waited > patience.run_seconds - START_SECONDS:
        return _failed(_timed_out(run_id, f"was ended by its time limit, as seen after {waited:,.0f} s"))
    told = f"the Spark job {run_id} was cancelled from outside, without JOB_CANCEL"
    return _failed(RegelateError("DELEGATION_FAILED", told, status=502, run=run_id))


def _too_late(answer: CompactAnswer) -> CompactAnswer:
    """Leave the expiry out: it may be what has killed every worker that looked, and the job must come to its end."""
    if not answer.compacted:
        return answer
    told = "snapshots were not expired: the result was seen too late; expire_snapshots does it"
    return replace(answer, warnings=(*answer.warnings, told))


def _over(run: SparkRun, record: JobRecord, cancelling: bool, settle: Settle) -> PartDone:
    if run.answer is None and cancelling:
        return PartDone(stopped=Stop.CANCELLED)
    if run.answer is None:
        return _delegation_failed(record, f"ended without a result: {run.detail or 'nobody knows why'}")
    try:
        found = spark_answer(run.answer)
    except ValueError as fault:
        return _delegation_failed(record, f"left a result that cannot be read: {fault}")
    if isinstance(found, RegelateError):
        return _failed(found)
    answer = replace(found.compact, warnings=found.compact.warnings[:MAX_STORED_WARNINGS])
    return PartDone(answer=settle(answer), did=_totals(found))


def _delegation_failed(record: JobRecord, what: str) -> PartDone:
    told = f"the Spark job {record.remote} {what}"
    return _failed(RegelateError("DELEGATION_FAILED", told, status=502, run=record.remote))


def _failed(error: RegelateError) -> PartDone:
    return PartDone(failed=error)


def _totals(found: SparkAnswer) -> JobTotals:
    stats = found.compact.stats
    if not found.compact.compacted or stats is None:
        return NOTHING_DONE
    return JobTotals(
        files_compacted=stats.files_compacted,
        files_added=stats.files_added,
        bytes_saved=stats.bytes_saved,
        rows=stats.rows,
        snapshot_ids=found.snapshot_ids,
    )


def _timeout(spark: SparkJobs, run_id: str, what: str) -> PartDone:
    with suppress(RegelateError):  # whether it can be ended or not: a commit of its own is judged by the table
        spark.cancel(run_id)
    return _failed(_timed_out(run_id, f"{what} and was given up"))


def _timed_out(run_id: str, what: str) -> RegelateError:
    return RegelateError("DELEGATION_TIMEOUT", f"the Spark job {run_id} {what}", status=504, run=run_id)
