"""Groups that become several files: their sizes, order, and every row once; and a writer that never stops."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from regelate.adapters.duckdb import engine
from regelate.errors import Conflict, InvalidRequest
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import (
    add_data_files,
    append,
    live_data_files,
    live_data_paths,
    local_path,
    make_catalog,
)
from tests.support.lake import Lake, in_table_order, make_file, small
from tests.support.table_model import model_rows

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "p", StringType()),
    NestedField(3, "text", StringType()),
    NestedField(4, "v", DoubleType()),
)
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
TARGET = 25_000


def content(start: int, count: int, p: str = "x") -> pa.Table:
    """Rows of about 40 bytes that no codec makes much smaller."""
    texts = [hashlib.md5(f"{start + i}".encode(), usedforsecurity=False).hexdigest() for i in range(count)]
    numbers = random.Random(start)
    return pa.table(
        {
            "id": pa.array(range(start, start + count), pa.int64()),
            "p": pa.array([p] * count, pa.string()),
            "text": pa.array(texts, pa.string()),
            "v": pa.array([numbers.random() for _ in range(count)], pa.float64()),
        }
    )


def stored(path: str, column: str = "id") -> list[Any]:
    """The values of one column in the order of the file."""
    return list(pq.read_table(local_path(path), columns=[column])[column].to_pylist())


def outputs_in_order(table: Table) -> list[str]:
    """Live files in table order; outputs of one rewrite have one sequence number, so their names decide."""
    return in_table_order(table)


@pytest.fixture
def many_small(lake: Lake) -> Table:
    """Thirty files of 200 rows, together about seven targets; their order in the table is that of their names."""
    table = lake.table(SCHEMA)
    add_data_files(table, [make_file(table, content(200 * i, 200), name=f"in-{i:03}") for i in range(30)])
    return table


def test_a_first_rewrite_without_history_lands_on_the_target_but_for_one_tail(lake: Lake, many_small: Table) -> None:
    expected = model_rows(many_small)
    answer = lake.compact(many_small, options=small(TARGET))
    sizes = sorted(f.file_size_in_bytes for f in live_data_files(many_small.refresh()))
    assert answer["status"] == "COMPLETED"
    assert len(sizes) >= 3
    assert all(0.75 * TARGET <= size <= 1.8 * TARGET for size in sizes[1:]), sizes
    assert sizes[0] <= 1.8 * TARGET
    assert model_rows(many_small) == expected
    assert lake.compact(many_small, options=small(TARGET))["status"] == "NOTHING_TO_DO"


def test_several_outputs_keep_the_order_of_the_table_and_hold_every_row_once(lake: Lake, many_small: Table) -> None:
    lake.compact(many_small, options=small(TARGET))
    paths = outputs_in_order(many_small)
    assert len(paths) > 2
    assert [row for path in paths for row in stored(path)] == list(range(6000))


def test_a_large_file_is_split_by_rows_with_deletes_of_both_kinds_in_it(lake: Lake) -> None:
    """The cuts are physical rows: position deletes before, at and after them must not move them."""
    table = lake.table(SCHEMA, content(0, 6000))
    (path,) = live_data_paths(table)
    gone = sorted(random.Random(1).sample(range(6000), 700))
    add_position_deletes(table, {path: gone})
    add_equality_deletes(table, ["id"], [(i,) for i in range(0, 6000, 97)])
    expected = model_rows(table)
    answer = lake.compact(table, options=small(TARGET))
    paths = outputs_in_order(table)
    assert (answer["status"], len(paths) > 2) == ("COMPLETED", True)
    assert model_rows(table) == expected
    kept = sorted(set(range(6000)) - set(gone) - set(range(0, 6000, 97)))
    assert [row for path in paths for row in sorted(stored(path))] == kept


def test_with_equality_deletes_every_output_is_still_one_range_of_the_table(lake: Lake, many_small: Table) -> None:
    """Only within an output may the order change then: the engine's join does not keep it."""
    add_equality_deletes(many_small, ["id"], [(i,) for i in range(0, 6000, 3)])
    lake.compact(many_small, options=small(TARGET))
    paths = outputs_in_order(many_small)
    assert len(paths) > 2
    assert [row for path in paths for row in sorted(stored(path))] == [i for i in range(6000) if i % 3]


def test_more_files_than_one_scan_may_bind_keep_their_order_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large groups are read in several scans into a temporary table."""
    monkeypatch.setattr(engine, "MIN_FILES_PER_SCAN", 2)
    monkeypatch.setattr(engine, "MAX_FILES_PER_SCAN", 3)
    table = lake.table(SCHEMA, *(content(100 * i, 100) for i in range(7)))
    first, *_ = in_table_order(table)
    add_position_deletes(table, {first: [0, 1]})
    expected = model_rows(table)
    lake.compact(table, options=small(10_000))
    assert model_rows(table) == expected
    paths = outputs_in_order(table)
    assert len(paths) > 1
    assert [row for path in paths for row in stored(path)] == list(range(2, 700))
    add_equality_deletes(table, ["id"], [(205,), (600,)])
    lake.assert_rows_kept(table, options={"rewrite-all": "true"})


# --- sort -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("direction", "nulls"), [("asc", "first"), ("desc", "last"), ("asc", "last")])
def test_sorted_outputs_are_sorted_and_their_ranges_do_not_overlap(
    lake: Lake, many_small: Table, direction: str, nulls: str
) -> None:
    append(
        many_small,
        pa.table(
            {"id": [None, None], "p": ["x", "x"], "text": [None, "b"], "v": [float("nan"), -0.0]},
            many_small.schema().as_arrow(),
        ),
    )
    expected = model_rows(many_small)
    order = [{"column": "text", "direction": direction, "nulls": nulls}, {"column": "id", "direction": "asc"}]
    answer = lake.compact(many_small, strategy="sort", sort_order=order, options=small(TARGET))
    assert answer["status"] == "COMPLETED"
    assert model_rows(many_small) == expected
    paths = sorted(outputs_in_order(many_small))
    assert len(paths) > 2
    texts = [text for path in paths for text in stored(path, "text")]
    held = [text for text in texts if text is not None]
    assert held == sorted(held, reverse=direction == "desc")
    assert texts.index(None) == (0 if nulls == "first" else len(texts) - 1)
    assert {f.sort_order_id for f in live_data_files(many_small)} == {None}


def test_the_tables_own_sort_order_is_used_and_recorded(lake: Lake) -> None:
    lake.catalog.create_namespace("db")
    order = SortOrder(SortField(4, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))
    table = lake.catalog.create_table("db.sorted", SCHEMA, sort_order=order)
    for i in range(10):
        append(table, content(200 * i, 200))
    lake.compact(table, strategy="sort", options=small(TARGET))
    files = live_data_files(table.refresh())
    assert {f.sort_order_id for f in files} == {table.sort_order().order_id}
    values = [v for path in sorted(f.file_path for f in files) for v in stored(path, "v")]
    assert values == sorted(values, reverse=True)
    assert len(values) == 2000


def test_binpacked_outputs_claim_no_sort_order(lake: Lake) -> None:
    lake.catalog.create_namespace("db")
    table = lake.catalog.create_table("db.sorted", SCHEMA, sort_order=SortOrder(SortField(1, IdentityTransform())))
    for i in range(3):
        append(table, content(50 * i, 50))
    lake.compact(table)
    assert [f.sort_order_id for f in live_data_files(table.refresh())] in ([None], [0])


def test_sorting_by_a_column_that_is_not_there_is_refused(lake: Lake, many_small: Table) -> None:
    with pytest.raises(InvalidRequest) as caught:
        lake.compact(many_small, strategy="sort", sort_order=[{"column": "nothing"}])
    assert (caught.value.code, caught.value.status) == ("INVALID_OPTION", 400)


def test_sort_applies_deletes_and_drops_what_is_all_deleted(lake: Lake) -> None:
    table = lake.table(
        SCHEMA, content(0, 5, "x"), content(10, 5, "x"), content(20, 5, "y"), content(30, 5, "y"), spec=BY_P
    )
    add_equality_deletes(table, ["p"], [("x",)], partition={"p": "x"})
    add_position_deletes(table, {next(p for p in live_data_paths(table) if "p=y" in p): [0]})
    expected = model_rows(table)
    answer = lake.compact(table, force=True, strategy="sort", sort_order=[{"column": "id"}])
    assert (answer["status"], answer["stats"]["files_added"]) == ("COMPLETED", 1)
    assert model_rows(table) == expected


# --- a writer that never stops ----------------------------------------------------------------------------------------


def keep_appending(folder: str, stop: Any, counter: Any) -> None:
    """Append until told to stop; every append that returned is counted. Runs in a process of its own."""
    table = make_catalog(Path(folder), "local").load_table("db.t")
    while not stop.is_set():
        start = 1_000_000 + 10 * counter.value
        append(
            table.refresh(),
            pa.table({"id": range(start, start + 10), "p": ["xy"[start // 10 % 2]] * 10}, table.schema().as_arrow()),
        )
        counter.value += 1


def test_while_another_process_appends_every_append_and_every_compaction_lands(lake: Lake) -> None:
    """Twenty compactions against a writer: rows are those of the model, however the commits interleave."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
    retries = {"commit.retry.num-retries": "50", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "50"}
    table = lake.table(schema, *([(i, "xy"[i % 2])] for i in range(4)), spec=BY_P, properties=retries)
    spawn = multiprocessing.get_context("spawn")
    stop, counter = spawn.Event(), spawn.Value("q", 0)
    writer = spawn.Process(target=keep_appending, args=(str(lake.folder), stop, counter), daemon=True)
    writer.start()
    answers: list[str] = []
    try:
        while len(answers) < 20 and writer.is_alive():
            before = counter.value
            try:
                answers.append(str(lake.compact(table, force=True)["status"]))
            except Conflict as error:
                answers.append(error.code)
            while answers[-1] != "COMPLETED" and counter.value == before and writer.is_alive():
                writer.join(0.01)
    finally:
        stop.set()
        writer.join(60)
    assert writer.exitcode == 0
    assert len(answers) == 20
    assert set(answers) <= {"COMPLETED", "NOTHING_TO_DO", "COMMIT_CONFLICT"}
    assert answers.count("COMPLETED") >= 10
    found = sorted(table.refresh().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())
    assert found == [*range(4), *range(1_000_000, 1_000_000 + 10 * counter.value)]
    assert counter.value > 0
