"""The gauge pending_compactions is told wherever a job begins or ceases to wait, and refuses nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regelate.adapters.records.sqlite_jobs import SqliteJobs
from regelate.core.measures.measures import JobsCounted
from regelate.errors import RegelateError, Unavailable
from regelate.operations.jobs.jobs import JobTools, cancel, submit
from regelate.operations.jobs.parts import run_part
from tests.adapters.test_jobstore import job
from tests.unit.operations.fakes import Told


@pytest.fixture
def tools(tmp_path: Path) -> JobTools:
    store = SqliteJobs(tmp_path / "jobs.db", retention_seconds=60)
    return JobTools(store=store, queue=store, telemetry=Told(), lease_seconds=60, max_attempts=3)


def told(tools: JobTools) -> list[int]:
    assert isinstance(tools.telemetry, Told)
    return [found.pending for found in tools.telemetry.occurrences if isinstance(found, JobsCounted)]


def test_a_job_is_pending_from_its_submission_until_a_worker_begins_it(tools: JobTools) -> None:
    first, second = (submit(tools, job(tools.store, f"job-{n}", ident=f"db.t{n}")) for n in range(2))
    assert told(tools) == [1, 2]

    def fails(*_: object) -> None:
        assert told(tools) == [1, 2, 1]
        raise RegelateError("INVALID_OPTION", "it ends here")

    run_part(tools, first.job_id, 1, fails)  # type: ignore[arg-type]
    cancel(tools, second.job_id)
    assert told(tools)[-1] == 0


class Mute(SqliteJobs):
    def waiting(self) -> int:
        raise Unavailable("JOBS_UNAVAILABLE", "the index is not there yet")


def test_a_job_is_taken_though_nobody_can_count_those_that_wait(tools: JobTools, tmp_path: Path) -> None:
    store = Mute(tmp_path / "mute.db", retention_seconds=60)
    mute = replace(tools, store=store, queue=store)
    assert submit(mute, job(store)).job_id == "job-1"
    assert told(mute) == []
