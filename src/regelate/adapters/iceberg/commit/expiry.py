"""Expiry, and what undoes it, as metadata updates."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetPartitionStatisticsUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from regelate.adapters.iceberg.tables.properties import gc_enabled
from regelate.core.running.commit import ExpiryChange
from regelate.core.table.names import UNDO_TAG
from regelate.core.upkeep.quarantine import Restoration
from regelate.errors import NotAllowed

log = logging.getLogger(__name__)


class AssertNoOtherRefs(ValidatableTableRequirement):
    """No tag or branch was made meanwhile: removing a snapshot would silently take such a ref with it (trap T8: an
    expiry takes new refs with it).

    Checked by catalogs that validate in this process (SQL, Glue); a REST server only knows the requirements per ref.
    """

    type: str = "regelate-assert-no-other-refs"
    names: list[str]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        others = sorted(set(base_metadata.refs) - set(self.names)) if base_metadata is not None else []
        if others:
            raise CommitFailedException(f"refs were created meanwhile: {', '.join(others)}")


class AssertNoOtherStatistics(ValidatableTableRequirement):
    """No statistics of these snapshots were computed meanwhile: PyIceberg would keep those of partitions for ever.

    A server in Java drops them with their snapshot, and so needs no requirement.
    """

    type: str = "regelate-assert-no-other-statistics"
    snapshot_ids: list[int]
    paths: list[str]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        found = statistics_paths(base_metadata, self.snapshot_ids) if base_metadata is not None else []
        if sorted(found) != sorted(self.paths):
            raise CommitFailedException("statistics of a snapshot that is to go were computed meanwhile")


class RemovedAtOnce(RemoveSnapshotsUpdate):
    """The same update, for catalogs that apply it in this process: in a time that grows with the snapshots, where
    PyIceberg's own looks each of them up among all, twice: minutes for 70,000."""


@_apply_table_update.register(RemovedAtOnce)
def _removed_at_once(
    update: RemovedAtOnce, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    """Do what PyIceberg does for the update, by a set. Errors: CommitFailedException where a snapshot is gone."""
    gone = frozenset(update.snapshot_ids)
    if not gone <= {s.snapshot_id for s in base_metadata.snapshots}:
        raise CommitFailedException("snapshots that are to go are gone already")
    after = base_metadata
    for name in [name for name, ref in after.refs.items() if ref.snapshot_id in gone]:
        after = _apply_table_update(RemoveSnapshotRefUpdate(ref_name=name), after, context)
    for snapshot_id in dict.fromkeys(s.snapshot_id for s in after.statistics if s.snapshot_id in gone):
        after = _apply_table_update(RemoveStatisticsUpdate(snapshot_id=snapshot_id), after, context)
    context.add_update(update)
    kept = [s for s in base_metadata.snapshots if s.snapshot_id not in gone]
    orphaned = {"parent_snapshot_id": None}
    snapshots = [s.model_copy(update=orphaned) if s.parent_snapshot_id in gone else s for s in kept]
    log = [entry for entry in base_metadata.snapshot_log if entry.snapshot_id not in gone]
    return after.model_copy(update={"snapshots": snapshots, "snapshot_log": log})


def statistics_paths(metadata: TableMetadata, snapshot_ids: Collection[int]) -> list[str]:
    """Return the statistics files of these snapshots, those of their partitions too."""
    listed = (*metadata.statistics, *metadata.partition_statistics)
    return [s.statistics_path for s in listed if s.snapshot_id in snapshot_ids]


def expiry_updates(
    metadata: TableMetadata, change: ExpiryChange, *, validates_locally: bool = True
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return updates that remove the refs, then the snapshots with their statistics files, and requirements that every
    ref is still what it was, with catalogs that check in this process every statistics file too. A server in Java drops
    the statistics by itself; PyIceberg does not drop those of partitions."""
    gone = set(change.snapshot_ids)
    of_table = dict.fromkeys(s.snapshot_id for s in metadata.statistics if s.snapshot_id in gone)
    of_partitions = dict.fromkeys(s.snapshot_id for s in metadata.partition_statistics if s.snapshot_id in gone)
    updates: tuple[TableUpdate, ...] = (
        *(RemoveSnapshotRefUpdate(ref_name=name) for name in change.ref_names),
        *(RemoveStatisticsUpdate(snapshot_id=i) for i in of_table),
        *(RemovePartitionStatisticsUpdate(snapshot_id=i) for i in of_partitions),
        (RemovedAtOnce if validates_locally else RemoveSnapshotsUpdate)(snapshot_ids=list(change.snapshot_ids)),
    )
    requirements: list[TableRequirement] = [AssertTableUUID(uuid=metadata.table_uuid)]
    requirements += [AssertRefSnapshotId(ref=r.name, snapshot_id=r.snapshot_id) for r in change.expected_refs]
    if validates_locally:
        names = [r.name for r in change.expected_refs]
        requirements.append(AssertNoOtherRefs(names=names))  # type: ignore[arg-type]
        ids, paths = list(change.snapshot_ids), statistics_paths(metadata, gone)
        requirements.append(AssertNoOtherStatistics(snapshot_ids=ids, paths=paths))  # type: ignore[arg-type]
    return updates, tuple(requirements)


def refs_taken(after: TableMetadata, io: FileIO, change: ExpiryChange, made_on: str) -> tuple[str, ...] | None:
    """Return the refs, unknown to an expiry that has landed, that were on its snapshots in the metadata before it.

    That is the youngest one in the log of `after` that still has these snapshots. None where none can be found or read;
    a table without any log is believed.
    """
    if not change.snapshot_ids or not after.metadata_log:
        return ()
    gone, expected = set(change.snapshot_ids), {r.name for r in change.expected_refs}
    for entry in reversed(after.metadata_log):
        if entry.metadata_file == made_on:
            return ()
        try:
            before = FromInputFile.table_metadata(io.new_input(entry.metadata_file))
        except Exception as error:  # noqa: BLE001  the expiry has landed: what cannot be read is not known, no more
            log.warning("cannot read %s: %s", entry.metadata_file, error)
            return None
        if gone & {s.snapshot_id for s in before.snapshots}:
            return tuple(sorted(n for n, r in before.refs.items() if n not in expected and r.snapshot_id in gone))
    return None


def restoring_updates(metadata: TableMetadata, restored: Restoration) -> tuple[TableUpdate, ...]:
    """Return updates that add expired snapshots again. A newer snapshot must follow in the same commit.

    Both PyIceberg and Iceberg's `TableMetadata.Builder` take a snapshot with an old sequence number only without a
    parent, and then set the table's last sequence number and time BACK to its own; a later snapshot of the next number
    puts both right again. Oldest first, only the first has to lose its parent: each other one is newer than the last.
    """
    updates: list[TableUpdate] = []
    known = {s.snapshot_id for s in metadata.snapshots}
    last = metadata.last_sequence_number if metadata.format_version > 1 else 0  # type: ignore[union-attr]
    for text in (text for _, text in restored.snapshots):
        snapshot = Snapshot(**json.loads(text))
        number = snapshot.sequence_number or 0
        if metadata.format_version > 1 and (number <= last or snapshot.parent_snapshot_id not in known):
            snapshot = snapshot.model_copy(update={"parent_snapshot_id": None})
        updates.append(AddSnapshotUpdate(snapshot=snapshot))
        updates.append(_tag(snapshot.snapshot_id))
        known.add(snapshot.snapshot_id)
        last = number
    updates += [
        SetSnapshotRefUpdate(ref_name=name, **json.loads(text))
        for name, text in restored.refs
        if name not in metadata.refs and json.loads(text)["snapshot-id"] in known
    ]
    updates += [SetStatisticsUpdate(statistics=StatisticsFile(**json.loads(s))) for s in restored.statistics]
    updates += [
        SetPartitionStatisticsUpdate(partition_statistics=PartitionStatisticsFile(**json.loads(s)))
        for s in restored.partition_statistics
    ]
    return tuple(updates)


def _tag(snapshot_id: int) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=f"{UNDO_TAG}{snapshot_id}",
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        min_snapshots_to_keep=None,
        max_snapshot_age_ms=None,
        max_ref_age_ms=None,
    )


def check_gc(metadata: TableMetadata) -> None:
    """Refuse on `gc.enabled=false`: the files may belong to another table or to a catalog's own GC (Nessie)."""
    if not gc_enabled(metadata.properties):
        raise NotAllowed(
            "GC_DISABLED",
            "gc.enabled=false: this table's files must not be deleted from here; on Nessie use its own GC tool",
        )
