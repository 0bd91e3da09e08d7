"""Row 39: a process that is killed at any step leaves nothing that a sweep does not find, and loses nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.system.recovery.scene import ROWS, Scene

NEW_ROWS = [(100, "p0"), (101, "p1")]
CHANGED_ROWS = [(0, "p1"), (100, "p0")]
KEY = ("--idempotency-key", "event-1")
BEFORE_THE_COMMIT = (
    "while-the-ledger-is-written",
    "after-ledger",
    "before-publish",
    "after-one-publish",
    "after-manifests",
    "after-manifest-list",
    "after-metadata",
)
COMPACT_ONLY = ("after-rewrite", "after-verification")
AFTER_THE_COMMIT = ("after-commit", "while-the-ledger-is-closed", "before-reply")
LEAVES_NOTHING = ("while-the-ledger-is-written", "after-ledger")
"""Points where no file can be left behind but the ledger's own."""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def check(
    scene: Scene,
    command: Sequence[str],
    point: str,
    *,
    landed: bool,
    after: Sequence[tuple[int, str]],
    leaves: bool = False,
) -> None:
    """Kill, look, sweep at once and an hour later, and send the same event again. `leaves`: files for the sweep, though
    it has landed."""
    before = scene.snapshots()
    scene.killed(*command, *KEY, point=point)
    made = scene.snapshots()[len(before) :]
    assert len(made) == landed
    if landed:
        scene.expected = sorted(after)
    scene.assert_whole()
    left = scene.left_behind()
    early = scene.sweep()
    assert (scene.left_behind(), early["files_deleted"]) == (left, 0)
    assert all(run["reason"] == "RUN_MAY_BE_ALIVE" for table in early["tables"] for run in table["runs"])
    scene.an_hour_later()
    answer = scene.sweep()
    scene.assert_clean()
    files = [path for path in left if "ledger" not in path.parts]
    assert answer["files_deleted"] == len(files)
    assert bool(files) == (leaves or (not landed and point not in LEAVES_NOTHING))
    again(scene, command, made, after)


def again(scene: Scene, command: Sequence[str], made: Sequence[int], after: Sequence[tuple[int, str]]) -> None:
    """The same event answers with the first result, or lands now; then a COMPACT succeeds, and leaves nothing."""
    told = scene.again(*command, *KEY)
    scene.expected = sorted(after)
    scene.assert_clean()
    if made:
        assert told["snapshot_id"] == made[0]
        assert told.get("already_done", told.get("status") == "ALREADY_DONE")
    assert told["snapshot_id"] in scene.snapshots()
    compacted = scene.stack.ok("COMPACT", "t", force=True)
    assert compacted["status"] in ("COMPLETED", "NOTHING_TO_DO")
    scene.assert_clean()


@pytest.mark.parametrize("point", [*BEFORE_THE_COMMIT, *COMPACT_ONLY])
def test_row_39_a_compaction_killed_before_its_commit(scene: Scene, point: str) -> None:
    check(scene, scene.command(None), point, landed=False, after=ROWS)


@pytest.mark.parametrize("point", AFTER_THE_COMMIT)
def test_row_39_a_compaction_killed_after_its_commit(scene: Scene, point: str) -> None:
    check(scene, scene.command(None), point, landed=True, after=ROWS)


@pytest.mark.parametrize("point", ["mid-write", "after-one-publish", "after-manifest-list", "after-metadata"])
def test_row_39_a_write_killed_before_its_commit(scene: Scene, point: str) -> None:
    check(scene, scene.command(NEW_ROWS), point, landed=False, after=[*ROWS, *NEW_ROWS])


@pytest.mark.parametrize("point", ["after-commit", "before-reply"])
def test_row_39_a_write_killed_after_its_commit(scene: Scene, point: str) -> None:
    check(scene, scene.command(NEW_ROWS), point, landed=True, after=[*ROWS, *NEW_ROWS])


@pytest.mark.parametrize(("point", "landed"), [("after-carried-rows", False), ("after-commit", True)])
def test_row_39_an_upsert_killed_with_its_carried_rows_written(scene: Scene, point: str, landed: bool) -> None:
    kept = [row for row in ROWS if row[0] != 0]
    command = scene.command(CHANGED_ROWS, "--mode", "upsert", "--key", "id")
    after = [*kept, *CHANGED_ROWS]  # the file of its own rows, which it merged, is no part of the table
    check(scene, command, point, landed=landed, after=after, leaves=True)


@pytest.mark.parametrize("grace", ["0", "24"])
@pytest.mark.parametrize("point", ["after-metadata", "after-commit", "during-deletion", "before-reply"])
def test_row_39_an_expiry_killed_at_any_step_is_finished_by_a_sweep(scene: Scene, point: str, grace: str) -> None:
    """Ten hours later the snapshots before a compaction expire, and with them its inputs."""
    scene.again(*scene.command(None, "--no-expire"))
    before = scene.snapshots()
    command = ("expire", "default.t", "--retention-hours", "2", "--grace-hours", grace, "--json")
    if (point, grace) == ("during-deletion", "24"):  # nothing is deleted yet: the second phase is the next expiry's
        scene.killed(*command, point="before-reply", hours_later=10)
        scene.a_day_later()
    scene.killed(*command, point=point, hours_later=10)
    assert (scene.snapshots() == before) == (point == "after-metadata")
    scene.assert_whole()
    scene.a_day_later()
    scene.sweep()
    scene.assert_clean()
    assert len(scene.snapshots()) == (len(before) if point == "after-metadata" else 1)


def test_row_39_a_sweep_killed_while_it_deletes_is_finished_by_the_next(scene: Scene) -> None:
    scene.killed(*scene.command(None), point="after-verification")
    left = [path for path in scene.left_behind() if "ledger" not in path.parts]
    assert len(left) == 2
    scene.an_hour_later()
    scene.killed("sweep", "--json", point="during-deletion")
    assert len([path for path in scene.left_behind() if "ledger" not in path.parts]) < 2
    scene.assert_whole()
    assert scene.ledger() != []
    scene.sweep()
    scene.assert_clean()


@pytest.mark.parametrize("point", ["after-one-publish", "after-rewrite"])
def test_row_39_ctrl_c_leaves_nothing_that_is_not_in_the_ledger(scene: Scene, point: str) -> None:
    process = scene.child(*scene.command(None), point=point, blow="SIGINT")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, (output, errors)
    assert "interrupted" in errors
    scene.assert_whole()
    scene.an_hour_later()
    scene.sweep()
    scene.assert_clean()
    assert scene.stack.ok("COMPACT", "t", force=True)["status"] == "COMPLETED"
    scene.assert_clean()


def test_a_child_that_does_not_come_to_its_point_answers(scene: Scene) -> None:
    """The scene itself: a point changes nothing before it strikes."""
    process = scene.child(*scene.command(None), point="during-deletion")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert json.loads(output)["status"] == "COMPLETED"
    scene.assert_clean()
