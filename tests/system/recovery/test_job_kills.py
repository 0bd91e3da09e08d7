"""Row 58: a worker that is killed while it runs a job is followed by one that finishes it, and nothing is left."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.system.faults.stack import request
from tests.system.recovery.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def lease_runs_out(scene: Scene) -> None:
    """Let the store's clock say that the dead worker has shown no sign of life for too long."""
    with sqlite3.connect(scene.folder / "jobs.db") as db:
        assert db.execute("UPDATE leases SET until_ms = 0 WHERE until_ms > 0").rowcount == 1


@pytest.mark.parametrize(
    ("point", "landed"), [("after-one-publish", False), ("after-manifest-list", False), ("after-commit", True)]
)
def test_row_58_a_worker_that_is_killed_is_followed_by_one_that_finishes_its_job(
    scene: Scene, point: str, landed: bool
) -> None:
    before = scene.snapshots()
    status, answer = scene.stack.post(request("COMPACT", "t", **{"async": True}))
    assert status == 202
    scene.killed("jobs", "run", "--json", point=point)
    scene.assert_whole()
    assert len(scene.snapshots()) - len(before) == landed
    told = scene.stack.ok("JOB_STATUS", job_id=answer["job_id"])
    assert (told["state"], told["attempts"]) == ("RUNNING", 1)
    assert scene.again("jobs", "run", "--json") == {"parts_run": 0}  # it may be alive: nobody takes its table
    lease_runs_out(scene)
    scene.again("jobs", "run", "--json")
    told = scene.stack.ok("JOB_STATUS", job_id=answer["job_id"])
    assert (told["state"], told["totals"]["files_compacted"]) == ("SUCCEEDED", 6)
    assert len(scene.snapshots()) - len(before) == len(told["totals"]["snapshot_ids"]) == 1
    scene.an_hour_later()
    scene.sweep()
    scene.assert_clean()
