"""The files of one table's folder, and everything that may still need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from pyiceberg.table import Table

from regelate.adapters.iceberg.cleanup.neighbours import Neighbours
from regelate.adapters.iceberg.cleanup.quarantine import (
    QuarantineLists,
    quarantine_folders,
    snapshots_in,
    statistics_in,
)
from regelate.adapters.iceberg.cleanup.reach import freely
from regelate.adapters.iceberg.cleanup.reached import needed_by, older_metadata, reached, reached_by
from regelate.adapters.iceberg.commit.expiry import check_gc
from regelate.adapters.iceberg.files.store import ObjectStore, own_folder, own_folders
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.tasks import check_metadata
from regelate.adapters.iceberg.pyiceberg_errors import catalog_faults
from regelate.core.upkeep.reachability import Place, StoredFile
from regelate.errors import Conflict

VERSION_HINT = "version-hint.text"
"""Where tables without a catalog (Iceberg's HadoopTables) say which metadata file is theirs."""


class TableOrphans:
    """Implements OrphanFiles. Errors: NotAllowed GC_DISABLED, also where another table's folder overlaps; Unsupported
    for format version 3; DataUnavailable METADATA_CORRUPT when not everything that is reachable can be read; Conflict
    TABLE_REPLACED."""

    def __init__(self, load: Callable[[], Table], reader: ManifestReader, neighbours: Neighbours) -> None:
        self._load = load
        self._reader = reader
        self._neighbours = neighbours
        self._table = load()

    @property
    def root(self) -> str:
        return self._table.metadata.location

    @property
    def partition_names(self) -> tuple[str, ...]:
        return tuple({f.name for spec in self._table.metadata.partition_specs for f in spec.fields})

    def check_allowed(self) -> None:
        check_metadata(self._table.metadata)
        check_gc(self._table.metadata)
        self._neighbours.check_apart(self._table)

    def listing(self) -> tuple[StoredFile, ...]:
        """List the table's folder, without what lies in our own: lists and ledgers look after themselves."""
        own = [Place.of(folder) for folder in own_folders(self._table)]
        files = ((f, Place.of(f.path)) for f in self._store.files(self.root))
        return tuple(f for f, place in files if not any(folder.holds(place) for folder in own))

    def now_ms(self) -> int:
        return self._store.now_ms(own_folder(self._table.metadata))

    def refresh(self) -> str:
        found = self._load()
        if found.metadata.table_uuid != self._table.metadata.table_uuid:
            raise Conflict(
                "TABLE_REPLACED",
                "another table has this name by now, and the files may belong to the earlier one, which may have "
                "been renamed; nothing was deleted",
                retryable=False,
            )
        self._table = found
        check_gc(self._table.metadata)
        return self._table.metadata_location

    def reachable(self) -> Iterator[str]:
        metadata = self._table.metadata
        yield from reached(self._table, self._reader)
        with catalog_faults():
            yield from older_metadata(self._table)
        yield from (f"{folder.rpartition('/')[0]}/{VERSION_HINT}" for folder in own_folders(self._table))
        lists = QuarantineLists(self._store, quarantine_folders(self._table))
        for listed in lists.all(str(metadata.table_uuid), freely):
            if not listed.snapshot_ids:  # it was cut off, and names nothing
                continue
            yield listed.metadata_location
            yield from (f.path for f in listed.files or ())
            document = lists.read(listed.undo_id)
            yield from statistics_in(document)
            yield from needed_by(self._table.io, self._reader, snapshots_in(document))
            if listed.files is None:
                yield from reached_by(self._table.io, self._reader, snapshots_in(document))

    def delete(self, files: Sequence[StoredFile]) -> tuple[StoredFile, ...]:
        return self._store.delete_all(files)

    @cached_property
    def _store(self) -> ObjectStore:
        return ObjectStore(self._table.io)
