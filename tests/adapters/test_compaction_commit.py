"""What others do to the table between the rewrite and the commit of a COMPACT, and replies that are lost.

Every test ends with the rows of a model: nothing lost, nothing doubled, nothing deleted comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetCurrentSchemaUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from regelate.errors import CommitStateUnknown, Conflict, NotFound, RegelateError
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import (
    append,
    live_data_files,
    live_data_paths,
    live_delete_paths,
    local_path,
    rows,
    stored_files,
)
from tests.support.lake import Lake
from tests.support.meanwhile import Line, fresh, impatient, orphans, parquet
from tests.support.table_model import model_rows

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


def batch(start: int, p: str) -> list[tuple[int, str]]:
    return [(start + i, p) for i in range(5)]


@pytest.fixture
def table(lake: Lake) -> Table:
    """Three small files in each of the partitions x (ids 0-4, 10-14, 20-24) and y (100-...)."""
    return lake.table(SCHEMA, *(batch(10 * i, "x") + batch(100 + 10 * i, "y") for i in range(3)), spec=BY_P)


def of(p: str, table: Table) -> list[str]:
    return [path for path in live_data_paths(table.refresh()) if f"/p={p}/" in path]


# --- deletes meanwhile ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact_bounds", [True, False])
def test_t6_a_position_delete_and_an_append_meanwhile_drop_that_group_and_no_other(
    lake: Lake, table: Table, exact_bounds: bool
) -> None:
    victim, expected = of("x", table)[0], []

    def meanwhile() -> None:
        other = fresh(table)
        add_position_deletes(other, {victim: [0, 3]}, exact_bounds=exact_bounds)
        append(other, batch(500, "x"))
        expected[:] = model_rows(other)

    answer = lake.compact(table, between=meanwhile)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_NEW_DELETE")
    assert answer["stats"]["dropped_groups"] == 1
    assert len(expected) == 30 - 2 + 5
    assert model_rows(table) == expected
    assert victim in of("x", table)
    assert len(of("y", table)) == 1
    assert orphans(table) == set()


def test_a_position_delete_without_bounds_drops_only_the_groups_whose_files_it_names(lake: Lake, table: Table) -> None:
    """The delete file is read where its bounds say nothing: a file of another name in the partition is not hit."""
    late: list[str] = []

    def meanwhile() -> None:
        other = fresh(table)
        late.extend(append(other, batch(500, "x")))
        add_position_deletes(other, {late[0]: [0]}, exact_bounds=False)

    answer = lake.compact(table, between=meanwhile)
    assert answer["status"] == "COMPLETED"
    assert len(model_rows(table)) == 34


def test_a_position_delete_of_a_partition_that_is_not_compacted_is_not_even_opened(lake: Lake, table: Table) -> None:
    def meanwhile() -> None:
        other = fresh(table)
        add_position_deletes(other, {of("x", table)[0]: [0]}, exact_bounds=False)
        for path in live_delete_paths(other.refresh()):
            local_path(path).unlink()

    answer = lake.compact(table, between=meanwhile, partition_filter={"p": "y"})
    assert answer["status"] == "COMPLETED"
    assert len(of("y", table)) == 1


@pytest.mark.parametrize("everywhere", [False, True])
def test_t9_an_equality_delete_meanwhile_still_applies_to_the_rewritten_rows(lake: Lake, everywhere: bool) -> None:
    table = lake.table(SCHEMA)
    if everywhere:
        append(table, batch(900, "x"))
    with table.update_spec() as update:
        update.add_identity("p")
    for i in range(3):
        append(table, batch(10 * i, "x") + batch(100 + 10 * i, "y"))
    expected: list[str] = []

    def meanwhile() -> None:
        other = fresh(table)
        add_equality_deletes(other, ["id"], [(11,), (111,)], partition=None if everywhere else {"p": "x"})
        append(other, [(11, "x"), (111, "y")])
        expected[:] = model_rows(other)

    answer = lake.compact(table, between=meanwhile)
    assert answer["status"] == "COMPLETED"
    assert model_rows(table) == expected
    assert sum("(11, 'x')" in row for row in expected) == 1
    assert len(live_delete_paths(table.refresh())) == 1
    lake.compact(table, options={"rewrite-all": "true"})
    assert model_rows(table) == expected
    assert live_delete_paths(table.refresh()) == []


def test_deletes_of_rows_that_a_planned_delete_already_removed_meanwhile(lake: Lake, table: Table) -> None:
    """A position delete that our plan applied is joined by a second one: the group is planned again, no row returns."""
    victim = of("x", table)[0]
    add_position_deletes(table, {victim: [0]})
    answer = lake.compact(table, between=lambda: add_position_deletes(fresh(table), {victim: [0, 1]}) and None)
    assert answer["status"] == "PARTIAL"
    assert len(model_rows(table)) == 28
    lake.compact(table, force=True)
    assert len(model_rows(table)) == 28


# --- appends, overwrites, other compactors ----------------------------------------------------------------------------


def test_an_append_meanwhile_and_the_compaction_both_land(lake: Lake, table: Table) -> None:
    answer = lake.compact(table, between=lambda: append(fresh(table), batch(500, "x")) and None)
    assert answer["status"] == "COMPLETED"
    assert answer["stats"]["files_after"] == 3
    assert len(rows(table.refresh())) == 35
    assert len(live_data_paths(table)) == 3


def test_an_append_that_merges_all_manifests_meanwhile(lake: Lake) -> None:
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table = lake.table(SCHEMA, batch(0, "x"), batch(10, "x"), batch(20, "x"), properties=merging)
    before = {m.manifest_path for m in table.current_snapshot().manifests(table.io)}  # type: ignore[union-attr]
    after: set[str] = set()

    def meanwhile() -> None:
        other = fresh(table)
        append(other, batch(30, "x"))
        after.update(m.manifest_path for m in other.current_snapshot().manifests(other.io))  # type: ignore[union-attr]

    answer = lake.compact(table, between=meanwhile)
    assert not before & after
    assert answer["status"] == "COMPLETED"
    assert len(rows(table.refresh())) == 20
    assert len(live_data_paths(table)) == 2


def test_an_overwrite_that_removes_inputs_drops_their_group(lake: Lake, table: Table) -> None:
    answer = lake.compact(table, between=lambda: fresh(table).delete("id == 12"))
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_INPUT_REMOVED")
    assert [row for row in rows(table.refresh()) if row[1] == "x" and row[0] == 12] == []
    assert len(rows(table)) == 29
    assert len(of("y", table)) == 1
    assert orphans(table) == set()


def test_when_others_changed_every_group_nothing_is_committed_and_nothing_is_left_behind(
    lake: Lake, table: Table
) -> None:
    with pytest.raises(Conflict) as caught:
        lake.compact(table, between=lambda: fresh(table).delete("id in (12, 112)"))
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("COMMIT_CONFLICT", 409, True)
    assert len(rows(table.refresh())) == 28
    assert orphans(table) == set()
    assert lake.compact(table)["status"] == "COMPLETED"


def test_of_two_compactors_on_the_same_files_one_wins(lake: Lake, table: Table) -> None:
    """Row 41."""
    rival = Lake(lake.folder)
    expected = model_rows(table)
    with pytest.raises(Conflict) as caught:
        lake.compact(table, between=lambda: rival.compact(table) and None)
    assert caught.value.code == "COMMIT_CONFLICT"
    assert model_rows(table) == expected
    assert len(live_data_paths(table)) == 2
    assert orphans(table) == set()


def test_of_two_compactors_that_share_one_partition_the_loser_lands_the_other(lake: Lake, table: Table) -> None:
    rival = Lake(lake.folder)
    expected = model_rows(table)
    answer = lake.compact(table, between=lambda: rival.compact(table, partition_filter={"p": "x"}) and None)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_INPUT_REMOVED")
    assert model_rows(table) == expected
    assert (len(of("x", table)), len(of("y", table))) == (1, 1)
    assert orphans(table) == set()


def test_the_same_event_on_two_workers_at_once_lands_once_and_the_other_says_so(lake: Lake, table: Table) -> None:
    """Row 40: both rewrite, both try; the second finds the run of the first."""
    rival = Lake(lake.folder)
    expected = model_rows(table)
    answer = lake.compact(table, key="event", between=lambda: rival.compact(table, key="event") and None)
    assert answer["status"] == "ALREADY_DONE"
    assert [s.summary.operation.value for s in table.refresh().snapshots()].count("replace") == 1  # type: ignore[union-attr]
    assert model_rows(table) == expected
    assert orphans(table) == set()


def test_the_same_event_that_lands_during_the_attempt_itself(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival commits after our look at the head, so that we lose first and find its run then."""
    rival, commit, done = Lake(lake.folder), lake.catalog.commit_table, []

    def late(*arguments: Any) -> Any:
        if not done:
            done.append(rival.compact(table, key="event"))
        return commit(*arguments)

    monkeypatch.setattr(lake.catalog, "commit_table", late)
    expected = model_rows(table)
    answer = lake.compact(table, key="event", tools=impatient)
    assert answer["status"] == "ALREADY_DONE"
    assert model_rows(table) == expected
    assert orphans(table) == set()


# --- the base is gone -------------------------------------------------------------------------------------------------


def test_a_rollback_meanwhile_is_no_base_to_build_on(lake: Lake, table: Table) -> None:
    """Row 48: rolled back rows do not return."""
    first = table.snapshots()[0].snapshot_id

    def meanwhile() -> None:
        back = SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=first)
        table.catalog.commit_table(fresh(table), (), (back,))

    with pytest.raises(Conflict) as caught:
        lake.compact(table, between=meanwhile)
    assert (caught.value.code, caught.value.status) == ("BASE_NOT_ANCESTOR", 409)
    assert len(rows(table.refresh())) == 10
    assert orphans(table) == set()


def test_an_expired_base_is_no_base_to_judge_from(lake: Lake, table: Table) -> None:
    """Row 49."""
    base = table.refresh().metadata.current_snapshot_id
    assert base is not None

    def meanwhile() -> None:
        other = fresh(table)
        append(other, batch(500, "x"))
        other.maintenance.expire_snapshots().by_id(base).commit()

    with pytest.raises(Conflict) as caught:
        lake.compact(table, between=meanwhile)
    assert (caught.value.code, caught.value.status) == ("BASE_EXPIRED", 409)
    assert len(rows(table.refresh())) == 35


def test_a_dropped_table_is_not_found_and_keeps_no_output(lake: Lake, table: Table) -> None:
    """Row 47."""
    place, before = local_path(table.location()), parquet(table)
    with pytest.raises(NotFound) as caught:
        lake.compact(table, between=lambda: table.catalog.drop_table(table.name()))
    assert (caught.value.code, caught.value.status) == ("TABLE_NOT_FOUND", 404)
    assert {str(f.relative_to(place)) for f in place.rglob("*.parquet")} == before


def test_a_table_that_was_made_again_under_the_name_stays_untouched(lake: Lake, table: Table) -> None:
    """Row 47."""

    def meanwhile() -> None:
        table.catalog.drop_table(table.name())
        append(table.catalog.create_table(table.name(), SCHEMA), [(1, "new")])

    with pytest.raises(Conflict) as caught:
        lake.compact(table, between=meanwhile)
    assert (caught.value.code, caught.value.status) == ("TABLE_REPLACED", 409)
    assert rows(fresh(table)) == [(1, "new")]
    assert len(fresh(table).snapshots()) == 1


# --- schema and spec --------------------------------------------------------------------------------------------------


def test_columns_added_renamed_dropped_and_promoted_meanwhile_read_the_same(lake: Lake) -> None:
    """Row 45: outputs are read by field id."""
    schema = Schema(
        NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType()), NestedField(3, "x", LongType())
    )
    table = lake.table(schema, *([(i, f"n{i}", i)] for i in range(3)))
    expected: list[str] = []

    def meanwhile() -> None:
        other = fresh(table)
        with other.update_schema() as update:
            update.update_column("id", LongType())
            update.rename_column("name", "label")
            update.delete_column("x")
            update.add_column("late", StringType())
        append(other, [(2**40, "big", "late")])
        expected[:] = model_rows(other)

    assert lake.compact(table, between=meanwhile)["status"] == "COMPLETED"
    assert model_rows(table) == expected
    assert rows(table.refresh())[0] == (0, "n0", None)
    assert lake.assert_rows_kept(table)["status"] == "COMPLETED"


def test_a_dropped_column_that_comes_back_meanwhile_stops_the_commit(lake: Lake) -> None:
    """The outputs were written without it; what it holds is only in the inputs."""
    table = lake.table(SCHEMA, batch(0, "x"), batch(10, "x"), batch(20, "x"))
    with table.update_schema() as update:
        update.delete_column("p")
    back = SetCurrentSchemaUpdate(schema_id=0)
    with pytest.raises(Conflict) as caught:
        lake.compact(table, between=lambda: table.catalog.commit_table(fresh(table), (), (back,)) and None)
    assert (caught.value.code, caught.value.status) == ("SCHEMA_CHANGED", 409)
    assert {row[1] for row in rows(table.refresh())} == {"x"}
    assert orphans(table) == set()


def test_a_spec_change_meanwhile_leaves_the_outputs_in_the_spec_of_their_inputs(lake: Lake, table: Table) -> None:
    """Row 46."""

    def meanwhile() -> None:
        other = fresh(table)
        with other.update_spec() as update:
            update.remove_field("p")
        append(other, batch(500, "x"))

    expected_specs = {0, fresh(table).spec().spec_id + 1}
    assert lake.compact(table, between=meanwhile)["status"] == "COMPLETED"
    assert {f.spec_id for f in live_data_files(table.refresh())} == expected_specs
    assert len(rows(table)) == 35


# --- replies that are lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["lost", "lost-as-conflict"])
@pytest.mark.parametrize("attempt", [1, 3, 5])
@pytest.mark.parametrize("expire", [False, True])
def test_t7_a_reply_lost_on_any_attempt_is_found_again_and_nothing_is_deleted(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, loss: str, attempt: int, expire: bool
) -> None:
    """Row 38, the last attempt included: the commit landed, the answer was an error.

    The expiry that follows looks at the table too, and must not take the landed commit's manifests for lost ones.
    """
    expected = model_rows(table)
    line = Line(lake, monkeypatch, *["refused"] * (attempt - 1), loss)
    answer = lake.compact(table, tools=impatient, expire_snapshots=expire)
    assert (answer["status"], answer["stats"]["commit_attempts"]) == ("COMPLETED", attempt)
    assert line.calls == attempt
    monkeypatch.undo()
    assert model_rows(table) == expected
    assert len(live_data_paths(table)) == 2
    assert orphans(table) == set()


def test_attempts_that_are_refused_leave_no_metadata_file_behind(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    Line(lake, monkeypatch, "refused", "refused")
    lake.compact(table, tools=impatient)
    named = {local_path(s.manifest_list).name for s in table.refresh().snapshots()}
    named |= {local_path(m.manifest_path).name for s in table.snapshots() for m in s.manifests(table.io)}
    assert {path.name for path in local_path(table.location()).rglob("*.avro")} == named


def test_a_race_lost_on_every_attempt_is_a_conflict_and_leaves_nothing(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 37."""
    before = stored_files(table)
    line = Line(lake, monkeypatch, *["refused"] * 5)
    with pytest.raises(Conflict) as caught:
        lake.compact(table, tools=impatient)
    assert (caught.value.code, line.calls) == ("COMMIT_CONFLICT", 5)
    assert stored_files(table) == before


@pytest.mark.parametrize("step", ["lost", "dead", "lost-as-conflict", "refused"])
def test_an_attempt_that_nobody_can_look_up_is_of_unknown_state_and_keeps_every_file(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Even a conflict proves nothing while we cannot look: it may be about our own commit."""
    expected, before = model_rows(table), parquet(table)
    Line(lake, monkeypatch, step, then_down=True)
    with pytest.raises(CommitStateUnknown) as caught:
        lake.compact(table, tools=impatient)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("COMMIT_STATE_UNKNOWN", 503, False)
    monkeypatch.undo()
    assert len(parquet(table)) == len(before) + 2
    assert model_rows(table) == expected
    assert caught.value.details["snapshot_id"] is not None
    landed = caught.value.details["snapshot_id"] in {s.snapshot_id for s in table.snapshots()}
    assert landed == step.startswith("lost")


def test_an_attempt_that_may_still_be_on_its_way_when_all_attempts_are_used_up_is_of_unknown_state(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = parquet(table)
    Line(lake, monkeypatch, *["dead"] * 5)
    with pytest.raises(CommitStateUnknown):
        lake.compact(table, tools=impatient)
    assert len(parquet(table)) == len(before) + 2


def test_a_catalog_that_fails_after_the_commit_does_not_make_it_look_failed(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = model_rows(table)
    Line(lake, monkeypatch, "ok", then_down=True)
    answer = lake.compact(table, tools=impatient)
    monkeypatch.undo()
    assert (answer["status"], answer["compacted"]) == ("COMPLETED", True)
    assert answer["warnings"]
    assert answer["stats"]["files_after"] == 2
    assert model_rows(table) == expected


def test_a_store_that_fails_while_manifests_are_written_leaves_nothing_behind(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regelate.adapters.iceberg.commit import producer

    def full(*arguments: Any, **options: Any) -> Any:
        raise OSError(28, "No space left on device")

    before = stored_files(table)
    monkeypatch.setattr(producer, "write_manifest_list", full)
    with pytest.raises(RegelateError) as caught:
        lake.compact(table)
    assert (caught.value.code, caught.value.status) == ("LOCAL_STORAGE_FULL", 507)
    assert stored_files(table) == before


def test_the_plan_is_executed_as_it_was_shown_though_others_appended_since(lake: Lake, table: Table) -> None:
    plan = lake.compact(table, dry_run=True)["plan"]
    append(table, batch(500, "x"))
    answer = lake.compact(table, plan_id=plan["plan_id"])
    assert (answer["status"], answer["stats"]["files_compacted"]) == ("COMPLETED", 6)
    assert len(rows(table.refresh())) == 35
    with pytest.raises(Conflict) as caught:
        lake.compact(table, plan_id=plan["plan_id"].replace("-", "-0", 1), force=True)
    assert caught.value.code == "PLAN_CHANGED"


Meanwhile = Callable[[], None]
