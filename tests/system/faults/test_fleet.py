"""Many tables: a sweep that submits jobs for the unhealthiest, and writes that ask for a compaction themselves."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from regelate.adapters.clock import SystemClock
from regelate.core.policy.options import AUTO_PROPERTY
from regelate.errors import Unavailable
from regelate.service.compactions import Compactions
from tests.system.faults.jobs import JobStack
from tests.system.faults.stack import Answer, request


@pytest.fixture
def stack(tmp_path: Path) -> JobStack:
    return JobStack(tmp_path)


def ill(stack: JobStack, table: str, files: int) -> None:
    stack.create(table, {"id": "long!"})
    for number in range(files):
        stack.ok("WRITE", table, records=[{"id": number}])


def by_table(answer: Answer) -> dict[str, Any]:
    return {found["table"]: found for found in answer["ranking"]}


def test_a_sweep_submits_jobs_for_the_unhealthiest_tables_within_its_budget_and_says_why(stack: JobStack) -> None:
    ill(stack, "worse", 40)
    ill(stack, "well", 1)
    answer = stack.ok("SWEEP", health_below=100, max_jobs=1)
    assert (answer["tables_swept"], answer["jobs_submitted"], answer["jobs_backlog"]) == (3, 1, 1)
    found = by_table(answer)
    assert (found["default.worse"]["rank"], found["default.t"]["rank"]) == ("COMPACT", "OVER_BUDGET")
    assert "40 files" in found["default.worse"]["reason"]
    assert "default.well" not in found
    told = stack.job(found["default.worse"]["job_id"])
    assert (told["origin"], told["state"], told["table"]) == ("SWEEP", "QUEUED", "default.worse")
    stack.work()
    second = stack.ok("SWEEP", health_below=100, max_jobs=1)
    assert (second["jobs_submitted"], second["jobs_backlog"]) == (1, 0)
    stack.work()
    stack.assert_rows_kept()
    third = stack.ok("SWEEP", health_below=100)
    assert (third["jobs_submitted"], third["ranking"]) == (0, [])


def test_a_sweep_leaves_alone_what_is_above_its_threshold(stack: JobStack) -> None:
    answer = stack.ok("SWEEP", health_below=1)
    assert (answer["jobs_submitted"], by_table(answer)["default.t"]["rank"]) == (0, "HEALTHY")


def test_a_dry_sweep_ranks_and_submits_nothing(stack: JobStack) -> None:
    answer = stack.ok("SWEEP", health_below=100, dry_run=True)
    assert (answer["jobs_submitted"], by_table(answer)["default.t"]["rank"]) == (0, "COMPACT")
    assert stack.service.jobs.recent_jobs(9) == ()


def test_a_sweep_meets_the_job_that_a_table_has_and_spends_nothing_on_it(stack: JobStack) -> None:
    ill(stack, "worse", 40)
    job_id = stack.submit("worse")
    answer = stack.ok("SWEEP", health_below=100, max_jobs=1)
    found = by_table(answer)
    assert (found["default.worse"]["rank"], found["default.worse"]["job_id"]) == ("JOB_RUNNING", job_id)
    assert (found["default.t"]["rank"], answer["jobs_submitted"]) == ("COMPACT", 1)


def test_a_sweep_announces_a_job_again_whose_message_was_lost(stack: JobStack) -> None:
    stack.submit()
    bell = stack.service.worker.job_bell
    bell.clear()
    stack.ok("SWEEP", dry_run=True)
    assert not bell.is_set()
    stack.ok("SWEEP")
    assert bell.is_set()


def test_a_table_that_cannot_be_read_keeps_no_other_from_its_job(stack: JobStack) -> None:
    ill(stack, "broken", 1)
    with stack.table("default.broken").transaction() as change:  # another engine's doing: ALTER_TABLE refuses it
        change.set_properties({"regelate.compaction.min-input-files": "zero"})
    answer = stack.ok("SWEEP", health_below=100)
    (error,) = [found["error"] for found in answer["tables"] if found["table"] == "default.broken"]
    assert error["code"] == "INVALID_TABLE_PROPERTY"
    assert answer["jobs_submitted"] == 1


def writes(stack: JobStack, auto: str, number: int = 5, *, switch: str = "regelate.compaction.auto") -> list[Answer]:
    stack.built.again(clock=SystemClock())  # the check has a time cap, by the reader's own clock
    properties = {switch: auto, "regelate.auto.min-num-files": "5"}
    stack.create("w", {"id": "long!"}, properties=properties)
    return [stack.ok("WRITE", "w", records=[{"id": i}]) for i in range(number)]


def test_auto_async_submits_one_job_after_the_write_that_finds_enough(stack: JobStack) -> None:
    answers = writes(stack, "async", 11)
    jobs = [answer["compaction_job_id"] for answer in answers]
    assert [answer["compaction_recommended"] for answer in answers].count(True) == 2
    assert jobs[4] is not None
    assert jobs[9] == jobs[4]
    assert [job for job in jobs if job is not None] == [jobs[4], jobs[4]]
    assert stack.job(jobs[4])["origin"] == "WRITE"
    stack.work()
    assert stack.job(jobs[4])["totals"]["files_compacted"] == 11


def test_a_write_obeys_the_one_property_that_turns_automatic_runs_on(stack: JobStack) -> None:
    (job,) = {answer["compaction_job_id"] for answer in writes(stack, "true", switch=AUTO_PROPERTY)[4:]}
    stack.work()
    assert (stack.job(job)["origin"], stack.job(job)["totals"]["files_compacted"]) == ("WRITE", 5)


@pytest.mark.parametrize("auto", ["async", "sync"])
def test_auto_starts_nothing_after_a_write_to_a_branch_and_recommends(stack: JobStack, auto: str) -> None:
    writes(stack, auto, 4)
    table = stack.table("default.w")
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "side").commit()
    told = stack.ok("WRITE", "w", ref="side", records=[{"id": 9}])
    assert (told["compaction_recommended"], told["small_files_count"]) == (True, 5)
    assert (told["compaction_job_id"], told["compaction_status"]) == (None, None)
    assert (stack.work(), len(stack.rows("w")), len(stack.rows("w", ref="side"))) == (0, 4, 5)


def test_auto_sync_compacts_within_the_write(stack: JobStack) -> None:
    answers = writes(stack, "sync")
    assert [answer["compaction_status"] for answer in answers] == [None] * 4 + ["COMPLETED"]
    assert len(list(stack.table("default.w").scan().plan_files())) == 1
    assert len(stack.rows("w")) == 5


def test_an_automatic_run_leaves_alone_what_reached_half_of_the_target_of_its_day(stack: JobStack) -> None:
    """Five rows of some 17 KB become one file for a target of 128 KB, five times; then the target is raised to 1 MB."""
    limit = "regelate.auto.max-file-size-bytes"
    properties = {"regelate.auto.min-num-files": "5", limit: str(128 * 1024)}
    stack.create("w", {"id": "long!", "text": "string"}, properties=properties)
    for _ in range(5):
        for _ in range(5):
            stack.ok("WRITE", "w", records=[{"id": 1, "text": secrets.token_hex(15_000)}])
        assert stack.ok("COMPACT", "w", selection="size-tiered")["stats"]["files_compacted"] == 5
    made = [file.file.file_path for file in stack.table("default.w").scan().plan_files()]
    assert [path.endswith(f"-t{128 * 1024}.parquet") for path in made] == [True] * 5
    stack.ok("ALTER_TABLE", "w", set_properties={limit: str(1024 * 1024)})
    assert stack.ok("COMPACT", "w", selection="size-tiered")["status"] == "NOTHING_TO_DO"
    by_hand = {"target-file-size-bytes": str(1024 * 1024), "min-file-size-bytes": str(512 * 1024)}
    assert stack.ok("COMPACT", "w", options=by_hand)["stats"]["files_compacted"] == 5


@pytest.mark.parametrize("surprise", [False, True])
def test_auto_sync_never_fails_the_write(stack: JobStack, monkeypatch: pytest.MonkeyPatch, surprise: bool) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug") if surprise else Unavailable("STORAGE_UNAVAILABLE", "not now")

    if surprise:
        monkeypatch.setattr(Compactions, "compact", fail)
    else:
        stack.before_batch = fail
    status = writes(stack, "sync")[4]["compaction_status"]
    assert status == ("INTERNAL_ERROR" if surprise else "STORAGE_UNAVAILABLE")
    assert len(stack.rows("w")) == 5


def test_a_sweep_begins_no_table_that_would_keep_it_from_submitting_jobs(stack: JobStack) -> None:
    writes(stack, "recommend")
    answer = stack.invoke_within(1.0, {"operation": "SWEEP", "tenant_id": "default"})
    assert (answer["tables_swept"], answer["backlog"] > 0) == (0, True)


def test_auto_async_without_jobs_recommends_and_as_a_setting_it_is_refused(tmp_path: Path) -> None:
    stack = JobStack(tmp_path / "none", store="none")
    last = writes(stack, "async")[4]
    assert (last["compaction_recommended"], last["compaction_job_id"]) == (True, None)
    stack.ok("DROP_TABLE", "w", purge=True)
    last = writes(stack, "true", switch=AUTO_PROPERTY)[4]
    assert (last["compaction_recommended"], last["compaction_job_id"]) == (True, None)


def test_a_property_that_is_no_choice_of_auto_is_refused(stack: JobStack) -> None:
    body = request(
        "CREATE_TABLE", "x", schema={"fields": {"id": {"type": "long"}}}, properties={"regelate.compaction.auto": "x"}
    )
    stack.refused(400, "INVALID_OPTION", ["auto", "recommend, async, sync"], body)


@pytest.mark.parametrize("auto", ["async", "sync"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("regelate.auto.min-num-files", "-3"),
        ("regelate.auto.min-files", "3"),
        ("regelate.compaction.auto", "later"),
        (AUTO_PROPERTY, "yes"),
    ],
)
def test_a_property_that_another_engine_set_wrongly_is_reported_and_not_obeyed(
    stack: JobStack, auto: str, name: str, value: str
) -> None:
    writes(stack, auto, 4)
    with stack.table("default.w").transaction() as change:
        change.set_properties({name: value})
    told = stack.ok("WRITE", "w", records=[{"id": 9}])
    assert (told["compaction_recommended"], told["compaction_status"]) == (False, "INVALID_TABLE_PROPERTY")
    assert (stack.work(), len(stack.rows("w"))) == (0, 5)
    body = request("ALTER_TABLE", "w", set_properties={name: value})
    stack.refused(400, "INVALID_OPTION", [name, value], body)
