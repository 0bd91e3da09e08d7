"""Row 38 and trap T46: a REST catalog, or what hands out its tokens, accepts a request and never answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from regelate.adapters.iceberg.catalogs import Catalogs
from regelate.adapters.iceberg.tables.rest_catalog import PatientRestCatalog
from regelate.core.policy.timeouts import Timeouts
from regelate.errors import Unavailable
from tests.servers.rest_stub import Reply, RestStub, rest_stub
from tests.support.iceberg_tables import append, live_data_paths, local_path, make_catalog, make_table, rows
from tests.system.faults.hooks import PatientClock
from tests.system.faults.stack import Answer, Stack, request, stack_with

SCHEMA = Schema(NestedField(1, "id", LongType()))
IDENT = "default.t"
SHORT = {"connect_seconds": 5, "read_seconds": 0.5}
REQUESTS: dict[str, dict[str, Any]] = {
    "WRITE": {"records": [{"id": 9}]},
    "COMPACT": {"force": True, "expire_snapshots": False},
}


class Scene:
    def __init__(self, folder: Path, stub: RestStub) -> None:
        self.stub, self.folder = stub, folder
        make_table(stub.catalog, IDENT, SCHEMA)
        for number in range(3):
            append(self.table(), [(number,)])
        self.stack = self.worker("one")

    def worker(self, name: str) -> Stack:
        """A process of its own on the same catalog and the same jobs."""
        made = stack_with(
            self.folder / name,
            auth="none",
            tenants="*",
            catalogs={"rest": {"type": "rest", "uri": self.stub.uri}},
            network=SHORT,
            jobs={"store": "sqlite", "path": str(self.folder / "jobs.db"), "workers": 0, "lease_seconds": 5},
        )
        made.built.again(clock=PatientClock())
        return made

    def table(self) -> Any:
        return self.stub.catalog.load_table(IDENT)

    def answers_again(self) -> None:
        self.stub.silent.clear()
        self.stub.commits.clear()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with rest_stub(make_catalog(tmp_path)) as stub:
        yield Scene(tmp_path, stub)


def told(answer: tuple[int, Answer]) -> tuple[int, Any]:
    return answer[0], answer[1].get("error", {}).get("code")


@pytest.mark.parametrize("operation", REQUESTS)
def test_row_38_an_operation_on_a_catalog_that_hangs_is_told_so_and_the_next_one_is_served(
    scene: Scene, operation: str
) -> None:
    scene.stub.silent.set()
    body = request(operation, "t", **REQUESTS[operation])
    assert told(scene.stack.post(body)) == (503, "CATALOG_UNAVAILABLE")
    assert scene.stub.hung.is_set()
    scene.answers_again()
    assert told(scene.stack.post(body)) == (200, None)


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("operation", REQUESTS)
def test_row_38_a_commit_that_is_never_answered_is_of_unknown_state_and_its_files_stay(
    scene: Scene, operation: str, landed: bool
) -> None:
    scene.stub.commits[:] = [Reply(200, landed=landed, before=scene.stub.silent.set)]
    body = request(operation, "t", idempotency_key="k", **REQUESTS[operation])
    assert told(scene.stack.post(body)) == (503, "COMMIT_STATE_UNKNOWN")
    scene.answers_again()
    assert all(local_path(path).exists() for path in live_data_paths(scene.table()))
    status, answer = scene.stack.post(body)
    assert status == 200
    assert (answer.get("already_done") or answer.get("status") == "ALREADY_DONE") == landed
    assert sorted(rows(scene.table())) == [(0,), (1,), (2,), *([(9,)] if operation == "WRITE" else [])]


def test_row_38_the_job_of_a_worker_whose_catalog_hangs_gives_the_table_back(scene: Scene) -> None:
    """Another worker is at it as soon as the first has given up."""
    status, answer = scene.stack.post(request("COMPACT", "t", force=True, **{"async": True}))
    assert status == 202
    scene.stub.silent.set()
    pause = scene.stack.service.worker.run_job(answer["job_id"], 1)
    assert pause is not None
    scene.answers_again()
    assert scene.worker("two").service.worker.run_job(answer["job_id"], 1, at_once=True) is None
    assert len(live_data_paths(scene.table())) == 1


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address where connections come about and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"credential": "id:secret"},
        {"credential": "id:secret", "oauth2-server-uri": "{hole}/token"},
        {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-central-1", "client.access-key-id": "a",
         "client.secret-access-key": "b"},
    ],
    ids=["configuration", "legacy token", "token of another server", "signed"],
)  # fmt: skip
def test_t46_a_rest_catalog_is_given_up_whichever_of_its_requests_hangs(
    black_hole: str, properties: dict[str, str]
) -> None:
    given = {name: text.format(hole=black_hole) for name, text in properties.items()}
    catalogs = Catalogs(timeouts=Timeouts(connect_seconds=5, read_seconds=0.2))
    with pytest.raises(Unavailable) as caught:
        catalogs.open("hung", {"type": "rest", "uri": black_hole, **given})
    assert caught.value.code == "CATALOG_UNAVAILABLE"


def test_t46_a_token_of_the_oauth2_manager_is_given_up_too(black_hole: str, scene: Scene) -> None:
    """PyIceberg asks for it without a session, and without a timeout."""
    config = {"client_id": "id", "client_secret": "secret", "token_url": f"{black_hole}/token"}
    properties = {"uri": scene.stub.uri, "auth": {"type": "oauth2", "oauth2": config}}
    timeouts = Timeouts(connect_seconds=5, read_seconds=0.2).properties
    with pytest.raises(OSError, match="timed out"):
        PatientRestCatalog("hung", **properties, **timeouts)


def test_t46_an_aws_catalog_waits_no_longer_than_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    properties = {"type": "glue", "glue.region": "eu-central-1", "warehouse": "s3://b/w"}
    catalog: Any = Catalogs(timeouts=Timeouts(connect_seconds=2, read_seconds=7)).open("glue", properties)
    found = catalog.glue.meta.config
    assert (found.connect_timeout, found.read_timeout) == (2, 7)
    assert all(isinstance(value, str) for value in catalog.properties.values())
