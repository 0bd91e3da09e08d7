"""Row 53 of the fault catalogue: an orphan cleanup beside writers, clocks and spellings."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.iceberg_tables import local_path, rows, stored_files
from tests.system.faults.stack import Stack, request
from tests.system.faults.test_expiry import NextMonth

HOUR_SECONDS = 3600


@pytest.fixture
def folder(stack: Stack) -> Path:
    """The folder of a table `t` of two rows, all of whose files are four days old."""
    stack.create("t", {"id": "long"}, partition_spec=[{"source": "id", "transform": "identity"}])
    stack.ok("WRITE", "t", records=[{"id": 1}, {"id": 2}])
    found = local_path(stack.table("default.t").location())
    for path in found.rglob("*"):
        set_age(path, 96)
    return found


def set_age(path: Path, hours: float) -> None:
    os.utime(path, (time.time() - hours * HOUR_SECONDS,) * 2)


def put(folder: Path, name: str, hours: float) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows that nobody has committed")
    set_age(path, hours)
    return path


def test_row_53_files_that_a_writer_has_not_committed_yet_are_young_and_stay(stack: Stack, folder: Path) -> None:
    young, old = put(folder, "data/id=3/young.parquet", 71), put(folder, "data/id=3/old.parquet", 73)
    answer = stack.ok("REMOVE_ORPHAN_FILES", "t", dry_run=False)
    assert (answer["files_deleted"], answer["young_files"]) == (1, 1)
    assert (young.exists(), old.exists()) == (True, False)
    assert len(rows(stack.table("default.t"))) == 2


def test_row_53_a_clock_of_ours_that_runs_ahead_makes_no_file_old(stack: Stack, folder: Path) -> None:
    young = put(folder, "data/id=3/young.parquet", 1)
    stack.built.again(clock=NextMonth())
    answer = stack.ok("REMOVE_ORPHAN_FILES", "t", dry_run=False)
    assert (answer["files_deleted"], answer["young_files"]) == (0, 1)
    assert young.exists()


def test_row_53_a_stored_name_that_differs_by_url_encoding_refuses_everything(stack: Stack, folder: Path) -> None:
    live = next(folder.rglob("data/id=1/*.parquet"))
    encoded = put(folder, f"data/id%3D1/{live.name}", 96)
    orphan = put(folder, "data/id=3/orphan.parquet", 96)
    with stack.untouched():
        error = stack.refused(
            409, "PATH_MISMATCH", ["nothing was deleted"], request("REMOVE_ORPHAN_FILES", "t", dry_run=False)
        )
    assert len(error["details"]["mismatches"]) == 1
    assert encoded.exists()
    assert orphan.exists()


def test_row_53_less_than_the_least_age_is_refused(stack: Stack, folder: Path) -> None:
    put(folder, "data/id=3/orphan.parquet", 50)
    with stack.untouched():
        body = request("REMOVE_ORPHAN_FILES", "t", older_than_hours=48, dry_run=False)
        stack.refused(400, "INVALID_RETENTION", ["older_than_hours", "between 72"], body)
        stack.refused(400, "INVALID_RETENTION", ["older_than_hours"], request("MAINTAIN", "t", older_than_hours=48))


def test_row_53_without_being_told_to_nothing_is_deleted(stack: Stack, folder: Path) -> None:
    put(folder, "data/id=3/orphan.parquet", 96)
    with stack.untouched():
        assert stack.ok("REMOVE_ORPHAN_FILES", "t")["orphan_files"] == 1
    before = stored_files(stack.table("default.t"))
    assert stack.ok("MAINTAIN", "t", steps=["orphans"])["bytes_freed"] == 30
    assert stored_files(stack.table("default.t")) == before - {"data/id=3/orphan.parquet"}
