"""Spark jobs as processes, with a spark-submit that is a script: how they stand, whoever asks, whatever kills them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from regelate.adapters.spark.local import LocalSpark
from regelate.core.jobs.spark_job import SparkJobSpec, SparkState
from regelate.errors import Unavailable

SPEC = SparkJobSpec(
    name="job-1-100", job_id="job-1", created_ms=100, table="local.db.t", request="{}", timeout_seconds=60.0,
    conf={"spark.master": "local[2]", "spark.sql.catalog.local.uri": "jdbc:sqlite:/a b/c.db?busy_timeout=1"},
)  # fmt: skip
ENDS = 'while [ "$1" != --result ]; do shift; done; printf \'{"success": true}\' > "$2"'
WAITS = "echo begun > begun; exec sleep 600"


def until(seen: Callable[[], bool]) -> None:
    for _ in range(500):
        if seen():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")


class Machine:
    """A folder for jobs and a spark-submit of our own; `spark` is a process's view of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs = folder / "jobs"
        (folder / "home" / "bin").mkdir(parents=True)

    def submits(self, script: str) -> None:
        program = self.folder / "home" / "bin" / "spark-submit"
        program.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/calls\n{script}\n')
        program.chmod(0o755)

    def spark(self, kept_seconds: float = 3600.0) -> LocalSpark:
        def pack(home: Path) -> tuple[Path, ...]:
            return home / "regelate.zip", home / "compact_table.py", home / "pipeline.py"

        return LocalSpark(
            self.jobs,
            spark_home=self.folder / "home",
            environ={"PATH": os.environ["PATH"]},
            pack=pack,
            kept_seconds=kept_seconds,
        )

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def pid(self) -> int:
        return int((self.jobs / SPEC.name / "pid").read_text())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_job_is_started_with_its_arguments_and_answers_by_its_result(machine: Machine) -> None:
    machine.submits(ENDS)
    spark = machine.spark()
    assert spark.start(SPEC) == SPEC.name
    until(lambda: spark.look(SPEC.name).is_over)
    assert spark.look(SPEC.name).answer == {"success": True}
    assert spark.job_of(SPEC.name) == "job-1"
    (call,) = machine.calls
    home = machine.jobs / SPEC.name
    assert call == (
        f"--properties-file {home}/spark.conf --py-files {home}/regelate.zip {home}/pipeline.py compact "
        f"--table local.db.t --request {{}} --quiet --result {home}/result.json"
    )


def test_the_configuration_is_in_a_file_that_only_its_owner_reads(machine: Machine) -> None:
    machine.submits(ENDS)
    machine.spark().start(SPEC)
    conf = machine.jobs / SPEC.name / "spark.conf"
    assert conf.stat().st_mode & 0o777 == 0o600
    assert conf.read_text().splitlines() == [
        "spark.master=local[2]",
        "spark.sql.catalog.local.uri=jdbc\\:sqlite\\:/a\\ b/c.db?busy_timeout\\=1",
    ]


def test_the_same_name_starts_once_whoever_asks_and_however_often(machine: Machine) -> None:
    machine.submits(WAITS)
    first, second = machine.spark(), machine.spark()
    first.start(SPEC)
    until((machine.jobs / SPEC.name / "begun").exists)
    assert second.start(SPEC) == first.start(SPEC) == SPEC.name
    assert second.look(SPEC.name).state is SparkState.RUNNING
    second.cancel(SPEC.name)
    until(lambda: second.look(SPEC.name).state is SparkState.CANCELLED)
    second.start(SPEC)
    assert len(machine.calls) == 1


def test_a_killed_job_has_ended_without_an_answer_and_another_process_sees_it_too(machine: Machine) -> None:
    machine.submits(WAITS)
    spark = machine.spark()
    spark.start(SPEC)
    until((machine.jobs / SPEC.name / "begun").exists)
    assert spark.look(SPEC.name).state is SparkState.RUNNING
    os.killpg(machine.pid(), signal.SIGKILL)
    until(lambda: spark.look(SPEC.name).is_over)
    found = machine.spark().look(SPEC.name)
    assert (found.state, found.answer, found.detail) == (SparkState.ENDED, None, "its process was ended from outside")


def test_a_job_that_its_own_process_saw_killed_says_by_which_signal(machine: Machine) -> None:
    machine.submits("kill -9 $$")
    spark = machine.spark()
    spark.start(SPEC)
    until(lambda: spark._children[SPEC.name].poll() is not None)
    assert spark.look(SPEC.name).detail == "its process was ended by SIGKILL"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("echo INFO all is well; echo 'error: NO_TABLE: gone'; echo 26 INFO stopped", "error: NO_TABLE: gone"),
        ("echo java.lang.OutOfMemoryException: heap; echo INFO bye", "java.lang.OutOfMemoryException: heap"),
        ("echo INFO nothing; exit 3", "it ended with exit code 3"),
    ],
)  # fmt: skip
def test_a_job_without_a_result_is_told_by_what_it_said_last(machine: Machine, said: str, told: str) -> None:
    machine.submits(f"{said}; exit 3")
    spark = machine.spark()
    spark.start(SPEC)
    until(lambda: spark._children[SPEC.name].poll() is not None)
    assert spark.look(SPEC.name).detail == told


def test_a_job_that_does_not_heed_its_first_cancellation_is_killed_by_the_second(machine: Machine) -> None:
    machine.submits("trap '' TERM; echo begun > begun; while :; do sleep 0.05; done")
    spark = machine.spark()
    spark.start(SPEC)
    until((machine.jobs / SPEC.name / "begun").exists)
    spark.cancel(SPEC.name)
    assert spark.look(SPEC.name).state is SparkState.RUNNING
    spark.cancel(SPEC.name)
    until(lambda: spark.look(SPEC.name).state is SparkState.CANCELLED)


def test_a_job_that_ended_before_its_cancellation_keeps_its_answer(machine: Machine) -> None:
    machine.submits(ENDS)
    spark = machine.spark()
    spark.start(SPEC)
    until(lambda: spark.look(SPEC.name).is_over)
    spark.cancel(SPEC.name)
    assert spark.look(SPEC.name).answer == {"success": True}


def test_a_run_that_this_machine_does_not_know_has_ended(machine: Machine) -> None:
    found = machine.spark().look("job-9-1")
    assert (found.state, found.answer) == (SparkState.ENDED, None)
    machine.spark().cancel("job-9-1")
    assert not (machine.jobs / "job-9-1").exists()


def test_a_folder_that_cannot_be_read_just_now_says_nothing_about_its_run(machine: Machine) -> None:
    (machine.jobs / SPEC.name / "lock").mkdir(parents=True)
    with pytest.raises(Unavailable, match="cannot be read") as refused:
        machine.spark().look(SPEC.name)
    assert refused.value.retryable


def test_a_result_that_is_no_json_is_none_and_said(machine: Machine) -> None:
    (machine.jobs / SPEC.name).mkdir(parents=True)
    (machine.jobs / SPEC.name / "result.json").write_text('{"success": tr')
    found = machine.spark().look(SPEC.name)
    assert (found.state, found.answer, found.detail) == (SparkState.ENDED, None, "its result is not a JSON object")


def test_a_machine_without_spark_submit_says_so(machine: Machine) -> None:
    with pytest.raises(Unavailable, match="spark-submit could not be started"):
        machine.spark().start(SPEC)


def test_old_jobs_are_cleared_away_and_running_ones_never(machine: Machine) -> None:
    machine.submits(WAITS)
    spark = machine.spark()
    spark.start(SPEC)
    old = machine.jobs / "job-0-1"
    old.mkdir()
    (old / "result.json").write_text(json.dumps({}))
    for home in (old, machine.jobs / SPEC.name):
        os.utime(home, (1, 1))
    spark._prune()
    assert [home.name for home in machine.jobs.iterdir()] == [SPEC.name]
    until((machine.jobs / SPEC.name / "begun").exists)
    os.killpg(machine.pid(), signal.SIGKILL)
