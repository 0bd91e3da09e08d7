"""CREATE_TABLE's schema, partition spec and sort order -> `TableDefinition`; ALTER_TABLE's changes -> `Evolution`."""

from __future__ import annotations

from regelate.core.table.evolution import ColumnChange, Evolution
from regelate.core.table.schema import Column, PartitionField, SortSpec, TableDefinition
from regelate.entrypoints.api.requests import AlterTable, CreateTable, FieldDefinition, SortDefinition
from regelate.errors import InvalidRequest

_NESTED = {"struct": ("fields",), "list": ("element",), "map": ("key", "value")}
_BELOW = ("fields", "element", "key", "value")


def table_definition(request: CreateTable) -> TableDefinition:
    """Return what a CREATE_TABLE asks for. Errors: InvalidRequest INVALID_SCHEMA for a nested type without its parts.

    Which primitive types, names and transforms exist is judged where the table's schema is made.
    """
    return TableDefinition(
        columns=tuple(
            _column(name, field, f"schema.fields.{name}") for name, field in request.table_schema.fields.items()
        ),
        partition_spec=tuple(
            PartitionField(source=f.source, transform=f.transform, name=f.name) for f in request.partition_spec
        ),
        sort_order=tuple(_sort(field) for field in request.sort_order),
        properties=dict(request.properties),
    )


def evolution(request: AlterTable) -> Evolution:
    """Return what an ALTER_TABLE changes in columns and partition fields. Errors: as `table_definition`."""
    return Evolution(
        add_columns={
            path: _column(path.rpartition(".")[2], f, f"add_columns.{path}") for path, f in request.add_columns.items()
        },
        drop_columns=tuple(request.drop_columns),
        rename_columns=dict(request.rename_columns),
        alter_columns={
            path: ColumnChange(type=how.type, required=how.required, doc=how.doc)
            for path, how in request.alter_columns.items()
        },
        add_partition_fields=tuple(
            PartitionField(source=f.source, transform=f.transform, name=f.name) for f in request.add_partition_fields
        ),
        drop_partition_fields=tuple(request.drop_partition_fields),
        rename_partition_fields=dict(request.rename_partition_fields),
    )


def _column(name: str, field: FieldDefinition, path: str) -> Column:
    kind = field.type.strip().lower()
    wanted = _NESTED.get(kind, ())
    for part in _BELOW:
        present = getattr(field, part) is not None
        if present and part not in wanted:
            raise _refused(path, f"type {field.type[:60]!a} has no `{part}`")
        if part in wanted and not present:
            raise _refused(path, f"type {kind} needs `{part}`")
    children = tuple(column for part in wanted for column in _below(field, part, path))
    return Column(
        name=name,
        type=kind if wanted else field.type,
        required=field.required,
        doc=field.doc,
        children=children,
    )


def _below(field: FieldDefinition, part: str, path: str) -> tuple[Column, ...]:
    if part == "fields":
        return tuple(_column(name, child, f"{path}.{name}") for name, child in (field.fields or {}).items())
    child = getattr(field, part)
    column = _column(part, child, f"{path}.{part}")
    if part == "key" and not child.required:  # Iceberg: the keys of a map are always required
        column = Column(name="key", type=column.type, required=True, doc=column.doc, children=column.children)
    return (column,)


def _sort(field: SortDefinition) -> SortSpec:
    nulls = field.nulls or ("nulls-first" if field.direction == "asc" else "nulls-last")
    return SortSpec(column=field.column, direction=field.direction, nulls=nulls)


def _refused(path: str, rule: str) -> InvalidRequest:
    shown = path[:200].encode("ascii", "backslashreplace").decode()
    return InvalidRequest("INVALID_SCHEMA", f"{shown}: {rule}", field=shown)
