"""Tags and rollbacks over HTTP, on SQL and REST catalogs: requirements, expiry, and the memory of run ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from tests.servers.rest_stub import Reply, RestStub, rest_stub
from tests.support.iceberg_tables import append, arrow_rows, make_catalog, make_table, rows
from tests.support.lake import Lake
from tests.support.table_model import model_rows
from tests.system.faults.hooks import PatientClock
from tests.system.faults.stack import Stack, request, stack_with

COLUMNS = {"id": "long"}
SCHEMA = Schema(NestedField(1, "id", LongType()))


class LaterClock(PatientClock):
    """A year ahead: every snapshot is old enough to expire."""

    def now_ms(self) -> int:
        return super().now_ms() + 365 * 24 * 3_600_000


class Scene:
    """A table of four snapshots of one row each, behind the handler; `catalog` is another program's way to it."""

    def __init__(self, stack: Stack, stub: RestStub | None) -> None:
        self.stack, self.stub = stack, stub
        if stub is None:
            stack.create("t", COLUMNS)
        else:
            make_table(stub.catalog, "default.t", SCHEMA)
        self.ids = [stack.ok("WRITE", "t", records=[{"id": n}])["snapshot_id"] for n in range(4)]

    def table(self) -> Table:
        if self.stub is None:
            return self.stack.table("default.t")
        loaded: Table = self.stub.catalog.load_table("default.t")
        return loaded

    def ids_read(self, **query: Any) -> list[int]:
        found = self.stack.ok("QUERY", "t", order_by=[{"column": "id"}], **query)["rows"]
        return [row["id"] for row in found]


@pytest.fixture(params=["sql", "rest"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    if request.param == "sql":
        yield Scene(Stack(tmp_path / "lake"), None)
        return
    with rest_stub(make_catalog(tmp_path)) as stub:
        catalog = {"type": "rest", "uri": stub.uri}
        stack = stack_with(tmp_path / "lake", auth="none", tenants="*", catalogs={"rest": catalog})
        stack.built.again(clock=PatientClock())
        yield Scene(stack, stub)


def test_a_tag_is_made_listed_and_dropped_and_no_file_changes_but_metadata(scene: Scene) -> None:
    told = scene.stack.ok("CREATE_TAG", "t", tag="v1", snapshot_id=str(scene.ids[1]), retention_hours=48)
    assert (told["created"], told["snapshot_id"]) == (True, scene.ids[1])
    assert scene.stack.ok("CREATE_TAG", "t", tag="now")["snapshot_id"] == scene.ids[3]
    refs = {ref["name"]: ref for ref in scene.stack.ok("DESCRIBE_TABLE", "t")["refs"]}
    assert refs["v1"] == {"name": "v1", "type": "tag", "snapshot_id": scene.ids[1], "retention_hours": 48.0}
    assert refs["now"]["retention_hours"] is None
    assert refs["main"]["snapshot_id"] == scene.ids[3]
    assert scene.table().metadata.refs["v1"].max_ref_age_ms == 48 * 3_600_000
    assert scene.stack.ok("DROP_TAG", "t", tag="v1")["snapshot_id"] == scene.ids[1]
    scene.stack.refused(404, "REF_NOT_FOUND", ["v1"], request("DROP_TAG", "t", tag="v1"))
    scene.stack.refused(404, "REF_NOT_FOUND", ["branch"], request("DROP_TAG", "t", tag="main"))
    assert set(scene.table().metadata.refs) == {"main", "now"}
    assert len(scene.table().metadata.snapshots) == 4


def test_expiry_keeps_what_a_tag_names_until_it_is_dropped(scene: Scene) -> None:
    scene.stack.ok("CREATE_TAG", "t", tag="audit", snapshot_id=scene.ids[0])
    scene.stack.ok("CREATE_TAG", "t", tag="short", snapshot_id=scene.ids[1], retention_hours=1)
    scene.stack.built.again(clock=LaterClock())
    gone = scene.stack.ok("EXPIRE_SNAPSHOTS", "t", retention_hours=1, min_snapshots_to_keep=1, grace_hours=0)
    assert (set(gone["snapshot_ids"]), gone["refs_removed"]) == ({scene.ids[1], scene.ids[2]}, ["short"])
    assert scene.ids_read(snapshot_id=scene.ids[0]) == [0]
    scene.stack.ok("DROP_TAG", "t", tag="audit")
    gone = scene.stack.ok("EXPIRE_SNAPSHOTS", "t", retention_hours=1, min_snapshots_to_keep=1, grace_hours=0)
    assert gone["snapshot_ids"] == [scene.ids[0]]
    assert scene.ids_read() == [0, 1, 2, 3]


def test_the_tags_of_an_undo_are_dropped_like_any_other(scene: Scene) -> None:
    scene.stack.built.again(clock=LaterClock())
    expire = {"retention_hours": 1, "min_snapshots_to_keep": 1, "grace_hours": 24}
    gone = scene.stack.ok("EXPIRE_SNAPSHOTS", "t", **expire)
    scene.stack.ok("EXPIRE_SNAPSHOTS", "t", undo=gone["undo_id"])
    tag = f"undo-{scene.ids[0]}"
    assert scene.stack.ok("DROP_TAG", "t", tag=tag)["snapshot_id"] == scene.ids[0]
    assert tag not in scene.table().metadata.refs
    assert scene.ids[0] in scene.stack.ok("EXPIRE_SNAPSHOTS", "t", **expire)["snapshot_ids"]


def test_main_goes_back_and_the_head_that_it_leaves_is_kept_by_a_tag(scene: Scene) -> None:
    told = scene.stack.ok("ROLLBACK", "t", snapshot_id=scene.ids[1], keep_tag="left")
    assert (told["previous_snapshot_id"], told["left_snapshot_ids"]) == (scene.ids[3], [scene.ids[3], scene.ids[2]])
    assert scene.ids_read() == [0, 1]
    assert scene.ids_read(snapshot_id=scene.ids[3]) == [0, 1, 2, 3]
    assert scene.stack.ok("ROLLBACK", "t", snapshot_id=scene.ids[1])["rolled_back"] is False
    body = request("ROLLBACK", "t", snapshot_id=scene.ids[3])
    scene.stack.refused(409, "SNAPSHOT_NOT_ANCESTOR", [str(scene.ids[3])], body)
    scene.stack.ok("WRITE", "t", records=[{"id": 9}])
    assert scene.ids_read() == [0, 1, 9]
    scene.stack.built.again(clock=LaterClock())
    gone = scene.stack.ok("EXPIRE_SNAPSHOTS", "t", retention_hours=1, min_snapshots_to_keep=1, grace_hours=0)
    assert scene.ids[2] in gone["snapshot_ids"]
    assert scene.ids_read(snapshot_id=scene.ids[3]) == [0, 1, 2, 3]


def test_main_goes_back_to_a_time(scene: Scene) -> None:
    second = scene.table().metadata.snapshot_by_id(scene.ids[1])
    assert second is not None
    scene.stack.ok("ROLLBACK", "t", as_of=second.timestamp_ms)
    assert scene.ids_read() == [0, 1]
    scene.stack.refused(
        404, "SNAPSHOT_NOT_FOUND", ["begins after"], request("ROLLBACK", "t", as_of="2001-01-01T00:00Z")
    )


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({}, "MISSING_FIELD", ["snapshot_id", "as_of"]),
        ({"snapshot_id": 1, "as_of": 5}, "INVALID_FIELD", ["as_of"]),
        ({"as_of": "yesterday"}, "INVALID_FIELD", ["as_of"]),
        ({"as_of": 5, "keep_tag": "12"}, "INVALID_IDENTIFIER", ["snapshot by its id"]),
    ],
)
def test_a_way_back_that_says_nothing_or_two_things_is_refused(
    tmp_path: Path, fields: dict[str, object], code: str, words: list[str]
) -> None:
    stack = Stack(tmp_path / "lake")
    stack.create("t", COLUMNS)
    with stack.untouched():
        stack.refused(400, code, words, request("ROLLBACK", "t", **fields))
        stack.refused(404, "SNAPSHOT_NOT_FOUND", ["nothing"], request("ROLLBACK", "t", as_of=5))
        stack.refused(404, "SNAPSHOT_NOT_FOUND", ["no snapshot"], request("CREATE_TAG", "t", tag="a"))


def test_over_rest_a_commit_that_lost_its_answer_is_found_and_another_writers_is_a_conflict(tmp_path: Path) -> None:
    with rest_stub(make_catalog(tmp_path)) as stub:
        catalog = {"type": "rest", "uri": stub.uri}
        stack = stack_with(tmp_path / "lake", auth="none", tenants="*", catalogs={"rest": catalog})
        stack.built.again(clock=PatientClock())
        scene = Scene(stack, stub)
        stub.commits = [Reply(status=503, landed=True)]
        assert stack.ok("CREATE_TAG", "t", tag="v1")["created"] is True
        stub.commits = [Reply(status=409, landed=True)]
        assert stack.ok("ROLLBACK", "t", snapshot_id=scene.ids[2], keep_tag="left")["rolled_back"] is True
        assert {n: r.snapshot_id for n, r in scene.table().metadata.refs.items()} == {
            "main": scene.ids[2],
            "v1": scene.ids[3],
            "left": scene.ids[3],
        }
        stub.commits = [Reply(status=200, passes=True, before=lambda: append(scene.table(), [(77,)]))]
        stack.refused(409, "COMMIT_CONFLICT", ["meanwhile"], request("ROLLBACK", "t", snapshot_id=scene.ids[0]))
        assert (77,) in rows(scene.table())


def test_a_write_and_a_compaction_of_a_history_that_was_left_are_made_anew_and_then_once(tmp_path: Path) -> None:
    """Main's lineage decides: a key that landed on the history that was left does not count any more."""
    stack = Stack(tmp_path / "lake")
    stack.create("t", COLUMNS)
    base = [stack.ok("WRITE", "t", records=[{"id": n}])["snapshot_id"] for n in range(3)][-1]
    write = {"records": [{"id": 7}], "idempotency_key": "night"}
    compact = {"force": True, "expire_snapshots": False, "idempotency_key": "merge"}
    first = stack.ok("WRITE", "t", **write)["snapshot_id"]
    merged = stack.ok("COMPACT", "t", **compact)["snapshot_id"]
    stack.ok("ROLLBACK", "t", snapshot_id=base)
    assert [row["id"] for row in stack.rows("t")] == [0, 1, 2]
    again = stack.ok("WRITE", "t", **write)
    assert (again["already_done"], again["snapshot_id"] != first) == (False, True)
    assert stack.ok("WRITE", "t", **write)["already_done"] is True
    told = stack.ok("COMPACT", "t", **compact)
    assert (told["status"], told["snapshot_id"] != merged) == ("COMPLETED", True)
    assert stack.ok("COMPACT", "t", **compact)["status"] == "ALREADY_DONE"
    assert [row["id"] for row in stack.rows("t")] == [0, 1, 2, 7]


def test_a_compaction_that_is_under_way_while_main_goes_back_commits_nothing(lake: Lake) -> None:
    stack = Stack(lake.folder)
    stack.create("t", COLUMNS)
    ids = [stack.ok("WRITE", "t", records=[{"id": n}])["snapshot_id"] for n in range(4)]
    told = lake.compact_or_conflict(
        "default.t", force=True, between=lambda: stack.ok("ROLLBACK", "t", snapshot_id=ids[1], keep_tag="left")
    )
    assert told == "BASE_NOT_ANCESTOR"
    table = stack.table("default.t")
    assert table.metadata.current_snapshot_id == ids[1]
    assert len(model_rows(table)) == 2
    assert lake.compact("default.t", force=True)["status"] == "COMPLETED"
    assert [row["id"] for row in stack.rows("t")] == [0, 1]


def test_a_query_reads_a_branch_or_a_tag_and_main_never_moves(scene: Scene) -> None:
    scene.stack.ok("CREATE_TAG", "t", tag="v1", snapshot_id=scene.ids[1])
    other = scene.table()
    other.manage_snapshots().create_branch(scene.ids[2], "side").commit()
    other.append(arrow_rows(other, [(99,)]), branch="side")
    main = scene.stack.ok("DESCRIBE_TABLE", "t")["snapshot_id"]
    scene.stack.ok("ALTER_TABLE", "t", add_columns={"note": {"type": "string"}})
    before = scene.table().metadata_location
    told = {name: scene.stack.ok("QUERY", "t", ref=name) for name in ("v1", "side", "main")}
    assert {name: sorted(row["id"] for row in answer["rows"]) for name, answer in told.items()} == {
        "v1": [0, 1],
        "side": [0, 1, 2, 99],
        "main": [0, 1, 2, 3],
    }
    assert [column["name"] for column in told["v1"]["columns"]] == ["id"]
    assert [column["name"] for column in told["side"]["columns"]] == ["id", "note"]
    assert told["v1"]["snapshot_id"] == scene.ids[1]
    counted = scene.stack.ok("QUERY", "t", ref="side", sql="SELECT count(*) AS n FROM t WHERE id > 50")
    assert counted["rows"] == [{"n": 1}]
    assert scene.stack.ok("QUERY", "t", ref="side", filter={"id": 99})["row_count"] == 1
    error = scene.stack.refused(404, "REF_NOT_FOUND", ["'v2'", "v1", "side"], request("QUERY", "t", ref="v2"))
    assert error["details"]["ref"] == "v2"
    assert (scene.table().metadata_location, scene.stack.ok("DESCRIBE_TABLE", "t")["snapshot_id"]) == (before, main)


def test_a_query_of_main_by_its_name_is_the_table_also_where_it_is_empty(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "lake")
    stack.create("t", COLUMNS)
    assert stack.ok("QUERY", "t", ref="main")["rows"] == []
    stack.refused(404, "REF_NOT_FOUND", ["none"], request("QUERY", "t", ref="other"))
