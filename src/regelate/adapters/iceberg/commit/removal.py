"""What one commit takes out of the manifests that it edits, found while their entries stream by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile

from regelate.core.running.commit import SnapshotChange
from regelate.errors import Conflict, InvariantViolated


class Removal:
    """Knows which paths go, turns entries into what the new manifests say of them, and counts what went.

    No entry is kept: a manifest of any size is edited in the memory of one entry.
    """

    def __init__(self, change: SnapshotChange) -> None:
        self._change = change
        self._paths: Mapping[ManifestContent, Collection[str]] = {
            ManifestContent.DATA: change.removed,
            ManifestContent.DELETES: change.dropped_delete_paths,
        }
        self._holders = frozenset(change.removed.values())
        self._missing = set(change.removed)
        self._found = 0
        self.counts: Counter[str] = Counter()
        self.partitions: set[tuple[int, str]] = set()
        """Spec id and values, as `Partition.key` writes them, of what went."""

    def touches(self, manifest: ManifestFile, entries: Iterable[ManifestEntry]) -> bool:
        """Say whether a manifest holds something that goes. Its entries are only asked where planning left it open."""
        paths = self._paths[manifest.content]
        if not paths:
            return False
        if manifest.content == ManifestContent.DATA and manifest.manifest_path in self._change.base_manifests:
            return False
        if manifest.content == ManifestContent.DATA and manifest.manifest_path in self._holders:
            return True
        return any(entry.data_file.file_path in paths for entry in entries)

    def edited(self, manifest: ManifestFile, entries: Iterable[ManifestEntry]) -> Iterator[ManifestEntry]:
        """Yield the live entries of a manifest as they are written again: what goes as DELETED, the rest EXISTING."""
        paths = self._paths[manifest.content]
        for entry in entries:
            if entry.data_file.file_path in paths:
                self._count(entry)
                yield with_status(entry, ManifestEntryStatus.DELETED, self._change.snapshot_id)
            else:
                yield with_status(entry, ManifestEntryStatus.EXISTING)

    def check(self) -> None:
        """Refuse to remove a file that is not live, or that the head lists more often than it was read."""
        change = self._change
        if self._missing:
            raise InvariantViolated(
                "INPUT_NOT_LIVE",
                f"{len(self._missing)} files to remove are not live at the head, e.g. {min(self._missing)}",
            )
        if self._found != change.removed_entries:
            raise Conflict(
                "INPUT_LISTED_TWICE",
                f"the head lists the {len(change.removed)} files to remove {self._found} times, and "
                f"{change.removed_entries} were read: a data file is listed in the table twice; remove the duplicate "
                "entry",
                retryable=False,
            )

    def _count(self, entry: ManifestEntry) -> None:
        native, counts = entry.data_file, self.counts
        values = tuple(native.partition[i] for i in range(len(native.partition)))
        self.partitions.add((native.spec_id, repr(values)))
        counts["removed-files-size"] += native.file_size_in_bytes
        if native.content == DataFileContent.DATA:
            self._missing.discard(native.file_path)
            self._found += 1
            counts["deleted-data-files"] += 1
            counts["deleted-records"] += native.record_count
            return
        counts["removed-delete-files"] += 1
        if native.content == DataFileContent.POSITION_DELETES:
            counts["removed-position-delete-files"] += 1
            counts["removed-position-deletes"] += native.record_count
        else:
            counts["removed-equality-delete-files"] += 1
            counts["removed-equality-deletes"] += native.record_count


def with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None = None) -> ManifestEntry:
    """Return an entry with another status, its numbers unchanged; `snapshot_id` where one is given."""
    return ManifestEntry(
        status,
        entry.snapshot_id if snapshot_id is None else snapshot_id,
        entry.sequence_number,
        entry.file_sequence_number,
        entry.data_file,
    )
