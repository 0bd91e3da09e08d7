"""Rows 61 and 62: a compaction that calls for the next one, and thresholds that cannot be."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from regelate.adapters.iceberg.metadata.snapshot import SnapshotReader
from regelate.core.policy.policy import MAX_TARGET_BYTES, MB
from tests.support.iceberg_tables import live_data_paths, rows
from tests.system.faults.stack import Stack, request

INTERVAL = 5
WRITES = 20


def test_row_61_compactions_that_answer_every_recommendation_make_no_loop(stack: Stack) -> None:
    """Somebody wires every `compaction_recommended` to a COMPACT, and every COMPACT to the next check."""
    stack.create("t", {"id": "long!"})
    compactions = []
    for number in range(1, WRITES + 1):
        answer = stack.ok("WRITE", "t", records=[{"id": number}])
        if answer["compaction_recommended"]:
            compactions.append(number)
            assert answer["small_files_count"] >= 3
            assert stack.ok("COMPACT", "t")["status"] == "COMPLETED"
            snapshots = len(stack.table("default.t").snapshots())
            with stack.untouched():
                again = stack.ok("COMPACT", "t")
            assert (again["status"], again["compacted"]) == ("NOTHING_TO_DO", False)
            assert len(stack.table("default.t").snapshots()) == snapshots
    table = stack.table("default.t")
    operations = [s.summary.operation.value for s in table.snapshots() if s.summary is not None]
    assert (operations.count("append"), operations.count("replace")) == (WRITES, len(compactions))
    assert 1 <= len(compactions) <= WRITES // INTERVAL + 1
    assert all(after - before >= INTERVAL - 1 for before, after in pairwise(compactions))
    assert rows(table) == [(number,) for number in range(1, WRITES + 1)]
    assert len(live_data_paths(table)) < INTERVAL + 1


def test_row_61_a_compaction_itself_never_recommends_one(stack: Stack) -> None:
    """The write after a compaction crosses no multiple that the compaction itself has crossed."""
    stack.create("t", {"id": "long!"})
    for number in range(4):
        assert not stack.ok("WRITE", "t", records=[{"id": number}])["compaction_recommended"]
    assert stack.ok("COMPACT", "t")["status"] == "COMPLETED"
    after = [stack.ok("WRITE", "t", records=[{"id": number}]) for number in range(2)]
    assert [answer["compaction_recommended"] for answer in after] == [False, False]
    assert [answer["small_files_count"] for answer in after] == [None, None]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """A table of three small files, which a COMPACT would rewrite."""
    made = Stack(tmp_path_factory.mktemp("small"))
    made.create("t", {"id": "long!", "v": "string"})
    for number in range(3):
        made.ok("WRITE", "t", records=[{"id": number, "v": "a"}])
    return made


def options(**given: object) -> dict[str, object]:
    return {"options": {name.replace("_", "-"): value for name, value in given.items()}}


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"target_file_size_mb": 0}, ["target_file_size_mb", "1"]),
    ({"target_file_size_mb": -1}, ["target_file_size_mb"]),
    ({"target_file_size_mb": MAX_TARGET_BYTES // MB + 1}, ["target_file_size_mb", "1048576"]),
    ({"target_file_size_mb": 10 * MB}, ["target_file_size_mb"]),
    ({"target_file_size_mb": 128.5}, ["target_file_size_mb", "integer"]),
    ({"target_file_size_mb": "128"}, ["target_file_size_mb", "integer"]),
    ({"target_file_size_mb": True}, ["target_file_size_mb", "integer"]),
    ({"max_files": 0}, ["max_files", "1"]),
    ({"max_files": "5"}, ["max_files", "integer"]),
    (options(target_file_size_bytes=0), ["target-file-size-bytes", "between 1 and"]),
    (options(target_file_size_bytes=10 * 1024**4), ["target-file-size-bytes", "1099511627776"]),
    (options(target_file_size_bytes="10TB"), ["target-file-size-bytes", "'10TB'"]),
    (options(target_file_size_bytes=1.5), ["target-file-size-bytes", "whole number"]),
    (options(min_file_size_bytes=200 * MB), ["min-file-size-bytes", "below target-file-size-bytes"]),
    (options(max_file_size_bytes=100), ["max-file-size-bytes", "target-file-size-bytes"]),
    (options(target_file_size_bytes=1000, min_file_size_bytes=5000), ["min-file-size-bytes", "5000"]),
    (options(min_input_files=0), ["min-input-files", "between 1 and"]),
    (options(min_input_files="many"), ["min-input-files", "'many'"]),
    (options(max_file_group_size_bytes=0), ["max-file-group-size-bytes"]),
    (options(delete_file_threshold=0), ["delete-file-threshold"]),
    (options(delete_ratio_threshold=0), ["delete-ratio-threshold", "above 0"]),
    (options(delete_ratio_threshold=1.1), ["delete-ratio-threshold", "at most 1"]),
    (options(rewrite_all="yes"), ["rewrite-all", "true or false"]),
    (options(rewrite_job_order="random"), ["rewrite-job-order"]),
    (options(partial_progress_enabled="true"), ["partial-progress-enabled", "unknown option", "valid are"]),
    ({"options": []}, ["options", "object"]),
    ({"strategy": "sort"}, ["sort_order"]),
    ({"strategy": "sort", "sort_order": [{"column": "nope"}]}, ["sort_order", "'nope'"]),
]


@pytest.mark.parametrize(("fields", "words"), BAD)
def test_row_62_a_threshold_that_cannot_be_is_refused_by_its_range(
    small: Stack, fields: dict[str, Any], words: list[str]
) -> None:
    with small.untouched():
        for more in ({}, {"dry_run": True}):
            small.refused(400, "INVALID_OPTION", words, request("COMPACT", "t", **fields, **more))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("regelate.compaction.min-input-files", "0", ["min-input-files", "between 1 and"]),
        ("regelate.compaction.min-file-size-bytes", "1GB", ["min-file-size-bytes", "whole number"]),
        ("regelate.compaction.min-file-size-bytes", str(200 * MB), ["min-file-size-bytes", "below"]),
        ("regelate.compaction.selection", "biggest", ["selection"]),
        ("regelate.compaction.enabled", "maybe", ["enabled", "true or false"]),
        ("write.target-file-size-bytes", "0", ["write.target-file-size-bytes"]),
        ("write.target-file-size-bytes", "128MB", ["write.target-file-size-bytes"]),
        ("write.target-file-size-bytes", "1e6", ["write.target-file-size-bytes"]),
    ],
)
def test_row_62_a_table_property_that_cannot_be_is_refused_where_it_is_set(
    small: Stack, name: str, value: str, words: list[str]
) -> None:
    columns = {"fields": {"id": {"type": "long"}}}
    with small.untouched():
        small.refused(400, "INVALID_OPTION", words, request("ALTER_TABLE", "t", set_properties={name: value}))
        body = request("CREATE_TABLE", "made", schema=columns, properties={name: value})
        small.refused(400, "INVALID_OPTION", words, body)


def test_row_61_a_check_that_fails_in_whatever_way_spoils_no_write(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are in the table by then: who is told that they are not writes them twice."""

    def surprise(*arguments: Any, **options: Any) -> Any:
        raise ValueError("a bug, or a library's own error")

    stack.create("t", {"id": "long!"})
    monkeypatch.setattr(SnapshotReader, "read", surprise)
    for number in range(INTERVAL + 1):
        answer = stack.ok("WRITE", "t", records=[{"id": number}])
        assert (answer["compaction_recommended"], answer["small_files_count"]) == (False, None)
    assert rows(stack.table("default.t")) == [(number,) for number in range(INTERVAL + 1)]


def test_row_62_a_property_that_another_program_set_wrong_spoils_no_write(stack: Stack) -> None:
    stack.create("t", {"id": "long!"})
    with stack.table("default.t").transaction() as transaction:
        transaction.set_properties({"regelate.compaction.min-input-files": "zero"})
    for number in range(INTERVAL + 1):
        assert not stack.ok("WRITE", "t", records=[{"id": number}])["compaction_recommended"]
    with stack.untouched():
        for operation in ("COMPACT", "TABLE_HEALTH"):
            stack.refused(
                422,
                "INVALID_TABLE_PROPERTY",
                ["regelate.compaction.min-input-files", "'zero'"],
                request(operation, "t"),
            )
    stack.ok("ALTER_TABLE", "t", unset_properties=["regelate.compaction.min-input-files"])
    assert stack.ok("COMPACT", "t")["status"] == "COMPLETED"


def test_row_62_the_short_form_judges_its_sizes_too(small: Stack) -> None:
    with small.untouched():
        for given, word in (
            ({"target_file_size": "big"}, "512MB"),
            ({"target_file_size": "10TB"}, "1099511627776"),
            ({"target_file_size": 0}, "between 1 and"),
            ({"max_cost": "ten"}, "number"),
            ({"nope": 1}, "unknown option"),
        ):
            status, answer = small.post({"table": "t", "options": given}, path="/api/v1/compact")
            assert status == 400
            assert answer["error"]["code"] in ("INVALID_OPTION", "INVALID_FIELD")
            assert word in answer["error"]["message"]
