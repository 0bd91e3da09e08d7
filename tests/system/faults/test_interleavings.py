"""Rows 37, 38 and 41 to 49: what others do to the table while we compact it, and what the catalog says or does not say.

Another writer commits through a client of its own at a point that the test names; nothing waits and nothing is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg import exceptions as native
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import RemovePartitionSpecsUpdate, SetCurrentSchemaUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from regelate.operations.committing.attempt import MAX_RACES
from tests.support.deletes_writer import add_deletion_vector, add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import (
    append,
    live_data_files,
    live_data_paths,
    live_delete_paths,
    make_catalog,
    make_table,
    rows,
    stored_files,
)
from tests.support.table_model import model_rows
from tests.system.faults.hooks import Hooked, HookedCatalog
from tests.system.faults.stack import Answer, Stack, assert_nothing_left_behind, edit_metadata, request

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
IDENT = "default.t"
COMPACT = request("COMPACT", "t", force=True, expire_snapshots=False)


def batch(start: int, p: str) -> list[tuple[int, str]]:
    return [(start + i, p) for i in range(5)]


class Scene:
    """A table with three small files in each of the partitions x and y, our program, and another writer's client."""

    def __init__(self, folder: Path, schema: Schema = SCHEMA, spec: PartitionSpec = BY_P) -> None:
        self.stack = Stack(folder)
        self.built = Hooked(folder)
        self.stack.built = self.built
        self._other = make_catalog(folder, "local")
        self.table = make_table(self._other, IDENT, schema, spec)

    @property
    def catalog(self) -> HookedCatalog:
        return self.built.hooked

    def other(self) -> Table:
        """The table as another client loads it now."""
        return self._other.load_table(IDENT)

    def compact(self, *meanwhile: Callable[[], object], **more: Any) -> tuple[int, Answer]:
        """COMPACT; the first hook acts when all outputs are written and nothing is judged, the next when our first
        commit is on its way, the others at the later attempts."""
        self.built.between[:] = meanwhile[:1]
        self.catalog.before_commit[:] = meanwhile[1:]
        return self.stack.post({**COMPACT, **more})

    def landed(self, answer: tuple[int, Answer], status: str = "COMPLETED", reason: str = "RECOMMENDED") -> Answer:
        assert (answer[0], answer[1].get("status"), answer[1].get("reason")) == (200, status, reason), answer
        self.nothing_left_behind()
        return answer[1]

    def refused(self, answer: tuple[int, Answer], status: int, code: str, *, retryable: bool) -> Answer:
        found = answer[1].get("error", {})
        assert (answer[0], found.get("code"), found.get("retryable")) == (status, code, retryable), answer
        return dict(found)

    def nothing_left_behind(self) -> None:
        assert_nothing_left_behind(self.other())

    def of(self, p: str) -> list[str]:
        return [path for path in live_data_paths(self.other()) if f"/p={p}/" in path]

    def replacements(self) -> int:
        return sum(s.summary is not None and s.summary.operation.value == "replace" for s in self.other().snapshots())


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    for i in range(3):
        append(made.table, batch(10 * i, "x") + batch(100 + 10 * i, "y"))
    return made


def nothing() -> None:
    return None


# --- conflict salvage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["before the judgement", "between judgement and commit"])
def test_row_43_of_ten_groups_nine_land_and_the_one_that_a_delete_hits_is_dropped(tmp_path: Path, at: str) -> None:
    """Laws 3 and 5. Before the judgement the nine land in the first attempt; after it the commit is lost once."""
    scene = Scene(tmp_path)
    names = [f"p{number}" for number in range(10)]
    for i in range(3):
        append(scene.table, [row for n, name in enumerate(names) for row in batch(1000 * n + 10 * i, name)])
    victims, expected = scene.of("p4"), []

    def meanwhile() -> None:
        other = scene.other()
        add_position_deletes(other, {victims[0]: [0, 3]})
        append(other, [(9999, "p4")])
        expected[:] = model_rows(other)

    early = at == "before the judgement"
    answer = scene.landed(
        scene.compact(meanwhile) if early else scene.compact(nothing, meanwhile), "PARTIAL", "CONFLICT_NEW_DELETE"
    )
    stats = answer["stats"]
    assert (stats["groups"], stats["dropped_groups"], stats["commit_attempts"]) == (9, 1, 1 if early else 2)
    assert (stats["files_compacted"], stats["files_added"]) == (27, 9)
    assert [w for w in answer["warnings"] if "p=p4" in w and "CONFLICT_NEW_DELETE" in w] == answer["warnings"]
    assert scene.replacements() == 1
    assert [len(scene.of(name)) for name in names] == [1] * 4 + [4] + [1] * 5
    assert set(victims) < set(scene.of("p4"))
    assert model_rows(scene.other()) == expected


# --- the catalog says no, or says nothing -----------------------------------------------------------------------------


def test_row_37_as_many_lost_races_as_are_allowed_are_a_conflict_and_no_output_is_left(scene: Scene) -> None:
    def race() -> None:
        append(scene.other(), [(7, "z")])

    answer = scene.compact(nothing, *[race] * MAX_RACES)
    error = scene.refused(answer, 409, "COMMIT_CONFLICT", retryable=True)
    assert error["details"]["attempts"] == scene.catalog.commits == MAX_RACES
    clock = scene.built.clock
    assert clock.sleeps >= MAX_RACES - 1
    assert scene.replacements() == 0
    assert len(rows(scene.other())) == 30 + MAX_RACES
    scene.nothing_left_behind()


def test_row_37_a_race_lost_a_few_times_is_judged_again_and_lands(scene: Scene) -> None:
    def race() -> None:
        append(scene.other(), [(7, "z")])

    answer = scene.landed(scene.compact(nothing, race, race, race))
    assert answer["stats"]["commit_attempts"] == 4
    assert len(rows(scene.other())) == 33


LOSSES: dict[str, Callable[[], Exception]] = {
    "500": lambda: native.ServerError("InternalServerError: oops"),
    "502": lambda: native.ServerError("Bad Gateway"),
    "503": lambda: native.ServiceUnavailableError("try later"),
    "504": lambda: native.CommitStateUnknownException("Gateway Timeout"),
    "dropped connection": lambda: requests.ConnectionError("Connection aborted."),
    "a conflict with itself": lambda: native.CommitFailedException("main has changed"),
}
"""What a client may be told of a commit that landed. The last: its own second try, after a reply was lost (T7)."""


def raising(make: Callable[[], Exception]) -> Callable[[], None]:
    def act() -> None:
        raise make()

    return act


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("attempt", [1, MAX_RACES])
def test_row_38_a_commit_that_landed_is_found_whatever_the_answer_said(scene: Scene, loss: str, attempt: int) -> None:
    def race() -> None:
        append(scene.other(), [(7, "z")])

    scene.catalog.after_commit[:] = [raising(LOSSES[loss])]
    answer = scene.landed(scene.compact(nothing, *[race] * (attempt - 1)))
    assert (answer["stats"]["commit_attempts"], scene.catalog.commits) == (attempt, attempt)
    assert scene.replacements() == 1
    assert len(rows(scene.other())) == 30 + attempt - 1
    assert len(scene.of("x")) == len(scene.of("y")) == 1


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_row_38_what_nobody_can_look_up_is_of_unknown_state_and_no_file_is_deleted(
    scene: Scene, loss: str, landed: bool
) -> None:
    expected, before = model_rows(scene.table), stored_files(scene.table)

    def lose() -> None:
        scene.catalog.on_load[:] = [raising(lambda: native.ServiceUnavailableError("no route"))] * 99
        raise LOSSES[loss]()

    scene.catalog.after_commit[:] = [lose] if landed else []
    answer = scene.compact(nothing, *([] if landed else [lose]))
    error = scene.refused(answer, 503, "COMMIT_STATE_UNKNOWN", retryable=False)
    assert stored_files(scene.table) >= before
    assert len({f for f in stored_files(scene.table) - before if f.endswith(".parquet")}) == 2
    assert (error["details"]["snapshot_id"] in {s.snapshot_id for s in scene.other().snapshots()}) == landed
    assert model_rows(scene.other()) == expected


def test_row_38_the_same_request_again_finds_what_the_lost_reply_had_landed(scene: Scene) -> None:
    def lose() -> None:
        scene.catalog.on_load[:] = [raising(lambda: native.ServiceUnavailableError("no route"))] * 5
        raise LOSSES["500"]()

    scene.catalog.after_commit[:] = [lose]
    scene.refused(scene.compact(idempotency_key="k"), 503, "COMMIT_STATE_UNKNOWN", retryable=False)
    scene.landed(scene.compact(idempotency_key="k"), "ALREADY_DONE", "RUN_ALREADY_COMMITTED")
    assert scene.replacements() == 1


# --- other compactors and writers -------------------------------------------------------------------------------------


def rival(scene: Scene, **more: Any) -> Callable[[], None]:
    """Another process of this very program."""
    other = Stack(scene.stack.folder)

    def act() -> None:
        status, answer = other.post({**COMPACT, **more})
        assert (status, answer["status"]) == (200, "COMPLETED")

    return act


X, Y = {"partition_filter": {"p": "x"}}, {"partition_filter": {"p": "y"}}


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_41_of_two_compactors_of_the_same_groups_one_wins_and_the_other_is_told(scene: Scene, late: bool) -> None:
    expected = model_rows(scene.table)
    answer = scene.compact(nothing, rival(scene)) if late else scene.compact(rival(scene))
    scene.refused(answer, 409, "COMMIT_CONFLICT", retryable=True)
    assert scene.replacements() == 1
    assert model_rows(scene.other()) == expected
    scene.nothing_left_behind()


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_41_of_two_compactors_that_overlap_the_loser_lands_the_rest(scene: Scene, late: bool) -> None:
    expected = model_rows(scene.table)
    answer = scene.compact(nothing, rival(scene, **X)) if late else scene.compact(rival(scene, **X))
    found = scene.landed(answer, "PARTIAL", "CONFLICT_INPUT_REMOVED")
    assert (found["stats"]["files_compacted"], found["stats"]["dropped_groups"]) == (3, 1)
    assert scene.replacements() == 2
    assert (len(scene.of("x")), len(scene.of("y"))) == (1, 1)
    assert model_rows(scene.other()) == expected


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_41_two_compactors_of_different_groups_both_land(scene: Scene, late: bool) -> None:
    expected = model_rows(scene.table)
    answer = scene.compact(nothing, rival(scene, **Y), **X) if late else scene.compact(rival(scene, **Y), **X)
    assert scene.landed(answer)["stats"]["commit_attempts"] == (2 if late else 1)
    assert scene.replacements() == 2
    assert model_rows(scene.other()) == expected


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_42_an_append_meanwhile_is_in_the_head_beside_the_compaction(scene: Scene, late: bool) -> None:
    new: list[str] = []

    def meanwhile() -> None:
        new[:] = append(scene.other(), batch(500, "x"))

    answer = scene.landed(scene.compact(nothing, meanwhile) if late else scene.compact(meanwhile))
    assert answer["stats"]["files_after"] == 3
    assert set(new) < set(live_data_paths(scene.other()))
    assert len(rows(scene.other())) == 35


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
@pytest.mark.parametrize("everywhere", [False, True], ids=["in the partition", "in every partition"])
def test_row_43_an_equality_delete_and_an_append_meanwhile_let_all_land_and_the_rows_stay_deleted(
    tmp_path: Path, late: bool, everywhere: bool
) -> None:
    """Trap T9: the interleaving that Iceberg's own RewriteFiles gets wrong."""
    scene = Scene(tmp_path, spec=PartitionSpec())
    append(scene.table, batch(900, "x"))
    with scene.table.update_spec() as update:
        update.add_identity("p")
    for i in range(3):
        append(scene.table, batch(10 * i, "x") + batch(100 + 10 * i, "y"))
    expected: list[str] = []

    def meanwhile() -> None:
        other = scene.other()
        add_equality_deletes(other, ["id"], [(11,), (111,)], partition=None if everywhere else {"p": "x"})
        append(other, [(11, "x")])
        expected[:] = model_rows(other)

    scene.landed(scene.compact(nothing, meanwhile) if late else scene.compact(meanwhile))
    assert model_rows(scene.other()) == expected
    assert expected.count("(11, 'x')") == 1
    assert len(live_delete_paths(scene.other())) == 1
    again = scene.stack.ok("COMPACT", "t", options={"rewrite-all": "true"})
    assert (again["status"], again["stats"]["delete_files_removed"]) == ("COMPLETED", 1)
    assert model_rows(scene.other()) == expected


@pytest.mark.parametrize("upgraded", [False, True], ids=["in the format of before", "with an upgrade to v3"])
@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_43_a_deletion_vector_meanwhile_stops_the_commit_and_its_rows_stay_deleted(
    scene: Scene, late: bool, upgraded: bool
) -> None:
    """A table that holds one is not for us, whoever put it there when."""

    def meanwhile() -> None:
        add_deletion_vector(scene.other(), scene.of("x")[0])
        if upgraded:
            edit_metadata(scene.other(), lambda m: m.update({"format-version": 3, "next-row-id": 30}))

    answer = scene.compact(nothing, meanwhile) if late else scene.compact(meanwhile)
    scene.refused(answer, 501, "UNSUPPORTED_TABLE", retryable=False)
    assert scene.replacements() == 0
    scene.nothing_left_behind()


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_33_an_upgrade_to_v3_meanwhile_stops_the_commit(scene: Scene, late: bool) -> None:
    def upgrade() -> None:
        append(scene.other(), [(7, "z")])
        edit_metadata(scene.other(), lambda m: m.update({"format-version": 3, "next-row-id": 31}))

    answer = scene.compact(nothing, upgrade) if late else scene.compact(upgrade)
    scene.refused(answer, 501, "UNSUPPORTED_TABLE", retryable=False)
    assert scene.replacements() == 0
    scene.nothing_left_behind()


@pytest.mark.parametrize("what", ["an overwrite", "a delete of a whole file", "a replace by another tool"])
@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_44_files_that_another_removed_drop_their_group_and_do_not_come_back(
    scene: Scene, what: str, late: bool
) -> None:
    expected: list[str] = []

    def meanwhile() -> None:
        other = scene.other()
        if what == "an overwrite":
            other.overwrite(other.scan("id == 0").to_arrow(), overwrite_filter="id == 0")
        elif what == "a delete of a whole file":
            other.delete("id >= 10 and id < 15")
        else:
            rival(scene, strategy="sort", sort_order=[{"column": "id", "direction": "desc"}], **X)()
        expected[:] = model_rows(scene.other())

    answer = scene.compact(nothing, meanwhile) if late else scene.compact(meanwhile)
    found = scene.landed(answer, "PARTIAL", "CONFLICT_INPUT_REMOVED")
    assert found["stats"]["dropped_groups"] == 1
    assert len(expected) == (25 if what == "a delete of a whole file" else 30)
    assert model_rows(scene.other()) == expected


# --- schema and spec --------------------------------------------------------------------------------------------------

WIDE = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "x", LongType()),
)
SCHEMA_CHANGES: dict[str, Callable[[Any], object]] = {
    "add": lambda update: update.add_column("late", StringType()),
    "rename": lambda update: update.rename_column("name", "label"),
    "drop": lambda update: update.delete_column("x"),
    "promote": lambda update: update.update_column("id", LongType()),
    "reorder": lambda update: update.move_first("x"),
    "swap names": lambda update: update.rename_column("name", "x_").rename_column("x", "name"),
    "drop and add again under the name": lambda update: update.delete_column("x").add_column("late", LongType()),
}


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
@pytest.mark.parametrize("change", SCHEMA_CHANGES)
def test_row_45_a_schema_change_meanwhile_leaves_the_rows_as_they_read(tmp_path: Path, change: str, late: bool) -> None:
    scene = Scene(tmp_path, WIDE, PartitionSpec())
    for i in range(3):
        append(scene.table, [(i, f"n{i}", i)])
    expected: list[str] = []

    def meanwhile() -> None:
        other = scene.other()
        with other.update_schema() as update:
            SCHEMA_CHANGES[change](update)
        expected[:] = model_rows(other)

    scene.landed(scene.compact(nothing, meanwhile) if late else scene.compact(meanwhile))
    assert model_rows(scene.other()) == expected
    assert len(live_data_paths(scene.other())) == 1


def test_row_45_a_dropped_column_that_comes_back_meanwhile_is_told_and_nothing_of_it_is_lost(scene: Scene) -> None:
    """The outputs were written without it: its values are in the inputs alone."""
    plain = scene.other()
    with plain.update_schema() as update:
        update.add_column("note", StringType())
    append(plain, [(500, "x", "kept"), (501, "y", "kept")])
    before_drop = plain.schema().schema_id
    with plain.update_schema() as update:
        update.delete_column("note")

    def come_back() -> None:
        plain.catalog.commit_table(scene.other(), (), (SetCurrentSchemaUpdate(schema_id=before_drop),))

    scene.refused(scene.compact(come_back), 409, "SCHEMA_CHANGED", retryable=True)
    scene.nothing_left_behind()
    assert [row for row in rows(scene.other()) if row[2] == "kept"] == [(500, "x", "kept"), (501, "y", "kept")]
    scene.landed(scene.compact())
    assert len([row for row in rows(scene.other()) if row[2] == "kept"]) == 2


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_46_a_spec_change_meanwhile_leaves_every_file_in_its_own_spec(scene: Scene, late: bool) -> None:
    expected: list[str] = []

    def meanwhile() -> None:
        other = scene.other()
        with other.update_spec() as update:
            update.add_identity("id")
        append(other, batch(500, "x")[:2])
        expected[:] = model_rows(other)

    scene.landed(scene.compact(nothing, meanwhile) if late else scene.compact(meanwhile))
    other = scene.other()
    assert other.spec().spec_id == 1
    assert sorted(f.spec_id for f in live_data_files(other)) == [0, 0, 1, 1]
    assert {len(f.partition) for f in live_data_files(other) if f.spec_id == 0} == {1}
    assert model_rows(other) == expected


def test_row_46_a_spec_that_the_table_gave_up_meanwhile_is_told(scene: Scene) -> None:
    """Nothing may then be written under it."""
    other = scene.other()
    with other.update_spec() as update:
        update.remove_field("p")

    def give_up() -> None:
        other.catalog.commit_table(scene.other(), (), (RemovePartitionSpecsUpdate(spec_ids=[0]),))

    head = other.metadata.current_snapshot_id
    scene.refused(scene.compact(give_up), 409, "SPEC_CHANGED", retryable=True)
    assert scene.other().metadata.current_snapshot_id == head


# --- the table itself -------------------------------------------------------------------------------------------------


def test_row_47_a_table_dropped_meanwhile_is_not_found_and_keeps_no_output(scene: Scene) -> None:
    before = stored_files(scene.table)
    answer = scene.compact(lambda: scene.other().catalog.drop_table(IDENT))
    scene.refused(answer, 404, "TABLE_NOT_FOUND", retryable=False)
    assert {f for f in stored_files(scene.table) if f.endswith(".parquet")} <= before


def test_row_47_a_table_renamed_meanwhile_is_not_found_and_untouched_under_its_new_name(scene: Scene) -> None:
    before = stored_files(scene.table)
    answer = scene.compact(lambda: scene.other().catalog.rename_table(IDENT, "default.renamed"))
    scene.refused(answer, 404, "TABLE_NOT_FOUND", retryable=False)
    renamed = scene.table.catalog.load_table("default.renamed")
    assert (len(renamed.snapshots()), len(rows(renamed))) == (3, 30)
    assert stored_files(scene.table) == before


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_47_a_table_made_again_under_the_name_is_told_and_untouched(scene: Scene, late: bool) -> None:
    place = f"{scene.stack.folder.as_uri()}/elsewhere"

    def again() -> None:
        catalog = scene.other().catalog
        catalog.drop_table(IDENT)
        append(catalog.create_table(IDENT, SCHEMA, location=place, partition_spec=BY_P), [(1, "new")])

    answer = scene.compact(nothing, again) if late else scene.compact(again)
    scene.refused(answer, 409, "TABLE_REPLACED", retryable=False)
    assert (rows(scene.other()), len(scene.other().snapshots())) == ([(1, "new")], 1)
    scene.nothing_left_behind()


def move_main(scene: Scene, snapshot_id: int) -> None:
    moved = SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id)
    scene.table.catalog.commit_table(scene.other(), (), (moved,))


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_48_a_rollback_meanwhile_is_told_and_what_was_rolled_back_does_not_return(scene: Scene, late: bool) -> None:
    first = scene.table.snapshots()[0].snapshot_id

    def back() -> None:
        move_main(scene, first)

    answer = scene.compact(nothing, back) if late else scene.compact(back)
    scene.refused(answer, 409, "BASE_NOT_ANCESTOR", retryable=True)
    assert scene.other().metadata.current_snapshot_id == first
    assert len(rows(scene.other())) == 10
    scene.nothing_left_behind()


def test_row_48_a_branch_that_main_was_fast_forwarded_to_is_built_on(scene: Scene) -> None:
    """Its history holds the planning snapshot, so nothing was rolled back."""

    def forward() -> None:
        other = scene.other()
        other.manage_snapshots().create_branch(other.metadata.current_snapshot_id or 0, "audit").commit()
        other.append(other.scan("id == 0").to_arrow(), branch="audit")
        move_main(scene, other.refresh().refs()["audit"].snapshot_id)

    scene.landed(scene.compact(forward))
    assert len(rows(scene.other())) == 31


@pytest.mark.parametrize("late", [False, True], ids=["before the judgement", "between judgement and commit"])
def test_row_49_a_planning_snapshot_expired_meanwhile_is_told_and_nothing_unjudged_is_committed(
    scene: Scene, late: bool
) -> None:
    base = scene.table.refresh().metadata.current_snapshot_id or 0

    def expire() -> None:
        other = scene.other()
        append(other, batch(500, "x"))
        other.maintenance.expire_snapshots().by_id(base).commit()

    answer = scene.compact(nothing, expire) if late else scene.compact(expire)
    scene.refused(answer, 409, "BASE_EXPIRED", retryable=True)
    assert scene.replacements() == 0
    assert len(rows(scene.other())) == 35
    scene.nothing_left_behind()
