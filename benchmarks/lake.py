"""Makes the tables that the benchmarks measure: real Parquet files on a real SQLite catalog, by plain PyIceberg."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

MB = 1024 * 1024
COLUMNS = (
    "i AS id, (i % 1000)::INTEGER AS user_id, md5((i % 5000)::VARCHAR) AS session, "
    "(hash(i) % 100000) / 100.0 AS amount, "
    "CASE i % 4 WHEN 0 THEN 'view' WHEN 1 THEN 'click' WHEN 2 THEN 'cart' ELSE 'purchase' END AS kind, "
    "TIMESTAMP '2025-01-01' + INTERVAL (i) SECOND AS happened_at, i % 7 = 0 AS flag"
)
"""Seven columns of an event stream: a key, skewed ids, text of low entropy, a random amount, a time."""


def open_catalog(home: Path) -> SqlCatalog:
    (home / "warehouse").mkdir(parents=True, exist_ok=True)
    return SqlCatalog("local", uri=f"sqlite:///{home}/catalog.db", warehouse=(home / "warehouse").as_uri())


def write_files(folder: Path, files: int, rows: int, *, start: int = 0, columns: str = COLUMNS) -> list[str]:
    """Write `files` Parquet files of `rows` rows each, one row group, zstd, as a streaming writer leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    named = connection.execute(f"SELECT {columns} FROM range(1) t(i)").description
    ids = ", ".join(f"{name}: {number}" for number, (name, *_) in enumerate(named, start=1))
    paths = []
    for number in range(files):
        path = folder / f"{number:05d}-{uuid.uuid4().hex[:8]}.parquet"
        low = (start + number) * rows
        connection.execute(
            f"COPY (SELECT {columns} FROM range({low}, {low + rows}) t(i)) TO '{path}' (FORMAT parquet, CODEC zstd, "
            f"FIELD_IDS {{{ids}}})"
        )
        paths.append(str(path))
    connection.close()
    return paths


def make_table(home: Path, paths: list[str], *, properties: dict[str, str] | None = None, commits: int = 20) -> Table:
    """Create `bench.events` in a new catalog and add the files in `commits` snapshots."""
    import pyarrow.parquet as pq

    catalog = open_catalog(home)
    catalog.create_namespace_if_not_exists("bench")
    table = catalog.create_table("bench.events", pq.read_schema(paths[0]), properties=properties or {})
    step = max(1, -(-len(paths) // commits))
    for low in range(0, len(paths), step):
        table.add_files([Path(p).as_uri() for p in paths[low : low + step]], check_duplicate_files=False)
    return table


def copy_lake(source: Path, target: Path) -> None:
    """Copy a lake; its metadata names absolute paths, so it must be made at `target` and restored there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def environment(home: Path, **settings: Any) -> dict[str, str]:
    """Return the environment in which the service works on this lake."""
    return {**os.environ, "REGELATE_HOME": str(home), "REGELATE_ENVIRONMENT": "development"}
