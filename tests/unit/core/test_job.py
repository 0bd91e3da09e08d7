"""A job changes in no other way than its table of transitions says, and never loses what its parts did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.jobs.job import (
    MAX_RETRY_SECONDS,
    NEXT,
    JobRecord,
    JobState,
    JobTotals,
    Origin,
    retry_seconds,
    run_of_part,
)
from regelate.core.requests import CompactRequest
from regelate.errors import Conflict

Change = Callable[[JobRecord, int], JobRecord]


def job(**given: object) -> JobRecord:
    fields = {
        "job_id": "job-1",
        "tenant_id": "t",
        "catalog": "local",
        "ident": "db.t",
        "table": "t",
        "run_id": "run",
        "request": CompactRequest(force=True),
        "origin": Origin.REQUEST,
        "created_ms": 1,
        "updated_ms": 1,
        **given,
    }
    return JobRecord(**fields)  # type: ignore[arg-type]


def did(number: int) -> JobTotals:
    return JobTotals(files_compacted=3, files_added=1, bytes_saved=10, rows=5, snapshot_ids=(number,))


CHANGES: dict[str, tuple[Change, JobState]] = {
    "started": (lambda r, n: r.started(r.fence + 1, n), JobState.RUNNING),
    "progressed": (lambda r, n: r.progressed(n % 9, 8, n), JobState.RUNNING),
    "continued": (lambda r, n: r.continued("token", did(n), "{}", n), JobState.QUEUED),
    "retried": (lambda r, n: r.retried("{}", n), JobState.QUEUED),
    "put_back": (lambda r, n: r.put_back(n), JobState.QUEUED),
    "succeeded": (lambda r, n: r.succeeded(did(n), "{}", n), JobState.SUCCEEDED),
    "failed": (lambda r, n: r.failed("{}", n), JobState.FAILED),
    "cancel_asked": (lambda r, n: r.cancel_asked(n), JobState.CANCELLING),
    "cancelled": (lambda r, n: r.cancelled(n, did(n)), JobState.CANCELLED),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, 2**41)), max_size=30))
def test_any_sequence_of_changes_keeps_to_the_table_of_transitions(steps: list[tuple[str, int]]) -> None:
    record = job()
    for name, now in steps:
        try:
            after = CHANGES[name][0](record, now)
        except Conflict:
            assert record.state.is_final or name != "cancel_asked"
            continue
        if after is record:
            assert (name, record.state) in {("cancel_asked", s) for s in (JobState.CANCELLING, JobState.CANCELLED)}
            continue
        assert after.state in NEXT[record.state]
        assert after.version == record.version + 1
        assert after.updated_ms >= record.updated_ms
        assert after.fence >= record.fence
        assert after.part >= record.part
        assert set(record.totals.snapshot_ids) <= set(after.totals.snapshot_ids)
        assert (after.job_id, after.run_id, after.request, after.lock) == (
            record.job_id,
            record.run_id,
            record.request,
            record.lock,
        )
        record = after


@given(st.lists(st.integers(1, 5), max_size=12))
def test_the_totals_are_those_of_the_different_snapshots_however_often_each_is_told(told: list[int]) -> None:
    totals = JobTotals()
    for number in told:
        totals = totals.plus(did(number))
    different = len(set(told))
    assert (totals.files_compacted, totals.rows) == (3 * different, 5 * different)
    assert set(totals.snapshot_ids) == set(told)


def test_no_change_leads_out_of_a_final_state() -> None:
    for state in JobState:
        assert state.is_final == (state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED))
        for change, _ in CHANGES.values():
            record = job(state=state, result="{}", error="{}")
            if state.is_final:
                try:
                    assert change(record, 5) is record
                except Conflict:
                    continue


def test_a_worker_with_an_older_lease_cannot_begin() -> None:
    running = job().started(7, 2)
    with pytest.raises(Conflict) as caught:
        running.started(7, 3)
    assert caught.value.code == "LEASE_LOST"
    assert running.started(8, 3).attempts == 2


def test_the_next_part_begins_with_no_attempts_and_the_token_of_the_last() -> None:
    record = job().started(1, 2)
    again = record.retried("{}", 3).started(2, 4)
    following = again.continued("token", did(1), "{}", 5)
    assert (following.attempts, following.part, following.resume_token) == (0, 2, "token")
    assert run_of_part("run", record.part) == "run" != run_of_part("run", following.part)


def test_progress_counts_over_all_parts() -> None:
    first = job().started(1, 2).progressed(3, 8, 3)
    second = first.continued("token", did(1), "{}", 4).started(2, 5).progressed(0, 5, 6)
    assert (second.groups_done, second.groups_all) == (3, 8)
    assert second.progressed(5, 5, 7).groups_done == 8


def test_what_was_cancelled_waits_for_nobody_and_what_runs_is_asked_to_stop() -> None:
    assert job().cancel_asked(2).state is JobState.CANCELLED
    asked = job().started(1, 2).cancel_asked(3)
    assert asked.state is JobState.CANCELLING
    assert asked.cancel_asked(4) is asked
    done = asked.succeeded(did(1), "{}", 5)
    with pytest.raises(Conflict) as caught:
        done.cancel_asked(6)
    assert (caught.value.code, caught.value.retryable) == ("JOB_FINISHED", False)


def test_the_pause_before_another_try_doubles_up_to_a_quarter_of_an_hour() -> None:
    assert [retry_seconds(n) for n in (1, 2, 3)] == [30.0, 60.0, 120.0]
    assert retry_seconds(100) == MAX_RETRY_SECONDS == 900.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": JobState.FAILED},
        {"state": JobState.SUCCEEDED},
        {"groups_done": 3, "groups_all": 2},
        {"part": 0},
        {"groups_before": 2, "groups_done": 1, "groups_all": 5},
    ],
)
def test_a_record_that_could_be_wrong_cannot_be_built(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        replace(job(), **wrong)  # type: ignore[arg-type]
