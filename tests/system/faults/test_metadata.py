"""Rows 27, 65 and 66: metadata that is damaged, clocks that stand still or go back, and a catalog that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from regelate.adapters.iceberg.commit import producer
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.errors import DataUnavailable
from tests.support.deletes_writer import add_position_deletes, flip_byte, remove_file, truncate_file
from tests.support.iceberg_tables import (
    append,
    live_data_paths,
    local_path,
    make_catalog,
    make_table,
    manifest_paths,
    rows,
    stored_files,
)
from tests.support.table_model import model_rows
from tests.system.faults.hooks import Hooked
from tests.system.faults.stack import Stack, assert_nothing_left_behind, edit_metadata, request

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
COMPACT = request("COMPACT", "t", force=True)
UPSERT = request("WRITE", "t", records=[{"id": 0, "p": "x"}], mode="upsert", key=["id"])
APPEND = request("WRITE", "t", records=[{"id": 0, "p": "x"}])
DAY_MS = 24 * 3_600_000


def batch(start: int, p: str) -> list[tuple[int, str]]:
    return [(start + i, p) for i in range(5)]


def filled(folder: Path, ident: str = "default.t") -> Table:
    table = make_table(make_catalog(folder, "local"), ident, SCHEMA, BY_P)
    for i in range(3):
        append(table, batch(10 * i, "x") + batch(100 + 10 * i, "y"))
    return table


# --- damaged metadata -------------------------------------------------------------------------------------------------

DAMAGES: dict[str, Callable[[str], object]] = {
    "missing": remove_file,
    "empty": lambda path: truncate_file(path, 0),
    "cut": lambda path: truncate_file(path, local_path(path).stat().st_size * 2 // 3),
    "cut by a byte": lambda path: truncate_file(path, local_path(path).stat().st_size - 1),
    "garbage": lambda path: local_path(path).write_bytes(b"Obj\x01 this is no Avro" * 20),
    "a byte flipped in the middle": lambda path: flip_byte(path, local_path(path).stat().st_size // 2),
}
FILES: dict[str, Callable[[Table], str]] = {
    "data manifest": lambda table: manifest_paths(table)[-1],
    "delete manifest": lambda table: manifest_paths(table)[0],
    "manifest list": lambda table: table.metadata.snapshots[-1].manifest_list,
    "metadata.json": lambda table: table.metadata_location,
}
READERS = (COMPACT, request("COMPACT", "t", dry_run=True), request("QUERY", "t"), request("TABLE_HEALTH", "t"), UPSERT)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", FILES)
def test_row_27_damaged_metadata_is_told_and_the_process_survives(tmp_path: Path, which: str, damage: str) -> None:
    """DuckDB's own scan would end the process (trap T4). A flipped byte may also change what is read: then the files
    that it leads to are not there, or not as described; but nothing lands that lost a row."""
    table = filled(tmp_path)
    add_position_deletes(table, {live_data_paths(table)[0]: [1]})
    expected = model_rows(table)
    path = FILES[which](table.refresh())
    whole = local_path(path).read_bytes()
    DAMAGES[damage](path)
    stack = Stack(tmp_path)
    flipped = damage == "a byte flipped in the middle"
    with stack.untouched():
        for body in READERS:
            status, answer = stack.post(body)
            if not flipped:
                assert (status, answer["error"]["code"]) == (424, "METADATA_CORRUPT"), (body["operation"], answer)
                assert not answer["error"]["retryable"]
            elif status == 200:
                assert body["operation"] != "COMPACT" or body.get("dry_run"), answer
            else:
                assert status in (404, 424, 500, 501), answer
    local_path(path).write_bytes(whole)
    fresh = Stack(tmp_path)
    assert fresh.accepted("COMPACT", COMPACT)["status"] == "COMPLETED"
    assert model_rows(table) == expected


def test_row_27_a_manifest_or_a_list_that_is_cut_anywhere_is_told(tmp_path: Path) -> None:
    """By every byte: a decoder that checks no bounds finds what lies behind, and sometimes that fits."""
    table = filled(tmp_path).refresh()
    head = table.current_snapshot()
    assert head is not None
    reader = ManifestReader()
    place = local_path(head.manifest_list)
    whole = place.read_bytes()
    ends = block_ends(whole)
    for keep in [*range(0, len(whole) - 64, 37), *range(len(whole) - 64, len(whole))]:
        place.write_bytes(whole[:keep])
        if keep not in ends:
            with pytest.raises(DataUnavailable, match="METADATA_CORRUPT"):
                reader.manifests(table.io, head.manifest_list)


def block_ends(content: bytes) -> set[int]:
    """Where a file could end as well: after its header, and after every block."""
    sync = content[-16:]
    return {found.end() for found in re.finditer(re.escape(sync), content)}


# --- clocks -----------------------------------------------------------------------------------------------------------


def in_order(table: Table) -> list[int]:
    """The times of all snapshots, oldest first; they, the table's history and its own time must never go back.

    Java refuses to load metadata that is a minute older than its last snapshot.
    """
    table.refresh()
    times = [s.timestamp_ms for s in sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)]
    assert times == sorted(times)
    history = [entry.timestamp_ms for entry in table.history()]
    assert history == sorted(history)
    assert table.metadata.last_updated_ms >= times[-1]
    return times


def test_row_65_a_clock_behind_the_last_commit_makes_no_snapshot_older_than_its_parent(tmp_path: Path) -> None:
    """The head was committed by a machine whose clock is an hour ahead of ours."""
    table, stack = filled(tmp_path), Stack(tmp_path)
    ahead = table.metadata.last_updated_ms + 3_600_000

    def advance(metadata: dict[str, Any]) -> None:
        metadata["last-updated-ms"] = ahead
        metadata["snapshots"][-1]["timestamp-ms"] = ahead
        metadata["snapshot-log"][-1]["timestamp-ms"] = ahead

    edit_metadata(table, advance)
    stack.ok("WRITE", "t", records=[{"id": 500, "p": "x"}])
    stack.ok("WRITE", "t", records=[{"id": 500, "p": "y"}], mode="upsert", key=["id"])
    assert stack.accepted("COMPACT", {**COMPACT, "expire_snapshots": False})["status"] == "COMPLETED"
    assert in_order(table)[2:] == [ahead, ahead + 1, ahead + 2, ahead + 3]
    assert len(rows(table)) == 31


def test_row_65_commits_within_one_millisecond_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, stack = filled(tmp_path), Stack(tmp_path)
    now = table.metadata.last_updated_ms + DAY_MS
    monkeypatch.setattr(producer.time, "time", lambda: now / 1000)
    for number in range(3):
        stack.ok("WRITE", "t", records=[{"id": 500 + number, "p": "x"}])
    assert stack.accepted("COMPACT", {**COMPACT, "expire_snapshots": False})["status"] == "COMPLETED"
    assert in_order(table)[3:] == [now, now + 1, now + 2, now + 3]
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation.value == "replace"
    assert stack.ok("QUERY", "t", as_of=now + 3)["snapshot_id"] == head.snapshot_id


# --- a catalog that is wrong ------------------------------------------------------------------------------------------


class Liar:
    """Our program over a catalog that answers one load of table `t` with something else."""

    def __init__(self, folder: Path) -> None:
        self.table = filled(folder)
        self.stack = Stack(folder)
        self.built = Hooked(folder)
        self.stack.built = self.built

    def answer(self, load: int, with_table: Table) -> None:
        """Let the given load (from 1) show the metadata of another table or state under the name `t`."""
        ours = self.built.hooked
        shown = Table(self.table.name(), with_table.metadata, with_table.metadata_location, with_table.io, ours)
        self.built.hooked.on_load[:] = [*[lambda: None] * (load - 1), lambda: shown]


@pytest.fixture
def liar(tmp_path: Path) -> Liar:
    return Liar(tmp_path)


def aged(table: Table) -> Table:
    """A table that was made and written a day ago."""

    def shift(metadata: dict[str, Any]) -> None:
        metadata["last-updated-ms"] -= DAY_MS
        for listed in ("snapshots", "snapshot-log", "metadata-log"):
            for entry in metadata[listed]:
                entry["timestamp-ms"] -= DAY_MS

    edit_metadata(table, shift)
    return table.catalog.load_table(table.name())


LOADS = {"before the plan": 2, "before the commit": 3}
"""The first load opens the table: what it shows is what the operation is about."""


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("body", [COMPACT, APPEND, UPSERT], ids=["COMPACT", "append", "upsert"])
def test_row_66_another_tables_metadata_under_the_name_is_told_and_nothing_is_committed(
    liar: Liar, load: str, body: dict[str, Any]
) -> None:
    other = aged(filled(liar.stack.folder, "default.other"))
    before = stored_files(liar.table), stored_files(other)
    liar.answer(LOADS[load], other)
    error = liar.stack.refused(502, "CATALOG_INCONSISTENT", ["another table", str(other.metadata.table_uuid)], body)
    assert error["retryable"]
    assert (stored_files(liar.table), stored_files(other)) == before
    assert liar.built.hooked.commits == 0
    liar.stack.accepted(body["operation"], body)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("body", [COMPACT, APPEND, UPSERT], ids=["COMPACT", "append", "upsert"])
def test_row_66_an_older_pointer_is_told_and_nothing_is_committed(liar: Liar, load: str, body: dict[str, Any]) -> None:
    older = liar.table.catalog.load_table(liar.table.name())
    append(liar.table, batch(500, "x"))
    before = stored_files(liar.table)
    liar.answer(LOADS[load], older)
    liar.stack.refused(502, "CATALOG_INCONSISTENT", ["older state", "sequence number 3 after 4"], body)
    assert stored_files(liar.table) == before
    assert liar.built.hooked.commits == 0
    liar.stack.accepted(body["operation"], body)


def test_row_66_an_older_pointer_of_a_v1_table_is_told_by_its_time(tmp_path: Path) -> None:
    liar = Liar(tmp_path)
    catalog = make_catalog(tmp_path, "local")
    catalog.drop_table("default.t")
    liar.table = make_table(catalog, "default.t", SCHEMA, format_version=1)
    append(liar.table, batch(0, "x"))
    older = aged(catalog.load_table("default.t"))
    append(liar.table.refresh(), batch(10, "x"))
    liar.answer(2, older)
    liar.stack.refused(502, "CATALOG_INCONSISTENT", ["older state", "last updated"], COMPACT)


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("kind", ["another table", "an older state"])
def test_row_66_a_wrong_answer_to_the_commit_proves_nothing_either_way(
    liar: Liar, monkeypatch: pytest.MonkeyPatch, kind: str, landed: bool
) -> None:
    """What is in the table decides: a commit is found there, and one that is not there is made again."""
    shown = filled(liar.stack.folder, "default.other") if kind == "another table" else liar.table
    expected = model_rows(liar.table)
    honest = liar.built.hooked.commit_table
    calls: list[object] = []

    def wrong(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            return honest(*arguments)
        if landed:
            honest(*arguments)
        return CommitTableResponse(metadata=shown.metadata, metadata_location=shown.metadata_location)

    monkeypatch.setattr(liar.built.hooked, "commit_table", wrong)
    answer = liar.stack.accepted("COMPACT", {**COMPACT, "expire_snapshots": False})
    assert (answer["status"], answer["stats"]["commit_attempts"]) == ("COMPLETED", 1 if landed else 2)
    assert len(live_data_paths(liar.table.refresh())) == 2
    assert model_rows(liar.table) == expected
    assert_nothing_left_behind(liar.table)
