"""Real catalog servers on loopback, one of each for all tests of this folder (`make test-catalogs`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.rest_catalog import rest_catalog


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URI of Apache Iceberg's own REST catalog; its tables lie in a folder."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as uri:
        yield uri


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home"
