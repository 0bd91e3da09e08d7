"""What a run of a fleet may cost is the end of it: what is done by then stays, and the next run does the rest."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from regelate.adapters.records.sqlite_fleet import SqliteFleet
from regelate.core.engines import LAMBDA
from regelate.core.fleet.cadence import cooling
from regelate.core.fleet.operation import FleetOperation, FleetOutcome
from regelate.core.jobs.job import JobRecord, Origin
from regelate.core.requests import CompactRequest
from regelate.operations.compacting.continuing import RunPart
from regelate.operations.fleet.settle import Tariff, settle
from regelate.tenancy import Address
from tests.system.faults.jobs import GROUP_SECONDS, PARTITIONS, JobStack
from tests.unit.core.fleet_values import NOW_MS, ill, live_run, table

TABLE = Address(tenant_id="default", catalog="local", ident="default.t", table="t")


@pytest.fixture
def stack(tmp_path: Path) -> JobStack:
    return JobStack(tmp_path)


def job_of(stack: JobStack, most_seconds: float | None, run: str = "fleet-1") -> JobRecord:
    part = RunPart(base_run_id=run, part=1, request=CompactRequest(expire_snapshots=False))
    submitted = stack.service.jobs.submit(TABLE, part, Origin.FLEET, most_seconds=most_seconds)
    stack.work()
    found = stack.service.jobs.of_run(TABLE, submitted.run_id)
    assert found is not None
    return found


def test_a_job_ends_between_two_groups_when_its_seconds_are_over_and_the_next_one_does_the_rest(
    stack: JobStack,
) -> None:
    first = job_of(stack, 2.5 * GROUP_SECONDS)
    assert (first.state.value, first.part, first.worked_seconds) == ("SUCCEEDED", 1, 3 * GROUP_SECONDS)
    answer = stack.job(first.job_id)["result"]
    assert (answer["status"], answer["reason"], answer["compacted"]) == ("PARTIAL", "PRICE", True)
    assert stack.files_by_partition() == [1] * 3 + [3] * 5
    stack.assert_rows_kept()
    second = job_of(stack, None, "fleet-2")
    assert stack.job(second.job_id)["result"]["status"] == "COMPLETED"
    assert stack.files_by_partition() == [1] * PARTITIONS
    stack.assert_rows_kept()


def test_the_parts_of_a_job_share_its_seconds(stack: JobStack) -> None:
    """A worker that is stopped after two groups hands the rest on, with the seconds that are left."""
    stopping = threading.Event()
    stack.after_group = lambda number: stopping.set() if number == 2 else None
    part = RunPart(base_run_id="fleet-1", part=1, request=CompactRequest(expire_snapshots=False))
    job_id = stack.service.jobs.submit(TABLE, part, Origin.FLEET, most_seconds=2.5 * GROUP_SECONDS).job_id
    assert stack.service.worker.run_due_job(stopping=stopping)
    assert stack.job(job_id)["state"] == "QUEUED"
    assert stack.work() == 1
    assert (stack.job(job_id)["state"], stack.job(job_id)["part"]) == ("SUCCEEDED", 2)
    assert stack.files_by_partition() == [1] * 3 + [3] * 5


def test_what_was_ended_for_its_price_is_partly_done_with_its_bill_and_waits_for_nothing(stack: JobStack) -> None:
    job = job_of(stack, 2.5 * GROUP_SECONDS)
    state = table(ill("t", 24, ident="default.t")).queued(live_run(job.run_id, queued_ms=NOW_MS, files_before=24))
    store = SqliteFleet(stack.folder / "fleet.db")
    store.change(state.table_uuid, lambda _: state)
    tariff = Tariff(price=LAMBDA, memory_bytes=2**30)
    assert settle([state], lambda *_: job, store, tariff) == 1
    (ended,) = store.states()
    assert ended.last_run is not None
    assert (ended.last_run.outcome, ended.last_run.files_after) == (FleetOutcome.PARTIAL, 18)
    requests = ended.last_run.predicted_dollars - LAMBDA.dollars(ended.last_run.predicted_seconds, 2**30)
    assert ended.last_run.actual_dollars == pytest.approx(LAMBDA.dollars(3 * GROUP_SECONDS, 2**30) + requests)
    assert "75 s that it may cost" in ended.last_run.error
    later = ended.last_run.ended_ms + 20 * 60_000 if ended.last_run.ended_ms else 0
    seen = replace(ended, observation=ill("t", 18, observed_ms=later))
    assert cooling(seen, FleetOperation.COMPACT, 1.0, later) is None
