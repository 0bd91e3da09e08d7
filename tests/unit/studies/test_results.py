"""What a study says of its arms: the figures of its tables, its promises, and where it puts them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from studies.small_files import reporting
from studies.small_files.arms import ARMS, PLAIN, SCHEDULE, Compaction
from studies.small_files.logbook import Logbook, Measured, Session, Workload
from studies.small_files.reporting import results_of
from studies.small_files.results import ArmResult, Clock, promises, result_of
from studies.small_files.statistics import Slope

WORKLOAD = Workload(rows=1000, tasks=16, seed=1, merge_on_read=False, engine="regelate")
MACHINE = {"cores": "2", "memory": "23 GB", "Spark": "3.5.9", "Iceberg": "1.10.1"}
BY_KEY = {arm.key: arm for arm in ARMS}
FLAT, GROWING = Slope(per_step=0.0, low=-0.001, high=0.001), Slope(per_step=0.002, low=0.001, high=0.003)


def one(iteration: int, arm: str = "auto", **given: float) -> Measured:
    numbers = {name: 1 for name in Measured.__dataclass_fields__ if name not in ("arm", "iteration")}
    return Measured(arm=arm, iteration=iteration, **{**numbers, **given})  # type: ignore[arg-type]


def result(key: str, *, minutes: float = 1.0, files: float = 1.0, slope: Slope | None = FLAT) -> ArmResult:
    made = result_of(BY_KEY[key], [one(1, key)])
    times = replace(made.times[Clock.WALL], minutes=minutes, merge_slope=slope, query_slope=slope)
    return replace(made, files_deviation=files, times=dict.fromkeys(Clock, times))


def verdicts(results: list[ArmResult]) -> list[bool]:
    return [promise.met for promise in promises(results)]


def test_the_keys_of_arms_are_names_of_tables_and_no_two_share_one_or_a_colour() -> None:
    assert len({arm.key for arm in ARMS}) == len({arm.colour for arm in ARMS}) == len(ARMS)
    assert all(arm.key.isidentifier() for arm in ARMS)


def test_no_two_arms_are_compacted_and_written_alike_into_tables_of_the_same_properties() -> None:
    assert len({(arm.compaction, arm.writer is PLAIN, *arm.properties.items()) for arm in ARMS}) == len(ARMS)
    assert BY_KEY["auto"].writer is BY_KEY["scheduled"].writer is BY_KEY["none"].writer
    assert BY_KEY["auto_optimized"].writer is BY_KEY["optimized"].writer


def test_a_schedule_compacts_every_twentieth_iteration_of_its_own_arm() -> None:
    assert [at for at in range(1, 61) if Compaction.SCHEDULED.is_scheduled(at)] == [20, 40, 60]
    assert not Compaction.AUTOMATIC.is_scheduled(SCHEDULE)
    assert not Compaction.NEVER.is_scheduled(SCHEDULE)


def test_the_total_is_all_that_was_waited_for() -> None:
    measured = [one(1, merge_seconds=60, compaction_seconds=30, query_seconds=15), one(2, merge_seconds=13)]
    found = result_of(BY_KEY["auto"], measured).times
    assert found[Clock.WALL].minutes == pytest.approx((60 + 30 + 15 + 13 + 1 + 1) / 60)
    assert found[Clock.PROCESSOR].minutes == pytest.approx(6 / 60)


def test_amplification_is_the_rows_written_for_each_row_that_came() -> None:
    measured = [one(1, rows_in=100, rows_written=100), one(2, rows_in=100, rows_written=500)]
    assert result_of(BY_KEY["auto"], measured).amplification == 3.0


def test_the_slopes_leave_the_first_quarter_out() -> None:
    measured = [one(at, merge_seconds=100 if at <= 50 else at * 0.01) for at in range(1, 201)]
    found = result_of(BY_KEY["auto"], measured).times[Clock.WALL].merge_slope
    assert found is not None
    assert found.per_step == pytest.approx(0.01)


def test_a_run_that_keeps_all_promises_meets_them() -> None:
    kept = [result("none", minutes=9, files=900), result("auto_optimized", minutes=3, files=15)]
    assert verdicts([*kept, result("scheduled", minutes=4), result("auto", minutes=4.08)]) == [True] * 9


@pytest.mark.parametrize(
    ("spoiled", "broken"),
    [
        (result("none", minutes=8.9, files=900), {0, 1}),
        (result("auto_optimized", minutes=3, files=15.1), {2}),
        (result("auto_optimized", minutes=3, files=15, slope=GROWING), {3, 4, 5, 6}),
        (result("auto", minutes=4.09), {7, 8}),
    ],
)
def test_each_promise_that_is_not_kept_is_told(spoiled: ArmResult, broken: set[int]) -> None:
    kept = {
        "none": result("none", minutes=9, files=900),
        "auto_optimized": result("auto_optimized", minutes=3, files=15),
        "scheduled": result("scheduled", minutes=4),
        "auto": result("auto", minutes=4.08),
    }
    found = verdicts(list({**kept, spoiled.arm.key: spoiled}.values()))
    assert {number for number, met in enumerate(found) if not met} == broken


def test_nothing_is_said_of_arms_that_did_not_run() -> None:
    assert promises([result("none"), result("optimized")]) == []


@pytest.fixture
def log(tmp_path: Path) -> Logbook:
    made = Logbook(tmp_path / "log.jsonl", WORKLOAD)
    made.begin(Session(began="2026-03-01T10:00:00+00:00", machine=MACHINE))
    for iteration in range(1, 5):
        for arm in ARMS:
            made.add(one(iteration, arm.key, data_files=iteration * 16, load=1.5))
    return made


def test_a_report_says_what_ran_where_and_that_it_was_not_the_whole(log: Logbook, tmp_path: Path) -> None:
    reporting.write(log, results_of(log, ARMS, 4), tmp_path / "report")
    text = (tmp_path / "report" / "study.md").read_text()
    for said in ("4 iterations of 1,000 rows", "2026-03-01", "cores 2", "Iceberg 1.10.1", "the whole study has 200"):
        assert said in text
    for arm in ARMS:
        assert f"## {arm.title}" in text


def test_a_report_of_fewer_iterations_leaves_the_later_ones_out(log: Logbook) -> None:
    assert [len(result.measured) for result in results_of(log, ARMS, 3)] == [3] * len(ARMS)


def test_every_picture_of_a_report_is_there_and_its_page_needs_no_other_file(log: Logbook, tmp_path: Path) -> None:
    reporting.write(log, results_of(log, ARMS, 4), tmp_path)
    shown = [
        line.partition("](")[2].rstrip(")")
        for line in (tmp_path / "study.md").read_text().splitlines()
        if line.startswith("![")
    ]
    assert len(shown) == 1 + len(ARMS)
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in shown)
    assert (tmp_path / "study.html").read_text().count("data:image/png") == len(shown)


def test_what_is_published_takes_the_place_of_the_figures_and_of_nothing_else(log: Logbook, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    page = tmp_path / "study.md"
    page.write_text(f"# Before\n\n{reporting.OPENING}\nearlier figures\n{reporting.CLOSING}\n\nAfter\n")
    reporting.publish(log, results_of(log, ARMS, 4), tmp_path)
    once = page.read_text()
    assert once.startswith("# Before\n")
    assert once.endswith(f"{reporting.CLOSING}\n\nAfter\n")
    assert "earlier figures" not in once
    assert "](images/study-auto-optimized.png)" in once
    reporting.publish(log, results_of(log, ARMS, 4), tmp_path)
    assert page.read_text() == once
