"""The way to the next worker on AWS: a FIFO queue, one group per table, so that its jobs come one after the other."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from regelate.adapters.records.aws import client_of, faults
from regelate.adapters.records.faults import of_jobs
from regelate.core.jobs.job import JobRecord
from regelate.core.policy.timeouts import Timeouts

MAX_POSTPONED_SECONDS = 43_000
"""SQS hides a message for twelve hours at most."""


class SqsQueue:
    """Implements JobQueue. A message that is sent twice within five minutes arrives once: SQS compares job and part.

    Of a job that is Spark's every look is another message, so its version counts too.
    """

    def __init__(self, url: str, *, client: Any = None, timeouts: Timeouts | None = None) -> None:
        self._url = url
        self._client = client_of("sqs", timeouts or Timeouts(), of_jobs) if client is None else client

    def send(self, record: JobRecord) -> None:
        told = "the job is stored, but its queue did not take the message; send the request again"
        with faults(of_jobs, told, job_id=record.job_id):
            self._client.send_message(
                QueueUrl=self._url,
                MessageBody=json.dumps({"job_id": record.job_id, "part": record.part}),
                MessageGroupId=sha256(record.lock.encode()).hexdigest(),
                MessageDeduplicationId=f"{record.job_id}-{record.part}-{record.attempts}{_look(record)}",
            )

    def postpone(self, receipt: str, seconds: float) -> None:
        with faults(of_jobs, "the queue did not put the message off"):
            self._client.change_message_visibility(
                QueueUrl=self._url,
                ReceiptHandle=receipt,
                VisibilityTimeout=min(max(int(seconds), 1), MAX_POSTPONED_SECONDS),
            )


def _look(record: JobRecord) -> str:
    return f"-{record.version}" if record.engine.is_remote else ""
