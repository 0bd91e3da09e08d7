"""Group views: a tiny Iceberg table on local disk that names exactly some data files and the deletes that apply.

DuckDB's `iceberg_scan` cannot be told which files to read (trap T3: a filter on `filename` opens every file), applies
equality deletes wrongly (T2: deletes reach other partitions, T22: nulls under equality deletes) and aborts the process
on a damaged manifest (trap T4: a bad manifest ends the process). A view of one partition, written from entries that
were read before, has none of these troubles: it leaves equality deletes to its reader. It names the ORIGINAL paths:
they are what position deletes match (trap T19: position deletes match paths as text). Every view has a folder of its
own, because DuckDB's file cache is keyed by path (trap T17: views are cached by path).
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from regelate.adapters.iceberg.files.file_layouts import FileLayouts
from regelate.adapters.iceberg.files.promotion import maybe_promoted
from regelate.adapters.iceberg.manifests import READ_VERSION
from regelate.adapters.iceberg.metadata.manifest_writer import PLAIN, ManifestWriter, write_manifest_list
from regelate.adapters.iceberg.metadata.tasks import unsupported
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.core.policy.table_properties import MAPPING_PROPERTY, Use, refuse_unusable
from regelate.core.running.group_view import GroupView, KeyDeletes, name_in_view
from regelate.core.table.schema import Column
from regelate.core.table.table import DataFile as CoreDataFile
from regelate.core.table.table import DeleteContent, DeleteFile, FileScanTask
from regelate.errors import Unsupported

VIEW_SNAPSHOT_ID = 1


class GroupViewWriter:
    """Writes views below one private folder. All tasks of a view have one spec; with deletes, one partition.

    `io` reads the footers of the files that a view names: what their columns are is settled here (trap T37: columns
    without ids are read by position).

    Errors: Unsupported UNSUPPORTED_TABLE for names that differ only in case, which DuckDB mixes up (trap T27: names
    that differ only in case), and for a file whose columns cannot be told or read rightly; UNSUPPORTED_DELETES for
    equality deletes on a key that the schema no longer has, or a nested one, or in a file without field ids;
    DataUnavailable for a file without a footer; InvalidRequest INVALID_TABLE_PROPERTY for a name mapping that is none.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, folder: Path, *, schema: Schema | None = None) -> None:
        refuse_unusable(metadata.properties, Use.QUERY)
        own = schema or metadata.schema()
        self.columns = columns_of(own)
        _check_names(self.columns)
        self._schema = _renamed(own)
        self._promoted = {known: maybe_promoted(metadata, own, with_ids=known) for known in (True, False)}
        self._full_specs = metadata.specs()
        self._specs = {i: _identity_only(s, own) for i, s in self._full_specs.items()}
        self._io = PyArrowFileIO()
        self._folder = folder
        self._base = _base_metadata(metadata)
        self._layouts = FileLayouts(io, self.columns, metadata.properties.get(MAPPING_PROPERTY))

    def write(self, tasks: Sequence[FileScanTask], *, with_deletes: bool = True) -> GroupView:
        """Write one view and return the path of its metadata file, its columns, and the equality deletes to apply."""
        folder = self._folder / f"view-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        sequence_numbers = {t.data_file.path: t.data_file.sequence_number for t in tasks}
        deletes = list({d.path: d for t in tasks for d in t.deletes}.values()) if with_deletes else []
        spec = self._specs[tasks[0].data_file.partition.spec_id] if tasks else UNPARTITIONED_PARTITION_SPEC
        positions = [d for d in deletes if d.content is DeleteContent.POSITION]
        data_files, constants = [t.data_file for t in tasks], frozenset(f.source_id for f in spec.fields)
        by_mapping = self._layouts.by_mapping(data_files, constants)
        paths = tuple(
            self._table(
                folder,
                f"rows-{number}",
                self._schema,
                spec,
                [self._entry(DataFileContent.DATA, file) for file in files],
                positions,
                mapping,
            )
            for number, (mapping, files) in enumerate(by_mapping.items())
        )
        by_key: dict[tuple[int, ...], list[DeleteFile]] = defaultdict(list)
        for delete in deletes:
            if delete.content is DeleteContent.EQUALITY:
                by_key[tuple(sorted(delete.equality_ids))].append(delete)
        return GroupView(
            metadata_paths=paths,
            columns=self.columns,
            key_deletes=tuple(self._key_deletes(folder, ids, members) for ids, members in by_key.items()),
            sequence_numbers=sequence_numbers,
            promoted=self._promoted[set(by_mapping) == {None}],
        )

    def _key_deletes(self, folder: Path, ids: tuple[int, ...], deletes: Sequence[DeleteFile]) -> KeyDeletes:
        """Write a view of the delete files of one key, read by field id like any data file.

        A key that is no column of the view is refused here: scanning such a delete ends the process (trap T26: deletes
        on dropped columns).
        """
        fields = {f.field_id: f for f in self._schema.fields}
        missing = next((i for i in ids if i not in fields), None)
        if missing is not None:
            raise Unsupported(
                "UNSUPPORTED_DELETES",
                f"equality delete {deletes[0].path} uses field {missing}, which is nested or no longer in the schema; "
                "compact with Spark's rewrite_data_files",
                path=deletes[0].path,
            )
        self._layouts.check_deletes(deletes)
        entries = [_entry(_native(DataFileContent.DATA, d, Record()), d.sequence_number) for d in deletes]
        schema = Schema(*(fields[i] for i in ids), schema_id=self._schema.schema_id)
        name = "keys-" + "-".join(map(str, ids))
        return KeyDeletes(
            metadata_path=self._table(folder, name, schema, UNPARTITIONED_PARTITION_SPEC, entries, []),
            key=tuple(c for i in ids for c in self.columns if c.field_id == i),
            sequence_numbers={d.path: d.sequence_number for d in deletes},
        )

    def _table(
        self,
        folder: Path,
        name: str,
        schema: Schema,
        spec: PartitionSpec,
        data: list[ManifestEntry],
        positions: Sequence[DeleteFile],
        mapping: str | None = None,
    ) -> str:
        """Write the metadata files of one view and return the path of its metadata.json."""
        last = max([0, *(e.sequence_number or 0 for e in data), *(d.sequence_number for d in positions)])
        manifests = [self._manifest(folder / f"{name}.avro", ManifestContent.DATA, schema, spec, data)] if data else []
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for delete in positions:
            by_spec[delete.partition.spec_id].append(self._entry(DataFileContent.POSITION_DELETES, delete))
        for spec_id, entries in by_spec.items():
            place = folder / f"{name}-deletes-{spec_id}.avro"
            manifests.append(self._manifest(place, ManifestContent.DELETES, schema, self._specs[spec_id], entries))
        for manifest in manifests:
            manifest.sequence_number = last
        listed = folder / f"{name}-list.avro"
        write_manifest_list(
            self._io.new_output(listed.as_uri()),
            manifests,
            format_version=2,
            snapshot_id=VIEW_SNAPSHOT_ID,
            parent_id=None,
            sequence_number=last,
            codec=PLAIN,
        )
        path = folder / f"{name}.metadata.json"
        path.write_text(json.dumps(self._metadata(listed, last, schema, spec, mapping)))
        return str(path)

    def _manifest(
        self,
        path: Path,
        content: ManifestContent,
        schema: Schema,
        spec: PartitionSpec,
        entries: list[ManifestEntry],
    ) -> ManifestFile:
        output = self._io.new_output(path.as_uri())
        with ManifestWriter(output, content, spec, (schema,), VIEW_SNAPSHOT_ID, codec=PLAIN) as writer:
            for entry in entries:
                writer.add(entry)
        return writer.manifest_file()

    def _entry(self, content: DataFileContent, file: CoreDataFile | DeleteFile) -> ManifestEntry:
        spec = self._full_specs[file.partition.spec_id]
        kept = {f.field_id for f in self._specs[spec.spec_id].fields}
        values = (v for v, f in zip(file.partition.values, spec.fields, strict=True) if f.field_id in kept)
        return _entry(_native(content, file, Record(*values)), file.sequence_number)

    def _metadata(
        self,
        manifest_list: Path,
        sequence_number: int,
        schema: Schema,
        spec: PartitionSpec,
        mapping: str | None,
    ) -> dict[str, Any]:
        """Return a v2 table with one snapshot, one schema and one spec; v1 metadata lacks much of it (trap T18:
        sequence numbers that v1 lacks)."""
        snapshot = {
            "snapshot-id": VIEW_SNAPSHOT_ID,
            "sequence-number": sequence_number,
            "timestamp-ms": 1,
            "manifest-list": manifest_list.as_uri(),
            "summary": {"operation": "append"},
            "schema-id": schema.schema_id,
        }
        return {
            **self._base,
            "schemas": [json.loads(schema.model_dump_json(by_alias=True))],
            "current-schema-id": schema.schema_id,
            "partition-specs": [json.loads(spec.model_dump_json(by_alias=True))],
            "default-spec-id": spec.spec_id,
            "last-sequence-number": sequence_number,
            "snapshots": [snapshot],
            "properties": {} if mapping is None else {MAPPING_PROPERTY: mapping},
        }


def _base_metadata(metadata: TableMetadata) -> dict[str, Any]:
    """Return what all views of a table share."""
    return {
        "format-version": 2,
        "table-uuid": str(metadata.table_uuid),
        "location": metadata.location,
        "last-updated-ms": 1,
        "last-column-id": metadata.last_column_id,
        "last-partition-id": metadata.last_partition_id or PARTITION_FIELD_ID_START,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "current-snapshot-id": VIEW_SNAPSHOT_ID,
    }


def _check_names(columns: Iterable[Column]) -> None:
    root = Column(name="", type="struct", children=tuple(columns))
    for column in root.walk():
        names = Counter(c.name.lower() for c in column.children) if column.type == "struct" else Counter()
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise unsupported(f"columns whose names differ only in case ({twice!r})")


def _renamed(schema: Schema) -> Schema:
    """Call every top-level column by its field id; files are read by field id, so only we see these names."""
    fields = (f.model_copy(update={"name": name_in_view(f.field_id)}) for f in schema.fields)
    return Schema(*fields, schema_id=schema.schema_id)


def _identity_only(spec: PartitionSpec, schema: Schema) -> PartitionSpec:
    """Keep the identity fields of columns that still exist: files may lack those columns, and only then is it read.

    The rest of a partition says nothing about rows, and its types may be unknown since a column was dropped. Fields get
    names of ours: at a name that is no ASCII identifier, DuckDB's Avro reader ends the process (trap T25: partition
    fields with odd names).
    """
    known = {f.field_id for f in schema.fields}
    kept = (f for f in spec.fields if isinstance(f.transform, IdentityTransform) and f.source_id in known)
    return PartitionSpec(
        *(f.model_copy(update={"name": f"p{f.field_id}"}) for f in kept),
        spec_id=spec.spec_id,
    )


def _entry(native: DataFile, sequence_number: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=VIEW_SNAPSHOT_ID,
        sequence_number=sequence_number,
        file_sequence_number=sequence_number,
        data_file=native,
    )


def _native(content: DataFileContent, file: CoreDataFile | DeleteFile, partition: Record) -> DataFile:
    native = DataFile.from_args(
        READ_VERSION,
        content=content,
        file_path=file.path,
        file_format=file.file_format,
        partition=partition,
        record_count=file.record_count,
        file_size_in_bytes=file.size_bytes,
    )
    native.spec_id = file.partition.spec_id
    return native
