"""Rows 54 and 55: what is too much for this machine is tried once in halves, or refused, and the service lives on."""

from __future__ import annotations

import errno
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from regelate.adapters.iceberg.files.outputs import TableOutputs
from regelate.core.policy.policy import PlacementPolicy
from regelate.errors import ResourceExhausted
from tests.support.iceberg_tables import stored_files
from tests.support.lake import Lake

MB = 2**20
SMALL = PlacementPolicy(memory_bytes=64 * MB, threads=1)
LONGS = Schema(NestedField(1, "id", LongType()))
TEXTS = Schema(NestedField(1, "id", StringType()))
RECODED = {"splice": "never"}
"""Row groups that are copied as they are need no memory to speak of."""


class SmallLake(Lake):
    """On a machine of one processor, 64 MB, and a spill folder of a given size."""

    spill = "10GB"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, placement=SMALL, prepare=self._limit)

    def _limit(self, connection: Any) -> None:
        connection.execute(f"SET max_temp_directory_size = '{self.spill}'")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """A lake on a small machine, whose temporary folder is the test's own."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return SmallLake(tmp_path / "lake")


def longs(lake: SmallLake, rows: int, files: int = 2) -> Table:
    """Numbers that a sort must hold, so many in each file."""
    table, random = lake.table(LONGS), np.random.default_rng(1)
    for _ in range(files):
        table.append(pa.table({"id": pa.array(random.integers(0, 2**62, rows))}))
    return table


def texts(lake: SmallLake, rows: int) -> Table:
    """Texts of a megabyte that one row group must hold at once, so many in each of two files."""
    table, random = lake.table(TEXTS), np.random.default_rng(1)
    for _ in range(2):
        found = [random.integers(33, 126, MB, dtype=np.uint8).tobytes().decode() for _ in range(rows)]
        table.append(pa.table({"id": pa.array(found)}))
    return table


def sort(lake: SmallLake, table: Table) -> dict[str, Any]:
    return lake.compact(table, force=True, strategy="sort", sort_order=[{"column": "id"}])


def content(table: Table) -> pa.Table:
    """All rows, in order; no text of each is made, as of a model: there are millions."""
    return table.refresh().scan().to_arrow().sort_by("id")


def temporary_files() -> list[Path]:
    return list(Path(tempfile.gettempdir()).iterdir())


def assert_alive(lake: SmallLake, table: Table) -> None:
    """Nothing is left in the temporary folder, and the same built does the work on a larger machine."""
    assert temporary_files() == []
    before = content(table)
    lake.built.again(placement=replace(lake.built.placement, memory_bytes=1024 * MB))
    lake.spill = "10GB"
    assert lake.compact(table, force=True)["status"] in ("COMPLETED", "NOTHING_TO_DO")
    assert content(table).equals(before)
    assert temporary_files() == []


def test_row_54_a_group_that_fills_the_spill_folder_is_rewritten_in_halves(lake: SmallLake) -> None:
    table = longs(lake, 1_250_000)
    lake.spill = "0B"
    before = content(table)
    answer = sort(lake, table)
    assert (answer["status"], answer["stats"]["files_compacted"], answer["stats"]["files_added"]) == ("COMPLETED", 2, 2)
    assert answer["stats"]["dropped_groups"] == 0
    assert content(table).equals(before)
    assert_alive(lake, table)


def test_row_54_a_spill_folder_that_is_full_for_the_halves_too(lake: SmallLake) -> None:
    table = longs(lake, 3_000_000)
    lake.spill = "0B"
    before = stored_files(table), table.refresh().metadata_location
    with pytest.raises(ResourceExhausted) as caught:
        sort(lake, table)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("LOCAL_STORAGE_FULL", 507, False)
    assert (stored_files(table), table.refresh().metadata_location) == before
    assert_alive(lake, table)


def test_row_54_a_disk_that_is_full_for_the_outputs(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = longs(lake, 1000)
    before = stored_files(table), table.refresh().metadata_location

    def full(*arguments: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TableOutputs, "publish", full)
    with pytest.raises(ResourceExhausted) as caught:
        lake.compact(table, force=True)
    assert (caught.value.code, caught.value.status) == ("LOCAL_STORAGE_FULL", 507)
    assert (stored_files(table), table.refresh().metadata_location) == before
    monkeypatch.undo()
    assert lake.compact(table, force=True)["status"] == "COMPLETED"


def test_row_55_a_group_that_is_too_much_for_memory_is_rewritten_in_halves(lake: SmallLake) -> None:
    table = texts(lake, 10)
    before = content(table)
    answer = lake.compact(table, force=True, options=RECODED)
    assert (answer["status"], answer["stats"]["files_compacted"], answer["stats"]["files_added"]) == ("COMPLETED", 2, 2)
    assert answer["stats"]["commit_attempts"] == 1
    assert content(table).equals(before)
    assert_alive(lake, table)


def test_row_55_memory_that_is_too_little_for_the_halves_too(lake: SmallLake) -> None:
    table = texts(lake, 24)
    before = stored_files(table), table.refresh().metadata_location
    with pytest.raises(ResourceExhausted) as caught:
        lake.compact(table, force=True, options=RECODED)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("OUT_OF_MEMORY", 507, False)
    assert (stored_files(table), table.refresh().metadata_location) == before
    assert_alive(lake, table)
