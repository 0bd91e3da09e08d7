"""The name of a table as people write it for Spark, `catalog.namespace.table`, and as SQL quotes it."""

from __future__ import annotations

import re

from regelate.core.table.names import SEPARATOR, check_namespace, check_table
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

_CATALOG = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table of a catalog that the Spark session knows."""

    catalog: str
    namespace: tuple[str, ...]
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read `catalog.namespace.table`, also `catalog.a.b.table`. Errors: InvalidRequest INVALID_IDENTIFIER."""
        catalog, _, rest = text.partition(SEPARATOR)
        namespace, _, table = rest.rpartition(SEPARATOR)
        if not namespace or not _CATALOG.fullmatch(catalog):
            raise InvalidRequest(
                "INVALID_IDENTIFIER", f"{text[:_SHOWN_CHARACTERS]!a} is not CATALOG.NAMESPACE.TABLE", field="table"
            )
        check_namespace(namespace, strict=False)
        check_table(table, strict=False)
        return cls(catalog=catalog, namespace=tuple(namespace.split(SEPARATOR)), table=table)

    @property
    def sql(self) -> str:
        """The name as SQL reads it: nothing in it can end the quotes."""
        return quoted(self.catalog, *self.namespace, self.table)

    @property
    def within_catalog(self) -> str:
        """The quoted name without the catalog, as procedures take it."""
        return quoted(*self.namespace, self.table)

    def metadata_table(self, name: str) -> str:
        """Return the quoted name of one of the table's metadata tables, such as `entries`."""
        return f"{self.sql}.{name}"

    def __str__(self) -> str:
        return SEPARATOR.join((self.catalog, *self.namespace, self.table))


def quoted(*parts: str) -> str:
    """Return a dotted name with each part in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)
