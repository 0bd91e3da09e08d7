"""Reads one table at one snapshot by streaming its manifests: candidates are kept, healthy files are only counted."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField, StructType

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.pruning import FilePruner
from regelate.adapters.iceberg.metadata.tasks import Entries, check_format, check_readable, column_metrics
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.core.planning.census import Census
from regelate.core.planning.plan import FileGroup
from regelate.core.planning.selection import Reason, check_partition_filters, classify
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.deletes import DeleteIndex
from regelate.core.table.input_metrics import InputMetrics
from regelate.core.table.schema import Column
from regelate.core.table.table import (
    MAIN_BRANCH,
    DataFile,
    DeleteFile,
    FileScanTask,
    RefKind,
    SnapshotEntry,
    SnapshotRef,
    TableSnapshot,
)
from regelate.errors import InvalidRequest, NotFound, RegelateError, Unavailable


class SnapshotReader:
    """Reads metadata of one loaded table; never a data file.

    Errors: NotFound SNAPSHOT_NOT_FOUND, REF_NOT_FOUND; InvalidRequest INVALID_FIELD for a tag; Unsupported
    UNSUPPORTED_TABLE; DataUnavailable METADATA_CORRUPT; Unavailable TIME_CAP_EXCEEDED when a deadline (of
    `time.monotonic`) passes between two manifests.
    """

    def __init__(self, table: Table, manifests: ManifestReader, ref: str = MAIN_BRANCH) -> None:
        self._table = table
        self._manifests = manifests
        self._ref = ref

    def properties(self) -> Mapping[str, str]:
        return self._table.metadata.properties

    def metadata_bytes(self) -> int | None:
        """Return the size of metadata.json; None where the catalog keeps it from us, or no store answers."""
        try:
            return len(self._table.io.new_input(self._table.metadata_location))
        except (OSError, RegelateError):
            return None

    def read(
        self, policy: CompactionPolicy, *, snapshot_id: int | None = None, deadline: float | None = None
    ) -> TableSnapshot:
        """Return the table at its branch's head, or at the given snapshot, with the candidates that are selected."""
        metadata = self._table.metadata
        check_format(metadata)
        _check_sort_order(policy, metadata)
        pruner = _pruner(policy, metadata)
        snapshot = self._head() if snapshot_id is None else snapshot_of(metadata, snapshot_id)
        census = Census(policy, timestamps(metadata))
        if snapshot is None:
            return self._value(metadata, None, census, (), ())
        manifests = self._manifests.manifests(self._table.io, snapshot.manifest_list)
        entries = Entries(metadata, self._table.io, self._manifests)
        deletes = entries.delete_files(manifests)
        census.index = DeleteIndex(deletes)
        for _, task, reason in self._classified(policy, pruner, manifests, entries, census.index, deadline):
            census.count(task, reason)
        check_partition_filters(tuple(census.partitions), policy)
        census.count_deletes(deletes)
        return self._value(metadata, snapshot, census, manifests, deletes)

    def history(self) -> tuple[tuple[SnapshotEntry, ...], tuple[SnapshotRef, ...]]:
        """Return the snapshots and refs of the metadata, without a look at any manifest."""
        return snapshot_entries(self._table.metadata), refs_of(self._table.metadata)

    def explain(self, policy: CompactionPolicy) -> Iterator[tuple[DataFile, Reason]]:
        """Stream one reason per live data file; nothing is kept."""
        metadata = self._table.metadata
        check_format(metadata)
        pruner = _pruner(policy, metadata)
        snapshot = self._head()
        if snapshot is None:
            return
        manifests = self._manifests.manifests(self._table.io, snapshot.manifest_list)
        entries = Entries(metadata, self._table.io, self._manifests)
        index = DeleteIndex(entries.delete_files(manifests))
        for _, task, reason in self._classified(policy, pruner, manifests, entries, index, None):
            yield task.data_file, reason

    def _head(self) -> Snapshot | None:
        check_branch(self._table.metadata, self._ref)
        return branch_head(self._table.metadata, self._ref)

    def input_metrics(self, snapshot: TableSnapshot, groups: Sequence[FileGroup]) -> dict[int, InputMetrics]:
        """Read what the manifests of a snapshot say of the columns of planned files; by the index of their group."""
        found = {group.index: InputMetrics(snapshot.column_types) for group in groups}
        wanted: dict[str, dict[str, InputMetrics]] = defaultdict(dict)
        for group in groups:
            for task in group.tasks:
                wanted[task.data_file.manifest_path][task.data_file.path] = found[group.index]
        planned = snapshot_of(self._table.metadata, snapshot.snapshot_id)
        listed = self._manifests.manifests(self._table.io, planned.manifest_list) if planned else ()
        for manifest in (m for m in listed if m.manifest_path in wanted):
            of_files = wanted[manifest.manifest_path]
            for entry in self._manifests.entries(self._table.io, manifest):
                group_metrics = of_files.get(entry.data_file.file_path)
                if group_metrics is not None:
                    file = entry.data_file
                    group_metrics.add(column_metrics(entry), file.record_count, len(file.split_offsets or (0,)))
        return found

    def _classified(
        self,
        policy: CompactionPolicy,
        pruner: FilePruner | None,
        manifests: tuple[ManifestFile, ...],
        entries: Entries,
        index: DeleteIndex,
        deadline: float | None,
    ) -> Iterator[tuple[ManifestEntry, FileScanTask, Reason]]:
        for manifest in manifests:
            if manifest.content != ManifestContent.DATA:
                continue
            if deadline is not None and time.monotonic() > deadline:
                raise Unavailable("TIME_CAP_EXCEEDED", "reading the manifests took longer than allowed here")
            for entry, data_file in entries.data_files((manifest,)):
                task = FileScanTask(data_file=data_file, deletes=index.applicable(data_file))
                reason = classify(data_file, task.deletes, policy)
                if reason.selected and pruner is not None and not pruner.may_match(entry.data_file):
                    reason = Reason.NOT_IN_WHERE
                if reason.selected:
                    check_readable(data_file)
                yield entry, task, reason

    def _value(
        self,
        metadata: TableMetadata,
        snapshot: Snapshot | None,
        census: Census,
        manifests: tuple[ManifestFile, ...],
        deletes: tuple[DeleteFile, ...],
    ) -> TableSnapshot:
        return TableSnapshot(
            ident=".".join(self._table.name()),
            uuid=str(metadata.table_uuid),
            format_version=metadata.format_version,
            location=metadata.location,
            metadata_location=self._table.metadata_location,
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            sequence_number=(snapshot.sequence_number or 0) if snapshot else 0,
            timestamp_ms=snapshot.timestamp_ms if snapshot else 0,
            schema_id=metadata.current_schema_id,
            spec_id=metadata.default_spec_id,
            sort_order_id=metadata.default_sort_order_id,
            properties=dict(metadata.properties),
            column_types=column_types(metadata),
            ref=self._ref,
            candidates=tuple(census.candidates),
            totals=census.totals(),
            size_histogram=census.histogram(),
            manifest_paths=frozenset(m.manifest_path for m in manifests),
            unreadable_manifests=self._manifests.unreadable_in_java(self._table.io, manifests),
            delete_references=dict(census.index.references),
            delete_files=deletes,
            snapshots=snapshot_entries(metadata),
            refs=refs_of(metadata),
        )


def _check_sort_order(policy: CompactionPolicy, metadata: TableMetadata) -> None:
    """Judge the columns to sort by, so that a dry run and an empty table refuse what a rewrite would."""
    known = set(_sortable(columns_of(metadata.schema()))) if policy.sort_order else set()
    for name in (f.column for f in policy.sort_order if f.column not in known):
        message = f"sort_order: {name!r} is not a column that the table can be sorted by"
        raise InvalidRequest("INVALID_OPTION", message, option="sort_order", value=name)


def _sortable(columns: Iterable[Column], prefix: str = "") -> Iterator[str]:
    for column in columns:
        if not column.children:
            yield prefix + column.name
        elif column.type == "struct":
            yield from _sortable(column.children, f"{prefix}{column.name}.")


def _pruner(policy: CompactionPolicy, metadata: TableMetadata) -> FilePruner | None:
    """Judge `where` before anything is read: a wrong one is refused on an empty table too."""
    return FilePruner.from_text(policy.where, metadata) if policy.where else None


def snapshot_of(metadata: TableMetadata, snapshot_id: int | None) -> Snapshot | None:
    if snapshot_id is None:
        return metadata.current_snapshot()
    found = metadata.snapshot_by_id(snapshot_id)
    if found is None:
        raise NotFound("SNAPSHOT_NOT_FOUND", f"snapshot {snapshot_id} is not in the table (expired?)")
    return found


def branch_head(metadata: TableMetadata, ref: str) -> Snapshot | None:
    """Return the snapshot that a branch is on; None where `main` is empty, or there is no other branch of this name."""
    if ref == MAIN_BRANCH:
        return metadata.current_snapshot()
    found = metadata.refs.get(ref)
    is_branch = found is not None and found.snapshot_ref_type is SnapshotRefType.BRANCH
    return metadata.snapshot_by_id(found.snapshot_id) if found is not None and is_branch else None


def check_branch(metadata: TableMetadata, ref: str) -> None:
    """Refuse to work on what is no branch. Errors: NotFound REF_NOT_FOUND; InvalidRequest INVALID_FIELD for a tag."""
    found = ref_of(metadata, ref)
    if found is not None and found.kind is RefKind.TAG:
        told = f"ref: {ref[:80]!a} is a tag, which stays on its snapshot; name a branch (QUERY reads tags)"
        raise InvalidRequest("INVALID_FIELD", told, field="ref")


def ref_of(metadata: TableMetadata, name: str) -> SnapshotRef | None:
    """Return a branch or tag by its name; None for `main` of a table without a snapshot."""
    found = refs_of(metadata)
    named = next((ref for ref in found if ref.name == name), None)
    if named is None and name != MAIN_BRANCH:
        known = ", ".join(ref.name for ref in found[:20]) or "none"
        told = f"the table has no branch or tag {name[:80]!a}; it has {known[:400]}"
        raise NotFound("REF_NOT_FOUND", told, ref=name[:80])
    return named


def timestamps(metadata: TableMetadata) -> dict[int, int]:
    return {s.snapshot_id: s.timestamp_ms for s in metadata.snapshots}


def snapshot_entries(metadata: TableMetadata) -> tuple[SnapshotEntry, ...]:
    return tuple(
        SnapshotEntry(
            snapshot_id=s.snapshot_id,
            parent_id=s.parent_snapshot_id,
            sequence_number=s.sequence_number or 0,
            timestamp_ms=s.timestamp_ms,
            operation=s.summary.operation.value if s.summary else "append",
            summary=s.summary.additional_properties if s.summary else {},  # no copy: there may be 70,000
        )
        for s in metadata.snapshots
    )


def refs_of(metadata: TableMetadata) -> tuple[SnapshotRef, ...]:
    found = tuple(
        SnapshotRef(
            name=name,
            kind=RefKind(ref.snapshot_ref_type.value),
            snapshot_id=ref.snapshot_id,
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            max_ref_age_ms=ref.max_ref_age_ms,
        )
        for name, ref in metadata.refs.items()
    )
    if metadata.current_snapshot_id is None or any(r.name == MAIN_BRANCH for r in found):
        return found
    return (*found, SnapshotRef(name=MAIN_BRANCH, kind=RefKind.BRANCH, snapshot_id=metadata.current_snapshot_id))


def column_types(metadata: TableMetadata) -> dict[int, str]:
    """Return type texts by field id of all columns outside lists and maps, whose counts and bounds compare exactly."""
    found: dict[int, str] = {}

    def visit(fields: tuple[NestedField, ...]) -> None:
        for f in fields:
            if isinstance(f.field_type, StructType):
                visit(f.field_type.fields)
            elif f.field_type.is_primitive:
                found[f.field_id] = str(f.field_type)

    visit(metadata.schema().fields)
    return found
