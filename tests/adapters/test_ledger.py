"""The ledger of a run (law 9): every file is named before it exists, and a sweep finds what a dead run left."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table

from regelate.adapters.clock import SystemClock
from regelate.adapters.iceberg.cleanup.dead_runs import TableLedgers
from regelate.adapters.iceberg.commit.producer import SnapshotProducer
from regelate.adapters.iceberg.files.ledger import FOLDER, RunLedger
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.session import TableSession
from regelate.adapters.parquet.iceberg_footer import as_iceberg_writes
from regelate.core.answers import answer_fields
from regelate.core.requests import CompactRequest
from regelate.core.running.commit import SnapshotChange
from regelate.core.table.schema import Column, PartitionField, TableDefinition
from regelate.core.upkeep.ledger import EntryVerdict
from regelate.errors import CommitStateUnknown, Conflict, RegelateError, Unavailable
from regelate.operations.allowance import Allowance, UsedUp
from regelate.operations.upkeep.sweep import SweptEntry, sweep_ledger, sweep_table
from tests.support.iceberg_tables import arrow_rows, live_data_paths, local_path, rows
from tests.support.lake import address
from tests.system.faults.hooks import Hook, Hooked, HookedCatalog

HOUR = 3600.0
IDENT = "db.t"
NEW = TableDefinition(
    columns=(Column(name="id", type="long", required=True), Column(name="p", type="string")),
    partition_spec=(PartitionField(source="p", transform="identity"),),
)


@pytest.fixture
def built(tmp_path: Path) -> Hooked:
    made = Hooked(tmp_path)
    made.service.tables.create_table(address(IDENT), NEW, if_not_exists=False)
    return made


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return what is entered, entry by entry, and check that no name is entered after its file is there."""
    names: list[set[str]] = []
    record = RunLedger.record

    def before_it_exists(ledger: RunLedger, paths: Iterable[str]) -> None:
        found = set(paths)
        assert not [path for path in found if local_path(path).exists()]
        record(ledger, found)
        names.append(found)

    monkeypatch.setattr(RunLedger, "record", before_it_exists)
    return names


def write(built: Hooked, *ids: int, mode: str = "append", key: str | None = None) -> dict[str, Any]:
    records = [{"id": i, "p": f"p{i % 2}"} for i in ids]
    keys = ("id",) if mode == "upsert" else ()
    found = built.service.writes.write(address(IDENT), records, mode=mode, key=keys, idempotency_key=key)
    return answer_fields(found)


def compact(built: Hooked, **options: Any) -> dict[str, Any]:
    return answer_fields(
        built.service.compactions.compact(address(IDENT), CompactRequest(**{"force": True, **options}))
    )


def expire(built: Hooked) -> dict[str, Any]:
    return answer_fields(
        built.service.upkeep.expire_snapshots(
            address(IDENT), retention_hours=1, min_snapshots_to_keep=None, grace_hours=None, dry_run=False
        )
    )


def load(built: Hooked) -> Table:
    return built.catalog().load_table(IDENT)


def files(table: Table) -> set[Path]:
    """All files of a table but those of ledgers."""
    folder = local_path(table.location())
    return {path for path in folder.rglob("*") if path.is_file() and "regelate" not in path.parts}


def ledger(table: Table) -> list[Path]:
    return sorted((local_path(table.location()) / "metadata" / FOLDER).glob("*.json"))


def grow_old(table: Table, seconds: float = HOUR + 1) -> None:
    """Let the store's clock say that every entry is so old."""
    for path in ledger(table):
        os.utime(path, (time.time() - seconds,) * 2)


def sweep(built: Hooked, *, dry_run: bool = False) -> tuple[SweptEntry, ...]:
    ledgers = TableLedgers(built.catalog(), IDENT, ManifestReader())
    reclaimer = TableSession(built.catalog(), IDENT, ManifestReader(), annotate=as_iceberg_writes).reclaimer
    return tuple(sweep_ledger(ledgers, reclaimer, longest_run_seconds=HOUR, dry_run=dry_run))


OPERATIONS: dict[str, Callable[[Hooked], object]] = {
    "append": lambda a: write(a, 7, 8),
    "upsert": lambda a: write(a, 1, 2, 9, mode="upsert"),
    "overwrite": lambda a: write(a, 5, mode="overwrite_partitions"),
    "binpack": compact,
    "sort": lambda a: compact(a, strategy="sort", sort_order=[{"column": "id"}]),
    "expire": expire,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_file_of_an_operation_is_in_the_ledger_before_it_exists(
    built: Hooked, kept: list[set[str]], operation: str
) -> None:
    for i in range(3):
        write(built, 2 * i, 2 * i + 1)
    before, made = files(load(built)), len(kept)
    OPERATIONS[operation](built)
    named = {local_path(path) for paths in kept[made:] for path in paths}
    assert files(load(built)) - before <= named
    assert operation == "expire" or files(load(built)) - before


def test_a_commit_over_a_property_that_was_set_meanwhile_is_in_the_ledger_too(
    built: Hooked, kept: list[set[str]]
) -> None:
    write(built, 1, 2)
    before, made = files(load(built)), len(kept)
    theirs: set[Path] = set()

    def set_property() -> None:
        earlier = files(load(built))
        built.service.tables.alter_table(address(IDENT), set_properties={"a": "b"}, unset_properties=())
        theirs.update(files(load(built)) - earlier)

    built.hooked.before_commit.append(set_property)
    write(built, 3, 4)
    named = {local_path(path) for paths in kept[made:] for path in paths}
    assert len(theirs) == 1
    assert files(load(built)) - before - theirs <= named


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_ledger_is_empty_when_an_operation_has_ended(built: Hooked, operation: str) -> None:
    for i in range(3):
        write(built, 2 * i, 2 * i + 1)
    OPERATIONS[operation](built)
    assert ledger(load(built)) == []


def test_a_write_costs_two_entries_and_a_compaction_of_many_groups_no_more(built: Hooked, kept: list[set[str]]) -> None:
    write(built, 0, 1)
    assert len(kept) == 2
    write(built, 2, 3)
    kept.clear()
    compact(built, expire_snapshots=False)
    assert [len([path for path in paths if path.endswith(".parquet")]) for paths in kept] == [2, 0]


def test_an_attempt_of_many_manifests_names_them_in_time(built: Hooked, kept: list[set[str]]) -> None:
    built.service.tables.alter_table(
        address(IDENT), set_properties={"commit.manifest.target-size-bytes": "1"}, unset_properties=()
    )
    records = [{"id": i, "p": f"p{i}"} for i in range(30)]
    built.service.writes.write(address(IDENT), records, mode="append", key=(), idempotency_key=None)
    table = load(built)
    manifests = {m.manifest_path for m in table.current_snapshot().manifests(table.io)}  # type: ignore[union-attr]
    assert len(manifests) == 30
    assert manifests <= set().union(*kept)


def test_a_refused_write_leaves_neither_a_file_nor_an_entry(built: Hooked) -> None:
    before = files(load(built))
    with pytest.raises(RegelateError):
        built.service.writes.write(address(IDENT), [{"id": "x"}], mode="append", key=(), idempotency_key=None)
    assert (files(load(built)), ledger(load(built))) == (before, [])


def test_a_lost_race_leaves_no_file_of_the_attempts_that_lost(built: Hooked) -> None:
    """The metadata file that the catalog itself wrote before its swap failed is one of them."""
    write(built, 1, 2)
    built.hooked.before_commit.append(lambda: write(built, 3, 4))
    write(built, 5, 6)
    table = load(built)
    known = {local_path(e.metadata_file) for e in table.metadata.metadata_log} | {local_path(table.metadata_location)}
    assert {path for path in files(table) if path.name.endswith(".metadata.json")} == known
    assert loose_files(table) == set()


def test_races_that_are_all_lost_leave_nothing(built: Hooked) -> None:
    write(built, 1, 2)
    built.hooked.before_commit += [_between(built)] * 20
    with pytest.raises(Conflict):
        write(built, 5, 6)
    assert loose_files(load(built)) == set()
    assert ledger(load(built)) == []


def _between(built: Hooked) -> Callable[[], object]:
    """Another client commits just before us; its own commit is left in peace."""

    def commit() -> None:
        hooks, built.hooked.before_commit = built.hooked.before_commit, []
        write(built, 3, 4)
        built.hooked.before_commit = hooks

    return commit


def loose_files(table: Table) -> set[Path]:
    """Files in the table's folder that neither its metadata nor any snapshot names."""
    metadata = table.metadata
    named = {table.metadata_location, *(e.metadata_file for e in metadata.metadata_log)}
    for snapshot in metadata.snapshots:
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            named.add(manifest.manifest_path)
            named |= {e.data_file.file_path for e in manifest.fetch_manifest_entry(table.io, discard_deleted=False)}
    return files(table) - {local_path(path) for path in named}


# --- runs whose end nobody knows --------------------------------------------------------------------------------------


class Gone(Exception):
    """A connection that broke."""


def broken() -> None:
    raise Gone


@contextmanager
def breaking_down(catalog: HookedCatalog, moments: list[Hook], answer: Exception) -> Iterator[None]:
    """Let the catalog answer the next commit so, before or after it landed, and load no table any more."""
    load_table = catalog.load_table

    def down(*arguments: Any, **options: Any) -> Any:
        raise OSError("no route")

    def break_down() -> None:
        catalog.load_table = down  # type: ignore[method-assign]
        raise answer

    moments.append(break_down)
    try:
        yield
    finally:
        catalog.load_table = load_table  # type: ignore[method-assign]


@pytest.fixture
def unknown(built: Hooked) -> Hooked:
    """A WRITE that landed though nobody could say so: the catalog broke down in the middle of it."""
    write(built, 1, 2)
    with breaking_down(built.hooked, built.hooked.after_commit, Gone()), pytest.raises(CommitStateUnknown):
        write(built, 3, 4)
    return built


def test_the_entries_of_a_commit_of_unknown_state_stay_and_a_sweep_finds_that_it_landed(
    unknown: Hooked,
) -> None:
    table = load(unknown)
    before = files(table)
    assert len(ledger(table)) == 2
    grow_old(table)
    assert {entry.verdict for entry in sweep(unknown)} <= {EntryVerdict.LANDED, EntryVerdict.DEAD_RUN}
    assert (files(table), ledger(table)) == (before, [])
    assert [row[0] for row in rows(table)] == [1, 2, 3, 4]


def test_the_entries_of_a_refused_commit_that_nobody_could_look_up_stay(built: Hooked) -> None:
    """Even a conflict proves nothing while we cannot look: it may be about our own commit (trap T7)."""
    write(built, 1, 2)
    catalog, refused = built.hooked, CommitFailedException("refused")
    with breaking_down(catalog, catalog.before_commit, refused), pytest.raises(CommitStateUnknown):
        write(built, 3, 4)
    table = load(built)
    assert len(ledger(table)) == 2
    grow_old(table)
    sweep(built)
    assert (loose_files(table), ledger(table)) == (set(), [])


def test_an_expiry_that_landed_under_a_conflict_keeps_its_metadata_file(built: Hooked) -> None:
    """Nothing tells such an expiry from a lost one but what the table is made of now (trap T7)."""
    for i in range(3):
        write(built, 2 * i, 2 * i + 1)
    built.clock.now_ms = lambda: time.time_ns() // 1_000_000 + 1000 * 3600 * 1000  # type: ignore[method-assign]

    def conflict() -> None:
        raise CommitFailedException("our own commit, sent again after a lost reply")

    built.hooked.after_commit.append(conflict)
    expire(built)
    table = load(built)
    assert len(table.snapshots()) == 1
    assert local_path(table.metadata_location).exists()
    assert [row[0] for row in rows(table)] == list(range(6))


def test_an_attempt_of_unknown_outcome_that_another_one_overtook_is_swept(built: Hooked) -> None:
    write(built, 1, 2)
    built.hooked.before_commit.append(broken)
    write(built, 3, 4)
    table = load(built)
    assert len(loose_files(table)) == 2  # its manifests and its list
    assert ledger(table) != []
    grow_old(table)
    sweep(built)
    assert (loose_files(table), ledger(table)) == (set(), [])
    assert len(live_data_paths(table)) == 4


def test_an_attempt_whose_answer_does_not_show_it_is_swept_when_another_one_landed(
    built: Hooked,
) -> None:
    """Row 66: the catalog answers with the table as it was, and has done nothing."""
    write(built, 1, 2)
    catalog = built.hooked
    commit = catalog.commit_table

    def does_nothing(*arguments: Any, **options: Any) -> CommitTableResponse:
        catalog.commit_table = commit  # type: ignore[method-assign]
        found = load(built)
        return CommitTableResponse(**{"metadata": found.metadata, "metadata-location": found.metadata_location})  # type: ignore[arg-type]

    catalog.commit_table = does_nothing  # type: ignore[method-assign]
    write(built, 3, 4)
    table = load(built)
    assert len(loose_files(table)) == 2  # the manifest and the list of the first attempt
    grow_old(table)
    sweep(built)
    assert (loose_files(table), ledger(table)) == (set(), [])
    assert [row[0] for row in rows(table)] == [1, 2, 3, 4]


def test_a_file_that_cannot_be_deleted_keeps_its_entry_for_a_sweep(
    built: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(built, 1, 2)
    delete = PyArrowFileIO.delete

    def refuses_data(io: PyArrowFileIO, location: str) -> None:
        if str(location).endswith(".parquet"):
            raise PermissionError("read-only")
        delete(io, location)

    monkeypatch.setattr(PyArrowFileIO, "delete", refuses_data)
    built.hooked.before_commit += [_between(built)] * 20
    with pytest.raises(Conflict):
        write(built, 5, 6)
    table = load(built)
    assert len(loose_files(table)) == 2
    grow_old(table)
    assert [entry.files_deleted for entry in sweep(built) if entry.verdict is EntryVerdict.DEAD_RUN] == [0]
    assert ledger(table) != []  # it could not be deleted now either
    monkeypatch.undo()
    sweep(built)
    assert (loose_files(table), ledger(table)) == (set(), [])


def test_a_merged_manifest_that_cannot_be_deleted_stops_no_write_and_is_swept(
    built: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = {"commit.manifest.min-count-to-merge": "2"}
    built.service.tables.alter_table(address(IDENT), set_properties=merge, unset_properties=[])
    write(built, 1, 2)
    delete = PyArrowFileIO.delete

    def refuses_manifests(io: PyArrowFileIO, location: str) -> None:
        if str(location).endswith(".avro"):
            raise PermissionError("read-only")
        delete(io, location)

    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFileIO, "delete", refuses_manifests)
        write(built, 3, 4)
    table = load(built)
    assert [row[0] for row in rows(table)] == [1, 2, 3, 4]
    assert len(loose_files(table)) == 1  # the manifest of the new files, which is part of a larger one
    grow_old(table)
    sweep(built)
    assert (loose_files(table), ledger(table)) == (set(), [])


# --- what a sweep may not touch ---------------------------------------------------------------------------------------


@pytest.fixture
def dead(built: Hooked, monkeypatch: pytest.MonkeyPatch) -> Hooked:
    """A WRITE that was interrupted before its commit: two data files that no snapshot names."""
    write(built, 1, 2)
    built.hooked.before_commit.append(lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        write(built, 3, 4)
    assert len([path for path in loose_files(load(built)) if path.suffix == ".parquet"]) == 2
    return built


def test_a_young_run_is_left_alone(dead: Hooked) -> None:
    table = load(dead)
    before = files(table)
    grow_old(table, HOUR - 60)
    assert {entry.verdict for entry in sweep(dead)} == {EntryVerdict.RUN_MAY_BE_ALIVE}
    assert files(table) == before


def test_a_dead_run_is_swept_and_a_second_sweep_finds_nothing(dead: Hooked) -> None:
    table = load(dead)
    grow_old(table)
    size = sum(path.stat().st_size for path in loose_files(table))
    count = len(loose_files(table))
    dry = sweep(dead, dry_run=True)
    assert len(loose_files(table)) == count
    done = sweep(dead)
    assert done == dry
    assert (sum(e.files_deleted for e in done), sum(e.bytes_freed for e in done)) == (count, size)
    assert (loose_files(table), ledger(table), sweep(dead)) == (set(), [], ())
    assert [row[0] for row in rows(table)] == [1, 2]


@pytest.mark.parametrize("requests", [0, 1, 2, 4, 6, 8, 9])
def test_a_sweep_that_runs_out_of_its_allowance_says_so_and_the_next_goes_on(dead: Hooked, requests: int) -> None:
    """Nothing is deleted until it is known what the table needs; then entry by entry."""
    table = load(dead)
    grow_old(table)
    allowance, loose = Allowance(SystemClock(), requests=requests), loose_files(table)
    ledgers = TableLedgers(dead.catalog(), IDENT, ManifestReader()).within(allowance.spend)
    reclaimer = TableSession(dead.catalog(), IDENT, ManifestReader(), annotate=as_iceberg_writes).reclaimer
    swept = sweep_table(IDENT, ledgers, reclaimer, longest_run_seconds=HOUR)
    assert isinstance(swept.error, Unavailable)
    assert (swept.error.code, swept.entries, loose_files(table)) == ("TIME_CAP_EXCEEDED", (), loose)
    sweep(dead)
    assert (loose_files(table), ledger(table), [row[0] for row in rows(table)]) == (set(), [], [1, 2])


def test_a_sweep_that_runs_out_of_time_between_two_entries_tells_of_the_first(dead: Hooked) -> None:
    table = load(dead)
    grow_old(table)
    entries, looks = len(ledger(table)), iter([None])
    ledgers = TableLedgers(dead.catalog(), IDENT, ManifestReader())
    reclaimer = TableSession(dead.catalog(), IDENT, ManifestReader(), annotate=as_iceberg_writes).reclaimer

    def look() -> None:
        if next(looks, look) is not None:
            raise UsedUp("TIME_CAP_EXCEEDED", "the next run goes on")

    swept = sweep_table(IDENT, ledgers, reclaimer, longest_run_seconds=HOUR, look=look)
    assert isinstance(swept.error, UsedUp)
    assert (len(swept.entries), len(ledger(table))) == (1, entries - 1)
    sweep(dead)
    assert (loose_files(table), ledger(table)) == (set(), [])


def test_the_entry_of_a_table_that_was_here_before_is_left_alone(dead: Hooked) -> None:
    grow_old(load(dead))
    dead.service.tables.drop_table(address(IDENT), purge=False)
    dead.service.tables.create_table(address(IDENT), NEW, if_not_exists=False)
    before = files(load(dead))
    assert {entry.verdict for entry in sweep(dead)} == {EntryVerdict.OTHER_TABLE}
    assert files(load(dead)) == before


def test_nothing_is_deleted_where_gc_is_disabled(dead: Hooked) -> None:
    dead.service.tables.alter_table(address(IDENT), set_properties={"gc.enabled": "false"}, unset_properties=())
    grow_old(load(dead))
    before = files(load(dead))
    assert {entry.verdict for entry in sweep(dead)} == {EntryVerdict.GC_DISABLED}
    assert files(load(dead)) == before


def test_an_entry_whose_write_failed_halfway_goes_with_its_run(built: Hooked) -> None:
    """The store took it, and answered 503."""
    table = load(built)

    class Halfway(PyArrowFileIO):
        def new_output(self, location: str) -> Any:
            local_path(location).parent.mkdir(parents=True, exist_ok=True)
            local_path(location).write_text('{"format":1,')
            raise OSError("503 SlowDown")

    run = RunLedger(Halfway(), f"{table.location()}/metadata", table_uuid="u", run="r")
    with pytest.raises(Unavailable):
        run.record(["file:///x"])
    assert len(ledger(table)) == 1
    run.close()
    assert ledger(table) == []


def test_a_drop_with_purge_takes_what_dead_runs_left_and_their_entries(dead: Hooked) -> None:
    table = load(dead)
    dead.service.tables.drop_table(address(IDENT), purge=True)
    assert [path for path in local_path(table.location()).rglob("*") if path.is_file()] == []


def test_a_drop_with_purge_spares_the_runs_of_the_table_that_was_here_before(dead: Hooked) -> None:
    entries, loose = ledger(load(dead)), loose_files(load(dead))
    dead.service.tables.drop_table(address(IDENT), purge=False)
    dead.service.tables.create_table(address(IDENT), NEW, if_not_exists=False)
    dead.service.tables.drop_table(address(IDENT), purge=True)
    assert all(path.exists() for path in (*entries, *loose))


@pytest.mark.parametrize(("content", "verdict"), [
    (b"", EntryVerdict.NOTHING_LEFT),
    (b'{"format":1,"run":"r","pa', EntryVerdict.NOTHING_LEFT),
    (b"[]", EntryVerdict.NOTHING_LEFT),
    (b'{"format":2,"paths":["x"]}', EntryVerdict.NEWER_FORMAT),
])  # fmt: skip
def test_an_entry_that_cannot_be_read(built: Hooked, content: bytes, verdict: EntryVerdict) -> None:
    table = load(built)
    entry = local_path(table.location()) / "metadata" / FOLDER / "abc-0.json"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(content)
    grow_old(table)
    assert [e.verdict for e in sweep(built)] == [verdict]
    assert entry.exists() == (verdict is EntryVerdict.NEWER_FORMAT)


def test_an_entry_that_names_a_file_of_another_folder_deletes_nothing(dead: Hooked, tmp_path: Path) -> None:
    table = load(dead)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for path in ledger(table):
        entry = json.loads(path.read_text())
        path.write_text(json.dumps({**entry, "paths": [*entry["paths"], victim.as_uri()]}))
    grow_old(table)
    assert {entry.verdict for entry in sweep(dead)} == {EntryVerdict.OUTSIDE_TABLE}
    assert victim.exists()


def test_a_manifest_that_cannot_be_read_stops_the_sweep_of_its_table(dead: Hooked) -> None:
    """What it names is not known, and any file may be among it."""
    table = load(dead)
    grow_old(table)
    before = loose_files(table)
    manifest = table.current_snapshot().manifests(table.io)[0]  # type: ignore[union-attr]
    local_path(manifest.manifest_path).write_bytes(b"garbage")
    with pytest.raises(RegelateError, match="METADATA_CORRUPT"):
        sweep(dead)
    assert all(path.exists() for path in before)


def compact_twice(built: Hooked) -> None:
    """Afterwards the head does not even name the first inputs as deleted."""
    compact(built, expire_snapshots=False)
    write(built, 5, 6)
    compact(built, expire_snapshots=False)


def test_what_only_an_old_snapshot_or_a_tag_names_is_kept(built: Hooked) -> None:
    """The run landed, its entry was left behind, and the head no longer has its files."""
    write(built, 1, 2)
    write(built, 3, 4)
    table = load(built)
    paths = live_data_paths(table)
    compact_twice(built)
    entry = RunLedger(table.io, f"{table.location()}/metadata", table_uuid=str(table.metadata.table_uuid), run="landed")
    entry.record(paths)
    grow_old(table)
    assert [e.verdict for e in sweep(built)] == [EntryVerdict.LANDED]
    assert all(local_path(path).exists() for path in paths)


# --- staying alive ----------------------------------------------------------------------------------------------------


class Watch:
    """A stopwatch that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> Callable[[], float]:
        start = self.now
        return lambda: self.now - start


@pytest.fixture
def run(tmp_path: Path) -> tuple[RunLedger, Watch, Path]:
    watch = Watch()
    made = RunLedger(PyArrowFileIO(), tmp_path.as_uri(), table_uuid="u", run="r", lives_seconds=1000.0, stopwatch=watch)
    return made, watch, tmp_path / FOLDER


def named(folder: Path) -> dict[str, list[str]]:
    return {path.name: json.loads(path.read_text())["paths"] for path in sorted(folder.glob("*"))}


def test_a_young_run_writes_nothing_to_stay_alive(run: tuple[RunLedger, Watch, Path]) -> None:
    made, watch, folder = run
    made.record(["a"])
    watch.now = 250.0
    made.keep_alive()
    assert named(folder) == {"r-0.json": ["a"]}


def test_a_run_renews_all_of_its_entries_before_they_are_old(run: tuple[RunLedger, Watch, Path]) -> None:
    made, watch, folder = run
    made.record(["a"])
    made.record(["b"])
    watch.now = 251.0
    made.keep_alive()
    assert named(folder) == {"r-2.json": ["a", "b"]}
    watch.now = 1100.0  # 849 s after the renewal
    made.record(["c"])
    assert named(folder) == {"r-3.json": ["a", "b"], "r-4.json": ["c"]}


def test_a_run_that_was_out_of_touch_too_long_stops(run: tuple[RunLedger, Watch, Path]) -> None:
    made, watch, folder = run
    made.record(["a"])
    watch.now = 901.0
    with pytest.raises(Unavailable) as caught:
        made.keep_alive()
    assert (caught.value.code, caught.value.retryable) == ("RUN_TOO_OLD", True)
    with pytest.raises(Unavailable):
        made.record(["b"])
    made.close()
    assert named(folder) == {}


def test_a_renewal_that_took_too_long_comes_too_late(run: tuple[RunLedger, Watch, Path]) -> None:
    made, watch, _ = run
    made.record(["a"])
    watch.now = 899.0
    write_entry = made._write

    def slowly(paths: list[str]) -> None:
        write_entry(paths)
        watch.now = 950.0

    made._write = slowly  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="RUN_TOO_OLD"):
        made.keep_alive()


def test_a_write_that_outlived_its_ledger_commits_nothing_and_leaves_nothing(
    built: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended for longer than a sweep waits: its files may be gone, so it must not name them in a snapshot."""
    write(built, 1, 2)
    before = files(load(built)), load(built).metadata_location
    monkeypatch.setattr(RunLedger, "_age", _too_old)
    with pytest.raises(Unavailable, match="RUN_TOO_OLD"):
        write(built, 3, 4)
    assert (files(load(built)), load(built).metadata_location) == before
    assert ledger(load(built)) == []


def test_a_run_that_was_suspended_while_it_wrote_manifests_sends_nothing(
    built: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(built, 1, 2)
    before = files(load(built)), load(built).metadata_location
    produce = SnapshotProducer.produce

    def suspended(producer: SnapshotProducer, change: SnapshotChange) -> object:
        made = produce(producer, change)
        monkeypatch.setattr(RunLedger, "_age", _too_old)
        return made

    monkeypatch.setattr(SnapshotProducer, "produce", suspended)
    commits = built.hooked.commits
    with pytest.raises(Unavailable, match="RUN_TOO_OLD"):
        write(built, 3, 4)
    assert built.hooked.commits == commits
    assert (files(load(built)), load(built).metadata_location) == before


def _too_old(run: RunLedger) -> float:
    raise Unavailable("RUN_TOO_OLD", "suspended")


def test_a_rival_on_the_same_base_through_the_same_catalog_keeps_its_own_metadata_file(
    built: Hooked, kept: list[set[str]]
) -> None:
    """Two commits under one name would be one file, and the one that lost would delete it."""
    write(built, 1, 2)
    made: list[str] = []

    def rival() -> None:
        table = load(built)
        table.append(arrow_rows(table, [(3, "p1")]))
        made.append(table.metadata_location)

    built.hooked.before_commit.append(rival)
    write(built, 5, 6)
    assert local_path(made[0]).exists()
    assert made[0] not in set().union(*kept)
    assert [row[0] for row in rows(load(built))] == [1, 2, 3, 5, 6]
    assert loose_files(load(built)) == set()


# --- beside expiry, and beside another table --------------------------------------------------------------------------


def landed_and_expired(built: Hooked) -> tuple[list[str], str]:
    """A run that landed and died before it closed its ledger; later its files left the table, by an expiry that can
    be undone."""
    write(built, 1, 2)
    write(built, 3, 4)
    table = load(built)
    paths = live_data_paths(table)
    run = RunLedger(table.io, f"{table.location()}/metadata", table_uuid=str(table.metadata.table_uuid), run="landed")
    run.record(paths)
    compact_twice(built)
    built.clock.now_ms = lambda: time.time_ns() // 1_000_000 + 1000 * 3600 * 1000  # type: ignore[method-assign]
    answer = expire(built)
    assert answer["snapshots_expired"] == 4
    grow_old(table)
    return paths, answer["undo_id"]


def test_files_of_an_expiry_that_can_be_undone_are_not_taken_for_left_behind(built: Hooked) -> None:
    paths, undo_id = landed_and_expired(built)
    assert [e.verdict for e in sweep(built)] == [EntryVerdict.LANDED]
    assert all(local_path(path).exists() for path in paths)
    built.service.upkeep.undo_expiry(address(IDENT), undo_id)
    found = sorted(len(rows(load(built), s.snapshot_id)) for s in load(built).snapshots())
    assert found[:2] == [2, 4]  # the oldest two of those that are restored


def test_a_table_under_two_names_shares_its_ledger_and_nothing_is_deleted(dead: Hooked) -> None:
    """What one of them does not name may be what the other one lives on."""
    table = load(dead)
    grow_old(table)
    before = files(table)
    dead.catalog().register_table("db.copy", table.metadata_location)
    with pytest.raises(RegelateError, match="GC_DISABLED"):
        sweep(dead)
    assert files(table) == before
