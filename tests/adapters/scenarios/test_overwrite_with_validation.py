"""Scenarios of apache/iceberg's TestOverwriteWithValidation: our own overwrites and rewrites beside other writers."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table import Table

from tests.adapters.scenarios.scene import batch, ids, of, then
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import append, live_delete_paths, rows
from tests.support.lake import Lake
from tests.support.meanwhile import fresh, orphans
from tests.support.table_model import model_rows

OVERWRITES: list[dict[str, Any]] = [
    {"mode": "overwrite_partitions"},
    {"mode": "upsert", "key": ["id"]},
]


def overwrite_beside(lake: Lake, table: Table, act: Any, **how: Any) -> None:
    """Send a WRITE of the row (10, x) and let another client act after the files are written, before the commit."""
    commit, done = lake.catalog.commit_table, list[bool]()

    def late(*arguments: Any) -> Any:
        if not done:
            done.append(True)
            act(fresh(table))
        return commit(*arguments)

    lake.catalog.commit_table = late  # type: ignore[method-assign]
    try:
        lake.write(table, [{"id": 10, "p": "x"}], **how)
    finally:
        lake.catalog.commit_table = commit  # type: ignore[method-assign]
    assert done


@pytest.mark.parametrize("how", OVERWRITES, ids=lambda how: how["mode"])
def test_concurrent_conflicting_position_deletes(lake: Lake, table: Table, how: dict[str, Any]) -> None:
    """TestOverwriteWithValidation.testConcurrentConflictingPositionDeletes: the overwrite is computed again."""
    victim = of("x", table)[2]
    before = [row[0] for row in rows(table) if row[1] == "x"]
    overwrite_beside(lake, table, lambda other: add_position_deletes(other, {victim: [1]}), **how)
    left = [i for i in ids(table) if i < 100]
    assert len(left) == len(set(left)) == (1 if how["mode"] == "overwrite_partitions" else 14)
    assert 10 in left
    assert set(left) <= set(before)
    assert orphans(table) == set()


@pytest.mark.parametrize("how", OVERWRITES, ids=lambda how: how["mode"])
def test_concurrent_conflicting_equality_deletes(lake: Lake, table: Table, how: dict[str, Any]) -> None:
    """TestOverwriteWithValidation.testConcurrentConflictingEqualityDeletes: what was deleted by key stays deleted, the
    row that is written after it stands."""

    def delete(other: Table) -> None:
        add_equality_deletes(other, ["id"], [(10,), (21,)], partition={"p": "x"})

    overwrite_beside(lake, table, delete, **how)
    left = [i for i in ids(table) if i < 100]
    assert 21 not in left
    assert left.count(10) == 1
    assert len(left) == (1 if how["mode"] == "overwrite_partitions" else 14)


@pytest.mark.parametrize("how", OVERWRITES, ids=lambda how: how["mode"])
def test_overwrite_compatible_rewrite_allowed(lake: Lake, table: Table, how: dict[str, Any]) -> None:
    """TestOverwriteWithValidation.testOverwriteCompatibleRewriteAllowed: a compaction lands first, the overwrite is
    computed on its outputs; and in the other order the compaction drops the group."""
    rival = Lake(lake.folder)
    overwrite_beside(lake, table, lambda other: rival.compact(other, expire_snapshots=False), **how)
    left = [i for i in ids(table) if i < 100]
    assert left == ([10] if how["mode"] == "overwrite_partitions" else [*range(5), *range(10, 15), *range(20, 25)])
    assert orphans(table) == set()
    append(table, batch(600))
    append(table, batch(700))
    expected: list[str] = []
    act = then(table, lambda other: rival.write(other, [{"id": 1, "p": "x"}], **how), expected=expected)
    assert lake.compact_or_conflict(table, between=act, force=True) in ("PARTIAL", "COMMIT_CONFLICT")
    assert model_rows(table) == expected


def test_overwrite_compatible_expiration_addition_validated(lake: Lake, table: Table) -> None:
    """TestOverwriteWithValidation.testOverwriteCompatibleExpirationAdditionValidated: an append and the expiry of
    older snapshots than the planning snapshot do no harm to a rewrite, nor to an overwrite."""
    first = table.snapshots()[0].snapshot_id

    def append_and_expire(other: Table) -> None:
        append(other, batch(500, "y"))
        other.maintenance.expire_snapshots().by_id(first).commit()

    expected: list[str] = []
    answer = lake.compact(table, between=then(table, append_and_expire, expected=expected))
    assert answer["status"] == "COMPLETED"
    assert model_rows(table) == expected
    second = table.refresh().snapshots()[0].snapshot_id

    def again(other: Table) -> None:
        append(other, batch(600, "y"))
        other.maintenance.expire_snapshots().by_id(second).commit()

    overwrite_beside(lake, table, again, mode="overwrite_partitions")
    assert [i for i in ids(table) if i < 100] == [10]
    assert len([i for i in ids(table) if i >= 100]) == 25
    assert live_delete_paths(table) == []
