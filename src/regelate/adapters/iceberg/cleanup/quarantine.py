"""Quarantine lists as small JSON objects at a table's location: `<location>/metadata/regelate/quarantine/<id>.json`.

A list holds all that an undo needs, so that it does not depend on the old metadata file, which the table may delete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from regelate.adapters.iceberg.files.store import ObjectStore, own_folders
from regelate.core.running.commit import ExpiryChange
from regelate.core.upkeep.quarantine import COMMIT_ALLOWANCE_MS, Quarantine
from regelate.core.upkeep.reachability import StoredFile
from regelate.errors import DataUnavailable

FOLDER = "quarantine"
FORMAT = 1
READS_AT_ONCE = 16
Document = dict[str, Any]


def quarantine_folders(table: Table) -> tuple[str, ...]:
    return tuple(f"{folder}/{FOLDER}" for folder in own_folders(table))


class QuarantineLists:
    """The lists of one table, by its storage and the folders they may lie in; for one operation.

    New ones go to the first folder. A list that has its files does not change any more, and is read once.
    """

    def __init__(self, store: ObjectStore, folders: Sequence[str]) -> None:
        self._store = store
        self._folders = folders
        self._places: dict[str, str] = {}
        self._known: dict[tuple[str, int, int], Document] = {}
        self._documents: dict[str, Document] = {}

    def write(self, document: Document) -> None:
        self._store.write(self.location(document["undo_id"]), json.dumps(document, separators=(",", ":")).encode())

    def read(self, undo_id: str) -> Document:
        """Return a list as it was last read by `all`, else as it is. Errors: DataUnavailable METADATA_CORRUPT."""
        found = self._documents.get(undo_id)
        if found is None:
            location = self.location(undo_id)
            found = _parsed(self._store.read(location), location)
            if found is None:
                raise _unreadable(location, "it was cut off")
        return found

    def drop(self, undo_id: str) -> None:
        self._store.delete(self.location(undo_id))

    def all(self, table_uuid: str, spend: Callable[[int], None]) -> tuple[Quarantine, ...]:
        """Return the lists of this very table, oldest first; those of an earlier table at this place are left alone.

        One that was cut off while it was written names nothing, and is due half an hour later: its expiry died
        before anybody was told of an undo. What it would have named is found as orphan files.
        """
        return _values(table_uuid, self._all(self.stored(), spend))

    def oldest(self, table_uuid: str, spend: Callable[[int], None]) -> tuple[int, Quarantine | None]:
        """Return how many lists there are, of whatever table, and the one that was completed first if it is ours."""
        stored = sorted(self.stored(), key=lambda f: f.modified_ms)
        found = _values(table_uuid, self._all(stored[:1], spend))
        return len(stored), found[0] if found else None

    def others(self, table_uuid: str) -> frozenset[str]:
        """Return the locations of the lists in this folder that are not of this table."""
        documents = self._all(self.stored(), lambda requests: None)
        return frozenset(stored.path for stored, d in documents if d is not None and d["table_uuid"] != table_uuid)

    def stored(self) -> tuple[StoredFile, ...]:
        found = [f for folder in self._folders for f in self._store.files(folder) if f.path.endswith(".json")]
        self._places = {_undo_id(f): f.path for f in found}
        return tuple(found)

    def _all(
        self, stored: Sequence[StoredFile], spend: Callable[[int], None]
    ) -> list[tuple[StoredFile, Document | None]]:
        """Read what is not known yet, several at once; without a document where a list was cut off."""
        unread = [file for file in stored if _version(file) not in self._known]
        spend(len(unread))
        found: dict[tuple[str, int, int], Document | None] = {
            _version(f): self._known[_version(f)] for f in stored if _version(f) in self._known
        }
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            found |= zip(map(_version, unread), pool.map(self._document, unread), strict=True)
        self._known |= {version: d for version, d in found.items() if d is not None and d["files"] is not None}
        self._documents |= {d["undo_id"]: d for d in found.values() if d is not None}
        return [(file, found[_version(file)]) for file in stored]

    def _document(self, stored: StoredFile) -> Document | None:
        return _parsed(self._store.read(stored.path), stored.path)

    def now_ms(self) -> int:
        return self._store.now_ms(self._folders[0])

    def recorded_ms(self, undo_id: str) -> int | None:
        """Return when a list was written; None where it is gone."""
        return next((f.modified_ms for f in self.stored() if _undo_id(f) == undo_id), None)

    def location(self, undo_id: str) -> str:
        return self._places.get(undo_id, f"{self._folders[0]}/{undo_id}.json")


def document_of(undo_id: str, table: Table, change: ExpiryChange, *, grace_ms: int, created_ms: int) -> Document:
    """Describe an expiry before it is committed: what it takes from this metadata, not yet which files."""
    metadata, gone = table.metadata, set(change.snapshot_ids)
    return {
        "format": FORMAT,
        "undo_id": undo_id,
        "table_uuid": str(metadata.table_uuid),
        "metadata_location": table.metadata_location,
        "created_ms": created_ms,
        "grace_ms": grace_ms,
        "snapshots": [_plain(s) for s in metadata.snapshots if s.snapshot_id in gone],
        "refs": {name: _plain(ref) for name, ref in metadata.refs.items() if name in change.ref_names},
        "statistics": [_plain(s) for s in metadata.statistics if s.snapshot_id in gone],
        "partition_statistics": [_plain(s) for s in metadata.partition_statistics if s.snapshot_id in gone],
        "files": None,
    }


def merged(earlier: Document, later: Document) -> Document:
    """Return the later list with what only the earlier one names."""
    ids = {s["snapshot-id"] for s in later["snapshots"]}
    joined = {**later, "refs": {**earlier["refs"], **later["refs"]}}
    for part in ("snapshots", "statistics", "partition_statistics"):
        joined[part] = [s for s in earlier[part] if s["snapshot-id"] not in ids] + later[part]
    return joined


def snapshots_in(document: Document) -> tuple[Snapshot, ...]:
    return tuple(Snapshot(**s) for s in document["snapshots"])


def statistics_in(document: Document) -> dict[str, int]:
    """Return the statistics files of the expired snapshots, path -> bytes."""
    listed: Iterable[Document] = (*document["statistics"], *document["partition_statistics"])
    return {s["statistics-path"]: s["file-size-in-bytes"] for s in listed}


def with_files(document: Document, files: Iterable[StoredFile], recorded_ms: int) -> Document:
    """Complete a list. The time of its grace stays that of the list without files."""
    return {**document, "recorded_ms": recorded_ms, "files": [[f.path, f.size_bytes] for f in files]}


def _undo_id(stored: StoredFile) -> str:
    return stored.path.rpartition("/")[2].removesuffix(".json")


def _version(stored: StoredFile) -> tuple[str, int, int]:
    return stored.path, stored.modified_ms, stored.size_bytes


def _parsed(content: bytes, location: str) -> Document | None:
    """Return a list; None where it was cut off. Errors: DataUnavailable METADATA_CORRUPT for an unknown format."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    if found.get("format") != FORMAT:
        raise _unreadable(location, f"its format is {found.get('format')}")
    return found


def _unreadable(location: str, what: str) -> DataUnavailable:
    return DataUnavailable("METADATA_CORRUPT", f"cannot read the quarantine list {location}: {what}", path=location)


def _values(table_uuid: str, read: Iterable[tuple[StoredFile, Document | None]]) -> tuple[Quarantine, ...]:
    found = [
        _value(d, stored.modified_ms) if d is not None else _cut_off(table_uuid, stored)
        for stored, d in read
        if d is None or d["table_uuid"] == table_uuid
    ]
    return tuple(sorted(found, key=lambda q: (q.recorded_ms, q.undo_id)))


def _cut_off(table_uuid: str, stored: StoredFile) -> Quarantine:
    return Quarantine(
        undo_id=_undo_id(stored),
        table_uuid=table_uuid,
        metadata_location="",
        snapshot_ids=(),
        recorded_ms=stored.modified_ms,
        grace_ms=COMMIT_ALLOWANCE_MS,
        files=(),
    )


def _plain(value: Any) -> Document:
    return dict(json.loads(value.model_dump_json(by_alias=True, exclude_none=True)))


def _value(document: Document, modified_ms: int) -> Quarantine:
    files = document["files"]
    return Quarantine(
        undo_id=document["undo_id"],
        table_uuid=document["table_uuid"],
        metadata_location=document["metadata_location"],
        snapshot_ids=tuple(s["snapshot-id"] for s in document["snapshots"]),
        recorded_ms=document.get("recorded_ms", modified_ms),
        grace_ms=document["grace_ms"],
        files=None if files is None else tuple(StoredFile(path=p, size_bytes=s) for p, s in files),
    )
