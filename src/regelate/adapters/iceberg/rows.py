"""JSON records or Arrow tables -> Parquet data files of one table, not yet committed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _get_parquet_writer_kwargs, schema_to_pyarrow
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from regelate.adapters.iceberg.encoding.coerce import coerce_given, coerce_table
from regelate.adapters.iceberg.encoding.encode import encode_given, encode_records, sliced
from regelate.adapters.iceberg.encoding.kept_values import fill
from regelate.adapters.iceberg.encoding.key_faults import check_keys
from regelate.adapters.iceberg.encoding.row_partitions import split_by_partition
from regelate.adapters.iceberg.metadata.tasks import check_format, unsupported
from regelate.adapters.iceberg.pyiceberg_errors import storage_faults
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.core.policy.table_properties import Use, refuse_unusable, settled
from regelate.core.running.given_rows import GivenRows
from regelate.core.running.rewrite import NewDataFile, OutputTarget
from regelate.errors import InvalidRequest
from regelate.ports.files import OutputFiles

WRITERS_AT_ONCE = 8
"""Files of one write that are made at once: an object store answers each only after some 30 ms."""
LEAST_BATCH_BYTES, MOST_BATCH_BYTES = 1024 * 1024, 64 * 1024 * 1024
"""Arrow bytes between two looks at the size of a file, about a fifth of that in Parquet: half of the target between
these. A target of a few bytes must not make a file of every row."""

MOST_ROW_GROUPS = 1_000
"""Of one batch, whatever small row groups the table asks for: 200,000 of one row each take 47 s and 860 MB."""


class IcebergRowWriter:
    """Encodes and writes rows against the schema and spec that are current in the given metadata.

    Errors: Unsupported UNSUPPORTED_TABLE for format v3, types of v3, and a default file format that is not Parquet;
    InvalidRequest INVALID_TABLE_PROPERTY for properties that cannot be written by.
    """

    def __init__(self, metadata: TableMetadata, outputs: OutputFiles) -> None:
        check_format(metadata)
        refuse_unusable(metadata.properties, Use.WRITE)
        self._metadata = metadata
        self._outputs = outputs
        self._schema = metadata.schema()
        self._columns = columns_of(self._schema)
        file_format = metadata.properties.get(TableProperties.WRITE_FILE_FORMAT, "parquet")
        if file_format.lower() != "parquet":
            raise unsupported(f"new data files as {file_format} (write.format.default)")
        self.arrow_schema: pa.Schema = schema_to_pyarrow(self._schema)
        properties = settled(metadata.properties)
        self._options: dict[str, Any] = _get_parquet_writer_kwargs(properties)
        own = TableProperties
        self.target_bytes = int(
            properties.get(own.WRITE_TARGET_FILE_SIZE_BYTES, own.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)
        )
        self._row_group_rows = int(properties.get(own.PARQUET_ROW_GROUP_LIMIT, own.PARQUET_ROW_GROUP_LIMIT_DEFAULT))

    @property
    def schema_id(self) -> int:
        """The table's own id of the schema that rows are encoded against."""
        return self._schema.schema_id

    def digest(self, rows: object) -> str:
        """Return the digest of rows as they were sent: JSON records, or the bytes of an Arrow table."""
        found = hashlib.sha256()
        if isinstance(rows, Sequence):
            for _, part in sliced(rows):
                found.update(json.dumps(part, sort_keys=True, default=str).encode())
        else:
            with pa.ipc.new_stream(pa.PythonFile(_Digested(found), mode="w"), _table(rows).schema) as stream:
                stream.write_table(_table(rows))
        return found.hexdigest()

    def encode(self, records: Sequence[Mapping[str, object]]) -> pa.Table:
        """Return JSON records as typed Arrow, or refuse them all. Nothing is written."""
        return encode_records(self._columns, self.arrow_schema, records)

    def coerce(self, arrow_table: object) -> pa.Table:
        """Return an Arrow table of any origin in the table's own types, or refuse it. Nothing is written."""
        return coerce_table(self._columns, self.arrow_schema, _table(arrow_table))

    def given(self, rows: object, key: Sequence[str]) -> GivenRows:
        """Return JSON records or an Arrow table as far as they name columns, or refuse them. Nothing is written."""
        if isinstance(rows, Sequence):
            return encode_given(self._columns, self.arrow_schema, rows, key)
        return coerce_given(self._columns, self.arrow_schema, _table(rows), key)

    def fill(self, given: GivenRows, stored: object | None, key: Sequence[str]) -> pa.Table:
        """Return given rows with what they lack from stored ones (`KeyRewriter.stored`), or refuse them all."""
        return fill(self._columns, self.arrow_schema, given, None if stored is None else _table(stored), key)

    def check_key(self, rows: object, key: Sequence[str]) -> None:
        """Refuse a key that names no column, or encoded rows whose keys are null or not unique (422).

        As in Iceberg's identifier fields, floats and nested columns are no keys: whether two of them are equal is a
        question with several answers (NaN, both zeros).
        """
        table = _table(rows)
        columns: dict[str, pa.Array] = {}
        for name in key:
            if name not in table.column_names:
                raise InvalidRequest("INVALID_FIELD", f"key: the table has no column {name!r}", field="key")
            column = table[name].combine_chunks()
            if pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
                raise InvalidRequest(
                    "INVALID_FIELD", f"key: column {name!r} is a float or nested, and cannot be a key", field="key"
                )
            columns[name] = column
        check_keys(columns)

    def write(self, rows: object, *, max_partitions: int | None = None) -> tuple[NewDataFile, ...]:
        """Write encoded rows, at least one file per partition that occurs; no rows, no file.

        A file ends when it reaches the table's target size. When one fails, all files of this call are deleted.
        Errors: InvalidRequest 422 TOO_MANY_PARTITIONS before the first.
        """
        table = _table(rows)
        if not table.schema.equals(self.arrow_schema):
            raise ValueError("these rows were not encoded against the table's schema: call encode or coerce first")
        parts = list(split_by_partition(table, self._metadata.spec(), self._schema, max_partitions))
        firsts = self._outputs.reserve([partition for partition, _ in parts])
        reserved = [target.location for target in firsts]
        try:
            with storage_faults(), ThreadPoolExecutor(WRITERS_AT_ONCE) as pool:
                jobs = [
                    pool.submit(self._write_part, first, part, reserved)
                    for first, (_, part) in zip(firsts, parts, strict=True)
                ]
                wait(jobs)
                made = [job.result() for job in jobs]
        except BaseException:
            with suppress(OSError):  # the fault to report is the first one; what stays behind is an orphan
                self._outputs.discard(reserved)
            raise
        return tuple(new for files in made for new in files)

    def discard(self, locations: Sequence[str]) -> None:
        """Delete files that `write` made and that no commit names."""
        self._outputs.discard(locations)

    def _write_part(self, target: OutputTarget, rows: pa.Table, reserved: list[str]) -> list[NewDataFile]:
        """Write the rows of one partition, beginning with the file that is reserved for it."""
        size = rows.nbytes
        batch = min(max(self.target_bytes // 2, LEAST_BATCH_BYTES), MOST_BATCH_BYTES)
        step = rows.num_rows if size <= self.target_bytes else max(1, rows.num_rows * batch // size)
        made: list[NewDataFile] = []
        start = 0
        while True:
            start = self._write_file(target.local_path, rows, start, step)
            made.append(self._outputs.publish(target, sort_order_id=None))
            if start >= rows.num_rows:
                return made
            (target,) = self._outputs.reserve([target.partition])
            reserved.append(target.location)

    def _write_file(self, path: str, rows: pa.Table, start: int, step: int) -> int:
        """Write rows from `start` on until the file is large enough; return the first row that it does not hold."""
        with (
            pa.OSFile(path, "wb") as sink,
            pq.ParquetWriter(sink, rows.schema, store_decimal_as_integer=True, **self._options) as writer,
        ):
            while True:
                batch = rows.slice(start, step)
                writer.write_table(batch, row_group_size=max(self._row_group_rows, batch.num_rows // MOST_ROW_GROUPS))
                start += step
                if start >= rows.num_rows or sink.tell() >= self.target_bytes:
                    return start


class _Digested:
    """A file that keeps nothing of what is written into it but its digest."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return len(data)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.closed = True


def _table(rows: object) -> pa.Table:
    if not isinstance(rows, pa.Table):
        raise TypeError(f"expected a pyarrow.Table, got {type(rows).__name__}")
    return rows
