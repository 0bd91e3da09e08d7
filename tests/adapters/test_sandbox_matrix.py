"""The sandbox of QUERY, probe by probe, against the settings that one might think are enough.

Two tables of two tenants on S3 (moto), credentials that may read both: what is refused here, the engine or the guard
refuses. Columns are ways to close a session; the last one is ours: the guard before it, `lock` around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from regelate.adapters.duckdb.guard import guard
from regelate.adapters.duckdb.sandbox import lock
from regelate.adapters.duckdb.session import open_session
from regelate.errors import InvalidRequest
from tests.servers.moto_aws import KEYS, REGION, aws_server, client

BUCKET = "lake"
MEGABYTE = 1024 * 1024
OPEN, OFF, FOLDER, FILES, REMOTE, OURS = COLUMNS = (
    "nothing set",
    "external access off, locked",
    "allowed_directories, external access off, locked",
    "allowed_paths, external access off, locked",
    "the local file system disabled, locked",
    "as QUERY does: guard, then allowed_paths, external access off, locked",
)
SHUT = {OFF, FOLDER, FILES, REMOTE, OURS}
NOWHERE: set[str] = set()
MATRIX: Mapping[str, tuple[str, set[str]]] = {
    "read the table by its view": ("SELECT count(*) FROM t", {OPEN, FOLDER, FILES, REMOTE, OURS}),
    "iceberg_scan of the table": ("SELECT count(*) FROM iceberg_scan('{metadata}')", {OPEN, FOLDER, FILES, REMOTE}),
    "iceberg_scan of another table": ("SELECT count(*) FROM iceberg_scan('{other_metadata}')", {OPEN, REMOTE}),
    "Parquet of another table": ("SELECT count(*) FROM read_parquet('{other_data}')", {OPEN, REMOTE}),
    "a local CSV": ("SELECT * FROM read_csv('{local}/a.csv')", {OPEN}),
    "read_text of a local file": ("SELECT * FROM read_text('{local}/a.csv')", {OPEN}),
    "a local file around a corner": ("SELECT * FROM read_text('{local}/b/../a.csv')", {OPEN}),
    "a glob of local files": ("SELECT * FROM glob('{local}/*')", {OPEN}),
    "a glob of the bucket": ("SELECT * FROM glob('s3://lake/**')", {OPEN, REMOTE}),
    "a read over HTTP": ("SELECT * FROM read_text('{endpoint}/lake/public.txt')", {OPEN, REMOTE}),
    "ATTACH of a file": ("ATTACH '{local}/new.db'", {OPEN}),
    "INSTALL": ("INSTALL spatial", NOWHERE),
    "LOAD by a path": ("LOAD '{local}/x.duckdb_extension'", NOWHERE),
    "EXPORT DATABASE": ("EXPORT DATABASE '{local}/exported'", {OPEN}),
    "SET": ("SET memory_limit = '1GB'", {OPEN}),
    "SET of allowed_directories": ("SET allowed_directories = ['s3://lake/']", {OPEN}),
    "RESET": ("RESET memory_limit", {OPEN}),
    "PRAGMA": ("PRAGMA memory_limit = '1GB'", {OPEN}),
    "COPY to a new file beside the data": ("COPY (SELECT 1 AS id) TO '{folder}/new.parquet'", {OPEN, FOLDER, REMOTE}),
    "COPY over the table's own file": ("COPY (SELECT 1 AS id) TO '{data}'", {OPEN, FOLDER, FILES, REMOTE}),
    "a Python variable as a table": ("SELECT * FROM python_variable", {OPEN}),
    "CREATE SECRET": ("CREATE SECRET more (TYPE s3, KEY_ID 'a', SECRET 'b')", {OPEN, OFF, FOLDER, FILES, REMOTE}),
    "DROP SECRET": ("DROP SECRET store", {OPEN, OFF, FOLDER, FILES, REMOTE}),
    "ATTACH ':memory:'": ("ATTACH ':memory:' AS more", {OPEN, OFF, FOLDER, FILES, REMOTE}),
    "CREATE TABLE": ("CREATE TABLE more AS SELECT 1", {OPEN, OFF, FOLDER, FILES, REMOTE}),
    "CREATE MACRO": ("CREATE MACRO more(a) AS a", {OPEN, OFF, FOLDER, FILES, REMOTE}),
    "DROP VIEW": ("DROP VIEW t", {OPEN, OFF, FOLDER, FILES, REMOTE}),
    "duckdb_secrets()": ("SELECT secret_string FROM duckdb_secrets()", {OPEN, OFF, FOLDER, FILES, REMOTE}),
    "duckdb_secrets(redact = false)": ("SELECT * FROM duckdb_secrets(redact = false)", NOWHERE),
    "duckdb_settings()": ("SELECT * FROM duckdb_settings()", {OPEN, OFF, FOLDER, FILES, REMOTE}),
    "getenv": ("SELECT getenv('HOME')", NOWHERE),
}
"""Probe -> its SQL, and the columns where it does what it wants."""


@dataclass(frozen=True, kw_only=True)
class Lake:
    endpoint: str
    mine: Table
    theirs: Table

    def files(self, table: Table) -> list[str]:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        manifests = snapshot.manifests(table.io)
        data = [e.data_file.file_path for m in manifests for e in m.fetch_manifest_entry(table.io)]
        return [*data, table.metadata_location, snapshot.manifest_list, *(m.manifest_path for m in manifests)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with aws_server() as endpoint:
        client("s3", endpoint).create_bucket(Bucket=BUCKET, ACL="public-read")
        client("s3", endpoint).put_object(Bucket=BUCKET, Key="public.txt", Body=b"x", ACL="public-read")
        keys = {"s3.access-key-id": KEYS["aws_access_key_id"], "s3.secret-access-key": KEYS["aws_secret_access_key"]}
        catalog = SqlCatalog(
            "c",
            uri=f"sqlite:///{tmp_path_factory.mktemp('catalog')}/c.db",
            warehouse=f"s3://{BUCKET}/w",
            **{"s3.endpoint": endpoint, "s3.region": REGION, **keys},
        )
        tables = []
        for namespace in ("acme__sales", "other__sales"):
            catalog.create_namespace(namespace)
            table = catalog.create_table(f"{namespace}.orders", Schema(NestedField(1, "id", LongType())))
            table.append(pa.table({"id": [1, 2, 3]}))
            tables.append(table)
        yield Lake(endpoint=endpoint, mine=tables[0], theirs=tables[1])


def session(lake: Lake, folder: Path, column: str) -> duckdb.DuckDBPyConnection:
    """Open a session as QUERY does, with a secret for the whole bucket and the view, and close it in this way."""
    connection = open_session(memory_bytes=128 * MEGABYTE, threads=1, folder=folder)
    connection.execute(
        f"CREATE TEMPORARY SECRET store (TYPE s3, PROVIDER config, KEY_ID '{KEYS['aws_access_key_id']}', "
        f"SECRET '{KEYS['aws_secret_access_key']}', REGION '{REGION}', URL_STYLE 'path', USE_SSL false, "
        f"ENDPOINT '{lake.endpoint.removeprefix('http://')}', SCOPE 's3://{BUCKET}')"
    )
    connection.execute(f"CREATE VIEW t AS SELECT * FROM iceberg_scan('{lake.mine.metadata_location}')")
    if column in (FILES, OURS):
        lock(connection, lake.files(lake.mine))
        return connection
    if column == FOLDER:
        connection.execute(f"SET allowed_directories = ['{lake.mine.location()}/']")
    if column == REMOTE:
        connection.execute("SET disabled_filesystems = 'LocalFileSystem'")
    if column in (OFF, FOLDER):
        connection.execute("SET enable_external_access = false")
    if column != OPEN:
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET lock_configuration = true")
    return connection


def succeeds(connection: duckdb.DuckDBPyConnection, column: str, text: str) -> tuple[bool, list[Any]]:
    python_variable = pa.table({"a": [1]})
    try:
        if column == OURS:
            guard(text, {"t", "orders"})
        return True, connection.execute(text).fetchall()
    except (duckdb.Error, InvalidRequest):
        return False, []
    finally:
        del python_variable


@pytest.mark.parametrize("probe", MATRIX)
def test_the_probe_succeeds_where_the_matrix_says_so_and_nowhere_else(lake: Lake, tmp_path: Path, probe: str) -> None:
    text, expected = MATRIX[probe]
    (data, *_), (other_data, *_) = lake.files(lake.mine), lake.files(lake.theirs)
    s3, key = client("s3", lake.endpoint), data.removeprefix(f"s3://{BUCKET}/")
    before = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    found, overwritten = set(), set()
    for number, column in enumerate(COLUMNS):
        local = tmp_path / f"local{number}"
        (local / "b").mkdir(parents=True)
        (local / "a.csv").write_text("a\n1\n")
        names = {
            "metadata": lake.mine.metadata_location,
            "other_metadata": lake.theirs.metadata_location,
            "data": data,
            "folder": data.rpartition("/")[0],
            "other_data": other_data,
            "local": str(local),
            "endpoint": lake.endpoint,
        }
        with session(lake, tmp_path / f"session{number}", column) as connection:
            done, rows = succeeds(connection, column, text.format(**names))
        if done:
            found.add(column)
            assert KEYS["aws_secret_access_key"] not in str(rows)
        if s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() != before:
            overwritten.add(column)
            s3.put_object(Bucket=BUCKET, Key=key, Body=before)
        if column == OURS:
            assert sorted(path.name for path in local.rglob("*")) == ["a.csv", "b"]
    assert found == expected
    assert overwritten == (expected if "over the table's own file" in probe else set())


def test_the_only_probe_that_passes_a_query_is_the_table_itself() -> None:
    assert [probe for probe, (_, where) in MATRIX.items() if OURS in where] == ["read the table by its view"]


def test_no_way_to_close_a_session_is_enough_without_the_guard() -> None:
    for column in (OFF, FOLDER, FILES, REMOTE):
        assert any(column in where for probe, (_, where) in MATRIX.items() if probe != "read the table by its view")
