"""Inputs that another writer removes, and an expiry deletes, while a COMPACT reads them: a conflict, not a damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from regelate.errors import Conflict, DataUnavailable
from regelate.operations.compacting.compact import CompactionTools
from tests.support.deletes_writer import add_position_deletes
from tests.support.iceberg_tables import live_data_paths, live_delete_paths, local_path, rows, stored_files
from tests.support.lake import Lake
from tests.support.meanwhile import fresh, orphans

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


@pytest.fixture
def table(lake: Lake) -> Table:
    """Three files in each of the partitions x and y."""
    return lake.table(SCHEMA, *([(10 * n, "x"), (10 * n + 1, "x"), (100 + n, "y")] for n in range(3)), spec=BY_P)


def of(p: str, table: Table) -> list[str]:
    return [path for path in live_data_paths(fresh(table)) if f"/p={p}/" in path]


class BeforeReading:
    """An engine before whose rewrite something happens."""

    def __init__(self, engine: Any, act: Callable[[], object]) -> None:
        self._engine = engine
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def rewrite(self, *arguments: Any, **options: Any) -> Any:
        self._act()
        return self._engine.rewrite(*arguments, **options)


def before_reading(act: Callable[[], object]) -> Callable[[CompactionTools], CompactionTools]:
    return lambda tools: replace(tools, engine=BeforeReading(tools.engine, act))


def take_away(table: Table, p: str, paths: list[str]) -> None:
    """Delete a partition as another client does, and these files as its expiry would."""
    fresh(table).delete(EqualTo("p", p))
    for path in paths:
        local_path(path).unlink()


def test_row_24_the_group_of_inputs_that_are_gone_is_dropped_and_the_others_land(lake: Lake, table: Table) -> None:
    victims = of("x", table)
    act = before_reading(lambda: take_away(table, "x", victims[:1]))
    answer = lake.compact(table, force=True, tools=act, expire_snapshots=False)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_INPUT_REMOVED")
    assert "/p=x/" in answer["warnings"][0]
    assert len(of("y", table)) == 1
    assert rows(fresh(table)) == [(100, "y"), (101, "y"), (102, "y")]
    assert orphans(table) == set()


def test_row_24_where_every_input_is_gone_the_caller_plans_again(lake: Lake, table: Table) -> None:
    victims = {p: of(p, table) for p in "xy"}
    stored: set[str] = set()

    def act() -> None:
        for p in "xy":
            take_away(table, p, victims[p])
        stored.update(stored_files(table))

    with pytest.raises(Conflict) as caught:
        lake.compact(table, force=True, tools=before_reading(act))
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("COMMIT_CONFLICT", 409, True)
    assert len(caught.value.details["dropped"]) == 2  # type: ignore[arg-type]
    assert stored_files(table) == stored


def test_row_24_a_delete_file_that_is_gone_with_its_rows_is_a_conflict_too(lake: Lake) -> None:
    table = lake.table(SCHEMA, [(1, "x"), (2, "x")], [(3, "x")])
    delete = add_position_deletes(table, {live_data_paths(table)[0]: [0]})

    def act() -> None:
        assert Lake(lake.folder).compact(table, force=True, expire_snapshots=False)["status"] == "COMPLETED"
        assert live_delete_paths(fresh(table)) == []
        local_path(delete).unlink()

    with pytest.raises(Conflict) as caught:
        lake.compact(table, force=True, tools=before_reading(act))
    assert caught.value.code == "COMMIT_CONFLICT"
    assert orphans(table) == set()


def test_row_24_what_is_missing_and_still_in_the_table_is_missing(lake: Lake, table: Table) -> None:
    victim = of("x", table)[0]
    act = before_reading(local_path(victim).unlink)
    answer = lake.compact(table, force=True, tools=act, expire_snapshots=False)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "DATA_FILE_MISSING")
    assert victim in of("x", table)
    with pytest.raises(DataUnavailable):
        lake.compact(table, force=True)


def test_a_rollback_behind_the_plan_is_named_where_its_files_are_gone(lake: Lake, table: Table) -> None:
    first = table.snapshots()[0].snapshot_id
    victims = of("x", table)[2:]

    def act() -> None:
        fresh(table).manage_snapshots().set_current_snapshot(first).commit()
        for path in victims:
            local_path(path).unlink()

    with pytest.raises(Conflict) as caught:
        lake.compact(table, force=True, tools=before_reading(act))
    assert caught.value.code == "BASE_NOT_ANCESTOR"
    assert orphans(table) == set()
