"""What expired snapshots leave behind: listed, deleted from the list, or brought back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain

from pyiceberg.table import Table

from regelate.adapters.iceberg.expiry import check_gc
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.neighbours import Neighbours, folders_of
from regelate.adapters.iceberg.quarantine import (
    Document,
    QuarantineLists,
    document_of,
    merged,
    quarantine_folder,
    snapshots_in,
    statistics_in,
    with_files,
)
from regelate.adapters.iceberg.reached import all_manifests, needed_by, reached, reached_by
from regelate.adapters.iceberg.store import ObjectStore
from regelate.adapters.iceberg.tasks import check_metadata
from regelate.core.quarantine import Quarantine, Restoration
from regelate.core.reachability import StoredFile, of_other_tables, plan_reclaim
from regelate.errors import Conflict
from regelate.ports import ExpiryChange


class SnapshotReclaimer:
    """Implements Reclaimer for one table.

    `seen` gives the table as the attempt loop last saw it: it still has the snapshots that an expiry takes. `load`
    gives the latest: reachability counts over ALL snapshots of its metadata, so over every ref. Errors: NotAllowed
    GC_DISABLED when the table forbids deletion or shares its files; Unsupported for format version 3; Conflict
    TABLE_REPLACED; DataUnavailable METADATA_CORRUPT when what is still reached cannot be read: then nothing goes.
    """

    def __init__(
        self, load: Callable[[], Table], seen: Callable[[], Table], reader: ManifestReader, neighbours: Neighbours
    ) -> None:
        self._load = load
        self._seen = seen
        self._reader = reader
        self._neighbours = neighbours
        self._recorded: dict[str, Document] = {}
        self._folders_of_others: tuple[str, ...] | None = None

    def check_allowed(self) -> None:
        metadata = self._seen().metadata
        check_metadata(metadata)
        check_gc(metadata)

    def check_unshared(self) -> None:
        self._folders_of_others = self._neighbours.check_no_clone(self._seen())

    def record(self, undo_id: str, change: ExpiryChange, *, grace_ms: int, created_ms: int) -> None:
        """Write the list of an attempt; what earlier ones of this expiry named stays in it, for one may yet land."""
        document = document_of(undo_id, self._seen(), change, grace_ms=grace_ms, created_ms=created_ms)
        if undo_id in self._recorded:
            document = merged(self._recorded[undo_id], document)
        self._recorded[undo_id] = document
        self._lists.write(document)

    def list_files(self, undo_id: str) -> Quarantine:
        """Complete a list with the files that its snapshots reached and the latest metadata does not, and return it.

        Where it is gone, this run was out of touch for so long that another one finished its expiry: then there is
        nothing to undo any more, and what may be left is due at once.
        """
        recorded_ms = self._lists.recorded_ms(undo_id) or 0
        document = self._recorded.get(undo_id) or self._lists.read(undo_id)
        files = self._unreached(self._reached_by(document))
        self._lists.write(with_files(document, files, recorded_ms))
        return Quarantine(
            undo_id=undo_id,
            table_uuid=document["table_uuid"],
            metadata_location=document["metadata_location"],
            snapshot_ids=tuple(s["snapshot-id"] for s in document["snapshots"]),
            recorded_ms=recorded_ms,
            grace_ms=document["grace_ms"],
            files=files,
        )

    def drop(self, undo_id: str) -> None:
        self._lists.drop(undo_id)

    def quarantines(self) -> tuple[Quarantine, ...]:
        return self._lists.all(str(self._seen().metadata.table_uuid))

    def now_ms(self) -> int:
        return self._lists.now_ms()

    def unreachable(self, listed: Quarantine) -> tuple[StoredFile, ...]:
        """Return the files of a list that the latest metadata still does not reach."""
        if listed.files is None:
            return self._unreached(self._reached_by(self._lists.read(listed.undo_id)))
        return self._unreached({f.path: f.size_bytes for f in listed.files})

    def needed(self, lists: Sequence[Quarantine]) -> frozenset[str]:
        documents = [self._lists.read(q.undo_id) for q in lists if q.snapshot_ids]  # a list that was cut off has none
        snapshots = [s for document in documents for s in snapshots_in(document)]
        known = {m.manifest_path for m in all_manifests(self._load(), self._reader)}
        return frozenset(
            chain(
                (f.path for q in lists for f in q.files or ()),
                *(statistics_in(document) for document in documents),
                needed_by(self._seen().io, self._reader, snapshots, known=known),
            )
        )

    def delete(self, files: Sequence[StoredFile]) -> tuple[StoredFile, ...]:
        """Delete files and return those that were there. What lies in another table's folder is spared (row 52)."""
        if self._folders_of_others is None:
            self.check_unshared()
        mine, theirs = folders_of(self._seen().metadata), self._folders_of_others or ()
        foreign = of_other_tables((f.path for f in files), mine, theirs)
        return self._store.delete_all(f for f in files if f.path not in foreign)

    def restoration(self, undo_id: str) -> Restoration:
        document = self._lists.read(undo_id)
        snapshots = sorted(document["snapshots"], key=lambda s: (s.get("sequence-number", 0), s["timestamp-ms"]))
        return Restoration(
            snapshots=tuple((s["snapshot-id"], json.dumps(s)) for s in snapshots),
            refs=tuple((name, json.dumps(ref)) for name, ref in document["refs"].items()),
            statistics=tuple(json.dumps(s) for s in document["statistics"]),
            partition_statistics=tuple(json.dumps(s) for s in document["partition_statistics"]),
        )

    @cached_property
    def _store(self) -> ObjectStore:
        return ObjectStore(self._seen().io)

    @cached_property
    def _lists(self) -> QuarantineLists:
        return QuarantineLists(self._store, quarantine_folder(self._seen().metadata))

    def _reached_by(self, document: Document) -> dict[str, int]:
        known = {m.manifest_path for m in all_manifests(self._load(), self._reader)}
        snapshots = snapshots_in(document)
        return {**statistics_in(document), **reached_by(self._seen().io, self._reader, snapshots, known=known)}

    def _unreached(self, candidates: dict[str, int]) -> tuple[StoredFile, ...]:
        table = self._load()
        check_gc(table.metadata)
        if table.metadata.table_uuid != self._seen().metadata.table_uuid:
            raise Conflict(
                "TABLE_REPLACED",
                "the table was dropped and made again meanwhile; nothing was deleted",
                retryable=False,
            )
        return plan_reclaim(candidates, reached(table, self._reader)) if candidates else ()
