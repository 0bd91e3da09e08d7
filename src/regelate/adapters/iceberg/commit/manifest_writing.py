"""Writes manifests of one attempt, rolls them at the table's target size, and merges small ones by Iceberg's rule."""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.manifest_writer import ManifestWriter

TARGET_SIZE = "commit.manifest.target-size-bytes"
TARGET_SIZE_DEFAULT = 8 * 1024 * 1024
MIN_COUNT = "commit.manifest.min-count-to-merge"
MIN_COUNT_DEFAULT = 100
MERGE_ENABLED = "commit.manifest-merge.enabled"
"""Iceberg's table properties and defaults (TableProperties, 1.10)."""
NAMES_AT_FIRST = 8
"""Manifests that an attempt names at once, in one ledger entry; it names as many again whenever they are used up."""


class ManifestFiles:
    """The metadata files that one attempt writes for one table; `written` lists all of them.

    `record` hears of every name before the file exists; together with the first ones, of the manifest list and of
    `others`, which the commit will write.
    """

    def __init__(
        self,
        table: Table,
        snapshot_id: int,
        attempt: uuid.UUID,
        record: Callable[[Iterable[str]], None],
        others: Iterable[str] = (),
    ) -> None:
        self._table = table
        self._attempt = attempt
        self._record = record
        self._numbers = itertools.count()
        self._named = 0
        self.snapshot_id = snapshot_id
        self.list_path = self._location(f"snap-{snapshot_id}-0-{attempt}.avro")
        self._name_more(self.list_path, *others)
        self.io = table.io
        self.written: list[str] = []
        self._target_bytes = int(table.metadata.properties.get(TARGET_SIZE, TARGET_SIZE_DEFAULT))

    def write(self, content: ManifestContent, spec_id: int, entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        """Write entries, whose status and numbers are final, into one or more manifests of one spec."""
        manifests: list[ManifestFile] = []
        source = iter(entries)
        first = next(source, None)
        while first is not None:
            with self._writer(content, spec_id) as writer:
                writer.add(first)
                first = None
                for entry in source:
                    if writer.tell() >= self._target_bytes:
                        first = entry
                        break
                    writer.add(entry)
            manifests.append(writer.manifest_file())
        return manifests

    def write_one(self, content: ManifestContent, spec_id: int, entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        """Write entries into one manifest, however large; none where there are no entries."""
        listed = list(entries)
        if not listed:
            return []
        with self._writer(content, spec_id) as writer:
            for entry in listed:
                writer.add(entry)
        return [writer.manifest_file()]

    def _writer(self, content: ManifestContent, spec_id: int) -> ManifestWriter:
        metadata = self._table.metadata
        number = next(self._numbers)
        if number >= self._named:
            self._name_more()
        path = self._manifest(number)
        self.written.append(path)
        return ManifestWriter(
            self._table.io.new_output(path),
            content,
            metadata.specs()[spec_id],
            known_schemas(metadata),
            self.snapshot_id,
            format_version=metadata.format_version,
        )

    def _name_more(self, *others: str) -> None:
        more = max(self._named, NAMES_AT_FIRST)
        self._record([*others, *(self._manifest(n) for n in range(self._named, self._named + more))])
        self._named += more

    def _manifest(self, number: int) -> str:
        return self._location(f"{self._attempt}-m{number}.avro")

    def _location(self, name: str) -> str:
        return self._table.location_provider().new_metadata_location(name)


def known_schemas(metadata: TableMetadata) -> tuple[Schema, ...]:
    """Return the current schema, then all from the newest: where a spec's source columns are looked for."""
    return (metadata.schema(), *sorted(metadata.schemas, key=lambda s: s.schema_id, reverse=True))


def merge_manifests(
    manifests: Sequence[ManifestFile], files: ManifestFiles, reader: ManifestReader, properties: Mapping[str, str]
) -> list[ManifestFile]:
    """Merge small data manifests of one spec, newest first, by Iceberg's ManifestMergeManager.

    Bins of the target size are filled from the oldest end; the bin with the newest manifest is only merged once it
    holds `commit.manifest.min-count-to-merge` of them. Delete manifests and other specs keep their place behind.
    """
    if properties.get(MERGE_ENABLED, "true").lower() != "true" or not manifests:
        return list(manifests)
    by_kind: dict[tuple[ManifestContent, int], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        by_kind[(manifest.content, manifest.partition_spec_id)].append(manifest)
    target = int(properties.get(TARGET_SIZE, TARGET_SIZE_DEFAULT))
    minimum = int(properties.get(MIN_COUNT, MIN_COUNT_DEFAULT))
    merged: list[ManifestFile] = []
    for (content, spec_id), group in by_kind.items():
        if content == ManifestContent.DELETES:
            merged += group
            continue
        for position, batch in enumerate(_bins_from_the_end(group, target)):
            if len(batch) == 1 or (position == 0 and len(batch) < minimum):
                merged += batch
            else:
                merged += files.write(content, spec_id, _merged_entries(batch, files, reader))
    return merged


def _bins_from_the_end(manifests: Sequence[ManifestFile], target_bytes: int) -> list[list[ManifestFile]]:
    bins: list[list[ManifestFile]] = []
    size = 0
    for manifest in reversed(manifests):
        if not bins or size + manifest.manifest_length > target_bytes:
            bins.append([])
            size = 0
        bins[-1].append(manifest)
        size += manifest.manifest_length
    return [list(reversed(b)) for b in reversed(bins)]


def _merged_entries(
    manifests: Sequence[ManifestFile], files: ManifestFiles, reader: ManifestReader
) -> Iterator[ManifestEntry]:
    """Keep the status of entries of this very snapshot; older ones become EXISTING, older DELETED ones are left out."""
    for manifest in manifests:
        for entry in reader.all_entries(files.io, manifest):
            own = entry.snapshot_id == files.snapshot_id
            if entry.status == ManifestEntryStatus.DELETED and not own:
                continue
            added = own and entry.status == ManifestEntryStatus.ADDED
            unassigned = added and entry.sequence_number is not None and entry.sequence_number < 0
            yield ManifestEntry.from_args(
                status=entry.status if own else ManifestEntryStatus.EXISTING,
                snapshot_id=entry.snapshot_id,
                sequence_number=None if unassigned else entry.sequence_number,
                file_sequence_number=None if added else entry.file_sequence_number,
                data_file=entry.data_file,
            )
