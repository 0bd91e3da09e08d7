"""Makes one snapshot out of a head and a change: manifests, manifest list, summary, updates and requirements.

One producer for append, overwrite, delete and replace. It owns what PyIceberg's private producer cannot do (traps T6,
T7,
T10, T11): operation `replace`, an explicit data sequence number for added files (law 4), delete files dropped in the
same commit (law 6), and manifests without any of the removed files carried over untouched.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import (
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
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

from regelate.adapters.iceberg.expiry import restoring_updates
from regelate.adapters.iceberg.manifest_writing import ManifestFiles, merge_manifests
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.native import native_data_file
from regelate.adapters.iceberg.summary import snapshot_summary
from regelate.adapters.iceberg.upkeep import write_group
from regelate.core.quarantine import Restoration
from regelate.core.table import MAIN_BRANCH
from regelate.errors import Conflict, InvariantViolated
from regelate.ports import Ledger, SnapshotChange

log = logging.getLogger(__name__)


@dataclass
class Produced:
    """What one attempt would commit, and every metadata file that it wrote."""

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    written: tuple[str, ...]


@dataclass
class _Edit:
    """Live entries of touched manifests, by content and spec: what stays and what goes."""

    kept: dict[tuple[ManifestContent, int], list[ManifestEntry]] = field(default_factory=lambda: defaultdict(list))
    gone: dict[tuple[ManifestContent, int], list[ManifestEntry]] = field(default_factory=lambda: defaultdict(list))
    carried: list[ManifestFile] = field(default_factory=list)

    def gone_entries(self) -> list[ManifestEntry]:
        return [e for entries in self.gone.values() for e in entries]


class SnapshotProducer:
    """Builds one attempt on a loaded table. Writes metadata files; never touches data files or the catalog.

    Their names, and `others` that the commit itself will write, are in the ledger before the first of them exists.
    """

    def __init__(self, table: Table, reader: ManifestReader, ledger: Ledger, others: Sequence[str] = ()) -> None:
        self._table = table
        self._ledger = ledger
        self._others = others
        self._metadata = table.metadata
        self._reader = reader
        self.written: list[str] = []

    def produce(self, change: SnapshotChange) -> Produced:
        """Write the metadata files of one attempt; `written` lists them, also when a fault cuts the work short."""
        head = self._metadata.current_snapshot()
        listed = self._reader.manifests(self._table.io, head.manifest_list) if head else ()
        regrouped = {path for group in change.manifest_groups for path in group.paths}
        edit = self._edit([m for m in listed if m.manifest_path not in regrouped], change)
        files = ManifestFiles(self._table, change.snapshot_id, uuid.uuid4(), self._ledger.record, self._others)
        self.written = files.written
        if change.manifest_groups:
            by_path = {m.manifest_path: m for m in listed}
            made = [m for g in change.manifest_groups for m in write_group(files, self._reader, by_path, g)]
            manifests, counts = [*made, *edit.carried], _manifest_counts(made, edit.carried, regrouped)
        else:
            manifests, counts = [*self._added(files, change), *self._rewritten(files, edit), *edit.carried], {}
            manifests = merge_manifests(manifests, files, self._reader, self._metadata.properties)
            self._drop_merged(files, {m.manifest_path for m in manifests})
        sequence_number = self._metadata.next_sequence_number()
        files.written.append(files.list_path)
        with write_manifest_list(
            self._metadata.format_version,
            self._table.io.new_output(files.list_path),
            change.snapshot_id,
            head.snapshot_id if head else None,
            sequence_number,
            files.compression,
        ) as writer:
            writer.add_manifests(manifests)
        snapshot = Snapshot(
            snapshot_id=change.snapshot_id,
            parent_snapshot_id=head.snapshot_id if head else None,
            sequence_number=sequence_number,
            timestamp_ms=self._next_ms(head),
            manifest_list=files.list_path,
            summary=Summary(
                Operation(change.operation),
                **snapshot_summary(self._metadata, change, edit.gone_entries(), (head.summary or {}) if head else None),
                **counts,
            ),
            schema_id=self._metadata.current_schema_id,
        )
        return Produced(
            updates=(
                *(self._restoring(change.restored, snapshot) if change.restored is not None else ()),
                AddSnapshotUpdate(snapshot=snapshot),
                _moved(self._metadata.refs.get(MAIN_BRANCH), snapshot),
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
        """Return a time after everything that the table has seen, whatever this machine's clock says (row 65).

        Equal would not do: PyIceberg then takes the clock's time for the metadata's own, and Java refuses to load
        metadata that is a minute older than its last snapshot (trap T30).
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
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=head.snapshot_id if head else None),
            AssertCurrentSchemaId(current_schema_id=self._metadata.current_schema_id),
            AssertDefaultSpecId(default_spec_id=self._metadata.default_spec_id),
        )

    def _edit(self, listed: Sequence[ManifestFile], change: SnapshotChange) -> _Edit:
        edit = _Edit()
        wanted = {ManifestContent.DATA: set(change.removed), ManifestContent.DELETES: set(change.dropped_delete_paths)}
        for manifest in listed:
            paths = wanted[manifest.content]
            known = manifest.manifest_path in change.base_manifests and manifest.content == ManifestContent.DATA
            if not paths or known:
                _carry(edit, manifest)
                continue
            entries = self._reader.entries(self._table.io, manifest)
            if not any(e.data_file.file_path in paths for e in entries):
                _carry(edit, manifest)
                continue
            key = (manifest.content, manifest.partition_spec_id)
            for entry in entries:
                (edit.gone if entry.data_file.file_path in paths else edit.kept)[key].append(entry)
        _check_removed(edit, change)
        return edit

    def _added(self, files: ManifestFiles, change: SnapshotChange) -> list[ManifestFile]:
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        sequence_number = change.data_sequence_number if self._metadata.format_version > 1 else None
        for new in change.added:
            spec_id = new.partition.spec_id
            by_spec[spec_id].append(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=change.snapshot_id,
                    sequence_number=sequence_number,
                    data_file=native_data_file(new),
                )
            )
        return [m for spec_id, entries in by_spec.items() for m in files.write(ManifestContent.DATA, spec_id, entries)]

    def _rewritten(self, files: ManifestFiles, edit: _Edit) -> list[ManifestFile]:
        """Write what is left and what is gone of all touched manifests together, one run of manifests per spec."""
        manifests: list[ManifestFile] = []
        for key in edit.gone:
            content, spec_id = key
            entries: Iterable[ManifestEntry] = [
                *(_with_status(e, ManifestEntryStatus.EXISTING) for e in edit.kept.get(key, ())),
                *(_with_status(e, ManifestEntryStatus.DELETED, files.snapshot_id) for e in edit.gone[key]),
            ]
            manifests += files.write(content, spec_id, entries)
        return manifests


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


def _check_removed(edit: _Edit, change: SnapshotChange) -> None:
    """Refuse to remove a file that is not live, or that the head lists more often than it was read."""
    found = [e.data_file.file_path for e in edit.gone_entries() if e.data_file.content == DataFileContent.DATA]
    missing = set(change.removed) - set(found)
    if missing:
        raise InvariantViolated(
            "INPUT_NOT_LIVE", f"{len(missing)} files to remove are not live at the head, e.g. {min(missing)}"
        )
    if len(found) != change.removed_entries:
        raise Conflict(
            "INPUT_LISTED_TWICE",
            f"the head lists the {len(change.removed)} files to remove {len(found)} times, and "
            f"{change.removed_entries} were read: a data file stands in the table twice; remove the duplicate entry",
            retryable=False,
        )


def _carry(edit: _Edit, manifest: ManifestFile) -> None:
    """Keep a manifest as it is; one that holds nothing live any more is left out of the new list."""
    if manifest.has_added_files() or manifest.has_existing_files():
        edit.carried.append(manifest)


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None = None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=entry.snapshot_id if snapshot_id is None else snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _moved(ref: SnapshotRef | None, snapshot: Snapshot) -> SetSnapshotRefUpdate:
    """Move main to the snapshot and keep its own retention settings."""
    return SetSnapshotRefUpdate(
        ref_name=MAIN_BRANCH,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot.snapshot_id,
        min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
        max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
        max_ref_age_ms=ref.max_ref_age_ms if ref else None,
    )
