"""Looks at a run of Spark's that go wrong, come late or meet another change: the job still comes to its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regelate.core.access import spark_policy
from regelate.core.jobs.job import JobRecord, Origin
from regelate.core.jobs.spark_job import SparkRequest, SparkRun, SparkState, answered
from regelate.core.policy.policy import PlacementPolicy
from regelate.core.requests import CompactRequest
from regelate.errors import Unavailable
from regelate.service.spark_spec import spec_of
from regelate.settings import load_settings
from tests.entrypoints.fakes import LambdaContext
from tests.system.faults.stack import LOCAL_CATALOG
from tests.system.faults.test_delegation import DONE, EMR, RUNNING, SparkStack
from tests.system.faults.test_jobs import BUDGET

EVENT = {"source": "aws.emr-serverless", "detail-type": "EMR Serverless Job Run State Change"}
LARGE = PlacementPolicy(memory_bytes=2**31, threads=1)
SMALL = replace(LARGE, max_in_process_bytes=1000)
THROTTLED = Unavailable("SPARK_UNAVAILABLE", "AWS answered ThrottlingException")


@pytest.fixture
def stack(tmp_path: Path) -> SparkStack:
    return SparkStack(tmp_path)


@pytest.fixture
def job_id(stack: SparkStack) -> str:
    """A job that Spark is at."""
    made = stack.ask()
    stack.work()
    return made


def during_the_look(stack: SparkStack, then: Callable[[], object]) -> None:
    """Let something happen while a worker asks Spark, the next time it does."""
    look = stack.spark.look

    def looked(run_id: str) -> SparkRun:
        stack.spark.look = look  # type: ignore[method-assign]
        then()
        return look(run_id)

    stack.spark.look = looked  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "answer",
    [{}, {"success": False}, {"success": False, "error": "?"}, {"success": True}, {**DONE.answer, "stats": {}}],  # type: ignore[dict-item]
    ids=["empty", "no-error", "no-object", "no-fields", "no-stats"],
)
def test_a_result_that_cannot_be_read_fails_the_job_and_frees_the_table(
    stack: SparkStack, job_id: str, answer: Mapping[str, Any]
) -> None:
    told = stack.look(job_id, SparkRun(state=SparkState.ENDED, answer=answer))
    assert (told["state"], told["error"]["code"]) == ("FAILED", "DELEGATION_FAILED")
    assert "cannot be read" in told["error"]["message"]
    stack.assert_table_is_free()


@pytest.mark.parametrize("result", [b"", b'{"success": tr', b"[1]", b"\xff\xfe"])
def test_a_result_that_is_no_json_object_is_none(result: bytes) -> None:
    assert answered(result) == SparkRun(state=SparkState.ENDED, detail="its result is not a JSON object")


def test_a_look_that_breaks_down_ends_the_job_and_does_not_hold_its_table(stack: SparkStack, job_id: str) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    during_the_look(stack, broken)
    with pytest.raises(ZeroDivisionError):
        stack.look(job_id)
    told = stack.job(job_id)
    assert (told["state"], told["error"]["code"]) == ("FAILED", "INTERNAL_ERROR")
    stack.assert_table_is_free()


def test_a_run_that_ended_long_before_anybody_looked_has_succeeded(stack: SparkStack, job_id: str) -> None:
    told = stack.look(job_id, DONE, minutes=60 * 24)
    assert (told["state"], told["result"]["snapshot_id"]) == ("SUCCEEDED", 77)
    assert "seen too late" in told["result"]["warnings"][0]
    stack.assert_table_is_free()


def test_a_cancelled_run_that_never_ends_does_not_hold_its_table(stack: SparkStack, job_id: str) -> None:
    stack.ok("JOB_CANCEL", job_id=job_id)
    assert stack.look(job_id, RUNNING, minutes=69)["state"] == "CANCELLING"
    assert stack.look(job_id, minutes=2)["error"]["code"] == "DELEGATION_TIMEOUT"
    stack.assert_table_is_free()


def test_what_goes_wrong_after_the_rewrite_does_not_fail_the_job(
    stack: SparkStack, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("regelate.operations.upkeep.expire.expire_after_commit", broken)
    told = stack.look(job_id, DONE)
    assert (told["state"], told["result"]["stats"]["files_compacted"]) == ("SUCCEEDED", 24)
    assert "No space left" in told["result"]["warnings"][0]


def test_a_cancellation_during_a_look_reaches_spark_at_once(stack: SparkStack, job_id: str) -> None:
    during_the_look(stack, lambda: stack.ok("JOB_CANCEL", job_id=job_id))
    stack.look(job_id, RUNNING)
    assert stack.spark.cancelled == []
    assert stack.work() == 1
    assert len(stack.spark.cancelled) == 1
    assert stack.work() == 0


def test_a_cancellation_during_the_start_reaches_spark_at_once(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.spark.after_start = lambda: stack.ok("JOB_CANCEL", job_id=job_id)
    stack.spark.state = RUNNING
    assert stack.work() == 2
    assert (len(stack.spark.cancelled), stack.spark.starts) == (1, 1)


def test_an_event_whose_look_failed_comes_again(stack: SparkStack, job_id: str) -> None:
    event = {**EVENT, "detail": {"jobRunId": stack.job(job_id)["run"]}}
    stack.spark.state, look = DONE, stack.spark.look

    def throttled(run_id: str) -> SparkRun:
        stack.spark.look = look  # type: ignore[method-assign]
        raise THROTTLED

    stack.spark.look = throttled  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=job_id):
        stack._handler(event, LambdaContext())
    assert stack.job(job_id)["state"] == "RUNNING"
    assert stack._handler(event, LambdaContext())["job_id"] == job_id
    assert stack.job(job_id)["state"] == "SUCCEEDED"


def test_an_event_that_is_faster_than_the_note_of_its_run_comes_again(stack: SparkStack) -> None:
    job_id = stack.ask()
    seen: list[str] = []

    def ended_at_once() -> None:
        (name,) = stack.spark.specs
        with pytest.raises(Unavailable) as refused:
            stack._handler({**EVENT, "detail": {"jobRunId": f"run-of-{name}"}}, LambdaContext())
        seen.append(refused.value.code)

    stack.spark.after_start = ended_at_once
    assert (stack.work(), seen) == (1, ["JOB_BUSY"])
    event = {**EVENT, "detail": {"jobRunId": stack.job(job_id)["run"]}}
    stack.spark.state = DONE
    assert stack._handler(event, LambdaContext())["job_id"] == job_id


def test_a_job_that_is_cancelled_before_it_is_handed_over_or_after_never_starts_in_spark(stack: SparkStack) -> None:
    stack.built.again(placement=SMALL)
    after = stack.submit()
    stack.service.worker.run_job(after, 1)
    told = stack.job(after)
    assert (told["state"], told["engine"], told["run"]) == ("QUEUED", "spark", None)
    assert stack.ok("JOB_CANCEL", job_id=after)["state"] == "CANCELLED"
    before = stack.submit()

    def cancel() -> None:
        stack.before_run = lambda: None
        assert stack.ok("JOB_CANCEL", job_id=before)["state"] == "CANCELLING"

    stack.before_run = cancel
    assert (stack.work(), stack.job(before)["state"], stack.spark.starts) == (1, "CANCELLED", 0)
    stack.built.again(placement=LARGE)
    stack.assert_table_is_free()


def test_a_job_that_has_begun_here_is_never_handed_over(stack: SparkStack) -> None:
    job_id = stack.submit()
    stack.service.worker.run_job(job_id, 1, seconds_left=BUDGET)
    assert stack.job(job_id)["part"] == 2
    stack.built.again(placement=replace(LARGE, max_in_process_seconds=0.001))
    stack.service.worker.run_job(job_id, 2, seconds_left=BUDGET)
    assert (stack.job(job_id)["engine"], stack.spark.starts) == ("duckdb", 0)


def test_a_run_whose_starter_died_is_cancelled_by_the_next_look(stack: SparkStack) -> None:
    """Nobody has noted that it began; the job only says that it may have."""
    job_id = stack.ask()
    tools = stack.built.job_stores.tools
    assert tools is not None
    queued = tools.store.get(job_id)
    assert queued is not None
    stack.spark.start(spec_of(stack.service.settings, queued))
    assert tools.store.save(queued, queued.started(1, queued.updated_ms))
    stack.ok("JOB_CANCEL", job_id=job_id)
    lease = tools.store.acquire(queued.lock, "the dead one", 0.0)
    assert lease is not None
    stack.spark.state = RUNNING
    assert stack.work() == 1
    assert (len(stack.spark.cancelled), stack.spark.starts) == (1, 1)


def test_messages_that_nobody_could_serve_do_not_end_a_job_that_spark_is_at(stack: SparkStack, job_id: str) -> None:
    stack.service.jobs.give_up_job(job_id, 1, "delivered 20 times")
    assert stack.job(job_id)["state"] == "RUNNING"
    assert stack.look(job_id, DONE)["state"] == "SUCCEEDED"


def test_a_run_for_a_tenant_has_a_policy_for_its_tables_and_its_own_result(tmp_path: Path) -> None:
    shared = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}", "warehouse": "s3://lake/warehouse"}
    section = {
        "tenants": ["acme", "other"], "auth": "none", "spark": EMR, "jobs": {"store": "sqlite", "path": "/j"},
        "catalogs": {"local": shared}, "iceberg": {"compaction": {"max_files_per_compaction": 50}},
    }  # fmt: skip
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"environments": {"development": section}}))
    settings = load_settings({"REGELATE_CONFIG": str(config), "REGELATE_HOME": str(tmp_path)})
    record = JobRecord(
        job_id="job-1", tenant_id="acme", catalog="local", ident="acme__a.t", table="t", run_id="r",
        request=CompactRequest(), origin=Origin.REQUEST, created_ms=7, updated_ms=7,
    )  # fmt: skip
    spec = spec_of(settings, record)
    assert spec.policy == spark_policy("acme", "s3://lake/warehouse", EMR["location"], "job-1-7")
    assert '"arn:aws:s3:::results/spark/results/job-1-7.json"' in str(spec.policy)
    assert SparkRequest.of_json(spec.request).defaults.max_files is None


@pytest.mark.parametrize(("minutes", "code"), [(5, "DELEGATION_FAILED"), (60, "DELEGATION_TIMEOUT")])
def test_a_run_that_was_cancelled_there_and_not_by_us_has_failed_and_frees_the_table(
    stack: SparkStack, job_id: str, minutes: float, code: str
) -> None:
    """By somebody at AWS, or by EMR itself when the run's time is over: both end as CANCELLED there."""
    told = stack.look(job_id, SparkRun(state=SparkState.CANCELLED), minutes=minutes)
    assert (told["state"], told["error"]["code"]) == ("FAILED", code)
    stack.assert_table_is_free()


def test_a_run_that_ends_before_its_cancellation_arrives_has_succeeded(stack: SparkStack, job_id: str) -> None:
    def too_late(run_id: str) -> None:
        raise Unavailable("SPARK_UNAVAILABLE", "AWS answered ValidationException", retryable=False)

    stack.ok("JOB_CANCEL", job_id=job_id)
    stack.spark.cancel = too_late  # type: ignore[method-assign]
    assert stack.look(job_id, RUNNING)["state"] == "CANCELLING"
    assert stack.look(job_id, DONE)["state"] == "SUCCEEDED"
