"""What the ledger folder of one table holds, and which of the files in it the table needs."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from regelate.adapters.iceberg.catalogs import open_table
from regelate.adapters.iceberg.cleanup.neighbours import folders_of
from regelate.adapters.iceberg.cleanup.reach import Spend, freely
from regelate.adapters.iceberg.files.ledger import FOLDER, FORMAT
from regelate.adapters.iceberg.files.store import ObjectStore, own_folders
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.pyiceberg_errors import storage_faults
from regelate.adapters.iceberg.s3.file_io import S3FileIO
from regelate.adapters.iceberg.s3.settings import is_s3
from regelate.adapters.iceberg.tables.properties import gc_enabled
from regelate.core.upkeep.ledger import LedgerEntry, TableFacts
from regelate.core.upkeep.reachability import StoredFile

log = logging.getLogger(__name__)
REQUESTS_AT_ONCE = 16


class TableLedgers:
    """Implements Ledgers for one table of a catalog.

    `facts` loads the table anew, and `referenced` speaks of that state: a run that was dead before can no longer
    change it.
    """

    def __init__(self, catalog: Catalog, ident: str, reader: ManifestReader) -> None:
        self._catalog = catalog
        self._ident = ident
        self._reader = reader
        self._spend: Spend = freely
        self._table = open_table(catalog, ident)

    def within(self, spend: Spend) -> TableLedgers:
        """Return the same, telling `spend` before so many requests; what it raises ends it before any deletion."""
        limited = copy(self)
        limited._spend = spend
        return limited

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Read every entry, with its age by the store's clock. Errors: Unsupported where the store cannot list."""
        folders = [f"{folder.rpartition('/')[0]}/{FOLDER}" for folder in own_folders(self._table)]
        store = ObjectStore(self._table.io)
        listed = [f for folder in folders for f in store.files(folder) if f.path.endswith(".json")]
        if not listed:
            return ()
        self._spend(len(listed))
        now_ms = store.now_ms(folders[0])
        with storage_faults():
            found = [read_entry(self._table.io, file, (now_ms - file.modified_ms) / 1000) for file in listed]
        return tuple(entry for entry in found if entry is not None)

    def facts(self) -> TableFacts:
        """Load the table as it is now."""
        self._table = open_table(self._catalog, self._ident)
        metadata = self._table.metadata
        return TableFacts(
            table_uuid=str(metadata.table_uuid),
            folders=folders_of(metadata),
            gc_enabled=gc_enabled(metadata.properties),
        )

    def existing(self, paths: Collection[str]) -> Mapping[str, int]:
        """Return path -> size of those that are in the store."""
        self._spend(len(paths))
        with storage_faults(), ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            sizes = dict(zip(paths, pool.map(self._size, paths), strict=True))
        return {path: size for path, size in sizes.items() if size is not None}

    def referenced(self, paths: Collection[str]) -> frozenset[str]:
        """Return those that any snapshot of any ref, or the metadata itself, names; entries of every status count.

        Errors: DataUnavailable METADATA_CORRUPT: what cannot be read may name anything.
        """
        wanted = set(paths)
        loose = set(wanted)
        for found in _named_by(self._table, self._reader, self._spend):
            loose -= found
            if not loose:
                break
        return frozenset(wanted - loose)

    def delete(self, paths: Collection[str]) -> frozenset[str]:
        """Delete files and return those that are gone; what cannot be deleted is logged."""
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            gone = dict(zip(paths, pool.map(self._delete, paths), strict=True))
        return frozenset(path for path, deleted in gone.items() if deleted)

    def abort_uploads(self, paths: Collection[str]) -> None:
        """End the uploads in parts that dead runs left open: they are no objects, and cost as much."""
        io = self._table.io
        if isinstance(io, S3FileIO):
            with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
                tuple(pool.map(io.abort_uploads, filter(is_s3, paths)))

    def drop(self, entry: LedgerEntry) -> None:
        self._delete(entry.location)

    def _size(self, path: str) -> int | None:
        try:
            return len(self._table.io.new_input(path))
        except FileNotFoundError:
            return None

    def _delete(self, path: str) -> bool:
        try:
            self._table.io.delete(path)
        except FileNotFoundError:
            return True
        except Exception as error:  # noqa: BLE001  the entry stays, so that the next sweep tries again
            log.warning("cannot delete %s: %s", path, error)
            return False
        return True


def read_entry(io: FileIO, file: StoredFile, age_seconds: float) -> LedgerEntry | None:
    """Read one entry; None where its run ended just now, and it is gone."""
    try:
        with io.new_input(file.path).open() as source:
            content = _parsed(source.read())
    except FileNotFoundError:
        return None
    run = content.get("run") or file.path.rpartition("/")[2].rpartition("-")[0]
    return LedgerEntry(
        location=file.path,
        run=str(run),
        table_uuid=content.get("table_uuid"),
        paths=tuple(content.get("paths", ())),
        age_seconds=age_seconds,
        lives_seconds=float(content.get("lives_seconds", 0.0)),
        newer_format=content.get("format", FORMAT) != FORMAT,
    )


def _parsed(content: bytes) -> Mapping[str, Any]:
    """Return an entry; nothing for one that was cut off, whose run died before it created a file."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _named_by(table: Table, reader: ManifestReader, spend: Spend) -> Iterable[set[str]]:
    """Yield what the metadata names, the cheap part first."""
    metadata = table.metadata
    yield {
        table.metadata_location,
        *(entry.metadata_file for entry in metadata.metadata_log),
        *(s.manifest_list for s in metadata.snapshots),
        *(s.statistics_path for s in (*metadata.statistics, *metadata.partition_statistics)),
    }
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        spend(1)
        manifests = [m for m in reader.manifests(table.io, snapshot.manifest_list) if m.manifest_path not in seen]
        seen |= {m.manifest_path for m in manifests}
        yield {m.manifest_path for m in manifests}
        for manifest in manifests:
            spend(1)
            yield {entry.data_file.file_path for entry in reader.all_entries(table.io, manifest)}
