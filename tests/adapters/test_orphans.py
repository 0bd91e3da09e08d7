"""Orphan files: what nothing reaches goes when it is old, the rest stays (row 53; TestRemoveOrphanFilesAction)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from regelate.adapters.iceberg.cleanup.orphans import TableOrphans
from regelate.adapters.iceberg.cleanup.reached import reached_by
from regelate.adapters.iceberg.files.store import ObjectStore
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.core.answers import answer_fields
from regelate.errors import Conflict, InvalidRequest, NotAllowed, RegelateError, Unavailable
from tests.adapters.test_expiry import NextMonth, ids
from tests.adapters.test_quarantine import statistics
from tests.support.deletes_writer import add_position_deletes, remove_file
from tests.support.iceberg_tables import append, live_data_paths, local_path, rows, stored_files
from tests.support.lake import Answer, Lake, address
from tests.support.table_model import model_rows

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
HOUR_SECONDS = 3600


@pytest.fixture
def table(lake: Lake) -> Table:
    """Three appends, whose files lie there for four days."""
    made = lake.table(SCHEMA, *([(10 * i, "x"), (10 * i + 1, "y")] for i in range(3)), spec=BY_P)
    grow_old(made)
    return made


def folder(table: Table) -> Path:
    return local_path(table.location())


def grow_old(table: Table, hours: float = 96) -> None:
    """Let every file of the table be changed so long ago, by the store's clock."""
    for path in folder(table).rglob("*"):
        os.utime(path, (time.time() - hours * HOUR_SECONDS,) * 2)


def stray(table: Table, name: str, hours: float = 96) -> str:
    """Put a file that nothing reaches into the table's folder."""
    path = folder(table) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"a writer died")
    os.utime(path, (time.time() - hours * HOUR_SECONDS,) * 2)
    return name


def remove(lake: Lake, table: Table, *, hours: float | None = None, dry_run: bool = False) -> Answer:
    return answer_fields(
        lake.service.upkeep.remove_orphan_files(address(table), older_than_hours=hours, dry_run=dry_run)
    )


def test_all_valid_files_are_kept(lake: Lake, table: Table) -> None:
    add_position_deletes(table, {live_data_paths(table)[0]: [0]})
    lake.compact(table, force=True)
    with table.refresh().manage_snapshots() as manage:
        manage.create_tag(ids(table)[0], "start")
    grow_old(table)
    before, expected = stored_files(table), model_rows(table.refresh())
    assert remove(lake, table)["orphan_files"] == 0
    assert stored_files(table) == before
    assert model_rows(table.refresh()) == expected
    assert [len(rows(table, i)) for i in ids(table)][:3] == [2, 4, 6]


def test_orphans_are_listed_first_and_deleted_on_request(lake: Lake, table: Table) -> None:
    before = stored_files(table)
    strays = {stray(table, "data/p=x/orphan.parquet"), stray(table, "metadata/snap-1-0-dead.avro")}
    listed = remove(lake, table, dry_run=True)
    assert (listed["orphan_files"], listed["orphan_bytes"], listed["files_deleted"]) == (2, 26, 0)
    assert {o["path"] for o in listed["orphans"]} == {f"{table.location()}/{name}" for name in strays}
    assert stored_files(table) == before | strays
    answer = remove(lake, table)
    assert (answer["files_deleted"], answer["bytes_freed"]) == (2, 26)
    assert stored_files(table) == before
    assert len(rows(table.refresh())) == 6


def test_wap_files_are_kept(lake: Lake, table: Table) -> None:
    """Files of a staged snapshot, which no branch names yet."""
    head = ids(table)[-1]
    append(table.refresh(), [(77, "x")])
    with table.manage_snapshots() as manage:
        manage.set_current_snapshot(head)
    grow_old(table)
    before = stored_files(table)
    assert remove(lake, table)["orphan_files"] == 0
    assert stored_files(table) == before
    assert len(rows(table.refresh(), ids(table)[-1])) == 7


def test_metadata_folder_is_intact(lake: Lake, table: Table) -> None:
    stray(table, "metadata/version-hint.text")
    before = {p for p in stored_files(table) if p.startswith("metadata/")}
    remove(lake, table)
    assert {p for p in stored_files(table) if p.startswith("metadata/")} == before


def test_metadata_files_that_only_older_ones_name_are_kept(lake: Lake) -> None:
    table = lake.table(SCHEMA, properties={"write.metadata.previous-versions-max": "2"})
    for i in range(7):
        append(table.refresh(), [(i, "x")])
    grow_old(table)
    before = stored_files(table)
    assert len(table.metadata.metadata_log) == 2
    remove(lake, table)
    assert stored_files(table) == before


def test_older_than_timestamp(lake: Lake, table: Table) -> None:
    young, old = stray(table, "data/young.parquet", hours=80), stray(table, "data/old.parquet", hours=100)
    answer = remove(lake, table, hours=90)
    assert (answer["files_deleted"], answer["young_files"]) == (1, 1)
    assert young in stored_files(table)
    assert old not in stored_files(table)


@pytest.mark.parametrize("location", ["{0}//db///t", "{1}//db/t/", "{2}/db/t"])
def test_paths_with_extra_slashes_and_equal_schemes(lake: Lake, location: str) -> None:
    """`file:/x`, `/x` and doubled slashes are one place, whichever the writer took."""
    warehouse = lake.folder / "warehouse"
    named = location.format(warehouse.as_uri(), f"file:{warehouse}", str(warehouse))
    lake.catalog.create_namespace_if_not_exists("db")
    table = lake.catalog.create_table("db.t", SCHEMA, location=named)
    for i in range(3):
        append(table, [(i, "x")])
    for path in (warehouse / "db" / "t").rglob("*"):
        os.utime(path, (time.time() - 96 * HOUR_SECONDS,) * 2)
    (warehouse / "db" / "t" / "data" / "stray.parquet").write_bytes(b"x")
    os.utime(warehouse / "db" / "t" / "data" / "stray.parquet", (0, 0))
    answer = remove(lake, table)
    assert (answer["orphan_files"], answer["files_deleted"]) == (1, 1)
    assert len(rows(table.refresh())) == 3


def test_a_name_that_is_a_reachable_one_but_for_url_encoding_refuses_everything(lake: Lake, table: Table) -> None:
    append(table.refresh(), [(99, "a b")])
    grow_old(table)
    (path,) = (p for p in live_data_paths(table.refresh()) if "p=a" in p)
    name = Path(path).name
    stray(table, f"data/p=a b/{name}")
    orphan = stray(table, "data/orphan.parquet")
    with pytest.raises(Conflict) as caught:
        remove(lake, table)
    assert (caught.value.code, caught.value.retryable) == ("PATH_MISMATCH", False)
    assert orphan in stored_files(table)


def test_garbage_collection_disabled(lake: Lake, table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    orphan = stray(table, "data/orphan.parquet")
    for dry_run in (True, False):
        with pytest.raises(NotAllowed, match="GC_DISABLED"):
            remove(lake, table, dry_run=dry_run)
    assert orphan in stored_files(table)


def test_hidden_partition_paths_with_partition_evolution(lake: Lake) -> None:
    schema = Schema(NestedField(1, "_id", LongType()), NestedField(2, "p", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "_id"))
    table = lake.table(schema, [(1, "x")], spec=spec)
    with table.update_spec() as update:
        update.add_identity("p")
    append(table.refresh(), [(2, "y")])
    grow_old(table)
    before = stored_files(table)
    orphan = stray(table, "data/_id=1/p=z/orphan.parquet")
    hidden = {stray(table, "data/_temporary/0.parquet"), stray(table, "data/p=z/.part.crc")}
    assert remove(lake, table)["files_deleted"] == 1
    assert stored_files(table) == before | hidden
    assert orphan not in stored_files(table)


def test_remove_orphan_files_with_statistic_files(lake: Lake, table: Table) -> None:
    kept = statistics(table, ids(table)[-1])
    gone = stray(table, "metadata/1.stats")
    grow_old(table)
    remove(lake, table)
    assert all(path.exists() for path in kept)
    assert gone not in stored_files(table)


def test_files_in_quarantine_are_no_orphans(lake: Lake, table: Table) -> None:
    lake.built.again(clock=NextMonth())
    undo_id = lake.compact(table, force=True)["stats"]["undo_id"]
    for path in folder(table).rglob("*"):
        if "quarantine" not in str(path):
            os.utime(path, (0, 0))
    before = stored_files(table)
    assert remove(lake, table)["orphan_files"] == 0
    assert stored_files(table) == before
    assert lake.undo(table, undo_id)["snapshots_restored"] == 3
    assert [len(rows(table.refresh(), i)) for i in ids(table) if f"undo-{i}" in table.refs()] == [2, 4, 6]


def test_what_an_undo_needs_beyond_its_list_is_no_orphan(lake: Lake, table: Table) -> None:
    """Another engine expired the younger snapshots that reached it too, and deleted no file."""
    lake.built.again(clock=NextMonth())
    before = {i: rows(table, i) for i in ids(table)}
    first = lake.expire(table, hours=1, keep=2, grace=24)
    lake.compact(table, force=True, expire_snapshots=False)
    table.refresh().maintenance.expire_snapshots().by_ids(ids(table)[:-1]).commit()
    for path in folder(table).rglob("*"):
        if "quarantine" not in str(path):
            os.utime(path, (0, 0))
    remove(lake, table)
    lake.undo(table, first["undo_id"])
    assert {i: rows(table.refresh(), i) for i in first["snapshot_ids"]} == {i: before[i] for i in first["snapshot_ids"]}


@pytest.mark.parametrize("moment", ["listing", "now_ms"])
def test_row_47_a_table_that_is_renamed_and_made_again_meanwhile_keeps_its_files(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """By default both lie in one folder, and the new one reaches nothing of the old one's."""
    look = getattr(TableOrphans, moment)

    def replaced(orphans: TableOrphans) -> object:
        monkeypatch.undo()
        found = look(orphans)
        lake.catalog.rename_table("db.t", "db.renamed")
        lake.table(SCHEMA, [(1, "x")], ident="db.t")
        return found

    before = rows(table)
    monkeypatch.setattr(TableOrphans, moment, replaced)
    with pytest.raises(Conflict) as caught:
        remove(lake, table)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("TABLE_REPLACED", 409, False)
    assert rows(lake.catalog.load_table("db.renamed")) == before
    assert len(rows(lake.catalog.load_table("db.t"))) == 1


@pytest.mark.parametrize(("place", "refused"), [("inside", True), ("around", True), ("beside", False)])
def test_a_folder_that_overlaps_with_another_tables_is_refused(
    lake: Lake, table: Table, place: str, refused: bool
) -> None:
    places = {"inside": f"{table.location()}/inner", "around": lake.catalog.properties["warehouse"]}
    location = places.get(place, f"{table.location()}2")
    other = lake.catalog.create_table("db.secret", SCHEMA, location=location)
    append(other, [(1, "z")])
    for path in lake.folder.rglob("*.parquet"):
        os.utime(path, (0, 0))
    if refused:
        with pytest.raises(NotAllowed) as caught:
            remove(lake, table)
        assert caught.value.code == "GC_DISABLED"
        assert "secret" not in caught.value.message
    else:
        remove(lake, table)
    assert len(rows(other.refresh())) == 1


def test_a_table_of_which_nobody_knows_where_it_lies_refuses_too(lake: Lake, table: Table) -> None:
    other = lake.catalog.create_table("db.other", SCHEMA)
    remove_file(other.metadata_location)
    orphan = stray(table, "data/orphan.parquet")
    with pytest.raises(RegelateError):
        remove(lake, table)
    assert orphan in stored_files(table)


def test_what_cannot_be_read_may_reach_anything_so_nothing_goes(lake: Lake, table: Table) -> None:
    remove_file(table.refresh().snapshots()[0].manifest_list)
    orphan = stray(table, "data/orphan.parquet")
    with pytest.raises(RegelateError, match="METADATA_CORRUPT"):
        remove(lake, table)
    assert orphan in stored_files(table)


@pytest.mark.parametrize("hours", [71.9, 0, -1, 1e9])
def test_an_age_below_72_hours_is_refused(lake: Lake, table: Table, hours: float) -> None:
    with pytest.raises(InvalidRequest, match="older_than_hours") as caught:
        remove(lake, table, hours=hours)
    assert (caught.value.code, caught.value.details["minimum_hours"]) == ("INVALID_RETENTION", 72)


def test_a_file_that_is_committed_while_we_look_is_not_deleted(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old file that somebody adds after the listing: seen at the second look."""
    old = live_data_paths(table)[0]
    late = stray(table, "data/p=x/late.parquet")
    (folder(table) / late).write_bytes(local_path(old).read_bytes())
    os.utime(folder(table) / late, (0, 0))
    now_ms = ObjectStore.now_ms
    reads = []

    def add_files(store: ObjectStore, place: str) -> int:
        reads.append(place)
        return now_ms(store, place)

    reached = lake.built.manifests.entries
    added = []

    def commits_meanwhile(*arguments: object) -> object:
        if not added:
            added.append(True)
            table.refresh().add_files([f"{table.location()}/{late}"])
        return reached(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.built.manifests, "entries", commits_meanwhile)
    answer = remove(lake, table)
    assert added
    assert (answer["orphan_files"], answer["files_deleted"]) == (1, 0)
    assert late in stored_files(table)
    assert len(rows(table.refresh())) == 7


def test_the_age_is_the_stores_not_ours(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our clock says next month, so everything would be old; the store's own clock says now."""
    lake.built.again(clock=NextMonth())
    orphan = stray(table, "data/young.parquet", hours=1)
    assert remove(lake, table)["young_files"] == 1
    monkeypatch.setattr(ObjectStore, "now_ms", lambda *_: int((time.time() + 80 * HOUR_SECONDS) * 1000))
    assert remove(lake, table)["files_deleted"] == 1
    assert orphan not in stored_files(table)


def test_whoever_asks_for_the_stores_time_clears_what_another_left_who_died_asking(table: Table) -> None:
    own = folder(table) / "metadata" / "regelate"
    for name, hours in (("clock-old", 25), ("quarantine/clock-old", 25), ("ledger/clock-young", 23), ("x.json", 99)):
        stray(table, f"metadata/regelate/{name}", hours=hours)
    ObjectStore(table.io).now_ms(f"{table.location()}/metadata/regelate")
    assert {str(p.relative_to(own)) for p in own.rglob("*") if p.is_file()} == {"ledger/clock-young", "x.json"}


def test_a_storage_that_does_not_answer_says_nothing_about_a_manifest(table: Table) -> None:
    """Found by the simulator: an expiry took manifests for lost that were only out of reach, and forgot their files."""

    class Busy(PyArrowFileIO):
        def new_input(self, location: str) -> Any:
            raise OSError("503 SlowDown")

    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifest = snapshot.manifests(table.io)[0]
    with pytest.raises(Unavailable) as caught:
        tuple(ManifestReader().entries(Busy(), manifest))
    assert (caught.value.code, caught.value.status) == ("STORAGE_UNAVAILABLE", 503)
    with pytest.raises(Unavailable):
        reached_by(Busy(), ManifestReader(), [snapshot])


def test_a_quarantine_list_that_was_cut_off_stops_no_removal(lake: Lake, table: Table) -> None:
    orphan = stray(table, "data/old.parquet")
    cut = stray(table, "metadata/regelate/quarantine/7.json", hours=0)
    (folder(table) / cut).write_text('{"format":1,"undo_id":"7","table_uu')
    assert remove(lake, table)["files_deleted"] == 1
    assert orphan not in stored_files(table)
