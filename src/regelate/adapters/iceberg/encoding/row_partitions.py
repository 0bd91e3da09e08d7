"""Cuts an Arrow table into the partitions of a spec, exactly.

PyIceberg's own cut compares values with `==`: rows whose identity partition is NaN match no partition and are lost, and
rows at 0.0 and -0.0 land in both. Here rows are grouped by the codes of a dictionary, which tells all of them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType, TimeType

from regelate.adapters.iceberg.metadata.partitions import Partitions, partition_of
from regelate.adapters.iceberg.metadata.transforms import partition_value
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.core.table.schema import Column
from regelate.core.table.table import Partition
from regelate.errors import InvalidRequest


def split_by_partition(
    rows: pa.Table, spec: PartitionSpec, schema: Schema, most: int | None = None
) -> Iterator[tuple[Partition, pa.Table]]:
    """Yield each partition with its rows, in the order of first appearance; rows keep their order. No rows: nothing.

    Errors: InvalidRequest 422 VALUE_OUT_OF_RANGE for a value whose partition the table cannot hold,
    TOO_MANY_PARTITIONS above `most`.
    """
    if rows.num_rows == 0:
        return
    if spec.is_unpartitioned():
        yield partition_of(spec, schema, ()), rows
        return
    columns = columns_of(schema)
    codes: pa.Array | None = None
    keys: list[tuple[Any, ...]] = []
    for field in spec.fields:
        path = _path(columns, field.source_id)
        try:
            field_codes, values = _field_codes(_column(rows, path), field, schema.find_type(field.source_id))
        except OverflowError as error:
            raise _out_of_range(field, schema, error) from error
        codes, keys = (
            (field_codes, [(v,) for v in values]) if codes is None else _joined(codes, keys, field_codes, values)
        )
    counts = {c["values"]: c["counts"] for c in pc.value_counts(codes).to_pylist()}
    if most is not None and len(counts) > most:
        raise _too_many(len(counts), most)
    ordered = rows if len(counts) == 1 else rows.take(pc.array_sort_indices(codes))
    partitions = Partitions(spec, schema)
    start = 0
    for code in sorted(counts):
        yield partitions.of(keys[code]), ordered.slice(start, counts[code])
        start += counts[code]


def _too_many(found: int, most: int) -> InvalidRequest:
    return InvalidRequest(
        "TOO_MANY_PARTITIONS",
        f"records: these rows belong to {found} partitions, each of which gets a file of its own, and one WRITE may "
        f"touch {most}; send the rows of fewer partitions in each request, or partition the table more coarsely "
        "(day instead of hour, bucket[n] instead of identity); no row was written",
        status=422,
        field="records",
        partitions=found,
        max_partitions_per_write=most,
    )


def _out_of_range(field: PartitionField, schema: Schema, error: OverflowError) -> InvalidRequest:
    column, kind = schema.find_column_name(field.source_id), schema.find_type(field.source_id)
    return InvalidRequest(
        "VALUE_OUT_OF_RANGE",
        f"column {column!a}: the partition {field.name!a} ({field.transform}) of a value is beyond {kind}: {error}; "
        "no row was written",
        status=422,
        column=column,
    )


def _joined(
    codes: pa.Array, keys: Sequence[tuple[Any, ...]], more: pa.Array, values: Sequence[Any]
) -> tuple[pa.Array, list[tuple[Any, ...]]]:
    """Join the codes of two keys into codes of the pairs that occur, counted from 0 in order of first appearance."""
    pairs = pc.add(pc.multiply(codes, pa.scalar(len(values), pa.int64())), more).dictionary_encode()
    found = [divmod(pair, len(values)) for pair in pairs.dictionary.to_pylist()]
    return pairs.indices.cast(pa.int64()), [(*keys[left], values[right]) for left, right in found]


def _field_codes(array: pa.Array, field: PartitionField, source_type: IcebergType) -> tuple[pa.Array, list[Any]]:
    """Return a code per row and the partition value of each code, in order of first appearance.

    The transform takes one value at a time; few distinct values keep that cheap, so moments are first
    brought down to their hour or day.
    """
    transform = field.transform
    if pa.types.is_timestamp(array.type):
        if isinstance(transform, HourTransform):
            array = pc.floor_temporal(array, unit="hour")
        elif isinstance(transform, DayTransform | MonthTransform | YearTransform):
            array = pc.floor_temporal(array, unit="day")
    encoded = _internal(array, source_type).dictionary_encode(null_encoding="encode")
    apply = partition_value(transform, source_type)
    codes_by_text: dict[str, int] = {}
    values: list[Any] = []
    recoded: list[int] = []
    for value in map(apply, encoded.dictionary.to_pylist()):
        code = codes_by_text.setdefault(repr(value), len(values))
        if code == len(values):
            values.append(value)
        recoded.append(code)
    return pa.array(recoded, pa.int64()).take(encoded.indices), values


def _internal(array: pa.Array, source_type: IcebergType) -> pa.Array:
    """Return Iceberg's internal form: days, microseconds and bytes."""
    if isinstance(source_type, DateType):
        return array.view(pa.int32())
    if isinstance(source_type, TimeType | TimestampType | TimestamptzType):
        return array.view(pa.int64())
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _path(columns: Sequence[Column], field_id: int) -> list[int]:
    """Return the positions that lead from the table through its structs to a field."""
    for position, column in enumerate(columns):
        if column.field_id == field_id:
            return [position]
        if any(c.field_id == field_id for c in column.walk()):
            return [position, *_path(column.children, field_id)]
    raise LookupError(f"no field with id {field_id}")


def _column(rows: pa.Table, path: Sequence[int]) -> pa.Array:
    """Return one field as one array; a null struct gives null."""
    array = rows.column(path[0]).combine_chunks()
    for position in path[1:]:
        array = pc.struct_field(array, [position])
    return array
