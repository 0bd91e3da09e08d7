"""Where a planning snapshot stands in the history that a table's metadata shows."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from regelate.adapters.iceberg.tables.properties import gc_enabled
from regelate.core.running.conflict import Ancestry


def ancestry(metadata: TableMetadata, head: Snapshot | None, base_id: int) -> Ancestry:
    """Say what has become of a snapshot: still behind a branch's head, rolled back, expired, or hidden (trap T16: only
    the head is shown)."""
    by_id = {s.snapshot_id: s for s in metadata.snapshots}
    snapshot = head
    while snapshot is not None:
        if snapshot.snapshot_id == base_id:
            return Ancestry.ANCESTOR
        snapshot = by_id.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None
    if base_id in by_id:
        return Ancestry.ROLLED_BACK
    only_head = len(by_id) == 1 and not gc_enabled(metadata.properties)
    return Ancestry.HEAD_ONLY if only_head else Ancestry.EXPIRED


def superseded(base: TableMetadata, current: TableMetadata) -> list[str]:
    """Return the metadata files that a commit dropped from the log, where the table wants such files deleted.

    Iceberg's `write.metadata.delete-after-commit.enabled` (TableProperties, 1.10; default false).
    """
    if current.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true":
        return []
    kept = {entry.metadata_file for entry in current.metadata_log}
    return [entry.metadata_file for entry in base.metadata_log if entry.metadata_file not in kept]
