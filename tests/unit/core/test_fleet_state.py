"""What a fleet remembers of a table: one live run, its bill by the day, its backoff, and the way to JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.fleet.observation import OverwriteRate, TableObservation, metrics, other_manager
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetTrigger, PauseKind
from regelate.core.fleet.state import KEPT_RUNS, FleetRun, FleetState, Pause, Spent, TableState, month_of
from regelate.core.fleet.state_json import observation_json, observation_of_json, state_json, state_of_json
from regelate.core.planning.health import PointsLost
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from regelate.errors import Conflict
from tests.unit.core.fleet_values import NOW_MS, ended, ill, live_run, observed, table

TEXT = st.text(max_size=8)
COUNT = st.integers(0, 2**62)
DOLLARS = st.floats(0, 1e6)
MAYBE_COUNT = st.none() | COUNT
OBSERVATIONS = st.builds(
    lambda files, candidates, **seen: TableObservation(
        table_uuid="u", files=files, candidate_files=min(files, candidates), **seen
    ),
    files=COUNT,
    candidates=COUNT,
    catalog=TEXT,
    ident=TEXT,
    tenant=TEXT,
    observed_ms=COUNT,
    metadata_location=TEXT,
    snapshot_id=MAYBE_COUNT,
    row_groups=MAYBE_COUNT,
    orphan_files=MAYBE_COUNT,
    commit_kinds=st.lists(st.tuples(TEXT, COUNT), max_size=3).map(tuple),
    overwrites=st.lists(st.builds(OverwriteRate, age_hours=DOLLARS, probability=st.floats(0, 1)), max_size=2).map(
        tuple
    ),
    reads_per_day=st.none() | DOLLARS,
    managed_by=st.none() | TEXT,
    lost=st.builds(PointsLost, files=st.floats(0, 60), deletes=st.floats(0, 25)),
)
LIVE_RUNS = st.builds(
    FleetRun,
    run_id=TEXT,
    operation=st.sampled_from(FleetOperation),
    trigger=st.sampled_from(FleetTrigger),
    asked_by=TEXT,
    reason=TEXT,
    queued_ms=COUNT,
    predicted_dollars=DOLLARS,
    max_dollars=DOLLARS,
)
ENDED_RUNS = st.builds(
    lambda run, outcome, when: replace(run, outcome=outcome, ended_ms=when),
    LIVE_RUNS,
    st.sampled_from(FleetOutcome),
    COUNT,
)
STATES = st.builds(
    TableState,
    table_uuid=st.just("u"),
    catalog=TEXT,
    ident=TEXT,
    tenant=TEXT,
    observation=st.none() | OBSERVATIONS,
    runs=st.lists(ENDED_RUNS, max_size=3).map(tuple),
    live=st.none() | LIVE_RUNS,
    spent=st.builds(Spent, day=COUNT, day_dollars=DOLLARS, month=COUNT, month_dollars=DOLLARS),
    failures=st.integers(0, 9),
    not_before_ms=COUNT,
    pause=st.none()
    | st.builds(Pause, kind=st.sampled_from(PauseKind), reason=TEXT, since_ms=COUNT, until_ms=MAYBE_COUNT),
)


@given(STATES)
def test_a_state_comes_back_from_json_as_it_was(state: TableState) -> None:
    assert state_of_json(json.loads(json.dumps(state_json(state)))) == state


def test_fields_of_a_later_version_are_passed_over() -> None:
    state = table(ill(), live=live_run())
    told = state_json(state)
    told["later"] = told["live"]["later"] = told["observation"]["later"] = told["observation"]["lost"]["later"] = 1
    assert state_of_json(told) == state
    assert observation_of_json({**observation_json(ill()), "later": 1}) == ill()


def test_a_table_has_one_live_run_at_a_time() -> None:
    queued = table(ill()).queued(live_run())
    with pytest.raises(Conflict, match="run-1") as refused:
        queued.queued(live_run("run-2"))
    assert refused.value.code == "RUN_LIVE"
    assert queued.settled(ended(live_run())).queued(live_run("run-2")).live == live_run("run-2")


def test_a_run_is_settled_once_and_by_its_own_name() -> None:
    queued = table(ill()).queued(live_run())
    for state, run in [(queued, ended(live_run("run-2"))), (queued.settled(ended(live_run())), ended(live_run()))]:
        with pytest.raises(Conflict) as refused:
            state.settled(run)
        assert refused.value.code == "RUN_NOT_LIVE"


def test_a_second_beginning_keeps_the_time_of_the_first() -> None:
    running = table(ill()).queued(live_run()).started(NOW_MS, "job-1").started(NOW_MS + 5)
    assert running.live is not None
    assert (running.live.started_ms, running.live.job_id) == (NOW_MS, "job-1")


def test_one_failure_rests_a_table_for_an_hour_and_three_for_six() -> None:
    state, rests = table(ill()), []
    for number in range(4):
        run = live_run(f"run-{number}")
        state = state.queued(run).settled(ended(run, FleetOutcome.FAILED, error="no disk"))
        rests.append((state.not_before_ms - NOW_MS) // HOUR_MS)
    assert rests == [1, 1, 6, 6]
    again = state.queued(live_run()).settled(ended(live_run()))
    assert (again.failures, again.without_effect) == (0, 0)


def test_runs_without_effect_are_counted_until_one_has_some() -> None:
    state = table(ill())
    for outcome in (FleetOutcome.NO_EFFECT, FleetOutcome.FAILED, FleetOutcome.NO_EFFECT):
        state = state.queued(live_run()).settled(ended(live_run(), outcome))
    assert state.without_effect == 2
    assert state.queued(live_run()).settled(ended(live_run())).without_effect == 0


def test_the_bill_is_by_the_day_and_the_month() -> None:
    last_of_month = int(datetime(2026, 11, 30, 23, 50, tzinfo=UTC).timestamp() * 1000)
    state = table(ill())
    for when in (last_of_month - DAY_MS, last_of_month, last_of_month):
        run = live_run(queued_ms=when)
        state = state.queued(run).settled(ended(run, ended_ms=when))
    spent = state.spent
    assert (spent.day_runs, spent.day_dollars, spent.month_dollars) == (2, pytest.approx(0.002), pytest.approx(0.003))
    later = spent.on(last_of_month + HOUR_MS)
    assert (later.day_dollars, later.month_dollars, later.day_bytes) == (0.0, 0.0, 0)
    assert month_of(last_of_month + HOUR_MS) == month_of(last_of_month) + 1


def test_what_is_set_aside_counts_until_the_bill_is_known() -> None:
    run = live_run(predicted_dollars=1.0, max_dollars=1.5, predicted_gb_seconds=100.0)
    assert (run.dollars, run.gb_seconds) == (1.5, 150.0)
    settled = ended(run, actual_dollars=0.9, actual_gb_seconds=90.0)
    assert (settled.dollars, settled.gb_seconds) == (0.9, 90.0)


def test_a_table_remembers_its_latest_runs() -> None:
    state = table(ill())
    for number in range(KEPT_RUNS + 3):
        run = live_run(f"run-{number}")
        state = state.queued(run).settled(ended(run))
    assert [run.run_id for run in state.runs] == [f"run-{number}" for number in range(3, KEPT_RUNS + 3)]


def test_an_older_look_changes_nothing_and_a_newer_one_renames() -> None:
    state = table(observed())
    assert state.observed(observed(observed_ms=NOW_MS - 1, ident="db.old")) is state
    assert state.observed(observed(observed_ms=NOW_MS + 1, ident="db.new")).ident == "db.new"


def test_a_pause_ends_by_its_time_or_by_somebody() -> None:
    until = Pause(kind=PauseKind.DAILY_BYTES, reason="enough", since_ms=NOW_MS, until_ms=NOW_MS + 1)
    assert until.holds(NOW_MS)
    assert not until.holds(NOW_MS + 1)
    asked = Pause(kind=PauseKind.ASKED, reason="by anna", since_ms=NOW_MS)
    assert asked.holds(NOW_MS + 1000 * DAY_MS)
    assert table(observed(), failures=3, not_before_ms=9).paused(asked).resumed() == table(observed())


def test_values_that_cannot_be_are_not_built() -> None:
    with pytest.raises(ValueError, match="candidates"):
        observed(files=1, candidate_files=2)
    with pytest.raises(ValueError, match="below zero"):
        observed(files=-1)
    with pytest.raises(ValueError, match="never ended"):
        live_run(outcome=FleetOutcome.DONE)
    with pytest.raises(ValueError, match="less than nothing"):
        live_run(predicted_dollars=-1.0)
    with pytest.raises(ValueError, match="has ended"):
        table(ill(), live=ended(live_run()))
    with pytest.raises(ValueError, match="cannot have"):
        replace(table(ill()), table_uuid="other")
    with pytest.raises(ValueError, match="twice"):
        FleetState(tables=(table(ill()), table(ill())))


def test_conditions_may_ask_for_these_numbers() -> None:
    asked = metrics(ill(files=400, small_files=100, lost=PointsLost(files=30.0)))
    assert (asked["small-file-ratio"], asked["health"], asked["files"]) == (0.25, 70.0, 400)
    assert metrics(observed(files=0, files_after=0))["small-file-ratio"] == 0.0
    assert set(asked) == {
        *("files", "small-files", "small-file-ratio", "candidate-files", "delete-files", "delete-rows", "bytes"),
        *("snapshots", "manifests", "metadata-bytes", "partitions", "commits-per-hour", "health"),
    }


@pytest.mark.parametrize(
    ("properties", "location", "manager"),
    [
        ({}, "s3://lake/db/t", None),
        ({}, "s3://96076612-1454--table-s3", "Amazon S3 Tables"),
        ({}, "s3://lake/x--table-s3/t", None),
        ({"self-optimizing.enabled": "TRUE"}, "s3://lake/t", "Amoro (self-optimizing.enabled)"),
        ({"self-optimizing.enabled": "false"}, "s3://lake/t", None),
        ({"snowflake.x": "1"}, "s3://lake/t", "Snowflake"),
        ({"delta-version": "12"}, "s3://lake/t", "Delta UniForm"),
        ({"delta.universalFormat.enabledFormats": "iceberg,hudi"}, "s3://lake/t", "Delta UniForm"),
    ],
)
def test_another_manager_is_seen_by_properties_and_location(
    properties: dict[str, str], location: str, manager: str | None
) -> None:
    assert other_manager(properties, location) == manager


def test_the_optimizers_of_glue_are_named() -> None:
    assert (
        other_manager({}, "s3://lake/t", optimizers=("retention", "compaction")) == "AWS Glue (compaction, retention)"
    )
