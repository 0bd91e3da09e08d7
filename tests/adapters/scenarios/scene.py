"""The table that scenarios play on, and questions to its manifests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from regelate.errors import RegelateError
from tests.support.iceberg_tables import live_data_paths
from tests.support.lake import Lake
from tests.support.meanwhile import fresh
from tests.support.table_model import model_rows

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


def batch(start: int, p: str = "x", count: int = 5) -> list[tuple[int, str]]:
    return [(start + i, p) for i in range(count)]


def of(p: str, table: Table) -> list[str]:
    """The live data files of a partition."""
    return [path for path in live_data_paths(table.refresh()) if f"/p={p}/" in path]


def ids(table: Table) -> list[int]:
    """The ids of all rows, as the independent reader sees them."""
    return sorted(int(row[1:].split(",")[0]) for row in model_rows(table))


def head_entries(table: Table, status: ManifestEntryStatus, content: ManifestContent) -> list[ManifestEntry]:
    """The entries of one status that the head's own manifests hold."""
    head = table.refresh().current_snapshot()
    assert head is not None
    own = [m for m in head.manifests(table.io) if m.content == content]
    found = [e for m in own for e in m.fetch_manifest_entry(table.io, discard_deleted=False)]
    return [e for e in found if e.status == status and e.snapshot_id == head.snapshot_id]


def paths(entries: list[ManifestEntry]) -> list[str]:
    return sorted(e.data_file.file_path for e in entries)


def snapshots(table: Table) -> list[str]:
    """The operations of the table's history, oldest first."""
    return [s.summary.operation.value for s in table.refresh().snapshots() if s.summary is not None]


def then(table: Table, *acts: Callable[[Table], Any], expected: list[str] | None = None) -> Callable[[], None]:
    """Return a hook in which another client acts; `expected` then holds the rows that the table has afterwards."""

    def meanwhile() -> None:
        for act in acts:
            act(fresh(table))
        if expected is not None:
            expected[:] = model_rows(fresh(table))

    return meanwhile


def refused(lake: Lake, table: Table, **request: Any) -> RegelateError:
    """COMPACT must end with an error: return it."""
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, **request)
    return caught.value
