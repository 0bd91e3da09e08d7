"""A lake in Glue and S3, both of moto on loopback, behind the whole program."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aws.lake import BUCKET, S3Lake
from tests.servers.moto_aws import aws_server, client


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    with aws_server() as found:
        yield found


@pytest.fixture
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the endpoint of an empty account with one bucket; the environment holds no credentials of a user."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")) as answer:
        assert json.load(answer) == {"status": "ok"}
    client("s3", endpoint).create_bucket(Bucket=BUCKET)
    return endpoint


@pytest.fixture
def lake(aws: str, tmp_path: Path) -> S3Lake:
    return S3Lake(tmp_path / "lake", aws)
