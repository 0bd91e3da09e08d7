"""Expiry in two phases (law 10): what is listed, what is deleted when, and what an undo brings back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate, SetStatisticsUpdate
from pyiceberg.types import LongType, NestedField, StringType

from regelate.adapters.iceberg.cleanup.quarantine import QuarantineLists
from regelate.adapters.iceberg.cleanup.reclaim import SnapshotReclaimer
from regelate.adapters.iceberg.commit.producer import SnapshotProducer
from regelate.core.upkeep.reachability import StoredFile
from regelate.errors import Conflict, DataUnavailable, NotAllowed, NotFound, Unavailable
from tests.adapters.test_expiry import NextMonth, ids, in_store, reachable
from tests.support.deletes_writer import add_equality_deletes
from tests.support.iceberg_tables import (
    add_data_files,
    append,
    changed_file,
    duckdb_rows,
    live_data_files,
    live_data_paths,
    local_path,
    rows,
    stored_files,
)
from tests.support.lake import Lake, address
from tests.support.table_model import model_rows

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
HOUR_SECONDS = 3600


@pytest.fixture
def table(lake: Lake) -> Table:
    """Four appends of two rows each, a month ago, by a table that says nothing of a grace."""
    made = lake.table(SCHEMA, *([(10 * i, "x"), (10 * i + 1, "x")] for i in range(4)))
    lake.built.again(clock=NextMonth())
    return made


def lists(table: Table) -> dict[str, dict[str, Any]]:
    """The quarantine lists of a table, by undo id."""
    folder = local_path(table.location()) / "metadata" / "regelate" / "quarantine"
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def as_earlier_versions_did(table: Table, metadata_folder: Path) -> None:
    """Move every list to the folder that `write.metadata.path` names."""
    folder = metadata_folder / "regelate" / "quarantine"
    folder.mkdir(parents=True, exist_ok=True)
    for path in (local_path(table.location()) / "metadata" / "regelate" / "quarantine").glob("*.json"):
        path.rename(folder / path.name)


def age(table: Table, hours: float) -> None:
    """Let every list be older by the store's clock."""
    folder = local_path(table.location()) / "metadata" / "regelate" / "quarantine"
    for path in folder.glob("*.json"):
        found = path.stat().st_mtime - hours * HOUR_SECONDS
        document = json.loads(path.read_text())
        if "recorded_ms" in document:
            document["recorded_ms"] -= int(hours * HOUR_SECONDS * 1000)
            path.write_text(json.dumps(document))
        os.utime(path, (found, found))


def stored_data(table: Table) -> set[str]:
    return {path for path in stored_files(table) if not path.endswith(".json")}


def test_within_the_grace_nothing_is_deleted_and_the_answer_says_what_will_be(lake: Lake, table: Table) -> None:
    before = stored_data(table)
    answer = lake.compact(table)["stats"]
    assert (answer["snapshots_expired"], answer["bytes_freed"]) == (4, 0)
    assert before < stored_data(table)
    ((undo_id, listed),) = lists(table).items()
    assert answer["undo_id"] == undo_id
    assert answer["bytes_quarantined"] == sum(size for _, size in listed["files"]) > 0
    assert {f"{table.location()}/{p}" for p in stored_data(table)} - reachable(table) == {p for p, _ in listed["files"]}
    assert (listed["table_uuid"], listed["grace_ms"]) == (str(table.metadata.table_uuid), 24 * HOUR_SECONDS * 1000)
    assert local_path(listed["metadata_location"]).exists()
    assert len(rows(table.refresh())) == 8


def test_the_next_expiry_after_the_grace_deletes_what_is_listed_and_then_the_list(lake: Lake, table: Table) -> None:
    quarantined = lake.compact(table)["stats"]["bytes_quarantined"]
    age(table, 24)
    assert lake.expire(table, grace=None)["bytes_freed"] == 0
    age(table, 0.25)
    answer = lake.expire(table, grace=None)
    assert (answer["bytes_freed"], answer["snapshots_expired"]) == (quarantined, 0)
    assert answer["files_deleted"] > 0
    assert lists(table) == {}
    assert in_store(table) == reachable(table)
    assert len(rows(table.refresh())) == 8


def test_the_next_compaction_after_the_grace_deletes_it_too(lake: Lake, table: Table) -> None:
    first = lake.compact(table)["stats"]
    age(table, 25)
    for i in range(4):
        append(table.refresh(), [(100 + i, "x")])
    assert lake.compact(table)["stats"]["bytes_freed"] == first["bytes_quarantined"]
    assert first["undo_id"] not in lists(table)
    assert model_rows(table.refresh()) == model_rows(table)


def test_a_grace_of_zero_deletes_at_once_and_leaves_no_list(lake: Lake, table: Table) -> None:
    answer = lake.expire(table, hours=1, grace=0)
    assert (answer["bytes_quarantined"], answer["undo_id"], answer["deletable_at"]) == (0, None, None)
    assert answer["files_deleted"] == 3
    assert lists(table) == {}
    assert in_store(table) == reachable(table)


def test_the_grace_of_a_request_wins_over_the_tables_and_that_over_the_configured(lake: Lake, table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"regelate.expiry.grace-hours": "5"})
    of_table = lake.expire(table, hours=1, keep=3, grace=None)
    of_request = lake.expire(table, hours=1, keep=2, grace=7)
    graces = {undo_id: found["grace_ms"] / 3_600_000 for undo_id, found in lists(table).items()}
    assert graces == {of_table["undo_id"]: 5, of_request["undo_id"]: 7}


def test_an_undo_brings_every_snapshot_back_readable_by_id_and_by_tag(lake: Lake, table: Table) -> None:
    before = {i: rows(table, i) for i in ids(table)}
    undo_id = lake.compact(table)["stats"]["undo_id"]
    assert len(ids(table)) == 1
    answer = lake.undo(table, undo_id)
    assert answer["snapshots_restored"] == 4
    assert answer["snapshot_ids"] == list(before)
    table.refresh()
    assert {i: rows(table, i) for i in before} == before
    assert {name: ref.snapshot_id for name, ref in table.refs().items() if name != "main"} == {
        f"undo-{i}": i for i in before
    }
    assert len(rows(table)) == 8
    assert len(duckdb_rows(table)) == 8
    assert lists(table) == {}
    assert table.current_snapshot().summary.operation.value == "replace"  # type: ignore[union-attr]


def test_after_an_undo_sequence_numbers_and_times_go_on_from_where_they_were(lake: Lake, table: Table) -> None:
    """PyIceberg and Java set both back to those of a restored snapshot: an equality delete would then miss rows."""
    undo_id = lake.expire(table, hours=1, grace=None)["undo_id"]
    last = table.refresh().metadata.last_sequence_number
    updated = table.metadata.last_updated_ms
    lake.undo(table, undo_id)
    assert table.refresh().metadata.last_sequence_number == last + 1
    assert table.metadata.last_updated_ms >= updated
    add_equality_deletes(table, ["id"], [(0,), (30,)])
    assert len(model_rows(table.refresh())) == 6
    numbers = [s.sequence_number for s in table.metadata.snapshots]
    assert len(numbers) == len(set(numbers)) == 6


def test_restored_snapshots_keep_their_parents_where_the_format_allows_it(lake: Lake, table: Table) -> None:
    parents = {s.snapshot_id: s.parent_snapshot_id for s in table.refresh().snapshots()}
    lake.undo(table, lake.compact(table)["stats"]["undo_id"])
    found = {s.snapshot_id: s.parent_snapshot_id for s in table.refresh().snapshots() if s.snapshot_id in parents}
    assert found == parents


def test_restored_snapshots_survive_the_next_expiry_and_their_files_the_next_deletion(lake: Lake, table: Table) -> None:
    before = {i: rows(table, i) for i in ids(table)}
    lake.undo(table, lake.compact(table)["stats"]["undo_id"])
    lake.expire(table, hours=1, grace=0)
    age(table, 48)
    lake.expire(table, hours=1, grace=0)
    assert {i: rows(table.refresh(), i) for i in before} == before
    assert in_store(table) == reachable(table)


def test_removed_refs_and_statistics_files_come_back_with_their_snapshots(lake: Lake, table: Table) -> None:
    first, second, *_ = ids(table)
    with table.manage_snapshots() as manage:
        manage.create_tag(second, "short", max_ref_age_ms=1)
    statistics(table, first)
    answer = lake.expire(table, hours=1, grace=None)
    assert answer["refs_removed"] == ["short"]
    assert (table.refresh().metadata.statistics, table.metadata.partition_statistics) == ([], [])
    lake.undo(table, answer["undo_id"])
    assert table.refresh().refs()["short"].snapshot_id == second
    assert table.refs()["short"].max_ref_age_ms == 1
    assert [s.snapshot_id for s in table.metadata.statistics] == [first]
    assert [s.snapshot_id for s in table.metadata.partition_statistics] == [first]


def test_statistics_that_are_computed_while_an_expiry_is_under_way_leave_with_their_snapshot(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg's catalogs drop statistics of the table with a snapshot, and keep those of partitions for ever."""
    first = ids(table)[0]
    commit = lake.catalog.commit_table

    def computed_first(*arguments: Any) -> Any:
        monkeypatch.undo()
        statistics(table, first)
        return commit(*arguments)

    monkeypatch.setattr(lake.catalog, "commit_table", computed_first)
    answer = lake.expire(table, hours=1, grace=None)
    assert (table.refresh().metadata.statistics, table.metadata.partition_statistics) == ([], [])
    lake.undo(table, answer["undo_id"])
    assert [s.snapshot_id for s in table.refresh().metadata.partition_statistics] == [first]


def test_an_undo_moves_no_ref_that_was_made_under_an_old_name_since(lake: Lake, table: Table) -> None:
    first, second, *_ = ids(table)
    with table.manage_snapshots() as manage:
        manage.create_tag(second, "short", max_ref_age_ms=1)
    undo_id = lake.expire(table, hours=1, keep=1, grace=None)["undo_id"]
    (head,) = ids(table)
    with table.manage_snapshots() as manage:
        manage.create_tag(head, "short")
    lake.undo(table, undo_id)
    assert table.refresh().refs()["short"].snapshot_id == head
    assert {first, second} < set(ids(table))


def test_an_undo_after_the_grace_is_refused_and_deletes_nothing(lake: Lake, table: Table) -> None:
    undo_id = lake.expire(table, hours=1, grace=None)["undo_id"]
    age(table, 24.01)
    before = stored_files(table)
    with pytest.raises(Conflict) as caught:
        lake.undo(table, undo_id)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("UNDO_EXPIRED", 409, False)
    assert stored_files(table) == before


@pytest.mark.parametrize(("minutes_left", "minutes", "sent"), [(1, 7, True), (1, 9, False), (20, 26, True)])
def test_an_undo_that_is_suspended_past_its_grace_is_not_sent(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, minutes_left: float, minutes: float, sent: bool
) -> None:
    """The files go 15 minutes after the grace: half of that is for the request on its way. It slept before it."""
    undo_id = lake.expire(table, hours=1, grace=None)["undo_id"]
    age(table, 24 - minutes_left / 60)
    before, now, produce = stored_data(table), time.time, SnapshotProducer.produce

    def suspended(*arguments: Any) -> Any:
        produced = produce(*arguments)
        monkeypatch.setattr(time, "time", lambda: now() + minutes * 60)
        return produced

    monkeypatch.setattr(SnapshotProducer, "produce", suspended)
    if sent:
        assert lake.undo(table, undo_id)["snapshots_restored"] == 3
        return
    with pytest.raises(Unavailable) as caught:
        lake.undo(table, undo_id)
    assert (caught.value.code, caught.value.retryable) == ("RUN_TOO_OLD", True)
    assert (stored_data(table), len(ids(table))) == (before, 1)


def test_an_undo_of_what_is_deleted_or_never_was_is_not_found(lake: Lake, table: Table) -> None:
    undo_id = lake.expire(table, hours=1, grace=None)["undo_id"]
    age(table, 25)
    lake.expire(table, hours=1, grace=None)
    for unknown in (undo_id, "12", "../../../catalog"):
        with pytest.raises(NotFound) as caught:
            lake.undo(table, unknown)
        assert (caught.value.code, caught.value.status) == ("UNDO_NOT_FOUND", 404)


def test_an_undo_that_is_repeated_lands_once(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    undo_id = lake.expire(table, hours=1, grace=None)["undo_id"]
    commit = lake.catalog.commit_table

    def lost(*arguments: Any) -> Any:
        commit(*arguments)
        raise ConnectionError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(lake.catalog, "commit_table", lost)
        assert lake.undo(table, undo_id)["snapshots_restored"] == 3
    after = ids(table)
    lake.undo(table, undo_id)
    assert ids(table) == after
    assert len(after) == 5


def test_what_is_reached_again_is_not_deleted_though_it_is_listed(lake: Lake, table: Table) -> None:
    """An undo that died before it dropped the list."""
    undo_id = lake.expire(table, hours=1, grace=None)["undo_id"]
    folder = local_path(table.location()) / "metadata" / "regelate" / "quarantine"
    text = (folder / f"{undo_id}.json").read_text()
    lake.undo(table, undo_id)
    (folder / f"{undo_id}.json").write_text(text)
    before = {i: rows(table.refresh(), i) for i in ids(table)}
    age(table, 25)
    assert lake.expire(table, hours=24 * 365, grace=None)["files_deleted"] == 0
    assert {i: rows(table.refresh(), i) for i in ids(table)} == before
    assert lists(table) == {}


def test_a_file_in_an_old_list_and_a_young_one_waits_for_the_young_one(lake: Lake, table: Table) -> None:
    """An undo that died before it dropped the list, and then the same snapshots expired again."""
    folder = local_path(table.location()) / "metadata" / "regelate" / "quarantine"
    first = lake.expire(table, hours=1, grace=None)["undo_id"]
    old = {**json.loads((folder / f"{first}.json").read_text()), "recorded_ms": 0}
    lake.undo(table, first)
    with table.refresh().manage_snapshots() as manage:
        for name in [n for n in table.refs() if n.startswith("undo-")]:
            manage.remove_tag(name)
    young = lake.expire(table, hours=1, grace=None)
    assert (young["snapshots_expired"], young["files_deleted"]) == (4, 0)
    (folder / f"{first}.json").write_text(json.dumps(old))
    assert lake.expire(table, hours=1, grace=None)["files_deleted"] == 0
    assert set(lists(table)) == {first, young["undo_id"]}
    assert lake.undo(table, young["undo_id"])["snapshots_restored"] == 4
    assert sorted(len(rows(table.refresh(), i)) for i in young["snapshot_ids"]) == [2, 4, 6, 8]


@pytest.mark.parametrize("grace", [0, 1, None])
def test_a_later_expiry_of_a_shorter_grace_deletes_nothing_that_an_undo_needs(
    lake: Lake, table: Table, grace: float | None
) -> None:
    """What a younger snapshot reached as well is on the younger list, and the older undo needs it just as much."""
    before = {i: rows(table, i) for i in ids(table)}
    first = lake.expire(table, hours=1, keep=2, grace=48)
    lake.compact(table, force=True, expire_snapshots=False)
    second = lake.expire(table, hours=1, grace=grace)
    assert (first["snapshots_expired"], second["snapshots_expired"]) == (2, 2)
    age(table, 25)
    lake.expire(table, hours=1, grace=None)
    assert lake.undo(table, first["undo_id"])["snapshots_restored"] == 2
    assert {i: rows(table.refresh(), i) for i in first["snapshot_ids"]} == {i: before[i] for i in first["snapshot_ids"]}


def test_what_an_undo_needed_goes_when_it_is_not_promised_any_more(lake: Lake, table: Table) -> None:
    lake.expire(table, hours=1, keep=2, grace=48)
    lake.compact(table, force=True, expire_snapshots=False)
    lake.expire(table, hours=1, grace=0)
    assert len(lists(table)) == 2
    age(table, 49)
    lake.expire(table, hours=1, grace=None)
    assert lists(table) == {}
    assert in_store(table) == reachable(table)


def test_what_an_undo_needs_and_cannot_be_read_may_be_anything_so_nothing_goes(lake: Lake, table: Table) -> None:
    kept_back = lake.expire(table, hours=1, keep=2, grace=48)["snapshot_ids"]
    lake.compact(table, force=True, expire_snapshots=False)
    (document,) = lists(table).values()
    manifest_list = local_path(document["snapshots"][0]["manifest-list"])
    assert document["snapshots"][0]["snapshot-id"] in kept_back
    text = manifest_list.read_bytes()
    manifest_list.write_bytes(text[:40])
    before = stored_data(table)
    lake = Lake(lake.folder)  # another process, which has not read it
    lake.built.again(clock=NextMonth())
    with pytest.raises(DataUnavailable, match="METADATA_CORRUPT"):
        lake.expire(table, hours=1, grace=0)
    assert stored_data(table) == before
    manifest_list.unlink()  # gone for good: that snapshot cannot come back, and needs nothing
    lake.expire(table, hours=1, grace=0)
    assert stored_data(table) < before


def test_a_list_whose_expiry_is_about_to_commit_is_not_dropped_by_another(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a grace a list is due at once: another run would find that all of it is alive, and be done with it."""
    lake.compact(table, force=True, expire_snapshots=False)
    other, commit = Lake(lake.folder), lake.catalog.commit_table

    def beside(*arguments: Any) -> Any:
        monkeypatch.undo()
        assert other.expire(table, grace=None)["files_deleted"] == 0
        return commit(*arguments)

    monkeypatch.setattr(lake.catalog, "commit_table", beside)
    answer = lake.expire(table, hours=1, grace=0)
    assert (answer["snapshots_expired"], answer["bytes_quarantined"], lists(table)) == (4, 0, {})
    assert in_store(table) == reachable(table)


def test_a_list_that_another_run_has_finished_meanwhile_is_no_fault(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = QuarantineLists.write

    def beside(own: QuarantineLists, document: dict[str, Any]) -> None:
        write(own, document)
        if document["files"] is not None:
            own.drop(document["undo_id"])

    monkeypatch.setattr(QuarantineLists, "write", beside)
    assert lake.expire(table, hours=1, grace=0)["files_deleted"] == 3


def test_an_expiry_that_landed_under_a_conflict_keeps_its_list(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends again after a lost reply is told of a conflict with its own commit (trap T7)."""
    with table.manage_snapshots() as manage:
        manage.create_tag(ids(table)[1], "short", max_ref_age_ms=1)
    commit = lake.catalog.commit_table

    def sent_again(*arguments: Any) -> Any:
        monkeypatch.undo()
        commit(*arguments)
        raise CommitFailedException("ref short is gone")

    monkeypatch.setattr(lake.catalog, "commit_table", sent_again)
    answer = lake.expire(table, hours=1, grace=None)
    assert (answer["snapshots_expired"], answer["refs_removed"]) == (3, ["short"])
    assert list(lists(table)) == [answer["undo_id"]]
    assert lake.undo(table, answer["undo_id"])["snapshots_restored"] == 3


def dies(*arguments: Any) -> Any:
    raise Unavailable("STORAGE_UNAVAILABLE", "the process is gone")


def expire_without_files(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die between the commit of an expiry and its list of files, a day and an hour ago."""
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotReclaimer, "list_files", dies)
        with pytest.raises(Unavailable):
            lake.expire(table, hours=1, grace=None)
    (listed,) = lists(table).values()
    assert (listed["files"], len(ids(table))) == (None, 1)
    assert len(listed["snapshots"]) >= 3
    age(table, 25)


def test_an_expiry_that_died_before_its_list_was_complete_is_finished_by_the_next(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire_without_files(lake, table, monkeypatch)
    assert lake.expire(table, grace=None)["files_deleted"] == 3
    assert in_store(table) == reachable(table)


def test_when_the_next_dies_too_while_it_deletes_what_names_the_other_files_these_are_in_the_list(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.delete("id < 20")
    expire_without_files(lake, table, monkeypatch)
    delete = SnapshotReclaimer.delete

    def dies_halfway(reclaimer: SnapshotReclaimer, files: Sequence[StoredFile]) -> Any:
        delete(reclaimer, [f for f in files if f.path.endswith(".avro")])
        dies()

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotReclaimer, "delete", dies_halfway)
        with pytest.raises(Unavailable):
            lake.expire(table, grace=None)
    assert in_store(table) > reachable(table)
    lake.expire(table, grace=None)
    assert (in_store(table), lists(table)) == (reachable(table), {})


def test_what_an_undo_needs_is_not_deleted_by_a_later_expiry_with_a_shorter_grace(lake: Lake, table: Table) -> None:
    """The first expiry lists no file that younger snapshots need as well; the second takes those snapshots."""
    with table.manage_snapshots() as manage:
        manage.create_tag(table.snapshots()[2].snapshot_id, "kept")
    early = lake.expire(table, hours=1, grace=None)
    assert len(early["snapshot_ids"]) == 2
    with table.refresh().manage_snapshots() as manage:
        manage.remove_tag("kept")
    table.refresh().delete("id >= 0")
    lake.expire(table, hours=1, keep=1, grace=0)
    assert lake.undo(table, early["undo_id"])["snapshots_restored"] == 2
    assert sorted(len(rows(table.refresh(), i)) for i in early["snapshot_ids"]) == [2, 4]


@pytest.mark.parametrize("content", ["", '{"format":1,"undo_id":"7","table_uu'])
def test_a_list_that_was_cut_off_stops_nobody_and_is_dropped_later(lake: Lake, table: Table, content: str) -> None:
    """Its expiry died while it wrote it, so nobody was told of an undo."""
    lake.expire(table, hours=1, grace=None)
    folder = local_path(table.location()) / "metadata" / "regelate" / "quarantine"
    cut = folder / "7.json"
    cut.write_text(content)
    assert lake.expire(table, hours=1, grace=None)["files_deleted"] == 0
    assert cut.exists()
    os.utime(cut, (0, 0))
    lake.expire(table, hours=1, grace=None)
    assert not cut.exists()
    assert len(lists(table)) == 1


def test_a_list_that_another_finished_meanwhile_is_written_anew_and_can_not_be_undone(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was out of touch for hours between its commit and its list of files."""
    shipped = SnapshotReclaimer.list_files

    def hours_later(reclaimer: SnapshotReclaimer, undo_id: str) -> Any:
        (local_path(table.location()) / "metadata" / "regelate" / "quarantine" / f"{undo_id}.json").unlink()
        return shipped(reclaimer, undo_id)

    monkeypatch.setattr(SnapshotReclaimer, "list_files", hours_later)
    done = lake.expire(table, hours=1, grace=None)
    assert done["snapshots_expired"] == 3
    with pytest.raises(Conflict, match="UNDO_EXPIRED"):
        lake.undo(table, done["undo_id"])
    lake.expire(table, hours=1, grace=None)
    assert (lists(table), in_store(table)) == ({}, reachable(table))


def test_completing_a_list_does_not_move_the_time_of_its_grace(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who read the list before has another time in mind, and may delete by it."""
    shipped = SnapshotReclaimer.list_files

    def hours_later(reclaimer: SnapshotReclaimer, undo_id: str) -> Any:
        path = local_path(table.location()) / "metadata" / "regelate" / "quarantine" / f"{undo_id}.json"
        os.utime(path, (1_000_000, 1_000_000))
        return shipped(reclaimer, undo_id)

    monkeypatch.setattr(SnapshotReclaimer, "list_files", hours_later)
    done = lake.expire(table, hours=1, grace=None)
    assert done["undo_until"] == "1970-01-13T13:46:40Z"
    assert [listed["recorded_ms"] for listed in lists(table).values()] == [1_000_000_000]


def test_an_expiry_that_never_landed_leaves_no_list(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any) -> Any:
        raise CommitFailedException("another writer was first")

    with monkeypatch.context() as patch:
        patch.setattr(lake.catalog, "commit_table", refused)
        with pytest.raises(Conflict):
            lake.expire(table, hours=1, grace=None)
    assert lists(table) == {}
    assert len(ids(table)) == 4


def test_lists_of_an_earlier_table_at_this_place_are_left_alone(lake: Lake, table: Table) -> None:
    lake.expire(table, hours=1, grace=None)
    folder = local_path(table.location()) / "metadata" / "regelate" / "quarantine"
    (path,) = folder.glob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "table_uuid": "00000000-0000-4000-8000-000000000000"}))
    age(table, 100)
    before = stored_data(table)
    assert lake.expire(table, hours=1, grace=None)["files_deleted"] == 0
    assert stored_data(table) == before
    assert path.exists()


def test_a_drop_with_purge_takes_what_lies_in_quarantine_too(lake: Lake, table: Table) -> None:
    lake.compact(table)
    lake.service.tables.drop_table(address(table), purge=True)
    assert stored_files(table) == set()


def test_files_that_another_table_shares_are_not_deleted(lake: Lake, table: Table) -> None:
    """Row 52: a table that was registered twice."""
    lake.compact(table)
    age(table, 25)
    lake.catalog.register_table("db.twin", table.refresh().metadata_location)
    before = stored_data(table)
    for grace in (None, 0):
        with pytest.raises(NotAllowed) as caught:
            lake.expire(table, hours=1, grace=grace)
        assert (caught.value.code, caught.value.status) == ("GC_DISABLED", 403)
        assert "twin" not in caught.value.message
    assert stored_data(table) == before
    for i in range(4):
        append(table.refresh(), [(100 + i, "x")])
    answer = lake.compact(table)
    assert answer["status"] == "COMPLETED"
    assert "nothing was deleted" in answer["warnings"][0]
    assert before < stored_data(table)


def test_row_52_a_twin_in_a_namespace_below_another_is_found(lake: Lake, table: Table) -> None:
    lake.catalog.create_namespace("db.inner")
    lake.catalog.register_table("db.inner.twin", table.refresh().metadata_location)
    with pytest.raises(NotAllowed, match="GC_DISABLED"):
        lake.expire(table, hours=1, grace=0)


def test_a_drop_with_purge_deletes_no_file_by_a_path_that_leads_out_of_the_tables_folder(
    lake: Lake, table: Table
) -> None:
    """Metadata is written by others: such a path begins with our folder and ends in another."""
    (victim,) = live_data_paths(lake.table(SCHEMA, [(1, "x")], ident="db.victim"))
    table.add_files([victim])
    outside = victim.replace("/db/victim/", "/db/t/data/../../victim/")
    (file,) = (f for f in live_data_files(table.refresh()) if f.file_path == victim)
    add_data_files(table, [changed_file(file, file_path=outside)])
    lake.service.tables.drop_table(address(table), purge=True)
    assert local_path(victim).exists()
    assert len(rows(lake.catalog.load_table("db.victim"))) == 1


def test_a_table_that_may_share_the_files_and_cannot_be_reached_just_now_stops_the_deletion(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 52 beside row 35: nobody knows whether it is a twin, so the answer is to try again."""
    lake.compact(table)
    age(table, 25)
    lake.catalog.register_table("db.twin", table.refresh().metadata_location)
    before, load = stored_data(table), lake.catalog.load_table

    def slow_down(identifier: Any) -> Any:
        if identifier == ("db", "twin"):
            raise OSError("503 SlowDown")
        return load(identifier)

    with monkeypatch.context() as patch:
        patch.setattr(lake.catalog, "load_table", slow_down)
        with pytest.raises(Unavailable) as caught:
            lake.expire(table, hours=1, grace=None)
    assert (caught.value.code, caught.value.retryable) == ("STORAGE_UNAVAILABLE", True)
    assert stored_data(table) == before


def test_a_table_whose_metadata_is_gone_does_not_stop_the_deletion(lake: Lake, table: Table) -> None:
    lake.compact(table)
    age(table, 25)
    other = lake.table(SCHEMA, [(1, "x")], ident="db.broken")
    local_path(other.metadata_location).unlink()
    assert lake.expire(table, hours=1, grace=None)["files_deleted"] > 0


def test_a_drop_with_purge_spares_the_lists_of_a_table_that_keeps_its_metadata_in_the_same_folder(lake: Lake) -> None:
    shared = {"write.metadata.path": f"{(lake.folder / 'warehouse' / 'metadata').as_uri()}"}
    one = lake.table(SCHEMA, [(1, "x")], [(2, "x")], ident="db.one", properties=shared)
    other = lake.table(SCHEMA, [(1, "x")], [(2, "x")], ident="db.other", properties=shared)
    lake.built.again(clock=NextMonth())
    undo_id = lake.expire(other, hours=1, grace=24)["undo_id"]
    lake.expire(one, hours=1, grace=24)
    as_earlier_versions_did(one, lake.folder / "warehouse" / "metadata")
    as_earlier_versions_did(other, lake.folder / "warehouse" / "metadata")
    lake.service.tables.drop_table(address(one), purge=True)
    assert [path.stem for path in (lake.folder / "warehouse" / "metadata").rglob("quarantine/*.json")] == [undo_id]
    assert lake.undo(other, undo_id)["snapshots_restored"] == 1
    assert len(rows(other.refresh())) == 2


def statistics(table: Table, snapshot_id: int) -> tuple[Path, Path]:
    """Give a snapshot a statistics file and one of its partitions; return their paths."""
    folder = local_path(table.location()) / "metadata"
    made = [folder / f"{snapshot_id}.{kind}" for kind in ("stats", "partition-stats")]
    for path in made:
        path.write_bytes(b"some statistics")
    kind = {"type": "apache-datasketches-theta-v1", "snapshot-id": snapshot_id, "sequence-number": 1, "fields": []}
    blob = BlobMetadata(**kind)  # type: ignore[arg-type]
    common = {"snapshot-id": snapshot_id, "file-size-in-bytes": 15}
    of_table = StatisticsFile(
        **common,  # type: ignore[arg-type]
        **{"statistics-path": made[0].as_uri(), "file-footer-size-in-bytes": 1, "blob-metadata": [blob]},
    )
    of_partitions = PartitionStatisticsFile(**common, **{"statistics-path": made[1].as_uri()})  # type: ignore[arg-type]
    table.refresh()
    table._do_commit(
        (
            SetStatisticsUpdate(statistics=of_table),
            SetPartitionStatisticsUpdate(partition_statistics=of_partitions),
        ),
        (),
    )
    return made[0], made[1]


# --- Iceberg's scenarios: TestRemoveSnapshots, TestExpireSnapshotsAction ----------------------------------------------


def test_expire_with_statistics_files(lake: Lake, table: Table) -> None:
    first, *_, head = ids(table)
    gone, kept = statistics(table, first), statistics(table, head)
    lake.expire(table, hours=1, grace=0)
    assert [s.snapshot_id for s in table.refresh().metadata.statistics] == [head]
    assert [s.snapshot_id for s in table.metadata.partition_statistics] == [head]
    assert [path.exists() for path in (*gone, *kept)] == [False, False, True, True]


def test_tag_expiration(lake: Lake, table: Table) -> None:
    first, second, *_ = ids(table)
    with table.manage_snapshots() as manage:
        manage.create_tag(first, "old", max_ref_age_ms=1000)
        manage.create_tag(second, "kept")
    answer = lake.expire(table, hours=1)
    assert answer["refs_removed"] == ["old"]
    assert first not in ids(table)
    assert len(rows(table.refresh(), second)) == 4


def test_branch_expiration(lake: Lake, table: Table) -> None:
    first, second, *_ = ids(table)
    with table.manage_snapshots() as manage:
        manage.create_branch(first, "old", max_ref_age_ms=1000)
        manage.create_branch(second, "kept")
    assert lake.expire(table, hours=1)["refs_removed"] == ["old"]
    assert set(table.refresh().refs()) == {"main", "kept"}
    assert in_store(table) == reachable(table)


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_fail_removing_snapshot_when_still_referenced(lake: Lake, table: Table, kind: str) -> None:
    first, *_ = ids(table)
    with table.manage_snapshots() as manage:
        (manage.create_branch if kind == "branch" else manage.create_tag)(first, "holder")
    lake.expire(table, hours=1)
    assert first in ids(table)
    assert len(rows(table.refresh(), first)) == 2


def test_retain_files_on_retained_branches(lake: Lake, table: Table) -> None:
    """The data file of the first append is live in a branch alone: main has overwritten it."""
    first, *_ = ids(table)
    with table.manage_snapshots() as manage:
        manage.create_branch(first, "audit")
    table.delete("id < 100")
    append(table.refresh(), [(7, "x")])
    lake.expire(table, hours=1)
    assert len(rows(table.refresh(), first)) == 2
    assert in_store(table) == reachable(table)
    with table.manage_snapshots() as manage:
        manage.remove_branch("audit")
    lake.expire(table, hours=1)
    assert in_store(table) == reachable(table)
    assert len(rows(table.refresh())) == 1


def test_expire_older_than_with_rollback(lake: Lake, table: Table) -> None:
    """The snapshots that a rollback left are in no branch: they go, with the files that only they need."""
    first, second, *_ = ids(table)
    with table.manage_snapshots() as manage:
        manage.set_current_snapshot(second)
    lake.expire(table, hours=1, keep=2)
    assert ids(table) == [first, second]
    assert len(rows(table.refresh())) == 4
    assert in_store(table) == reachable(table)


def test_min_snapshots_to_keep_multiple_branches(lake: Lake, table: Table) -> None:
    first, second, third, head = ids(table)
    with table.manage_snapshots() as manage:
        manage.create_branch(second, "b", min_snapshots_to_keep=2)
    lake.expire(table, hours=1, keep=1)
    assert ids(table) == [first, second, head]
    assert third not in ids(table)


def test_unreferenced_snapshot_parent_of_tag(lake: Lake, table: Table) -> None:
    """A tag keeps its own snapshot, not the ones before it; the file that both name stays."""
    first, second, *_ = ids(table)
    with table.manage_snapshots() as manage:
        manage.create_tag(second, "kept")
        manage.set_current_snapshot(second)
    lake.expire(table, hours=1)
    assert ids(table) == [second]
    assert first not in ids(table)
    assert len(rows(table.refresh())) == 4


def test_expire_snapshots_when_garbage_collection_disabled(lake: Lake, table: Table) -> None:
    lake.compact(table)
    age(table, 25)
    with table.refresh().transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    before = stored_data(table)
    with pytest.raises(NotAllowed, match=r"gc\.enabled"):
        lake.expire(table, hours=1)
    assert stored_data(table) == before


def test_cleanup_repeated_overwrites(lake: Lake, table: Table) -> None:
    for i in range(5):
        table.refresh().overwrite(table.scan().to_arrow().slice(0, 1 + i % 2))
    expected = model_rows(table.refresh())
    lake.expire(table, hours=1)
    assert model_rows(table.refresh()) == expected
    assert in_store(table) == reachable(table)


def test_with_expiring_staged_then_cherrypick(lake: Lake, table: Table) -> None:
    """A file that a staged snapshot wrote, and that main has taken over since, outlives the staged snapshot."""
    head = ids(table)[-1]
    append(table.refresh(), [(77, "staged")])
    staged = ids(table)[-1]
    (path,) = set(live_data_paths(table)) - {
        e.data_file.file_path
        for m in table.snapshot_by_id(head).manifests(table.io)  # type: ignore[union-attr]
        for e in m.fetch_manifest_entry(table.io)
    }
    with table.manage_snapshots() as manage:
        manage.set_current_snapshot(head)
    table.refresh().add_files([path])
    lake.expire(table, hours=1)
    assert staged not in ids(table)
    assert local_path(path).exists()
    assert (77, "staged") in rows(table.refresh())


@pytest.mark.parametrize("grace", [0, 24])
def test_row_52_files_that_lie_in_the_folder_of_another_table_are_spared(
    lake: Lake, table: Table, grace: float
) -> None:
    """One table was filled with the files of another one, by Iceberg's `add_files`: both name them."""
    borrower = lake.table(SCHEMA, [(100, "x")], ident="db.borrower")
    borrower.add_files(live_data_paths(table))
    assert lake.compact(borrower, force=True, expire_snapshots=False)["stats"]["files_compacted"] == 5
    answer = lake.expire(borrower, hours=1, grace=grace)
    age(borrower, 25)
    lake.expire(borrower, hours=1, grace=None)
    assert answer["snapshots_expired"] == 2
    assert len(rows(table.refresh())) == 8
    assert len(rows(borrower.refresh())) == 9
    assert lists(borrower) == {}
    assert in_store(borrower) == reachable(borrower)


def move_metadata(lake: Lake, table: Table, folder: str = "elsewhere") -> None:
    """Let every later metadata file go to another folder, and every older one be forgotten."""
    with table.refresh().transaction() as transaction:
        transaction.set_properties(
            {
                "write.metadata.path": f"{table.location()}/{folder}",
                "write.metadata.previous-versions-max": "1",
            }
        )
    table.refresh().delete("id >= 10")
    append(table.refresh(), [(99, "x")])
    lake.expire(table, hours=1, keep=1, grace=24)


def test_t48_the_lists_of_a_grace_are_found_wherever_metadata_goes_by_then(lake: Lake, table: Table) -> None:
    first = lake.expire(table, hours=1, keep=1, grace=24)
    move_metadata(lake, table)
    named = {s.manifest_list for s in table.refresh().snapshots()} | {table.metadata_location}
    assert {"/elsewhere/" in path for path in named} == {True}
    assert first["undo_id"] in lists(table)
    for path in (local_path(table.location())).rglob("*"):
        if path.is_file() and "quarantine" not in str(path):
            os.utime(path, (0, 0))
    lake.service.upkeep.remove_orphan_files(address(table), older_than_hours=1000, dry_run=False)
    assert lake.undo(table, first["undo_id"])["snapshots_restored"] == 3
    assert [len(rows(table.refresh(), i)) for i in first["snapshot_ids"]] == [2, 4, 6]


def test_t48_the_lists_of_a_grace_end_with_it_wherever_metadata_goes_by_then(lake: Lake, table: Table) -> None:
    lake.expire(table, hours=1, keep=1, grace=24)
    move_metadata(lake, table)
    assert len(lists(table)) == 2
    age(table, 25)
    lake.expire(table, grace=None)
    assert lists(table) == {}
    assert in_store(table) == reachable(table)


def test_lists_that_an_earlier_version_wrote_beside_other_metadata_are_found_there(lake: Lake) -> None:
    elsewhere = lake.folder / "warehouse" / "beside"
    properties = {"write.metadata.path": elsewhere.as_uri()}
    table = lake.table(SCHEMA, *([(i, "x")] for i in range(4)), properties=properties)
    lake.built.again(clock=NextMonth())
    done = lake.expire(table, hours=1, keep=1, grace=24)
    as_earlier_versions_did(table, elsewhere)
    assert lake.undo(table, done["undo_id"])["snapshots_restored"] == 3
    assert list((elsewhere / "regelate" / "quarantine").glob("*.json")) == []
