"""Tables as names in one catalog: create, alter, describe, list, drop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from regelate.adapters.iceberg.catalogs import faults_of_table, open_table
from regelate.adapters.iceberg.cleanup.neighbours import Neighbours
from regelate.adapters.iceberg.metadata.snapshot import refs_of
from regelate.adapters.iceberg.metadata.tasks import check_metadata
from regelate.adapters.iceberg.pyiceberg_errors import catalog_faults
from regelate.adapters.iceberg.tables.evolution import evolve, shows
from regelate.adapters.iceberg.tables.properties import (
    LOCATION,
    Judge,
    check_changes,
    check_new_table,
    check_outcome,
    gc_enabled,
)
from regelate.adapters.iceberg.tables.schema import columns_of, same_columns, schema_of
from regelate.adapters.iceberg.tables.spec import describe_order, describe_spec, order_of, spec_of
from regelate.core.policy.table_properties import Use, refuse_unusable
from regelate.core.table.evolution import NO_EVOLUTION, Evolution
from regelate.core.table.names import split_ident
from regelate.core.table.schema import TableDefinition, TableDescription
from regelate.errors import Conflict, NotAllowed, RegelateError

WRITE_PROPERTIES: Mapping[str, str] = {
    TableProperties.PARQUET_COMPRESSION: "zstd",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100",
}
"""Set at creation: many small commits must not leave a manifest and a metadata file each, for ever."""
MAX_ATTEMPTS = 5
BASE_DELAY_SECONDS = 0.1


class IcebergAdmin:
    """Implements TableAdmin over one catalog. `defaults`: properties of new tables, unless the request names them.

    Errors: NotFound TABLE_NOT_FOUND, NAMESPACE_NOT_FOUND; Unavailable CATALOG_UNAVAILABLE; InvalidRequest
    INVALID_SCHEMA, INVALID_PARTITION_SPEC, INVALID_LOCATION, INVALID_OPTION.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        defaults: Mapping[str, str],
        sleep: Callable[[float], None] = time.sleep,
        survey: Callable[[], Catalog] | None = None,
        judge: Judge = lambda properties: None,
    ) -> None:
        """`survey` opens the catalog to see the metadata of every table, where `catalog` itself may not; `judge` looks
        at all properties that a table would have."""
        self._catalog = catalog
        self._survey = survey or (lambda: catalog)
        self._defaults = defaults
        self._sleep = sleep
        self._judge = judge

    def create(self, ident: str, definition: TableDefinition, *, if_not_exists: bool) -> tuple[bool, TableDescription]:
        """Create a table, and its namespace where it is missing; return (created, the table).

        An existing table is answered with created False only when `if_not_exists` and its columns and partition spec
        are the wanted ones. Errors: Conflict TABLE_EXISTS, not retryable.
        """
        schema = schema_of(definition.columns)
        spec = spec_of(definition.partition_spec, schema)
        order = order_of(definition.sort_order, schema)
        defaults = {**WRITE_PROPERTIES, **self._defaults}
        check_new_table(definition.properties, defaults, self._warehouse)
        properties = {**defaults, **definition.properties}
        self._judge(properties)
        location = properties.pop(LOCATION, None)
        with catalog_faults():
            existing = self._find(ident)
            if existing is None:
                self._make_namespace(split_ident(ident)[0])
                try:
                    made = self._catalog.create_table(_identifier(ident), schema, location, spec, order, properties)
                    return True, _description(ident, made)
                except TableAlreadyExistsError:  # another creation won the race: judge what it made
                    existing = open_table(self._catalog, ident)
        _check_same(ident, existing, definition, if_not_exists=if_not_exists)
        return False, _description(ident, existing)

    def alter(
        self,
        ident: str,
        *,
        set_properties: Mapping[str, str],
        unset_properties: Sequence[str],
        evolution: Evolution = NO_EVOLUTION,
    ) -> tuple[bool, TableDescription]:
        """Change properties, columns and partition fields in one commit; return (changed, the table).

        A lost race is decided again on the table as it is then; a race that was lost to the change itself, which a
        client may have sent twice, is none. Errors: Conflict COMMIT_CONFLICT after five lost races; Unsupported
        UNSUPPORTED_TABLE for format version 3.
        """
        check_changes(set_properties, unset_properties, self._warehouse)
        sent: TableMetadata | None = None
        for number in range(MAX_ATTEMPTS):
            table = open_table(self._catalog, ident)
            check_metadata(table.metadata)
            evolving: tuple[TableUpdate, ...] = ()
            requirements: tuple[TableRequirement, ...] = ()
            if not evolution.is_nothing and (sent is None or not shows(table.metadata, sent)):
                refuse_unusable(table.metadata.properties, Use.QUERY)  # a name mapping changes with the columns
                evolving, requirements = evolve(table, evolution)
            found = update_table_metadata(table.metadata, evolving).properties
            changed = {k: v for k, v in set_properties.items() if found.get(k) != v}
            gone = [k for k in unset_properties if k in found]
            check_outcome(found, changed, gone, self._judge)
            updates: list[TableUpdate] = [*evolving]
            updates += [SetPropertiesUpdate(updates=changed)] if changed else []
            updates += [RemovePropertiesUpdate(removals=gone)] if gone else []
            if not updates:
                return sent is not None, _description(ident, table)
            sent = update_table_metadata(table.metadata, tuple(updates))
            try:
                with catalog_faults():  # not through a transaction: its own retry loop sleeps for up to half an hour
                    same = AssertTableUUID(uuid=table.metadata.table_uuid)
                    table._do_commit(tuple(updates), (same, *requirements))
                return True, _description(ident, table)
            except Conflict:
                self._sleep(BASE_DELAY_SECONDS * 2**number * (0.5 + random.random()))
        raise Conflict("COMMIT_CONFLICT", f"other writers committed first, {MAX_ATTEMPTS} times in a row; try again")

    def describe(self, ident: str) -> TableDescription:
        """Return what the table's current metadata says."""
        return _description(ident, open_table(self._catalog, ident))

    def list_tables(self, namespace: str) -> tuple[str, ...]:
        """Return the names of a namespace's tables, without the namespace, sorted."""
        with catalog_faults():
            found = self._catalog.list_tables(tuple(namespace.split(".")))
        return tuple(sorted(identifier[-1] for identifier in found))

    def namespaces(self) -> tuple[str, ...]:
        """Return all namespaces of the catalog, nested ones too, sorted."""
        with catalog_faults():
            found = self._below(())
        return tuple(sorted(".".join(parts) for parts in found))

    def _below(self, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
        inside = [n for n in self._catalog.list_namespaces(parent) if n != parent]
        return [*inside, *(below for one in inside if len(one) > len(parent) for below in self._below(one))]

    def drop(self, ident: str, *, purge: bool) -> None:
        """Drop a table; with `purge`, delete its files as well.

        Deleted is what its metadata names and what lies in its own folders; files that were added from elsewhere stay.
        Errors: NotAllowed GC_DISABLED when the table says `gc.enabled=false`, or another table of the catalog reads its
        files; Conflict TABLE_REPLACED: nothing is dropped then.
        """
        if not purge:
            with faults_of_table(self._catalog, ident):
                self._catalog.drop_table(_identifier(ident))
            return
        from regelate.adapters.iceberg.cleanup.purge import (  # with PyArrow, which names do not need
            FileList,
            delete_files,
        )

        table = open_table(self._catalog, ident)
        if not gc_enabled(table.metadata.properties):
            raise NotAllowed(
                "GC_DISABLED", f"{ident} has gc.enabled=false: its files may be shared; drop it without purge"
            )
        Neighbours(self._survey).check_no_clone(table)
        files = FileList.of(table)
        if open_table(self._catalog, ident).metadata.table_uuid != table.metadata.table_uuid:
            raise Conflict(
                "TABLE_REPLACED",
                f"another table has taken the name {ident} meanwhile; nothing was dropped",
                retryable=False,
            )
        with catalog_faults():
            self._catalog.drop_table(_identifier(ident))
        delete_files(table.io, files)

    def reachable(self) -> bool:
        """Say whether the catalog answers."""
        try:
            with catalog_faults():
                self._catalog.list_namespaces()
        except RegelateError:
            return False
        return True

    @property
    def _warehouse(self) -> str | None:
        return self._catalog.properties.get("warehouse")

    def _find(self, ident: str) -> Table | None:
        try:
            return self._catalog.load_table(_identifier(ident))
        except NoSuchTableError:
            return None

    def _make_namespace(self, namespace: str) -> None:
        """Two creations at once may both try: what counts is that it exists afterwards."""
        identifier = tuple(namespace.split("."))
        try:
            self._catalog.create_namespace_if_not_exists(identifier)
        except Exception:
            if not self._catalog.namespace_exists(identifier):
                raise


def _identifier(ident: str) -> tuple[str, ...]:
    return tuple(ident.split("."))


def _check_same(ident: str, table: Table, definition: TableDefinition, *, if_not_exists: bool) -> None:
    wanted = schema_of(definition.columns)
    spec = spec_of(definition.partition_spec, wanted)
    same_schema = same_columns(columns_of(table.schema()), columns_of(wanted))
    same_spec = describe_spec(table.spec(), table.schema()) == describe_spec(spec, wanted)
    if if_not_exists and same_schema and same_spec:
        return
    if not if_not_exists:
        how = "exists already"
    else:
        how = f"exists already with another {'partition spec' if same_schema else 'schema'}"
    raise Conflict("TABLE_EXISTS", f"{ident} {how}; nothing was changed", retryable=False)


def _description(ident: str, table: Table) -> TableDescription:
    metadata, schema = table.metadata, table.schema()
    return TableDescription(
        ident=ident,
        table_uuid=str(metadata.table_uuid),
        location=metadata.location,
        format_version=metadata.format_version,
        columns=columns_of(schema),
        partition_spec=describe_spec(table.spec(), schema),
        sort_order=describe_order(table.sort_order(), schema),
        properties=dict(metadata.properties),
        snapshot_id=metadata.current_snapshot_id,
        snapshot_count=len(metadata.snapshots),
        refs=refs_of(metadata),
    )
