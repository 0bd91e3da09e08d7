"""The threads of `regelate serve` that work on jobs of the embedded store."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from regelate.entrypoints.log import forget_subject, logger, stack_of
from regelate.errors import RegelateError

IDLE_SECONDS = 2.0
"""Between two looks at the store: another process may have submitted a job, or died over one."""


class DueJobs(Protocol):
    """Where jobs wait. `run_due_job` runs one part of one, and returns false where none is due."""

    @property
    def job_threads(self) -> int: ...
    @property
    def job_bell(self) -> threading.Event: ...
    def run_due_job(self, *, stopping: threading.Event) -> bool: ...


class JobWorkers:
    """As many threads as config.json says, none where jobs are kept elsewhere.

    After `stop` a job that runs commits the groups that are done, and the next process takes up the rest.
    """

    def __init__(self, jobs: DueJobs) -> None:
        self._jobs = jobs
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"jobs-{number}") for number in range(jobs.job_threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each thread end; from a signal handler too."""
        self._stopping.set()
        self._jobs.job_bell.set()

    def wait(self, seconds: float) -> int:
        """Wait for the threads to end, and return how many have not."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
        return sum(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        bell = self._jobs.job_bell
        while not self._stopping.is_set():
            forget_subject()
            bell.clear()  # before the look: a job that is queued meanwhile rings again
            if not self._ran_one():
                if self._stopping.is_set():
                    return
                bell.wait(IDLE_SECONDS)

    def _ran_one(self) -> bool:
        try:
            return self._jobs.run_due_job(stopping=self._stopping)
        except RegelateError as fault:
            logger.error("job failed", code=fault.code, error=fault.message)
        except Exception as fault:  # noqa: BLE001  the thread must live: the job has failed, the log gets the stack
            logger.error("job failed", stack=stack_of(fault))
        return False
