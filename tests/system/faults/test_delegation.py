"""Rows 33, 59 and 60: what is left to Spark, and what becomes of it, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regelate.core.engines import COST_HERE
from regelate.core.jobs.spark_job import SparkJobSpec, SparkRequest, SparkRun, SparkState
from regelate.core.policy.policy import MB, PlacementPolicy
from regelate.core.requests import CompactRequest
from regelate.core.running.stats import CompactionStats, PhaseSeconds
from regelate.errors import RegelateError, Unavailable
from tests.entrypoints.fakes import LambdaContext
from tests.system.faults.jobs import JobStack
from tests.system.faults.stack import edit_metadata, request

EMR = {
    "run": "emr-serverless",
    "application_id": "00app",
    "role_arn": "arn:aws:iam::123456789012:role/spark",
    "location": "s3://results/spark",
    "start_minutes": 10,
    "timeout_minutes": 60,
    "seconds_between_looks": 3600,
}
STATS: Mapping[str, Any] = CompactionStats(
    files_before=24, files_after=8, files_compacted=24, files_removed=24, files_added=8, bytes_before=9000,
    bytes_after=8000, bytes_saved=1000, compaction_time_ms=1.0, small_files_remaining=0, engine="spark", groups=8,
    groups_deferred=0, rows=24, delete_files_removed=0, manifests_before=3, manifests_after=1, commit_attempts=1,
    dropped_groups=0, seconds=PhaseSeconds(rewrite=5.0),
).as_dict()  # fmt: skip
DONE = SparkRun(
    state=SparkState.ENDED,
    answer={
        "success": True, "compacted": True, "status": "COMPLETED", "reason": "RECOMMENDED", "snapshot_after": 78,
        "snapshot_ids": [76, 77], "stats": STATS, "warnings": [],
    },
)  # fmt: skip
WAITING, RUNNING = SparkRun(state=SparkState.WAITING), SparkRun(state=SparkState.RUNNING)


class FakeSpark:
    """Implements SparkJobs in memory. `faults` are raised by the next calls, whichever these are."""

    def __init__(self) -> None:
        self.specs: dict[str, SparkJobSpec] = {}
        self.state: SparkRun = WAITING
        self.faults: list[RegelateError] = []
        self.after_start: Callable[[], None] = lambda: None
        self.starts = 0
        self.cancelled: list[str] = []

    def _fault(self) -> None:
        if self.faults:
            raise self.faults.pop(0)

    def start(self, spec: SparkJobSpec) -> str:
        self._fault()
        self.starts += spec.name not in self.specs
        self.specs[spec.name] = spec
        self.after_start()
        return f"run-of-{spec.name}"

    def look(self, run_id: str) -> SparkRun:
        self._fault()
        if run_id.removeprefix("run-of-") not in self.specs:
            return SparkRun(state=SparkState.ENDED, detail="EMR Serverless knows no such run")
        return self.state

    def cancel(self, run_id: str) -> None:
        self._fault()
        self.cancelled.append(run_id)

    def job_of(self, run_id: str) -> str | None:
        spec = self.specs.get(run_id.removeprefix("run-of-"))
        return None if spec is None else spec.job_id


class SparkStack(JobStack):
    """Jobs whose Spark is a fake; `later` moves the job store's time."""

    def __init__(self, folder: Path) -> None:
        self.spark = FakeSpark()
        super().__init__(folder, spark=EMR, runs_spark=self.spark)
        store = self.built.job_stores.embedded
        assert store is not None
        self.passed_ms, real = 0, store.now_ms
        store.now_ms = lambda: real() + self.passed_ms  # type: ignore[method-assign]

    def upgrade_to_v3(self) -> None:
        edit_metadata(self.table("default.t"), lambda m: m.update({"format-version": 3, "next-row-id": 30}))

    def ask(self, **fields: object) -> str:
        status, answer = self.post(request("COMPACT", "t", **{"engine": "spark", **fields}))
        assert (status, answer["status"], answer["engine"]) == (202, "DELEGATED", "spark"), answer
        return str(answer["job_id"])

    def look(self, job_id: str, state: SparkRun | None = None, *, minutes: float = 0) -> dict[str, Any]:
        """Let time pass, look after the job as a worker does, and return how it stands."""
        self.spark.state = self.spark.state if state is None else state
        self.passed_ms += int(minutes * 60_000)
        self.service.worker.run_job(job_id, 1, at_once=True)
        return self.job(job_id)

    def assert_table_is_free(self) -> None:
        tools = self.built.job_stores.tools
        assert tools is not None
        assert not tools.store.held("local/default.t")
        assert tools.store.live("local/default.t") is None
        assert self.ok("COMPACT", "t", engine="duckdb")["status"] == "COMPLETED"


@pytest.fixture
def stack(tmp_path: Path) -> SparkStack:
    return SparkStack(tmp_path)


def test_a_job_of_sparks_ends_with_the_stats_that_it_answered(stack: SparkStack) -> None:
    stack.service.process.metrics_text()
    job_id = stack.ask(force=True)
    assert stack.work() == 1
    told = stack.job(job_id)
    assert (told["state"], told["engine"], told["explanation"]) == ("RUNNING", "spark", "the request asks for Spark")
    (spec,) = stack.spark.specs.values()
    assert (spec.table, spec.timeout_seconds) == ("local.default.t", 3600)
    assert SparkRequest.of_json(spec.request).compact == CompactRequest(force=True, engine="spark")
    assert stack.look(job_id, RUNNING)["state"] == "RUNNING"
    told = stack.look(job_id, DONE)
    assert (told["state"], told["result"]["status"], told["result"]["stats"]["rows"]) == ("SUCCEEDED", "COMPLETED", 24)
    assert told["totals"]["snapshot_ids"] == [76, 77]
    assert "regelate_compactions_succeeded_total 1.0" in stack.service.process.metrics_text()
    assert stack.spark.starts == 1
    stack.assert_table_is_free()


def test_spark_is_sent_the_filter_in_its_words_and_what_the_configuration_says(stack: SparkStack) -> None:
    stack.ask(where="\"p\" = 'it''s'", snapshot_retention_hours=5)
    stack.work()
    (spec,) = stack.spark.specs.values()
    sent, settings = SparkRequest.of_json(spec.request), stack.service.settings
    assert sent.compact.where == "`p` = 'it\\'s'"
    assert (sent.compact.verify, sent.config_verify, sent.compact.snapshot_retention_hours) == (
        None,
        settings.verify,
        5,
    )
    assert (sent.retention, sent.defaults.min_input_files) == (settings.retention_defaults, 3)


def test_nobody_looks_before_it_is_time_and_job_status_asks_for_a_look_when_it_is(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.work()
    stack.spark.state = DONE
    bell = stack.service.worker.job_bell
    bell.clear()
    assert (stack.work(), stack.job(job_id)["state"], bell.is_set()) == (0, "RUNNING", False)
    stack.passed_ms += 3_600_000
    assert (stack.job(job_id)["state"], bell.is_set()) == ("RUNNING", True)
    stack.service.worker.run_job(job_id, 1)
    assert stack.job(job_id)["state"] == "SUCCEEDED"


def test_row_60_a_second_compact_meets_the_job_that_spark_is_at(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.work()
    for fields in ({}, {"engine": "duckdb"}, {"engine": "spark"}, {"async": True}):
        status, answer = stack.post(request("COMPACT", "t", **fields))
        assert (status, answer["status"], answer["job_id"]) == (202, "DELEGATED", job_id)
        assert answer["reason"] == ("ASYNC" if "async" in fields else "JOB_RUNNING")
    assert stack.spark.starts == 1
    assert stack.ok("SWEEP", health_below=100)["ranking"][0]["rank"] == "JOB_RUNNING"


def test_row_59_a_job_that_fails_in_spark_says_what_it_said_and_frees_the_table(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.work()
    error = {"code": "METADATA_CORRUPT", "message": "a manifest is torn", "retryable": False, "details": {"path": "m"}}
    told = stack.look(job_id, SparkRun(state=SparkState.ENDED, answer={"success": False, "error": error}))
    assert (told["state"], told["error"]) == ("FAILED", error)
    stack.assert_table_is_free()


def test_row_59_a_job_that_dies_without_a_word_has_failed_and_frees_the_table(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.work()
    stack.service.process.metrics_text()
    told = stack.look(job_id, SparkRun(state=SparkState.ENDED, detail="its process was ended from outside"))
    assert (told["state"], told["error"]["code"]) == ("FAILED", "DELEGATION_FAILED")
    assert "ended from outside" in told["error"]["message"]
    assert 'compactions_failed_total{code="DELEGATION_FAILED"} 1.0' in stack.service.process.metrics_text()
    stack.assert_rows_kept()
    stack.assert_table_is_free()


@pytest.mark.parametrize(
    ("state", "minutes", "told"), [(WAITING, 11, "has not begun"), (RUNNING, 61, "has not ended")], ids=["wait", "run"]
)
def test_row_59_a_job_that_never_begins_or_never_ends_is_given_up_and_cancelled(
    stack: SparkStack, state: SparkRun, minutes: float, told: str
) -> None:
    job_id = stack.ask()
    stack.work()
    assert stack.look(job_id, state, minutes=minutes - 2)["state"] == "RUNNING"
    found = stack.look(job_id, minutes=2)
    assert (found["state"], found["error"]["code"]) == ("FAILED", "DELEGATION_TIMEOUT")
    assert told in found["error"]["message"]
    assert len(stack.spark.cancelled) == 1
    stack.assert_table_is_free()


def test_row_59_spark_that_cannot_be_asked_any_more_does_not_hold_the_table_for_ever(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.work()
    stack.spark.faults = [Unavailable("SPARK_UNAVAILABLE", "AWS answered ThrottlingException")] * 9
    assert stack.look(job_id, minutes=69)["state"] == "RUNNING"
    assert stack.look(job_id, minutes=2)["error"]["code"] == "DELEGATION_TIMEOUT"
    stack.assert_table_is_free()


def test_row_59_a_run_that_emr_does_not_know_has_failed(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.work()
    stack.spark.specs.clear()
    told = stack.look(job_id)
    assert (told["state"], told["error"]["code"]) == ("FAILED", "DELEGATION_FAILED")
    assert "knows no such run" in told["error"]["message"]


def test_row_59_a_start_that_is_throttled_is_tried_again_and_one_that_is_refused_fails_at_once(
    stack: SparkStack,
) -> None:
    job_id = stack.ask()
    stack.spark.faults = [Unavailable("SPARK_UNAVAILABLE", "AWS answered ThrottlingException")]
    stack.work()
    told = stack.job(job_id)
    assert (told["state"], told["error"]["code"]) == ("QUEUED", "SPARK_UNAVAILABLE")
    assert stack.look(job_id)["state"] == "RUNNING"
    assert stack.look(job_id, DONE)["state"] == "SUCCEEDED"
    refused = stack.ask(force=True)
    stack.spark.faults = [Unavailable("SPARK_UNAVAILABLE", "AWS answered AccessDeniedException", retryable=False)]
    stack.work()
    assert stack.job(refused)["state"] == "FAILED"
    stack.assert_table_is_free()


def test_row_59_a_worker_that_dies_between_the_start_and_its_note_starts_nothing_twice(stack: SparkStack) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        stack.spark.after_start = lambda: None
        raise Killed

    job_id = stack.ask()
    stack.spark.after_start = die
    store = stack.built.job_stores.embedded
    assert store is not None
    save, store.save = store.save, lambda before, after: before.state.value == "QUEUED" and save(before, after)  # type: ignore[method-assign]
    with pytest.raises(Killed):  # a dead worker says nothing: neither does its store
        stack.service.worker.run_job(job_id, 1)
    store.save = save  # type: ignore[method-assign]
    assert stack.job(job_id)["run"] is None
    assert stack.look(job_id)["run"] is not None
    assert stack.spark.starts == 1


def test_a_cancelled_job_is_cancelled_in_spark_and_ends_when_spark_says_so(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.work()
    assert stack.ok("JOB_CANCEL", job_id=job_id)["state"] == "CANCELLING"
    assert stack.work() == 1
    assert stack.spark.cancelled
    assert stack.look(job_id, SparkRun(state=SparkState.CANCELLED))["state"] == "CANCELLED"
    stack.assert_table_is_free()


def test_a_job_that_landed_before_its_cancellation_has_succeeded(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.work()
    stack.ok("JOB_CANCEL", job_id=job_id)
    assert stack.look(job_id, DONE)["state"] == "SUCCEEDED"


def test_a_job_that_is_cancelled_before_it_began_never_starts(stack: SparkStack) -> None:
    job_id = stack.ask()
    assert stack.ok("JOB_CANCEL", job_id=job_id)["state"] == "CANCELLED"
    assert (stack.work(), stack.spark.starts) == (0, 0)


def test_an_event_of_emr_makes_a_worker_look_and_one_of_another_program_is_passed_over(stack: SparkStack) -> None:
    job_id = stack.ask()
    stack.work()
    stack.spark.state = DONE
    event = {"source": "aws.emr-serverless", "detail-type": "EMR Serverless Job Run State Change"}
    run_id = stack.job(job_id)["run"]
    assert stack._handler({**event, "detail": {"jobRunId": "0000"}}, LambdaContext())["job_id"] is None
    assert stack._handler({**event, "detail": {"jobRunId": run_id}}, LambdaContext())["job_id"] == job_id
    assert stack.job(job_id)["state"] == "SUCCEEDED"


def test_a_plan_that_is_too_large_for_a_worker_goes_to_spark_and_says_why(stack: SparkStack) -> None:
    stack.built.again(placement=PlacementPolicy(memory_bytes=2**31, threads=1, max_in_process_bytes=1000))
    status, answer = stack.post(request("COMPACT", "t"))
    assert (status, answer["reason"], answer["engine"]) == (202, "TOO_LARGE", "spark")
    assert answer["explanation"].startswith("the plan reads 0.0 GB")
    assert stack.work() == 1
    assert stack.job(answer["job_id"])["run"] is not None


def test_a_plan_that_only_this_process_has_no_time_for_stays_with_duckdb(stack: SparkStack) -> None:
    stack.built.again(placement=PlacementPolicy(memory_bytes=2**31, threads=1, max_in_process_seconds=0.05))
    status, answer = stack.post(request("COMPACT", "t"))
    assert (status, answer["reason"], answer["engine"]) == (202, "TOO_LONG", "duckdb")
    stack.built.again(placement=PlacementPolicy(memory_bytes=2**31, threads=1))
    assert stack.work() == 1
    assert (stack.job(answer["job_id"])["state"], stack.spark.starts) == ("SUCCEEDED", 0)


def test_a_machine_without_the_memory_for_one_output_leaves_the_table_to_spark(stack: SparkStack) -> None:
    stack.built.again(placement=PlacementPolicy(memory_bytes=100 * MB, threads=1))
    assert stack.post(request("COMPACT", "t"))[1]["reason"] == "MEMORY"


@pytest.mark.parametrize(("layout", "reason"), [("sort", "SORT_SPILL"), ("binpack", "DISK")])
def test_a_machine_without_the_disk_for_a_plan_leaves_the_table_to_spark(
    stack: SparkStack, monkeypatch: pytest.MonkeyPatch, layout: str, reason: str
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(total=10**12, used=0, free=100))
    memory = 370 * MB if layout == "sort" else 2**31
    stack.built.again(placement=PlacementPolicy(memory_bytes=memory, threads=1))
    order = {"sort_order": [{"column": "id"}]} if layout == "sort" else {}
    cost = replace(COST_HERE, sorted_bytes_per_byte=10**9)
    monkeypatch.setattr("regelate.core.running.placement.COST_HERE", cost)
    answer = stack.post(request("COMPACT", "t", strategy=layout, **order))[1]
    assert (answer["reason"], answer["engine"]) == (reason, "spark")


def test_what_strains_the_api_goes_to_a_larger_worker_and_not_to_spark(stack: SparkStack) -> None:
    settings, store = stack.service.settings, stack.built.job_stores.tools
    assert store is not None
    elsewhere = settings.jobs.model_copy(update={"store": "dynamodb"})
    stack.built.again(settings=settings.model_copy(update={"jobs": elsewhere}))
    stack.built.again(placement=PlacementPolicy(memory_bytes=100 * MB, threads=1))
    answer = stack.post(request("COMPACT", "t"))[1]
    assert (answer["status"], answer["reason"], answer["engine"]) == ("DELEGATED", "MEMORY", "duckdb")


def test_a_job_that_turns_out_too_large_where_it_runs_is_handed_to_spark(stack: SparkStack) -> None:
    job_id = stack.submit()
    stack.built.again(placement=PlacementPolicy(memory_bytes=2**31, threads=1, max_in_process_bytes=1000))
    assert stack.work() == 2  # one finds it out and says so, before anything is started, the next one starts it
    told = stack.job(job_id)
    assert (told["state"], told["engine"], told["run"] is not None) == ("RUNNING", "spark", True)
    assert stack.look(job_id, DONE)["state"] == "SUCCEEDED"


def test_row_33_a_table_that_only_spark_reads_goes_there_with_the_reason(stack: SparkStack) -> None:
    stack.upgrade_to_v3()
    status, answer = stack.post(request("COMPACT", "t"))
    assert (status, answer["reason"], answer["engine"]) == (202, "UNSUPPORTED_TABLE", "spark")
    assert "format version 3" in answer["explanation"]
    stack.refused(501, "UNSUPPORTED_TABLE", ["format version 3"], request("COMPACT", "t", engine="duckdb"))


def test_row_33_a_job_of_such_a_table_is_handed_to_spark_where_it_runs(stack: SparkStack) -> None:
    stack.upgrade_to_v3()
    status, answer = stack.post(request("COMPACT", "t", **{"async": True}))
    assert (status, answer["reason"]) == (202, "ASYNC")
    stack.work()
    assert "format version 3" in stack.job(answer["job_id"])["explanation"]


def test_zorder_is_sparks_alone(stack: SparkStack) -> None:
    order = [{"column": "id", "direction": "asc"}, {"column": "p", "direction": "asc"}]
    status, answer = stack.post(request("COMPACT", "t", strategy="zorder", sort_order=order))
    assert (status, answer["engine"], answer["explanation"]) == (202, "spark", "only Spark has the strategy zorder")
    stack.work()
    (spec,) = stack.spark.specs.values()
    assert SparkRequest.of_json(spec.request).compact.sort_order == order
    here = request("COMPACT", "t", strategy="zorder", sort_order=order, engine="duckdb")
    stack.refused(400, "INVALID_FIELD", ["zorder needs engine spark"], here)
    stack.refused(400, "MISSING_FIELD", ["sort_order"], request("COMPACT", "t", strategy="zorder"))


@pytest.mark.parametrize(
    "field", [{"max_files": 3}, {"max_cost": 1.0}, {"plan_id": "1-a"}, {"time_budget_seconds": 60}, {"ref": "b"}]
)
def test_what_spark_does_not_understand_is_refused_and_never_ignored(
    stack: SparkStack, field: Mapping[str, object]
) -> None:
    with stack.untouched():
        name = next(iter(field))
        stack.refused(400, "INVALID_FIELD", [name, "Spark"], request("COMPACT", "t", engine="spark", **field))
    stack.built.again(placement=PlacementPolicy(memory_bytes=2**31, threads=1, max_in_process_bytes=1000))
    _, answer = stack.post(request("COMPACT", "t", **field))
    assert answer.get("engine") != "spark"
    assert stack.work() <= 1
    assert stack.spark.starts == 0


def test_a_request_that_is_wrong_is_refused_before_there_is_a_job(stack: SparkStack) -> None:
    stack.refused(404, "TABLE_NOT_FOUND", [], request("COMPACT", "missing", engine="spark"))
    soon = request("COMPACT", "t", engine="spark", snapshot_retention_hours=-0.001)
    stack.refused(400, "INVALID_RETENTION", ["snapshot_retention_hours"], soon)
    assert stack.service.jobs.recent_jobs(9) == ()


def test_a_dry_run_of_what_spark_would_do_is_planned_here_by_the_same_rule(stack: SparkStack) -> None:
    with stack.untouched():
        ours = stack.ok("COMPACT", "t", dry_run=True)
        assert stack.ok("COMPACT", "t", dry_run=True, engine="spark")["plan"] == ours["plan"]


def test_a_deployment_without_spark_says_so_and_does_the_rest_as_ever(tmp_path: Path) -> None:
    stack = JobStack(tmp_path)
    assert stack.post({"operation": "HEALTH_CHECK"})[1]["engines"] == ["duckdb"]
    stack.refused(501, "SPARK_DISABLED", ["no Spark"], request("COMPACT", "t", engine="spark"))
    stack.built.again(placement=PlacementPolicy(memory_bytes=2**31, threads=1, max_in_process_bytes=6000))
    status, answer = stack.post(request("COMPACT", "t"))
    assert (status, answer["engine"]) == (202, "duckdb")


def test_a_request_for_spark_that_meets_a_job_of_ours_does_not_say_that_it_is_done(stack: SparkStack) -> None:
    waiting = stack.submit()
    status, answer = stack.post(request("COMPACT", "t", engine="spark", force=True))
    assert (status, answer["job_id"], answer["engine"], answer["reason"]) == (202, waiting, "duckdb", "JOB_RUNNING")


def test_a_job_of_sparks_fails_where_the_deployment_has_spark_no_more(stack: SparkStack) -> None:
    job_id = stack.ask()
    settings = stack.service.settings
    stack.built.again(settings=settings.model_copy(update={"engines": ("duckdb",)}))
    stack.work()
    assert (stack.job(job_id)["error"]["code"], stack.spark.starts) == ("SPARK_DISABLED", 0)
    stack.assert_table_is_free()


def test_snapshots_expire_after_a_job_of_sparks_as_after_one_of_ours(stack: SparkStack) -> None:
    job_id = stack.ask(snapshot_retention_hours=1)
    stack.work()
    told = stack.look(job_id, DONE)
    assert (told["state"], told["result"]["stats"]["snapshots_expired"]) == ("SUCCEEDED", 0)
    assert told["result"]["warnings"] == []
    left = stack.ask(force=True, expire_snapshots=False)
    stack.work()
    assert stack.look(left, DONE)["result"]["stats"] == STATS
