"""Changes of branches and tags alone, as metadata updates."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from regelate.core.running.commit import RefChange


def ref_updates(
    metadata: TableMetadata, change: RefChange
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return updates that set and remove refs, and requirements that each of them is what it was judged to be."""
    updates: tuple[TableUpdate, ...] = (
        *(
            SetSnapshotRefUpdate(
                ref_name=ref.name,
                type=SnapshotRefType(ref.kind.value),
                snapshot_id=ref.snapshot_id,
                min_snapshots_to_keep=ref.min_snapshots_to_keep,
                max_snapshot_age_ms=ref.max_snapshot_age_ms,
                max_ref_age_ms=ref.max_ref_age_ms,
            )
            for ref in change.set_refs
        ),
        *(RemoveSnapshotRefUpdate(ref_name=name) for name in change.removed),
    )
    held = (AssertRefSnapshotId(ref=name, snapshot_id=snapshot_id) for name, snapshot_id in change.expected)
    return updates, (AssertTableUUID(uuid=metadata.table_uuid), *held)
