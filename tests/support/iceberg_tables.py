"""Real Iceberg tables for tests: plain PyIceberg on a SQLite catalog, nothing of ours in them."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlparse

import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, ManifestContent, ManifestEntry
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table

Rows: TypeAlias = pa.Table | Sequence[Mapping[str, object]] | Sequence[tuple[object, ...]]


def make_catalog(folder: Path, name: str = "default") -> SqlCatalog:
    """Open (or create) the SQLite catalog of `folder`; a second call is a second, independent client of it."""
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(name, uri=f"sqlite:///{folder}/catalog.db", warehouse=warehouse.as_uri())


class NoLedger:
    """Implements Ledger for a client that leaves nothing behind."""

    def record(self, paths: Iterable[str]) -> None: ...
    def keep_alive(self) -> None: ...
    def owe(self) -> None: ...
    def close(self) -> None: ...


def make_table(
    catalog: SqlCatalog,
    ident: str,
    schema: Schema | pa.Schema,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: Mapping[str, str] | None = None,
    format_version: int = 2,
) -> Table:
    """Create table `ident` (`namespace.name`), its namespace too where it is missing."""
    catalog.create_namespace_if_not_exists(ident.rpartition(".")[0])
    wanted = {**(properties or {}), "format-version": str(format_version)}
    return catalog.create_table(ident, schema, partition_spec=spec, properties=wanted)


def arrow_rows(table: Table, rows: Rows) -> pa.Table:
    """Return `rows` as Arrow in the table's schema; tuples are in column order."""
    if isinstance(rows, pa.Table):
        return rows
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    records = [r if isinstance(r, Mapping) else dict(zip(schema.names, r, strict=True)) for r in rows]
    return pa.Table.from_pylist(records, schema=schema)


def append(table: Table, rows: Rows) -> list[str]:
    """Append `rows` in one snapshot and return the paths of the new data files, sorted."""
    before = set(live_data_paths(table))
    table.append(arrow_rows(table, rows))
    return sorted(set(live_data_paths(table)) - before)


def add_data_files(table: Table, files: Sequence[DataFile]) -> None:
    """Append files that lie in the store already, as they are described, in one snapshot."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as producer:
        for file in files:
            producer.append_data_file(file)


def multiply_file(table: Table, path: str, copies: int) -> list[str]:
    """Append `copies` copies of one live data file in one snapshot (many small files, cheaply); return their paths."""
    (file,) = (f for f in live_data_files(table) if f.file_path == path)
    paths = [path.replace(".parquet", f"-{uuid.uuid4().hex}.parquet") for _ in range(copies)]
    for copy in paths:
        shutil.copyfile(local_path(path), local_path(copy))
    add_data_files(table, [changed_file(file, file_path=copy) for copy in paths])
    return paths


def changed_file(file: DataFile, **changes: Any) -> DataFile:
    """Return a manifest's data file with other values."""
    values = {field.name: getattr(file, field.name) for field in DATA_FILE_TYPE[2].fields}
    copy = DataFile.from_args(2, **{**values, **changes})
    copy.spec_id = file.spec_id
    return copy


def rows(table: Table | str, snapshot_id: int | None = None) -> list[tuple[object, ...]]:
    """Return every row as PyIceberg reads it, sorted; a `str` is the location of a metadata.json."""
    opened = StaticTable.from_metadata(table) if isinstance(table, str) else table
    return in_order(_tuples(opened.scan(snapshot_id=snapshot_id).to_arrow()))


def duckdb_rows(table: Table | str, columns: str = "*") -> list[tuple[object, ...]]:
    """Return every row as DuckDB's iceberg_scan reads it, sorted; a `str` is the location of a metadata.json.

    Not an oracle where one partition holds equality deletes and another does not (trap T2).
    """
    location = table if isinstance(table, str) else table.metadata_location
    try:
        scan = _shared_session().cursor().execute(f"SELECT {columns} FROM iceberg_scan(?)", [location])
        return in_order(_tuples(scan.to_arrow_table()))
    except (duckdb.FatalException, duckdb.InternalException):
        _shared_session.cache_clear()  # DuckDB refuses everything after such an error: the next test gets a new one
        raise


def row_texts(found: Iterable[tuple[object, ...]]) -> list[str]:
    """Return rows as sorted texts: equal for the same multiset, with NaN equal to NaN and -0.0 unlike 0.0."""
    return sorted(repr(row) for row in found)


def in_order(found: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Sort rows by value where their values compare, else by text."""
    listed = list(found)
    try:
        return sorted(listed)
    except TypeError:
        return sorted(listed, key=repr)


def live_entries(table: Table, content: ManifestContent = ManifestContent.DATA) -> list[ManifestEntry]:
    """Return the live manifest entries of the head, in manifest order, sequence numbers inherited."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    return [e for m in manifests if m.content == content for e in m.fetch_manifest_entry(table.io)]


def live_data_files(table: Table) -> list[DataFile]:
    return [entry.data_file for entry in live_entries(table)]


def live_data_paths(table: Table) -> list[str]:
    return sorted(file.file_path for file in live_data_files(table))


def live_delete_files(table: Table) -> list[DataFile]:
    return [entry.data_file for entry in live_entries(table, ManifestContent.DELETES)]


def live_delete_paths(table: Table) -> list[str]:
    return sorted(file.file_path for file in live_delete_files(table))


def manifest_paths(table: Table) -> list[str]:
    """Return the paths of the head's manifests, in manifest list order."""
    snapshot = table.current_snapshot()
    return [] if snapshot is None else [m.manifest_path for m in snapshot.manifests(table.io)]


def local_path(location: str | Path) -> Path:
    """Return the file behind a `file://` location, or the path itself."""
    return location if isinstance(location, Path) else Path(unquote(urlparse(location).path))


def stored_files(table: Table) -> set[str]:
    """Return every file under the table's location, relative to it: what a sweep would find."""
    root = local_path(table.location())
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def extension_path(name: str) -> Path:
    """Return the file of a DuckDB extension that came as a wheel (trap T1)."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(f"the wheel duckdb-extension-{name} is not installed")
    (found,) = Path(spec.submodule_search_locations[0]).glob(f"extensions/v*/{name}.duckdb_extension")
    return found


def duckdb_session(**config: str | bool | int) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB with the Iceberg extension from its wheel, and nothing downloaded or cached."""
    wanted: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "enable_external_file_cache": False,
        "threads": 1,
        **config,
    }
    connection = duckdb.connect(config=wanted)
    for name in ("avro", "httpfs", "iceberg"):
        connection.execute(f"LOAD '{extension_path(name)}'")
    return connection


@functools.cache
def _shared_session() -> duckdb.DuckDBPyConnection:
    return duckdb_session()


def _tuples(found: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))
