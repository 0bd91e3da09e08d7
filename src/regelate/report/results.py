"""A result of a job (the JSON that `--result` writes, or an answer of COMPACT) as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regelate.core.values import dataclass

Part = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """One step of a job, as far as a report tells of it."""

    step: str
    status: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What a report reads of a result; what is drawn as a table stays as it was written.

    An answer of COMPACT names no job and no table; a job that came to nothing has an `error` and no status.
    """

    job: str
    table: str
    status: str
    reason: str
    error: Part | None
    started_at_ms: int | None
    stats: Part | None
    impact: Part | None
    ingest: Part | None
    steps: Sequence[StepLine]
    warnings: Sequence[str]

    @property
    def failed(self) -> bool:
        """Say whether somebody must look at it."""
        return self.error is not None or self.status in ("FAILED", "PARTIAL")


_WHERE_MISSING: Mapping[str, Any] = {
    "job": "COMPACT",
    "table": "?",
    "status": "FAILED",
    "reason": "no reason given",
    "steps": (),
    "warnings": (),
}


def result_of(found: Mapping[str, Any]) -> JobResult:
    """Read a result; what is missing or empty in it says nothing."""
    names = JobResult.__dataclass_fields__
    told: dict[str, Any] = {name: found.get(name) or _WHERE_MISSING.get(name) for name in names}
    told["steps"] = tuple(_line_of(step) for step in told["steps"])
    return JobResult(**told)


def _line_of(step: Part) -> StepLine:
    return StepLine(**{name: step[name] for name in StepLine.__dataclass_fields__})
