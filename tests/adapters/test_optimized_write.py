"""`regelate.write.optimized`: small neighbours come along in the commit of a WRITE, and no row is lost for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FixedType, LongType, TimestamptzType, UUIDType

from regelate.adapters.duckdb.key_rewriter import DuckDBKeyRewriter
from regelate.adapters.iceberg.commit.committer import IcebergCommitter
from regelate.core.requests import CompactRequest
from regelate.errors import DataUnavailable
from regelate.service.build import build
from regelate.settings import load_settings
from tests.adapters.test_write_modes import Row, Writing, assert_no_orphans, assert_rows, head_operation
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import append, live_data_files, live_data_paths, local_path, rows
from tests.support.lake import address

ON = {"regelate.write.optimized": "true"}
UPSERT: dict[str, Any] = {"mode": "upsert", "key": ["id"]}
BATCHES: list[list[Row]] = [[(i, "a", "old"), (10 + i, "a", "old")] for i in range(3)]
OLD = [row for batch in BATCHES for row in batch]


@pytest.fixture
def lake(tmp_path: Path) -> Writing:
    return Writing(tmp_path)


def files_of(table: Table, name: str | None) -> int:
    return sum(f.partition[0] == name for f in live_data_files(table.refresh()))


def test_an_append_takes_small_files_of_its_partitions_along_and_is_an_overwrite(lake: Writing) -> None:
    table = lake.table(*BATCHES, [(5, "b", "old")], properties=ON)
    untouched = {f.file_path for f in live_data_files(table) if f.partition[0] == "b"}
    answer = lake.write((7, "a", "new"), (8, "c", "new"))
    assert (answer["files_taken_along"], answer["optimized_write_fault"]) == (3, None)
    assert answer["bytes_taken_along"] > 0
    assert_rows(table, [*OLD, (5, "b", "old"), (7, "a", "new"), (8, "c", "new")])
    assert head_operation(table) == "overwrite"
    assert [files_of(table, p) for p in "abc"] == [1, 1, 1]
    assert untouched < set(live_data_paths(table))
    summary = table.refresh().current_snapshot().summary.additional_properties  # type: ignore[union-attr]
    assert (summary["added-records"], summary["deleted-records"]) == ("8", "6")
    assert_no_orphans(table)


def test_an_append_without_neighbours_stays_an_append(lake: Writing) -> None:
    table = lake.table([(5, "b", "old")], properties=ON)
    answer = lake.write((7, "a", "new"))
    assert (answer["files_taken_along"], answer["bytes_taken_along"]) == (0, 0)
    assert head_operation(table) == "append"


@pytest.mark.parametrize("value", [None, "false"])
def test_without_the_property_nothing_is_taken_along(lake: Writing, value: str | None) -> None:
    table = lake.table(*BATCHES, properties={} if value is None else {"regelate.write.optimized": value})
    assert lake.write((7, "a", "new"))["files_taken_along"] == 0
    assert head_operation(table) == "append"
    assert files_of(table, "a") == 4


def test_an_upsert_takes_neighbours_of_touched_partitions_along_beside_what_it_rewrites(lake: Writing) -> None:
    table = lake.table(*BATCHES, [(5, "b", "old")], [(6, "b", "old")], properties=ON)
    answer = lake.write((1, "a", "new"), (9, "b", "new"), **UPSERT)
    assert answer["files_taken_along"] == 4
    kept = [row for row in OLD if row[0] != 1]
    assert_rows(table, [*kept, (5, "b", "old"), (6, "b", "old"), (1, "a", "new"), (9, "b", "new")])
    assert [files_of(table, p) for p in "ab"] == [1, 1]
    assert_no_orphans(table)


def test_an_upsert_that_moves_a_row_takes_neighbours_of_both_partitions(lake: Writing) -> None:
    table = lake.table(*BATCHES, [(5, "b", "old")], [(6, "b", "old")], properties=ON)
    lake.write((5, "a", "moved"), **UPSERT)
    assert_rows(table, [*OLD, (6, "b", "old"), (5, "a", "moved")])
    assert files_of(table, "a") == 1
    assert_no_orphans(table)


def test_an_upsert_that_keeps_stored_values_takes_neighbours_along_too(lake: Writing) -> None:
    table = lake.table(*BATCHES, properties=ON)
    lake.send([{"id": 1, "p": "a"}, {"id": 7, "p": "a"}], missing="keep", **UPSERT)
    assert_rows(table, [*OLD, (7, "a", None)])
    assert files_of(table, "a") == 1
    assert_no_orphans(table)


def test_an_overwrite_leaves_no_neighbour_to_take(lake: Writing) -> None:
    table = lake.table(*BATCHES, [(5, "b", "old")], properties=ON)
    assert lake.write((7, "a", "new"), mode="overwrite_partitions")["files_taken_along"] == 0
    assert_rows(table, [(5, "b", "old"), (7, "a", "new")])


def test_files_with_deletes_stay_where_they_are_and_their_rows_stay_deleted(lake: Writing) -> None:
    table = lake.table(*BATCHES, properties=ON)
    first = live_data_paths(table)[0]
    add_position_deletes(table, {first: [0]})
    before = rows(table.refresh())
    answer = lake.write((7, "a", "new"))
    assert answer["files_taken_along"] == 2
    assert_rows(table, [*before, (7, "a", "new")])
    assert first in live_data_paths(table)
    add_equality_deletes(table, ["id"], [(7,)], partition={"p": "a"})
    assert lake.write((8, "a", "new"))["files_taken_along"] == 0
    assert_rows(table, [*before, (8, "a", "new")])


def test_a_file_that_declares_an_order_keeps_it(lake: Writing) -> None:
    table = lake.table(*BATCHES, properties=ON)
    with table.update_sort_order() as change:
        change.asc("id", IdentityTransform())
    lake.service.compactions.compact(address("db.t"), CompactRequest(strategy="sort", force=True))
    (sorted_file,) = live_data_files(table.refresh())
    assert sorted_file.sort_order_id
    assert lake.write((7, "a", "new"))["files_taken_along"] == 0
    assert sorted_file.file_path in live_data_paths(table.refresh())


def test_files_of_another_spec_are_not_taken(lake: Writing) -> None:
    table = lake.table([(1, "a", "old")], [(2, "a", "old")], spec=UNPARTITIONED_PARTITION_SPEC, properties=ON)
    with table.update_spec() as update:
        update.add_identity("p")
    assert lake.write((3, "a", "new"))["files_taken_along"] == 0
    assert lake.write((2, "a", "new"), **UPSERT)["files_taken_along"] == 1
    assert_rows(table, [(1, "a", "old"), (2, "a", "new"), (3, "a", "new")])


def test_files_from_before_a_schema_change_are_read_as_the_table_shows_them(lake: Writing) -> None:
    table = lake.table(*BATCHES, properties=ON)
    with table.update_schema() as change:
        change.delete_column("v")
    with table.update_schema() as change:
        change.add_column("v", LongType())
        change.rename_column("id", "n")
    lake.send([{"n": 7, "p": "a", "v": 1}], mode="append")
    assert_rows(table, [*((n, "a", None) for n, _, _ in OLD), (7, "a", 1)])  # type: ignore[list-item]
    assert files_of(table, "a") == 1


def test_the_bound_on_bytes_is_obeyed(lake: Writing) -> None:
    table = lake.table(*BATCHES, properties=ON)
    smallest = min(f.file_size_in_bytes for f in live_data_files(table))
    with table.transaction() as change:
        change.set_properties({"regelate.write.optimized.max-bytes": str(2 * smallest + 100)})
    assert lake.write((7, "a", "new"))["files_taken_along"] == 2


def test_small_batches_for_ever_leave_few_files(lake: Writing) -> None:
    table = lake.table(properties=ON)
    rng = random.Random(3)
    for number in range(25):
        lake.write(*((number * 10 + n, rng.choice("ab"), rng.randbytes(8).hex()) for n in range(10)))
    assert len(rows(table.refresh())) == 250
    assert all(files_of(table, p) <= 3 for p in "ab")
    assert_no_orphans(table)


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"regelate.write.optimized": "yes"}, "INVALID_OPTION"),
        ({**ON, "regelate.write.optimized.max-bytes": "much"}, "INVALID_OPTION"),
    ],
)
def test_a_wrong_property_of_another_engine_is_told_and_not_obeyed(
    lake: Writing, properties: dict[str, str], found: str
) -> None:
    table = lake.table(*BATCHES, properties=properties)
    answer = lake.write((7, "a", "new"))
    assert (answer["files_taken_along"], answer["optimized_write_fault"]) == (0, found)
    assert head_operation(table) == "append"


def test_neighbours_that_cannot_be_read_cost_the_write_nothing(lake: Writing) -> None:
    table = lake.table(*BATCHES, properties=ON)
    gone = local_path(live_data_paths(table)[0])
    gone.rename(gone.with_suffix(".away"))
    answer = lake.write((7, "a", "new"))
    assert answer["optimized_write_fault"] == "DATA_FILE_MISSING"
    assert (answer["records_written"], answer["files_taken_along"]) == (1, 0)
    assert lake.write((22, "b", "new"), (21, "a", "new"), **UPSERT)["records_written"] == 2
    gone.with_suffix(".away").rename(gone)
    assert_rows(table, [*OLD, (7, "a", "new"), (22, "b", "new"), (21, "a", "new")])
    assert_no_orphans(table)


def test_no_time_is_left_no_file_is_taken(lake: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regelate.operations.write.TAKING_SECONDS", 0.0)
    table = lake.table(*BATCHES, properties=ON)
    assert lake.write((7, "a", "new"))["files_taken_along"] == 0
    assert lake.write((1, "a", "new"), **UPSERT)["files_taken_along"] == 0
    assert_no_orphans(table)


def remove_one(lake: Writing) -> None:
    theirs = lake.theirs()
    theirs.delete("id = 1 or id = 11")


def delete_positions(lake: Writing) -> None:
    theirs = lake.theirs()
    path = next(t.file.file_path for t in theirs.scan(row_filter="id = 1").plan_files())
    add_position_deletes(theirs, {path: [0]})


def delete_keys(lake: Writing) -> None:
    add_equality_deletes(lake.theirs(), ["id"], [(1,)], partition={"p": "a"})


def compact(lake: Writing) -> None:
    other = build(load_settings({"REGELATE_HOME": str(lake.folder)}))
    assert other.compactions.compact(address("db.t"), CompactRequest(force=True)).compacted


@pytest.mark.parametrize(
    ("meanwhile", "gone"),
    [(remove_one, {1, 11}), (delete_positions, {1}), (delete_keys, {1}), (compact, set())],
    ids=["removed", "position delete", "equality delete", "compacted"],
)
@pytest.mark.parametrize("mode", [{}, UPSERT], ids=["append", "upsert"])
def test_what_others_do_to_a_neighbour_meanwhile_stays_done(
    lake: Writing, meanwhile: Callable[[Writing], None], gone: set[int], mode: dict[str, Any]
) -> None:
    table = lake.table(*BATCHES, properties=ON)
    lake.before_commit(lambda: meanwhile(lake))
    answer = lake.write((7, "a", "new"), **mode)
    assert (lake.retries, answer["records_written"]) == (1, 1)
    assert_rows(table, [*(row for row in OLD if row[0] not in gone), (7, "a", "new")])
    assert_no_orphans(table)


def test_an_append_goes_on_without_neighbours_that_others_changed_and_with_those_that_they_did_not(
    lake: Writing,
) -> None:
    table = lake.table(*BATCHES, [(5, "b", "old")], [(6, "b", "old")], properties=ON)
    lake.before_commit(lambda: delete_keys(lake))
    answer = lake.write((7, "a", "new"), (8, "b", "new"))
    assert answer["files_taken_along"] == 2
    assert [files_of(table, p) for p in "ab"] == [4, 1]
    kept = [row for row in OLD if row[0] != 1]
    assert_rows(table, [*kept, (5, "b", "old"), (6, "b", "old"), (7, "a", "new"), (8, "b", "new")])
    assert_no_orphans(table)


def test_an_append_that_loses_to_an_append_commits_the_merge_that_it_has(
    lake: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(*BATCHES, properties=ON)
    made: list[int] = []
    shipped = DuckDBKeyRewriter.merge

    def counted(self: DuckDBKeyRewriter, merges: Sequence[Any], *more: Any, **named: Any) -> Any:
        made.append(len(merges))
        return shipped(self, merges, *more, **named)

    monkeypatch.setattr(DuckDBKeyRewriter, "merge", counted)
    lake.before_commit(*(lambda n=n: append(lake.theirs(), [(n, "a", "theirs")]) for n in (20, 21)))
    assert lake.write((7, "a", "new"))["files_taken_along"] == 3
    assert made == [1]
    assert_rows(table, [*OLD, (7, "a", "new"), (20, "a", "theirs"), (21, "a", "theirs")])
    assert_no_orphans(table)


def test_a_column_that_changes_meanwhile_leaves_the_append_without_neighbours(lake: Writing) -> None:
    table = lake.table(*BATCHES, properties=ON)

    def add_column() -> None:
        with lake.theirs().update_schema() as change:
            change.add_column("later", LongType())

    lake.before_commit(add_column)
    assert lake.write((7, "a", "new"))["files_taken_along"] == 0
    assert head_operation(table) == "append"
    assert len(rows(table.refresh())) == 7
    assert_no_orphans(table)


def test_an_append_that_cannot_look_at_the_new_head_commits_its_own_files(
    lake: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table(*BATCHES, properties=ON)
    looks: list[int] = []
    shipped = IcebergCommitter.small_files

    def once(self: IcebergCommitter, *more: Any) -> Any:
        looks.append(1)
        if len(looks) > 1:
            raise DataUnavailable("METADATA_CORRUPT", "cannot be read")
        return shipped(self, *more)

    monkeypatch.setattr(IcebergCommitter, "small_files", once)
    lake.before_commit(lambda: append(lake.theirs(), [(20, "b", "theirs")]))
    assert lake.write((7, "a", "new"))["files_taken_along"] == 0
    assert_rows(table, [*OLD, (7, "a", "new"), (20, "b", "theirs")])
    assert_no_orphans(table)


def test_a_repeat_says_what_was_taken_along_the_first_time(lake: Writing) -> None:
    lake.table(*BATCHES, properties=ON)
    first = lake.write((7, "a", "new"), repeat="k")
    again = lake.write((7, "a", "new"), repeat="k")
    assert again["already_done"]
    told = ("files_taken_along", "bytes_taken_along", "snapshot_id")
    assert [again[name] for name in told] == [first[name] for name in told]


def test_values_that_duckdb_would_change_come_through_a_merge(lake: Writing) -> None:
    table = lake.table(properties=ON)
    with table.update_schema() as change:
        for name, kind in {"d": DoubleType(), "f": FixedType(2), "u": UUIDType(), "t": TimestamptzType()}.items():
            change.add_column(name, kind)
    records = [
        {"id": 1, "p": "a", "d": -0.0, "f": "AAE=", "u": "12345678-1234-5678-9234-567812345678"},
        {"id": 2, "p": "a", "d": "NaN", "t": "2025-01-17T05:01:00Z"},
    ]
    for record in records:
        lake.send([record], mode="append")
    assert files_of(table, "a") == 1
    found = {row["id"]: row for row in table.refresh().scan().to_arrow().to_pylist()}
    assert str(found[1]["d"]) == "-0.0"
    assert found[1]["f"] == b"\0\1"
    assert str(found[1]["u"]) == records[0]["u"]
    assert str(found[2]["d"]) == "nan"
    assert found[2]["t"] is not None


def test_upsert_after_upsert_leaves_three_files_at_most_for_hardly_more_bytes_and_the_rows_of_the_model(
    tmp_path: Path,
) -> None:
    """As `python -m benchmarks optimized_write` does a thousand times."""
    written: list[int] = []
    most: list[int] = []
    for name, properties in {"plain": {}, "optimized": ON}.items():
        lake, rng = Writing(tmp_path / name), random.Random(5)
        table, model = lake.table(properties=properties), dict[int, Row]()
        written.append(0)
        most.append(0)
        for number in range(30):
            old = [rng.randrange(len(model))] if number % 10 == 9 else []
            keys = [*old, *range(len(model), len(model) + 9)]
            batch = {key: (key, "ab"[key % 2], f"{number}") for key in keys}
            lake.write(*batch.values(), **UPSERT)
            model |= batch
            summary = table.refresh().current_snapshot().summary  # type: ignore[union-attr]
            written[-1] += int(summary.additional_properties["added-files-size"])  # type: ignore[union-attr]
            most[-1] = max(most[-1], *(files_of(table, p) for p in "ab"))
        assert_rows(table, list(model.values()))
        assert_no_orphans(table)
    assert most[1] <= 3 < most[0]
    assert written[1] <= 2 * written[0]
