"""Every path that a table's metadata reaches, over all snapshots and so over every ref."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.errors import DataUnavailable

log = logging.getLogger(__name__)


def all_manifests(table: Table, reader: ManifestReader) -> Iterable[ManifestFile]:
    """Return the manifests of every snapshot, each once. Errors: DataUnavailable METADATA_CORRUPT."""
    found: dict[str, ManifestFile] = {}
    for path in dict.fromkeys(s.manifest_list for s in table.metadata.snapshots):
        for manifest in reader.manifests(table.io, path):
            found.setdefault(manifest.manifest_path, manifest)
    return found.values()


def reached(table: Table, reader: ManifestReader) -> Iterator[str]:
    """Yield every path, from what is cheap to know to what is not. Errors: DataUnavailable METADATA_CORRUPT."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (s.statistics_path for s in (*metadata.statistics, *metadata.partition_statistics))
    yield from (s.manifest_list for s in metadata.snapshots)
    manifests = tuple(all_manifests(table, reader))
    yield from (m.manifest_path for m in manifests)
    for manifest in manifests:
        yield from (e.data_file.file_path for e in reader.entries(table.io, manifest))


def reached_by(
    io: FileIO, reader: ManifestReader, snapshots: Iterable[Snapshot], *, known: Collection[str] = ()
) -> dict[str, int]:
    """Return path -> bytes of all that expired snapshots need, without the manifests in `known` and what these name.

    What cannot be read any more is logged and left to be found as an orphan file. A manifest list counts no bytes,
    because metadata does not say how many it has.
    """
    found: dict[str, int] = {}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        found[snapshot.manifest_list] = 0
        try:
            manifests |= {m.manifest_path: m for m in reader.manifests(io, snapshot.manifest_list)}
        except DataUnavailable as error:
            log.warning("an expired snapshot cannot be read: %s", error)
    for path, manifest in manifests.items():
        if path not in known:
            found[path] = manifest.manifest_length
            try:
                found |= {
                    e.data_file.file_path: e.data_file.file_size_in_bytes for e in reader.all_entries(io, manifest)
                }
            except DataUnavailable as error:
                log.warning("an expired manifest cannot be read: %s", error)
    return found


def needed_by(
    io: FileIO, reader: ManifestReader, snapshots: Iterable[Snapshot], *, known: Collection[str] = ()
) -> Iterator[str]:
    """Yield every path that expired snapshots need to be read again, without the manifests in `known` and their files.

    A snapshot whose own metadata is gone cannot come back and needs nothing. Errors: DataUnavailable METADATA_CORRUPT
    for what is there and cannot be read.
    """
    manifests: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        yield snapshot.manifest_list
        with _gone_is_nothing():
            manifests |= {m.manifest_path: m for m in reader.manifests(io, snapshot.manifest_list)}
    for path, manifest in manifests.items():
        if path not in known:
            yield path
            with _gone_is_nothing():
                live = [e for e in reader.all_entries(io, manifest) if e.status != ManifestEntryStatus.DELETED]
                yield from (e.data_file.file_path for e in live)


@contextmanager
def _gone_is_nothing() -> Iterator[None]:
    try:
        yield
    except DataUnavailable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        log.warning("an expired snapshot cannot be brought back: %s", error)


def older_metadata(table: Table) -> Iterator[str]:
    """Yield the metadata files that only older metadata files name: a log holds a hundred, and one leads to the next.

    Stops at the first that is gone, as Iceberg's `ReachableFileUtil.metadataFileLocations` (1.10) does.
    """
    log, seen = table.metadata.metadata_log, set[str]()
    while log and log[0].metadata_file not in seen:
        oldest = log[0].metadata_file
        seen.add(oldest)
        try:
            log = FromInputFile.table_metadata(table.io.new_input(oldest)).metadata_log
        except FileNotFoundError:
            return
        yield from (entry.metadata_file for entry in log)
