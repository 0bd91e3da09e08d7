"""Real catalog servers on loopback, one of each for all tests of this folder (`make test-catalogs`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.moto_aws import aws_server
from tests.servers.nessie import nessie
from tests.servers.rest_catalog import rest_catalog


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URI of Apache Iceberg's own REST catalog; its tables lie in a folder."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as uri:
        yield uri


@pytest.fixture(scope="session")
def nessie_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Yield the URI of a real Nessie's Iceberg REST catalog, and the endpoint of the S3 that its tables lie in."""
    with aws_server() as s3, nessie(tmp_path_factory.mktemp("nessie"), s3) as uri:
        yield uri, s3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home"
