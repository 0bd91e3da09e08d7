"""Expiry as metadata updates, and the deletion of files that no snapshot of any ref reaches afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.tasks import check_metadata
from regelate.errors import NotAllowed
from regelate.ports import ExpiryChange

log = logging.getLogger(__name__)


class AssertNoOtherRefs(ValidatableTableRequirement):
    """No tag or branch was made meanwhile: removing a snapshot would silently take such a ref with it (trap T8).

    Checked by catalogs that validate in this process (SQL, Glue); a REST server only knows the requirements per ref.
    """

    type: str = "regelate-assert-no-other-refs"
    names: list[str]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        others = sorted(set(base_metadata.refs) - set(self.names)) if base_metadata is not None else []
        if others:
            raise CommitFailedException(f"refs were created meanwhile: {', '.join(others)}")


def expiry_updates(
    metadata: TableMetadata, change: ExpiryChange, *, validates_locally: bool = True
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return updates that remove the refs, then the snapshots, and requirements that every ref is still what it was."""
    updates: tuple[TableUpdate, ...] = (
        *(RemoveSnapshotRefUpdate(ref_name=name) for name in change.ref_names),
        RemoveSnapshotsUpdate(snapshot_ids=list(change.snapshot_ids)),
    )
    requirements: list[TableRequirement] = [AssertTableUUID(uuid=metadata.table_uuid)]
    requirements += [AssertRefSnapshotId(ref=r.name, snapshot_id=r.snapshot_id) for r in change.expected_refs]
    if validates_locally:
        names = [r.name for r in change.expected_refs]
        requirements.append(AssertNoOtherRefs(names=names))  # type: ignore[arg-type]
    return updates, tuple(requirements)


class SnapshotReclaimer:
    """Deletes manifest lists, manifests, data and delete files that only expired snapshots reached.

    `base` gives the metadata that still had the expired snapshots, `load` the latest table: reachability counts over
    ALL snapshots of its metadata, so over every ref. Statistics
    files stay. Refuses with NotAllowed GC_DISABLED when the table forbids deletion, and format version 3.
    """

    def __init__(
        self, load: Callable[[], Table], base: Callable[[], TableMetadata | None], reader: ManifestReader
    ) -> None:
        self._load = load
        self._base = base
        self._reader = reader

    def check_allowed(self) -> None:
        metadata = self._load().metadata
        check_metadata(metadata)
        check_gc(metadata)

    def reclaim(self, expired: Sequence[int]) -> tuple[int, int]:
        """Return (files deleted, bytes freed)."""
        before = self._base()
        if before is None:
            return 0, 0
        table = self._load()
        check_gc(table.metadata)
        kept_ids = {s.snapshot_id for s in table.metadata.snapshots}
        gone = [s for s in before.snapshots if s.snapshot_id in expired and s.snapshot_id not in kept_ids]
        kept = self._manifests(table, table.metadata.snapshots)
        old = {p: m for p, m in self._manifests(table, gone).items() if p not in kept}
        candidates: dict[str, int] = {}
        for manifest in old.values():
            for entry in self._reader.all_entries(table.io, manifest):
                candidates[entry.data_file.file_path] = entry.data_file.file_size_in_bytes
        for manifest in kept.values():
            if not candidates:
                break
            for entry in self._reader.entries(table.io, manifest):
                candidates.pop(entry.data_file.file_path, None)
        sizes = {**candidates, **{p: m.manifest_length for p, m in old.items()}, **{s.manifest_list: 0 for s in gone}}
        deleted = [path for path in sizes if _delete(table, path)]
        return len(deleted), sum(sizes[path] for path in deleted)

    def _manifests(self, table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
        found: dict[str, ManifestFile] = {}
        for snapshot in snapshots:
            for manifest in self._reader.manifests(table.io, snapshot.manifest_list):
                found.setdefault(manifest.manifest_path, manifest)
        return found


def check_gc(metadata: TableMetadata) -> None:
    """Refuse on `gc.enabled=false`: the files may belong to another table or to a catalog's own GC (Nessie)."""
    if metadata.properties.get("gc.enabled", "true").lower() == "false":
        raise NotAllowed(
            "GC_DISABLED",
            "gc.enabled=false: this table's files must not be deleted from here; on Nessie use its own GC tool",
        )


def _delete(table: Table, path: str) -> bool:
    try:
        table.io.delete(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("cannot delete %s: %s", path, error)
        return False
    return True
