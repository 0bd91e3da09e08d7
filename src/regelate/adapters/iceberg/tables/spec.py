"""Partition specs and sort orders as the doors write them <-> Iceberg's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.partitioning import PartitionField as NativeField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import NestedField

from regelate.adapters.iceberg.tables.schema import check_name
from regelate.core.table.schema import MAX_ORDERED_FIELDS, PartitionField, SortSpec
from regelate.errors import InvalidRequest

MAX_TRANSFORM_NUMBER = 2**31 - 1
_TRANSFORM = re.compile(r"([a-z]+)(?:\s*(?:\[\s*(\d{1,12})\s*\]|\(\s*(\d{1,12})\s*\)))?")
_PLAIN: dict[str, tuple[Callable[[], Transform[Any, Any]], str]] = {
    "identity": (IdentityTransform, ""),
    "year": (YearTransform, "_year"),
    "month": (MonthTransform, "_month"),
    "day": (DayTransform, "_day"),
    "hour": (HourTransform, "_hour"),
    "void": (VoidTransform, "_null"),
}
"""Transforms without a number, and what their default name adds to the source (Iceberg's PartitionSpec.Builder)."""
_PLURALS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_NUMBERED: dict[str, tuple[Callable[[int], Transform[Any, Any]], str]] = {
    "bucket": (BucketTransform, "_bucket"),
    "truncate": (TruncateTransform, "_trunc"),
}
_DIRECTIONS = {"asc": SortDirection.ASC, "desc": SortDirection.DESC}
_NULL_ORDERS = {"nulls-first": NullOrder.NULLS_FIRST, "nulls-last": NullOrder.NULLS_LAST}


def spec_of(fields: Sequence[PartitionField], schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table.

    Errors: InvalidRequest INVALID_PARTITION_SPEC, naming the field: unknown source, bad transform, a transform that
    does not apply to the type, duplicate or clashing names, two fields that say the same ("redundant partition").
    """
    native: list[NativeField] = []
    names: set[str] = set()
    transforms: set[tuple[int, str]] = set()
    if len(fields) > MAX_ORDERED_FIELDS:
        raise too_many_fields("partition_spec", len(fields))
    for field in fields:
        source = _source(field.source, schema, "INVALID_PARTITION_SPEC")
        transform, suffix = _transform(field)
        if not transform.can_transform(source.field_type):
            raise _invalid(field, f"transform {transform} does not apply to type {source.field_type}")
        name = f"{field.source}{suffix}" if field.name is None else field.name
        _check_partition_name(field, name, source, transform, schema)
        if name.lower() in names:
            raise _invalid(field, f"the partition name {name!r} appears twice; give one of them another `name`")
        if (source.field_id, transform.dedup_name) in transforms:
            raise _invalid(field, f"another field already partitions by {transform} or a like transform of this column")
        names.add(name.lower())
        transforms.add((source.field_id, transform.dedup_name))
        native.append(NativeField(source.field_id, PARTITION_FIELD_ID_START + len(native), transform, name))
    return PartitionSpec(*native)


def added_field(field: PartitionField, schema: Schema) -> tuple[str, Transform[Any, Any]]:
    """Return source and transform of a field that is added to a table's spec. Errors: as `spec_of`."""
    source = _source(field.source, schema, "INVALID_PARTITION_SPEC")
    transform, _ = _transform(field)
    if not transform.can_transform(source.field_type):
        raise _invalid(field, f"transform {transform} does not apply to type {source.field_type}")
    if field.name is not None and (why := check_name("a partition field", field.name)):
        raise _invalid(field, why)
    return field.source, transform


def check_spec(spec: PartitionSpec, schema: Schema, *, changed: frozenset[int]) -> None:
    """Hold the `changed` fields (by id) of a table's next spec to the rules of a new one. Errors: as `spec_of`."""
    live = [f for f in spec.fields if not isinstance(f.transform, VoidTransform)]
    for native in (f for f in live if f.field_id in changed):
        field = PartitionField(
            source=_name(schema, native.source_id), transform=str(native.transform), name=native.name
        )
        _check_partition_name(field, native.name, schema.find_field(native.source_id), native.transform, schema)
        for other in (f for f in spec.fields if f is not native):
            if other.name.lower() == native.name.lower():
                raise _invalid(field, f"the partition name {native.name!r} appears twice; give one another `name`")
        for other in (f for f in live if f is not native and f.source_id == native.source_id):
            if other.transform.dedup_name == native.transform.dedup_name:
                raise _invalid(field, f"{other.name} already partitions by a like transform; drop it in this request")


def order_of(fields: Sequence[SortSpec], schema: Schema) -> SortOrder:
    """Return the sort order of a new table. Errors: InvalidRequest INVALID_FIELD, naming the column."""
    native: list[SortField] = []
    if len(fields) > MAX_ORDERED_FIELDS:
        told = f"sort_order has {len(fields)} columns; at most {MAX_ORDERED_FIELDS} are allowed"
        raise InvalidRequest("INVALID_FIELD", told, field="sort_order")
    for field in fields:
        source = _source(field.column, schema, "INVALID_FIELD")
        direction, nulls = _DIRECTIONS.get(field.direction), _NULL_ORDERS.get(field.nulls)
        if direction is None or nulls is None:
            raise InvalidRequest(
                "INVALID_FIELD",
                f"sort_order of {field.column!r}: direction must be asc or desc, nulls nulls-first or nulls-last",
                field=field.column,
            )
        if any(source.field_id == known.source_id for known in native):
            raise InvalidRequest("INVALID_FIELD", f"sort_order names {field.column!r} twice", field=field.column)
        native.append(SortField(source.field_id, IdentityTransform(), direction, nulls))
    return SortOrder(*native) if native else UNSORTED_SORT_ORDER


def describe_spec(spec: PartitionSpec, schema: Schema) -> tuple[Mapping[str, object], ...]:
    """Return `{source, transform, name}` per field; the source of a dropped column is its field id as text."""
    return tuple(
        {"source": _name(schema, field.source_id), "transform": transform_text(field.transform), "name": field.name}
        for field in spec.fields
    )


def describe_order(order: SortOrder, schema: Schema) -> tuple[Mapping[str, object], ...]:
    """Return `{column, transform, direction, nulls}` per field of a sort order."""
    return tuple(
        {
            "column": _name(schema, field.source_id),
            "transform": transform_text(field.transform),
            "direction": field.direction.value,
            "nulls": field.null_order.value,
        }
        for field in order.fields
    )


def transform_text(transform: Transform[Any, Any]) -> str:
    """Return a transform as its metadata has it, also one that PyIceberg does not know."""
    return str(getattr(transform, "_transform", None) or transform)


def _name(schema: Schema, field_id: int) -> str:
    return schema.find_column_name(field_id) or str(field_id)


def _source(path: str, schema: Schema, code: str) -> NestedField:
    """Find a primitive column that lies in no list and no map."""
    try:
        field = schema.find_field(path)
    except ValueError:
        known = ", ".join(c.name for c in schema.columns[:50])
        raise InvalidRequest(code, f"no column {path[:80]!r}; the columns are {known}", field=path) from None
    if not field.field_type.is_primitive:
        raise InvalidRequest(code, f"column {path!r} does not have a primitive type", field=path)
    parents = schema._lazy_id_to_parent
    above = parents.get(field.field_id)
    while above is not None:
        if not schema.find_type(above).is_struct:
            raise InvalidRequest(code, f"column {path!r} lies inside a list or a map", field=path)
        above = parents.get(above)
    return field


def _transform(field: PartitionField) -> tuple[Transform[Any, Any], str]:
    match = _TRANSFORM.fullmatch(field.transform.strip().lower())
    name = match[1] if match else ""
    number = (match[2] or match[3]) if match else None
    plain = _PLAIN.get(_PLURALS.get(name, name))
    if plain is not None and number is None:
        return plain[0](), plain[1]
    numbered = _NUMBERED.get(name)
    if numbered is None:
        known = "identity, year, month, day, hour, void, bucket[n], truncate[n]"
        raise _invalid(field, f"unknown transform {field.transform[:80]!r}; known: {known}")
    if number is None or not 1 <= int(number) <= MAX_TRANSFORM_NUMBER:
        raise _invalid(field, f"{field.transform[:80]!r}: write {name}[n] with n from 1 to {MAX_TRANSFORM_NUMBER}")
    return numbered[0](int(number)), numbered[1]


def _check_partition_name(
    field: PartitionField, name: str, source: NestedField, transform: Transform[Any, Any], schema: Schema
) -> None:
    """Refuse a name that is none, or another column's (PartitionSpec.Builder.checkAndAddPartitionName, 1.10)."""
    if why := check_name("a partition field", name):
        raise _invalid(field, why)
    try:
        namesake = schema.find_field(name, case_sensitive=False)
    except ValueError:
        return
    if namesake.field_id != source.field_id or not isinstance(transform, IdentityTransform | VoidTransform):
        raise _invalid(field, f"the partition name {name!r} is the name of a column; give it another `name`")


def too_many_fields(what: str, found: int) -> InvalidRequest:
    """Make the 400 of a partition spec that would have too many fields by a request's field `what`."""
    told = f"{what}: the table would have {found} partition fields; at most {MAX_ORDERED_FIELDS} are allowed"
    return InvalidRequest("INVALID_PARTITION_SPEC", told, field=what)


def _invalid(field: PartitionField, why: str) -> InvalidRequest:
    return InvalidRequest("INVALID_PARTITION_SPEC", f"partition on {field.source[:80]!r}: {why}", field=field.source)
