"""The verbs on tables as names: straight lines over the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from regelate.core.table.evolution import NO_EVOLUTION, Evolution
from regelate.core.table.schema import TableDefinition, TableDescription
from regelate.core.values import dataclass
from regelate.ports.fleet import Fleet
from regelate.ports.table import TableAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTable:
    """`created` is False when the table was there already, just as asked for."""

    created: bool
    table_uuid: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredTable:
    """`changed` is False when the table was just as asked for already."""

    changed: bool
    table: TableDescription


def create_table(
    admin: TableAdmin, ident: str, definition: TableDefinition, *, if_not_exists: bool = False
) -> CreatedTable:
    """Create a table. Errors: Conflict TABLE_EXISTS; InvalidRequest for schema, partition spec or properties."""
    created, table = admin.create(ident, definition, if_not_exists=if_not_exists)
    return CreatedTable(created=created, table_uuid=table.table_uuid, location=table.location)


def alter_table(
    admin: TableAdmin,
    ident: str,
    *,
    set_properties: Mapping[str, str] | None = None,
    unset_properties: Sequence[str] = (),
    evolution: Evolution = NO_EVOLUTION,
) -> AlteredTable:
    """Change properties, columns and partition fields in one commit.

    Errors: InvalidRequest INVALID_SCHEMA, INVALID_PARTITION_SPEC, INVALID_OPTION; Conflict COMMIT_CONFLICT.
    """
    changed, table = admin.alter(
        ident, set_properties=set_properties or {}, unset_properties=unset_properties, evolution=evolution
    )
    return AlteredTable(changed=changed, table=table)


def describe_table(admin: TableAdmin, ident: str) -> TableDescription:
    """Return what the table's metadata says. Errors: NotFound TABLE_NOT_FOUND."""
    return admin.describe(ident)


def list_namespaces(fleet: Fleet, holds: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the namespaces of a catalog that somebody may know of, nested ones too."""
    return tuple(name for name in fleet.namespaces() if holds(name))


def list_tables(admin: TableAdmin, namespace: str) -> tuple[str, ...]:
    """Return the names of a namespace's tables. Errors: NotFound NAMESPACE_NOT_FOUND."""
    return admin.list_tables(namespace)


def drop_table(admin: TableAdmin, ident: str, *, purge: bool = False) -> None:
    """Drop a table, with its files when `purge`. Errors: NotFound TABLE_NOT_FOUND; NotAllowed GC_DISABLED."""
    admin.drop(ident, purge=purge)
