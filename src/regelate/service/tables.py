"""Tables as names: create, alter, describe, list, drop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from regelate.core.access import Access
from regelate.core.answers import (
    AlterTableAnswer,
    CreateTableAnswer,
    DescribeTableAnswer,
    DropTableAnswer,
    ListNamespacesAnswer,
    ListTablesAnswer,
)
from regelate.core.table.evolution import NO_EVOLUTION, Evolution
from regelate.core.table.schema import TableDefinition
from regelate.operations import answers
from regelate.service.access import CatalogAccess
from regelate.service.knobs import Knobs
from regelate.tenancy import Address, Scope, Tenancy

if TYPE_CHECKING:
    from regelate.adapters.iceberg.admin import IcebergAdmin


class Tables:
    """The verbs on tables as names. `defaults` are the properties of a new table, unless its request names them."""

    def __init__(self, access: CatalogAccess, tenancy: Tenancy, knobs: Knobs, defaults: Mapping[str, str]) -> None:
        self._access = access
        self._tenancy = tenancy
        self._knobs = knobs
        self._defaults = defaults

    def create_table(self, address: Address, definition: TableDefinition, *, if_not_exists: bool) -> CreateTableAnswer:
        from regelate.operations.tables import create_table

        self._tenancy.check_locations(address, definition.properties)
        made = create_table(self._admin(address), address.ident, definition, if_not_exists=if_not_exists)
        return CreateTableAnswer(created=made.created, table_uuid=made.table_uuid, location=made.location)

    def alter_table(
        self,
        address: Address,
        *,
        set_properties: Mapping[str, str],
        unset_properties: Sequence[str],
        evolution: Evolution = NO_EVOLUTION,
    ) -> AlterTableAnswer:
        from regelate.operations.tables import alter_table

        self._tenancy.check_locations(address, set_properties)
        done = alter_table(
            self._admin(address),
            address.ident,
            set_properties=set_properties,
            unset_properties=unset_properties,
            evolution=evolution,
        )
        return answers.altered(answers.described(done.table), changed=done.changed)

    def describe_table(self, address: Address) -> DescribeTableAnswer:
        from regelate.operations.tables import describe_table

        return answers.described(describe_table(self._admin(address, Access.READ), address.ident))

    def list_namespaces(self, scope: Scope) -> ListNamespacesAnswer:
        """List the namespaces of a scope. Which there are in a catalog, only who may see all of it can be told."""
        from regelate.adapters.iceberg.admin import IcebergAdmin
        from regelate.operations.tables import list_namespaces

        fleet = IcebergAdmin(self._access.survey(scope.catalog), defaults={})
        found = list_namespaces(fleet, scope.holds)
        return ListNamespacesAnswer(namespaces=tuple(sorted(scope.asked_as(name) for name in found)))

    def list_tables(self, address: Address) -> ListTablesAnswer:
        from regelate.operations.tables import list_tables

        return ListTablesAnswer(tables=tuple(list_tables(self._admin(address, Access.READ), address.ident)))

    def drop_table(self, address: Address, *, purge: bool) -> DropTableAnswer:
        from regelate.operations.tables import drop_table

        drop_table(self._admin(address), address.ident, purge=purge)
        return DropTableAnswer(dropped=True)

    def _admin(self, address: Address, access: Access = Access.WRITE) -> IcebergAdmin:
        from regelate.adapters.iceberg.admin import IcebergAdmin

        return IcebergAdmin(
            self._access.of(address, access),
            defaults=self._defaults,
            survey=lambda: self._access.survey(address.catalog),
            judge=self._knobs.refuse_clashes,
        )
