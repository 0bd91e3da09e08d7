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
from regelate.core.quarantine import Quarantine
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
        try:
            found = json.loads(self._store.read(location))
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}")
        except (ValueError, KeyError, TypeError) as error:
            raise DataUnavailable(
                "METADATA_CORRUPT", f"cannot read the quarantine list {location}: {error}", path=location
            ) from error
        return dict(found)

    def drop(self, undo_id: str) -> None:
        self._store.delete(self.location(undo_id))

    def all(self, table_uuid: str) -> tuple[Quarantine, ...]:
        """Return the lists of this very table, oldest first; those of an earlier table at this place are left alone."""
        found = [_value(d, stored.modified_ms) for stored, d in self._documents() if d["table_uuid"] == table_uuid]
        return tuple(sorted(found, key=lambda q: (q.recorded_ms, q.undo_id)))

    def others(self, table_uuid: str) -> frozenset[str]:
        """Return the locations of the lists in this folder that are not of this table."""
        return frozenset(stored.path for stored, d in self._documents() if d["table_uuid"] != table_uuid)

    def _documents(self) -> Iterator[tuple[StoredFile, Document]]:
        for stored in self._store.files(self._folder):
            name = stored.path.rpartition("/")[2]
            if name.endswith(".json"):
                yield stored, self.read(name.removesuffix(".json"))

    def now_ms(self) -> int:
        return self._store.now_ms(self._folder)

    def recorded_ms(self, undo_id: str) -> int:
        return self._store.modified_ms(self.location(undo_id))

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


def with_files(document: Document, files: Iterable[StoredFile]) -> Document:
    return {**document, "files": [[f.path, f.size_bytes] for f in files]}


def _plain(value: Any) -> Document:
    return dict(json.loads(value.model_dump_json(by_alias=True, exclude_none=True)))


def _value(document: Document, recorded_ms: int) -> Quarantine:
    files = document["files"]
    return Quarantine(
        undo_id=document["undo_id"],
        table_uuid=document["table_uuid"],
        metadata_location=document["metadata_location"],
        snapshot_ids=tuple(s["snapshot-id"] for s in document["snapshots"]),
        recorded_ms=recorded_ms,
        grace_ms=document["grace_ms"],
        files=None if files is None else tuple(StoredFile(path=p, size_bytes=s) for p, s in files),
    )
