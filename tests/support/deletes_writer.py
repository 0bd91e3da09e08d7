"""Writes real Iceberg position and equality deletes, which PyIceberg 0.12.0 cannot; and damages files."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from tests.support.iceberg_tables import changed_file, live_data_files, local_path

POSITION_DELETE_SCHEMA = Schema(
    NestedField(2147483546, "file_path", StringType(), required=True),
    NestedField(2147483545, "pos", LongType(), required=True),
)
"""Of the Iceberg specification. PyIceberg's own constant says int for `pos`, and DuckDB cannot read such a file."""

FULL_METRICS = {"write.metadata.metrics.default": "full"}
"""PyIceberg cuts text bounds to 16 characters unless told; a delete's path bounds are worth something only whole."""

PartitionValues = Record | Mapping[str, object]
"""Of one partition: its Record, or {partition field name: value as a manifest stores it (a day is an int)}."""


class LongDeleteManifestWriter(ManifestWriterV2):
    """PyIceberg's v2 manifest writer for delete files, which it has only for data: equality ids are longs (T33)."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class DeleteManifestWriter(LongDeleteManifestWriter):
    """One that has the equality ids as ints, as the specification does."""

    def _with_partition(self, format_version: TableVersion) -> Schema:
        wrong = data_file_with_partition(self._spec.partition_type(self._schema), format_version)
        ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
        right = (f.model_copy(update={"field_type": ids}) if f.field_id == 135 else f for f in wrong.fields)
        return manifest_entry_schema_with_data_file(format_version, StructType(*right))


def add_position_deletes(
    table: Table,
    positions: Mapping[str, Sequence[int]],
    *,
    partition: PartitionValues | None = None,
    spec_id: int | None = None,
    exact_bounds: bool = True,
    operation: Operation = Operation.DELETE,
    branch: str = "main",
    expected_head: int | None = None,
) -> str:
    """Commit one position delete file that names `positions` (data file path -> row numbers); return its path.

    `positions` is written exactly as given: order, duplicates, rows beyond the end and unknown paths are kept. By
    default partition and spec are those of the first named file, if it is live. `exact_bounds=False` leaves the bounds
    out of the manifest: then nobody can tell which files the delete names. The table is refreshed before and after;
    with `expected_head` a head that moved meanwhile fails the commit, as the named files may not be live there.
    """
    table.refresh()
    if expected_head is not None and table.metadata.current_snapshot_id != expected_head:
        raise CommitFailedException("the head has moved since the files were chosen")
    if partition is None and spec_id is None:
        partition, spec_id = _home_of(table, next(iter(positions)))
    named = [(path, row) for path, rows in positions.items() for row in rows]
    columns = {"file_path": [path for path, _ in named], "pos": [row for _, row in named]}
    content = pa.table(columns, schema=schema_to_pyarrow(POSITION_DELETE_SCHEMA))
    arguments = _write_parquet(table, content, POSITION_DELETE_SCHEMA)
    if not exact_bounds:
        arguments |= {"lower_bounds": {}, "upper_bounds": {}}
    spec = table.specs()[table.metadata.default_spec_id if spec_id is None else spec_id]
    file = _delete_file(DataFileContent.POSITION_DELETES, arguments, spec, partition)
    _commit(table, file, spec, operation, branch)
    return file.file_path


def add_described_deletes(table: Table, path: str, **changes: Any) -> str:
    """Commit a position delete of the first row of `path` whose manifest entry says what `changes` say; return its
    path."""
    table.refresh()
    content = pa.table({"file_path": [path], "pos": [0]}, schema=schema_to_pyarrow(POSITION_DELETE_SCHEMA))
    partition, spec_id = _home_of(table, path)
    spec = table.specs()[spec_id]
    file = _delete_file(
        DataFileContent.POSITION_DELETES, _write_parquet(table, content, POSITION_DELETE_SCHEMA), spec, partition
    )
    _commit(table, changed_file(file, **changes), spec, Operation.DELETE, "main")
    return file.file_path


def add_equality_deletes(
    table: Table,
    columns: Sequence[str],
    rows: Sequence[tuple[object, ...]] | Sequence[Mapping[str, object]],
    *,
    partition: PartitionValues | None = None,
    spec_id: int | None = None,
    operation: Operation = Operation.DELETE,
    branch: str = "main",
    long_ids: bool = False,
) -> str:
    """Commit one equality delete file: rows that equal one of `rows` in all `columns` go; return its path.

    Null equals null. `columns` are names in the current schema (`a.b` for nested ones, then `rows` are mappings); the
    file holds their field ids, so a later rename changes nothing. Without `partition` and `spec_id` the delete is
    GLOBAL: it is written under an unpartitioned spec, which the table must have or have had. The table is refreshed
    before and after. With `long_ids` the manifest is one that Java cannot read (trap T33).
    """
    table.refresh()
    keys = table.schema().select(*columns)
    records = [row if isinstance(row, Mapping) else dict(zip(columns, row, strict=True)) for row in rows]
    content = pa.Table.from_pylist(records, schema=schema_to_pyarrow(keys))
    spec = table.specs()[spec_id] if spec_id is not None else _spec_for(table, partition)
    arguments = _write_parquet(table, content, keys)
    arguments["equality_ids"] = [keys.find_field(column).field_id for column in columns]
    file = _delete_file(DataFileContent.EQUALITY_DELETES, arguments, spec, partition)
    _commit(table, file, spec, operation, branch, LongDeleteManifestWriter if long_ids else DeleteManifestWriter)
    return file.file_path


def add_deletion_vector(table: Table, path: str) -> str:
    """Commit a delete file in format PUFFIN that claims to be a deletion vector of one data file; return its path.

    Only the entry is real, the file holds no vector: for readers that must refuse before they open it.
    """
    table.refresh()
    partition, spec_id = _home_of(table, path)
    location = table.location_provider().new_data_location(f"{uuid.uuid4()}-deletes.puffin")
    with table.io.new_output(location).create() as stream:
        stream.write(b"PFA1")
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_format=FileFormat.PUFFIN,
        file_path=location,
        file_size_in_bytes=4,
        record_count=1,
        partition=partition or Record(),
    )
    file.spec_id = spec_id
    _commit(table, file, table.specs()[spec_id], Operation.DELETE, "main")
    return location


def truncate_file(location: str, keep_bytes: int) -> None:
    """Cut the file after its first `keep_bytes`; 0 leaves an empty file."""
    path = local_path(location)
    path.write_bytes(path.read_bytes()[:keep_bytes])


def flip_byte(location: str, offset: int) -> None:
    """Invert one byte of the file; a negative offset counts from the end."""
    path = local_path(location)
    damaged = bytearray(path.read_bytes())
    damaged[offset] ^= 0xFF
    path.write_bytes(damaged)


def remove_file(location: str) -> None:
    """Delete the file; it must exist."""
    local_path(location).unlink()


def _home_of(table: Table, path: str) -> tuple[Record | None, int]:
    for file in live_data_files(table):
        if file.file_path == path:
            return file.partition, file.spec_id
    return None, table.metadata.default_spec_id


def _spec_for(table: Table, partition: PartitionValues | None) -> PartitionSpec:
    if partition is not None:
        return table.spec()
    for spec in table.specs().values():
        if spec.is_unpartitioned():
            return spec
    raise ValueError(f"no spec of {table.name()} is unpartitioned: give the delete a partition")


def _write_parquet(table: Table, content: pa.Table, schema: Schema) -> dict[str, Any]:
    """Write one delete file beside the table's data and return what its manifest entry says of it."""
    path = table.location_provider().new_data_location(f"{uuid.uuid4()}-deletes.parquet")
    output = table.io.new_output(path)
    with output.create() as stream:
        pq.write_table(content, stream)
    with output.to_input_file().open() as stream:
        footer = pq.read_metadata(stream)
    statistics = data_file_statistics_from_parquet_metadata(
        footer,
        stats_columns=compute_statistics_plan(schema, FULL_METRICS),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    measured = statistics.to_serialized_dict()
    return {"file_path": path, "file_size_in_bytes": len(output), **measured}


def _delete_file(
    content: DataFileContent, arguments: dict[str, Any], spec: PartitionSpec, partition: PartitionValues | None
) -> DataFile:
    if isinstance(partition, Mapping):
        record = Record(*(partition[field.name] for field in spec.fields))
    else:
        record = partition or Record()
    if len(record) != len(spec.fields):
        raise ValueError(f"partition {record} does not fit spec {spec}")
    file = DataFile.from_args(content=content, file_format=FileFormat.PARQUET, partition=record, **arguments)
    file.spec_id = spec.spec_id
    return file


def _commit(
    table: Table,
    file: DataFile,
    spec: PartitionSpec,
    operation: Operation,
    branch: str,
    writer_type: type[LongDeleteManifestWriter] = DeleteManifestWriter,
) -> None:
    """Add a snapshot on top of `branch`: its manifests, and one delete manifest that holds `file`."""
    metadata = table.metadata
    parent = metadata.snapshot_by_name(branch)
    snapshot_id = metadata.new_snapshot_id()
    manifests = [] if parent is None else parent.manifests(table.io)
    manifest_list = table.location_provider().new_metadata_location(f"snap-{snapshot_id}-0-{uuid.uuid4()}.avro")
    with write_manifest_list(
        format_version=2,
        output_file=table.io.new_output(manifest_list),
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=metadata.next_sequence_number(),
        avro_compression="deflate",
    ) as writer:
        writer.add_manifests([_write_manifest(table, file, spec, snapshot_id, writer_type), *manifests])
    collector = SnapshotSummaryCollector()
    collector.add_file(file, table.schema(), spec)
    added = Summary(operation=operation, **collector.build())
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        manifest_list=manifest_list,
        sequence_number=metadata.next_sequence_number(),
        summary=update_snapshot_summaries(added, parent.summary if parent else None),
        schema_id=metadata.current_schema_id,
    )
    head = SetSnapshotRefUpdate(ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id)
    requirements = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId(ref=branch, snapshot_id=parent.snapshot_id if parent else None),
    )
    table.catalog.commit_table(table, requirements, (AddSnapshotUpdate(snapshot=snapshot), head))
    table.refresh()


def _write_manifest(
    table: Table, file: DataFile, spec: PartitionSpec, snapshot_id: int, writer_type: type[LongDeleteManifestWriter]
) -> ManifestFile:
    location = table.location_provider().new_metadata_location(f"{uuid.uuid4()}-m0.avro")
    output = table.io.new_output(location)
    with writer_type(spec, table.schema(), output, snapshot_id, "deflate") as writer:
        writer.add(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, sequence_number=None, data_file=file
            )
        )
    return writer.to_manifest_file()
