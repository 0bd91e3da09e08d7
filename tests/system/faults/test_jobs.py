"""Rows 40, 57 and 58 for jobs: time that runs out, workers that die, messages that come twice or out of order."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from regelate.adapters.records.record_json import to_json
from regelate.core.jobs.job import JobRecord, JobState
from regelate.core.policy.policy import PlacementPolicy
from regelate.errors import Conflict, DataUnavailable, Unavailable
from regelate.operations.compacting.partial_progress import Watcher
from regelate.operations.jobs.jobs import cancel, changed, submit
from regelate.operations.jobs.parts import PartDone, run_part
from tests.system.faults.jobs import PARTITIONS, JobStack
from tests.system.faults.stack import assert_nothing_left_behind, request

BUDGET = 100.0
"""Ninety seconds of it are for rewriting: three groups of half a minute."""


@pytest.fixture
def stack(tmp_path: Path) -> JobStack:
    return JobStack(tmp_path)


def test_row_57_a_budget_that_ends_after_3_of_8_groups_commits_3_and_the_token_finishes_the_other_5(
    stack: JobStack,
) -> None:
    answer = stack.ok("COMPACT", "t", time_budget_seconds=BUDGET)
    assert (answer["status"], answer["reason"], answer["compacted"]) == ("PARTIAL", "TIME_BUDGET", True)
    assert (answer["stats"]["groups"], answer["stats"]["groups_deferred"]) == (3, 5)
    assert stack.files_by_partition() == [1] * 3 + [3] * 5
    stack.assert_rows_kept()
    rest = stack.ok("COMPACT", "t", resume_token=answer["resume_token"])
    assert (rest["status"], rest["stats"]["groups"], rest["stats"]["files_compacted"]) == ("COMPLETED", 5, 15)
    assert "resume_token" not in rest
    assert stack.files_by_partition() == [1] * PARTITIONS
    stack.assert_rows_kept()
    assert_nothing_left_behind(stack.table("default.t"))


def test_row_57_every_part_has_its_own_run_so_that_a_token_sent_twice_lands_once(stack: JobStack) -> None:
    first = stack.ok("COMPACT", "t", time_budget_seconds=BUDGET, idempotency_key="night")
    token = first["resume_token"]
    second = stack.ok("COMPACT", "t", resume_token=token, time_budget_seconds=BUDGET)
    assert second["status"] == "PARTIAL"
    again = stack.ok("COMPACT", "t", resume_token=token)
    assert (again["status"], again["snapshot_id"]) == ("ALREADY_DONE", second["snapshot_id"])
    assert stack.ok("COMPACT", "t", resume_token=second["resume_token"])["status"] == "COMPLETED"
    assert stack.replaced() == ["compact:night", "compact:night:part-2", "compact:night:part-3"]
    stack.assert_rows_kept()


def test_row_57_a_token_takes_up_what_was_there_at_the_beginning_and_nothing_younger(stack: JobStack) -> None:
    token = stack.ok("COMPACT", "t", time_budget_seconds=BUDGET)["resume_token"]
    for number in range(4):
        stack.ok("WRITE", "t", records=[{"id": 1000 + number, "p": "new"}])
    assert stack.ok("COMPACT", "t", resume_token=token)["stats"]["groups"] == 5
    assert stack.ok("COMPACT", "t")["stats"]["groups"] == 1


def test_row_57_a_part_never_rewrites_what_an_earlier_one_has_made(stack: JobStack) -> None:
    """Of a file that every rule selects, only its snapshot says that it is done."""
    answer = stack.ok("COMPACT", "t", time_budget_seconds=BUDGET, options={"rewrite-all": "true"})
    groups = [answer["stats"]["groups"]]
    while "resume_token" in answer:
        answer = stack.ok("COMPACT", "t", resume_token=answer["resume_token"], time_budget_seconds=BUDGET)
        groups.append(answer["stats"]["groups"])
        assert len(groups) < 9
    assert (groups, answer["status"]) == ([3, 3, 2], "COMPLETED")
    stack.assert_rows_kept()


def test_row_57_a_budget_in_which_no_group_fits_is_refused_and_nothing_is_written(stack: JobStack) -> None:
    with stack.untouched():
        stack.refused(507, "TOO_LONG", ["time that is left"], request("COMPACT", "t", time_budget_seconds=0.001))


def test_row_57_lambdas_own_end_stops_between_groups_too(stack: JobStack) -> None:
    answer = stack.invoke_within(BUDGET, request("COMPACT", "t"))
    assert (answer["status"], answer["stats"]["groups"]) == ("PARTIAL", 3)
    assert stack.ok("COMPACT", "t", resume_token=answer["resume_token"])["status"] == "COMPLETED"
    stack.assert_rows_kept()


def test_row_57_a_plan_that_does_not_fit_the_time_left_becomes_a_job(stack: JobStack) -> None:
    stack.built.again(placement=PlacementPolicy(memory_bytes=2**31, threads=1, max_in_process_seconds=0.05))
    status, answer = stack.post(request("COMPACT", "t"))
    assert (status, answer["status"], answer["reason"]) == (202, "DELEGATED", "TOO_LONG")
    assert stack.job(answer["job_id"])["origin"] == "TOO_LONG"
    assert stack.work() == 1
    assert stack.job(answer["job_id"])["state"] == "SUCCEEDED"
    assert stack.files_by_partition() == [1] * PARTITIONS


def test_row_57_a_job_whose_worker_runs_out_of_time_is_continued_by_the_next_message(stack: JobStack) -> None:
    job_id = stack.submit()
    run = stack.service.worker.run_job
    assert run(job_id, 1, seconds_left=BUDGET) is None
    told = stack.job(job_id)
    assert (told["state"], told["part"], told["progress"]) == ("QUEUED", 2, {"groups_done": 3, "groups_all": 8})
    assert run(job_id, 2, seconds_left=BUDGET) is None
    assert stack.job(job_id)["progress"] == {"groups_done": 6, "groups_all": 8}
    assert run(job_id, 3, seconds_left=BUDGET) is None
    told = stack.job(job_id)
    assert (told["state"], told["part"], told["progress"]) == ("SUCCEEDED", 3, {"groups_done": 8, "groups_all": 8})
    assert (told["totals"]["files_compacted"], len(told["totals"]["snapshot_ids"])) == (24, 3)
    assert stack.files_by_partition() == [1] * PARTITIONS
    stack.assert_rows_kept()


def test_a_server_that_stops_commits_what_is_done_and_the_next_one_goes_on(stack: JobStack) -> None:
    job_id, stopping = stack.submit(), threading.Event()
    stack.after_group = lambda number: stopping.set() if number == 2 else None
    assert stack.service.worker.run_due_job(stopping=stopping)
    assert (stack.job(job_id)["state"], stack.files_by_partition()) == ("QUEUED", [1] * 2 + [3] * 6)
    assert stack.work() == 1
    assert stack.job(job_id)["state"] == "SUCCEEDED"
    stack.assert_rows_kept()


def test_a_server_that_stops_before_the_first_group_leaves_the_job_as_it_was(stack: JobStack) -> None:
    job_id, stopping = stack.submit(), threading.Event()
    stopping.set()
    assert stack.service.worker.run_due_job(stopping=stopping)
    told = stack.job(job_id)
    assert (told["state"], told["part"], told["attempts"], stack.replaced()) == ("QUEUED", 1, 0, [])


def test_a_job_that_is_cancelled_between_two_groups_commits_nothing_more(stack: JobStack) -> None:
    job_id = stack.submit()
    stack.service.worker.run_job(job_id, 1, seconds_left=BUDGET)

    def cancel(number: int) -> None:
        if number == 5:
            assert stack.ok("JOB_CANCEL", job_id=job_id)["state"] == "CANCELLING"

    stack.after_group = cancel
    stack.service.worker.run_job(job_id, 2)
    told = stack.job(job_id)
    assert (told["state"], told["totals"]["files_compacted"]) == ("CANCELLED", 9)
    assert stack.files_by_partition() == [1] * 3 + [3] * 5
    assert len(stack.replaced()) == 1
    stack.assert_rows_kept()
    assert_nothing_left_behind(stack.table("default.t"))
    assert stack.work() == 0


def test_a_cancel_is_heard_also_by_a_worker_that_is_asked_to_stop(stack: JobStack) -> None:
    job_id = stack.submit()
    tools = stack.built.job_stores.tools
    assert tools is not None

    def work(_: Any, watcher: Watcher) -> PartDone:
        stopped = watcher.passed(0, PARTITIONS)
        stack.ok("JOB_CANCEL", job_id=job_id)
        return PartDone(stopped=stopped)

    assert run_part(tools, job_id, 1, work, stopping=lambda: True) is None
    assert stack.job(job_id)["state"] == "CANCELLED"


@pytest.mark.parametrize("state", ["tried often enough", "cancelling"])
def test_a_worker_that_slept_before_it_began_does_not_end_the_job_that_another_is_at(
    stack: JobStack, state: str
) -> None:
    job_id = stack.submit()
    tools = stack.built.job_stores.tools
    assert tools is not None
    for number in range(tools.max_attempts):
        changed(tools.store, job_id, lambda r, fence=99 + number: r.started(fence, r.updated_ms))
    if state == "cancelling":
        stack.ok("JOB_CANCEL", job_id=job_id)
    before = tools.store.get(job_id)
    with pytest.raises(Conflict, match="LEASE_LOST"):
        run_part(tools, job_id, 1, lambda *_: PartDone(answer="{}"))
    assert tools.store.get(job_id) == before


def test_a_bug_in_a_worker_that_lost_its_lease_reaches_the_log_and_changes_no_record(stack: JobStack) -> None:
    job_id = stack.submit()
    tools = stack.built.job_stores.tools
    assert tools is not None

    def work(_: Any, watcher: Watcher) -> PartDone:
        changed(tools.store, job_id, lambda r: r.taken_over(99, r.updated_ms))
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        run_part(tools, job_id, 1, work)
    assert stack.job(job_id)["state"] == "RUNNING"


def test_a_running_job_that_nobody_is_at_is_announced_again_by_who_asks_for_it_or_cancels_it(stack: JobStack) -> None:
    job_id = stack.submit()
    tools = stack.built.job_stores.tools
    assert tools is not None
    record = changed(tools.store, job_id, lambda r: r.started(1, r.updated_ms))
    announced: list[JobRecord] = []
    listening = replace(tools, queue=Announced(announced))
    lease = tools.store.acquire(record.lock, "a worker", 60)
    assert lease is not None
    submit(listening, record)
    assert announced == [], "a worker is at it"
    tools.store.release(lease)
    submit(listening, record)
    cancel(listening, job_id)
    assert [(told.job_id, told.state) for told in announced] == [
        (job_id, JobState.RUNNING),
        (job_id, JobState.CANCELLING),
    ]


@dataclass
class Announced:
    """A queue that only remembers."""

    sent: list[JobRecord]

    def send(self, record: JobRecord) -> None:
        self.sent.append(record)


def test_a_job_that_waits_is_cancelled_at_once_and_never_runs(stack: JobStack) -> None:
    job_id = stack.submit()
    assert stack.ok("JOB_CANCEL", job_id=job_id)["state"] == "CANCELLED"
    assert stack.ok("JOB_CANCEL", job_id=job_id)["state"] == "CANCELLED"
    assert (stack.work(), stack.service.worker.run_job(job_id, 1), stack.replaced()) == (0, None, [])
    assert stack.submit() != job_id


def test_what_has_ended_cannot_be_cancelled(stack: JobStack) -> None:
    job_id = stack.submit()
    stack.work()
    stack.refused(409, "JOB_FINISHED", ["SUCCEEDED"], request("JOB_CANCEL", job_id=job_id))


def test_a_second_compact_meets_the_running_job(stack: JobStack) -> None:
    job_id = stack.submit()
    met: list[Any] = []

    def ask(number: int) -> None:
        for fields in ({}, {"async": True}, {"force": True}, {"time_budget_seconds": 5}):
            status, answer = stack.post(request("COMPACT", "t", **fields))
            assert (status, answer["status"]) == (202, "DELEGATED")
            met.append(answer["job_id"])
        assert stack.ok("COMPACT", "t", dry_run=True)["status"] == "PLANNED"

    stack.after_group = ask
    stack.work()
    assert met == [job_id] * PARTITIONS * 4
    assert stack.ok("COMPACT", "t")["status"] == "NOTHING_TO_DO"


def test_a_job_that_only_waits_keeps_nobody_from_compacting_and_finds_nothing_to_do_afterwards(stack: JobStack) -> None:
    job_id = stack.submit()
    assert stack.submit() == job_id
    assert stack.ok("COMPACT", "t")["status"] == "COMPLETED"
    stack.work()
    told = stack.job(job_id)
    assert (told["state"], told["result"]["status"]) == ("SUCCEEDED", "NOTHING_TO_DO")


def test_row_40_a_message_that_comes_twice_or_late_lands_each_part_once(stack: JobStack) -> None:
    job_id = stack.submit()
    run = stack.service.worker.run_job
    assert run(job_id, 1, seconds_left=BUDGET) is None
    for part in (1, 1):  # the first message again, after its part is in the table
        assert run(job_id, part, seconds_left=BUDGET) is None
    assert len(stack.replaced()) == 1
    assert run(job_id, 3, seconds_left=1000) is None  # ahead of its time: it runs what is to be run
    for part in (1, 2, 3):
        assert run(job_id, part, seconds_left=1000) is None
    assert len(stack.replaced()) == 2
    assert stack.job(job_id)["state"] == "SUCCEEDED"
    stack.assert_rows_kept()


def test_row_40_the_same_event_at_two_workers_at_once_is_run_by_one(stack: JobStack) -> None:
    job_id = stack.submit()
    later: list[float | None] = []
    stack.after_group = lambda number: later.append(stack.service.worker.run_job(job_id, 1))
    assert stack.service.worker.run_job(job_id, 1) is None
    assert later == [60.0] * PARTITIONS
    assert len(stack.replaced()) == 1
    assert stack.service.worker.run_job(job_id, 1) is None


def test_row_40_one_event_submits_one_job_also_when_it_comes_after_the_end(stack: JobStack) -> None:
    job_id = stack.submit(idempotency_key="2026-11-21")
    assert stack.submit(idempotency_key="2026-11-21") == job_id
    stack.work()
    assert stack.submit(idempotency_key="2026-11-21") == job_id
    assert stack.job(job_id)["state"] == "SUCCEEDED"
    assert stack.work() == 0
    assert stack.ok("COMPACT", "t", idempotency_key="2026-11-21")["status"] == "ALREADY_DONE"
    assert len(stack.replaced()) == 1


def test_a_key_whose_job_does_something_else_is_refused_and_the_job_goes_on(stack: JobStack) -> None:
    job_id = stack.submit(idempotency_key="night")
    other = request("COMPACT", "t", idempotency_key="night", max_files=2, **{"async": True})
    error = stack.refused(422, "IDEMPOTENCY_KEY_REUSED", ["another request"], other)
    assert error["details"] == {"job_id": job_id}
    assert stack.work() > 0
    stack.refused(422, "IDEMPOTENCY_KEY_REUSED", ["another request"], other)
    assert stack.job(job_id)["state"] == "SUCCEEDED"


def test_row_40_a_key_whose_job_failed_is_served_anew_and_what_had_landed_lands_once(stack: JobStack) -> None:
    job_id = stack.submit(idempotency_key="night")
    stack.service.worker.run_job(job_id, 1, seconds_left=BUDGET)
    stack.before_batch = _fail
    stack.work()
    assert stack.job(job_id)["state"] == "FAILED"
    stack.before_batch = lambda: None
    status, answer = stack.post(request("COMPACT", "t", idempotency_key="night", **{"async": True}))
    assert (status, answer["job_id"], answer["job_state"]) == (202, f"{job_id}-2", "QUEUED")
    stack.work()
    assert stack.job(f"{job_id}-2")["state"] == "SUCCEEDED"
    assert stack.replaced() == ["compact:night", "compact:night:part-2"]
    assert stack.submit(idempotency_key="night") == f"{job_id}-2", "once it has succeeded, the key is used up"
    assert stack.job(job_id)["state"] == "FAILED"
    stack.assert_rows_kept()


def _fail() -> None:
    raise DataUnavailable("DATA_FILE_MISSING", "not there")


def test_the_answer_to_a_key_that_is_used_up_says_how_its_job_ended(stack: JobStack) -> None:
    fields: dict[str, Any] = {"idempotency_key": "k", "async": True}
    assert stack.post(request("COMPACT", "t", **fields))[1]["job_state"] == "QUEUED"
    stack.work()
    assert stack.post(request("COMPACT", "t", **fields))[1]["job_state"] == "SUCCEEDED"
    cancelled = stack.submit(idempotency_key="other")
    stack.ok("JOB_CANCEL", job_id=cancelled)
    answer = stack.post(request("COMPACT", "t", **{**fields, "idempotency_key": "other"}))[1]
    assert (answer["job_id"], answer["job_state"]) == (cancelled, "CANCELLED")
    assert stack.work() == 0


def test_a_request_that_no_record_can_hold_is_refused_before_a_job_is_made_of_it(stack: JobStack) -> None:
    wide = [{"p": f"{number:06}" * 100} for number in range(110)]
    body = request("COMPACT", "t", partition_filter=wide, **{"async": True})
    assert stack.refused(413, "PAYLOAD_TOO_LARGE", ["65536 bytes"], body)["retryable"] is False
    assert stack.service.jobs.recent_jobs(10) == ()
    narrow = {"partition_filter": wide[:100], "async": True}
    assert stack.post(request("COMPACT", "t", **narrow))[0] == 202


def test_a_store_that_does_not_take_the_progress_for_once_spoils_no_group(
    stack: JobStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = stack.submit()
    tools = stack.built.job_stores.tools
    assert tools is not None
    save, told = tools.store.save, 0

    def failing(before: JobRecord, after: JobRecord) -> bool:
        nonlocal told
        if after.state is JobState.RUNNING and after.groups_done >= 2:
            told += 1
            raise Unavailable("JOBS_UNAVAILABLE", "not now")
        return save(before, after)

    monkeypatch.setattr(tools.store, "save", failing)
    assert stack.work() == 1
    assert told == PARTITIONS - 1
    found = stack.job(job_id)
    assert (found["state"], found["totals"]["files_compacted"]) == ("SUCCEEDED", 24)
    stack.assert_rows_kept()


def test_a_worker_that_lost_its_lease_stops_though_the_store_does_not_take_its_progress(
    stack: JobStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = stack.submit()
    tools = stack.built.job_stores.tools
    assert tools is not None

    def taken_over(number: int) -> None:
        changed(tools.store, job_id, lambda record: record.started(record.fence + 1, record.updated_ms))

    stack.after_group = taken_over
    assert stack.service.worker.run_job(job_id, 1) == 60.0
    assert (stack.rewritten, stack.replaced()) == (1, [])


def failures(stack: JobStack) -> dict[str, float]:
    lines = stack.service.process.metrics_text().splitlines()
    found = [line.partition('code="')[2].split('"} ') for line in lines if "compactions_failed_total{" in line]
    return {code: float(value) for code, value in found}


def test_a_job_that_is_given_up_is_one_failed_compaction_however_often_its_message_comes(stack: JobStack) -> None:
    job_id = stack.submit()
    stack.service.process.metrics_text()
    stack.service.jobs.give_up_job(job_id, 1, "delivered 20 times")
    told = stack.job(job_id)
    assert (told["state"], told["error"]["code"], told["error"]["message"]) == (
        "FAILED",
        "JOB_UNSERVED",
        "delivered 20 times",
    )
    stack.service.jobs.give_up_job(job_id, 1, "delivered 21 times")
    stack.service.jobs.give_up_job("job-0", 1, "of no job")
    assert stack.service.worker.run_job(job_id, 1) is None
    assert failures(stack) == {"JOB_UNSERVED": 1.0}
    assert stack.submit() != job_id, "the table is free for another one"


def test_a_job_that_a_worker_is_at_is_not_given_up(stack: JobStack) -> None:
    job_id = stack.submit()
    stack.after_group = lambda number: stack.service.jobs.give_up_job(job_id, 1, "by a second message")
    stack.service.worker.run_job(job_id, 1, seconds_left=BUDGET)
    stack.service.jobs.give_up_job(job_id, 1, "by the message of a part that is done")
    stack.work()
    assert stack.job(job_id)["state"] == "SUCCEEDED"


def test_row_58_a_worker_that_died_after_its_commit_is_followed_by_one_that_finds_it(stack: JobStack) -> None:
    """It died before it could say what it had done: the part has landed, the record knows nothing of it."""
    job_id = stack.submit()
    store = stack.built.job_stores.tools.store  # type: ignore[union-attr]
    before = store.get(job_id)
    stack.service.worker.run_job(job_id, 1, seconds_left=BUDGET)
    after = store.get(job_id)
    running = before.started(1, before.updated_ms)
    _put_back(stack, job_id, running)
    assert store.get(job_id).part == 1 < after.part
    stack.work()
    told = stack.job(job_id)
    assert (told["state"], told["totals"]["files_compacted"]) == ("SUCCEEDED", 24)
    assert len(stack.replaced()) == len(told["totals"]["snapshot_ids"]) == 2
    assert stack.files_by_partition() == [1] * PARTITIONS
    stack.assert_rows_kept()


def test_row_58_a_job_that_kills_every_worker_is_given_up_with_its_name(stack: JobStack) -> None:
    job_id = stack.submit()
    store = stack.built.job_stores.tools.store  # type: ignore[union-attr]
    record = store.get(job_id)
    for fence in range(1, 4):
        record = record.started(fence, record.updated_ms)
    _put_back(stack, job_id, record)
    for _ in range(3):
        store.release(store.acquire(record.lock, "dead", 60))
    stack.service.process.metrics_text()
    assert stack.work() == 1
    told = stack.job(job_id)
    assert (told["state"], told["error"]["code"]) == ("FAILED", "WORKER_LOST")
    assert stack.service.worker.run_job(job_id, 1) is None
    assert failures(stack) == {"WORKER_LOST": 1.0}
    assert stack.ok("COMPACT", "t")["status"] == "COMPLETED"


def test_a_fault_that_may_pass_is_tried_again_later_under_the_same_run(stack: JobStack) -> None:
    job_id = stack.submit()
    faults = [Unavailable("CATALOG_UNAVAILABLE", "not now")]

    def fail() -> None:
        if faults and stack.rewritten == 2:
            raise faults.pop()

    stack.before_batch = fail
    assert stack.service.worker.run_job(job_id, 1) == 30.0
    told = stack.job(job_id)
    assert (told["state"], told["error"]["code"], told["attempts"]) == ("QUEUED", "CATALOG_UNAVAILABLE", 1)
    later = stack.service.worker.run_job(job_id, 1)
    assert later is not None
    assert 0 < later <= 30
    assert stack.work() == 0
    _put_back(stack, job_id, stack.built.job_stores.tools.store.get(job_id), not_before_ms=0)  # type: ignore[union-attr]
    assert stack.work() == 1
    assert stack.job(job_id)["state"] == "SUCCEEDED"
    assert_nothing_left_behind(stack.table("default.t"))


def test_a_fault_of_the_request_ends_the_job_with_its_error(stack: JobStack) -> None:
    job_id = stack.submit()
    stack.ok("DROP_TABLE", "t")
    stack.work()
    told = stack.job(job_id)
    assert (told["state"], told["error"]["code"]) == ("FAILED", "TABLE_NOT_FOUND")


def test_what_is_wrong_with_a_request_is_told_before_a_job_is_made_of_it(stack: JobStack) -> None:
    stack.refused(404, "TABLE_NOT_FOUND", ["nope"], request("COMPACT", "nope", **{"async": True}))
    bad = request("COMPACT", "t", strategy="sort", **{"async": True})
    stack.refused(400, "INVALID_OPTION", ["sort_order"], bad)
    stack.refused(400, "INVALID_FIELD", ["resume_token"], request("COMPACT", "t", resume_token="abc"))
    token = stack.ok("COMPACT", "t", time_budget_seconds=BUDGET)["resume_token"]
    both = request("COMPACT", "t", resume_token=token, force=True)
    stack.refused(400, "INVALID_FIELD", ["resume_token", "force"], both)
    stack.refused(400, "INVALID_FIELD", ["async"], request("COMPACT", "t", dry_run=True, **{"async": True}))
    assert stack.service.jobs.recent_jobs(10) == ()


def test_a_token_can_be_worked_off_by_a_job(stack: JobStack) -> None:
    token = stack.ok("COMPACT", "t", time_budget_seconds=BUDGET)["resume_token"]
    status, answer = stack.post(request("COMPACT", "t", resume_token=token, **{"async": True}))
    assert status == 202
    stack.work()
    assert stack.job(answer["job_id"])["totals"]["files_compacted"] == 15
    assert stack.files_by_partition() == [1] * PARTITIONS


def test_an_unknown_job_is_404_and_without_a_store_jobs_are_refused(stack: JobStack, tmp_path: Path) -> None:
    for operation in ("JOB_STATUS", "JOB_CANCEL"):
        stack.refused(404, "JOB_NOT_FOUND", [], request(operation, job_id="job-0"))
    without = JobStack(tmp_path / "without", store="none")
    for body in (request("JOB_STATUS", job_id="job-0"), request("COMPACT", "t", **{"async": True})):
        without.refused(501, "JOBS_DISABLED", ["jobs.store"], body)
    assert without.ok("COMPACT", "t")["status"] == "COMPLETED"


def _put_back(stack: JobStack, job_id: str, record: Any, **changes: object) -> None:
    """Set a record back to what it was, as if the worker had died before it could store more."""
    record = replace(record, **changes)
    with sqlite3.connect(stack.folder / "jobs.db") as db:
        db.execute(
            "UPDATE jobs SET state = ?, version = ?, not_before_ms = ?, body = ? WHERE job_id = ?",
            (record.state.value, record.version, record.not_before_ms, to_json(record), job_id),
        )
