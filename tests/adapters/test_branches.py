"""WRITE and COMPACT of a branch: main never moves, others' commits are judged on the branch, replies are lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from regelate.core.requests import CompactRequest
from regelate.errors import CommitStateUnknown, Conflict
from tests.servers.rest_stub import Reply, RestStub, rest_stub
from tests.support.iceberg_tables import arrow_rows, local_path, make_catalog, make_table
from tests.support.lake import address
from tests.system.faults.hooks import Hooked, PatientClock
from tests.system.faults.stack import Stack, assert_nothing_left_behind, data_files, request, stack_with

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "n", LongType()))
COLUMNS = {"id": "long", "n": "long"}
ON_MAIN, ON_SIDE = [1, 2, 3], [1, 2, 3, 11, 12]


class Scene:
    """Three rows in three files on main, and two more on the branch `side`, which keeps 7 snapshots; a tag `v1`."""

    def __init__(self, stack: Stack, stub: RestStub | None) -> None:
        self.stack, self.stub = stack, stub
        if stub is None:
            stack.create("t", COLUMNS)
        else:
            make_table(stub.catalog, "default.t", SCHEMA)
        for number in ON_MAIN:
            stack.ok("WRITE", "t", records=[{"id": number, "n": 0}])
        table = self.table()
        fork(table)
        table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, "v1").commit()
        self.main = self.ref_entry("main")

    def table(self) -> Table:
        if self.stub is None:
            return self.stack.table("default.t")
        loaded: Table = self.stub.catalog.load_table("default.t")
        return loaded

    def ref_entry(self, name: str) -> str:
        """Return what the metadata file itself says of a ref."""
        document = json.loads(local_path(self.table().metadata_location).read_text())
        return json.dumps([document["refs"][name], document["current-snapshot-id"] if name == "main" else None])

    def ids(self, ref: str = "side") -> list[int]:
        return [row["id"] for row in self.stack.ok("QUERY", "t", ref=ref, order_by=[{"column": "id"}])["rows"]]


def fork(table: Table) -> None:
    """Make the branch `side` and append two rows to it; PyIceberg's own appends forget what a branch keeps."""
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "side").commit()
    for number in ON_SIDE[3:]:
        table.append(arrow_rows(table, [(number, 0)]), branch="side")
    at = table.metadata.refs["side"].snapshot_id
    table.manage_snapshots().remove_branch("side").commit()
    table.manage_snapshots().create_branch(at, "side", min_snapshots_to_keep=7).commit()


@contextmanager
def over_rest(folder: Path) -> Iterator[Scene]:
    with rest_stub(make_catalog(folder)) as stub:
        catalog = {"type": "rest", "uri": stub.uri}
        stack = stack_with(folder / "lake", auth="none", tenants="*", catalogs={"rest": catalog})
        stack.built.again(clock=PatientClock())
        yield Scene(stack, stub)


@pytest.fixture(params=["sql", "rest"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    if request.param == "sql":
        yield Scene(Stack(tmp_path / "lake"), None)
        return
    with over_rest(tmp_path) as made:
        yield made


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[tuple[Scene, RestStub]]:
    with over_rest(tmp_path) as made:
        assert made.stub is not None
        yield made, made.stub


def test_a_branch_is_written_and_compacted_and_main_is_byte_for_byte_what_it_was(scene: Scene) -> None:
    scene.stack.ok("WRITE", "t", ref="side", records=[{"id": 21, "n": 1}])
    scene.stack.ok("WRITE", "t", ref="side", mode="upsert", key=["id"], records=[{"id": 2, "n": 9}, {"id": 22, "n": 1}])
    assert scene.ids() == [1, 2, 3, 11, 12, 21, 22]
    files = len(list(scene.table().scan().use_ref("side").plan_files()))
    planned = scene.stack.ok("COMPACT", "t", ref="side", force=True, dry_run=True)
    assert planned["plan"]["files"] == files > 5
    told = scene.stack.ok("COMPACT", "t", ref="side", force=True, plan_id=planned["plan"]["plan_id"])
    assert (told["status"], told["stats"]["files_before"], told["stats"]["files_after"]) == ("COMPLETED", files, 1)
    assert scene.ids() == [1, 2, 3, 11, 12, 21, 22]
    assert scene.stack.ok("QUERY", "t", ref="side", filter={"id": 2})["rows"] == [{"id": 2, "n": 9}]
    assert (scene.ref_entry("main"), scene.ids("main")) == (scene.main, ON_MAIN)
    side = scene.table().metadata.refs["side"]
    assert (side.snapshot_id, side.min_snapshots_to_keep) == (told["snapshot_id"], 7)
    made = scene.table().metadata.snapshot_by_id(side.snapshot_id)
    assert made is not None
    assert made.summary is not None
    assert made.summary["total-records"] == "7"
    assert_nothing_left_behind(scene.table())


def test_an_overwrite_of_a_branch_replaces_its_own_rows_alone(scene: Scene) -> None:
    scene.stack.ok("WRITE", "t", ref="side", mode="overwrite_partitions", records=[{"id": 99, "n": 0}])
    assert (scene.ids(), scene.ids("main"), scene.ref_entry("main")) == ([99], ON_MAIN, scene.main)


def test_a_key_is_remembered_on_its_branch_and_means_another_request_elsewhere(scene: Scene) -> None:
    write: dict[str, Any] = {"records": [{"id": 31, "n": 0}], "idempotency_key": "k"}
    first = scene.stack.ok("WRITE", "t", ref="side", **write)
    again = scene.stack.ok("WRITE", "t", ref="side", **write)
    assert (again["snapshot_id"], again["already_done"]) == (first["snapshot_id"], True)
    on_main = scene.stack.ok("WRITE", "t", **write)
    assert on_main["already_done"] is False
    assert (scene.ids("main"), scene.ids()) == ([*ON_MAIN, 31], [*ON_SIDE, 31])
    compact: dict[str, Any] = {"force": True, "idempotency_key": "c"}
    scene.stack.ok("COMPACT", "t", ref="side", **compact)
    assert scene.stack.ok("COMPACT", "t", ref="side", **compact)["status"] == "ALREADY_DONE"
    scene.table().manage_snapshots().set_current_snapshot(ref_name="side").commit()
    for body in (request("COMPACT", "t", **compact), request("WRITE", "t", **write)):
        scene.stack.refused(422, "IDEMPOTENCY_KEY_REUSED", ["another request"], body)
    assert scene.stack.ok("COMPACT", "t", ref="side", **compact)["status"] == "ALREADY_DONE"


def test_main_by_its_name_is_main_as_with_no_ref(scene: Scene) -> None:
    write: dict[str, Any] = {"records": [{"id": 4, "n": 0}], "idempotency_key": "k"}
    first = scene.stack.ok("WRITE", "t", ref="main", **write)
    assert scene.stack.ok("WRITE", "t", **write)["snapshot_id"] == first["snapshot_id"]
    assert scene.stack.ok("COMPACT", "t", ref="main", force=True)["status"] == "COMPLETED"
    assert (scene.ids("main"), scene.ids()) == ([*ON_MAIN, 4], ON_SIDE)


@pytest.mark.parametrize("operation", ["WRITE", "COMPACT"])
def test_a_tag_and_an_unknown_branch_are_refused_by_name(scene: Scene, operation: str) -> None:
    fields = {"records": [{"id": 4, "n": 0}]} if operation == "WRITE" else {"force": True}
    before = scene.table().metadata_location
    scene.stack.refused(400, "INVALID_FIELD", ["'v1'", "tag"], request(operation, "t", ref="v1", **fields))
    told = scene.stack.refused(404, "REF_NOT_FOUND", ["'x'", "side"], request(operation, "t", ref="x", **fields))
    assert told["details"]["ref"] == "x"
    if operation == "COMPACT":
        spark = request("COMPACT", "t", ref="side", engine="spark")
        scene.stack.refused(400, "INVALID_FIELD", ["ref", "Spark"], spark)
    assert scene.table().metadata_location == before


def test_a_plan_of_main_runs_on_a_branch_that_holds_its_snapshot_and_on_no_other(scene: Scene) -> None:
    plan = scene.stack.ok("COMPACT", "t", force=True, dry_run=True)["plan"]
    told = scene.stack.ok("COMPACT", "t", ref="side", force=True, plan_id=plan["plan_id"])
    assert (told["status"], scene.ids(), scene.ref_entry("main")) == ("COMPLETED", ON_SIDE, scene.main)
    scene.stack.ok("WRITE", "t", records=[{"id": 4, "n": 0}])
    plan = scene.stack.ok("COMPACT", "t", force=True, dry_run=True)["plan"]
    body = request("COMPACT", "t", ref="side", force=True, plan_id=plan["plan_id"])
    scene.stack.refused(409, "BASE_NOT_ANCESTOR", ["plan again"], body)


def test_a_commit_of_main_at_the_very_moment_is_no_conflict_and_both_survive(rest: tuple[Scene, RestStub]) -> None:
    """The branch is where it was, and the sequence number is taken: a requirement cannot see that."""
    scene, stub = rest
    table = scene.table()
    stub.commits = [Reply(0, passes=True, before=lambda: table.append(arrow_rows(table, [(4, 0)])))]
    told = scene.stack.ok("COMPACT", "t", ref="side", force=True)
    assert (told["status"], told["stats"]["commit_attempts"]) == ("COMPLETED", 2)
    assert (scene.ids(), scene.ids("main")) == (ON_SIDE, [*ON_MAIN, 4])
    assert_nothing_left_behind(scene.table())


def test_a_reply_that_is_lost_is_found_on_the_branch_over_rest(rest: tuple[Scene, RestStub]) -> None:
    scene, stub = rest
    stub.commits = [Reply(503, landed=True)]
    told = scene.stack.ok("COMPACT", "t", ref="side", force=True)
    assert (told["status"], scene.ids()) == ("COMPLETED", ON_SIDE)
    assert scene.table().metadata.refs["side"].snapshot_id == told["snapshot_id"]


@pytest.mark.parametrize("how", ["dropped", "put elsewhere"])
def test_while_a_request_is_under_way_to_a_branch_that_is_not_there_no_file_is_deleted(
    rest: tuple[Scene, RestStub], how: str
) -> None:
    """The branch may be made again where it was, and the request fits then."""
    scene, stub = rest
    table = scene.table()
    at = table.metadata.refs["side"].snapshot_id

    def drop() -> None:
        scene.table().manage_snapshots().remove_branch("side").commit()
        if how == "put elsewhere":
            other = scene.table()
            other.manage_snapshots().create_branch(other.metadata.current_snapshot_id or 0, "side").commit()

    stub.commits = [Reply(504, late=True, before=drop)]
    status, told = scene.stack.post(request("COMPACT", "t", ref="side", force=True))
    assert (status, told["error"]["code"]) == (503, "COMMIT_STATE_UNKNOWN")
    if how == "put elsewhere":
        scene.table().manage_snapshots().remove_branch("side").commit()
    scene.table().manage_snapshots().create_branch(at, "side").commit()
    assert stub.arrive() == 200
    assert (scene.ids(), len(list(scene.table().scan().use_ref("side").plan_files()))) == (ON_SIDE, 1)


class Between:
    """The same table behind a service over SQL into whose COMPACT a test can step."""

    def __init__(self, folder: Path, format_version: int = 2) -> None:
        self.built = Hooked(folder)
        make_table(self.built.hooked, "default.t", SCHEMA, format_version=format_version)
        for number in ON_MAIN:
            self.table().append(arrow_rows(self.table(), [(number, 0)]))
        fork(self.table())
        self.main = self.table().metadata.refs["main"]

    def table(self) -> Table:
        """Load it as another program would."""
        loaded: Table = make_catalog(self.built.folder, "local").load_table("default.t")
        return loaded

    def compact(self, between: Callable[[], object] | None = None, **fields: Any) -> Any:
        if between is not None:
            self.built.between.append(between)
        asked = CompactRequest(ref="side", force=True, **fields)
        return self.built.service.compactions.compact(address("default.t"), asked)

    def append(self, number: int, branch: str = "main") -> None:
        table = self.table()
        table.append(arrow_rows(table, [(number, 0)]), branch=branch)

    def drop(self) -> None:
        self.table().manage_snapshots().remove_branch("side").commit()

    def ids(self, ref: str = "side") -> list[int]:
        return sorted(self.table().scan().use_ref(ref).to_arrow()["id"].to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Between:
    return Between(tmp_path)


def test_a_branch_of_a_table_of_format_1_is_compacted_beside_main(tmp_path: Path) -> None:
    lake = Between(tmp_path, format_version=1)
    lake.built.hooked.before_commit.append(lambda: lake.append(4))
    assert lake.compact().status == "COMPLETED"
    assert (lake.ids(), lake.ids("main")) == (ON_SIDE, [*ON_MAIN, 4])


def test_commits_of_main_during_the_compaction_of_a_branch_are_no_conflict(lake: Between) -> None:
    told = lake.compact(lambda: (lake.append(4), lake.append(5)))
    assert (told.status, told.stats.commit_attempts, told.warnings) == ("COMPLETED", 1, ())
    assert (lake.ids(), lake.ids("main")) == (ON_SIDE, [*ON_MAIN, 4, 5])


def test_a_commit_of_main_between_look_and_swap_is_no_conflict_and_leaves_nothing_behind(lake: Between) -> None:
    lake.built.hooked.before_commit.append(lambda: lake.append(4))
    told = lake.compact()
    assert (told.status, told.stats.commit_attempts) == ("COMPLETED", 2)
    assert (lake.ids(), lake.ids("main")) == (ON_SIDE, [*ON_MAIN, 4])
    table = lake.table()
    known = {m.manifest_path for s in table.snapshots() for m in s.manifests(table.io)}
    known |= {s.manifest_list for s in table.snapshots()}
    known = {str(local_path(path)) for path in known}
    assert {str(p) for p in (local_path(table.location()) / "metadata").glob("*.avro")} <= known
    assert_nothing_left_behind(table)


def test_others_on_the_branch_are_judged_as_on_main(lake: Between) -> None:
    told = lake.compact(lambda: lake.append(13, "side"))
    assert (told.status, lake.ids()) == ("COMPLETED", [*ON_SIDE, 13])
    lake.append(14, "side")
    with pytest.raises(Conflict) as found:
        lake.compact(lambda: lake.table().delete(EqualTo("id", 11), branch="side"))
    assert found.value.code == "COMMIT_CONFLICT"
    assert (lake.ids(), lake.ids("main")) == ([1, 2, 3, 12, 13, 14], ON_MAIN)
    assert lake.table().metadata.refs["main"] == lake.main
    assert_nothing_left_behind(lake.table())


def test_a_delete_on_main_leaves_the_branch_to_its_own_files(lake: Between) -> None:
    told = lake.compact(lambda: lake.table().delete(EqualTo("id", 1)))
    assert (told.status, lake.ids(), lake.ids("main")) == ("COMPLETED", ON_SIDE, [2, 3])


def test_a_lost_reply_is_found_on_the_branch(lake: Between) -> None:
    def lose() -> None:
        raise TimeoutError

    lake.built.hooked.after_commit.append(lose)
    told = lake.compact()
    assert (told.status, lake.built.hooked.commits) == ("COMPLETED", 1)
    assert lake.table().metadata.refs["side"].snapshot_id == told.snapshot_id
    assert (lake.ids(), lake.table().metadata.refs["main"]) == (ON_SIDE, lake.main)


def test_a_branch_that_is_dropped_meanwhile_is_a_conflict_of_its_own_and_no_file_stays(lake: Between) -> None:
    before = data_files(lake.table())
    with pytest.raises(Conflict) as found:
        lake.compact(lake.drop)
    assert (found.value.code, "'side'" in found.value.message) == ("REF_DROPPED", True)
    assert (lake.ids("main"), data_files(lake.table())) == (ON_MAIN, before)
    assert "side" not in lake.table().metadata.refs


def test_a_branch_that_is_dropped_before_the_swap_is_not_made_again(lake: Between) -> None:
    lake.built.hooked.before_commit.append(lake.drop)
    with pytest.raises(Conflict) as found:
        lake.compact()
    assert (found.value.code, "side" in lake.table().metadata.refs) == ("REF_DROPPED", False)
    assert_nothing_left_behind(lake.table())


def test_a_tag_of_its_name_is_not_taken_for_the_branch(lake: Between) -> None:
    def tag() -> None:
        at = lake.table().metadata.refs["side"].snapshot_id
        lake.drop()
        lake.table().manage_snapshots().create_tag(at, "side").commit()

    with pytest.raises(Conflict) as found:
        lake.compact(tag)
    assert found.value.code == "REF_DROPPED"


def test_a_branch_that_is_fast_forwarded_meanwhile_is_judged_where_it_is(lake: Between) -> None:
    """From main's snapshot to a younger one of main, which holds the planned files still."""
    lake.drop()
    lake.table().manage_snapshots().create_branch(lake.main.snapshot_id, "side").commit()

    def forward() -> None:
        lake.append(4)
        lake.drop()
        lake.table().manage_snapshots().create_branch(head_of(lake), "side").commit()

    told = lake.compact(forward)
    assert (told.status, lake.ids(), lake.ids("main")) == ("COMPLETED", [*ON_MAIN, 4], [*ON_MAIN, 4])
    assert len(list(lake.table().scan().use_ref("main").plan_files())) == 4


def test_a_branch_that_is_put_on_mains_snapshot_meanwhile_is_planned_again(lake: Between) -> None:
    def put() -> None:
        lake.drop()
        lake.table().manage_snapshots().create_branch(head_of(lake), "side").commit()

    with pytest.raises(Conflict) as found:
        lake.compact(put)
    assert (found.value.code, lake.ids()) == ("BASE_NOT_ANCESTOR", ON_MAIN)
    assert_nothing_left_behind(lake.table())


def head_of(lake: Between) -> int:
    found = lake.table().metadata.current_snapshot_id
    assert found is not None
    return found


def test_the_state_of_a_commit_that_nobody_knows_keeps_the_files_of_a_branch(lake: Between) -> None:
    def hang() -> None:
        raise TimeoutError

    lake.built.hooked.before_commit.extend([hang] * 5)
    with pytest.raises(CommitStateUnknown):
        lake.compact()
    assert (lake.ids(), lake.table().metadata.refs["main"]) == (ON_SIDE, lake.main)
