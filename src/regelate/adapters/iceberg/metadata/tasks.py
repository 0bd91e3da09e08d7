"""Manifest entries as core values: data files, delete files and the deletes that apply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import UnknownTransform

from regelate.adapters.iceberg.encoding.json_values import WRITABLE_TYPES, type_head
from regelate.adapters.iceberg.manifests import REFERENCED_DATA_FILE, ManifestReader
from regelate.adapters.iceberg.metadata.packed_maps import unpacked
from regelate.adapters.iceberg.metadata.partitions import Partitions, is_unpartitioned
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.core.table.table import ColumnMetrics, DataFile, DeleteContent, DeleteFile, Partition
from regelate.errors import DataUnavailable, Unsupported

POSITION_PATH_FIELD = 2147483546
"""Field id of `file_path` in a position delete file (Iceberg spec, reserved field ids)."""


class Entries:
    """The live entries of one table's manifests, as core values.

    Errors: Unsupported UNSUPPORTED_TABLE for what a group view cannot read (ORC, Avro, encrypted files, deletion
    vectors); DataUnavailable METADATA_CORRUPT from the manifest reader.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, reader: ManifestReader) -> None:
        self._specs = metadata.specs()
        self._schema = metadata.schema()
        self._partitions: dict[int, Partitions] = {}
        self._format_version = metadata.format_version
        self._io = io
        self._reader = reader

    def partition(self, entry: ManifestEntry) -> Partition:
        spec = self._specs.get(entry.data_file.spec_id)
        if spec is None:
            raise DataUnavailable(
                "METADATA_CORRUPT", f"file {entry.data_file.file_path} names unknown spec {entry.data_file.spec_id}"
            )
        known = self._partitions.get(spec.spec_id)
        if known is None:
            known = self._partitions[spec.spec_id] = Partitions(spec, self._schema)
        return known.of(entry.data_file.partition)

    def data_files(self, manifests: Sequence[ManifestFile]) -> Iterator[tuple[ManifestEntry, DataFile]]:
        """Stream the live data files of data manifests, in manifest order."""
        for manifest in manifests:
            if manifest.content == ManifestContent.DATA:
                for entry in self._reader.entries(self._io, manifest):
                    yield entry, self.data_file(entry, manifest.manifest_path)

    def delete_files(self, manifests: Sequence[ManifestFile]) -> tuple[DeleteFile, ...]:
        """Return the live delete files of delete manifests."""
        return tuple(
            self.delete_file(entry)
            for manifest in manifests
            if manifest.content == ManifestContent.DELETES
            for entry in self._reader.entries(self._io, manifest)
        )

    def data_file(self, entry: ManifestEntry, manifest_path: str = "") -> DataFile:
        native = entry.data_file
        return DataFile(
            path=native.file_path,
            file_format=native.file_format.value
            if native.key_metadata is None
            else f"encrypted {native.file_format.value}",
            partition=self.partition(entry),
            record_count=native.record_count,
            size_bytes=native.file_size_in_bytes,
            sequence_number=entry.sequence_number or 0,
            snapshot_id=entry.snapshot_id or 0,
            sort_order_id=native.sort_order_id,
            manifest_path=manifest_path,
        )

    def delete_file(self, entry: ManifestEntry) -> DeleteFile:
        native = entry.data_file
        if native.file_format != FileFormat.PARQUET:
            what = (
                "deletion vectors" if native.file_format == FileFormat.PUFFIN else f"{native.file_format.value} deletes"
            )
            raise unsupported(f"{what} ({native.file_path})")
        if native.key_metadata is not None:
            raise unsupported(f"encrypted delete file {native.file_path}")
        equality = native.content == DataFileContent.EQUALITY_DELETES
        low, high = (None, None) if equality else _referenced(entry)
        return DeleteFile(
            path=native.file_path,
            file_format=native.file_format.value,
            content=DeleteContent.EQUALITY if equality else DeleteContent.POSITION,
            partition=self.partition(entry),
            record_count=native.record_count,
            size_bytes=native.file_size_in_bytes,
            sequence_number=entry.sequence_number or 0,
            snapshot_id=entry.snapshot_id or 0,
            equality_ids=tuple(native.equality_ids or ()) if equality else (),
            referenced_lower=low,
            referenced_upper=high,
            is_global=equality and is_unpartitioned(self._specs[native.spec_id]),
        )


def column_metrics(entry: ManifestEntry) -> ColumnMetrics:
    """Return what an entry says of the columns of its file."""
    native = entry.data_file
    return ColumnMetrics(
        value_counts=unpacked(native.value_counts),
        null_counts=unpacked(native.null_value_counts),
        lower_bounds=unpacked(native.lower_bounds),
        upper_bounds=unpacked(native.upper_bounds),
    )


def _referenced(entry: ManifestEntry) -> tuple[str | None, str | None]:
    """Return the range of data file paths that a position delete names, from its reference or its bounds."""
    record = entry.data_file
    reference = record[REFERENCED_DATA_FILE]
    if reference is not None:
        return reference, reference
    low = unpacked(record.lower_bounds).get(POSITION_PATH_FIELD)
    high = unpacked(record.upper_bounds).get(POSITION_PATH_FIELD)
    return (low.decode() if low is not None else None), (high.decode() if high is not None else None)


def unsupported(what: str) -> Unsupported:
    return Unsupported(
        "UNSUPPORTED_TABLE",
        f"this table holds {what}; use Spark for it (rewrite_data_files compacts it)",
        reason=what,
    )


def check_readable(data_file: DataFile) -> None:
    """Refuse a data file that a group view cannot read, before any work."""
    if data_file.file_format != "PARQUET":
        raise unsupported(f"{data_file.file_format} data files ({data_file.path})")


def check_format(metadata: TableMetadata) -> None:
    """Refuse a table whose metadata, types or partitions this program does not understand."""
    check_metadata(metadata)
    for leaf in (leaf for column in columns_of(metadata.schema()) for leaf in column.leaves):
        if type_head(leaf.type) not in WRITABLE_TYPES:
            raise unsupported(f"columns of type {leaf.type} ({leaf.name})")


def check_metadata(metadata: TableMetadata) -> None:
    """Refuse a table whose metadata PyIceberg cannot write."""
    if metadata.format_version not in (1, 2):
        raise unsupported(f"format version {metadata.format_version} (row lineage, deletion vectors)")
    for transform in (f.transform for spec in metadata.partition_specs for f in spec.fields):
        if isinstance(transform, UnknownTransform):
            raise unsupported(f"partitions by the transform {transform._transform}")
