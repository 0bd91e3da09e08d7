"""The verbs on tables, over a catalog in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from regelate.core.table.evolution import NO_EVOLUTION, Evolution
from regelate.core.table.schema import Column, TableDefinition, TableDescription
from regelate.errors import Conflict, NotFound
from regelate.operations.tables import (
    CreatedTable,
    alter_table,
    create_table,
    describe_table,
    drop_table,
    list_tables,
)
from regelate.ports.table import TableAdmin

DEFINITION = TableDefinition(columns=(Column(name="id", type="long"),), properties={"a": "1"})
OTHER = TableDefinition(columns=(Column(name="other", type="long"),))


class TablesInMemory(TableAdmin):
    """A catalog that keeps the rules of names: one table per ident, a namespace exists while it has tables."""

    def __init__(self) -> None:
        self.tables: dict[str, TableDescription] = {}
        self.purged: list[str] = []

    def create(self, ident: str, definition: TableDefinition, *, if_not_exists: bool) -> tuple[bool, TableDescription]:
        found = self.tables.get(ident)
        if found is not None:
            if if_not_exists and found.columns == definition.columns:
                return False, found
            raise Conflict("TABLE_EXISTS", ident, retryable=False)
        self.tables[ident] = TableDescription(
            ident=ident,
            table_uuid=f"uuid-{len(self.tables)}",
            location=f"memory://{ident}",
            format_version=2,
            columns=definition.columns,
            partition_spec=(),
            sort_order=(),
            properties=dict(definition.properties),
            snapshot_id=None,
            snapshot_count=0,
            refs=(),
        )
        return True, self.tables[ident]

    def alter(
        self,
        ident: str,
        *,
        set_properties: Mapping[str, str],
        unset_properties: Sequence[str],
        evolution: Evolution = NO_EVOLUTION,
    ) -> tuple[bool, TableDescription]:
        found = self.describe(ident)
        kept = {k: v for k, v in found.properties.items() if k not in unset_properties}
        columns = tuple(c for c in found.columns if c.name not in evolution.drop_columns)
        self.tables[ident] = replace(found, properties={**kept, **set_properties}, columns=columns)
        return self.tables[ident] != found, self.tables[ident]

    def describe(self, ident: str) -> TableDescription:
        if ident not in self.tables:
            raise NotFound("TABLE_NOT_FOUND", ident)
        return self.tables[ident]

    def list_tables(self, namespace: str) -> tuple[str, ...]:
        names = sorted(i.removeprefix(f"{namespace}.") for i in self.tables if i.startswith(f"{namespace}."))
        if not names:
            raise NotFound("TABLE_NOT_FOUND", namespace)
        return tuple(names)

    def drop(self, ident: str, *, purge: bool) -> None:
        self.describe(ident)
        del self.tables[ident]
        self.purged += [ident] if purge else []

    def reachable(self) -> bool:
        return True


@pytest.fixture
def admin() -> TablesInMemory:
    return TablesInMemory()


def test_a_created_table_is_described_listed_and_dropped(admin: TablesInMemory) -> None:
    made = create_table(admin, "n.t", DEFINITION)
    assert made == CreatedTable(created=True, table_uuid="uuid-0", location="memory://n.t")
    assert describe_table(admin, "n.t").columns == DEFINITION.columns
    assert list_tables(admin, "n") == ("t",)
    drop_table(admin, "n.t")
    assert (admin.tables, admin.purged) == ({}, [])


def test_creating_twice_is_a_conflict_unless_it_was_asked_for_and_is_the_same(admin: TablesInMemory) -> None:
    create_table(admin, "n.t", DEFINITION)
    assert create_table(admin, "n.t", DEFINITION, if_not_exists=True).created is False
    for definition, if_not_exists in ((DEFINITION, False), (OTHER, True)):
        with pytest.raises(Conflict, match="TABLE_EXISTS"):
            create_table(admin, "n.t", definition, if_not_exists=if_not_exists)
    assert describe_table(admin, "n.t").columns == DEFINITION.columns


def test_altering_answers_with_the_table_and_says_whether_it_was_so_already(admin: TablesInMemory) -> None:
    create_table(admin, "n.t", DEFINITION)
    assert alter_table(admin, "n.t", set_properties={"b": "2"}).table.properties == {"a": "1", "b": "2"}
    assert alter_table(admin, "n.t", unset_properties=["a"]).table.properties == {"b": "2"}
    without = Evolution(drop_columns=(DEFINITION.columns[0].name,))
    done = [alter_table(admin, "n.t", evolution=without) for _ in range(2)]
    assert [one.changed for one in done] == [True, False]
    assert describe_table(admin, "n.t") == done[0].table
    assert len(done[0].table.columns) == len(DEFINITION.columns) - 1


def test_files_are_deleted_only_when_asked_for(admin: TablesInMemory) -> None:
    for ident in ("n.kept", "n.purged"):
        create_table(admin, ident, DEFINITION)
        drop_table(admin, ident, purge=ident == "n.purged")
    assert admin.purged == ["n.purged"]


def test_an_unknown_table_is_not_found(admin: TablesInMemory) -> None:
    for missing in (
        lambda: describe_table(admin, "n.t"),
        lambda: alter_table(admin, "n.t"),
        lambda: drop_table(admin, "n.t"),
    ):
        with pytest.raises(NotFound, match="TABLE_NOT_FOUND"):
            missing()
