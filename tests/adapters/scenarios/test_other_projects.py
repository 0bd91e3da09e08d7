"""Scenarios of OpenHouse (StaleBaseLostUpdateTest, openhouse#620) and Trino: bases that went stale, and real races."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyiceberg.table import Table

from regelate.adapters.clock import SystemClock
from regelate.errors import Conflict
from tests.adapters.scenarios.scene import SCHEMA, batch, ids, of, snapshots
from tests.support.iceberg_tables import append, live_data_paths, rows
from tests.support.lake import Lake, address
from tests.support.meanwhile import fresh, orphans
from tests.support.table_model import model_rows


class NextMonth(SystemClock):
    """A clock for which everything of today is old."""

    def now_ms(self) -> int:
        return super().now_ms() + 30 * 24 * 3_600_000


@pytest.fixture
def stale(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[int]]:
    """Lets another client act once our commit is on its way; the returned list counts the commits that were sent."""

    def arrange(act: Callable[[], object]) -> list[int]:
        commit, sent = lake.catalog.commit_table, list[int]()

        def late(*arguments: Any) -> Any:
            sent.append(1)
            if len(sent) == 1:
                act()
            return commit(*arguments)

        monkeypatch.setattr(lake.catalog, "commit_table", late)
        return sent

    return arrange


def test_expire_snapshots_drops_concurrent_data_commit(lake: Lake, table: Table, stale: Any) -> None:
    """StaleBaseLostUpdateTest.testExpireSnapshotsDropsConcurrentDataCommit: the expiry is decided again on the
    new head; the insert stays, and what it needs is not deleted."""
    rival = Lake(lake.folder)
    inserted: list[int] = []

    def insert() -> None:
        inserted.append(rival.write(table, [{"id": 500, "p": "x"}])["snapshot_id"])

    lake.built.again(clock=NextMonth())
    sent = stale(insert)
    answer = lake.expire(table, hours=1, keep=1)
    assert len(sent) == 2
    assert answer["snapshots_expired"] == 3
    assert [s.snapshot_id for s in table.refresh().snapshots()] == inserted
    assert len(model_rows(table)) == 31
    assert 500 in ids(table)


def test_stale_insert_drops_concurrent_data_commit_on_fresh_table(lake: Lake, stale: Any) -> None:
    """StaleBaseLostUpdateTest.testStaleInsertDropsConcurrentDataCommitOnFreshTable: two first inserts, both stay."""
    table, rival = lake.table(SCHEMA), Lake(lake.folder)
    sent = stale(lambda: rival.write(table, [{"id": 1, "p": "x"}]))
    lake.write(table, [{"id": 2, "p": "x"}])
    assert len(sent) == 2
    assert rows(table.refresh()) == [(1, "x"), (2, "x")]
    assert snapshots(table) == ["append", "append"]


def test_concurrent_insert_on_populated_table_is_rejected(lake: Lake, table: Table, stale: Any) -> None:
    """StaleBaseLostUpdateTest.testConcurrentInsertOnPopulatedTableIsRejected: the stale attempt is refused, the
    next one lands with a sequence number of its own; so does a compaction's."""
    rival = Lake(lake.folder)
    sent = stale(lambda: rival.write(table, [{"id": 500, "p": "x"}]))
    lake.write(table, [{"id": 501, "p": "x"}])
    assert len(sent) == 2
    numbers = [s.sequence_number for s in table.refresh().snapshots()]
    assert numbers == sorted(set(numbers))
    sent = stale(lambda: rival.write(table, [{"id": 502, "p": "x"}]))
    answer = lake.compact(table, expire_snapshots=False)
    assert (answer["status"], answer["stats"]["commit_attempts"], len(sent)) == ("COMPLETED", 2, 2)
    assert {500, 501, 502} <= set(ids(table))
    assert len(ids(table)) == 33


def test_stale_metadata_update_drops_concurrent_data_commit(lake: Lake, table: Table, stale: Any) -> None:
    """StaleBaseLostUpdateTest.testStaleMetadataUpdateDropsConcurrentDataCommit: ALTER_TABLE beside an insert."""
    rival = Lake(lake.folder)
    stale(lambda: rival.write(table, [{"id": 500, "p": "x"}]))
    lake.service.tables.alter_table(address(table), set_properties={"owner": "me"}, unset_properties=())
    assert table.refresh().properties["owner"] == "me"
    assert 500 in ids(table)
    assert snapshots(table) == ["append"] * 4


def test_concurrent_optimize(lake: Lake, table: Table) -> None:
    """Trino.testConcurrentOptimize: (trino#18393) three compactors have all rewritten before the first one commits."""
    expected = model_rows(table)
    ready = threading.Barrier(3)

    def optimize(rival: Lake) -> str:
        try:
            return str(rival.compact(table, between=lambda: ready.wait() and None)["status"])
        except Conflict as conflict:
            return conflict.code

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(optimize, [Lake(lake.folder) for _ in range(3)]))
    assert sorted(found) == ["COMMIT_CONFLICT", "COMMIT_CONFLICT", "COMPLETED"]
    assert model_rows(table) == expected
    assert (len(of("x", table)), len(of("y", table))) == (1, 1)
    assert snapshots(table).count("replace") == 1
    assert orphans(table) == set()


def test_optimize_during_write_operations(lake: Lake, table: Table) -> None:
    """Trino.testOptimizeDuringWriteOperations: inserts and updates by key from three clients, compactions by another
    between them; then every row is there once, with its last value."""
    writers, rounds = 3, 4

    def insert_and_update(number: int) -> None:
        client, start = Lake(lake.folder), 1000 * (number + 1)
        for turn in range(rounds):
            client.write(table, [{"id": start + turn, "p": "x"}])
            client.write(table, [{"id": start + turn, "p": "z"}], mode="upsert", key=("id",))

    def optimize() -> list[str]:
        client, found = Lake(lake.folder), []
        while not written.is_set():
            found.append(client.compact_or_conflict(table, force=True))
        return found

    written = threading.Event()
    with ThreadPoolExecutor(writers + 1) as pool:
        compactor = pool.submit(optimize)
        try:
            list(pool.map(insert_and_update, range(writers)))
        finally:
            written.set()
        found = compactor.result()
    assert set(found) <= {"COMPLETED", "PARTIAL", "NOTHING_TO_DO", "COMMIT_CONFLICT"}
    lake.compact(table, force=True)
    ours = {(1000 * (number + 1) + turn, "z") for number in range(writers) for turn in range(rounds)}
    before = {row for i in range(3) for row in batch(10 * i, "x") + batch(100 + 10 * i, "y")}
    assert model_rows(table) == sorted(repr(row) for row in ours | before)
    assert len(live_data_paths(fresh(table))) == 3
    append(fresh(table), batch(500))
