"""The tables of an SQLite catalog, made before Iceberg looks for them.

Iceberg's JdbcCatalog (1.10) looks for them with a result that it never closes: on SQLite that is a read lock, held as
long as Spark lives, and every commit of another process ends in `database is locked`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from regelate.errors import Unavailable

WAIT_SECONDS = 30.0
"""How long a commit waits for the one writer that SQLite lets in; the service waits as long."""
_KEY = "catalog_name VARCHAR(255) NOT NULL"
_TABLES = (
    f"CREATE TABLE IF NOT EXISTS iceberg_tables ({_KEY}, table_namespace VARCHAR(255) NOT NULL, "
    "table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), "
    "iceberg_type VARCHAR(5), PRIMARY KEY (catalog_name, table_namespace, table_name))",
    f"CREATE TABLE IF NOT EXISTS iceberg_namespace_properties ({_KEY}, namespace VARCHAR(255) NOT NULL, "
    "property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000), "
    "PRIMARY KEY (catalog_name, namespace, property_key))",
)
"""Version 1 of the schema of Iceberg's JDBC catalogs (JdbcUtil, 1.10), which PyIceberg shares."""


def prepare(file: Path) -> None:
    """Make the catalog's file, its folder and its tables where they are missing; what is there stays as it is.

    Errors: Unavailable CATALOG_UNAVAILABLE.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file, timeout=WAIT_SECONDS)) as connection, connection:
            for statement in _TABLES:
                connection.execute(statement)
            columns = {row[1] for row in connection.execute("PRAGMA table_info(iceberg_tables)")}
            if "iceberg_type" not in columns:  # version 0, which knows no views
                connection.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)")
    except (OSError, sqlite3.Error) as fault:
        raise Unavailable("CATALOG_UNAVAILABLE", f"the catalog {file} cannot be opened: {fault}") from fault
