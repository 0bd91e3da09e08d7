"""MAINTAIN: the steps of one table's upkeep in the safe order, each with a result of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regelate.core.answers import (
    CompactAnswer,
    DanglingDeletesAnswer,
    ExpireSnapshotsAnswer,
    ReclaimAnswer,
    RemoveOrphanFilesAnswer,
    RewriteManifestsAnswer,
    Step,
    StepResultAnswer,
    StepStatus,
)
from regelate.core.values import dataclass
from regelate.errors import InvariantViolated, RegelateError
from regelate.ports.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One step as it can be run."""

    step: Step
    run: Callable[[], StepResultAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    step: Step
    status: StepStatus
    seconds: float
    result: StepResultAnswer | None = None
    error: RegelateError | None = None


def maintain(works: Sequence[Work], clock: Clock) -> tuple[StepResult, ...]:
    """Run the steps in the safe order, whatever order they come in. One that fails does not hide the others.

    Errors: where every step failed, the error of the first.
    """
    order = list(Step)
    results = tuple(_done(work, clock) for work in sorted(works, key=lambda w: order.index(w.step)))
    first = next((r.error for r in results if r.error is not None), None)
    if first is not None and all(r.error is not None for r in results):
        raise first
    return results


def _done(work: Work, clock: Clock) -> StepResult:
    started = clock.monotonic()
    try:
        result = work.run()
    except Exception as error:  # noqa: BLE001  the other steps have their own results
        told = error if isinstance(error, RegelateError) else _unexpected(error)
        return StepResult(step=work.step, status=StepStatus.FAILED, seconds=clock.monotonic() - started, error=told)
    status = StepStatus.DONE if _did_something(result) else StepStatus.NOTHING_TO_DO
    return StepResult(step=work.step, status=status, seconds=clock.monotonic() - started, result=result)


def _did_something(answer: StepResultAnswer) -> bool:
    match answer:
        case CompactAnswer():
            return answer.compacted or (answer.plan is not None and answer.plan["groups"] > 0)
        case DanglingDeletesAnswer():
            return answer.delete_files_removed > 0
        case RewriteManifestsAnswer():
            return answer.manifests_replaced > 0
        case ExpireSnapshotsAnswer():
            return answer.snapshots_expired > 0 or answer.files_deleted > 0
        case RemoveOrphanFilesAnswer():
            return answer.orphan_files > 0
        case ReclaimAnswer():
            return answer.expiries_finished > 0 or answer.files_deleted > 0


def _unexpected(error: Exception) -> RegelateError:
    return InvariantViolated("ENGINE_FAULT", f"{type(error).__name__}: {error}")
