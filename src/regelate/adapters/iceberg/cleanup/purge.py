"""Every file that a table's metadata names, for a drop with purge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from regelate.adapters.iceberg.cleanup.dead_runs import read_entry
from regelate.adapters.iceberg.cleanup.neighbours import folders_of
from regelate.adapters.iceberg.cleanup.quarantine import QuarantineLists, quarantine_folders
from regelate.adapters.iceberg.cleanup.reach import freely
from regelate.adapters.iceberg.cleanup.reached import all_manifests
from regelate.adapters.iceberg.files.ledger import FOLDER as LEDGER_FOLDER
from regelate.adapters.iceberg.files.store import ObjectStore, own_folders
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.pyiceberg_errors import storage_faults
from regelate.core.values import dataclass
from regelate.errors import DataUnavailable, RegelateError, Unavailable

DELETIONS_AT_ONCE = 16
DELETIONS_IN_FLIGHT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """What to delete, in this order: what expiry and dead runs left, the files of manifests, manifests, their lists,
    metadata."""

    folders: tuple[str, ...]
    remembered: tuple[str, ...]
    manifests: tuple[ManifestFile, ...]
    manifest_lists: tuple[str, ...]
    metadata_files: tuple[str, ...]

    @classmethod
    def of(cls, table: Table) -> FileList:
        """Read the manifest lists of all snapshots. Errors: DataUnavailable METADATA_CORRUPT."""
        metadata = table.metadata
        return cls(
            folders=folders_of(metadata),
            remembered=_remembered(table),
            manifests=tuple(all_manifests(table, ManifestReader())),
            manifest_lists=tuple(dict.fromkeys(s.manifest_list for s in metadata.snapshots)),
            metadata_files=(
                *(s.statistics_path for s in (*metadata.statistics, *metadata.partition_statistics)),
                *(entry.metadata_file for entry in metadata.metadata_log),
                table.metadata_location,
            ),
        )


def delete_files(io: FileIO, files: FileList) -> None:
    """Delete the listed files; one that is gone already, or cannot be deleted, does not stop the others.

    The table is dropped by then: what is left behind is an orphan, no fault of the caller's.
    """
    steps: tuple[Iterable[str], ...] = (
        files.remembered,
        _content(io, files.manifests),
        (m.manifest_path for m in files.manifests),
        files.manifest_lists,
        files.metadata_files,
    )
    with ThreadPoolExecutor(DELETIONS_AT_ONCE) as pool:
        for paths in steps:
            own = (path for path in paths if any(_begins_with(path, folder) for folder in files.folders))
            while batch := tuple(islice(own, DELETIONS_IN_FLIGHT)):
                tuple(pool.map(lambda path: _delete(io, path), batch))


def _remembered(table: Table) -> tuple[str, ...]:
    """Return what expiry listed and what runs entered in the ledger, then our own objects beside the metadata.

    Those of another table, which has its metadata here too or stood in this place before, stay, and so do its files.
    """
    store, uuid = ObjectStore(table.io), str(table.metadata.table_uuid)
    quarantine = QuarantineLists(store, quarantine_folders(table))
    lists = quarantine.all(uuid, freely)
    own = [f for folder in own_folders(table) for f in store.files(folder)]
    with storage_faults():
        read = [
            read_entry(table.io, f, 0.0) for f in own if f"/{LEDGER_FOLDER}/" in f.path and f.path.endswith(".json")
        ]
    entries = [entry for entry in read if entry is not None]
    foreign = {entry.location for entry in entries if entry.table_uuid not in (None, uuid)} | quarantine.others(uuid)
    return (
        *(f.path for q in lists for f in q.files or ()),
        *(path for entry in entries if entry.table_uuid == uuid for path in entry.paths),
        *(f.path for f in own if f.path not in foreign),
    )


def _begins_with(path: str, folder: str) -> bool:
    """Compare as texts: a writer's names of files may hold any character, and are not to be read in another way."""
    return path.startswith(folder.rstrip("/") + "/") and "/../" not in path


def _content(io: FileIO, manifests: Iterable[ManifestFile]) -> Iterator[str]:
    """Yield each data and delete file once; a manifest that cannot be read keeps its files."""
    reader = ManifestReader(cached_bytes=0)
    seen: set[str] = set()
    for manifest in manifests:
        try:
            found = {entry.data_file.file_path for entry in reader.all_entries(io, manifest)}
        except (DataUnavailable, Unavailable):
            continue
        yield from found - seen
        seen |= found


def _delete(io: FileIO, path: str) -> None:
    try:
        io.delete(path)
    except (OSError, RegelateError):
        return
