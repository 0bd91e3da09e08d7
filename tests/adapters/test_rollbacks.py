"""Main is rolled back, and what was in it is asked for again or still under way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from regelate.adapters.iceberg.commit.committer import IcebergCommitter
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.core.running.commit import ExpiryChange, Outcome, SnapshotChange
from tests.servers.rest_stub import Reply, RestStub, rest_stub
from tests.support.iceberg_tables import (
    NoLedger,
    append,
    arrow_rows,
    live_data_paths,
    local_path,
    make_catalog,
    make_table,
    rows,
)
from tests.support.lake import Lake
from tests.system.faults.hooks import PatientClock
from tests.system.faults.stack import data_files, request, stack_with

SCHEMA = Schema(NestedField(1, "i", LongType()))


def test_a_write_that_was_rolled_back_is_made_again_under_its_key_and_then_only_once(lake: Lake) -> None:
    table = lake.table(SCHEMA, [{"i": 1}])
    base = table.metadata.current_snapshot_id or 0
    first = lake.write(table, [{"i": 2}], idempotency_key="k")
    table.refresh().manage_snapshots().rollback_to_snapshot(base).commit()
    again = lake.write(table, [{"i": 2}], idempotency_key="k")
    assert again["snapshot_id"] != first["snapshot_id"]
    assert sorted(rows(table.refresh())) == [(1,), (2,)]
    assert lake.write(table, [{"i": 2}], idempotency_key="k")["snapshot_id"] == again["snapshot_id"]
    assert sorted(rows(table.refresh())) == [(1,), (2,)]


class Scene:
    """A table of three files behind a REST catalog that lets requests take their time."""

    def __init__(self, folder: Path, stub: RestStub, version: int) -> None:
        self.stub = stub
        make_table(stub.catalog, "default.t", SCHEMA, format_version=version)
        for number in range(3):
            append(self.table(), [(number,)])
        self.base = self.table().metadata.current_snapshot_id or 0
        catalog = {"type": "rest", "uri": stub.uri}
        self.stack = stack_with(folder / "lake", auth="none", tenants="*", catalogs={"rest": catalog})
        self.stack.built.again(clock=PatientClock())

    def table(self) -> Any:
        return self.stub.catalog.load_table("default.t")

    def another_overwrites(self) -> None:
        self.table().overwrite(arrow_rows(self.table(), [(7,)]))

    def roll_back(self) -> None:
        self.table().manage_snapshots().rollback_to_snapshot(self.base).commit()


@pytest.fixture(params=[1, 2])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with rest_stub(make_catalog(tmp_path)) as stub:
        yield Scene(tmp_path, stub, request.param)


def test_t47_a_request_that_fits_again_after_a_rollback_finds_its_files(scene: Scene) -> None:
    """Format 2 refuses it by its sequence number. Format 1 has none: what may come for ever is kept for ever."""
    before = data_files(scene.table())

    def act() -> None:
        scene.stub.loads[:] = [Reply(0, before=scene.another_overwrites, passes=True)]

    scene.stub.commits[:] = [Reply(504, late=True, before=act)]
    status, answer = scene.stack.post(request("COMPACT", "t", force=True, expire_snapshots=False))
    has_numbers = scene.table().metadata.format_version > 1
    expected = (409, "COMMIT_CONFLICT") if has_numbers else (503, "COMMIT_STATE_UNKNOWN")
    assert (status, answer["error"]["code"]) == expected
    ours = {path for path in data_files(scene.table()) - before if path not in _live(scene)}
    assert len(ours) == (0 if has_numbers else 1)
    scene.roll_back()
    assert scene.stub.arrive() == (400 if has_numbers else 200)
    assert sorted(rows(scene.table())) == [(0,), (1,), (2,)]
    assert len(live_data_paths(scene.table())) == (3 if has_numbers else 1)


def _live(scene: Scene) -> set[str]:
    return {str(local_path(path)) for path in live_data_paths(scene.table())}


@pytest.mark.parametrize(("operation", "options"), [("COMPACT", {"force": True}), ("REWRITE_MANIFESTS", {})])
def test_t47_what_one_commit_leaves_to_a_sweep_the_next_of_the_same_request_does_not_delete(
    scene: Scene, operation: str, options: dict[str, bool]
) -> None:
    """Both attempts are answered 409, and the second has landed: under format 1 the first may come back any time."""
    scene.stub.commits[:] = [Reply(409), Reply(409, landed=True)]
    status, answer = scene.stack.post(request(operation, "t", **options))
    head = scene.table().metadata.current_snapshot_id
    assert (status, answer["snapshot_id"], scene.stub.commits) == (200, head, [])
    assert sorted(rows(scene.table())) == [(0,), (1,), (2,)]


class CountedLedger(NoLedger):
    """Counts how often somebody wants its entries kept."""

    owed = 0

    def owe(self) -> None:
        self.owed += 1


@pytest.mark.parametrize("makes_files", [True, False])
def test_t39_of_a_conflict_only_files_that_were_made_for_it_are_left_to_a_sweep(
    scene: Scene, makes_files: bool
) -> None:
    """Over REST an expiry makes none: then the ledger keeps nothing."""
    table, ledger = load_catalog("rest", type="rest", uri=scene.stub.uri).load_table("default.t"), CountedLedger()
    committer = IcebergCommitter(table.catalog, table, ManifestReader(), ledger)
    head = committer.head()
    first = head.snapshots[0].snapshot_id
    expiry = ExpiryChange(snapshot_ids=(first,), expected_refs=head.refs)
    append = SnapshotChange(operation="append", snapshot_id=committer.new_snapshot_id(), summary={})
    scene.stub.commits[:] = [Reply(409)]
    assert committer.try_commit(head, append if makes_files else expiry) is Outcome.LOST
    committer.leave_lost()
    assert ledger.owed == makes_files
