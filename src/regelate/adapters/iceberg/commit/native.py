"""Data files of ours as PyIceberg's manifest writers want them."""

from __future__ import annotations

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from regelate.core.running.rewrite import NewDataFile


def native_data_file(new: NewDataFile) -> DataFile:
    """Return the manifest's record of a new Parquet file, spec id set.

    One record serves every format version: PyIceberg's writers take v2 records and leave out what v1 does not have.
    Maps that are empty are null, as Iceberg's own writers have it.
    """
    metrics = new.metrics
    native = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=new.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*new.partition.values),
        record_count=new.record_count,
        file_size_in_bytes=new.size_bytes,
        column_sizes=dict(new.column_sizes) or None,
        value_counts=dict(metrics.value_counts) or None,
        null_value_counts=dict(metrics.null_counts) or None,
        nan_value_counts=None,
        lower_bounds=dict(metrics.lower_bounds) or None,
        upper_bounds=dict(metrics.upper_bounds) or None,
        key_metadata=None,
        split_offsets=list(new.split_offsets) or None,
        equality_ids=None,
        sort_order_id=new.sort_order_id,
    )
    native.spec_id = new.partition.spec_id
    return native
