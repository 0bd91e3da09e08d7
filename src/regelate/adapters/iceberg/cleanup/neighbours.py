"""The other tables of a catalog: whether one of them claims this table's files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from regelate.adapters.iceberg.pyiceberg_errors import catalog_faults
from regelate.core.table.names import LOCATION_PROPERTIES
from regelate.core.upkeep.reachability import Place, overlapping
from regelate.errors import NotAllowed, RegelateError

LOADS_AT_ONCE = 8
Identifier = tuple[str, ...]


class Neighbours:
    """Walks a catalog. It loads every table, so ask only when files are about to go.

    Errors: NotAllowed GC_DISABLED, which never names the other table: it may be another tenant's.
    """

    def __init__(self, survey: Callable[[], Catalog]) -> None:
        """`survey` opens the catalog with the right to see every table's metadata."""
        self._survey = survey

    @property
    def _catalog(self) -> Catalog:
        return self._survey()

    def check_no_clone(self, table: Table, spend: Callable[[int], None] = lambda tables: None) -> tuple[str, ...]:
        """Refuse when another table has this table's UUID or location: it reads the same files. Return the
        folders of all others.

        A table whose metadata is damaged or kept from us is passed over: what goes is named in this table's own
        metadata. One that cannot be reached just now may be the twin: then the error says to try again. `spend` is told
        how many tables are about to be loaded, and may refuse.
        """
        mine = table.metadata
        folders: list[str] = []
        for other in self._others(table, spend, skip_unreadable=True):
            if other.table_uuid == mine.table_uuid or Place.of(other.location) == Place.of(mine.location):
                raise _shared("another table of this catalog reads the files of this one (the same location or UUID)")
            folders += folders_of(other)
        return tuple(folders)

    def check_apart(self, table: Table) -> None:
        """Refuse when a folder of another table overlaps with this table's: its files would look like orphans.

        A table that cannot be loaded refuses too: nobody knows where its files lie.
        """
        for other in self._others(table, lambda tables: None, skip_unreadable=False):
            if overlapping(folders_of(table.metadata), folders_of(other)) is not None:
                raise _shared("the folder of another table of this catalog overlaps with this one")

    def _others(self, table: Table, spend: Callable[[int], None], *, skip_unreadable: bool) -> Iterator[TableMetadata]:
        def load(identifier: Identifier) -> TableMetadata | None:
            spend(0)
            try:
                with catalog_faults():
                    try:
                        return self._catalog.load_table(identifier).metadata
                    except NoSuchTableError:
                        return None
            except RegelateError as error:
                if skip_unreadable and not error.retryable:
                    return None
                raise

        with catalog_faults():
            identifiers = [i for i in self._tables(()) if i != table.name()]
        spend(len(identifiers))
        with ThreadPoolExecutor(LOADS_AT_ONCE) as pool:
            yield from (found for found in pool.map(load, identifiers) if found is not None)

    def _tables(self, parent: Identifier) -> Iterator[Identifier]:
        """Yield every table in and below a namespace."""
        try:
            below = self._catalog.list_namespaces(parent)
        except NoSuchNamespaceError:
            return
        for namespace in below:
            if namespace == parent or namespace[: len(parent)] != parent:
                continue
            try:
                yield from self._catalog.list_tables(namespace)
            except NoSuchNamespaceError:  # dropped meanwhile
                continue
            yield from self._tables(namespace)


def folders_of(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the folders that a table's files go to by its location and properties."""
    named = (metadata.properties.get(name) for name in LOCATION_PROPERTIES)
    return (metadata.location, *(folder for folder in named if folder))


def _shared(what: str) -> NotAllowed:
    return NotAllowed("GC_DISABLED", f"{what}: nothing was deleted; give each table a folder of its own first")
