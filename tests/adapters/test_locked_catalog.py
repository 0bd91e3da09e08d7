"""A SQLite catalog whose lock another client holds: an attempt is lost for certain, and made again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.meanwhile import orphans, unnamed_metadata
from tests.system.faults.hooks import PatientClock
from tests.system.faults.stack import LOCAL_CATALOG, Stack, stack_with


class ReleasingClock(PatientClock):
    """The holder lets go while we wait for our second attempt."""

    def __init__(self, holder: sqlite3.Connection) -> None:
        super().__init__()
        self._holder = holder

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._holder.rollback()


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    impatient = {**LOCAL_CATALOG, "uri": LOCAL_CATALOG["uri"].replace("timeout=30", "timeout=0")}
    made = stack_with(tmp_path / "lake", auth="none", tenants="*", catalogs={"local": _placed(impatient, tmp_path)})
    made.create("t", {"id": "long"})
    for number in range(3):
        made.ok("WRITE", "t", records=[{"id": number}])
    return made


def _placed(catalog: dict[str, str], folder: Path) -> dict[str, str]:
    return {key: value.replace("${REGELATE_HOME}", str(folder / "lake")) for key, value in catalog.items()}


@pytest.mark.parametrize("operation", ["WRITE", "COMPACT"])
def test_a_locked_database_is_a_lost_attempt_and_the_next_one_lands(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    holder = sqlite3.connect(stack.folder / "catalog.db", isolation_level=None)
    catalog = stack.built.catalog()
    commit, sent = catalog.commit_table, list[bool]()

    def under_lock(*arguments: Any) -> Any:
        sent.append(True)
        if len(sent) == 1:
            holder.execute("BEGIN IMMEDIATE")
        return commit(*arguments)

    monkeypatch.setattr(catalog, "commit_table", under_lock)
    stack.built.again(clock=ReleasingClock(holder))
    body = {"records": [{"id": 3}]} if operation == "WRITE" else {"force": True, "expire_snapshots": False}
    answer = stack.ok(operation, "t", **body)
    holder.close()
    assert len(sent) == 2
    assert operation == "WRITE" or answer["stats"]["commit_attempts"] == 2
    table = stack.table("default.t")
    assert [row["id"] for row in stack.rows("t")] == list(range(4 if operation == "WRITE" else 3))
    assert (orphans(table), unnamed_metadata(table)) == (set(), set())


def test_a_database_that_stays_locked_is_a_conflict_and_not_an_unknown_outcome(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path for path in stack.stored().files if path.endswith(".parquet")}
    holder = sqlite3.connect(stack.folder / "catalog.db", isolation_level=None)
    stack.built.again(clock=PatientClock())
    holder.execute("BEGIN IMMEDIATE")
    body = {"operation": "WRITE", "tenant_id": "default", "table": "t", "records": [{"id": 3}]}
    error = stack.refused(409, "COMMIT_CONFLICT", ["try again"], body)
    assert error["retryable"]
    holder.rollback()
    holder.close()
    assert {path for path in stack.stored().files if path.endswith(".parquet")} == before
