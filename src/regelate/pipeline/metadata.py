"""A table's metadata.json and the rows of its `entries` table -> core's TableSnapshot. Pure: Spark did the reading.

So the service and Spark decide by one definition of a small file, whoever read the manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from regelate.core.measures.impact import FileMetrics, PartitionFiles
from regelate.core.planning.census import Census
from regelate.core.planning.selection import Reason, check_partition_filters, classify
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.deletes import DeleteIndex
from regelate.core.table.table import (
    MAIN_BRANCH,
    DataFile,
    DeleteContent,
    DeleteFile,
    FileScanTask,
    RefKind,
    SnapshotEntry,
    SnapshotRef,
    TableSnapshot,
)
from regelate.core.values import dataclass
from regelate.pipeline.specs import Spec, internal, specs_of

POSITION_PATH_FIELD = 2147483546
"""Field id of `file_path` in a position delete file (Iceberg spec, reserved field ids)."""
EQUALITY_DELETES = 2
"""`content` of a manifest entry: 0 data, 1 position deletes, 2 equality deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One live row of the `entries` metadata table. `partition`: values by partition field id, as Spark has them."""

    path: str
    content: int
    file_format: str
    spec_id: int
    partition: Mapping[int, object]
    record_count: int
    size_bytes: int
    sequence_number: int
    snapshot_id: int
    sort_order_id: int | None = None
    equality_ids: tuple[int, ...] = ()
    referenced_lower: str | None = None
    referenced_upper: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """What Spark read of one snapshot. `matching`: paths of the data files that `where` may select; None: all."""

    deletes: Iterable[Entry] = ()
    data: Iterable[Entry] = ()
    paths: frozenset[str] = frozenset()
    matching: frozenset[str] | None = None


def head_of(metadata: Mapping[str, Any]) -> int | None:
    """Return the id of the current snapshot, None for a table without one (v1 writes -1)."""
    found = metadata.get("current-snapshot-id")
    return None if found is None or found == -1 else int(found)


def table_snapshot(
    ident: str, metadata: Mapping[str, Any], manifests: Manifests, policy: CompactionPolicy
) -> TableSnapshot:
    """Return the table at its head, with the candidates that the policy selects.

    Errors: InvalidRequest INVALID_FIELD for a partition filter that no partition has.
    """
    specs = specs_of(metadata)
    snapshots = log_of(metadata)
    head = next((s for s in snapshots if s.snapshot_id == head_of(metadata)), None)
    census = Census(policy, {s.snapshot_id: s.timestamp_ms for s in snapshots})
    deletes = tuple(_delete_file(entry, specs) for entry in manifests.deletes)
    census.index = DeleteIndex(deletes)
    for task in _tasks(manifests.data, specs, census.index):
        reason = classify(task.data_file, task.deletes, policy)
        if reason.selected and manifests.matching is not None and task.data_file.path not in manifests.matching:
            reason = Reason.NOT_IN_WHERE
        census.count(task, reason)
    check_partition_filters(tuple(census.partitions), policy)
    census.count_deletes(deletes)
    return TableSnapshot(
        ident=ident,
        uuid=metadata["table-uuid"],
        format_version=metadata["format-version"],
        location=metadata["location"],
        metadata_location="",
        snapshot_id=head.snapshot_id if head else None,
        sequence_number=head.sequence_number if head else 0,
        timestamp_ms=head.timestamp_ms if head else 0,
        schema_id=metadata["current-schema-id"],
        spec_id=metadata["default-spec-id"],
        sort_order_id=metadata["default-sort-order-id"],
        properties=metadata.get("properties", {}),
        candidates=tuple(census.candidates),
        totals=census.totals(),
        size_histogram=census.histogram(),
        manifest_paths=manifests.paths,
        delete_references=dict(census.index.references),
        delete_files=deletes,
        snapshots=snapshots,
        refs=refs_of(metadata),
    )


def _tasks(entries: Iterable[Entry], specs: Mapping[int, Spec], index: DeleteIndex) -> Iterator[FileScanTask]:
    for entry in entries:
        spec = specs[entry.spec_id]
        data_file = DataFile(
            path=entry.path,
            file_format=entry.file_format,
            partition=spec.partition([internal(entry.partition.get(f.field_id)) for f in spec.fields]),
            record_count=entry.record_count,
            size_bytes=entry.size_bytes,
            sequence_number=entry.sequence_number,
            snapshot_id=entry.snapshot_id,
            sort_order_id=entry.sort_order_id,
        )
        yield FileScanTask(data_file=data_file, deletes=index.applicable(data_file))


def _delete_file(entry: Entry, specs: Mapping[int, Spec]) -> DeleteFile:
    spec, equality = specs[entry.spec_id], entry.content == EQUALITY_DELETES
    return DeleteFile(
        path=entry.path,
        file_format=entry.file_format,
        content=DeleteContent.EQUALITY if equality else DeleteContent.POSITION,
        partition=spec.partition([internal(entry.partition.get(f.field_id)) for f in spec.fields]),
        record_count=entry.record_count,
        size_bytes=entry.size_bytes,
        sequence_number=entry.sequence_number,
        snapshot_id=entry.snapshot_id,
        equality_ids=entry.equality_ids if equality else (),
        referenced_lower=None if equality else entry.referenced_lower,
        referenced_upper=None if equality else entry.referenced_upper,
        is_global=equality and spec.is_unpartitioned,
    )


def file_metrics(
    snapshot_id: int, rows: Iterable[Mapping[str, Any]], field_ids: Iterable[int], metadata: Mapping[str, Any]
) -> FileMetrics:
    """Return the counts that Spark made by partition, partitions by name. `rows`: spec_id, p<field id>, and sums."""
    specs, ids = specs_of(metadata), tuple(field_ids)
    found = []
    for row in rows:
        spec = specs[row["spec_id"]]
        values = {number: row[f"p{number}"] for number in ids}
        partition = spec.partition([internal(values.get(f.field_id)) for f in spec.fields])
        counted = PartitionFiles(
            path=partition.path,
            files=row["files"],
            size_bytes=row["size_bytes"],
            min_bytes=row["low"],
            max_bytes=row["high"],
            rows=row["records"],
        )
        found.append(counted)
    return FileMetrics(snapshot_id=snapshot_id, partitions=tuple(sorted(found, key=lambda p: p.path)))


def log_of(metadata: Mapping[str, Any]) -> tuple[SnapshotEntry, ...]:
    """Return the snapshots in the order of the metadata."""
    return tuple(_snapshot_entry(snapshot) for snapshot in metadata.get("snapshots", ()))


def shows_head_alone(log: Sequence[SnapshotEntry]) -> bool:
    """Say whether a log may be all that its catalog ever shows, as Nessie's is: one snapshot, without its parent.

    A table's first snapshot looks the same. Trap T16: only the head is shown, and what is not there is no sign that
    nothing happened.
    """
    return len(log) == 1 and log[0].parent_id is None


def history_of(known: Sequence[SnapshotEntry], log: Sequence[SnapshotEntry]) -> tuple[SnapshotEntry, ...]:
    """Return a catalog's log; after what was seen of it before, where it shows the head alone."""
    before = known if shows_head_alone(log) else ()
    return (*(entry for entry in before if entry.snapshot_id != log[0].snapshot_id), *log)


def refs_of(metadata: Mapping[str, Any]) -> tuple[SnapshotRef, ...]:
    return tuple(_ref(name, ref) for name, ref in metadata.get("refs", {}).items())


def _snapshot_entry(snapshot: Mapping[str, Any]) -> SnapshotEntry:
    summary = dict(snapshot.get("summary", {}))
    return SnapshotEntry(
        snapshot_id=snapshot["snapshot-id"],
        parent_id=snapshot.get("parent-snapshot-id"),
        sequence_number=snapshot.get("sequence-number", 0),
        timestamp_ms=snapshot["timestamp-ms"],
        operation=summary.pop("operation", "append"),
        summary=summary,
    )


def _ref(name: str, ref: Mapping[str, Any]) -> SnapshotRef:
    return SnapshotRef(
        name=name,
        kind=RefKind.BRANCH if name == MAIN_BRANCH else RefKind(ref["type"]),
        snapshot_id=ref["snapshot-id"],
        min_snapshots_to_keep=ref.get("min-snapshots-to-keep"),
        max_snapshot_age_ms=ref.get("max-snapshot-age-ms"),
        max_ref_age_ms=ref.get("max-ref-age-ms"),
    )


LIVE = "status < 2"
"""Of `entries`: 0 existing, 1 added, 2 deleted."""
COLUMNS = (
    "data_file.file_path AS path",
    "data_file.content AS content",
    "data_file.file_format AS file_format",
    "data_file.spec_id AS spec_id",
    "data_file.record_count AS record_count",
    "data_file.file_size_in_bytes AS size_bytes",
    "coalesce(sequence_number, 0L) AS sequence_number",
    "coalesce(snapshot_id, 0L) AS snapshot_id",
    "data_file.sort_order_id AS sort_order_id",
)
DELETE_COLUMNS = (
    "data_file.equality_ids AS equality_ids",
    f"data_file.lower_bounds[{POSITION_PATH_FIELD}] AS lower",
    f"data_file.upper_bounds[{POSITION_PATH_FIELD}] AS upper",
)


def watched(entries: Iterator[Entry], watch: frozenset[str], seen: set[str] | None) -> Iterator[Entry]:
    for entry in entries:
        if seen is not None and entry.path in watch:
            seen.add(entry.path)
        yield entry


def entry_of(row: Mapping[str, Any], field_ids: list[int]) -> Entry:
    referenced = row.get("referenced")
    return Entry(
        path=row["path"],
        content=row["content"],
        file_format=row["file_format"],
        spec_id=row["spec_id"],
        partition={number: row[f"p{number}"] for number in field_ids},
        record_count=row["record_count"],
        size_bytes=row["size_bytes"],
        sequence_number=row["sequence_number"],
        snapshot_id=row["snapshot_id"],
        sort_order_id=row["sort_order_id"],
        equality_ids=tuple(row.get("equality_ids") or ()),
        referenced_lower=referenced or _path(row.get("lower")),
        referenced_upper=referenced or _path(row.get("upper")),
    )


def _path(bound: bytearray | None) -> str | None:
    return None if bound is None else bytes(bound).decode()
