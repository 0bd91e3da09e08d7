"""Large results in a bucket: uploaded under the tenant's prefix, fetched by a presigned URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
from boto3.exceptions import Boto3Error
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from regelate.adapters.aws.aws_errors import storage_fault
from regelate.core.policy.timeouts import Timeouts
from regelate.core.query.results import CONTENT_TYPE, StoredResult, result_key


def s3_client(timeouts: Timeouts) -> Any:
    """Return a client by boto3's own chain: the function's role and region, AWS_ENDPOINT_URL_S3 for another store.

    Signature version 4 is asked for because it is the one whose URLs every region and every S3 look-alike takes.
    """
    return boto3.client(
        "s3",
        config=Config(
            connect_timeout=timeouts.connect_seconds,
            read_timeout=timeouts.read_seconds,
            signature_version="s3v4",
            retries={"mode": "standard", "max_attempts": 5},
        ),
    )


class BucketResults:
    """One tenant's results below `s3://bucket/prefix`. They are deleted by the bucket's own lifecycle.

    A URL ends with the credentials that signed it, should they end sooner than asked for.
    Errors: Unavailable STORAGE_AUTH, STORAGE_UNAVAILABLE.
    """

    def __init__(self, client: Any, location: str, tenant: str, *, url_seconds: int) -> None:
        self._client = client
        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._tenant = tenant
        self._url_seconds = url_seconds

    def keep(self, path: str, *, now_ms: int) -> StoredResult:
        """Upload the file at `path` and return its URL; a broken upload leaves nothing that could be fetched."""
        key = self._prefix + result_key(self._tenant, now_ms, uuid4().hex)
        size = Path(path).stat().st_size
        try:
            self._client.upload_file(path, self._bucket, key, ExtraArgs={"ContentType": CONTENT_TYPE})
            url = self._client.generate_presigned_url(
                "get_object", Params={"Bucket": self._bucket, "Key": key}, ExpiresIn=self._url_seconds
            )
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise storage_fault(error, "the result could not be stored") from error
        return StoredResult(url=url, expires_ms=now_ms + self._url_seconds * 1000, size_bytes=size)
