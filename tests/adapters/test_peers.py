from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import process_tree
from benchmarks.peers import contest, pages
from benchmarks.peers.cases import CASES
from benchmarks.peers.contest import BY_HAND, FLOOR, OURS, PEERS, RUST, Peer, Turns

SPENDS_BY_A_CHILD = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"], check=True)
"""
ALONE = {name: "it is not asked" for name in PEERS if name not in (OURS, FLOOR)}


SMALL = replace(CASES["A"], small=(4, 300))


def test_the_processor_seconds_of_a_program_are_also_those_of_its_children(tmp_path: Path) -> None:
    done = process_tree.run([sys.executable, "-c", SPENDS_BY_A_CHILD], {}, tmp_path)
    assert done.returncode == 0, done.errors
    assert done.processor_seconds >= 0.4


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_compacted_by_ours_and_by_a_bare_copy_to_one_file_with_its_rows(name: str, tmp_path: Path) -> None:
    small = replace(CASES[name], small=SMALL.small)
    found = contest.measure(small, Turns(runs=1, on_spark=0), True, ALONE, tmp_path)
    assert set(found["runs"]) == {OURS, FLOOR}
    assert {runs[0]["output_files"] for runs in found["runs"].values()} == {1}
    assert {runs[0]["row_count"] for runs in found["runs"].values()} == {found["row_count"]}
    assert (found["delete_files"] > 0) == (name == "deletes")


@pytest.mark.slow
def test_a_peer_that_cannot_do_a_case_is_left_out_with_its_reason_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, BY_HAND, Peer(worker="nobody"))
    kept: list[dict[str, Any]] = []
    missing = {name: why for name, why in ALONE.items() if name != BY_HAND}
    found = contest.measure(SMALL, Turns(runs=1, on_spark=0), True, missing, tmp_path, kept.append)
    assert kept == [found, found], "after each run that there was"
    assert found["skipped"][BY_HAND] == "KeyError: 'nobody'"
    known = {"cases": {"A": found}, "machine": {"processors": 2, "memory_gb": 8, "python": "3", "system": "a system"}}
    text = pages.figures(known)
    assert f"Left out: {BY_HAND}, as KeyError: 'nobody'." in text
    assert f"| **{OURS}** |" in text


def test_spark_takes_the_turns_that_it_is_given() -> None:
    turns = Turns(runs=2, on_spark=1)
    first, second = (turns.of(number, CASES["A"], {FLOOR: "why"}) for number in range(2))
    assert [name for name in PEERS if name != FLOOR] == first
    assert set(first) - set(second) == {contest.WARM, contest.ONE_SHOT}
    assert turns.of(0, CASES["16x"], {}) == [OURS, FLOOR]
    assert RUST not in PEERS
