"""Real catalog servers on loopback, one of each, and one Spark for all tests of this folder (`make test-catalogs`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from regelate.pipeline.session import open_session
from tests.catalogs.lakes import glue_lake
from tests.pipeline.conftest import LAUNCH
from tests.servers.moto_aws import KEYS, REGION, aws_server
from tests.servers.nessie import nessie
from tests.servers.rest_catalog import rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URI of Apache Iceberg's own REST catalog; its tables lie in a folder."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as uri:
        yield uri


@pytest.fixture(scope="session")
def aws() -> Iterator[str]:
    """Yield the endpoint of an S3 and a Glue."""
    with aws_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def nessie_rest(aws: str) -> Iterator[tuple[str, str]]:
    """Yield the URI of a real Nessie's Iceberg REST catalog, and the endpoint of the S3 that its tables lie in."""
    with nessie(aws) as uri:
        yield uri, aws


@pytest.fixture(scope="session")
def spark(aws: str) -> Iterator[SparkSession]:
    """Yield a session with the jars of all catalogs; `open_session` puts one more catalog into it."""
    named = {"AWS_ACCESS_KEY_ID": KEYS["aws_access_key_id"], "AWS_SECRET_ACCESS_KEY": KEYS["aws_secret_access_key"]}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**named, "AWS_REGION": REGION}.items():  # Glue's client takes no keys from the catalog
            patch.setenv(name, value)
        session = open_session(glue_lake("starting", aws), LAUNCH, app_name="catalogs")
        yield session
        session.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home"
