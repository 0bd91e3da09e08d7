"""A COMPACT changes no row: deletes of both kinds, evolved schemas and specs, odd names and values.

Every comparison is with `tests/support/table_model.py`, which shares nothing with the package.
"""

from __future__ import annotations

import random
from datetime import date

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, MonthTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from regelate.errors import RegelateError
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import (
    append,
    arrow_rows,
    live_data_files,
    live_data_paths,
    live_delete_paths,
    rows,
    stored_files,
)
from tests.support.lake import Lake, add_file, in_table_order
from tests.support.table_model import model_count, model_rows

PLAIN = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "v", DoubleType(), required=False),
)
NAN = float("nan")
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


def three(start: int = 0, p: str = "x") -> list[list[tuple[object, ...]]]:
    """Three batches of ten rows, ids from `start`."""
    return [[(start + 10 * b + i, p, float(i)) for i in range(10)] for b in range(3)]


# --- position deletes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact_bounds", [True, False])
def test_position_deletes_of_several_files_are_applied_and_leave_the_table(lake: Lake, exact_bounds: bool) -> None:
    table = lake.table(PLAIN, *three())
    first, second, _ = in_table_order(table)
    add_position_deletes(table, {first: [0, 9]}, exact_bounds=exact_bounds)
    add_position_deletes(table, {first: [9, 3], second: [5]}, exact_bounds=exact_bounds)
    answer = lake.assert_rows_kept(table)
    assert answer["stats"]["rows"] == 30 - 4
    assert answer["stats"]["delete_files_removed"] == 2
    assert live_delete_paths(table.refresh()) == []
    assert len(rows(table)) == 26


def test_duplicate_unsorted_far_and_homeless_positions_are_a_set(lake: Lake) -> None:
    table = lake.table(PLAIN, *three())
    first, second, _ = in_table_order(table)
    gone = "file:///nowhere/at/all.parquet"
    add_position_deletes(table, {first: [7, 2, 2, 7, 0, 10, 11, 10_000], second: [10], gone: [0, 1]})
    answer = lake.assert_rows_kept(table)
    assert answer["stats"]["rows"] == 27


def test_a_position_delete_older_than_a_file_of_the_same_name_does_not_touch_it(lake: Lake) -> None:
    """Sequence numbers decide, not paths alone: a delete never reaches a file that came later."""
    table = lake.table(PLAIN, *three())
    first = in_table_order(table)[0]
    add_position_deletes(table, {first: [1]})
    appended = append(table, [(99, "x", 1.0)])
    add_position_deletes(table, {first: [2], appended[0]: [5]})
    assert lake.assert_rows_kept(table)["stats"]["rows"] == 31 - 2


def test_position_deletes_stay_with_their_partition(lake: Lake) -> None:
    table = lake.table(PLAIN, *three(p="x"), *three(100, p="y"), spec=BY_P)
    ours = [p for p in live_data_paths(table) if "/p=x/" in p]
    theirs = [p for p in live_data_paths(table) if "/p=y/" in p]
    add_position_deletes(table, {ours[0]: [0], ours[1]: [1, 2]}, exact_bounds=False)
    add_position_deletes(table, {theirs[2]: [9]})
    assert lake.assert_rows_kept(table)["stats"]["rows"] == 56


# --- equality deletes -------------------------------------------------------------------------------------------------


def test_equality_deletes_of_one_and_of_several_columns_and_of_null_keys(lake: Lake) -> None:
    table = lake.table(PLAIN, *three(), [(None, "x", 1.0), (None, None, None), (5, None, 5.0)])
    add_equality_deletes(table, ["id"], [(13,), (14,), (13,), (777,)])
    add_equality_deletes(table, ["id", "p"], [(1, "x"), (2, "y"), (None, None)])
    add_equality_deletes(table, ["p"], [(None,)])
    append(table, [(13, "x", 0.0), (1, "x", 0.5), (None, None, None)])
    before = model_count(table)
    answer = lake.assert_rows_kept(table)
    assert before == answer["stats"]["rows"] == 33 - 2 - 1 - 2 + 3
    assert live_delete_paths(table.refresh()) == []


def test_an_equality_delete_of_one_partition_spares_the_same_key_in_another(lake: Lake) -> None:
    """Trap T2: DuckDB alone would delete key 3 in both partitions."""
    table = lake.table(PLAIN, *three(p="x"), *three(p="y"), spec=BY_P)
    add_equality_deletes(table, ["id"], [(3,), (12,)], partition={"p": "x"})
    lake.assert_rows_kept(table)
    left = [(row[0], row[1]) for row in rows(table.refresh())]
    assert (3, "x") not in left
    assert (3, "y") in left
    assert len(left) == 58


def test_a_global_equality_delete_reaches_every_partition_and_spec(lake: Lake) -> None:
    table = lake.table(PLAIN, [(1, "x", 0.0), (2, "x", 0.0)], [(1, "y", 0.0)])
    with table.update_spec() as update:
        update.add_identity("p")
    append(table, [(1, "x", 1.0), (3, "x", 1.0)])
    append(table, [(1, "y", 1.0), (4, "y", 1.0)])
    add_equality_deletes(table, ["id"], [(1,)])
    append(table, [(1, "x", 2.0), (5, "y", 2.0)])
    assert len(model_rows(table)) == 5
    lake.assert_rows_kept(table)
    assert [row[0] for row in rows(table.refresh())] == [1, 2, 3, 4, 5]


def test_equality_deletes_follow_a_renamed_and_a_promoted_key(lake: Lake) -> None:
    schema = Schema(NestedField(1, "k", IntegerType()), NestedField(2, "p", StringType()))
    table = lake.table(schema, [(i, "x") for i in range(5)], [(i, "y") for i in range(5, 10)])
    add_equality_deletes(table, ["k"], [(2,), (7,)])
    with table.update_schema() as update:
        update.update_column("k", LongType())
        update.rename_column("k", "key")
    append(table, [(2**40, "z"), (2, "z")])
    add_equality_deletes(table, ["key"], [(2**40,), (9,)])
    lake.assert_rows_kept(table)
    assert [row[0] for row in rows(table.refresh())] == [0, 1, 2, 3, 4, 5, 6, 8]


def test_both_kinds_of_deletes_on_the_same_rows_count_once(lake: Lake) -> None:
    table = lake.table(PLAIN, *three())
    first = in_table_order(table)[0]
    add_position_deletes(table, {first: [0, 1, 2]})
    add_equality_deletes(table, ["id"], [(0,), (1,), (20,), (25,)])
    add_position_deletes(table, {first: [2, 3]}, exact_bounds=False)
    assert lake.assert_rows_kept(table)["stats"]["rows"] == 24


def test_an_equality_delete_on_a_dropped_column_is_refused(lake: Lake) -> None:
    table = lake.table(PLAIN, *three())
    add_equality_deletes(table, ["v"], [(3.0,)])
    with table.update_schema() as update:
        update.delete_column("v")
    before = live_data_paths(table), stored_files(table)
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, force=True)
    assert (caught.value.code, caught.value.status) == ("UNSUPPORTED_DELETES", 501)
    assert (live_data_paths(table.refresh()), stored_files(table)) == before


def test_an_equality_delete_on_a_nested_column_is_refused(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "s", StructType(NestedField(3, "a", LongType()), NestedField(4, "b", StringType()))),
    )
    table = lake.table(
        schema, [(1, {"a": 1, "b": "x"}), (2, None)], [(3, {"a": 2, "b": "x"})], [(4, {"a": 1, "b": None})]
    )
    add_equality_deletes(table, ["s.a"], [{"s": {"a": 1}}])
    before = live_data_paths(table)
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, force=True)
    assert (caught.value.code, caught.value.status) == ("UNSUPPORTED_DELETES", 501)
    assert live_data_paths(table.refresh()) == before


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_a_group_whose_rows_are_all_deleted_leaves_without_an_empty_file(lake: Lake, kind: str) -> None:
    """Row 32."""
    table = lake.table(PLAIN, *three(p="x"), [(500, "y", 0.0)], spec=BY_P)
    dead = [p for p in live_data_paths(table) if "/p=x/" in p]
    if kind == "position":
        for path in dead:
            add_position_deletes(table, {path: range(10)})
    else:
        add_equality_deletes(table, ["id"], [(i,) for i in range(30)], partition={"p": "x"})
    stored = stored_files(table)
    answer = lake.compact(table, force=True)
    assert answer["status"] == "COMPLETED", answer
    assert (answer["stats"]["files_added"], answer["stats"]["rows"]) == (0, 0)
    assert [row[0] for row in rows(table.refresh())] == [500]
    assert live_delete_paths(table) == []
    assert [f for f in stored_files(table) - stored if f.startswith("data/")] == []


def test_files_without_rows_are_removed_and_no_empty_file_is_written(lake: Lake) -> None:
    """Row 18: PyIceberg and Spark both can leave empty data files behind."""
    table = lake.table(PLAIN)
    for _ in range(3):
        add_file(table, [])
    answer = lake.compact(table, force=True)
    assert (answer["stats"]["files_removed"], answer["stats"]["files_added"]) == (3, 0)
    assert live_data_paths(table.refresh()) == []
    add_file(table, [])
    append(table, [(1, "x", 1.0)])
    lake.assert_rows_kept(table)
    assert rows(table.refresh()) == [(1, "x", 1.0)]


def test_every_partition_empty_leaves_a_readable_empty_table(lake: Lake) -> None:
    table = lake.table(PLAIN, *three())
    add_equality_deletes(table, ["p"], [("x",)])
    lake.compact(table, force=True)
    table.refresh()
    assert rows(table) == []
    append(table, [(1, "x", 1.0)])
    assert rows(table) == [(1, "x", 1.0)]


# --- schema evolution -------------------------------------------------------------------------------------------------


def test_renamed_promoted_dropped_readded_and_reordered_columns_read_the_same(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "a", IntegerType()),
        NestedField(2, "b", StringType()),
        NestedField(3, "c", DoubleType()),
    )
    table = lake.table(schema, [(1, "one", 1.5)], [(2, None, None)])
    with table.update_schema() as update:
        update.rename_column("b", "bee")
        update.update_column("a", LongType())
        update.delete_column("c")
    append(table, [(2**40, "big")])
    with table.update_schema() as update:
        update.add_column("c", StringType())
        update.move_first("bee")
    append(table, [("three", 3, "new c")])
    lake.assert_rows_kept(table)
    assert sorted(rows(table.refresh()), key=lambda row: str(row[1])) == [
        ("one", 1, None),
        ("big", 2**40, None),
        (None, 2, None),
        ("three", 3, "new c"),
    ]


def test_nested_columns_that_were_added_renamed_and_promoted_read_the_same(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "s", StructType(NestedField(3, "x", IntegerType()), NestedField(4, "y", StringType()))),
        NestedField(5, "l", ListType(6, StructType(NestedField(7, "e", IntegerType())), element_required=False)),
        NestedField(8, "m", MapType(9, StringType(), 10, StructType(NestedField(11, "f", IntegerType())), False)),
    )
    table = lake.table(
        schema,
        [(1, {"x": 1, "y": "a"}, [{"e": 1}, None], [("k", {"f": 1})])],
        [(2, None, None, None), (3, {"x": None, "y": None}, [], [])],
    )
    with table.update_schema() as update:
        update.add_column(("s", "z"), LongType())
        update.rename_column("s.y", "why")
        update.update_column("s.x", LongType())
        update.add_column(("l", "g"), StringType())
        update.rename_column("l.element.e", "ee")
        update.add_column(("m", "h"), DoubleType())
    append(table, [(4, {"x": 2**40, "why": "b", "z": 7}, [{"ee": 5, "g": "q"}], [("j", {"f": 2, "h": -0.0})])])
    lake.assert_rows_kept(table)


def test_a_column_added_after_the_files_is_null_after_the_rewrite(lake: Lake) -> None:
    table = lake.table(PLAIN, *three())
    with table.update_schema() as update:
        update.add_column("late", StringType())
    lake.assert_rows_kept(table)
    assert {row[3] for row in rows(table.refresh())} == {None}


# --- partition evolution ----------------------------------------------------------------------------------------------


def test_files_of_every_spec_stay_in_their_own_spec(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "p", StringType()), NestedField(3, "d", DateType())
    )
    day = [(1, "x", date(2025, 1, 1)), (2, "x", date(2025, 1, 1))]
    table = lake.table(schema, day, day)
    with table.update_spec() as update:
        update.add_identity("p")
    for _ in range(2):
        add_file(table, day, Record("x"))
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(3), "b")
        update.add_field("d", MonthTransform(), "month")
    for bucket in (0, 0, 1, 1):
        add_file(table, day, Record("x", bucket, 660))
    with table.update_spec() as update:
        update.remove_field("month")
        update.add_field("d", DayTransform(), "day")
    for _ in range(2):
        add_file(table, day, Record("x", 2, 20089))
    with table.update_spec() as update:
        update.remove_field("p")
    for _ in range(2):
        add_file(table, day, Record(2, 20089))
    before = {(f.spec_id, repr(f.partition)) for f in live_data_files(table.refresh())}
    assert len(before) == 6
    lake.assert_rows_kept(table)
    after = [(f.spec_id, repr(f.partition)) for f in live_data_files(table.refresh())]
    assert set(after) == before
    assert len(after) == len(before)


def test_an_old_spec_whose_source_column_was_dropped_is_still_compacted(lake: Lake) -> None:
    table = lake.table(PLAIN, *three(p="x"), *three(30, p="y"), spec=BY_P)
    with table.update_spec() as update:
        update.remove_field("p")
    with table.update_schema() as update:
        update.delete_column("p")
    append(table, [(100, 1.0)])
    append(table, [(101, 1.0)])
    lake.assert_rows_kept(table)
    assert len(live_data_paths(table.refresh())) == 3


# --- everything together ----------------------------------------------------------------------------------------------


class History:
    """A table that random but repeatable events happen to: writes, deletes of both kinds, evolution, compactions."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.random = random.Random(seed)
        self.lake = lake
        self.table = lake.table(PLAIN, ident=f"db.history{seed}")
        self.names = 0

    def happen(self) -> None:
        self.table.refresh()
        event = self.random.choice(
            [self.append, self.append, self.append, self.positions, self.keys, self.evolve, self.spec]
        )
        event()

    def append(self) -> None:
        p = self.random.choice(["x", "y", "", None])
        rows = [
            (self.random.choice([None, *range(8)]), p, self.random.choice([0.0, -0.0, NAN, 1.5, None]))
            for _ in range(4)
        ]
        names = [field.name for field in self.table.schema().fields]
        content = arrow_rows(
            self.table, [dict.fromkeys(names) | dict(zip(self.held(), row, strict=False)) for row in rows]
        )
        append(self.table, content)

    def held(self) -> list[str]:
        """The names that the first three columns have now."""
        return [self.table.schema().find_column_name(i) or "gone" for i in (1, 2, 3)]

    def positions(self) -> None:
        files = live_data_files(self.table)
        if files:
            file = self.random.choice(files)
            near = [
                f.file_path for f in files if (f.spec_id, repr(f.partition)) == (file.spec_id, repr(file.partition))
            ]
            named = {path: [self.random.randrange(6) for _ in range(2)] for path in near[:2]}
            exact = bool(self.random.randrange(2))
            add_position_deletes(self.table, named, partition=file.partition, spec_id=file.spec_id, exact_bounds=exact)

    def keys(self) -> None:
        files = live_data_files(self.table)
        columns = self.random.choice([self.held()[:1], self.held()[:2], self.held()[2:]])
        pools = {0: [None, *range(8)], 1: ["x", "y", "", None], 2: [0.0, -0.0, NAN, None]}
        drawn = [tuple(self.random.choice(pools[self.held().index(c)]) for c in columns) for _ in range(2)]
        if files:
            file = self.random.choice(files)
            add_equality_deletes(self.table, columns, drawn, partition=file.partition, spec_id=file.spec_id)

    def evolve(self) -> None:
        self.names += 1
        with self.table.update_schema() as update:
            if self.random.randrange(2):
                update.add_column(f"new{self.names}", StringType())
            else:
                update.rename_column(self.held()[self.random.randrange(3)], f"name{self.names}")

    def spec(self) -> None:
        with self.table.update_spec() as update:
            if self.table.spec().is_unpartitioned():
                update.add_identity(self.held()[1])
            else:
                update.remove_field(self.table.spec().fields[0].name)


@pytest.mark.parametrize("seed", [0, 1, 2, 223])
def test_after_any_history_a_compaction_changes_no_row(lake: Lake, seed: int) -> None:
    history = History(lake, seed)
    for _ in range(2):
        for _ in range(12):
            history.happen()
        before = model_rows(history.table)
        lake.compact(history.table, force=True)
        assert model_rows(history.table) == before
        lake.compact(history.table, options={"rewrite-all": "true"})
        assert model_rows(history.table) == before
        assert live_delete_paths(history.table) == []
