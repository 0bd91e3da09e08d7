"""The embedded catalog is one for both engines, whoever makes it first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from regelate.errors import Unavailable
from regelate.pipeline.sqlite_catalog import prepare
from tests.support.iceberg_tables import make_catalog


def columns(file: Path) -> dict[str, list[str]]:
    with closing(sqlite3.connect(file)) as connection:
        names = ("iceberg_tables", "iceberg_namespace_properties")
        return {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}


def test_the_tables_are_those_that_pyiceberg_makes(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours" / "catalog.db", tmp_path / "theirs"
    prepare(ours)
    make_catalog(theirs).create_tables()
    assert columns(ours) == {**columns(theirs / "catalog.db"), "iceberg_tables": columns(ours)["iceberg_tables"]}
    assert set(columns(ours)["iceberg_tables"]) >= set(columns(theirs / "catalog.db")["iceberg_tables"])


def test_tables_that_are_there_stay_with_their_rows(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path)
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", pa.schema([("id", pa.int64())]))
    for _ in range(2):
        prepare(tmp_path / "catalog.db")
    assert make_catalog(tmp_path).list_tables("ns") == [("ns", "t")]
    assert "iceberg_type" in columns(tmp_path / "catalog.db")["iceberg_tables"]


def test_a_catalog_of_the_older_schema_gets_the_column_that_tells_views_apart(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection, connection:
        connection.execute("CREATE TABLE iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)")
        connection.execute("INSERT INTO iceberg_tables VALUES ('local', 'ns', 't', 'm')")
    prepare(tmp_path / "catalog.db")
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
        rows = connection.execute("SELECT table_name, iceberg_type FROM iceberg_tables").fetchall()
    assert rows == [("t", None)]


def test_a_file_that_is_no_catalog_is_named(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"not a database, but long enough to be read as the head of one" * 20)
    with pytest.raises(Unavailable, match=r"catalog\.db cannot be opened"):
        prepare(tmp_path / "catalog.db")
