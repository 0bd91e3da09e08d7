"""From a COMPACT as it is asked to who does it: what is run, checked and submitted on each way, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from regelate.core.engines import Engine
from regelate.core.jobs.job import NOTHING_DONE, JobRecord, Origin
from regelate.core.policy.policy import PlacementPolicy
from regelate.core.requests import CompactRequest
from regelate.core.running.batches import usable_seconds
from regelate.core.running.routing import UNSUPPORTED_TABLE, Capabilities, Job
from regelate.errors import InvalidRequest, Unsupported
from regelate.operations.compacting.command import CompactOutcome, Status
from regelate.operations.compacting.conducting import (
    CompactEnv,
    Delegated,
    How,
    Left,
    compact_requested,
    part_asked,
    part_of,
    partial_progress_asked,
    placement_within,
)
from regelate.operations.compacting.continuing import RanPart, RunPart
from regelate.operations.compacting.partial_progress import AT_ONCE

SPARK = Capabilities(spark=True)
RAN = RanPart(
    outcome=CompactOutcome(status=Status.COMPLETED, reason="RECOMMENDED", compacted=True), did=NOTHING_DONE, token=None
)
JOB = JobRecord(
    job_id="job-1", tenant_id="acme", catalog="local", ident="a.t", table="t", run_id="theirs",
    request=CompactRequest(), origin=Origin.REQUEST, created_ms=7, updated_ms=7,
)  # fmt: skip
LARGER = Job(engine=Engine.DUCKDB, reason="TOO_LONG", why="it takes an hour")
UNREADABLE = Unsupported(UNSUPPORTED_TABLE, "format version 3")


@dataclass
class Table:
    """One table's environment in memory. `run` answers with `ran` or raises it; `told` is what was done, in order."""

    ran: RanPart | Exception = RAN
    unreadable: Exception | None = None
    at_it: JobRecord | None = None
    has_job: JobRecord | None = None
    told: list[str] = field(default_factory=list)
    checked: list[RunPart] = field(default_factory=list)
    submitted: list[Left] = field(default_factory=list)

    def run(self, part: RunPart, how: How) -> RanPart:
        self.told.append("run")
        if isinstance(self.ran, Exception):
            raise self.ran
        return self.ran

    def check(self, part: RunPart) -> None:
        self.told.append("check")
        self.checked.append(part)
        if self.unreadable is not None:
            raise self.unreadable

    def running(self) -> JobRecord | None:
        self.told.append("running")
        return self.at_it

    def submit(self, part: RunPart, left: Left) -> JobRecord:
        self.told.append("submit")
        self.submitted.append(left)
        return self.has_job or replace(JOB, run_id=part.base_run_id, engine=left.job.engine, origin=left.origin)

    def asked(self, capabilities: Capabilities = SPARK, **fields: object) -> RanPart | Delegated:
        request = CompactRequest(**fields)  # type: ignore[arg-type]
        placement = PlacementPolicy(memory_bytes=2**31, threads=1)
        how = How(request=request, partial_progress=AT_ONCE, placement=placement, capabilities=capabilities)
        env = CompactEnv(run=self.run, check=self.check, running=self.running, submit=self.submit)
        return compact_requested(part_asked(request), how, env)


def test_what_nobody_is_at_is_run_here_and_its_result_is_the_answer() -> None:
    table = Table()
    assert table.asked() is RAN
    assert table.told == ["running", "run"]


def test_a_refused_request_touches_nothing() -> None:
    table = Table()
    with pytest.raises(InvalidRequest, match="zorder"):
        table.asked(engine="duckdb", strategy="zorder")
    assert table.told == []


def test_a_request_for_a_job_is_judged_before_the_job_is_submitted() -> None:
    table = Table()
    answer = table.asked(run_async=True)
    assert isinstance(answer, Delegated)
    assert (answer.reason, table.told, table.submitted[0].origin) == ("ASYNC", ["check", "submit"], Origin.REQUEST)


def test_a_request_for_a_job_with_a_wrong_knob_submits_none() -> None:
    table = Table(unreadable=InvalidRequest("INVALID_OPTION", "min-input-files: 0"))
    with pytest.raises(InvalidRequest, match="min-input-files"):
        table.asked(run_async=True)
    assert table.told == ["check"]


def test_a_table_whose_job_is_at_it_is_left_to_that_job() -> None:
    table = Table(at_it=JOB)
    assert table.asked() == Delegated(job=JOB, reason="JOB_RUNNING")
    assert table.told == ["running"]


def test_a_job_at_another_branch_keeps_nobody_from_compacting() -> None:
    table = Table(at_it=replace(JOB, request=CompactRequest(ref="side")))
    assert table.asked() is RAN
    assert isinstance(table.asked(ref="side"), Delegated)
    assert table.told == ["running", "run", "running"]


def test_a_dry_run_asks_for_no_job() -> None:
    table = Table(at_it=JOB)
    assert table.asked(dry_run=True) is RAN
    assert table.told == ["run"]


def test_a_plan_that_does_not_fit_here_becomes_a_job_without_another_look_at_the_table() -> None:
    table = Table(ran=replace(RAN, outcome=replace(RAN.outcome, left_to=LARGER)))
    answer = table.asked()
    assert isinstance(answer, Delegated)
    assert (answer.reason, table.told) == ("TOO_LONG", ["running", "run", "submit"])
    assert table.submitted == [Left(job=LARGER, origin=Origin.TOO_LONG)]


def test_a_table_that_only_spark_reads_is_left_to_it_though_it_cannot_be_checked_here() -> None:
    table = Table(ran=UNREADABLE, unreadable=UNREADABLE)
    answer = table.asked()
    assert isinstance(answer, Delegated)
    assert (answer.job.engine, answer.job.origin, answer.reason) == (Engine.SPARK, Origin.REQUEST, UNSUPPORTED_TABLE)
    assert table.told == ["running", "run", "check", "submit"]


@pytest.mark.parametrize("capabilities", [Capabilities(), Capabilities(spark=True, delegates=False)])
def test_a_table_that_cannot_be_read_is_refused_where_nobody_else_can_or_may(capabilities: Capabilities) -> None:
    table = Table(ran=UNREADABLE)
    with pytest.raises(Unsupported, match="format version 3"):
        table.asked(capabilities)
    assert table.told == ["running", "run"]


def test_what_only_spark_can_do_is_left_out_of_the_check_here() -> None:
    table = Table()
    table.asked(strategy="zorder", sort_order=[{"column": "a"}], force=True)
    assert (table.checked[0].request.strategy, table.checked[0].request.sort_order) == (None, None)
    assert table.checked[0].request.force
    assert table.submitted[0].job.engine is Engine.SPARK


def test_a_request_for_spark_that_meets_another_job_says_that_one_is_running() -> None:
    answer = Table(has_job=JOB).asked(engine="spark")
    assert answer == Delegated(job=JOB, reason="JOB_RUNNING")


def test_a_request_of_a_job_that_meets_another_one_keeps_its_reason() -> None:
    assert Table(has_job=JOB).asked(run_async=True) == Delegated(job=JOB, reason="ASYNC")


def test_the_first_part_has_the_callers_key_and_carries_on_only_the_work() -> None:
    part = part_asked(CompactRequest(force=True, idempotency_key="k", time_budget_seconds=5.0))
    assert (part.run_id, part.part, part.token) == ("compact:k", 1, None)
    assert part.request == CompactRequest(force=True)


def test_the_part_of_a_job_is_the_one_that_its_record_says() -> None:
    part = part_of(JOB)
    assert (part.base_run_id, part.part, part.in_job) == ("theirs", 1, True)


@pytest.mark.parametrize(
    ("budget", "left", "ends_at", "enabled"),
    [(None, None, None, False), (None, 30.0, 130.0, False), (10.0, None, 110.0, True), (50.0, 30.0, 130.0, True)],
)
def test_a_run_is_cut_by_a_budget_and_ends_with_whatever_ends_first(
    budget: float | None, left: float | None, ends_at: float | None, enabled: bool
) -> None:
    request = CompactRequest(time_budget_seconds=budget)
    partial_progress = partial_progress_asked(request, batch_seconds=5.0, seconds_left=left, now=100.0)
    assert (partial_progress.ends_at, partial_progress.enabled, partial_progress.batch_seconds) == (
        ends_at,
        enabled,
        5.0,
    )


def test_a_process_that_is_ended_soon_takes_less() -> None:
    placement = PlacementPolicy(memory_bytes=2**31, threads=1, max_in_process_seconds=100.0)
    assert placement_within(placement, None) is placement
    assert placement_within(placement, 1_000.0).max_in_process_seconds == 100.0
    assert placement_within(placement, 50.0).max_in_process_seconds == usable_seconds(50.0) < 50.0
