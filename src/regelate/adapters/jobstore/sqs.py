"""The way to the next worker on AWS: a FIFO queue, one group per table, so that its jobs come one after the other."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from regelate.core.job import JobRecord
from regelate.errors import Unavailable

CLIENT = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "max_attempts": 4})
MAX_POSTPONED_SECONDS = 43_000
"""SQS hides a message for twelve hours at most."""


class SqsQueue:
    """Implements JobQueue. A message that is sent twice within five minutes arrives once: SQS compares job and part."""

    def __init__(self, url: str, *, client: Any = None) -> None:
        self._url = url
        try:
            self._client = boto3.client("sqs", config=CLIENT) if client is None else client
        except BotoCoreError as error:  # without a region there is no client
            raise Unavailable("JOBS_UNAVAILABLE", f"the queue cannot be reached: {type(error).__name__}") from error

    def send(self, record: JobRecord) -> None:
        try:
            self._client.send_message(
                QueueUrl=self._url,
                MessageBody=json.dumps({"job_id": record.job_id, "part": record.part}),
                MessageGroupId=sha256(record.lock.encode()).hexdigest(),
                MessageDeduplicationId=f"{record.job_id}-{record.part}-{record.attempts}",
            )
        except (ClientError, BotoCoreError) as error:
            told = f"the job is stored, but its queue did not take the message: {type(error).__name__}; send it again"
            raise Unavailable("JOBS_UNAVAILABLE", told, job_id=record.job_id) from error

    def postpone(self, receipt: str, seconds: float) -> None:
        try:
            self._client.change_message_visibility(
                QueueUrl=self._url,
                ReceiptHandle=receipt,
                VisibilityTimeout=min(max(int(seconds), 1), MAX_POSTPONED_SECONDS),
            )
        except (ClientError, BotoCoreError) as error:
            raise Unavailable("JOBS_UNAVAILABLE", f"the queue did not answer: {type(error).__name__}") from error
