"""Rows 18 and 19: nothing to write, nothing to read, and the same write sent again."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.iceberg_tables import rows
from tests.system.faults.stack import Answer, Stack, assert_nothing_left_behind, request

MODES: list[dict[str, Any]] = [{"mode": "append"}, {"mode": "upsert", "key": ["id"]}, {"mode": "overwrite_partitions"}]
NAMES = ["append", "upsert", "overwrite_partitions"]


@pytest.fixture
def empty(stack: Stack) -> Stack:
    """A table `t` without a snapshot."""
    stack.create("t", {"id": "long!", "v": "string"})
    return stack


@pytest.fixture
def emptied(empty: Stack) -> Stack:
    """A table `t` whose rows were all deleted: snapshots, and no file."""
    empty.ok("WRITE", "t", records=[{"id": 1}])
    empty.table("default.t").delete("id = 1")
    return empty


@pytest.mark.parametrize("mode", MODES, ids=NAMES)
def test_row_18_a_write_of_no_rows_is_done_and_adds_no_snapshot(emptied: Stack, mode: dict[str, Any]) -> None:
    snapshots = len(emptied.table("default.t").snapshots())
    with emptied.untouched():
        answer = emptied.ok("WRITE", "t", records=[], idempotency_key="nothing", **mode)
    assert (answer["records_written"], answer["snapshot_id"]) == (0, None)
    assert (answer["compaction_recommended"], answer["small_files_count"]) == (False, None)
    assert len(emptied.table("default.t").snapshots()) == snapshots


def test_row_18_overwriting_with_no_rows_removes_none(empty: Stack) -> None:
    empty.ok("WRITE", "t", records=[{"id": 1, "v": None}])
    with empty.untouched():
        empty.ok("WRITE", "t", records=[], mode="overwrite_partitions")
    assert rows(empty.table("default.t")) == [(1, None)]


@pytest.mark.parametrize(("lake", "reason"), [("empty", "NO_SNAPSHOT"), ("emptied", "NO_CANDIDATE")])
def test_row_18_a_table_without_rows_has_nothing_to_do_and_says_why(
    lake: str, reason: str, request: pytest.FixtureRequest
) -> None:
    stack: Stack = request.getfixturevalue(lake)
    with stack.untouched():
        for fields in ({}, {"force": True}, {"options": {"rewrite-all": "true"}}, {"where": "id = 1"}):
            answer = stack.ok("COMPACT", "t", **fields)
            assert (answer["status"], answer["reason"], answer["compacted"]) == ("NOTHING_TO_DO", reason, False)
            assert answer["stats"] is None
        planned = stack.ok("COMPACT", "t", dry_run=True)
        assert (planned["status"], planned["reason"], planned["plan"]["groups"]) == ("PLANNED", reason, 0)
        assert (planned["plan"]["plan_id"] is None) == (reason == "NO_SNAPSHOT")
        found = stack.ok("QUERY", "t")
        assert (found["rows"], found["truncated"]) == ([], False)
        assert [column["name"] for column in found["columns"]] == ["id", "v"]
        health = stack.ok("TABLE_HEALTH", "t", explain=True)
        assert (health["score"], health["files"], health["explained"]) == (100.0, 0, [])
        assert stack.ok("EXPIRE_SNAPSHOTS", "t")["snapshots_expired"] == 0


def test_explain_names_for_every_file_what_decides_as_the_plan_does(stack: Stack) -> None:
    """A file may be small and nothing touch it all the same."""
    stack.create("t", {"id": "long!", "p": "string"}, partition_spec=[{"source": "p", "transform": "identity"}])
    for number in range(4):
        stack.ok("WRITE", "t", records=[{"id": number, "p": "merged"}])
    stack.ok("WRITE", "t", records=[{"id": 4, "p": "lone"}])
    for number in range(2):
        stack.ok("WRITE", "t", records=[{"id": number, "p": "few"}])
    explained = stack.ok("TABLE_HEALTH", "t", explain=True)["explained"]
    found = {(file["partition"], file["reason"], file["selected"]) for file in explained}
    few = "below-min-input-files"
    assert found == {("p=merged", "small", True), ("p=lone", "lone-file", False), ("p=few", few, False)}
    skipped = stack.ok("COMPACT", "t", dry_run=True)["plan"]["skipped"]
    assert {(s["partition"], s["reason"]) for s in skipped} == {("p=lone", "lone-file"), ("p=few", few)}


def test_row_18_a_table_without_rows_takes_its_first_ones(emptied: Stack) -> None:
    for number, mode in enumerate(MODES):
        emptied.ok("WRITE", "t", records=[{"id": number}], **mode)
        assert (number, None) in rows(emptied.table("default.t"))


@pytest.mark.parametrize("mode", MODES, ids=NAMES)
def test_row_19_the_same_write_sent_again_lands_once(empty: Stack, mode: dict[str, Any]) -> None:
    empty.ok("WRITE", "t", records=[{"id": 1, "v": "old"}, {"id": 2, "v": "old"}])
    body = request("WRITE", "t", records=[{"id": 1, "v": "new"}, {"id": 3, "v": "new"}], idempotency_key="k-1", **mode)
    first = empty.accepted("WRITE", body)
    landed = rows(empty.table("default.t"))
    with empty.untouched():
        for _ in range(2):
            again = empty.accepted("WRITE", body)
            assert (again["snapshot_id"], again["records_written"]) == (first["snapshot_id"], 2)
        direct = empty.invoke(body)
        assert (direct["success"], direct["snapshot_id"]) == (True, first["snapshot_id"])
    assert rows(empty.table("default.t")) == landed
    assert_nothing_left_behind(empty.table("default.t"))


def test_row_19_the_first_result_is_found_also_below_later_commits(empty: Stack) -> None:
    body = request("WRITE", "t", records=[{"id": 1}], idempotency_key="k-1")
    first = empty.accepted("WRITE", body)
    for number in (2, 3):
        empty.ok("WRITE", "t", records=[{"id": number}], idempotency_key=f"k-{number}")
    assert empty.ok("COMPACT", "t", force=True)["status"] == "COMPLETED"
    with empty.untouched():
        assert empty.accepted("WRITE", body)["snapshot_id"] == first["snapshot_id"]
    assert rows(empty.table("default.t")) == [(1, None), (2, None), (3, None)]


def test_row_19_another_key_is_another_write_and_a_refused_one_uses_its_key_up_for_nobody(empty: Stack) -> None:
    records = [{"id": 1, "v": "a"}]
    empty.refused(422, "SCHEMA_MISMATCH", ["row 0"], request("WRITE", "t", records=[{"id": "x"}], idempotency_key="a"))
    found = [empty.ok("WRITE", "t", records=records, idempotency_key=key)["snapshot_id"] for key in ("a", "b")]
    assert len(set(found)) == 2
    assert rows(empty.table("default.t")) == [(1, "a"), (1, "a")]


def test_row_19_a_compaction_sent_again_is_done_already(empty: Stack) -> None:
    for number in range(3):
        empty.ok("WRITE", "t", records=[{"id": number}])
    assert empty.ok("COMPACT", "t", force=True, idempotency_key="c-1")["status"] == "COMPLETED"
    with empty.untouched():
        again = empty.ok("COMPACT", "t", force=True, idempotency_key="c-1")
    assert (again["status"], again["compacted"]) == ("ALREADY_DONE", True)


def test_a_key_that_was_sent_with_another_request_is_refused_and_nothing_is_written(empty: Stack) -> None:
    sent: list[Answer] = [
        {"records": [{"id": 1, "v": "a"}, {"id": 2}], "mode": "upsert", "key": ["id"]},
        {"records": [{"id": 2}, {"id": 1, "v": "a"}], "mode": "upsert", "key": ["id"]},
        {"records": [{"id": 1, "v": "a"}, {"id": 2}]},
        {"records": [{"id": 1, "v": "b"}, {"id": 2}], "mode": "upsert", "key": ["id"]},
    ]
    empty.ok("WRITE", "t", idempotency_key="k", **sent[0])
    with empty.untouched():
        for other in sent[1:]:
            body = request("WRITE", "t", idempotency_key="k", **other)
            error = empty.refused(422, "IDEMPOTENCY_KEY_REUSED", ["another request"], body)
            assert error["retryable"] is False
        reordered = {"v": "a", "id": 1}
        same = {**sent[0], "records": [reordered, {"id": 2}]}
        assert empty.ok("WRITE", "t", idempotency_key="k", **same)["already_done"]
    empty.ok("COMPACT", "t", force=True, idempotency_key="k")
    empty.ok("WRITE", "t", records=[{"id": 9}])
    empty.ok("COMPACT", "t", force=True, idempotency_key="c")
    with empty.untouched():
        other = request("COMPACT", "t", force=True, target_file_size_mb=64, idempotency_key="c")
        empty.refused(422, "IDEMPOTENCY_KEY_REUSED", ["another request"], other)
        how_it_runs = {"time_budget_seconds": 60}
        assert empty.ok("COMPACT", "t", force=True, idempotency_key="c", **how_it_runs)["status"] == "ALREADY_DONE"


ROUNDS = 4
_together: Any = None


def _begin(barrier: Any) -> None:
    global _together  # noqa: PLW0603  how a process of a pool is handed a barrier
    _together = barrier


def _write_rounds(folder: Path) -> list[Answer]:
    """In a process of its own: write every round at the same moment as the other process."""
    stack = Stack(folder)
    stack.table("default.t")
    answers = []
    for number in range(ROUNDS):
        _together.wait()
        records = [{"id": number * 10 + row, "v": "x"} for row in range(3)]
        answers.append(stack.ok("WRITE", "t", records=records, idempotency_key=f"round-{number}"))
    return answers


def test_row_19_two_processes_that_send_the_same_write_at_once_write_its_rows_once(empty: Stack) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    with ProcessPoolExecutor(2, mp_context=context, initializer=_begin, initargs=(barrier,)) as pool:
        first, second = (job.result() for job in [pool.submit(_write_rounds, empty.folder) for _ in range(2)])
    assert [a["snapshot_id"] for a in first] == [a["snapshot_id"] for a in second]
    assert {a["records_written"] for a in (*first, *second)} == {3}
    table = empty.table("default.t")
    assert rows(table) == [(number * 10 + row, "x") for number in range(ROUNDS) for row in range(3)]
    assert len(table.snapshots()) == ROUNDS
    assert_nothing_left_behind(table)
