"""The memory of a fleet, on a real file: what is changed at once, kept, and shared by threads and processes."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from regelate.adapters.fleetstore.sqlite import SqliteFleet
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetTrigger
from regelate.core.fleet.state import FleetRun, TableState
from regelate.errors import Conflict, Unavailable

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


def add(store: SqliteFleet, uuid: str = "u1", catalog: str = "local") -> TableState:
    return store.change(uuid, lambda state: known(state, uuid, catalog))


def ended(run: FleetRun, outcome: FleetOutcome = FleetOutcome.DONE) -> FleetRun:
    return replace(run, started_ms=1_001, ended_ms=2_000, outcome=outcome, actual_seconds=1.5, actual_dollars=0.01)


@pytest.fixture
def store(tmp_path: Path) -> SqliteFleet:
    return SqliteFleet(tmp_path / "not there yet" / "fleet.db")


def test_a_state_comes_back_as_it_was_given_to_another_process_too(store: SqliteFleet, tmp_path: Path) -> None:
    made = add(store)
    queued = store.change("u1", lambda state: known(state).queued(RUN))
    assert queued == made.queued(RUN)
    assert SqliteFleet(tmp_path / "not there yet" / "fleet.db").states() == (queued,)


def test_the_history_of_a_catalog_is_of_its_tables_alone(store: SqliteFleet) -> None:
    for uuid, catalog in (("u1", "local"), ("u2", "glue")):
        add(store, uuid, catalog)
        run = replace(RUN, run_id=f"of {uuid}")
        store.change(uuid, lambda state, run=run: known(state).queued(run))  # type: ignore[misc]
        store.change(uuid, lambda state, run=run: known(state).settled(ended(run)))  # type: ignore[misc]
    assert [(uuid, run.run_id) for uuid, run in store.history("glue", None, 10)] == [("u2", "of u2")]
    assert [state.table_uuid for state in store.states()] == ["u1", "u2"]


def test_a_run_that_ended_is_in_the_history_once_and_stays_when_the_table_is_forgotten(store: SqliteFleet) -> None:
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


def test_a_change_that_is_refused_leaves_everything_as_it_was(store: SqliteFleet) -> None:
    add(store)
    before = store.change("u1", lambda state: known(state).queued(RUN))
    with pytest.raises(Conflict, match="one at a time"):
        store.change("u1", lambda state: known(state).queued(replace(RUN, run_id="r2")))
    assert store.states() == (before,)


def test_of_two_that_queue_a_run_at_the_same_time_one_is_refused(store: SqliteFleet) -> None:
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


def test_a_plan_is_kept_for_a_week_and_no_longer(store: SqliteFleet, tmp_path: Path) -> None:
    store.remember("p1", "[]")
    assert (store.recall("p1"), store.recall("p2")) == ("[]", None)
    with sqlite3.connect(tmp_path / "not there yet" / "fleet.db") as db:
        db.execute("UPDATE plans SET made_ms = made_ms - 7 * 24 * 3600 * 1000 - 1")
    assert store.recall("p1") is None


def test_a_file_that_is_no_database_is_named_and_may_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "fleet.db").write_text("not a database, " * 100)
    with pytest.raises(Unavailable, match=r"fleet\.db") as caught:
        SqliteFleet(tmp_path / "fleet.db").states()
    assert caught.value.code == "FLEET_UNAVAILABLE"
