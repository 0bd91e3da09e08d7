"""Quarantine lists as small JSON objects beside a table's metadata: `<metadata folder>/regelate/quarantine/<id>.json`.

A list holds all that an undo needs, so that it does not depend on the old metadata file, which the table may delete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from regelate.adapters.iceberg.store import ObjectStore, own_folder
from regelate.core.quarantine import COMMIT_ALLOWANCE_MS, Quarantine
from regelate.core.reachability import StoredFile
from regelate.errors import DataUnavailable
from regelate.ports import ExpiryChange

FOLDER = "quarantine"
FORMAT = 1
Document = dict[str, Any]


def quarantine_folder(metadata: TableMetadata) -> str:
    return f"{own_folder(metadata)}/{FOLDER}"


class QuarantineLists:
    """The lists of one table, by its storage and the folder they lie in."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    def write(self, document: Document) -> None:
        self._store.write(self.location(document["undo_id"]), json.dumps(document, separators=(",", ":")).encode())

    def read(self, undo_id: str) -> Document:
        """Return a list as it was written. Errors: DataUnavailable METADATA_CORRUPT."""
        location = self.location(undo_id)
        found = _parsed(self._store.read(location))
        if found is None or found.get("format") != FORMAT:
            what = "it was cut off" if found is None else f"its format is {found.get('format')}"
            raise DataUnavailable(
                "METADATA_CORRUPT", f"cannot read the quarantine list {location}: {what}", path=location
            )
        return found

    def drop(self, undo_id: str) -> None:
        self._store.delete(self.location(undo_id))

    def all(self, table_uuid: str) -> tuple[Quarantine, ...]:
        """Return the lists of this very table, oldest first; those of an earlier table at this place are left alone.

        One that was cut off while it was written names nothing, and is due half an hour later: its expiry died
        before anybody was told of an undo. What it would have named is found as orphan files.
        """
        found = [
            _value(d, stored.modified_ms) if d is not None else _cut_off(table_uuid, stored)
            for stored, d in self._documents()
            if d is None or d["table_uuid"] == table_uuid
        ]
        return tuple(sorted(found, key=lambda q: (q.recorded_ms, q.undo_id)))

    def others(self, table_uuid: str) -> frozenset[str]:
        """Return the locations of the lists in this folder that are not of this table."""
        documents = self._documents()
        return frozenset(stored.path for stored, d in documents if d is not None and d["table_uuid"] != table_uuid)

    def _documents(self) -> Iterator[tuple[StoredFile, Document | None]]:
        """Yield every list; without a document where it was cut off."""
        for stored in self._store.files(self._folder):
            name = stored.path.rpartition("/")[2]
            if name.endswith(".json"):
                whole = _parsed(self._store.read(stored.path)) is not None
                yield stored, self.read(name.removesuffix(".json")) if whole else None

    def now_ms(self) -> int:
        return self._store.now_ms(self._folder)

    def recorded_ms(self, undo_id: str) -> int | None:
        """Return when a list was written; None where it is gone."""
        location = self.location(undo_id)
        return next((f.modified_ms for f in self._store.files(self._folder) if f.path == location), None)

    def location(self, undo_id: str) -> str:
        return f"{self._folder}/{undo_id}.json"


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


def _parsed(content: bytes) -> Document | None:
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _cut_off(table_uuid: str, stored: StoredFile) -> Quarantine:
    return Quarantine(
        undo_id=stored.path.rpartition("/")[2].removesuffix(".json"),
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
