"""What COMPACT answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from regelate.core.answers.json import LEFT_OUT, Json
from regelate.core.engines import Engine
from regelate.core.jobs.job import JobState
from regelate.core.running.stats import CompactionStats
from regelate.core.values import dataclass


class Status(StrEnum):
    """How a COMPACT ended."""

    COMPLETED = "COMPLETED"
    PARTIAL = "PARTIAL"
    NOTHING_TO_DO = "NOTHING_TO_DO"
    ALREADY_DONE = "ALREADY_DONE"
    PLANNED = "PLANNED"
    DELEGATED = "DELEGATED"
    """A job does it, or is at it already."""
    CANCELLED = "CANCELLED"
    """Of a job: it was cancelled before this part was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactAnswer:
    """A dry run answers PLANNED with its `plan`. `stats` is null where nothing was rewritten.

    `snapshot_id` is null where nothing was committed; ALREADY_DONE names the snapshot of the first time. DELEGATED,
    with status 202, names the job that does it, or has done it under this key, its `engine`, and why that engine. A
    `resume_token` goes on with the groups that there was no time for.
    """

    compacted: bool
    status: Status
    reason: str | None
    snapshot_id: int | None
    stats: CompactionStats | None
    plan: Mapping[str, Json] | None = field(default=None, metadata=LEFT_OUT)
    job_id: str | None = field(default=None, metadata=LEFT_OUT)
    job_state: JobState | None = field(default=None, metadata=LEFT_OUT)
    engine: Engine | None = field(default=None, metadata=LEFT_OUT)
    explanation: str | None = field(default=None, metadata=LEFT_OUT)
    resume_token: str | None = field(default=None, metadata=LEFT_OUT)
    warnings: tuple[str, ...]
