"""Files of other writers are read as Iceberg reads them, by COMPACT, its verification, QUERY and upsert, or refused by
name (traps T37 and T40)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from regelate.core.policy.table_properties import MAPPING_PROPERTY as NAME_MAPPING
from regelate.core.requests import QueryRequest
from regelate.errors import Unsupported
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.foreign_files import ABC, BY_A, FOREIGN, abc, mixed, put, renamed
from tests.support.iceberg_tables import live_data_paths, local_path, rows, stored_files
from tests.support.lake import Lake, address, in_table_order

READ = [name for name, kind in FOREIGN.items() if kind.rows is not None]
REFUSED = [name for name, kind in FOREIGN.items() if kind.rows is None]


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else value


def plain_rows(found: Any) -> list[str]:
    return sorted(repr([plain(value) for value in row]) for row in found)


def queried(lake: Lake, table: Table, **request: Any) -> list[str]:
    answer = lake.service.queries.query(address(table), QueryRequest(**{"limit": 100, **request}))
    return plain_rows(row.values() for row in answer.rows)


@pytest.mark.parametrize("kind", READ)
def test_row_64_foreign_files_are_read_as_iceberg_reads_them_before_and_after_a_compaction(
    lake: Lake, kind: str
) -> None:
    table = FOREIGN[kind].make(lake, "db.t")
    expected = plain_rows(FOREIGN[kind].rows)
    assert queried(lake, table) == expected
    answer = lake.compact(table, options={"rewrite-all": "true"}, verify="strict")
    assert answer["status"] == "COMPLETED", answer
    assert queried(lake, table) == expected
    assert plain_rows(rows(table.refresh())) == expected


@pytest.mark.parametrize("kind", REFUSED)
def test_row_64_foreign_files_that_nobody_reads_rightly_are_refused_by_name(lake: Lake, kind: str) -> None:
    table = FOREIGN[kind].make(lake, "db.t")
    before = live_data_paths(table), stored_files(table)
    row = {"id": 0, "r": "x"} if kind.startswith("a required") else {"id": 0}
    for act in (
        lambda: queried(lake, table),
        lambda: lake.compact(table, options={"rewrite-all": "true"}),
        lambda: lake.write(table, [row], mode="upsert", key=["id"]),
    ):
        with pytest.raises(Unsupported) as caught:
            act()
        assert (caught.value.code, caught.value.status) == ("UNSUPPORTED_TABLE", 501)
        assert FOREIGN[kind].word in str(caught.value.details["reason"])
        assert not [sign for sign in ("SELECT", "Error:", "iceberg_scan", "0x") if sign in caught.value.message]
    assert (live_data_paths(table.refresh()), stored_files(table)) == before


@pytest.mark.parametrize("strategy", [{}, {"strategy": "sort", "sort_order": [{"column": "id"}]}])
def test_deletes_by_position_reach_files_without_field_ids(lake: Lake, strategy: dict[str, Any]) -> None:
    table = mixed(lake, "db.t")
    second = in_table_order(table)[1]
    add_position_deletes(table, {second: [0]})
    expected = plain_rows([(0, "A", "B"), (2, "A", "B"), (3, None, "B")])
    assert queried(lake, table) == expected
    lake.compact(table, force=True, verify="strict", **strategy)
    assert queried(lake, table) == expected


def test_an_upsert_carries_rows_of_files_without_field_ids_over_as_iceberg_reads_them(lake: Lake) -> None:
    table = lake.table(ABC)
    for number in (0, 10):
        put(table, pa.concat_tables([abc(number), abc(number + 1)]))
    renamed(("a", "x"), ("b", "a"))(table)
    lake.write(table, [{"id": 0, "x": "new", "a": "N"}], mode="upsert", key=["id"])
    expected = plain_rows([(0, "new", "N"), (1, "A", "B"), (10, "A", "B"), (11, "A", "B")])
    assert queried(lake, table) == expected


def test_a_filter_on_a_renamed_column_finds_the_rows_of_files_without_field_ids(lake: Lake) -> None:
    table = FOREIGN["renamed and its name given to another"].make(lake, "db.t")
    found = queried(lake, table, filter={"a": "B", "x": "A"})
    assert found == plain_rows([(0, "A", "B"), (1, "A", "B")])
    assert queried(lake, table, filter={"a": "A"}) == []


def test_one_group_of_unreadable_files_does_not_stop_the_others(lake: Lake) -> None:
    table = lake.table(ABC, spec=BY_A)
    for number in range(3):
        put(table, abc(number), [1, 2, 3], partition=Record("A"))
        put(table, pa.table({"b": ["B"], "id": [number]}), partition=Record("Z"))
    answer = lake.compact(table, force=True)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "UNSUPPORTED_TABLE")
    assert answer["stats"]["files_added"] == 1


def test_an_equality_delete_without_field_ids_is_refused(lake: Lake) -> None:
    table = lake.table(ABC, [(1, "A", "B")], [(2, "A", "B")])
    path = add_equality_deletes(table, ["id"], [(1,)])
    pq.write_table(pa.table({"id": [1]}), local_path(path))
    with pytest.raises(Unsupported) as caught:
        queried(lake, table)
    assert caught.value.code == "UNSUPPORTED_DELETES"
    assert caught.value.details["path"] == path


def test_a_column_added_after_files_without_field_ids_is_null_in_them(lake: Lake) -> None:
    table = lake.table(ABC)
    for number in range(2):
        put(table, abc(number))
    with table.update_schema() as update:
        update.add_column("late", StringType())
    lake.compact(table, force=True, verify="strict")
    assert rows(table.refresh()) == [(0, "A", "B", None), (1, "A", "B", None)]


SWAPPED = json.dumps([{"field-id": i, "names": [name]} for i, name in ((1, "id"), (2, "b"), (3, "a"))])


@pytest.mark.parametrize(("first", "then"), [(None, SWAPPED), (SWAPPED, None)], ids=["set", "unset"])
def test_another_name_mapping_set_while_files_without_field_ids_are_rewritten_is_a_conflict(
    lake: Lake, first: str | None, then: str | None
) -> None:
    def by(mapping: str | None) -> None:
        with table.refresh().transaction() as change:
            if mapping is not None:
                change.set_properties({NAME_MAPPING: mapping})
            elif NAME_MAPPING in table.properties:
                change.remove_properties(NAME_MAPPING)

    table = lake.table(ABC)
    for number in range(2):
        put(table, abc(number))
    by(first)
    assert lake.compact_or_conflict(table, force=True, between=lambda: by(then)) == "SCHEMA_CHANGED"
    now = plain_rows([(n, "A", "B") if then is None else (n, "B", "A") for n in range(2)])
    assert queried(lake, table) == now
    lake.compact(table, force=True, verify="strict")
    assert queried(lake, table) == now
