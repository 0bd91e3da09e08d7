"""The other tables of a Spark catalog: whether one of them claims this table's folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regelate.core.table.names import LOCATION_PROPERTIES
from regelate.core.upkeep.reachability import overlapping
from regelate.errors import NotAllowed
from regelate.pipeline.spark_errors import spark_faults
from regelate.pipeline.tables import SparkTable

NESSIE_GC = "on Nessie the files of other branches are unknown here: use Nessie's own tool, nessie-gc"


def check_deletable(table: SparkTable) -> None:
    """Refuse where files of this table may belong to somebody else too. It loads every table of the catalog.

    Errors: NotAllowed GC_DISABLED, for `gc.enabled=false` and for a folder that overlaps with another table's.
    """
    if table.properties.get("gc.enabled", "true").lower() != "true":
        raise NotAllowed(
            "GC_DISABLED", f"gc.enabled=false: this table's files must not be deleted from here; {NESSIE_GC}"
        )
    mine = _folders(table.metadata["location"], table.properties)
    with spark_faults(str(table.name)):
        for location, properties in _others(table):
            if overlapping(mine, _folders(location, properties)) is not None:
                raise NotAllowed(
                    "GC_DISABLED",
                    "the folder of another table of this catalog overlaps with this one: nothing was deleted; "
                    "give each table a folder of its own first",
                )


def _folders(location: str, properties: Any) -> tuple[str, ...]:
    named = (properties.get(name) for name in LOCATION_PROPERTIES)
    return (location, *(str(folder) for folder in named if folder))


def _others(table: SparkTable) -> Iterator[tuple[str, Any]]:
    """Yield (location, properties) of every other table, namespace by namespace."""
    jvm: Any = table.spark._jvm
    catalog = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(table.spark._jsparkSession, table.name.catalog)
    empty = jvm.org.apache.iceberg.catalog.Namespace.empty()
    waiting, seen = list(catalog.listNamespaces(empty)), set()
    while waiting:
        namespace = waiting.pop()
        if str(namespace) in seen:
            continue
        seen.add(str(namespace))
        for identifier in catalog.listTables(namespace):
            levels = (*identifier.namespace().levels(), identifier.name())
            if levels != (*table.name.namespace, table.name.table):
                other = catalog.loadTable(identifier)
                yield str(other.location()), other.properties()
        waiting += list(catalog.listNamespaces(namespace))
