"""When a table is looked at and worked on again, by its own rate; and what takes it out of the fleet's hands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.fleet.breakers import too_much_metadata, tripped
from regelate.core.fleet.cadence import (
    LEAST_MS,
    MOST_MS,
    Cadence,
    cadence_of,
    cooling,
    enough,
    interval_ms,
    next_look_ms,
)
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, PauseKind
from regelate.core.fleet.policy import FleetPolicy
from regelate.core.fleet.propose import propose
from regelate.core.fleet.state import FleetState, TableState
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from tests.unit.core.fleet_values import MB, NOW_MS, ended, ill, live_run, observed, table

GB = 2**30
MINUTE_MS = 60_000


def after_run(state: TableState, ago_ms: int, outcome: FleetOutcome = FleetOutcome.DONE, **told: object) -> TableState:
    """The table after a run that ended so long ago, and was looked at since."""
    run = live_run("run", **{"queued_ms": NOW_MS - ago_ms, **told})
    return state.queued(run).settled(ended(run, outcome, ended_ms=NOW_MS - ago_ms))


@pytest.mark.parametrize(
    ("per_hour", "cadence"),
    [
        (60.0, Cadence.STREAMING),
        (6.0, Cadence.STREAMING),
        (5.9, Cadence.BATCH),
        (1 / 24, Cadence.BATCH),
        (1 / 25, Cadence.SLOW),
        (1 / 720, Cadence.SLOW),
        (1 / 721, Cadence.DORMANT),
        (0.0, Cadence.DORMANT),
    ],
)
def test_a_cadence_is_a_class_of_commits_per_hour(per_hour: float, cadence: Cadence) -> None:
    assert cadence_of(per_hour) is cadence


@given(st.floats(0, 1e6), st.integers(0, 10**6), st.integers(0, 200))
def test_the_next_look_is_ten_minutes_to_thirty_days_away(per_hour: float, files: int, idle: int) -> None:
    state = table(ill("t", files, files_per_hour=per_hour, commits_per_hour=0.0), without_effect=idle)
    assert LEAST_MS <= next_look_ms(state) - NOW_MS <= MOST_MS


def test_a_table_is_looked_at_when_enough_has_gathered_at_its_own_rate() -> None:
    def hours(per_hour: float, **seen: int) -> float:
        seen_as = observed(files_per_hour=per_hour, commits_per_hour=per_hour / 2, **seen)
        return interval_ms(table(seen_as)) / HOUR_MS

    assert hours(1.0) == pytest.approx(10)
    assert hours(10.0) == pytest.approx(1)
    assert hours(10.0, files=500, files_after=500) == pytest.approx(5)
    assert hours(10.0, files=50_000, files_after=50_000) == pytest.approx(10)
    assert next_look_ms(replace(table(observed()), observation=None)) == 0


def test_where_few_files_become_one_a_run_waits_for_more_but_a_day_at_most() -> None:
    thin = ill(files=300, files_after=100, files_per_hour=100.0)
    assert enough(thin) == 800.0
    assert interval_ms(table(thin)) == pytest.approx(8 * HOUR_MS)
    slow = ill(files=300, files_after=100, files_per_hour=20.0)
    assert interval_ms(table(slow)) == DAY_MS


def test_five_runs_without_effect_halve_the_frequency() -> None:
    seen = observed(files_per_hour=1.0)
    assert [interval_ms(table(seen, without_effect=n)) / interval_ms(table(seen)) for n in (4, 5, 9, 10)] == [
        1,
        2,
        2,
        4,
    ]


def test_a_table_rests_ten_minutes_after_any_run() -> None:
    lots = table(ill(files=4000))
    rest = cooling(after_run(lots, MINUTE_MS), FleetOperation.EXPIRE, 1e6, NOW_MS)
    assert rest is not None
    assert rest.until_ms == NOW_MS + 9 * MINUTE_MS
    assert cooling(after_run(lots, 10 * MINUTE_MS), FleetOperation.EXPIRE, 1e6, NOW_MS) is None


def test_a_table_rests_until_somebody_has_looked_again() -> None:
    before = after_run(table(ill(observed_ms=NOW_MS - HOUR_MS)), HOUR_MS // 2)
    rest = cooling(before, FleetOperation.COMPACT, 1e6, NOW_MS)
    assert rest is not None
    assert "looked at" in rest.reason


def test_a_table_rests_until_enough_has_gathered_or_the_time_for_it_has_passed() -> None:
    state = table(ill(files=20, files_after=1, files_per_hour=1.0, commits_per_hour=1.0))
    rest = cooling(after_run(state, HOUR_MS), FleetOperation.COMPACT, 9.0, NOW_MS)
    assert rest is not None
    assert rest.until_ms == NOW_MS + 9 * HOUR_MS
    assert "9 files' worth have gathered of the 10" in rest.reason
    assert cooling(after_run(state, HOUR_MS), FleetOperation.COMPACT, 10.0, NOW_MS) is None
    assert cooling(after_run(state, 10 * HOUR_MS), FleetOperation.COMPACT, 9.0, NOW_MS) is None
    assert cooling(after_run(state, HOUR_MS), FleetOperation.APPLY_DELETES, 9.0, NOW_MS) is None


@pytest.mark.parametrize("outcome", [FleetOutcome.PARTIAL, FleetOutcome.CANCELLED])
def test_what_a_run_left_undone_waits_for_nothing(outcome: FleetOutcome) -> None:
    assert cooling(after_run(table(ill()), HOUR_MS, outcome), FleetOperation.COMPACT, 1.0, NOW_MS) is None


def test_metadata_is_cleaned_once_a_week_or_when_much_has_gathered() -> None:
    state = after_run(table(ill()), 2 * DAY_MS, operation=FleetOperation.EXPIRE)
    assert cooling(state, FleetOperation.EXPIRE, 99.0, NOW_MS) is not None
    assert cooling(state, FleetOperation.EXPIRE, 100.0, NOW_MS) is None


def in_a_row(*heads: tuple[int, int], operation: FleetOperation = FleetOperation.COMPACT) -> TableState:
    state = table(ill())
    for number, (before, after) in enumerate(heads):
        run = live_run(f"run-{number}", operation=operation)
        when = NOW_MS - (len(heads) - number) * HOUR_MS
        state = state.queued(run).settled(ended(run, ended_ms=when, snapshot_before=before, snapshot_after=after))
    return state


def test_three_rewrites_of_what_the_one_before_left_are_a_loop() -> None:
    pause = tripped(in_a_row((1, 2), (2, 3), (3, 4)), NOW_MS)
    assert pause is not None
    assert (pause.kind, pause.until_ms) == (PauseKind.LOOP, NOW_MS - HOUR_MS + DAY_MS)
    assert tripped(in_a_row((1, 2), (2, 3), (3, 4)), NOW_MS + DAY_MS) is None
    assert tripped(in_a_row((1, 2), (5, 6), (6, 7)), NOW_MS) is None
    assert tripped(in_a_row((1, 2), (2, 3), (3, 4), operation=FleetOperation.EXPIRE), NOW_MS) is None


def test_ten_runs_without_effect_pause_for_a_week() -> None:
    state = table(ill())
    for number in range(10):
        assert tripped(state, NOW_MS) is None
        run = live_run(f"run-{number}")
        state = state.queued(run).settled(ended(run, FleetOutcome.NO_EFFECT))
    pause = tripped(state, NOW_MS)
    assert pause is not None
    assert (pause.kind, pause.until_ms) == (PauseKind.NO_EFFECT, NOW_MS + 7 * DAY_MS)


def test_what_is_rewritten_in_a_day_has_an_end_until_midnight() -> None:
    state = after_run(table(ill(size_bytes=3 * GB)), HOUR_MS, predicted_bytes=13 * GB)
    pause = tripped(state, NOW_MS)
    assert pause is not None
    assert (pause.kind, pause.until_ms) == (PauseKind.DAILY_BYTES, NOW_MS + 12 * HOUR_MS)
    assert "13.0 GB were rewritten today, more than the 12.0 GB" in pause.reason
    assert tripped(after_run(table(ill(size_bytes=4 * GB)), HOUR_MS, predicted_bytes=13 * GB), NOW_MS) is None


def test_metadata_above_half_of_the_data_pauses_rewrites_and_lets_expiry_go_on() -> None:
    seen = ill(files=40, metadata_bytes=70 * MB, snapshots=70_000, expirable_snapshots=69_990)
    pause = too_much_metadata(table(seen), NOW_MS)
    assert pause is not None
    assert pause.kind is PauseKind.METADATA
    assert too_much_metadata(table(ill(files=400, metadata_bytes=70 * MB)), NOW_MS) is None
    assert too_much_metadata(table(ill(files=1, metadata_bytes=MB)), NOW_MS) is None
    proposals = propose(FleetState(tables=(table(seen),)), FleetPolicy(), NOW_MS)
    assert [p.operation for p in proposals.proposed] == [FleetOperation.EXPIRE]
    rest = propose(FleetState(tables=(table(ill(files=40, metadata_bytes=70 * MB)),)), FleetPolicy(), NOW_MS)
    assert rest.verdicts[0].sentence.startswith("Paused: metadata.json has 70 MB")
