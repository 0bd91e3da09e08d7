"""A table of eight partitions, a service whose clock only a rewrite moves, and its jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regelate.adapters.clock import SystemClock
from regelate.operations.compacting.compact import CompactionTools
from regelate.ports.jobs import SparkJobs
from regelate.settings import load_settings
from tests.entrypoints.fakes import LambdaContext
from tests.support.answers import check_answer
from tests.support.built import Built
from tests.support.table_model import model_rows
from tests.system.faults.stack import LOCAL_CATALOG, Answer, Stack

PARTITIONS = 8
GROUP_SECONDS = 30.0
JOBS = {"store": "sqlite", "path": "${REGELATE_HOME}/jobs.db", "seconds_between_looks": 0}


class StandingClock(SystemClock):
    """Its monotonic time stands still but while a group is rewritten."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class _SlowEngine:
    """Takes half a minute for each group; `after_group` is told how many it has rewritten."""

    def __init__(self, engine: Any, stack: JobStack) -> None:
        self._engine = engine
        self._stack = stack

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def rewrite(self, groups: Any, *arguments: Any, **options: Any) -> Any:
        self._stack.before_batch()
        found = self._engine.rewrite(groups, *arguments, **options)
        for _ in groups:
            if isinstance(self._stack.built.clock, StandingClock):
                self._stack.built.clock.seconds += GROUP_SECONDS
            self._stack.rewritten += 1
            self._stack.after_group(self._stack.rewritten)
        return found


@dataclass(frozen=True)
class TimedContext(LambdaContext):
    seconds: float = 900.0

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


class JobStack(Stack):
    """A stack with jobs, over a table `t` whose eight partitions of three files are eight groups.

    `rewritten` counts groups. `before_run` acts when a run has loaded its table, `before_batch` and `after_group`
    around the rewrite. `runs_spark` stands in for Spark.
    """

    def __init__(
        self,
        folder: Path,
        *,
        spark: Mapping[str, object] | None = None,
        runs_spark: SparkJobs | None = None,
        **jobs: object,
    ) -> None:
        self.rewritten = 0
        self.before_run: Callable[[], object] = lambda: None
        self.before_batch: Callable[[], object] = lambda: None
        self.after_group: Callable[[int], object] = lambda number: None
        lake = folder / "lake"
        lake.mkdir(parents=True)
        config = folder / "config.json"
        section = {"auth": "none", "tenants": "*", "catalogs": {"local": LOCAL_CATALOG}, "jobs": {**JOBS, **jobs}}
        section |= {} if spark is None else {"spark": spark}
        config.write_text(json.dumps({"environments": {"development": section}}))
        self.environ = {"REGELATE_CONFIG": str(config), "REGELATE_HOME": str(lake)}
        built = Built(
            load_settings(self.environ),
            change=self._slow,
            clock=StandingClock(),
            spark=runs_spark,
        )
        super().__init__(lake, built=built)
        self.create("t", {"id": "long!", "p": "string"}, partition_spec=[{"source": "p", "transform": "identity"}])
        for number in range(3):
            self.ok("WRITE", "t", records=[{"id": 10 * number + i, "p": f"p{i}"} for i in range(PARTITIONS)])
        self.expected = self.rows_now()

    def _slow(self, tools: CompactionTools) -> CompactionTools:
        self.before_run()
        return replace(tools, engine=_SlowEngine(tools.engine, self))

    def rows_now(self) -> list[str]:
        return model_rows(self.table("default.t"))

    def invoke_within(self, seconds: float, payload: Mapping[str, object]) -> Answer:
        """Send one request as a direct invoke of a function that has so many seconds left."""
        return self._handler(dict(payload), TimedContext(seconds=seconds))  # type: ignore[arg-type]

    def submit(self, table: str = "t", **fields: object) -> str:
        """Submit a job for a table and return its id."""
        status, answer = self.post(
            {"operation": "COMPACT", "tenant_id": "default", "table": table, "async": True, **fields}
        )
        assert status == 202, answer
        check_answer("COMPACT", answer)
        return str(answer["job_id"])

    def job(self, job_id: str) -> Answer:
        return self.ok("JOB_STATUS", job_id=job_id)

    def work(self) -> int:
        """Run what is due until nothing is; return how many parts that were."""
        parts = 0
        while self.service.worker.run_due_job(stopping=threading.Event()):
            parts += 1
        return parts

    def replaced(self) -> list[str]:
        """The run ids of the compactions that landed, oldest first."""
        snapshots = [s for s in self.table("default.t").snapshots() if s.summary is not None]
        found = [s.summary for s in snapshots if s.summary is not None and s.summary.operation.value == "replace"]
        return [str(summary.additional_properties["regelate.run-id"]) for summary in found]

    def files_by_partition(self) -> list[int]:
        files = self.table("default.t").inspect.files().to_pylist()
        return sorted(sum(f["partition"]["p"] == f"p{i}" for f in files) for i in range(PARTITIONS))

    def assert_rows_kept(self) -> None:
        assert self.rows_now() == self.expected
