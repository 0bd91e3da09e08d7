"""Writes manifests in blocks, rolls them at the table's target size, and merges small ones by Iceberg's rule."""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV1,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import TableVersion
from pyiceberg.types import NestedField, StructType

from regelate.adapters.iceberg.manifests import ManifestReader

BLOCK_ENTRIES = 256
TARGET_SIZE = "commit.manifest.target-size-bytes"
TARGET_SIZE_DEFAULT = 8 * 1024 * 1024
MIN_COUNT = "commit.manifest.min-count-to-merge"
MIN_COUNT_DEFAULT = 100
MERGE_ENABLED = "commit.manifest-merge.enabled"
"""Iceberg's table properties and defaults (TableProperties, 1.10)."""
REFERENCED_DATA_FILE_ID = 143


class _Blocks:
    """Collects entries and hands them to the Avro writer in blocks; one block per entry is slow and large."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._waiting: list[Any] = []

    def write_block(self, records: list[Any]) -> None:
        self._waiting += records
        if len(self._waiting) >= BLOCK_ENTRIES:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._inner.write_block(self._waiting)
            self._waiting = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _InBlocks(ManifestWriter):
    """Mix-in: write entries in blocks."""

    def __enter__(self) -> ManifestWriter:
        super().__enter__()
        self._writer = _Blocks(self._writer)  # type: ignore[assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._writer.flush()  # type: ignore[attr-defined]
        super().__exit__(kind, error, trace)


class DataManifestV1(_InBlocks, ManifestWriterV1):
    """A v1 data manifest."""


class DataManifestV2(_InBlocks, ManifestWriterV2):
    """A v2 data manifest."""


class DeleteManifestV2(_InBlocks, ManifestWriterV2):
    """A v2 delete manifest. It keeps `referenced_data_file`, which v2 allows and PyIceberg's v2 schema drops."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def _with_partition(self, format_version: TableVersion) -> Schema:
        partition_type = self._spec.partition_type(self._schema)
        wide = data_file_with_partition(partition_type, 3)
        narrow = {f.field_id for f in data_file_with_partition(partition_type, 2).fields}
        kept = [f for f in wide.fields if f.field_id in narrow or f.field_id == REFERENCED_DATA_FILE_ID]
        return manifest_entry_schema_with_data_file(2, StructType(*kept))

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """Write from records as they were read: with every field of v3, of which v2 keeps its own and the reference."""
        wide = data_file_with_partition(self._spec.partition_type(self._schema), 3)
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=self._with_partition(self.version),
            record_schema=manifest_entry_schema_with_data_file(2, wide),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


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
        properties = table.metadata.properties
        self.compression: AvroCompressionCodec = properties.get("write.avro.compression-codec", "gzip")  # type: ignore[assignment]
        self._target_bytes = whole(properties, TARGET_SIZE, TARGET_SIZE_DEFAULT)

    def write(self, content: ManifestContent, spec_id: int, entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        """Write entries, whose status and numbers are final, into one or more manifests of one spec."""
        manifests: list[ManifestFile] = []
        source = iter(entries)
        first = next(source, None)
        while first is not None:
            with self._writer(content, spec_id) as writer:
                writer.add_entry(first)
                first = None
                for entry in source:
                    if writer.tell() >= self._target_bytes:
                        first = entry
                        break
                    writer.add_entry(entry)
            manifests.append(writer.to_manifest_file())
        return manifests

    def write_one(self, content: ManifestContent, spec_id: int, entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        """Write entries into one manifest, however large; none where there are no entries."""
        listed = list(entries)
        if not listed:
            return []
        with self._writer(content, spec_id) as writer:
            for entry in listed:
                writer.add_entry(entry)
        return [writer.to_manifest_file()]

    def _writer(self, content: ManifestContent, spec_id: int) -> ManifestWriter:
        metadata = self._table.metadata
        number = next(self._numbers)
        if number >= self._named:
            self._name_more()
        path = self._manifest(number)
        self.written.append(path)
        if content == ManifestContent.DELETES:
            kind: type[ManifestWriter] = DeleteManifestV2
        else:
            kind = DataManifestV1 if metadata.format_version == 1 else DataManifestV2
        spec = metadata.specs()[spec_id]
        return kind(
            spec,
            schema_for(spec, metadata),
            self._table.io.new_output(path),
            self.snapshot_id,
            self.compression,
        )

    def _name_more(self, *others: str) -> None:
        more = max(self._named, NAMES_AT_FIRST)
        self._record([*others, *(self._manifest(n) for n in range(self._named, self._named + more))])
        self._named += more

    def _manifest(self, number: int) -> str:
        return self._location(f"{self._attempt}-m{number}.avro")

    def _location(self, name: str) -> str:
        return self._table.location_provider().new_metadata_location(name)


def schema_for(spec: PartitionSpec, metadata: TableMetadata) -> Schema:
    """Return the current schema, and with it the source columns of a spec that were dropped since.

    The type of a partition value comes from its source column; without it the value could not be written.
    """
    schema = metadata.schema()
    missing = [f.source_id for f in spec.fields if schema.find_column_name(f.source_id) is None]
    older = sorted(metadata.schemas, key=lambda s: s.schema_id, reverse=True)
    dropped = [
        NestedField(field_id=i, name=f"dropped-{i}", field_type=known.find_type(i), required=False)
        for i in dict.fromkeys(missing)
        for known in [next((s for s in older if s.find_column_name(i) is not None), None)]
        if known is not None
    ]
    return Schema(*schema.fields, *dropped, schema_id=schema.schema_id) if dropped else schema


def whole(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return a property as a whole number; a malformed one, which another engine set, means the default."""
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else default


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
    target = whole(properties, TARGET_SIZE, TARGET_SIZE_DEFAULT)
    minimum = whole(properties, MIN_COUNT, MIN_COUNT_DEFAULT)
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
