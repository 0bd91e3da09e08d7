"""The memory of a fleet, on a real file and on moto: changed at once, kept, and shared by threads and processes."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regelate.adapters.records.dynamo_fleet import READ_AT_ONCE, DynamoFleet
from regelate.adapters.records.sqlite_fleet import SqliteFleet
from regelate.core.fleet.backlog import Backlog, BacklogAt
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetTrigger
from regelate.core.fleet.state import FleetRun, TableState
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from regelate.errors import Conflict, Unavailable
from regelate.ports.fleet_store import FleetStore
from tests.servers.moto_aws import aws_server, client, jobs_table

RUN = FleetRun(
    run_id="r1",
    operation=FleetOperation.COMPACT,
    trigger=FleetTrigger.DEMAND,
    asked_by="acme",
    reason="many files",
    queued_ms=1_000,
)


def known(state: TableState | None, uuid: str = "u1", catalog: str = "local") -> TableState:
    return state or TableState(table_uuid=uuid, catalog=catalog, ident=f"default.{uuid}", tenant="acme")


def add(store: FleetStore, uuid: str = "u1", catalog: str = "local") -> TableState:
    return store.change(uuid, lambda state: known(state, uuid, catalog))


def ended(run: FleetRun, outcome: FleetOutcome = FleetOutcome.DONE) -> FleetRun:
    return replace(run, started_ms=1_001, ended_ms=2_000, outcome=outcome, actual_seconds=1.5, actual_dollars=0.01)


@pytest.fixture(scope="module")
def aws() -> Iterator[Callable[[str], Any]]:
    with aws_server() as endpoint:
        yield lambda service: client(service, endpoint)


@pytest.fixture(params=["sqlite", "dynamodb"])
def store(request: pytest.FixtureRequest, tmp_path: Path, aws: Callable[[str], Any]) -> FleetStore:
    if request.param == "sqlite":
        return SqliteFleet(tmp_path / "not there yet" / "fleet.db")
    dynamodb, name = aws("dynamodb"), f"fleet-{abs(hash(tmp_path))}"
    jobs_table(dynamodb, name)
    return DynamoFleet(name, client=dynamodb)


def test_a_state_comes_back_as_it_was_given(store: FleetStore) -> None:
    made = add(store)
    queued = store.change("u1", lambda state: known(state).queued(RUN))
    assert queued == made.queued(RUN)
    assert store.states() == (queued,)


def test_another_process_sees_what_was_stored(tmp_path: Path) -> None:
    made = add(SqliteFleet(tmp_path / "fleet.db"))
    assert SqliteFleet(tmp_path / "fleet.db").states() == (made,)


def test_more_tables_come_back_than_one_request_reads(store: FleetStore) -> None:
    for number in range(READ_AT_ONCE + 1):
        add(store, f"u{number:03}")
    assert [state.table_uuid for state in store.states()] == [f"u{number:03}" for number in range(READ_AT_ONCE + 1)]


def test_the_history_of_a_catalog_is_of_its_tables_alone(store: FleetStore) -> None:
    for uuid, catalog in (("u1", "local"), ("u2", "glue")):
        add(store, uuid, catalog)
        run = replace(RUN, run_id=f"of {uuid}")
        store.change(uuid, lambda state, run=run: known(state).queued(run))  # type: ignore[misc]
        store.change(uuid, lambda state, run=run: known(state).settled(ended(run)))  # type: ignore[misc]
    assert [(uuid, run.run_id) for uuid, run in store.history("glue", None, 10)] == [("u2", "of u2")]
    assert [state.table_uuid for state in store.states()] == ["u1", "u2"]


def test_a_run_that_ended_is_in_the_history_once_and_stays_when_the_table_is_forgotten(store: FleetStore) -> None:
    add(store)
    store.change("u1", lambda state: known(state).queued(RUN))
    store.change("u1", lambda state: known(state).settled(ended(RUN)))
    second = replace(RUN, run_id="r2", queued_ms=3_000)
    store.change("u1", lambda state: known(state).queued(second))
    store.change("u1", lambda state: known(state).settled(replace(ended(second), ended_ms=4_000)))
    assert [run.run_id for _, run in store.history("local", None, 10)] == ["r2", "r1"]
    assert [run for _, run in store.history("local", "u1", 1)] == [replace(ended(second), ended_ms=4_000)]
    store.forget("u1")
    assert store.states() == ()
    assert len(store.history("local", None, 10)) == 2


def test_a_change_that_is_refused_leaves_everything_as_it_was(store: FleetStore) -> None:
    add(store)
    before = store.change("u1", lambda state: known(state).queued(RUN))
    with pytest.raises(Conflict, match="one at a time"):
        store.change("u1", lambda state: known(state).queued(replace(RUN, run_id="r2")))
    assert store.states() == (before,)


def test_of_two_that_queue_a_run_at_the_same_time_one_is_refused(store: FleetStore) -> None:
    add(store)
    together, refused = threading.Barrier(8), list[str]()

    def queue(number: int) -> None:
        together.wait()
        try:
            store.change("u1", lambda state: known(state).queued(replace(RUN, run_id=f"r{number}")))
        except Conflict as fault:
            refused.append(fault.code)

    threads = [threading.Thread(target=queue, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["RUN_LIVE"] * 7
    (state,) = store.states()
    assert state.live is not None


def test_a_plan_is_found_by_its_name(store: FleetStore) -> None:
    store.remember("p1", "[]")
    assert (store.recall("p1"), store.recall("p2")) == ("[]", None)


def test_a_plan_of_a_whole_fleet_is_kept(store: FleetStore) -> None:
    body = "".join(f"{number:07}" for number in range(200_000))
    store.remember("p1", body)
    assert store.recall("p1") == body


def test_a_plan_is_kept_for_a_week_and_no_longer(tmp_path: Path) -> None:
    store = SqliteFleet(tmp_path / "fleet.db")
    store.remember("p1", "[]")
    with sqlite3.connect(tmp_path / "fleet.db") as db:
        db.execute("UPDATE plans SET made_ms = made_ms - 7 * 24 * 3600 * 1000 - 1")
    assert store.recall("p1") is None


def test_a_change_whose_reply_was_lost_is_made_once(aws: Callable[[str], Any], tmp_path: Path) -> None:
    """boto3 sends it again, and DynamoDB knows its token."""
    dynamodb, name = aws("dynamodb"), f"lost-{abs(hash(tmp_path))}"
    jobs_table(dynamodb, name)
    store = DynamoFleet(name, client=dynamodb)
    add(store)
    sent: list[dict[str, Any]] = []

    def first_lost(model: Any, params: dict[str, Any], **_: Any) -> None:
        sent.append(params)

    dynamodb.meta.events.register("before-call.dynamodb.TransactWriteItems", first_lost)
    store.change("u1", lambda state: known(state).queued(RUN))
    (params,) = sent
    assert json.loads(params["body"])["ClientRequestToken"]


def test_a_table_of_dynamodb_that_is_missing_is_a_fault_with_a_name(aws: Callable[[str], Any]) -> None:
    with pytest.raises(Unavailable, match="ResourceNotFoundException") as caught:
        DynamoFleet("nowhere", client=aws("dynamodb")).states()
    assert caught.value.code == "FLEET_UNAVAILABLE"


def test_a_file_that_is_no_database_is_named_and_may_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "fleet.db").write_text("not a database, " * 100)
    with pytest.raises(Unavailable, match=r"fleet\.db") as caught:
        SqliteFleet(tmp_path / "fleet.db").states()
    assert caught.value.code == "FLEET_UNAVAILABLE"


def test_of_the_backlogs_of_an_hour_the_last_is_kept_and_they_come_back_by_age(store: FleetStore) -> None:
    hour = store.now_ms() // HOUR_MS * HOUR_MS
    mine = Backlog(tables=2, files=70, read_bytes=7_000, dollars=0.25)
    noted = [
        BacklogAt(at_ms=hour - 3 * HOUR_MS + minute * 60_000, tenants={"acme": replace(mine, files=files)})
        for minute, files in ((59, 1), (70, 2), (80, 3), (130, 4))
    ]
    for found in noted:
        store.note_backlog(found)
    assert store.backlogs(0) == (noted[0], noted[2], noted[3])
    assert store.backlogs(noted[2].at_ms) == (noted[2], noted[3])


def test_a_backlog_of_a_quarter_ago_is_forgotten(tmp_path: Path) -> None:
    store = SqliteFleet(tmp_path / "fleet.db")
    now_ms = store.now_ms()
    for days in (91, 89):
        store.note_backlog(BacklogAt(at_ms=now_ms - days * DAY_MS, tenants={}))
    store.note_backlog(BacklogAt(at_ms=now_ms, tenants={}))
    assert [found.at_ms for found in store.backlogs(0)] == [now_ms - 89 * DAY_MS, now_ms]
