"""What readers report of a table is a rate that fades, and decides what a rewrite of it is worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.fleet.candidates import Pace, candidates_of, usual_reads
from regelate.core.fleet.operation import FleetOperation
from regelate.core.fleet.policy import FleetPolicy
from regelate.core.fleet.propose import propose
from regelate.core.fleet.reads import Reads
from regelate.core.fleet.state import FleetState, TableState
from regelate.core.fleet.state_json import state_json, state_of_json
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from tests.unit.core.fleet_values import NOW_MS, ill, observed, table


def compact_of(state: TableState, usual: float | None = None) -> object:
    return next(c for c in candidates_of(state, Pace(), usual=usual) if c.operation is FleetOperation.COMPACT)


@pytest.mark.parametrize("days", [1, 7, 60])
def test_a_steady_reader_has_his_own_rate_however_long_he_reads(days: int) -> None:
    found = Reads(since_ms=0, at_ms=0)
    for hour in range(1, 24 * days + 1):
        found = found.plus(2, 20, hour * HOUR_MS)
    assert found.per_day(24 * days * HOUR_MS) == pytest.approx(48, rel=0.07)
    assert found.files_per_read == pytest.approx(10)


def test_a_reader_who_went_away_is_forgotten_by_and_by() -> None:
    found = Reads(since_ms=0, at_ms=0).plus(700, 700, 7 * DAY_MS)
    rates = [found.per_day((7 + days) * DAY_MS) for days in (0, 7, 30)]
    assert rates == sorted(rates, reverse=True)
    assert rates[2] < rates[0] / 20


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 1000), st.integers(0, 10**9)), max_size=8))
def test_no_clock_makes_a_rate_that_is_none(reports: list[tuple[int, int, int]]) -> None:
    found = Reads(since_ms=10**12, at_ms=10**12)
    for when, count, files in reports:
        found = found.plus(count, files, when)
    assert 0 <= found.per_day(0) <= sum(count for _, count, _ in reports) + 1


def test_reads_survive_the_next_look_and_the_way_to_the_store() -> None:
    state = table(ill("t")).read(5, 500, NOW_MS)
    again = state_of_json(state_json(state)).observed(ill("t", files=200, observed_ms=NOW_MS + HOUR_MS))
    seen = again.observation
    assert seen is not None
    assert (seen.files, seen.files_per_read) == (200, 100.0)
    assert seen.reads_per_day == pytest.approx(5, rel=0.05)


def test_a_state_of_before_reads_were_counted_is_read() -> None:
    kept = state_json(table(ill("t")))
    del kept["reads"]
    assert state_of_json(kept) == table(ill("t"))


def test_what_readers_save_is_reads_times_files_no_longer_opened_times_the_price_of_opening_one() -> None:
    (once, often) = (compact_of(table(ill("t")).read(reads, reads * 400, NOW_MS)) for reads in (1, 50))
    assert often.benefit_per_day == pytest.approx(50 * once.benefit_per_day)  # type: ignore[attr-defined]
    half = compact_of(table(ill("t")).read(50, 50 * 200, NOW_MS))
    assert half.benefit_per_day == pytest.approx(often.benefit_per_day / 2)  # type: ignore[attr-defined]
    assert compact_of(table(ill("t"))).benefit_per_day is None  # type: ignore[attr-defined]


def test_a_table_that_is_read_often_goes_before_a_worse_one_that_is_not_and_the_sentence_says_why() -> None:
    worse, read = table(ill("worse", files=500)), table(ill("read", files=400))
    fleet = FleetState(tables=(worse, read))
    assert [p.candidate.ident for p in propose(fleet, FleetPolicy(), NOW_MS).proposed] == ["db.worse", "db.read"]
    fleet = FleetState(tables=(worse.read(1, 500, NOW_MS), read.read(900, 900 * 400, NOW_MS)))
    first, second = propose(fleet, FleetPolicy(), NOW_MS).proposed
    assert (first.candidate.ident, second.candidate.ident) == ("db.read", "db.worse")
    assert "it is read 900.0 times a day, which would save readers $" in first.reason


def test_that_nobody_reports_reads_is_said() -> None:
    (run,) = propose(FleetState(tables=(table(ill("t")),)), FleetPolicy(), NOW_MS).proposed
    assert run.reason.endswith("how often it is read nobody reports")
    assert usual_reads([table(observed("t"))]) is None
