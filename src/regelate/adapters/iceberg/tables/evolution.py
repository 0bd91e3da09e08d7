"""Changes of columns and partition fields as metadata updates, by PyIceberg's rules and those that it leaves out.

PyIceberg applies and numbers the changes (`UpdateSchema`, `UpdateSpec`). What it lets through and Iceberg does not, or
what would leave a table that somebody cannot read, is refused here before: promotions, columns that the partition spec,
the sort order or the identifier fields need, names that differ only in case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableRequirement, TableUpdate
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from regelate.adapters.iceberg.tables.schema import check_columns, check_name, columns_of, invalid_schema, type_of
from regelate.adapters.iceberg.tables.spec import added_field, check_spec, too_many_fields
from regelate.core.table.evolution import ColumnChange, Evolution
from regelate.core.table.schema import MAX_ORDERED_FIELDS, Column
from regelate.errors import InvalidRequest

OF_COLUMNS = ("write.metadata.metrics.column.", "write.parquet.bloom-filter-enabled.column.")
"""Properties that end in a column's path. Spark refuses to set any property while one of the first kind names a column
that is none (`MetricsConfig.validateReferencedColumns`)."""


def evolve(table: Table, change: Evolution) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates that change a table's columns and partition fields, and the requirements that they stand on.

    Both are empty where the table is as it was asked for. Errors: InvalidRequest INVALID_SCHEMA,
    INVALID_PARTITION_SPEC, naming the column or field.
    """
    staged = table.transaction()
    before = table.metadata
    with _refused_by_pyiceberg(invalid_schema, "columns"):
        _change_columns(staged, change)
    with _refused_by_pyiceberg(_invalid_spec, "of this request"):
        _change_spec(staged, change)
    after = staged.table_metadata
    properties = _of_columns(before.schema(), after.schema(), after.properties)
    return (*staged._updates, *properties), staged._requirements


def shows(found: TableMetadata, sent: TableMetadata) -> bool:
    """Say whether a table has the columns and the partition fields of metadata that was sent, ids and all."""
    columns = found.schema().fields == sent.schema().fields
    return columns and found.spec().fields == sent.spec().fields and found.table_uuid == sent.table_uuid


def _change_columns(staged: Transaction, change: Evolution) -> None:
    metadata = staged.table_metadata
    schema = metadata.schema()
    update = staged.update_schema()
    for path in dict.fromkeys(change.drop_columns):
        _check_unused(path, _named(path, schema), metadata)
        update.delete_column(path)
    for path, name in change.rename_columns.items():
        _named(path, schema)
        _check_new_name(path, name)
        update.rename_column(path, name)
    for path, how in change.alter_columns.items():
        field = _found(path, schema)
        _check_alterable(path, field, how, schema)
        wider = None if how.type is None else _widened(path, field, how.type)
        update.update_column(path, field_type=wider, required=how.required, doc=how.doc)
    for path, column in change.add_columns.items():
        parent = _parent(path, column, schema)
        update.add_column((*parent, column.name), type_of(column, path), doc=column.doc)
    update.commit()
    after = staged.table_metadata.schema()
    _check_not_empty(after)
    if change.add_columns or change.rename_columns:
        check_columns(columns_of(after))


def _change_spec(staged: Transaction, change: Evolution) -> None:
    metadata = staged.table_metadata
    before, schema = metadata.spec(), metadata.schema()
    _check_number(change, before)
    update = staged.update_spec()
    for name in dict.fromkeys(change.drop_partition_fields):
        _check_partition_field(name, before)
        update.remove_field(name)
    for name, new_name in change.rename_partition_fields.items():
        _check_partition_field(name, before)
        if why := check_name("a partition field", new_name):
            raise _invalid_spec(name, why)
        if new_name != name:
            update.rename_field(name, new_name)
    for field in change.add_partition_fields:
        source, transform = added_field(field, schema)
        update.add_field(source, transform, field.name)
    update.commit()
    known = {f.field_id: f for f in before.fields}
    after = staged.table_metadata.spec()
    check_spec(after, schema, changed=frozenset(f.field_id for f in after.fields if known.get(f.field_id) != f))


def _check_number(change: Evolution, before: PartitionSpec) -> None:
    """Refuse to add beyond the limit; a table that another engine gave more fields can still lose them."""
    live = {field.name for field in before.fields if not isinstance(field.transform, VoidTransform)}
    number = len(live - set(change.drop_partition_fields)) + len(change.add_partition_fields)
    if change.add_partition_fields and number > MAX_ORDERED_FIELDS:
        raise too_many_fields("add_partition_fields", number)


def _found(path: str, schema: Schema) -> NestedField:
    try:
        return schema.find_field(path)
    except ValueError:
        known = ", ".join(field.name for field in schema.fields[:50])
        raise invalid_schema(path[:200], f"there is no such column; the columns are {known}") from None


def _named(path: str, schema: Schema) -> NestedField:
    """Return a field of a struct. The element of a list and the key and value of a map can go nowhere, and have no
    other name."""
    field = _found(path, schema)
    if not _above(field, schema, (StructType,)):
        raise invalid_schema(path, "this is a part of a list or a map; drop or rename the whole column")
    return field


def _above(field: NestedField, schema: Schema, kinds: tuple[type[IcebergType], ...]) -> bool:
    """Say whether a field stands directly in one of these kinds of types; the table itself is a struct."""
    parent = schema._lazy_id_to_parent.get(field.field_id)
    return isinstance(schema.as_struct() if parent is None else schema.find_type(parent), kinds)


def _is_key(field: NestedField, schema: Schema) -> bool:
    parent = schema._lazy_id_to_parent.get(field.field_id)
    above = None if parent is None else schema.find_type(parent)
    return isinstance(above, MapType) and above.key_id == field.field_id


def _check_unused(path: str, field: NestedField, metadata: TableMetadata) -> None:
    """Refuse to drop what the table needs: a source of the partition spec, a column it is sorted or identified by."""
    gone = {field.field_id, *index_by_id(StructType(field))}
    for partition in metadata.spec().fields:
        if partition.source_id in gone:
            raise invalid_schema(path, f"the table is partitioned by it ({partition.name}); drop that field first")
    if any(sorted_by.source_id in gone for sorted_by in metadata.sort_order().fields):
        raise invalid_schema(path, "the table is sorted by it; change its sort order first, with Spark")
    if gone & set(metadata.schema().identifier_field_ids):
        raise invalid_schema(path, "it is an identifier field of the table; change those first, with Spark")


def _check_new_name(path: str, name: str) -> None:
    if why := check_name("a column", name):
        raise invalid_schema(path, why)
    if "." in name:
        raise invalid_schema(path, f"the new name {name[:80]!r} holds a dot; a column stays where it is")


def _check_alterable(path: str, field: NestedField, how: ColumnChange, schema: Schema) -> None:
    if how.required and not field.required:
        raise invalid_schema(path, "an optional column cannot become required: rows that are there may hold null")
    if how.required is False and field.field_id in schema.identifier_field_ids:
        raise invalid_schema(path, "it is an identifier field of the table, which stays required")
    if _is_key(field, schema):
        raise invalid_schema(path, "the key of a map cannot be changed")
    if how.doc is not None and not _above(field, schema, (StructType,)):
        raise invalid_schema(path, f"Iceberg keeps no doc for the {field.name} of a list or a map")


def _widened(path: str, field: NestedField, text: str) -> IcebergType:
    """Return the wider type, or the same. Rule: Iceberg 1.10, `TypeUtil.isPromotionAllowed`, format version 2."""
    before = field.field_type
    after = type_of(Column(name=field.name, type=text), path) if before.is_primitive else None
    if after is None:
        raise invalid_schema(path, "only a plain type widens; change what is inside by its own path")
    allowed = (
        before == after
        or (isinstance(before, IntegerType) and isinstance(after, LongType))
        or (isinstance(before, FloatType) and isinstance(after, DoubleType))
        or (
            isinstance(before, DecimalType)
            and isinstance(after, DecimalType)
            and before.scale == after.scale
            and before.precision <= after.precision
        )
    )
    if not allowed:
        rule = "int becomes long, float becomes double, decimal gets more digits before the point"
        raise invalid_schema(path, f"{before} cannot become {after}; in Iceberg {rule}")
    return after


def _parent(path: str, column: Column, schema: Schema) -> tuple[str, ...]:
    """Return the path of the struct that a new column goes into, as PyIceberg takes it; the table itself is ()."""
    above = path.removesuffix(column.name).removesuffix(".")
    if why := check_name("a column", column.name):
        raise invalid_schema(path[:200], why)
    if column.required:
        raise invalid_schema(path, "a column that is added is optional: rows that are there have no value for it")
    if not above:
        return ()
    into = _found(above, schema).field_type
    if isinstance(into, ListType):
        into, above = into.element_type, f"{above}.element"
    elif isinstance(into, MapType):
        into, above = into.value_type, f"{above}.value"
    if not isinstance(into, StructType):
        raise invalid_schema(path, f"{above} is no struct, so nothing can be added to it")
    return (above,)


def _check_not_empty(schema: Schema) -> None:
    if not schema.fields:
        raise invalid_schema("drop_columns", "a table keeps at least one column")
    for field in index_by_id(schema).values():
        if isinstance(field.field_type, StructType) and not field.field_type.fields:
            raise invalid_schema(field.name, "no field of this struct would be left; drop the whole column")


def _check_partition_field(name: str, spec: PartitionSpec) -> None:
    known = [f.name for f in spec.fields if not isinstance(f.transform, VoidTransform)]
    if name not in known:
        have = f"the fields are {', '.join(known)}" if known else "the table is not partitioned"
        raise _invalid_spec(name, f"there is no such partition field; {have}")


def _of_columns(before: Schema, after: Schema, properties: Mapping[str, str]) -> Iterator[TableUpdate]:
    """Let the properties that end in a column's path follow it, and go with it."""
    moved: dict[str, str] = {}
    gone: list[str] = []
    for key, value in properties.items():
        prefix = next((p for p in OF_COLUMNS if key.startswith(p)), None)
        if prefix is None:
            continue
        try:
            column = before.find_field(key.removeprefix(prefix)).field_id
        except ValueError:
            continue
        now = after.find_column_name(column)
        if now is None or prefix + now != key:
            gone.append(key)
            moved |= {} if now is None else {prefix + now: value}
    stale = [key for key in gone if key not in moved]
    if stale:
        yield RemovePropertiesUpdate(removals=stale)
    if moved:
        yield SetPropertiesUpdate(updates=moved)


@contextmanager
def _refused_by_pyiceberg(refused: Callable[[str, str], InvalidRequest], what: str) -> Iterator[None]:
    """Word a refusal of PyIceberg's own: two changes of one column, a name that a partition has, and so on."""
    try:
        yield
    except (ValueError, ValidationError) as error:
        told = " ".join(str(error).split())[:300]
        raise refused(what, f"these changes do not go together: {told}") from error


def _invalid_spec(name: str, why: str) -> InvalidRequest:
    return InvalidRequest("INVALID_PARTITION_SPEC", f"partition field {name[:80]!r}: {why}", field=name[:80])
