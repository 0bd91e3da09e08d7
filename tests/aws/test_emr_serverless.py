"""Row 59 on EMR Serverless: started once whatever is lost, asked with patience, cancelled, its program in place."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from regelate.adapters.spark.emr_serverless import STATES, EmrServerless, submit_parameters
from regelate.core.access import spark_policy
from regelate.core.jobs.spark_job import SparkJobSpec, SparkState
from regelate.errors import Unavailable
from regelate.pipeline.package import pack
from tests.aws.lake import BUCKET
from tests.servers.emr_serverless import APPLICATION, EmrState, emr_server
from tests.servers.moto_aws import KEYS, REGION, client

DRIVER = {"sparkSubmit": {"entryPoint": "s3://b/other.py"}}
ROLE = "arn:aws:iam::123456789012:role/spark"
QUICK = Config(retries={"mode": "standard", "total_max_attempts": 1}, read_timeout=5)
SPEC = SparkJobSpec(
    name="job-1-1700000000000", job_id="job-1", created_ms=1_700_000_000_000, table="glue.acme__db.t", request="{}",
    conf={"spark.sql.catalog.glue": "org.apache.iceberg.spark.SparkCatalog"}, timeout_seconds=3600.0,
    policy=spark_policy("acme", "s3://lake/warehouse", "s3://lake/spark", "job-1-100"),
)  # fmt: skip
TEXTS = st.text(st.characters(codec="ascii", exclude_characters="\n\r\0"), max_size=20)


@pytest.fixture
def server() -> Iterator[tuple[str, EmrState]]:
    with emr_server() as found:
        yield found


@pytest.fixture
def emr(aws: str, server: tuple[str, EmrState]) -> EmrServerless:
    return adapter(aws, server[0])


@pytest.fixture
def state(server: tuple[str, EmrState]) -> EmrState:
    return server[1]


def adapter(aws: str, endpoint: str) -> EmrServerless:
    found = boto3.client("emr-serverless", endpoint_url=endpoint, region_name=REGION, config=QUICK, **KEYS)  # type: ignore[call-overload]
    return EmrServerless(APPLICATION, ROLE, f"s3://{BUCKET}/spark/", pack=pack, emr=found, s3=client("s3", aws))


def result(aws: str, answer: object) -> None:
    key = f"spark/results/{SPEC.name}.json"
    client("s3", aws).put_object(Bucket=BUCKET, Key=key, Body=json.dumps(answer).encode())


def test_a_job_is_started_with_its_program_its_arguments_and_its_policy(
    emr: EmrServerless, state: EmrState, aws: str
) -> None:
    run_id = emr.start(SPEC)
    run = state.runs[run_id]
    assert (run["name"], run["clientToken"], run["executionTimeoutMinutes"]) == (SPEC.name, SPEC.name, 60)
    assert (run["tags"], run["executionRoleArn"]) == ({"regelate:job": "job-1"}, ROLE)
    assert json.loads(run["executionIamPolicy"]["policy"])["Statement"][-1]["Action"] == ["s3:PutObject"]
    submit = run["jobDriver"]["sparkSubmit"]
    assert submit["entryPointArguments"] == [
        *SPEC.arguments,
        "--result",
        f"s3://{BUCKET}/spark/results/{SPEC.name}.json",
    ]
    for uri in (submit["entryPoint"], shlex.split(submit["sparkSubmitParameters"])[1]):
        found = client("s3", aws).get_object(Bucket=BUCKET, Key=uri.removeprefix(f"s3://{BUCKET}/"))
        assert found["ContentLength"] > 0
    assert emr.job_of(run_id) == "job-1"


def test_row_59_the_same_name_starts_once_also_where_the_answer_was_lost(emr: EmrServerless, state: EmrState) -> None:
    emr.start(SPEC)
    state.runs.clear()
    emr._known = lambda spec: None  # type: ignore[method-assign]
    state.losing = 1
    with pytest.raises(Unavailable) as lost:
        emr.start(SPEC)
    assert lost.value.retryable
    assert emr.start(SPEC) == next(iter(state.runs))
    assert len(state.runs) == 1


def test_row_59_a_starter_that_died_is_followed_by_one_that_finds_the_run_by_name_and_tag(
    emr: EmrServerless, state: EmrState, aws: str, server: tuple[str, EmrState]
) -> None:
    for number in range(5):  # other programs' runs, and one of our name that is not ours
        state.start({"clientToken": f"t{number}", "name": "nightly", "executionRoleArn": ROLE, "jobDriver": DRIVER})
    state.start({"clientToken": "x", "name": SPEC.name, "executionRoleArn": ROLE, "jobDriver": DRIVER})
    first = emr.start(SPEC)
    state.runs[first]["clientToken"] = "forgotten by now"
    assert adapter(aws, server[0]).start(SPEC) == first
    assert len(state.runs) == 7


def test_row_59_throttling_passes_and_a_refusal_does_not(emr: EmrServerless, state: EmrState) -> None:
    run_id = emr.start(SPEC)
    for ask in (lambda: emr.start(SPEC), lambda: emr.look(run_id), lambda: emr.cancel(run_id)):
        state.throttled = 1
        with pytest.raises(Unavailable, match="ThrottlingException") as fault:
            ask()
        assert fault.value.retryable
    emr._application_id = "other"
    with pytest.raises(Unavailable, match="ResourceNotFoundException") as refused:
        emr.start(SPEC)
    assert not refused.value.retryable


@pytest.mark.parametrize("name", [*STATES, "SOMETHING_NEW"])
def test_every_state_of_emr_is_one_of_ours_and_a_new_one_is_not_taken_for_the_end(
    emr: EmrServerless, state: EmrState, name: str
) -> None:
    run_id = emr.start(SPEC)
    state.runs[run_id]["state"] = name
    found = emr.look(run_id)
    assert found.state is STATES.get(name, SparkState.RUNNING)
    assert found.is_over is (name in ("SUCCESS", "FAILED", "CANCELLED"))


def test_a_job_that_ended_answers_by_its_result_or_says_what_emr_says(
    emr: EmrServerless, state: EmrState, aws: str
) -> None:
    run_id = emr.start(SPEC)
    state.runs[run_id] |= {"state": "FAILED", "stateDetails": "Job failed, the driver ran out of memory"}
    found = emr.look(run_id)
    assert (found.answer, found.detail) == (None, "Job failed, the driver ran out of memory")
    result(aws, {"success": False})
    for ended in ("FAILED", "CANCELLED"):  # cancelled too late: what it did counts
        state.runs[run_id]["state"] = ended
        assert emr.look(run_id).answer == {"success": False}


def test_row_59_a_run_that_emr_does_not_know_has_ended_and_needs_no_cancelling(emr: EmrServerless) -> None:
    found = emr.look("00none")
    assert (found.state, found.answer, found.detail) == (SparkState.ENDED, None, "EMR Serverless knows no such run")
    emr.cancel("00none")
    assert emr.job_of("00none") is None


def test_a_cancelled_run_is_cancelled(emr: EmrServerless, state: EmrState) -> None:
    run_id = emr.start(SPEC)
    emr.cancel(run_id)
    assert emr.look(run_id).state is SparkState.CANCELLED


def test_the_program_is_put_into_the_bucket_once_for_each_version(
    emr: EmrServerless, aws: str, server: tuple[str, EmrState], tmp_path: Path
) -> None:
    emr.start(SPEC)
    s3 = client("s3", aws)
    first = {item["Key"]: item["LastModified"] for item in s3.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert sorted(key.rpartition("/")[2] for key in first) == ["pipeline.py", "regelate.zip"]
    puts: list[str] = []
    s3.meta.events.register("before-call.s3.PutObject", lambda **_: puts.append("put"))
    again = adapter(aws, server[0])
    again._s3 = s3
    again._program()
    assert puts == []


@given(conf=st.dictionaries(st.from_regex(r"spark\.[a-z.]{1,9}", fullmatch=True), TEXTS, max_size=4))
def test_a_configuration_survives_the_way_in_which_a_shell_splits_words(conf: dict[str, str]) -> None:
    words = shlex.split(submit_parameters(conf, "s3://b/z.zip"))
    assert words[:2] == ["--py-files", "s3://b/z.zip"]
    assert dict(word.split("=", 1) for word in words[3::2]) == conf


def test_the_shape_of_every_call_is_one_that_aws_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By moto, which checks requests against AWS's model; its runs succeed at once."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        made: Any = boto3.client("emr-serverless", region_name=REGION)
        application = made.create_application(name="a", releaseLabel="emr-7.13.0", type="SPARK")["applicationId"]
        s3 = boto3.client("s3", region_name=REGION)
        s3.create_bucket(Bucket=BUCKET)
        # moto knows no list of runs before the first one
        made.start_job_run(applicationId=application, clientToken="t", executionRoleArn=ROLE, jobDriver=DRIVER)
        emr = EmrServerless(application, ROLE, f"s3://{BUCKET}/spark", pack=pack, emr=made, s3=s3)
        run_id = emr.start(SPEC)
        found = emr.look(run_id)
        assert (found.state, found.answer) == (SparkState.ENDED, None)
        emr.cancel(run_id)
        assert emr.look(run_id).state is SparkState.CANCELLED
