"""Parts and jobs of a branch: the token and the record carry it, and its job stands in nobody's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.system.faults.jobs import PARTITIONS, JobStack
from tests.system.faults.stack import assert_nothing_left_behind, request


@pytest.fixture
def stack(tmp_path: Path) -> JobStack:
    """The branch `side` is on main's snapshot."""
    made = JobStack(tmp_path)
    table = made.table("default.t")
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "side").commit()
    return made


def files(stack: JobStack, ref: str) -> int:
    return len(list(stack.table("default.t").scan().use_ref(ref).plan_files()))


def test_a_token_finishes_the_branch_that_it_was_begun_on(stack: JobStack) -> None:
    main = stack.table("default.t").metadata.refs["main"]
    part = stack.ok("COMPACT", "t", ref="side", time_budget_seconds=100)
    assert (part["status"], part["stats"]["groups"]) == ("PARTIAL", 3)
    stack.refused(400, "INVALID_FIELD", ["ref"], request("COMPACT", "t", ref="side", resume_token=part["resume_token"]))
    rest = stack.ok("COMPACT", "t", resume_token=part["resume_token"])
    assert (rest["status"], rest["stats"]["groups"]) == ("COMPLETED", PARTITIONS - 3)
    assert (files(stack, "side"), files(stack, "main")) == (PARTITIONS, 3 * PARTITIONS)
    assert stack.table("default.t").metadata.refs["main"] == main
    assert_nothing_left_behind(stack.table("default.t"))


def test_a_job_works_on_its_branch_and_main_is_compacted_beside_it(stack: JobStack) -> None:
    job_id = stack.submit(ref="side")
    busy = request("COMPACT", "t", **{"async": True})
    beside: list[Any] = []

    def ask(number: int) -> None:
        stack.after_group = lambda number: None
        told = stack.refused(503, "JOB_BUSY", ["'side'", job_id], busy)
        beside.append(told["details"]["job_id"])
        status, met = stack.post(request("COMPACT", "t", ref="side"))
        beside.append((status, met["job_id"], met["reason"]))
        beside.append(stack.ok("COMPACT", "t")["status"])

    stack.after_group = ask
    stack.work()
    assert beside == [job_id, (202, job_id, "JOB_RUNNING"), "COMPLETED"]
    assert stack.job(job_id)["state"] == "SUCCEEDED"
    assert (files(stack, "side"), files(stack, "main")) == (PARTITIONS, PARTITIONS)
    assert stack.rows_now() == stack.expected
    assert stack.ok("QUERY", "t", ref="side", aggregates=[{"function": "count"}])["rows"] == [{"count": 24}]


def test_a_branch_that_is_dropped_before_its_job_begins_ends_the_job_by_its_name(stack: JobStack) -> None:
    stack.refused(404, "REF_NOT_FOUND", ["'x'"], request("COMPACT", "t", ref="x", **{"async": True}))
    job_id = stack.submit(ref="side")
    stack.table("default.t").manage_snapshots().remove_branch("side").commit()
    stack.work()
    told = stack.job(job_id)
    assert (told["state"], told["error"]["code"]) == ("FAILED", "REF_NOT_FOUND")
    assert files(stack, "main") == 3 * PARTITIONS


def test_a_key_that_was_a_job_of_main_is_none_of_a_branch(stack: JobStack) -> None:
    stack.submit(idempotency_key="k")
    stack.work()
    body = request("COMPACT", "t", ref="side", idempotency_key="k", **{"async": True})
    stack.refused(422, "IDEMPOTENCY_KEY_REUSED", ["another request"], body)
