"""What one COMPACT asks of the store, by kind and whatever its history is, and that it ends in its time."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from benchmarks.counting import IMPLEMENTATION, Requests, counting, kind_of
from benchmarks.history import with_history
from regelate.adapters.clock import SystemClock
from regelate.core.answers import Status, answer_fields
from regelate.core.requests import CompactRequest, MaintainRequest
from regelate.tenancy import Scope
from tests.adapters.test_expiry import NextMonth, in_store, reachable
from tests.adapters.test_quarantine import age, lists
from tests.support.iceberg_tables import append, arrow_rows, rows
from tests.support.lake import Answer, Lake, address

SCHEMA = Schema(NestedField(1, "id", LongType()))
CANDIDATES = 7
KEEP = "history.expire.min-snapshots-to-keep"


def old_table(lake: Lake, kept: int, expiring: int) -> Table:
    """A table whose next COMPACT expires so many snapshots and keeps so many others; seven small files."""
    lake.catalog.properties["py-io-impl"] = IMPLEMENTATION
    lake.built.again(clock=ThisEvening())
    made = lake.table(SCHEMA, properties={KEEP: str(kept), "history.expire.max-snapshot-age-ms": "3600000"})

    def commit(table: Table) -> None:
        for number in range(CANDIDATES):
            table.refresh().append(arrow_rows(made, [{"id": number}]))

    return with_history(lake.catalog, made, kept + expiring - CANDIDATES - 1, commit)


def compacted(lake: Lake, table: Table, *, expires: int) -> Requests:
    with counting() as asked:
        answer = lake.compact(table, force=True)
    assert (answer["status"], answer["stats"]["snapshots_expired"], answer["warnings"]) == ("COMPLETED", expires, [])
    return asked


@pytest.mark.parametrize("expiring", [0, 5])
def test_the_requests_of_a_compaction_do_not_grow_with_its_history(lake: Lake, expiring: int) -> None:
    lake.folder.joinpath("young").mkdir()
    young, old = Lake(lake.folder / "young"), lake
    few = compacted(young, old_table(young, 20, expiring), expires=expiring)
    many = compacted(old, old_table(old, 300, expiring), expires=expiring)
    assert many.counted == few.counted
    beside = 2 if expiring else 0
    assert many.of("GET", "manifest") == CANDIDATES
    assert many.of("GET", "manifest list") <= 5 + expiring + beside
    assert many.of("GET", "metadata.json") == (3 if expiring else 2)
    assert many.of("GET", "quarantine") <= 1
    assert many.of("LIST") <= 2
    assert many.of("PUT", "quarantine") == (2 if expiring else 0)
    assert (many.of("PUT", "ledger"), many.of("DELETE", "ledger")) == ((3, 3) if expiring else (2, 2))
    assert many.of("PUT", "manifest", "manifest list") == 3


def test_what_many_snapshots_may_need_is_deleted_by_the_next_sweep_and_said_so(lake: Lake) -> None:
    table = old_table(lake, 100, 5)
    first = lake.compact(table, force=True)["stats"]
    age(table, 25)
    append(table.refresh(), [(9,)])
    with counting() as asked:
        answer = lake.compact(table, force=True)
    assert answer["status"] == "COMPLETED"
    assert ["MAINTAIN or SWEEP" in text for text in answer["warnings"]] == [True]
    assert asked.of("GET", "manifest list") < 20
    assert first["undo_id"] in lists(table)
    swept = answer_fields(lake.service.upkeep.maintain(address(table), MaintainRequest(steps=("reclaim",))))
    assert swept["steps"][0]["result"]["files_deleted"] > 0
    assert first["undo_id"] not in lists(table)
    assert len(rows(table.refresh())) == CANDIDATES + 1


def test_the_second_phase_reads_everything_once_however_many_lists_are_due(lake: Lake) -> None:
    table = old_table(lake, 30, 5)
    for _ in range(3):
        lake.compact(table, force=True)
        for number in range(3):
            append(table.refresh(), [(number,)])
    waiting = len(lists(table))
    age(table, 25)
    with counting() as asked:
        freed = lake.expire(table, grace=None)
    assert (waiting, freed["files_deleted"] > 0) == (3, True)
    read = [path for verb, path in asked.paths if verb == "GET" and kind_of(path) in ("manifest list", "quarantine")]
    assert len(read) == len(set(read))
    assert in_store(table) >= reachable(table)


class ThisEvening(SystemClock):
    """Snapshots are two hours older by it, and no grace is over."""

    def now_ms(self) -> int:
        return super().now_ms() + 2 * 3600 * 1000


class SlowStore(SystemClock):
    """A clock that only a store moves, by so many seconds a request: once it is slow, or the first manifest is new."""

    def __init__(self, seconds: float, *, slow: bool = False) -> None:
        self._seconds, self._now, self._slow = seconds, 0.0, slow

    def now_ms(self) -> int:
        return super().now_ms() + 30 * 24 * 3600 * 1000

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def asked(self, verb: str, path: str) -> None:
        self._slow = self._slow or (verb == "PUT" and kind_of(path) == "manifest")
        self._now += self._seconds if self._slow else 0.0


@pytest.mark.parametrize("seconds", [0.3, 1.5])
@pytest.mark.parametrize("grace", ["24", "0"])
def test_expiry_keeps_to_the_time_that_a_compaction_has_left(lake: Lake, seconds: float, grace: str) -> None:
    table = old_table(lake, 20, 100)
    with table.transaction() as transaction:
        transaction.set_properties({"regelate.expiry.grace-hours": grace})
    clock = SlowStore(seconds)
    lake.built.again(clock=clock)
    before = rows(table.refresh())
    with counting(clock.asked):
        answer = lake.service.compactions.compact(address(table), CompactRequest(force=True), seconds_left=25.0)
    assert answer.status is Status.COMPLETED
    assert clock.monotonic() <= 25.0
    assert answer.warnings
    assert rows(table.refresh()) == before
    lake.built.again(clock=NextMonth())
    for _ in range(2):
        lake.expire(table, grace=None)
        age(table, 26)
    lake.expire(table, grace=None)
    assert lists(table) == {}
    assert in_store(table) == reachable(table)


def test_a_sweep_looks_no_longer_than_its_process_lives_and_the_next_one_goes_on(lake: Lake) -> None:
    table = old_table(lake, 60, 5)
    first = lake.compact(table, force=True)["stats"]
    age(table, 25)
    scope = Scope(tenants="*", catalog="local", multi_tenant=False)

    def swept(seconds_left: float | None) -> Answer:
        limits = {"max_tables": None, "time_budget_seconds": None, "dry_run": False}
        return answer_fields(lake.service.fleet.sweep(scope, **limits, seconds_left=seconds_left))

    lake = Lake(lake.folder)  # another process, which has read nothing
    lake.catalog.properties["py-io-impl"] = IMPLEMENTATION
    clock = SlowStore(0.3, slow=True)
    lake.built.again(clock=clock)
    with counting(clock.asked):
        answer = swept(10.0)
    assert clock.monotonic() <= 10.0
    assert (answer["errors"], answer["tables"][0]["error"]["code"]) == (1, "TIME_CAP_EXCEEDED")
    assert first["undo_id"] in lists(table)
    assert swept(None)["errors"] == 0
    assert first["undo_id"] not in lists(table)
    assert len(rows(table.refresh())) == CANDIDATES
