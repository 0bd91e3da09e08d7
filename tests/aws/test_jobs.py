"""The seed's scenario on Glue and S3 through the worker: jobs in DynamoDB, messages of SQS, the handler of Lambda."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from regelate.handler import make_handler
from regelate.pipeline import auto
from tests.aws.lake import S3Lake
from tests.entrypoints.fakes import REPOSITORY, LambdaContext
from tests.servers.moto_aws import KEYS, REGION, client, jobs_table
from tests.system.faults.stack import request

DELIVERIES = 3
PROPERTIES = {"regelate.compaction.auto": "async", "regelate.auto.min-num-files": "5"}


@dataclass(frozen=True)
class WorkerContext(LambdaContext):
    def get_remaining_time_in_millis(self) -> int:
        return 900_000


class Cloud:
    """A lake, and a queue whose messages the test hands to the worker as Lambda does."""

    def __init__(self, folder: Path, endpoint: str, *, spark: Mapping[str, object] | None = None) -> None:
        self.sqs = client("sqs", endpoint)
        fifo = {"FifoQueue": "true"}
        self.dead = self.sqs.create_queue(QueueName="dead.fifo", Attributes=fifo)["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        redrive = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": DELIVERIES})}
        self.queue = self.sqs.create_queue(QueueName="jobs.fifo", Attributes={**fifo, **redrive})["QueueUrl"]
        jobs_table(client("dynamodb", endpoint), "jobs")
        jobs = {"store": "dynamodb", "table": "jobs", "queue_url": self.queue}
        jobs |= {"max_attempts": 1, "max_deliveries": DELIVERIES}
        self.lake = S3Lake(folder, endpoint, jobs=jobs, spark=spark)
        self.stack = self.lake.stack
        self._worker = make_handler(lambda: self.stack.service)

    def messages(self) -> list[dict[str, Any]]:
        """Take what waits, in the shape of Lambda's event."""
        asked = {"MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"]}
        found = self.sqs.receive_message(QueueUrl=self.queue, **asked).get("Messages", [])
        return [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {},
                "eventSource": "aws:sqs",
            }
            for message in found
        ]

    def worked(self, messages: list[dict[str, Any]]) -> list[str]:
        """Hand messages to the worker, delete those that it served, and return the ids of the others."""
        answer = self._worker({"Records": messages}, WorkerContext())  # type: ignore[arg-type]
        failed = [item["itemIdentifier"] for item in answer["batchItemFailures"]]
        for message in messages:
            if message["messageId"] not in failed:
                self.sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=message["receiptHandle"])
        return failed

    def let_come_again(self, messages: list[dict[str, Any]]) -> None:
        """Let their pauses be over."""
        for message in messages:
            receipt = message["receiptHandle"]
            self.sqs.change_message_visibility(QueueUrl=self.queue, ReceiptHandle=receipt, VisibilityTimeout=0)


@pytest.fixture
def cloud(aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    environ = {
        "AWS_ENDPOINT_URL_DYNAMODB": aws,
        "AWS_ENDPOINT_URL_SQS": aws,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": KEYS["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": KEYS["aws_secret_access_key"],
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return Cloud(tmp_path / "lake", aws)


def test_the_fifth_write_submits_a_job_and_the_worker_makes_five_files_one(cloud: Cloud) -> None:
    cloud.stack.create("users", {"id": "long!", "name": "string"}, properties=PROPERTIES)
    writes = []
    for number in range(5):
        rows = [{"id": number * 10 + i, "name": f"user {i}"} for i in range(10)]
        writes.append(cloud.stack.ok("WRITE", "users", records=rows))
    assert [answer["compaction_recommended"] for answer in writes] == [False] * 4 + [True]
    before = cloud.stack.rows("users", limit=100)
    job_id = writes[4]["compaction_job_id"]
    assert cloud.stack.ok("JOB_STATUS", job_id=job_id)["state"] == "QUEUED"
    assert cloud.worked(cloud.messages()) == []
    told = cloud.stack.ok("JOB_STATUS", job_id=job_id)
    assert (told["state"], told["origin"], told["totals"]["files_compacted"]) == ("SUCCEEDED", "WRITE", 5)
    stats = told["result"]["stats"]
    assert (stats["files_before"], stats["files_after"]) == (5, 1)
    assert cloud.stack.rows("users", limit=100) == before
    assert cloud.messages() == []
    assert cloud.stack.ok("COMPACT", "users")["status"] == "NOTHING_TO_DO"


AUTOMATIC = {"regelate.auto.enabled": "true", "regelate.auto.min-num-files": "5"}


def foreign_commits(cloud: Cloud) -> str:
    """Make a table, append to it five times by PyIceberg alone, and return where its metadata is by then."""
    cloud.stack.create("w", {"id": "long"}, properties=AUTOMATIC)
    table = cloud.stack.table("default.w")
    for number in range(5):
        table.append(pa.table({"id": [number]}, pa.schema([("id", pa.int64())])))
    return str(table.metadata_location)


def test_an_event_of_the_bucket_about_new_metadata_makes_the_worker_compact_what_another_wrote(cloud: Cloud) -> None:
    bucket, _, key = foreign_commits(cloud).removeprefix("s3://").partition("/")
    event = json.loads((REPOSITORY / "events" / "rule_s3_notice.json").read_text())
    event["detail"] |= {"bucket": {"name": bucket}, "object": {"key": key}}
    told = [cloud.stack.invoke(event) for _ in range(3)]
    assert [(answer["table"], answer["status"]) for answer in told[:1]] == [("default.w", "SUBMITTED")]
    assert {(answer["status"], answer["job_id"]) for answer in told[1:]} == {("JOB_RUNNING", told[0]["job_id"])}
    assert cloud.worked(cloud.messages()) == []
    job = cloud.stack.ok("JOB_STATUS", job_id=told[0]["job_id"])
    assert (job["state"], job["origin"], job["totals"]["files_compacted"]) == ("SUCCEEDED", "EVENT", 5)
    assert [row["id"] for row in cloud.stack.rows("w")] == list(range(5))


class ConfiguredSpark:
    """As much of a Spark session as is asked where somebody else is told: its configuration."""

    def __init__(self, **told: str) -> None:
        self.conf = {auto.PREFIX + key.replace("_", "-"): value for key, value in told.items()}


def test_a_driver_of_spark_tells_the_queue_and_the_worker_hears_of_it(cloud: Cloud) -> None:
    foreign_commits(cloud)
    spark: Any = ConfiguredSpark(tenant="default")

    def tell(notice: Mapping[str, str]) -> None:
        text, group = json.dumps(notice), {"MessageGroupId": "w", "MessageDeduplicationId": "1"}
        cloud.sqs.send_message(QueueUrl=cloud.queue, MessageBody=text, **group)

    auto.after_commit(spark, "anything.default.w", tell=tell)
    assert auto.drain(60)
    (notice,) = cloud.messages()
    assert cloud.worked([notice]) == []
    (part,) = cloud.messages()
    assert cloud.worked([part]) == []
    assert len(list(cloud.stack.table("default.w").scan().plan_files())) == 1


def test_row_40_a_message_that_is_delivered_twice_lands_once(cloud: Cloud) -> None:
    cloud.lake.users()
    status, answer = cloud.stack.post(request("COMPACT", "users", **{"async": True}))
    assert (status, answer["status"]) == (202, "DELEGATED")
    messages = cloud.messages()
    assert cloud.worked(messages) == []
    assert cloud.worked(messages) == []
    operations = [s.summary.operation.value for s in cloud.lake.table().snapshots() if s.summary is not None]
    assert operations == ["append"] * 5 + ["replace"]
    assert cloud.lake.count() == {"count": 50, "sum_id": 1225}


def test_a_sweep_of_the_schedule_submits_a_job_for_the_ill_table(cloud: Cloud) -> None:
    cloud.lake.users()
    event = json.loads((REPOSITORY / "events" / "scheduler_sweep.json").read_text())
    swept = cloud.stack.invoke({**event, "detail": {**event["detail"], "health_below": 100}})
    assert (swept["jobs_submitted"], [found["table"] for found in swept["ranking"]]) == (1, ["default.users"])
    assert cloud.worked(cloud.messages()) == []
    told = cloud.stack.ok("JOB_STATUS", job_id=swept["ranking"][0]["job_id"])
    assert (told["state"], told["totals"]["files_compacted"]) == ("SUCCEEDED", 5)
    assert cloud.lake.count() == {"count": 50, "sum_id": 1225}


def test_a_job_of_another_tenant_or_none_is_not_found(cloud: Cloud) -> None:
    cloud.stack.refused(404, "JOB_NOT_FOUND", [], request("JOB_STATUS", job_id="job-0"))


def test_a_message_waits_while_another_worker_holds_the_table(cloud: Cloud) -> None:
    cloud.lake.users()
    cloud.stack.post(request("COMPACT", "users", **{"async": True}))
    store = cloud.stack.built.job_stores.tools.store  # type: ignore[union-attr]
    lease = store.acquire("glue/default.users", "another", 60)
    messages = cloud.messages()
    assert cloud.worked(messages) == [messages[0]["messageId"]]
    store.release(lease)
    assert cloud.worked(messages) == []
    assert cloud.stack.ok("COMPACT", "users")["status"] == "NOTHING_TO_DO"


def test_a_job_whose_message_is_set_aside_has_failed_and_the_message_is_left_for_the_operator(cloud: Cloud) -> None:
    cloud.lake.users()
    _, answer = cloud.stack.post(request("COMPACT", "users", **{"async": True}))
    lease = cloud.stack.built.job_stores.tools.store.acquire("glue/default.users", "a worker that is stuck", 60)  # type: ignore[union-attr]
    states = []
    for _ in range(DELIVERIES):
        messages = cloud.messages()
        assert cloud.worked(messages) == [message["messageId"] for message in messages] != []
        states.append(cloud.stack.ok("JOB_STATUS", job_id=answer["job_id"])["state"])
        cloud.let_come_again(messages)
    assert states == ["QUEUED", "QUEUED", "FAILED"]
    assert cloud.messages() == []
    (letter,) = cloud.sqs.receive_message(QueueUrl=cloud.dead)["Messages"]
    assert json.loads(letter["Body"]) == {"job_id": answer["job_id"], "part": 1}
    assert cloud.stack.ok("JOB_STATUS", job_id=answer["job_id"])["error"]["code"] == "JOB_UNSERVED"
    cloud.stack.built.job_stores.tools.store.release(lease)  # type: ignore[union-attr]
    assert cloud.stack.ok("COMPACT", "users")["status"] == "COMPLETED"


def test_a_message_of_somebody_else_blocks_nobody_and_is_set_aside_too(cloud: Cloud) -> None:
    cloud.sqs.send_message(QueueUrl=cloud.queue, MessageBody="hello", MessageGroupId="g", MessageDeduplicationId="1")
    for _ in range(DELIVERIES):
        messages = cloud.messages()
        assert len(cloud.worked(messages)) == 1
        cloud.let_come_again(messages)
    assert cloud.messages() == []
    assert [letter["Body"] for letter in cloud.sqs.receive_message(QueueUrl=cloud.dead)["Messages"]] == ["hello"]
