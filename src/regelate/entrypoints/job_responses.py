"""The answers about jobs, and of the sweep that submits many."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from regelate.core.engines import Engine
from regelate.core.job import JobState, Origin
from regelate.entrypoints.response_base import Answer, ErrorDetail, Shape
from regelate.settings.section import OneOf

EngineName = Annotated[str, OneOf(*Engine)]
JobStateName = Annotated[str, OneOf(*JobState)]


class JobProgress(Shape):
    """File groups rewritten by all parts so far, and all groups that are known."""

    groups_done: int
    groups_all: int


class JobTotalsAnswer(Shape):
    """What all parts did together; one snapshot for each part that committed."""

    files_compacted: int
    files_added: int
    bytes_saved: int
    rows: int
    snapshot_ids: list[int]


class JobAnswer(Answer):
    """`result` is COMPACT's answer of the last part that ended; `error` is what ended the job, or its last attempt.

    A job is cut into parts by the time that its worker has; `attempts` counts the starts of the present one. Where
    `engine` is spark, `explanation` says why, and `run` is the run's id in Spark.
    """

    job_id: str
    state: JobStateName
    operation: Literal["COMPACT"]
    table: str
    catalog: str
    origin: Annotated[str, OneOf(*Origin)]
    engine: EngineName
    explanation: str | None
    run: str | None
    progress: JobProgress
    part: int
    attempts: int
    created_at: str
    updated_at: str
    totals: JobTotalsAnswer
    result: dict[str, Any] | None
    error: ErrorDetail | None


class ErrorOfTable(Shape):
    code: str
    message: str


class SweptRun(Shape):
    """What became of one ledger entry; `reason` is one of those in docs/api.md."""

    run: str
    reason: str
    files_deleted: int
    bytes_freed: int


class SweptExpiry(Shape):
    """`finished`: earlier expiries whose grace was over and whose files are deleted now; `waiting`: not yet."""

    finished: int
    waiting: int
    files_deleted: int
    bytes_freed: int


class SweptTable(Shape):
    """A table where something was found; `error` is what stopped the sweep there, the other tables went on."""

    table: str
    runs: list[SweptRun]
    expiry: SweptExpiry
    error: ErrorOfTable | None


class RankedTableAnswer(Shape):
    """`rank`: COMPACT (a job was submitted), JOB_RUNNING (it has one), HEALTHY, OVER_BUDGET (the next sweep's)."""

    table: str
    score: float
    rank: Literal["COMPACT", "JOB_RUNNING", "HEALTHY", "OVER_BUDGET"]
    reason: str
    job_id: str | None


class SweepAnswer(Answer):
    """`backlog`: tables left to the next sweep, by its limits. A dry run says what would be deleted and submitted.

    `ranking` lists the unhealthiest tables first; `jobs_backlog` counts those below the threshold that get no job yet.
    """

    dry_run: bool
    tables_swept: int
    files_deleted: int
    bytes_freed: int
    errors: int
    backlog: int
    backlog_tables: list[str]
    tables: list[SweptTable]
    jobs_submitted: int
    jobs_backlog: int
    ranking: list[RankedTableAnswer]
