"""The threads of the server that work on jobs: they take what is due, wait for the bell, and live through faults."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from regelate.entrypoints.job_workers import JobWorkers
from regelate.errors import Unavailable


class Due:
    """Jobs that wait; `empty` is set when somebody looks and finds none."""

    def __init__(self, *jobs: Callable[[], object], threads: int = 1) -> None:
        self.job_threads = threads
        self.job_bell = threading.Event()
        self.waiting = list(jobs)
        self.empty = threading.Event()
        self.stopping: list[threading.Event] = []

    def run_due_job(self, *, stopping: threading.Event) -> bool:
        self.stopping.append(stopping)
        if not self.waiting:
            self.empty.set()
            return False
        self.waiting.pop(0)()
        return True

    def ring(self, job: Callable[[], object]) -> None:
        self.waiting.append(job)
        self.job_bell.set()


def test_what_is_due_is_run_and_what_is_submitted_later_is_heard() -> None:
    ran: list[str] = []
    due = Due(lambda: ran.append("first"), lambda: ran.append("second"))
    workers = JobWorkers(due)
    assert due.empty.wait(60)
    later = threading.Event()
    due.ring(later.set)
    assert later.wait(60)
    workers.stop()
    assert workers.wait(60) == 0
    assert ran == ["first", "second"]


def test_a_fault_is_logged_and_the_thread_goes_on(log_lines: Callable[[], list[dict[str, Any]]]) -> None:
    def fail(error: Exception) -> Callable[[], None]:
        def job() -> None:
            raise error

        return job

    after = threading.Event()
    due = Due(fail(Unavailable("JOBS_UNAVAILABLE", "not now")), fail(KeyError("bug")), after.set)
    workers = JobWorkers(due)
    for _ in range(2):
        due.job_bell.set()
    assert after.wait(60)
    workers.stop()
    assert workers.wait(60) == 0
    failed = [line for line in log_lines() if line["message"] == "job failed"]
    assert [line.get("code") for line in failed] == ["JOBS_UNAVAILABLE", None]
    assert "KeyError" in failed[1]["stack"]


def test_a_job_that_runs_hears_that_the_server_stops_and_is_waited_for() -> None:
    began, ended = threading.Event(), threading.Event()

    def job() -> None:
        began.set()
        assert due.stopping[0].wait(60)
        ended.set()

    due = Due(job)
    workers = JobWorkers(due)
    assert began.wait(60)
    workers.stop()
    assert workers.wait(60) == 0
    assert ended.is_set()


def test_where_jobs_are_kept_elsewhere_there_is_no_thread() -> None:
    before = threading.active_count()
    workers = JobWorkers(Due(threads=0))
    assert threading.active_count() == before
    workers.stop()
    assert workers.wait(60) == 0
