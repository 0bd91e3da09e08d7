"""What is answered of jobs, and of the sweep that submits many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from regelate.core.answers.json import Json
from regelate.core.engines import Engine
from regelate.core.jobs.job import JobState, JobTotals, Origin
from regelate.core.jobs.ranking import Rank
from regelate.core.values import dataclass
from regelate.errors import ErrorDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """File groups rewritten by all parts so far, and all groups that are known."""

    groups_done: int
    groups_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    """`result` is COMPACT's answer of the last part that ended; `error` is what ended the job, or its last attempt.

    A job is cut into parts by the time that its worker has; `attempts` counts the starts of the present one. Where
    `engine` is spark, `explanation` says why, and `run` is the run's id in Spark.
    """

    job_id: str
    state: JobState
    operation: Literal["COMPACT"] = "COMPACT"
    table: str
    catalog: str
    origin: Origin
    engine: Engine
    explanation: str | None
    run: str | None
    progress: JobProgress
    part: int
    attempts: int
    created_at: str
    updated_at: str
    totals: JobTotals
    result: Mapping[str, Json] | None
    error: ErrorDetail | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job as JOB_STATUS tells it, without the `result` of its last part."""

    job_id: str
    state: JobState
    table: str
    catalog: str
    origin: Origin
    engine: Engine
    explanation: str | None
    run: str | None
    progress: JobProgress
    part: int
    attempts: int
    created_at: str
    updated_at: str
    totals: JobTotals
    error: ErrorDetail | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListJobsAnswer:
    """The newest first. `next_page_token` asks for those after them, where there are more."""

    jobs: tuple[ListedJob, ...]
    next_page_token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorOfTable:
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRun:
    """What became of one ledger entry; `reason` is one of those in docs/api.md."""

    run: str
    reason: str
    files_deleted: int
    bytes_freed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptExpiry:
    """`finished`: earlier expiries whose grace was over and whose files are deleted now; `waiting`: not yet."""

    finished: int
    waiting: int
    files_deleted: int
    bytes_freed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptTable:
    """A table where something was found; `error` is what stopped the sweep there, the other tables went on."""

    table: str
    runs: tuple[SweptRun, ...]
    expiry: SweptExpiry
    error: ErrorOfTable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTableAnswer:
    """`rank`: COMPACT (a job was submitted), JOB_RUNNING (it has one), HEALTHY, OVER_BUDGET (the next sweep's)."""

    table: str
    score: float
    rank: Rank
    reason: str
    job_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnswer:
    """`backlog`: tables left to the next sweep, by its limits. A dry run says what would be deleted and submitted.

    `ranking` lists the unhealthiest tables first; `jobs_backlog` counts those below the threshold that get no job yet.
    """

    dry_run: bool
    tables_swept: int
    files_deleted: int
    bytes_freed: int
    errors: int
    backlog: int
    backlog_tables: tuple[str, ...]
    tables: tuple[SweptTable, ...]
    jobs_submitted: int
    jobs_backlog: int
    ranking: tuple[RankedTableAnswer, ...]
