"""Trap T8 over REST: a tag that is made while its snapshot expires is gone, and somebody has to say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from regelate.tenancy import Address
from tests.servers.rest_stub import Reply, RestStub, rest_stub
from tests.support.iceberg_tables import append, local_path, make_catalog, make_table, rows
from tests.system.faults.hooks import PatientClock
from tests.system.faults.stack import Answer, request, stack_with

SCHEMA = Schema(NestedField(1, "id", LongType()))
IDENT = "default.t"
EXPIRE = request("EXPIRE_SNAPSHOTS", "t", retention_hours=1, min_snapshots_to_keep=1, grace_hours=24)


class LaterClock(PatientClock):
    """Two hours ahead: every snapshot is old enough."""

    def now_ms(self) -> int:
        return super().now_ms() + 7_200_000


class Scene:
    def __init__(self, folder: Path, stub: RestStub, properties: dict[str, str] | None = None) -> None:
        self.stub = stub
        make_table(stub.catalog, IDENT, SCHEMA, properties=properties)
        for number in range(4):
            append(self.table(), [(number,)])
        self.first = self.table().metadata.snapshots[0].snapshot_id
        catalog = {"type": "rest", "uri": stub.uri}
        self.stack = stack_with(folder / "lake", auth="none", tenants="*", catalogs={"rest": catalog})
        self.stack.built.again(clock=LaterClock())

    def table(self) -> Any:
        return self.stub.catalog.load_table(IDENT)

    def tag(self) -> None:
        self.table().manage_snapshots().create_tag(self.first, "audit").commit()

    def others(self, commits: int) -> Callable[[], None]:
        """Let others commit before our program gets to look."""

        def act() -> None:
            for number in range(commits):
                append(self.table(), [(100 + number,)])

        return act

    def loses(self, status: int, before: Callable[[], object], after: Callable[[], object]) -> None:
        """Let the next commit land and be answered so; act before it, and before the look that follows."""

        def act() -> None:
            before()
            self.stub.loads[:] = [Reply(0, before=after, passes=True)]

        self.stub.commits[:] = [Reply(status, landed=True, passes=status == 200, before=act)]
        if status == 401:  # PyIceberg sends it again
            self.stub.commits.append(Reply(401))

    def refused(self, body: Answer = EXPIRE) -> Answer:
        return self.stack.refused(409, "REFS_CHANGED", ["no file was deleted"], body)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with rest_stub(make_catalog(tmp_path)) as stub:
        yield Scene(tmp_path, stub)


@pytest.mark.parametrize("commits", [0, 2])
@pytest.mark.parametrize("status", [200, 401, 500, 0])
def test_t8_a_tag_that_went_with_an_expiry_is_told_whatever_became_of_the_reply(
    scene: Scene, status: int, commits: int
) -> None:
    scene.loses(status, scene.tag, scene.others(commits))
    error = scene.refused()
    assert error["details"]["refs"] == ["audit"]
    assert "audit" not in scene.table().metadata.refs
    address = Address(tenant_id="default", catalog="rest", ident=IDENT, table="t")
    scene.stack.service.upkeep.undo_expiry(address, error["details"]["undo_id"])
    assert scene.first in {s.snapshot_id for s in scene.table().metadata.snapshots}
    assert len(rows(scene.table())) == 4 + commits


def test_t8_an_expiry_after_a_compaction_is_told_of_its_own_reply_not_of_the_one_before(scene: Scene) -> None:
    """The commit before it, of the same run, was answered: what that answer says is about another commit."""
    scene.stub.commits[:] = [None, Reply(500, landed=True, before=scene.tag)]
    answer = scene.stack.ok("COMPACT", "t", force=True, snapshot_retention_hours=1)
    assert any("REFS_CHANGED" in warning for warning in answer["warnings"]), answer["warnings"]


@pytest.mark.parametrize("commits", [0, 2])
def test_an_expiry_whose_reply_was_lost_and_that_took_no_ref_is_done(scene: Scene, commits: int) -> None:
    scene.loses(500, lambda: None, scene.others(commits))
    answer = scene.stack.accepted("EXPIRE_SNAPSHOTS", EXPIRE)
    assert scene.first in answer["snapshot_ids"]


def test_t8_where_the_metadata_before_it_is_gone_nobody_says_that_no_ref_is(scene: Scene) -> None:
    def deleted() -> None:
        scene.others(1)()
        before = scene.table().metadata.metadata_log[-3:]
        for entry in before:
            local_path(entry.metadata_file).unlink(missing_ok=True)

    scene.loses(500, scene.tag, deleted)
    assert scene.refused()["details"]["refs"] == []
