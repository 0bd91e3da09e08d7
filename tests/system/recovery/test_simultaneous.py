"""Rows 19 and 40: two processes run the same event at the same time, and it lands once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.system.recovery.scene import ROWS, Scene

KEY = ("--idempotency-key", "event-1")
NEW_ROWS = [(100, "p0"), (101, "p1")]
CHANGED_ROWS = [(0, "p1"), (100, "p0")]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def both(scene: Scene, command: Sequence[str]) -> list[dict[str, Any]]:
    """Run one command in two processes that wait for each other before either may commit."""
    processes = [scene.child(*command, *KEY, point=f"meets-{mine}-{other}") for mine, other in ("ab", "ba")]
    answers = []
    for process in processes:
        output, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors
        answers.append(json.loads(output))
    return answers


COMMANDS = {
    "append": (NEW_ROWS, (), [*ROWS, *NEW_ROWS]),
    "upsert": (CHANGED_ROWS, ("--mode", "upsert", "--key", "id"), [*(r for r in ROWS if r[0] != 0), *CHANGED_ROWS]),
    "compact": (None, ("--no-expire",), ROWS),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_row_40_two_processes_with_one_key_land_once_and_both_name_that_snapshot(scene: Scene, name: str) -> None:
    rows, flags, after = COMMANDS[name]
    before = scene.snapshots()
    answers = both(scene, scene.command(rows, *flags))
    made = scene.snapshots()[len(before) :]
    assert len(made) == 1
    assert [answer["snapshot_id"] for answer in answers] == [made[0], made[0]]
    done = [answer.get("already_done", answer.get("status") == "ALREADY_DONE") for answer in answers]
    assert sorted(done) == [False, True]
    scene.expected = sorted(after)
    scene.assert_clean()  # the one that came second deleted its own files, and both closed their ledgers


def test_row_40_two_processes_with_keys_of_their_own_land_twice(scene: Scene) -> None:
    """The same rows under two keys are two events."""
    before = scene.snapshots()
    for key in ("one", "two"):
        scene.again(*scene.command(NEW_ROWS), "--idempotency-key", key)
    assert len(scene.snapshots()) == len(before) + 2
    scene.expected = sorted([*ROWS, *NEW_ROWS, *NEW_ROWS])
    scene.assert_clean()
