"""What expired snapshots leave behind: listed, deleted from the list, or brought back."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from copy import copy
from functools import cached_property

from pyiceberg.table import Table

from regelate.adapters.iceberg.cleanup.neighbours import Neighbours, folders_of
from regelate.adapters.iceberg.cleanup.quarantine import (
    Document,
    QuarantineLists,
    document_of,
    merged,
    quarantine_folders,
    snapshots_in,
    statistics_in,
    with_files,
)
from regelate.adapters.iceberg.cleanup.reach import Reach, Spend, freely, mark
from regelate.adapters.iceberg.commit.expiry import check_gc
from regelate.adapters.iceberg.files.store import ObjectStore
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.tasks import check_metadata
from regelate.core.running.commit import ExpiryChange
from regelate.core.upkeep.quarantine import Quarantine, Restoration
from regelate.core.upkeep.reachability import StoredFile, of_other_tables
from regelate.errors import Conflict


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
        self._spend: Spend = freely

    def check_allowed(self) -> None:
        metadata = self._seen().metadata
        check_metadata(metadata)
        check_gc(metadata)

    def check_unshared(self) -> None:
        self._folders_of_others = self._neighbours.check_no_clone(self._seen(), self._spend)

    def record(self, undo_id: str, change: ExpiryChange, *, grace_ms: int, created_ms: int) -> None:
        """Write the list of an attempt; what earlier ones of this expiry named stays in it, for one may yet land."""
        document = document_of(undo_id, self._seen(), change, grace_ms=grace_ms, created_ms=created_ms)
        if undo_id in self._recorded:
            document = merged(self._recorded[undo_id], document)
        self._recorded[undo_id] = document
        self._lists.write(document)

    def within(self, spend: Spend) -> SnapshotReclaimer:
        self._lists  # noqa: B018  made now, so that both know what one of them has read
        limited = copy(self)
        limited._spend = spend
        return limited

    def list_files(self, undo_id: str) -> Quarantine:
        """Complete a list with the files that its snapshots reached and the kept ones beside them do not; return it.

        Where it is gone, this run was out of touch for so long that another one finished its expiry: then there is
        nothing to undo any more, and what may be left is due at once. Call it after the head was loaded.
        """
        recorded_ms = self._lists.recorded_ms(undo_id) or 0
        document = self._recorded.get(undo_id) or self._lists.read(undo_id)
        _check_same(self._seen(), document["table_uuid"])
        files = self._left_by(self._seen(), document)
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

    def complete(self, listed: Quarantine, files: Sequence[StoredFile]) -> None:
        """Write down the files of a list without any: what names them now is deleted with them."""
        document = self._lists.read(listed.undo_id)
        self._lists.write(with_files(document, files, listed.recorded_ms))

    def drop(self, undo_id: str) -> None:
        self._lists.drop(undo_id)

    def quarantines(self) -> tuple[Quarantine, ...]:
        return self._lists.all(str(self._seen().metadata.table_uuid), self._spend)

    def oldest(self) -> tuple[int, Quarantine | None]:
        return self._lists.oldest(str(self._seen().metadata.table_uuid), self._spend)

    def now_ms(self) -> int:
        return self._lists.now_ms()

    def unreachable(self, lists: Sequence[Quarantine]) -> tuple[tuple[StoredFile, ...], ...]:
        """Return the files of each list that the latest metadata still does not reach."""
        if not lists:
            return ()
        table = self._load()
        check_gc(table.metadata)
        _check_same(table, str(self._seen().metadata.table_uuid))
        named = [self._left_by(table, self._lists.read(q.undo_id)) if q.files is None else q.files for q in lists]
        sizes = {f.path: f.size_bytes for files in named for f in files}
        left = {f.path for f in self._reach.unreached(table, sizes)}
        return tuple(tuple(f for f in files if f.path in left) for files in named)

    def needed(self, lists: Sequence[Quarantine], paths: Collection[str]) -> frozenset[str]:
        """Return which of these paths the snapshots of these lists need, with their statistics.

        Not by the files of the lists: these hold what the snapshots had removed, too, which an earlier list may name.
        """
        documents = [self._lists.read(q.undo_id) for q in lists if q.snapshot_ids]  # a list that was cut off has none
        statistics = {mark(path) for document in documents for path in statistics_in(document)}
        found = frozenset(path for path in paths if mark(path) in statistics)
        snapshots = [s for document in documents for s in snapshots_in(document)]
        return found | self._reach.needed(snapshots, (path for path in paths if path not in found))

    def delete(self, files: Sequence[StoredFile]) -> tuple[StoredFile, ...]:
        """Delete files and return those that were there. What lies in another table's folder is spared."""
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
        return QuarantineLists(self._store, quarantine_folders(self._seen()))

    @property
    def _reach(self) -> Reach:
        return Reach(self._seen().io, self._reader, self._spend)

    def _left_by(self, table: Table, document: Document) -> tuple[StoredFile, ...]:
        return self._reach.left_by(snapshots_in(document), table, statistics_in(document))


def _check_same(table: Table, table_uuid: str) -> None:
    if str(table.metadata.table_uuid) != table_uuid:
        raise Conflict(
            "TABLE_REPLACED",
            "the table was dropped and made again meanwhile; nothing was deleted",
            retryable=False,
        )
