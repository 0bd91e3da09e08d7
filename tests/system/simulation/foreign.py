"""Other engines at work on the table, which the service must bear: deletes, overwrites, schemas, specs, refs.

They commit by the specification with a producer of their own, validate as Iceberg's do, and meet no faults.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV1,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from tests.support.deletes_writer import DeleteManifestWriter
from tests.system.simulation.auditor import Intent, ModelRows
from tests.system.simulation.photograph import LiveFile, Photograph
from tests.system.simulation.rows import Row, describe, encode
from tests.system.simulation.store import Door

POSITION_PATH = 2147483546
TRIES = 6


@dataclass
class Edit:
    """One snapshot to be: files to add (each with what it is), files to remove, and what that means for the rows."""

    operation: Operation
    intent: Intent
    added: Sequence[DataFile] = ()
    removed: frozenset[str] = frozenset()
    rewrite_manifests: bool = False


Updates = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Requirements, and updates."""
Decide = Callable[[Table, Photograph | None], Edit | None]


class ForeignEngine:
    """Commits edits on one branch, decided anew on every head until one lands."""

    def __init__(self, catalog: Any, door: Door, look: Callable[[int | None], Photograph | None]) -> None:
        self._catalog = catalog
        self._door = door
        self._look = look
        self.intent: Intent = lambda rows: rows

    def meant(self, rows: ModelRows) -> ModelRows:
        """What the edit that is under way makes of the rows of its branch."""
        return self.intent(rows)

    def commit(self, decide: Decide, branch: str = "main") -> bool:
        for _ in range(TRIES):
            table = self._catalog.load_table(("lake", "t"))
            ref = table.metadata.refs.get(branch)
            parent = self._look(ref.snapshot_id) if ref is not None else None
            edit = decide(table, parent)
            if edit is None or (ref is None and branch != "main"):
                return False
            self.intent = edit.intent
            try:
                self._send(table, parent, edit, branch)
            except (CommitFailedException, BadRequestError):
                continue
            return True
        return False

    def update(self, make: Callable[[Table], Updates | None]) -> bool:
        """Commit (requirements, updates) that make no snapshot."""
        for _ in range(TRIES):
            table = self._catalog.load_table(("lake", "t"))
            made = make(table)
            if made is None:
                return False
            try:
                self._catalog.commit_table(table, *made)
            except (CommitFailedException, BadRequestError):
                continue
            return True
        return False

    def wait(self, wait_ms: int = 0) -> None:
        """Let others go on."""
        self._door.scheduler.step(self._door.actor, "wait", wait_ms=wait_ms)

    def put(self, table: Table, name: str, data: bytes, folder: str = "data") -> str:
        path = f"{table.metadata.location}/{folder}/{uuid.uuid4()}-{name}"
        self._door.write(path, data, whole=True)
        return path

    def data_file(self, table: Table, rows: Sequence[Row]) -> DataFile:
        """Write rows of one partition under the current spec."""
        spec = table.spec()
        known = sorted(table.schema().field_ids)
        data = encode(rows)
        new = describe(self.put(table, "foreign.parquet", data), None, rows, len(data), known)  # type: ignore[arg-type]
        return _native(
            DataFileContent.DATA,
            new.path,
            Record(rows[0].part) if spec.fields else Record(),
            spec.spec_id,
            len(rows),
            len(data),
            value_counts=dict(new.metrics.value_counts),
            null_value_counts=dict(new.metrics.null_counts),
            lower_bounds=dict(new.metrics.lower_bounds),
            upper_bounds=dict(new.metrics.upper_bounds),
        )

    def _send(self, table: Table, parent: Photograph | None, edit: Edit, branch: str) -> None:
        metadata = table.metadata
        snapshot_id = metadata.new_snapshot_id()
        manifests = [
            *self._added(table, edit.added, snapshot_id),
            *self._kept(table, parent, edit, snapshot_id),
        ]
        list_path = f"{metadata.location}/metadata/snap-{snapshot_id}-{uuid.uuid4()}.avro"
        number = metadata.next_sequence_number()
        parent_id = parent.snapshot.snapshot_id if parent else None
        output = table.io.new_output(list_path)
        version = 1 if metadata.format_version == 1 else 2
        with write_manifest_list(version, output, snapshot_id, parent_id, number, "deflate") as writer:
            writer.add_manifests(manifests)
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent_id,
            manifest_list=list_path,
            sequence_number=number if version > 1 else None,
            timestamp_ms=max(self._door.scheduler.now_ms, metadata.last_updated_ms),
            summary=Summary(operation=edit.operation, **_totals(parent, edit)),
            schema_id=metadata.current_schema_id,
        )
        self._catalog.commit_table(
            table,
            (AssertTableUUID(uuid=metadata.table_uuid), AssertRefSnapshotId(ref=branch, snapshot_id=parent_id)),
            (
                AddSnapshotUpdate(snapshot=snapshot),
                SetSnapshotRefUpdate(ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id),
            ),
        )

    def _added(self, table: Table, files: Sequence[DataFile], snapshot_id: int) -> Iterable[ManifestFile]:
        for is_data in (True, False):
            kind = ManifestContent.DATA if is_data else ManifestContent.DELETES
            for spec_id in sorted({f.spec_id for f in files}):
                chosen = [f for f in files if f.spec_id == spec_id and (f.content is DataFileContent.DATA) == is_data]
                entries = [
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, sequence_number=None, data_file=f
                    )
                    for f in chosen
                ]
                yield from self._manifest(table, kind, spec_id, entries, snapshot_id)

    def _kept(self, table: Table, parent: Photograph | None, edit: Edit, snapshot_id: int) -> Iterable[ManifestFile]:
        if parent is None:
            return
        rewritten: dict[tuple[ManifestContent, int], list[ManifestEntry]] = {}
        for manifest in parent.manifests:
            live = [f for f in _all(parent) if f.manifest_path == manifest.manifest_path]
            if not edit.rewrite_manifests and not any(f.path in edit.removed for f in live):
                yield manifest
                continue
            entries = [_entry(f, snapshot_id if f.path in edit.removed else None) for f in live]
            key = (manifest.content, manifest.partition_spec_id)
            rewritten.setdefault(key, []).extend(entries)
        for (content, spec_id), entries in rewritten.items():
            yield from self._manifest(table, content, spec_id, entries, snapshot_id)

    def _manifest(
        self, table: Table, content: ManifestContent, spec_id: int, entries: Sequence[ManifestEntry], snapshot_id: int
    ) -> Iterable[ManifestFile]:
        if not entries:
            return
        path = f"{table.metadata.location}/metadata/{uuid.uuid4()}-m0.avro"
        data_kind = ManifestWriterV1 if table.metadata.format_version == 1 else ManifestWriterV2
        kind = DeleteManifestWriter if content == ManifestContent.DELETES else data_kind
        output = table.io.new_output(path)
        with kind(table.specs()[spec_id], table.schema(), output, snapshot_id, "deflate") as writer:
            for entry in entries:
                writer.add_entry(entry)
        yield writer.to_manifest_file()


def delete_file(
    content: DataFileContent, path: str, home: tuple[int, tuple[object, ...]], records: int, size: int, **more: Any
) -> DataFile:
    return _native(content, path, Record(*home[1]), home[0], records, size, **more)


def exact_bounds(low: str, high: str) -> dict[str, dict[int, bytes]]:
    """Bounds of `file_path` in a position delete file: when they are equal, they name its only data file."""
    return {"lower_bounds": {POSITION_PATH: low.encode()}, "upper_bounds": {POSITION_PATH: high.encode()}}


def without(ids: Iterable[int]) -> Intent:
    gone = set(ids)

    def intent(rows: ModelRows) -> ModelRows:
        return {i: row for i, row in rows.items() if i not in gone}

    return intent


def _native(
    content: DataFileContent, path: str, record: Record, spec_id: int, records: int, size: int, **more: Any
) -> DataFile:
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=record,
        record_count=records,
        file_size_in_bytes=size,
        **more,
    )
    file.spec_id = spec_id
    return file


def _all(seen: Photograph) -> list[LiveFile]:
    return [*seen.data_files.values(), *seen.delete_files.values()]


def _entry(live: LiveFile, removed_by: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING if removed_by is None else ManifestEntryStatus.DELETED,
        snapshot_id=live.entry.snapshot_id if removed_by is None else removed_by,
        sequence_number=live.sequence_number,
        file_sequence_number=live.entry.file_sequence_number,
        data_file=live.entry.data_file,
    )


def _totals(parent: Photograph | None, edit: Edit) -> dict[str, str]:
    old = [f for f in _all(parent) if f.path not in edit.removed] if parent else []
    files = [(f.content, f.record_count, f.size_bytes) for f in old]
    files += [(f.content, f.record_count, f.file_size_in_bytes) for f in edit.added]

    def records(content: DataFileContent) -> int:
        return sum(n for c, n, _ in files if c is content)

    is_data = [c is DataFileContent.DATA for c, _, _ in files]
    return {
        "total-data-files": str(sum(is_data)),
        "total-delete-files": str(len(files) - sum(is_data)),
        "total-records": str(records(DataFileContent.DATA)),
        "total-files-size": str(sum(size for _, _, size in files)),
        "total-position-deletes": str(records(DataFileContent.POSITION_DELETES)),
        "total-equality-deletes": str(records(DataFileContent.EQUALITY_DELETES)),
    }
