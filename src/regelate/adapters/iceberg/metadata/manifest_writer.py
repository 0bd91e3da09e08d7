"""Writes one manifest, or one manifest list, as Iceberg's Java writers (1.10) do: schema, header, counts and bounds."""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any

from pydantic_core import to_json
from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import _SCHEMA_KEY, MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.avro.writer import DefaultWriter, OptionWriter, StructWriter, Writer
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_BLOCK_SIZE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType, UnknownType

from regelate.adapters.iceberg.metadata.manifest_schema import (
    BLOCK_SIZE_ID,
    MANIFEST_ENTRY,
    MANIFEST_FILE,
    REFERENCED_DATA_FILE_ID,
    avro_schema,
    manifest_list_schema,
    manifest_schema,
    partition_type,
)
from regelate.adapters.iceberg.metadata.packed_maps import copying
from regelate.adapters.iceberg.metadata.partition_bounds import PartitionBounds

BLOCK_ENTRIES = 256
"""Entries of one Avro block; one block per entry is slow and large."""
CODEC = "deflate"
"""Iceberg's Java writers compress manifests by it, whatever the table says of its Avro data files."""
PLAIN = "null"
DATA_FILE_ID = 2
_ENTRY_PLACES = {f.field_id: i for i, f in enumerate(MANIFEST_ENTRY_SCHEMAS[3].fields)}
_FILE_PLACES = {f.field_id: i for i, f in enumerate(DATA_FILE_TYPE[3].fields)}
_LIST_PLACES = {f.field_id: i for i, f in enumerate(MANIFEST_LIST_FILE_SCHEMAS[2].fields)}
"""Where a field stands in PyIceberg's records, by field id. Data files may be v2's, without v3's last fields."""


class ManifestWriter:
    """Writes the entries of one spec into one manifest; a context manager. Their status and numbers are final.

    `schemas` are the table's, the current one first. Errors: ValueError for an entry that the format does not allow.
    """

    def __init__(
        self,
        output: OutputFile,
        content: ManifestContent,
        spec: PartitionSpec,
        schemas: Sequence[Schema],
        snapshot_id: int,
        *,
        format_version: int = 2,
        codec: str = CODEC,
    ) -> None:
        if content == ManifestContent.DELETES and format_version == 1:
            raise ValueError("a table of format version 1 has no delete manifests")
        self._content = content
        self._spec_id = spec.spec_id
        self._snapshot_id = snapshot_id
        self._format_version = format_version
        partition = partition_type(spec, schemas)
        self._bounds = PartitionBounds(partition)
        self._files = dict.fromkeys(ManifestEntryStatus, 0)
        self._rows = dict.fromkeys(ManifestEntryStatus, 0)
        self._min_sequence_number: int | None = None
        header = {
            "schema": schemas[0].model_dump_json(),
            "schema-id": str(schemas[0].schema_id),
            "partition-spec": to_json(spec.fields).decode(),
            "partition-spec-id": str(spec.spec_id),
            "format-version": str(format_version),
            **({"content": "deletes" if content == ManifestContent.DELETES else "data"} if format_version > 1 else {}),
        }
        self._avro = _AvroOutput(output, _manifest_layout(format_version, content, partition), header, codec)
        self._location = output.location

    def __enter__(self) -> ManifestWriter:
        self._avro.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._avro.close(complete=error is None)

    def tell(self) -> int:
        """Return the bytes written so far, without the block that is being filled."""
        return self._avro.written_bytes

    def add(self, entry: ManifestEntry) -> None:
        status, number = entry.status, entry.sequence_number
        if number is None and self._format_version > 1:
            if status != ManifestEntryStatus.ADDED:
                raise ValueError("only entries with status ADDED can have no sequence number yet")
            if entry.snapshot_id is not None and entry.snapshot_id != self._snapshot_id:
                raise ValueError(f"an entry of snapshot {entry.snapshot_id} has no sequence number")
        least = self._min_sequence_number
        if status != ManifestEntryStatus.DELETED and number is not None and (least is None or number < least):
            self._min_sequence_number = number
        self._files[status] += 1
        self._rows[status] += entry.data_file.record_count
        self._bounds.add(entry.data_file.partition)
        self._avro.add(entry)

    def manifest_file(self) -> ManifestFile:
        """Return the row of the manifest list, once the manifest is closed; its sequence number comes with the list."""
        number = self._min_sequence_number
        return ManifestFile.from_args(
            manifest_path=self._location,
            manifest_length=self._avro.written_bytes,
            partition_spec_id=self._spec_id,
            content=self._content,
            sequence_number=UNASSIGNED_SEQ,
            min_sequence_number=UNASSIGNED_SEQ if number is None else number,
            added_snapshot_id=self._snapshot_id,
            added_files_count=self._files[ManifestEntryStatus.ADDED],
            existing_files_count=self._files[ManifestEntryStatus.EXISTING],
            deleted_files_count=self._files[ManifestEntryStatus.DELETED],
            added_rows_count=self._rows[ManifestEntryStatus.ADDED],
            existing_rows_count=self._rows[ManifestEntryStatus.EXISTING],
            deleted_rows_count=self._rows[ManifestEntryStatus.DELETED],
            partitions=self._bounds.summaries(),
            key_metadata=None,
        )


def write_manifest_list(
    output: OutputFile,
    manifests: Iterable[ManifestFile],
    *,
    format_version: int,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    codec: str = CODEC,
) -> None:
    """Write the manifest list of one snapshot. New manifests get the sequence number of the snapshot.

    Errors: ValueError for a delete manifest in format version 1, and for a manifest of another snapshot without number.
    """
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        **({"sequence-number": str(sequence_number)} if format_version > 1 else {}),
        "format-version": str(format_version),
    }
    avro = _AvroOutput(output, _list_layout(format_version), header, codec)
    avro.open()
    complete = False
    try:
        for manifest in manifests:
            if format_version == 1 and manifest.content != ManifestContent.DATA:
                raise ValueError("a table of format version 1 has no delete manifests")
            avro.add(_numbered(manifest, snapshot_id, sequence_number))
        complete = True
    finally:
        avro.close(complete=complete)


def _numbered(manifest: ManifestFile, snapshot_id: int, sequence_number: int) -> ManifestFile:
    if UNASSIGNED_SEQ not in (manifest.sequence_number, manifest.min_sequence_number):
        return manifest
    if manifest.added_snapshot_id != snapshot_id:
        raise ValueError(f"a manifest of snapshot {manifest.added_snapshot_id} has no sequence number")
    names = [f.name for f in MANIFEST_LIST_FILE_SCHEMAS[2].fields]
    numbered = ManifestFile.from_args(**{name: manifest[i] for i, name in enumerate(names)})
    if numbered.sequence_number == UNASSIGNED_SEQ:
        numbered.sequence_number = sequence_number
    if numbered.min_sequence_number == UNASSIGNED_SEQ:
        numbered.min_sequence_number = sequence_number
    return numbered


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """How records become Avro: the schema in both languages, and the writer of one record."""

    avro: str
    iceberg: str
    writer: Writer


@lru_cache(maxsize=256)
def _manifest_layout(format_version: int, content: ManifestContent, partition: StructType) -> _Layout:
    schema = manifest_schema(format_version, partition)
    return _layout(schema, MANIFEST_ENTRY, copying(_entry_writer(schema, content)))


@lru_cache(maxsize=2)
def _list_layout(format_version: int) -> _Layout:
    schema = manifest_list_schema(format_version)
    places = ((_LIST_PLACES[f.field_id], _field_writer(f)) for f in schema.fields)
    return _layout(schema, MANIFEST_FILE, StructWriter(tuple(places)))


def _layout(schema: Schema, name: str, writer: Writer) -> _Layout:
    return _Layout(avro=json.dumps(avro_schema(schema, name)), iceberg=schema.model_dump_json(), writer=writer)


def _entry_writer(schema: Schema, content: ManifestContent) -> Writer:
    """Return a writer of entries as they were read or made: fields are taken by id from the records of v2 and v3."""
    file = schema.find_field(DATA_FILE_ID).field_type
    assert isinstance(file, StructType)
    fields: list[tuple[int | None, Writer]] = []
    for f in file.fields:
        if f.field_id == BLOCK_SIZE_ID:
            fields.append((None, DefaultWriter(_field_writer(f), DEFAULT_BLOCK_SIZE)))
        elif f.field_id == REFERENCED_DATA_FILE_ID and content == ManifestContent.DATA:
            fields.append((None, _field_writer(f)))
        else:
            fields.append((_FILE_PLACES[f.field_id], _field_writer(f)))
    entry = ((_ENTRY_PLACES[f.field_id], _field_writer(f)) for f in schema.fields if f.field_id != DATA_FILE_ID)
    return StructWriter((*entry, (_ENTRY_PLACES[DATA_FILE_ID], StructWriter(tuple(fields)))))


def _field_writer(field: NestedField) -> Writer:
    if isinstance(field.field_type, UnknownType):
        return _NoValue(field.name)
    if isinstance(field.field_type, StructType):
        return StructWriter(tuple((i, _field_writer(f)) for i, f in enumerate(field.field_type.fields)))
    writer = construct_writer(field.field_type)
    return writer if field.required else OptionWriter(writer)


@dataclass(frozen=True)
class _NoValue(Writer):
    """Writes a partition value whose type nobody knows: it can only be null, or the file would change its partition."""

    name: str

    def write(self, encoder: BinaryEncoder, val: Any) -> None:
        if val is not None:
            raise ValueError(f"no schema of the table has the source column of partition field {self.name!r} any more")


class _AvroOutput:
    """An Avro file that is being written, in blocks."""

    def __init__(self, output: OutputFile, layout: _Layout, header: Mapping[str, str], codec: str) -> None:
        self._output = output
        self._writer = layout.writer
        self._header = {**header, "iceberg.schema": layout.iceberg, _SCHEMA_KEY: layout.avro, AVRO_CODEC_KEY: codec}
        self._compressed = codec == CODEC
        self._sync = os.urandom(SYNC_SIZE)
        self._waiting: list[Record] = []
        self.written_bytes = 0

    def open(self) -> None:
        self._stream = self._output.create(overwrite=True)
        content = io.BytesIO()
        construct_writer(META_SCHEMA).write(BinaryEncoder(content), AvroFileHeader(MAGIC, self._header, self._sync))
        self._write(content.getvalue())

    def add(self, record: Record) -> None:
        self._waiting.append(record)
        if len(self._waiting) >= BLOCK_ENTRIES:
            self._flush()

    def close(self, *, complete: bool) -> None:
        try:
            if complete:
                self._flush()
        finally:
            self._stream.close()

    def _flush(self) -> None:
        if not self._waiting:
            return
        content = io.BytesIO()
        encoder = BinaryEncoder(content)
        for record in self._waiting:
            self._writer.write(encoder, record)
        packed = content.getvalue()
        if self._compressed:
            deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            packed = deflate.compress(packed) + deflate.flush()
        block = io.BytesIO()
        frame = BinaryEncoder(block)
        frame.write_int(len(self._waiting))
        frame.write_bytes(packed)
        frame.write(self._sync)
        self._waiting = []
        self._write(block.getvalue())

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self.written_bytes += len(data)
