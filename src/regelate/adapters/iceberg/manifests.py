"""Manifest lists and manifests, read one manifest at a time and checked against what the list says of them.

PyIceberg's own reader ends silently at a truncated block and resolves the Avro schema anew for every file (about 3 ms);
this one counts the entries and keeps resolved readers by schema text. Manifests never change, so small ones are kept.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.decoder import StreamingBinaryDecoder, new_decoder
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
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from regelate.adapters.iceberg.faults import storage_fault
from regelate.errors import DataUnavailable, RegelateError

READ_VERSION = 3
"""The v3 entry schema also reads v1 and v2 files, and does not drop `referenced_data_file` of v2 delete entries."""
CACHED_ENTRIES = 40_000
CACHED_ENTRIES_PER_MANIFEST = 4_000
_GONE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
REFERENCED_DATA_FILE = 17
"""Position of `referenced_data_file` in a v3 data file record."""


class ManifestReader:
    """Reads the manifests of one storage; safe for several threads. One instance may serve a whole process.

    Errors: DataUnavailable METADATA_CORRUPT when a file is missing, cut or does not hold what the list promises;
    Unavailable STORAGE_UNAVAILABLE, STORAGE_AUTH when the storage cannot say what it holds.
    """

    def __init__(self, cached_entries: int = CACHED_ENTRIES) -> None:
        self._limit = cached_entries
        self._held = 0
        self._cache: OrderedDict[tuple[str, int], tuple[ManifestEntry, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def manifests(self, io: FileIO, manifest_list: str) -> tuple[ManifestFile, ...]:
        """Return the manifests of one manifest list, in its order."""
        with _corrupt_as_error(manifest_list):
            data = _read_bytes(io, manifest_list)
            return tuple(_records(data, "list"))  # type: ignore[arg-type]

    def entries(self, io: FileIO, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """Return the live entries of a manifest, sequence numbers and spec id inherited. Do not change them."""
        key = (manifest.manifest_path, manifest.manifest_length)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        found = tuple(e for e in self.all_entries(io, manifest) if e.status != ManifestEntryStatus.DELETED)
        if len(found) <= CACHED_ENTRIES_PER_MANIFEST:
            self._keep(key, found)
        return found

    def all_entries(self, io: FileIO, manifest: ManifestFile) -> Iterator[ManifestEntry]:
        """Yield every entry of a manifest, DELETED ones too, and check their number at the end."""
        path = manifest.manifest_path
        with _corrupt_as_error(path):
            data = _read_bytes(io, path)
            if len(data) < manifest.manifest_length:
                raise ValueError(f"{len(data)} bytes where the manifest list says {manifest.manifest_length}")
            count = 0
            for entry in _records(data, "entry"):
                count += 1
                yield _inherit_from_manifest(entry, manifest)  # type: ignore[arg-type]
            counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
            expected = None if None in counts else sum(c for c in counts if c is not None)
            if expected is not None and count != expected:
                raise ValueError(f"{count} entries where the manifest list says {expected}")

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

    def _keep(self, key: tuple[str, int], entries: tuple[ManifestEntry, ...]) -> None:
        with self._lock:
            if key not in self._cache:
                self._cache[key] = entries
                self._held += len(entries) + 1
            while self._held > self._limit and self._cache:
                self._held -= len(self._cache.popitem(last=False)[1]) + 1


def _read_bytes(io: FileIO, path: str) -> bytes:
    """Read a file whole. A storage that fails or refuses says nothing about the file; only a missing one is damage."""
    try:
        with io.new_input(path).open() as stream:
            return stream.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_fault(error) from error


def _records(data: bytes, kind: str) -> Iterator[object]:
    # Pure Python for the frame: the fast decoder checks no bounds and would read what lies behind a file that is cut.
    decoder = StreamingBinaryDecoder(data)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    reader = _reader(header.meta[_SCHEMA_KEY], kind)
    # PyIceberg's fast decoder reads a double at float precision: partition 0.1 would become 0.10000000149 (trap T23).
    open_decoder = StreamingBinaryDecoder if '"double"' in header.meta[_SCHEMA_KEY] else new_decoder
    codec = KNOWN_CODECS[header.meta.get(AVRO_CODEC_KEY, "null")]  # type: ignore[index]
    end = len(data)
    while decoder.tell() < end:
        count = decoder.read_int()
        block = decoder.read_bytes()
        if decoder.read(SYNC_SIZE) != header.sync:
            raise ValueError("a block does not end with the file's sync marker")
        inner = open_decoder(codec.decompress(block) if codec else block)
        for _ in range(count):
            yield reader.read(inner)


@lru_cache(maxsize=256)
def _reader(schema_text: str, kind: str) -> Reader:
    file_schema = AvroSchemaConversion().avro_to_iceberg(json.loads(schema_text))
    if kind == "list":
        return resolve_reader(
            file_schema,
            MANIFEST_LIST_FILE_SCHEMAS[2],
            {-1: ManifestFile, 508: PartitionFieldSummary},
            {517: ManifestContent},
        )
    return resolve_reader(
        file_schema,
        MANIFEST_ENTRY_SCHEMAS[READ_VERSION],
        {-1: ManifestEntry, 2: DataFile},
        {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    )


class _corrupt_as_error:  # noqa: N801 - reads as a statement
    """Turn a failure to read metadata into METADATA_CORRUPT, with the path and without a stack trace.

    But a storage that does not answer says nothing about the file (row 35): whoever may do without a file that is gone
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
