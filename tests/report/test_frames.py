"""Answers become small tables that a person can read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from regelate.report import frames

KB, MB = 1024, 1024 * 1024


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "0 ms"), (0.85, "850 ms"), (2.34, "2.3 s"), (245.9, "4 min 05 s")])
def test_a_duration_is_written_as_people_write_it(seconds: float, text: str) -> None:
    assert frames.seconds_text(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (1000, "1,000 files")])
def test_one_file_is_not_files(count: int, text: str) -> None:
    assert frames.plural(count, "file") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (1, "1"),
        (True, "true"),
        ("a b", "a b"),
        ("x\x1b[31m\n", r"x\x1b[31m\n"),
        ([1, "ä"], '[1, "ä"]'),
        ({"a": None}, '{"a": null}'),
    ],
)
def test_a_cell_is_one_line_that_no_terminal_obeys(value: object, text: str) -> None:
    assert frames.cell(value) == text


def test_a_long_cell_is_cut_where_one_can_see_it() -> None:
    cut = frames.cell("x" * 1000)
    assert (len(cut), cut[-1]) == (frames.MAX_CELL_CHARACTERS, "…")


def test_bars_are_as_long_as_their_numbers_and_only_nothing_is_invisible() -> None:
    assert [len(frames.bar(n, 8, width=8)) for n in range(9)] == list(range(9))
    assert frames.bar(1, 10**9) == "▏"
    assert frames.bar(0, 0) == ""


def buckets(*files: int) -> list[dict[str, Any]]:
    edges: list[int | None] = [0, 64 * KB, 256 * KB, MB, None]
    return [
        {"from_bytes": low, "to_bytes": high, "files": count}
        for (low, high), count in zip(pairwise(edges), files, strict=True)
    ]


def test_a_histogram_begins_and_ends_where_there_are_files() -> None:
    shown = frames.histogram({"size_histogram": buckets(0, 4, 0, 1)})
    assert [row[:2] for row in shown.rows] == [("64 KB - 256 KB", "4"), ("256 KB - 1 MB", "0"), ("over 1 MB", "1")]
    assert [len(row[2]) for row in shown.rows] == [30, 0, 8]
    assert frames.histogram({"size_histogram": buckets(3, 0, 0, 0)}).rows[0][0] == "under 64 KB"
    assert frames.histogram({"size_histogram": buckets(0, 0, 0, 0)}).rows == ()


def test_health_of_an_empty_table_has_no_average_file() -> None:
    counts = dict.fromkeys(("files", "size_bytes", "rows", "small_files", "delete_files", "partitions"), 0)
    lost = {"files": 0.0, "deletes": 0.0, "metadata": 0.0}
    found = {
        "score": 100.0,
        "grade": "HEALTHY",
        "points_lost": lost,
        "manifest_count": 0,
        "snapshot_count": 0,
        **counts,
    }
    shown = dict(frames.health(found).rows)
    assert (shown["health"], shown["average file"]) == ("100.0 of 100, healthy", "-")
    assert shown["points lost"] == "none"
    lost = {"files": 4.5, "deletes": 20.0, "metadata": 0.0}
    assert dict(frames.health({**found, "points_lost": lost}).rows)["points lost"] == "20.0 for deletes, 4.5 for files"


def test_numbers_of_a_result_stand_on_the_right_and_texts_on_the_left() -> None:
    answer = {
        "columns": [
            {"name": "k", "type": "string"},
            {"name": "n", "type": "long"},
            {"name": "d", "type": "decimal(9,2)"},
        ],
        "rows": [{"k": "a", "n": 1, "d": "2.50"}, {"k": None, "n": None, "d": None}],
    }
    shown = frames.result(answer)
    assert (shown.columns, shown.right) == (("k", "n", "d"), frozenset({1, 2}))
    assert shown.rows == (("a", "1", "2.50"), ("", "", ""))


def test_nested_columns_are_listed_by_their_paths() -> None:
    fields = {
        "id": {"type": "long", "required": True},
        "at": {"type": "struct", "fields": {"x": {"type": "int"}}},
        "tags": {"type": "map", "key": {"type": "string", "required": True}, "value": {"type": "int"}},
    }
    shown = frames.columns({"schema": {"fields": fields}})
    assert [row[:3] for row in shown.rows] == [
        ("id", "long", "yes"),
        ("at", "struct", ""),
        ("at.x", "int", ""),
        ("tags", "map", ""),
        ("tags.key", "string", "yes"),
        ("tags.value", "int", ""),
    ]


def test_a_plan_names_partitions_counts_and_reasons() -> None:
    plan = {
        "file_groups": [
            {
                "partition": "",
                "files": 12,
                "bytes": 3 * MB,
                "rows": 1000,
                "expected_output_files": 1,
                "reasons": {"small": 11, "large": 1},
            }
        ],
        "skipped": [{"partition": "day=2025-01-01", "files": 1, "bytes": 10, "reason": "lone-file"}],
    }
    assert frames.plan_groups(plan).rows == (("(whole table)", "12", "3.0 MB", "1,000", "1", "11 small, 1 large"),)
    assert frames.plan_skips(plan).rows == (("day=2025-01-01", "1", "10 B", "lone-file"),)
