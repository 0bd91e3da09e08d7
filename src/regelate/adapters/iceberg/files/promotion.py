"""Which columns of a schema some data file may hold in another, mostly narrower, type than the schema says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

WIDENED = (LongType, DoubleType, DecimalType, TimeType, TimestampType, TimestamptzType)
"""Types that are read from files with another one: promotions (spec, "Schema Evolution"), and units of time."""


def maybe_promoted(metadata: TableMetadata, schema: Schema, *, with_ids: bool) -> frozenset[int]:
    """Return the ids of the top-level columns that a live file may hold, themselves or in a field, in another type.

    Known schemas tell it by a field's type then and now. Where one is no longer known (Iceberg's expiry can drop
    schemas, files outlive them), and where a file came without field ids (not `with_ids`), every type that can be the
    result of a promotion counts.
    """
    ids = {s.schema_id for s in metadata.schemas}
    complete = ids == set(range(len(ids))) and with_ids
    types: dict[int, set[IcebergType]] = defaultdict(set)
    for known in (*metadata.schemas, schema):
        for leaf in _leaves(known.fields):
            types[leaf.field_id].add(leaf.field_type)
    return frozenset(
        column.field_id
        for column in schema.fields
        for leaf in _leaves((column,))
        if len(types[leaf.field_id]) > 1 or (not complete and isinstance(leaf.field_type, WIDENED))
    )


def _leaves(fields: Iterable[NestedField]) -> Iterator[NestedField]:
    for field in fields:
        kind = field.field_type
        if isinstance(kind, StructType):
            yield from _leaves(kind.fields)
        elif isinstance(kind, ListType):
            yield from _leaves((kind.element_field,))
        elif isinstance(kind, MapType):
            yield from _leaves((kind.key_field, kind.value_field))
        else:
            yield field
