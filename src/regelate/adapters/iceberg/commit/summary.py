"""The summary of a snapshot: what it added and removed, and the totals carried on from its parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata

from regelate.adapters.iceberg.commit.removal import Removal
from regelate.adapters.iceberg.metadata.partitions import is_unpartitioned
from regelate.core.running.commit import SnapshotChange

_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}
"""Iceberg's SnapshotSummary property names (1.10): total -> (what adds to it, what takes from it)."""


def snapshot_summary(
    metadata: TableMetadata,
    change: SnapshotChange,
    removal: Removal,
    parent: Mapping[str, str] | None,
) -> dict[str, str]:
    """Return the summary properties besides `operation`. A total whose parent is unknown is left out, never guessed."""
    counts = Counter(removal.counts)
    touched = set(removal.partitions)
    for new in change.added:
        counts["added-data-files"] += 1
        counts["added-records"] += new.record_count
        counts["added-files-size"] += new.size_bytes
        touched.add((new.partition.spec_id, new.partition.key))
    summary = {key: str(value) for key, value in counts.items() if value}
    if any(not is_unpartitioned(spec) for spec in metadata.specs().values()):
        summary["changed-partition-count"] = str(len(touched))
    for total, (plus, minus) in _TOTALS.items():
        before = "0" if parent is None else parent.get(total)
        if before is not None and before.lstrip("-").isdigit():
            summary[total] = str(int(before) + counts[plus] - counts[minus])
    return {**summary, **change.summary}
