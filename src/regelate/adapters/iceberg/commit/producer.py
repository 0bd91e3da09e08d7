"""Makes one snapshot out of a branch's head and a change: manifests, manifest list, summary, updates and requirements.

One producer for append, overwrite, delete and replace. It owns what PyIceberg's private producer cannot do (traps T6:
new deletes are looked for from the head, T7: a landed commit is cleaned up, T10: an append fails an overwrite, T11: no
`replace`, no v3, no old numbers): operation `replace`, an explicit data sequence number for added files (law 4: the old
sequence number stays), delete files dropped in the same commit (law 6: delete files leave last), and manifests without
any of the removed files carried over untouched.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from regelate.adapters.iceberg.commit.expiry import restoring_updates
from regelate.adapters.iceberg.commit.head_contents import write_group
from regelate.adapters.iceberg.commit.manifest_writing import ManifestFiles, merge_manifests
from regelate.adapters.iceberg.commit.native import native_data_file
from regelate.adapters.iceberg.commit.removal import Removal
from regelate.adapters.iceberg.commit.summary import snapshot_summary
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.manifest_writer import write_manifest_list
from regelate.adapters.iceberg.metadata.snapshot import branch_head
from regelate.core.running.commit import SnapshotChange
from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.table import MAIN_BRANCH
from regelate.core.upkeep.quarantine import Restoration
from regelate.ports.files import Ledger

log = logging.getLogger(__name__)


@dataclass
class Produced:
    """What one attempt would commit, and every metadata file that it wrote."""

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    written: tuple[str, ...]


class SnapshotProducer:
    """Builds one attempt on a loaded table. Writes metadata files; never touches data files or the catalog.

    Their names, and `others` that the commit itself will write, are in the ledger before the first of them exists.
    """

    def __init__(
        self,
        table: Table,
        reader: ManifestReader,
        ledger: Ledger,
        others: Sequence[str] = (),
        *,
        ref: str = MAIN_BRANCH,
    ) -> None:
        self._table = table
        self._ledger = ledger
        self._others = others
        self._metadata = table.metadata
        self._reader = reader
        self._ref = ref
        self.written: list[str] = []

    def produce(self, change: SnapshotChange) -> Produced:
        """Write the metadata files of one attempt; `written` lists them, also when a fault cuts the work short."""
        head = branch_head(self._metadata, self._ref)
        listed = self._reader.manifests(self._table.io, head.manifest_list) if head else ()
        regrouped = {path for group in change.manifest_groups for path in group.paths}
        removal = Removal(change)
        touched, carried = self._parted([m for m in listed if m.manifest_path not in regrouped], removal)
        files = ManifestFiles(self._table, change.snapshot_id, uuid.uuid4(), self._ledger.record, self._others)
        self.written = files.written
        if change.manifest_groups:
            by_path = {m.manifest_path: m for m in listed}
            made = [m for g in change.manifest_groups for m in write_group(files, self._reader, by_path, g)]
            manifests, counts = [*made, *carried], _manifest_counts(made, carried, regrouped)
        else:
            rewritten = self._rewritten(files, touched, removal)
            removal.check()
            manifests, counts = [*self._added(files, change), *rewritten, *carried], {}
            manifests = merge_manifests(manifests, files, self._reader, self._metadata.properties)
            self._drop_merged(files, {m.manifest_path for m in manifests})
        sequence_number = self._metadata.next_sequence_number()
        files.written.append(files.list_path)
        write_manifest_list(
            self._table.io.new_output(files.list_path),
            manifests,
            format_version=self._metadata.format_version,
            snapshot_id=change.snapshot_id,
            parent_id=head.snapshot_id if head else None,
            sequence_number=sequence_number,
        )
        snapshot = Snapshot(
            snapshot_id=change.snapshot_id,
            parent_snapshot_id=head.snapshot_id if head else None,
            sequence_number=sequence_number,
            timestamp_ms=self._next_ms(head),
            manifest_list=files.list_path,
            summary=Summary(
                Operation(change.operation),
                **snapshot_summary(self._metadata, change, removal, (head.summary or {}) if head else None),
                **counts,
            ),
            schema_id=self._metadata.current_schema_id,
        )
        return Produced(
            updates=(
                *(self._restoring(change.restored, snapshot) if change.restored is not None else ()),
                AddSnapshotUpdate(snapshot=snapshot),
                self._moved(snapshot),
            ),
            requirements=self._requirements(head),
            written=tuple(files.written),
        )

    def _restoring(self, restored: Restoration, snapshot: Snapshot) -> tuple[TableUpdate, ...]:
        """Bring snapshots back, unless `snapshot` would get a number that was given since the table was loaded.

        The refs do not show it where main was rolled back meanwhile, and the number of the first snapshot that comes
        back hides it. So one of the very number goes ahead, which every catalog refuses then, and is gone at once.
        """
        ahead = snapshot.model_copy(update={"snapshot_id": self._metadata.new_snapshot_id()})
        return (
            AddSnapshotUpdate(snapshot=ahead),
            RemoveSnapshotsUpdate(snapshot_ids=[ahead.snapshot_id]),
            *restoring_updates(self._metadata, restored),
        )

    def _next_ms(self, head: Snapshot | None) -> int:
        """Return a time after everything that the table has seen, whatever this machine's clock says.

        Equal would not do: PyIceberg then takes the clock's time for the metadata's own, and Java refuses to load
        metadata that is a minute older than its last snapshot (trap T30: metadata older than its snapshot).
        """
        return max(int(time.time() * 1000), head.timestamp_ms if head else 0, self._metadata.last_updated_ms + 1)

    def _drop_merged(self, files: ManifestFiles, named: set[str]) -> None:
        """Delete manifests of this attempt that were merged into others: no list will ever name them.

        One that cannot be deleted is left to a sweep: it does not keep the attempt from being made.
        """
        for path in [p for p in files.written if p not in named]:
            files.written.remove(path)
            try:
                self._table.io.delete(path)
            except Exception as error:  # noqa: BLE001
                log.warning("cannot delete the merged manifest %s: %s", path, error)
                self._ledger.owe()

    def _requirements(self, head: Snapshot | None) -> tuple[TableRequirement, ...]:
        return (
            AssertTableUUID(uuid=self._metadata.table_uuid),
            AssertRefSnapshotId(ref=self._ref, snapshot_id=head.snapshot_id if head else None),
            AssertCurrentSchemaId(current_schema_id=self._metadata.current_schema_id),
            AssertDefaultSpecId(default_spec_id=self._metadata.default_spec_id),
        )

    def _moved(self, snapshot: Snapshot) -> SetSnapshotRefUpdate:
        """Move the branch to the snapshot and keep its own retention settings."""
        ref = self._metadata.refs.get(self._ref)
        return SetSnapshotRefUpdate(
            ref_name=self._ref,
            type=SnapshotRefType.BRANCH,
            snapshot_id=snapshot.snapshot_id,
            min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
            max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
            max_ref_age_ms=ref.max_ref_age_ms if ref else None,
        )

    def _parted(
        self, listed: Sequence[ManifestFile], removal: Removal
    ) -> tuple[list[ManifestFile], list[ManifestFile]]:
        """Tell the manifests that hold something that goes from those that are carried over as they are.

        One that holds nothing live any more is left out of the new list.
        """
        touched: list[ManifestFile] = []
        carried: list[ManifestFile] = []
        for manifest in listed:
            if removal.touches(manifest, self._entries(manifest)):
                touched.append(manifest)
            elif manifest.has_added_files() or manifest.has_existing_files():
                carried.append(manifest)
        return touched, carried

    def _entries(self, manifest: ManifestFile) -> Iterator[ManifestEntry]:
        """Read a manifest when, and as far as, it is asked for."""
        yield from self._reader.entries(self._table.io, manifest)

    def _added(self, files: ManifestFiles, change: SnapshotChange) -> list[ManifestFile]:
        by_spec: dict[int, list[NewDataFile]] = defaultdict(list)
        for new in change.added:
            by_spec[new.partition.spec_id].append(new)
        sequence_number = change.data_sequence_number if self._metadata.format_version > 1 else None
        return [
            manifest
            for spec_id, added in by_spec.items()
            for manifest in files.write(
                ManifestContent.DATA, spec_id, (_new_entry(new, change.snapshot_id, sequence_number) for new in added)
            )
        ]

    def _rewritten(self, files: ManifestFiles, touched: Sequence[ManifestFile], removal: Removal) -> list[ManifestFile]:
        """Write what is left and what is gone of all touched manifests together, one run of manifests per spec."""
        of_kind: dict[tuple[ManifestContent, int], list[ManifestFile]] = defaultdict(list)
        for manifest in touched:
            of_kind[(manifest.content, manifest.partition_spec_id)].append(manifest)
        return [
            written
            for (content, spec_id), edited in of_kind.items()
            for written in files.write(
                content, spec_id, (entry for m in edited for entry in removal.edited(m, self._entries(m)))
            )
        ]


def _new_entry(new: NewDataFile, snapshot_id: int, sequence_number: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        data_file=native_data_file(new),
    )


def _manifest_counts(
    made: Sequence[ManifestFile], kept: Sequence[ManifestFile], replaced: Collection[str]
) -> dict[str, str]:
    """Return what Iceberg's `BaseRewriteManifests` (1.10) says in its summary."""
    return {
        "manifests-created": str(len(made)),
        "manifests-kept": str(len(kept)),
        "manifests-replaced": str(len(replaced)),
        "entries-processed": str(sum(m.existing_files_count or 0 for m in made)),
    }
