"""Looks at the files of a group before they are read: what is not what the manifests say is refused by name.

Files on this machine only, where a look costs microseconds. Of a remote file DuckDB takes the manifest's word for its
size, so it does not find the footer of a file that is longer or shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

import duckdb

from regelate.adapters.duckdb.sql import file_name
from regelate.core.planning.splicing import StoredColumn
from regelate.core.table.storage import is_remote
from regelate.core.table.table import FileScanTask
from regelate.errors import DataUnavailable
from regelate.ports.engine import DamageCheck


def wrong_size(tasks: Sequence[FileScanTask]) -> DataUnavailable | None:
    """Return the fault of the first file that is missing or of another size than its manifest says, if any."""
    for path, expected, code in _files(tasks):
        local = local_file(path)
        if local is None:
            continue
        try:
            size = local.stat().st_size
        except FileNotFoundError:
            missing = "DATA_FILE_MISSING" if code == "DATA_FILE_CORRUPT" else code
            return DataUnavailable(missing, f"{path} is missing", path=path)
        except OSError:
            continue  # the reader says why
        if size != expected:
            return DataUnavailable(
                code,
                f"{path} has {size} bytes where its manifest says {expected}",
                path=path,
                size_bytes=size,
                expected=expected,
            )
    return None


Connect = Callable[[], duckdb.DuckDBPyConnection]


def check_checksums(damaged: DamageCheck, connect: Connect, tasks: Sequence[FileScanTask]) -> None:
    """Raise the fault of the first local file with a page that fails its own checksum, if any.

    `connect` hands out a cursor; only a file that has checksums needs one.
    """
    for path, _, code in _files(tasks):
        local = local_file(path)
        if local is not None and local.exists():
            with local.open("rb") as source:
                _check(damaged, connect, source, path, code)


def check_remote(
    damaged: DamageCheck, connect: Connect, tasks: Sequence[FileScanTask], open_file: Callable[[str], BinaryIO]
) -> None:
    """Do the same for the files that are not on this machine, by reading them from their store once more."""
    for path, _, code in _files(tasks):
        if local_file(path) is None:
            with open_file(path) as source:
                _check(damaged, connect, source, path, code)


def _check(damaged: DamageCheck, connect: Connect, source: BinaryIO, path: str, code: str) -> None:
    try:
        column = damaged(source, lambda: stored_columns(connect(), path))
    except duckdb.Error:  # a footer that nobody can read: the rewrite says so
        return
    if column is not None:
        raise DataUnavailable(code, f"{path}: a page of column {column} fails its checksum", path=path, column=column)


def stored_columns(cursor: duckdb.DuckDBPyConnection, path: str) -> tuple[StoredColumn, ...]:
    """Read a file's footer. By DuckDB: PyArrow's accessors end the process on a garbled one (trap T31: a garbled footer
    ends the process), and the codec of adapters/parquet refuses what DuckDB would read all the same.

    Errors: duckdb.Error.
    """
    rows = cursor.execute(
        "SELECT path_in_schema, dictionary_page_offset, data_page_offset, total_compressed_size "
        f"FROM parquet_metadata({file_name(path)}) ORDER BY row_group_id, column_id"
    ).fetchall()
    return tuple(
        StoredColumn(name=str(column).replace(", ", "."), start=min(dictionary or data, data), size=size)
        for column, dictionary, data, size in rows
    )


def _files(tasks: Sequence[FileScanTask]) -> Iterator[tuple[str, int, str]]:
    """Yield every file of the tasks once: path, size by its manifest, and the code of its damage."""
    deletes = {d.path: d.size_bytes for t in tasks for d in t.deletes}
    yield from ((path, size, "DELETE_FILE_CORRUPT") for path, size in deletes.items())
    yield from ((t.data_file.path, t.data_file.size_bytes, "DATA_FILE_CORRUPT") for t in tasks)


def local_file(path: str) -> Path | None:
    """Return the file on this machine that a location names; None when it is an object store's, or nobody's."""
    if path.startswith("file:"):
        plain = Path("/" + path.removeprefix("file:").lstrip("/"))
        return plain if plain.exists() else Path(unquote(str(plain)))
    return None if is_remote(path) else Path(path)
