"""What other clients of a table do while an operation runs, and how a test looks at what is left."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, ServiceUnavailableError
from pyiceberg.table import Table

from regelate.adapters.clock import SystemClock
from regelate.adapters.iceberg.commit.committer import IcebergCommitter
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.core.running.commit import Outcome, SnapshotChange
from regelate.core.running.rewrite import NewDataFile
from regelate.operations.compacting.compact import CompactionTools
from tests.support.iceberg_tables import NoLedger, live_data_files, local_path, stored_files
from tests.support.lake import Lake


class Impatient(SystemClock):
    """A clock on which waiting costs nothing."""

    def sleep(self, seconds: float) -> None:
        return None


def impatient(tools: CompactionTools) -> CompactionTools:
    return replace(tools, clock=Impatient())


def fresh(table: Table) -> Table:
    """The table as another client sees it: `table` itself is not to be moved by what others do."""
    return table.catalog.load_table(table.name())


def parquet(table: Table) -> set[str]:
    return {path for path in stored_files(table) if path.endswith(".parquet")}


def orphans(table: Table) -> set[str]:
    """Data and delete files in the store that no snapshot of the table ever named."""
    table.refresh()
    known = {
        local_path(e.data_file.file_path)
        for s in table.snapshots()
        for m in s.manifests(table.io)
        for e in m.fetch_manifest_entry(table.io, discard_deleted=False)
    }
    return {str(f) for f in local_path(table.location()).rglob("*.parquet")} - {str(path) for path in known}


def unnamed_metadata(table: Table) -> set[str]:
    """Manifests and manifest lists in the store that no snapshot of the table names."""
    table.refresh()
    named = {local_path(s.manifest_list).name for s in table.snapshots()}
    named |= {local_path(m.manifest_path).name for s in table.snapshots() for m in s.manifests(table.io)}
    return {path.name for path in local_path(table.location()).rglob("*.avro")} - named


def remove_files(
    table: Table, *, data: Sequence[str] = (), deletes: Sequence[str] = (), added: Sequence[NewDataFile] = ()
) -> None:
    """Take data and delete files out of the table in one snapshot, as another engine's rewrite does."""
    other = fresh(table)
    live = {f.file_path for f in live_data_files(other)}
    assert live >= set(data)
    committer = IcebergCommitter(other.catalog, other, ManifestReader(), NoLedger())
    change = SnapshotChange(
        operation="overwrite",
        snapshot_id=committer.new_snapshot_id(),
        summary={},
        added=tuple(added),
        removed=dict.fromkeys(data, ""),
        removed_entries=len(data),
        dropped_delete_paths=frozenset(deletes),
    )
    assert committer.try_commit(committer.head(), change) is Outcome.LANDED


def upgrade_to_v3(lake: Lake, table: Table, **changes: Any) -> None:
    """Make the table a v3 table as another engine would; PyIceberg 0.12 reads such metadata but cannot write it."""
    current = fresh(table)
    found = json.loads(local_path(current.metadata_location).read_text())
    place = current.metadata_location.replace(".metadata.json", "-v3.metadata.json")
    local_path(place).write_text(json.dumps({**found, "format-version": 3, "next-row-id": 0, **changes}))
    with sqlite3.connect(lake.folder / "catalog.db") as connection:
        sql = "UPDATE iceberg_tables SET metadata_location = ? WHERE metadata_location = ?"
        assert connection.execute(sql, (place, current.metadata_location)).rowcount == 1


class Line:
    """A line to the catalog that fails as told: per call of `commit_table` one of ok, refused, lost, dead."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch, *script: str, then_down: bool = False) -> None:
        self._commit, self._load = lake.catalog.commit_table, lake.catalog.load_table
        self._script = list(script)
        self.down, self._then_down = False, then_down
        self.calls = 0
        monkeypatch.setattr(lake.catalog, "commit_table", self._commit_table)
        monkeypatch.setattr(lake.catalog, "load_table", self._load_table)

    def _commit_table(self, *arguments: Any) -> Any:
        self.calls += 1
        step = self._script.pop(0) if self._script else "ok"
        found = self._commit(*arguments) if step in ("ok", "lost", "lost-as-conflict") else None
        self.down = self._then_down and not self._script
        if step in ("lost", "dead"):
            raise ConnectionError("connection reset")
        if step in ("refused", "lost-as-conflict"):
            raise CommitFailedException("someone was first")
        return found

    def _load_table(self, *arguments: Any) -> Any:
        if self.down:
            raise ServiceUnavailableError("no route")
        return self._load(*arguments)


def head_summary(table: Table) -> Mapping[str, str]:
    """The summary of the head, its operation included."""
    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.summary is not None
    return {"operation": head.summary.operation.value, **head.summary.additional_properties}
