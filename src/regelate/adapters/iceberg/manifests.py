"""Manifest lists and manifests, read one manifest at a time and checked against what the list says of them.

PyIceberg's own reader ends silently at a truncated block and resolves the Avro schema anew for every file (about 3 ms);
this one counts the entries and keeps resolved readers by schema text. Manifests and their lists never change, so small
ones are kept, up to so many bytes; column statistics stay packed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import (
    _SCHEMA_KEY,
    META_SCHEMA,
    SYNC_SIZE,
    AvroFileHeader,
)
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.typedef import Record
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from regelate.adapters.iceberg.metadata.byte_cache import ByteCache, ReachMemory
from regelate.adapters.iceberg.metadata.manifest_schema import expanded, has_long_equality_ids
from regelate.adapters.iceberg.metadata.packed_maps import OBJECT_BYTES, PackedMap, cut, spanning
from regelate.adapters.iceberg.pyiceberg_errors import storage_fault
from regelate.errors import DataUnavailable, RegelateError

READ_VERSION: Literal[3] = 3
"""The v3 entry schema also reads v1 and v2 files, and does not drop `referenced_data_file` of v2 delete entries."""
CACHED_BYTES = 128 * 1024 * 1024
"""Memory for the entries of small manifests; a quarter of it for manifest lists, on top."""
JUDGED_BYTES = 4 * 1024 * 1024
"""Memory for which delete manifests Java can read: some 20,000."""
ENTRY_BYTES = 1000
MANIFEST_BYTES = 1100
VALUE_BYTES = 72
"""What one entry, one line of a manifest list and one value in them take, besides their texts and packed maps."""
_GONE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
REFERENCED_DATA_FILE = 17
"""Position of `referenced_data_file` in a v3 data file record."""


class ManifestReader:
    """Reads the manifests of one storage; safe for several threads. One instance may serve a whole process.

    Errors: DataUnavailable METADATA_CORRUPT when a file is missing, cut or does not hold what the list promises;
    Unavailable STORAGE_UNAVAILABLE, STORAGE_AUTH when the storage cannot say what it holds.
    """

    def __init__(self, cached_bytes: int = CACHED_BYTES) -> None:
        self._entries: ByteCache[tuple[str, int], tuple[ManifestEntry, ...]] = ByteCache(cached_bytes)
        self._lists: ByteCache[str, tuple[ManifestFile, ...]] = ByteCache(cached_bytes // 4)
        self._unreadable: ByteCache[str, bool] = ByteCache(JUDGED_BYTES)
        self.reach = ReachMemory()

    @property
    def cached_bytes(self) -> int:
        """Memory that the cached entries and lists take, by this reader's own account."""
        return self._entries.held_bytes + self._lists.held_bytes

    def manifests(self, io: FileIO, manifest_list: str) -> tuple[ManifestFile, ...]:
        """Return the manifests of one manifest list, in its order. Do not change them."""
        found = self._lists.get(manifest_list)
        if found is None:
            with _corrupt_as_error(manifest_list):
                data = _read_bytes(io, manifest_list)
                found = tuple(_opened(data, "list")[1])
            self._lists.put(manifest_list, found, sum(map(_listed_bytes, found)))
        return found

    def entries(self, io: FileIO, manifest: ManifestFile) -> Iterable[ManifestEntry]:
        """Return the live entries of a manifest, sequence numbers and spec id inherited. Do not change them.

        Those of a large manifest are decoded one by one while they are asked for; errors come then, too.
        """
        found = self._entries.get((manifest.manifest_path, manifest.manifest_length))
        return self._live(io, manifest) if found is None else found

    def _live(self, io: FileIO, manifest: ManifestFile) -> Iterator[ManifestEntry]:
        kept: list[ManifestEntry] = []
        size = 0
        for entry in self.all_entries(io, manifest):
            if entry.status == ManifestEntryStatus.DELETED:
                continue
            if size < self._entries.largest_bytes:
                size += entry_bytes(entry)
                kept.append(entry)
            elif kept:
                kept = []
            yield entry
        self._entries.put((manifest.manifest_path, manifest.manifest_length), tuple(kept), size)

    def all_entries(self, io: FileIO, manifest: ManifestFile) -> Iterator[ManifestEntry]:
        """Yield every entry of a manifest, DELETED ones too, and check their number at the end."""
        path = manifest.manifest_path
        with _corrupt_as_error(path):
            data = _read_bytes(io, path)
            if len(data) < manifest.manifest_length:
                raise ValueError(f"{len(data)} bytes where the manifest list says {manifest.manifest_length}")
            count = equality = 0
            avro, records = _opened(data, "entry")
            for entry in records:
                count += 1
                equality += entry.data_file.content == DataFileContent.EQUALITY_DELETES
                yield _inherit_from_manifest(entry, manifest)
            counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
            expected = None if None in counts else sum(c for c in counts if c is not None)
            if expected is not None and count != expected:
                raise ValueError(f"{count} entries where the manifest list says {expected}")
            if manifest.content == ManifestContent.DELETES:
                self._unreadable.put(path, equality > 0 and has_long_equality_ids(avro), VALUE_BYTES + len(path))

    def unreadable_in_java(self, io: FileIO, manifests: Iterable[ManifestFile]) -> tuple[str, ...]:
        """Return the paths of delete manifests on which Iceberg's Java readers fail (trap T33: manifests that Java
        cannot read).

        Whatever was read before is known; only the others are read.
        """
        return tuple(m.manifest_path for m in manifests if m.content == ManifestContent.DELETES and self._hurts(io, m))

    def _hurts(self, io: FileIO, manifest: ManifestFile) -> bool:
        known = self._unreadable.get(manifest.manifest_path)
        if known is None:
            deque(self.all_entries(io, manifest), maxlen=0)
            known = self._unreadable.get(manifest.manifest_path)
        return bool(known)

    def bearer(self, io: FileIO, manifest_list: str, sequence_number: int) -> int | None:
        """Return the snapshot that bears this sequence number, as far as these manifests show it; v1 numbers nothing.

        A number is given once. A manifest keeps the one that it came with, and the entry of a live file that of its
        snapshot, however often it was merged since.
        """
        if sequence_number < 1:
            return None
        manifests = self.manifests(io, manifest_list)
        made = next((m.added_snapshot_id for m in manifests if m.sequence_number == sequence_number), None)
        if made is not None:
            return made
        older = [m for m in manifests if (m.min_sequence_number or 0) <= sequence_number]
        entries = (entry for manifest in older for entry in self.entries(io, manifest))
        return next((e.snapshot_id for e in entries if e.file_sequence_number == sequence_number), None)


def entry_bytes(entry: ManifestEntry) -> int:
    """Return about how much memory an entry takes, its own texts, values and packed maps included."""
    return ENTRY_BYTES + _value_bytes(entry.data_file)


def _listed_bytes(manifest: ManifestFile) -> int:
    return MANIFEST_BYTES + _value_bytes(manifest)


def _value_bytes(record: Record) -> int:
    """Count what varies: texts, packed maps, lists and inner records. Numbers of the record itself are in its base."""
    size = 0
    for value in record._data:
        if isinstance(value, PackedMap):
            size += OBJECT_BYTES + len(value.raw)
        elif isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, list):
            size += sum(VALUE_BYTES + (_value_bytes(v) if isinstance(v, Record) else 0) for v in value)
        elif isinstance(value, Record):
            size += VALUE_BYTES * len(value) + _value_bytes(value)
        elif isinstance(value, Mapping):
            size += 2 * VALUE_BYTES * len(value)
    return size


def _read_bytes(io: FileIO, path: str) -> bytes:
    """Read a file whole. A storage that fails or refuses says nothing about the file; only a missing one is damage."""
    try:
        with io.new_input(path).open() as stream:
            return stream.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_fault(error) from error


def _opened(data: bytes, kind: str) -> tuple[str, Iterator[Any]]:
    """Return the Avro schema of a file, as text, and its records."""
    # Pure Python for the frame: the fast decoder checks no bounds and would read what lies behind a file that is cut.
    decoder = StreamingBinaryDecoder(data)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    return header.meta[_SCHEMA_KEY], _records(data, decoder, header, kind)


def _records(data: bytes, decoder: BinaryDecoder, header: AvroFileHeader, kind: str) -> Iterator[Any]:
    reader = _reader(header.meta[_SCHEMA_KEY], kind)
    # PyIceberg's fast decoder reads a double at float precision: partition 0.1 would become 0.10000000149 (trap T23:
    # doubles read as floats).
    open_decoder = StreamingBinaryDecoder if '"double"' in header.meta[_SCHEMA_KEY] else new_decoder
    codec = KNOWN_CODECS[header.meta.get(AVRO_CODEC_KEY, "null")]  # type: ignore[index]
    end = len(data)
    while decoder.tell() < end:
        count = decoder.read_int()
        block = decoder.read_bytes()
        if decoder.read(SYNC_SIZE) != header.sync:
            raise ValueError("a block does not end with the file's sync marker")
        plain = codec.decompress(block) if codec else block
        inner = open_decoder(plain)
        for _ in range(count):
            record = reader.read(inner)
            if kind == "entry":
                cut(record.data_file._data, plain)
            yield record


@lru_cache(maxsize=256)
def _reader(schema_text: str, kind: str) -> Reader:
    file_schema = AvroSchemaConversion().avro_to_iceberg(expanded(json.loads(schema_text)))
    if kind == "list":
        return resolve_reader(
            file_schema,
            MANIFEST_LIST_FILE_SCHEMAS[2],
            {-1: ManifestFile, 508: PartitionFieldSummary},
            {517: ManifestContent},
        )
    resolved = resolve_reader(
        file_schema,
        MANIFEST_ENTRY_SCHEMAS[READ_VERSION],
        {-1: ManifestEntry, 2: DataFile},
        {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    )
    return spanning(resolved)


class _corrupt_as_error:  # noqa: N801 - reads as a statement
    """Turn a failure to read metadata into METADATA_CORRUPT, with the path and without a stack trace.

    But a storage that does not answer says nothing about the file: whoever may do without a file that is gone
    must not do without one that is only out of reach.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, RegelateError) or not isinstance(error, Exception):
            return
        if isinstance(error, OSError) and not isinstance(error, _GONE):
            raise storage_fault(error) from error
        raise DataUnavailable(
            "METADATA_CORRUPT",
            f"cannot read {self.path}: {type(error).__name__}: {error}; restore the file or roll the table back",
            path=self.path,
        ) from error
