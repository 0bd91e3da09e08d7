"""What a reader of the specification sees in one snapshot. Written from the spec, not from `core/table/deletes.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from regelate.adapters.iceberg.manifests import ManifestReader
from tests.system.simulation.rows import Row, decode, decode_keys, decode_positions
from tests.system.simulation.store import ObjectStore

Home = tuple[int, tuple[object, ...]]
"""Spec id and partition values."""


class Broken(BaseException):
    """A law does not hold. No `except Exception` of shipped code may swallow it."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data or delete file that is live in one snapshot."""

    path: str
    content: DataFileContent
    home: Home
    sequence_number: int
    record_count: int
    size_bytes: int
    manifest_path: str
    entry: ManifestEntry


@dataclass(frozen=True)
class Photograph:
    """One snapshot, read whole. `visible`: the rows that are left of each data file, with their positions."""

    snapshot: Snapshot
    manifests: tuple[ManifestFile, ...]
    data_files: dict[str, LiveFile]
    delete_files: dict[str, LiveFile]
    visible: dict[str, list[tuple[int, Row]]]

    @property
    def rows(self) -> Iterable[Row]:
        return (row for rows in self.visible.values() for _, row in rows)

    @property
    def paths(self) -> set[str]:
        """Every object that somebody who reads this snapshot needs."""
        names = {self.snapshot.manifest_list, *(m.manifest_path for m in self.manifests)}
        return names | self.data_files.keys() | self.delete_files.keys()


def photograph(
    metadata: TableMetadata, snapshot: Snapshot, store: ObjectStore, io: FileIO, reader: ManifestReader
) -> Photograph:
    manifests = reader.manifests(io, snapshot.manifest_list)
    found: dict[str, LiveFile] = {}
    for manifest in manifests:
        for entry in reader.entries(io, manifest):
            live = _live(entry, manifest)
            if live.path in found:
                raise Broken(f"{live.path} stands in snapshot {snapshot.snapshot_id} twice")
            found[live.path] = live
    data = {p: f for p, f in found.items() if f.content is DataFileContent.DATA}
    deletes = {p: f for p, f in found.items() if p not in data}
    return Photograph(snapshot, manifests, data, deletes, _visible(metadata, data, deletes, store))


def _live(entry: ManifestEntry, manifest: ManifestFile) -> LiveFile:
    native = entry.data_file
    content = native.content or DataFileContent.DATA  # v1 knows no other
    if (manifest.content == ManifestContent.DATA) != (content is DataFileContent.DATA):
        raise Broken(f"{native.file_path} is of the wrong content for {manifest.manifest_path}")
    if entry.status == ManifestEntryStatus.DELETED or entry.sequence_number is None:
        raise Broken(f"{native.file_path} is live without being so")
    values = tuple(native.partition[i] for i in range(len(native.partition)))
    return LiveFile(
        path=native.file_path,
        content=content,
        home=(manifest.partition_spec_id, values),
        sequence_number=entry.sequence_number,
        record_count=native.record_count,
        size_bytes=native.file_size_in_bytes,
        manifest_path=manifest.manifest_path,
        entry=entry,
    )


def _visible(
    metadata: TableMetadata, data: dict[str, LiveFile], deletes: dict[str, LiveFile], store: ObjectStore
) -> dict[str, list[tuple[int, Row]]]:
    """Scan planning of the specification: which deletes apply to which data file, and what they leave."""
    positions = [d for d in deletes.values() if d.content is DataFileContent.POSITION_DELETES]
    keys = [d for d in deletes.values() if d.content is DataFileContent.EQUALITY_DELETES]
    unpartitioned = {spec_id for spec_id, spec in metadata.specs().items() if not spec.fields}
    visible: dict[str, list[tuple[int, Row]]] = {}
    for path, file in data.items():
        rows = _content(store, file)
        gone: set[int] = set()
        for delete in positions:
            if delete.home == file.home and file.sequence_number <= delete.sequence_number:
                gone.update(at for named, at in decode_positions(store.get(delete.path)) if named == path)
        for delete in keys:
            reaches = delete.home == file.home or delete.home[0] in unpartitioned
            if reaches and file.sequence_number < delete.sequence_number:
                wanted = decode_keys(store.get(delete.path))
                gone.update(at for at, row in enumerate(rows) if row.key in wanted)
        visible[path] = [(at, row) for at, row in enumerate(rows) if at not in gone]
    return visible


def _content(store: ObjectStore, file: LiveFile) -> tuple[Row, ...]:
    try:
        data = store.get(file.path)
    except FileNotFoundError:
        raise Broken(f"{file.path} is live and gone") from None
    if len(data) != file.size_bytes:
        raise Broken(f"{file.path} has {len(data)} bytes, its manifest says {file.size_bytes}")
    rows = decode(data)
    if len(rows) != file.record_count:
        raise Broken(f"{file.path} has {len(rows)} rows, its manifest says {file.record_count}")
    return rows
