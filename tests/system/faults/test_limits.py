"""Rows 56 and 63: what is too wide is refused before it is read, and what is many is planned in bounded memory."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from regelate.adapters.iceberg.metadata.byte_cache import ByteCache
from regelate.core.policy.policy import MB
from tests.support.iceberg_tables import (
    add_data_files,
    append,
    changed_file,
    live_data_files,
    local_path,
    make_table,
)
from tests.support.lake import make_file
from tests.system.faults.stack import LOCAL_CATALOG, Stack, assert_nothing_left_behind, request, stack_with
from tests.system.faults.watching import file_watch

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()), NestedField(3, "p", StringType()))
BY_P = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "p"))
COMPACT = request("COMPACT", "t", force=True)


def small_stack(folder: Path) -> Stack:
    """A machine of one thread and the least memory that may be configured."""
    catalogs = {"local": LOCAL_CATALOG}
    return stack_with(folder, auth="none", tenants="*", catalogs=catalogs, placement={"memory_mb": 128, "threads": 1})


def wide_text(size: int) -> str:
    """A text that compresses fifty times or more, so that the file is small and its row is not."""
    start, tile = os.urandom(min(size // 200, 600_000)).hex(), os.urandom(5_000).hex()
    return (start + tile * (size // len(tile) + 1))[:size]


def add_wide(table: Table, rows: int, size: int, p: str) -> str:
    """Append one file of wide rows, one row group, and return its path."""
    content = pa.table({"id": range(rows), "s": [wide_text(size) for _ in range(rows)], "p": [p] * rows}).cast(
        schema_to_pyarrow(table.schema())
    )
    file = make_file(table, [(0, "a", p)], Record(p))
    pq.write_table(content, local_path(file.file_path), compression="zstd")
    nothing = dict.fromkeys(("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds"))
    size_bytes = local_path(file.file_path).stat().st_size
    add_data_files(table, [changed_file(file, record_count=rows, file_size_in_bytes=size_bytes, **nothing)])
    return file.file_path


def of(p: str, table: Table) -> list[str]:
    return sorted(f.file_path for f in live_data_files(table.refresh()) if f.partition[0] == p)


WIDE = {"one row": (1, 150 * MB), "eighty rows": (80, 2 * MB), "a few thousand rows": (4000, 40_000)}


@pytest.mark.parametrize("kind", WIDE)
def test_row_56_rows_wider_than_the_memory_are_refused_unread_and_the_others_land(tmp_path: Path, kind: str) -> None:
    stack = small_stack(tmp_path / "lake")
    table = make_table(stack.built.catalog(), "default.t", SCHEMA, BY_P)
    path = add_wide(table, *WIDE[kind], "wide")
    for number in range(3):
        append(table, [(number, "a", "wide"), (number, "b", "narrow")])
    expected = of("wide", table)
    answer = stack.accepted("COMPACT", COMPACT)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "ROW_GROUP_TOO_LARGE")
    assert of("wide", table) == expected
    assert len(of("narrow", table)) == 1
    assert_nothing_left_behind(table)
    with stack.untouched():
        error = stack.refused(422, "ROW_GROUP_TOO_LARGE", [path, "Spark", "more memory"], COMPACT)
    assert not error["retryable"]
    assert error["details"]["row_group_bytes"] > error["details"]["memory_bytes"] == 128 * MB


def test_row_56_a_large_row_group_of_narrow_rows_is_no_obstacle(tmp_path: Path) -> None:
    """It is read bit by bit: 2 million rows of 70 bytes are more than the memory."""
    stack = small_stack(tmp_path / "lake")
    table = make_table(stack.built.catalog(), "default.t", Schema(NestedField(1, "s", StringType())))
    file = make_file(table, [("a",)])
    rows = 2_000_000
    content = pa.table({"s": pa.array(["x" * 70]).take(pa.nulls(rows, pa.int64()).fill_null(0))})
    content = content.cast(schema_to_pyarrow(table.schema()))
    path = local_path(file.file_path)
    pq.write_table(content, path, row_group_size=rows, use_dictionary=False, compression="zstd")
    assert pq.read_metadata(path).row_group(0).total_byte_size > 128 * MB
    nothing = dict.fromkeys(("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds"))
    size = path.stat().st_size
    add_data_files(table, [changed_file(file, record_count=rows, file_size_in_bytes=size, **nothing)])
    append(table, [("a",)])
    answer = stack.accepted("COMPACT", {**COMPACT, "options": {"rewrite-all": "true"}})
    assert (answer["status"], answer["stats"]["rows"]) == ("COMPLETED", rows + 1)


# --- many -------------------------------------------------------------------------------------------------------------


def entries(table: Table, count: int, partitions: int, size_bytes: int, *, commits: int = 4) -> None:
    """Append entries of files that nobody may open: none of them is there."""
    model = make_file(table, [(0, "a", "model")], Record("model"))
    for low in range(0, count, count // commits):
        add_data_files(
            table,
            [
                changed_file(
                    model,
                    file_path=f"{table.location()}/data/absent-{number}.parquet",
                    partition=Record(f"p{number % partitions}"),
                    file_size_in_bytes=size_bytes,
                )
                for number in range(low, low + count // commits)
            ],
        )


def peak_mb(stack: Stack, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Return the most memory that Python's allocator held during a request, above what it held before."""
    tracemalloc.start()
    try:
        answer = stack.accepted(body["operation"], body)
        return tracemalloc.get_traced_memory()[1] / MB, answer
    finally:
        tracemalloc.stop()


def test_row_63_healthy_files_are_counted_and_not_kept(tmp_path: Path) -> None:
    """Four times as many healthy files in as many partitions: the memory of a plan stays what it was."""
    peaks = {}
    for count in (1_000, 4_000):
        stack = Stack(tmp_path / str(count))
        table = make_table(stack.built.catalog(), "default.t", SCHEMA, BY_P)
        entries(table, count, 50, 512 * MB, commits=count // 250)
        stack = Stack(tmp_path / str(count))  # a process that has not read these manifests yet
        stack.built.manifests._entries = ByteCache(512 * 1024)
        peaks[count], answer = peak_mb(stack, request("COMPACT", "t", dry_run=True, target_file_size_mb=512))
        assert answer["plan"]["files"] == 0
    assert peaks[4_000] < 1.5 * peaks[1_000] + 2, peaks


def test_row_63_a_plan_of_many_files_and_partitions_has_a_bounded_answer_and_says_what_is_left(
    tmp_path: Path,
) -> None:
    stack = Stack(tmp_path)
    table = make_table(stack.built.catalog(), "default.t", SCHEMA, BY_P)
    entries(table, 4_000, 1_000, 1_000)
    body = request("COMPACT", "t", dry_run=True, force=True)
    plan = stack.accepted("COMPACT", body)["plan"]
    assert (plan["groups"], plan["files"], len(plan["file_groups"])) == (1_000, 4_000, 100)
    capped = stack.accepted("COMPACT", {**body, "max_files": 40})["plan"]
    assert (capped["files"], capped["groups"], capped["groups_deferred"]) == (40, 10, 990)
    assert capped["reason"] == "BUDGET_CAPPED"
    health = stack.ok("TABLE_HEALTH", "t", explain=True)
    assert (health["files"], health["partitions"]) == (4_000, 1_000)
    assert len(json.dumps(health)) < 6 * MB
    assert len(json.dumps(plan)) < MB


def test_row_63_one_file_of_50_gb_is_refused_by_its_size_and_not_opened(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    table = make_table(stack.built.catalog(), "default.t", SCHEMA)
    append(table, [(1, "a", "x")])
    append(table, [(2, "a", "x")])
    huge = changed_file(live_data_files(table)[0], file_size_in_bytes=50 * 1024 * MB, file_path=f"{table.location()}/h")
    local_path(huge.file_path).write_bytes(b"")
    add_data_files(table, [huge])
    with stack.untouched(), file_watch(local_path(huge.file_path)) as watch:
        error = stack.refused(507, "TOO_LARGE", [], {**COMPACT, "options": {"rewrite-all": "true"}})
        assert not watch.touched()
    assert error["details"]["bytes"] > 50 * 1024 * MB


def test_row_63_a_table_of_a_thousand_columns_is_compacted(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    wide = Schema(*(NestedField(number, f"c{number}", LongType()) for number in range(1, 1_001)))
    table = make_table(stack.built.catalog(), "default.t", wide)
    for _ in range(2):
        append(table, [tuple(range(1_000))])
    answer = stack.accepted("COMPACT", COMPACT)
    assert (answer["status"], answer["stats"]["rows"]) == ("COMPLETED", 2)
