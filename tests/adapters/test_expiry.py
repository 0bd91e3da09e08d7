"""Expiry: which snapshots go, which files go with them, and what no race may take away (law 10, trap T8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetSnapshotRefUpdate, update_table_metadata
from pyiceberg.types import LongType, NestedField, StringType

from regelate.adapters.clock import SystemClock
from regelate.adapters.iceberg.commit.expiry import RemovedAtOnce
from regelate.errors import InvalidRequest, NotAllowed, RegelateError
from tests.support.deletes_writer import add_position_deletes, remove_file
from tests.support.iceberg_tables import append, live_data_paths, local_path, rows, stored_files
from tests.support.lake import Lake
from tests.support.table_model import model_rows

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
AT_ONCE = {"regelate.expiry.grace-hours": "0"}
MONTH_MS = 30 * 24 * 3600 * 1000


class NextMonth(SystemClock):
    """A clock for which every snapshot of a test is a month old, and which does not wait."""

    def now_ms(self) -> int:
        return super().now_ms() + MONTH_MS

    def sleep(self, seconds: float) -> None:
        return None


@pytest.fixture
def table(lake: Lake) -> Table:
    """Four appends of two rows each, a month ago."""
    made = lake.table(SCHEMA, *([(10 * i, "x"), (10 * i + 1, "x")] for i in range(4)), properties=AT_ONCE)
    lake.built.again(clock=NextMonth())
    return made


def ids(table: Table) -> list[int]:
    return [s.snapshot_id for s in table.refresh().snapshots()]


def reachable(table: Table) -> set[str]:
    """Every data, delete, manifest and manifest list file that any snapshot of the table needs."""
    table.refresh()
    found: set[str] = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {e.data_file.file_path for e in manifest.fetch_manifest_entry(table.io)}
    return found


def in_store(table: Table) -> set[str]:
    """Every such file that lies in the store."""
    return {f"{table.location()}/{path}" for path in stored_files(table) if not path.endswith(".json")}


def test_a_compaction_expires_by_age_and_the_store_then_holds_what_the_head_needs(lake: Lake, table: Table) -> None:
    before = len(in_store(table))
    answer = lake.compact(table)
    assert answer["stats"]["snapshots_expired"] == 4
    assert answer["stats"]["bytes_freed"] > 0
    assert answer["warnings"] == []
    assert len(ids(table)) == 1
    assert in_store(table) == reachable(table)
    assert len(in_store(table)) < before
    assert len(rows(table)) == 8


def test_without_expiry_every_snapshot_stays_readable(lake: Lake, table: Table) -> None:
    before = ids(table)
    answer = lake.compact(table, expire_snapshots=False)
    assert answer["stats"]["snapshots_expired"] == 0
    assert ids(table)[:4] == before
    assert [len(rows(table, i)) for i in ids(table)] == [2, 4, 6, 8, 8]


def test_young_snapshots_stay(lake: Lake, table: Table) -> None:
    lake.built.again(clock=SystemClock())
    answer = lake.compact(table)
    assert (answer["stats"]["snapshots_expired"], len(ids(table))) == (0, 5)


def test_the_newest_are_kept_as_asked_and_a_dry_run_only_lists(lake: Lake, table: Table) -> None:
    before, stored = ids(table), stored_files(table)
    shown = lake.expire(table, hours=1, keep=2, dry_run=True)
    assert (shown["snapshot_ids"], shown["files_deleted"]) == (before[:2], 0)
    assert (ids(table), stored_files(table)) == (before, stored)
    answer = lake.expire(table, hours=1, keep=2)
    assert answer["snapshot_ids"] == before[:2]
    assert ids(table) == before[2:]
    assert in_store(table) == reachable(table)
    assert [len(rows(table, i)) for i in before[2:]] == [6, 8]
    assert lake.expire(table, hours=1, keep=2)["snapshots_expired"] == 0


def test_tags_and_branches_keep_their_snapshots_and_every_file_these_need(lake: Lake, table: Table) -> None:
    first, second, third, _ = ids(table)
    with table.manage_snapshots() as manage:
        manage.create_tag(first, "start")
        manage.create_branch(third, "audit")
    lake.compact(table)
    assert set(ids(table)) == {first, third, table.metadata.current_snapshot_id}
    assert second not in ids(table)
    assert (len(rows(table, first)), len(rows(table, third))) == (2, 6)
    assert set(table.refs()) == {"main", "start", "audit"}
    assert in_store(table) == reachable(table)


def test_deletes_and_overwrites_of_expired_snapshots_go_and_those_of_live_ones_stay(lake: Lake, table: Table) -> None:
    add_position_deletes(table, {live_data_paths(table)[0]: [0]})
    table.delete("id == 11")
    add_position_deletes(table, {live_data_paths(table.refresh())[1]: [1]})
    expected = model_rows(table)
    lake.expire(table, hours=1, keep=1)
    assert len(ids(table)) == 1
    assert model_rows(table) == expected
    assert in_store(table) == reachable(table)
    lake.compact(table)
    assert model_rows(table) == expected
    assert in_store(table) == reachable(table)


def test_a_table_whose_files_must_not_be_deleted_is_compacted_with_a_warning(lake: Lake) -> None:
    """Row 52."""
    table = lake.table(SCHEMA, *([(i, "x")] for i in range(3)), properties={"gc.enabled": "false"})
    lake.built.again(clock=NextMonth())
    before = in_store(table)
    answer = lake.compact(table)
    assert (answer["status"], answer["stats"]["snapshots_expired"]) == ("COMPLETED", 0)
    assert "gc.enabled=false" in answer["warnings"][0]
    assert before < in_store(table)
    with pytest.raises(NotAllowed) as caught:
        lake.expire(table, hours=1)
    assert (caught.value.code, caught.value.status) == ("GC_DISABLED", 403)
    assert len(ids(table)) == 4


@pytest.mark.parametrize("hours", [-0.001, -1])
def test_an_age_of_less_than_nothing_is_refused(lake: Lake, table: Table, hours: int) -> None:
    """Row 51."""
    before = stored_files(table)
    with pytest.raises(InvalidRequest) as caught:
        lake.expire(table, hours=hours)
    assert (caught.value.code, caught.value.status) == ("INVALID_RETENTION", 400)
    with pytest.raises(InvalidRequest):
        lake.expire(table, hours=1, keep=0)
    assert stored_files(table) == before


# --- races ------------------------------------------------------------------------------------------------------------


def just_before_the_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Act once, after expiry has decided and before it commits."""
    commit, done = lake.catalog.commit_table, []

    def late(*arguments: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return commit(*arguments)

    monkeypatch.setattr(lake.catalog, "commit_table", late)


def test_a_tag_made_between_decision_and_commit_is_not_lost(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 50."""
    first, *_ = ids(table)
    other = lake.other_client().load_table(table.name())

    def tag() -> None:
        with other.manage_snapshots() as manage:
            manage.create_tag(first, "late")

    just_before_the_commit(lake, monkeypatch, tag)
    lake.expire(table, hours=1, keep=1)
    assert "late" in table.refresh().refs()
    assert len(rows(table, first)) == 2
    assert len(ids(table)) == 2
    assert in_store(table) == reachable(table)


def test_a_rollback_between_decision_and_commit_keeps_main_and_its_rows(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 50, trap T8: PyIceberg's own expiry removes main here."""
    first, *_ = ids(table)
    other = lake.other_client()

    def roll_back() -> None:
        back = SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=first)
        other.commit_table(other.load_table(table.name()), (), (back,))

    just_before_the_commit(lake, monkeypatch, roll_back)
    lake.expire(table, hours=1, keep=1)
    assert table.refresh().metadata.current_snapshot_id == first
    assert len(rows(table)) == 2
    assert in_store(table) == reachable(table)


def test_an_append_between_decision_and_commit_lands_and_stays_readable(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = lake.other_client().load_table(table.name())
    just_before_the_commit(lake, monkeypatch, lambda: append(other, [(99, "late")]))
    lake.expire(table, hours=1, keep=1)
    assert len(rows(table.refresh())) == 9
    assert in_store(table) == reachable(table)


def test_an_expiry_whose_reply_was_lost_still_deletes_what_it_made_unreachable(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = lake.catalog.commit_table

    def lost(*arguments: Any) -> Any:
        commit(*arguments)
        raise ConnectionError("connection reset")

    monkeypatch.setattr(lake.catalog, "commit_table", lost)
    answer = lake.expire(table, hours=1, keep=1)
    assert answer["snapshots_expired"] == 3
    assert in_store(table) == reachable(table)


def test_a_kept_snapshot_whose_manifests_cannot_be_read_costs_no_file(lake: Lake, table: Table) -> None:
    """What is reachable is not known then, so nothing is deleted."""
    first, *_ = table.refresh().snapshots()
    with table.manage_snapshots() as manage:
        manage.create_tag(first.snapshot_id, "kept")
    assert lake.compact(table, expire_snapshots=False)["compacted"]
    remove_file(first.manifest_list)
    data = {path for path in stored_files(table) if path.endswith(".parquet")}
    with pytest.raises(RegelateError) as caught:
        lake.expire(table, hours=1, keep=1)
    assert caught.value.code == "METADATA_CORRUPT"
    assert {path for path in stored_files(table) if path.endswith(".parquet")} == data
    assert len(rows(table.refresh())) == 8
    assert local_path(live_data_paths(table)[0]).exists()


def test_an_expired_snapshot_whose_manifests_cannot_be_read_hides_only_its_own_files(lake: Lake, table: Table) -> None:
    first = table.refresh().snapshots()[0]
    remove_file(first.manifest_list)
    answer = lake.expire(table, hours=1, keep=1)
    assert answer["snapshots_expired"] == 3
    assert len(rows(table.refresh())) == 8
    assert in_store(table) >= reachable(table)


def test_snapshots_that_go_at_once_leave_what_pyiceberg_leaves_one_by_one(table: Table) -> None:
    metadata = table.refresh().metadata
    first, second, third, last = (s.snapshot_id for s in metadata.snapshots)
    tagged = SetSnapshotRefUpdate(ref_name="t", type=SnapshotRefType.TAG, snapshot_id=second)
    metadata = update_table_metadata(metadata, (tagged,))
    for gone in ([first], [second, first], [third, second]):
        same = {"last_updated_ms": 0}
        one, other = (
            update_table_metadata(metadata, (kind(snapshot_ids=gone),)).model_copy(update=same)
            for kind in (RemoveSnapshotsUpdate, RemovedAtOnce)
        )
        assert other == one
        assert [s.snapshot_id for s in other.snapshots] == [i for i in (first, second, third, last) if i not in gone]
    with pytest.raises(CommitFailedException):
        update_table_metadata(metadata, (RemovedAtOnce(snapshot_ids=[first, 1]),))
