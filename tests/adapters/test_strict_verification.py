"""`verify: strict`: what was written, read back by another reader, is what was read, value by value (law 7).

Each damage is done to an output by a writer that is wrong, before the output is described, so that its own footer tells
the same lie. Some are caught by the counts and bounds of `fast`; the table below says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from regelate.adapters.duckdb import engine
from regelate.adapters.iceberg.files.view import GroupViewWriter
from regelate.core.table.table import FileScanTask
from regelate.errors import RegelateError
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import append, live_data_paths, stored_files
from tests.support.lake import Lake
from tests.support.table_model import model_rows

SCHEMA = Schema(
    NestedField(1, "a", LongType()),
    NestedField(2, "b", LongType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "p", StringType()),
)
BY_P = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "p"))
Rows = list[dict[str, Any]]
Damage = Callable[[Rows], Rows]


def batch(start: int, p: str) -> list[tuple[int, int, str, str]]:
    return [(start + i, start + 9 - i, f"s{i}", p) for i in range(10)]


@pytest.fixture
def table(lake: Lake) -> Table:
    """Three files in each of the partitions x and y; in every file the columns a and b hold the same numbers."""
    return lake.table(SCHEMA, *(batch(10 * i, "x") + batch(10 * i, "y") for i in range(3)), spec=BY_P)


def edited(row: int, **values: Any) -> Damage:
    return lambda rows: [{**r, **values} if i == row else r for i, r in enumerate(rows)]


def swapped_between_rows(rows: Rows) -> Rows:
    return [{**rows[0], "s": rows[1]["s"]}, {**rows[1], "s": rows[0]["s"]}, *rows[2:]]


def swapped_between_columns(rows: Rows) -> Rows:
    return [{**rows[0], "a": rows[0]["b"], "b": rows[0]["a"]}, *rows[1:]]


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a value flipped": (edited(3, a=4), "ROWS_CHANGED"),
    "a text flipped": (edited(3, s="s4"), "ROWS_CHANGED"),
    "two swapped between rows": (swapped_between_rows, "ROWS_CHANGED"),
    "two swapped between columns": (swapped_between_columns, "ROWS_CHANGED"),
    "one dropped, another doubled": (lambda rows: [rows[1], *rows[1:]], "ROWS_CHANGED"),
    "two pairs of equal rows for others": (lambda rows: [rows[2]] * 2 + rows[2:], "ROWS_CHANGED"),
    "an empty text for a null": (edited(3, s=None), "DATA_FILE_SUSPECT"),
    "a value beyond the bounds": (edited(3, a=10**6), "DATA_FILE_SUSPECT"),
    "a row dropped": (lambda rows: rows[1:], "ROWS_NOT_CONSERVED"),
    "a row doubled": (lambda rows: [*rows, rows[0]], "ROWS_NOT_CONSERVED"),
}
"""Damage, and the code that refuses it. ROWS_CHANGED is the answer of `strict` alone; `fast` sees the others."""


def wrong_writer(monkeypatch: pytest.MonkeyPatch, damage: Damage) -> None:
    """Let the engine's writer change the rows of every output of partition x."""
    honest = engine.write_rows

    def write(cursor: Any, select: str, path: str, *arguments: Any, **options: Any) -> int:
        rows = honest(cursor, select, path, *arguments, **options)
        if "p=x" in path:
            found = pq.read_table(path, partitioning=None)
            pq.write_table(pa.Table.from_pylist(damage(found.to_pylist()), schema=found.schema), path)
        return rows

    monkeypatch.setattr(engine, "write_rows", write)


def of(p: str, table: Table) -> list[str]:
    return [path for path in live_data_paths(table.refresh()) if f"/p={p}/" in path]


def refused(lake: Lake, table: Table, code: str) -> None:
    """The damaged group stays as it was and the other lands; with the damaged group alone, the answer is the error."""
    expected, victims = model_rows(table), of("x", table)
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, verify="strict", partition_filter={"p": "x"})
    assert caught.value.code == code
    assert caught.value.status == (424 if code == "DATA_FILE_SUSPECT" else 500)
    assert of("x", table) == victims
    before = stored_files(table)
    answer = lake.compact(table, verify="strict", expire_snapshots=False)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", code)
    assert of("x", table) == victims
    assert len(of("y", table)) == 1
    assert {f for f in stored_files(table) - before if f.endswith(".parquet") and "p=x" in f} == set()
    assert model_rows(table) == expected


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_output_is_refused_before_the_commit_its_file_gone_and_the_table_unchanged(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    wrong_writer(monkeypatch, DAMAGES[damage][0])
    refused(lake, table, DAMAGES[damage][1])


@pytest.mark.parametrize("damage", [name for name, (_, code) in DAMAGES.items() if code == "ROWS_CHANGED"])
def test_fast_counts_rows_and_nulls_and_bounds_and_cannot_see_what_strict_sees(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """What the reader of the documents is told: if `fast` learns to see one of these, the documents must say so."""
    expected = model_rows(table)
    wrong_writer(monkeypatch, DAMAGES[damage][0])
    assert lake.compact(table, verify="fast")["status"] == "COMPLETED"
    assert model_rows(table) != expected


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_a_view_that_lost_a_delete_file_is_refused(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """By the independent count, which `fast` has too: both readings of `strict` go through the same view."""
    if kind == "position":
        add_position_deletes(table, {of("x", table)[0]: [1]})
    else:
        add_equality_deletes(table, ["a"], [(11,)], partition={"p": "x"})
    honest = GroupViewWriter.write

    def write(self: GroupViewWriter, tasks: Sequence[FileScanTask], *, with_deletes: bool = True) -> Any:
        told = [replace(t, deletes=()) for t in tasks] if with_deletes else tasks
        return honest(self, told, with_deletes=with_deletes)

    monkeypatch.setattr(GroupViewWriter, "write", write)
    refused(lake, table, "ROWS_NOT_CONSERVED")


def test_a_view_that_lost_a_delete_once_and_read_right_the_second_time_is_refused(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the count of deleted rows wrong in the same way, the two readings would still disagree."""
    add_position_deletes(table, {of("x", table)[0]: [1]})
    honest, seen = GroupViewWriter.write, []

    def write(self: GroupViewWriter, tasks: Sequence[FileScanTask], *, with_deletes: bool = True) -> Any:
        first = with_deletes and any(t.deletes for t in tasks) and not seen
        seen.extend(tasks if first else ())
        return honest(self, [replace(t, deletes=()) for t in tasks] if first else tasks, with_deletes=with_deletes)

    monkeypatch.setattr(GroupViewWriter, "write", write)
    monkeypatch.setattr(engine, "count_deleted_rows", lambda *arguments: 0)
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, verify="strict", partition_filter={"p": "x"})
    assert caught.value.code == "ROWS_CHANGED"
    assert caught.value.details == {"rows_read": 29, "rows_written": 30}


def test_an_output_that_is_damaged_in_the_store_after_it_was_described_is_refused(lake: Lake, table: Table) -> None:
    before = set(stored_files(table))

    def damage() -> None:
        for name in set(stored_files(table)) - before:
            path = Path(table.location().removeprefix("file://")) / name
            content = bytearray(path.read_bytes())
            content[8:40] = b"\xff" * 32
            path.write_bytes(content)

    with pytest.raises(RegelateError) as caught:
        lake.compact(table, verify="strict", between=damage)
    assert (caught.value.code, caught.value.status) == ("STORAGE_INCONSISTENT", 502)
    assert stored_files(table) == before


def test_strict_lands_what_is_right_with_deletes_sorts_and_several_outputs(lake: Lake, table: Table) -> None:
    add_position_deletes(table, {of("x", table)[0]: [0, 5]})
    add_equality_deletes(table, ["a"], [(22,)], partition={"p": "y"})
    expected = model_rows(table)
    answer = lake.compact(table, verify="strict")
    assert (answer["status"], answer["stats"]["rows"]) == ("COMPLETED", 57)
    assert model_rows(table) == expected
    for start in (100, 200, 300):
        append(table, batch(start, "x"))
    expected = model_rows(table)
    answer = lake.compact(table, verify="strict", strategy="sort", sort_order=[{"column": "b"}], force=True)
    assert answer["status"] == "COMPLETED"
    assert model_rows(table) == expected


def test_the_tables_property_asks_for_strict_and_the_request_wins(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"regelate.compaction.verify": "strict"})
    wrong_writer(monkeypatch, DAMAGES["a value flipped"][0])
    assert lake.compact(table)["reason"] == "ROWS_CHANGED"
    for number in range(3):
        append(table, batch(10 * number, "y"))
    assert lake.compact(table, verify="fast")["status"] == "COMPLETED"


def test_a_plan_made_before_is_executed_with_either_proof(lake: Lake, table: Table) -> None:
    plan_id = lake.compact(table, dry_run=True)["plan"]["plan_id"]
    assert lake.compact(table, plan_id=plan_id, verify="strict")["status"] == "COMPLETED"
