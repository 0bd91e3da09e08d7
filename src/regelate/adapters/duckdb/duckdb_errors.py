"""Names what DuckDB's errors mean for the caller while reading a group."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import duckdb

from regelate.adapters.duckdb.question import ScanPaths
from regelate.adapters.duckdb.session import exhausted
from regelate.adapters.duckdb.sql import file_name
from regelate.core.table.table import FileScanTask
from regelate.errors import DataUnavailable, InvariantViolated, RegelateError, Unavailable, Unsupported

OUR_OWN = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.ConstraintException,
    duckdb.FatalException,
)
"""What SQL of ours can get wrong; a fatal error only says that the session died before. A damaged file can raise
anything else: its Thrift reader has no exception class of its own."""


def reading_fault(error: duckdb.Error, scanned: ScanPaths) -> RegelateError:
    """Return the fault behind a failed read of these files: resources, storage, a missing or corrupt file, or a bug."""
    ran_out = exhausted(error)
    if ran_out is not None:
        return ran_out
    text = str(error)
    first_line = text.splitlines()[0][:300] if text else type(error).__name__
    what = not_ours_to_read(text)
    if what is not None:
        return _unsupported(what, text, scanned)
    if isinstance(error, OUR_OWN):
        return InvariantViolated("ENGINE_FAULT", f"the rewrite failed in the engine: {first_line}")
    refused = _refused(error, first_line)
    if refused is not None:
        return refused
    data = next((path for path in scanned.data if _names(text, path)), None)
    delete = next((path for path in scanned.deletes if _names(text, path)), None)
    if delete is not None:
        return DataUnavailable("DELETE_FILE_CORRUPT", f"cannot read {delete}: {first_line}", path=delete)
    if isinstance(error, duckdb.IOException) and any(sign in text for sign in _MISSING):
        return DataUnavailable("DATA_FILE_MISSING", f"{data or 'an input file'} is missing: {first_line}", path=data)
    return DataUnavailable("DATA_FILE_CORRUPT", f"cannot read {data or 'an input'}: {first_line}", path=data)


_NOT_READ = (
    (re.compile(r'Unsupported compression codec "?([\w()-]+)'), "pages compressed with {}"),
    (re.compile(r"Unsupported (?:page )?encoding:? ?(\w*)"), "pages of an encoding that is not known here {}"),
    (re.compile(r"Invalid string encoding found in Parquet file"), "a string that is not UTF-8"),
    (
        re.compile(r'failed to cast column "\w+" from type (.{1,80}?):'),
        "values that do not fit into their columns ({})",
    ),
    (re.compile(r"Source value \S+ not found"), "a list or a map whose groups have other names than Parquet's"),
    (re.compile(r"requires two children"), "a map of another form than Parquet's"),
    (re.compile(r"Not implemented Error: .*parquet", re.IGNORECASE), "Parquet of a kind that is not known here"),
)
"""What the engine says of files that are sound, as far as it can tell, and that it cannot read."""


def not_ours_to_read(text: str) -> str | None:
    """Say what a file holds that only other readers take; None where an error says something else."""
    for pattern, what in _NOT_READ:
        found = pattern.search(text)
        if found is not None:
            return what.format(*found.groups()).rstrip()
    return None


def _unsupported(what: str, text: str, scanned: ScanPaths) -> Unsupported:
    data = next((path for path in scanned.data if _names(text, path)), None)
    delete = next((path for path in scanned.deletes if _names(text, path)), None)
    if delete is not None:
        told = f"the delete file {delete} has {what}; use Spark for it (rewrite_data_files compacts it)"
        return Unsupported("UNSUPPORTED_DELETES", told, path=delete)
    which = "a data file" if data is None else f"a data file ({data})"
    reason = f"{which} with {what}"
    return Unsupported(
        "UNSUPPORTED_TABLE",
        f"this table holds {reason}; use Spark for it (rewrite_data_files compacts it)",
        reason=reason,
    )


REFUSALS = (400, 401, 403)
"""S3 says 400 to an expired token and to the wrong region."""
_STATUS = re.compile(r"\(HTTP (\d{3})\b")
_BROKEN_OFF = re.compile(r" error for HTTP (GET|HEAD|POST) to ")
"""What the engine says after its last try of a request that got no answer."""
_CONTRADICTIONS = ("Content-Length from server mismatches", "ETag on reading file")
_MISSING = ("No such file", "No files found", "404")


def _refused(error: duckdb.Error, text: str) -> RegelateError | None:
    """Name a store that refuses or fails, which says nothing about the file."""
    told = _STATUS.search(text)
    status = getattr(error, "status_code", 0) or (int(told[1]) if told else 0)
    if status in REFUSALS or "Permission denied" in text:
        return Unavailable("STORAGE_AUTH", f"the storage refused access: {text}", status=502, retryable=False)
    if status >= 500 or status == 429 or _BROKEN_OFF.search(text):
        return Unavailable("STORAGE_UNAVAILABLE", f"the storage failed: {text}")
    if any(sign in text for sign in _CONTRADICTIONS):
        return Unavailable("STORAGE_INCONSISTENT", f"the storage contradicts itself: {text}", status=502)
    return None


def located(
    fault: RegelateError, connect: Callable[[], duckdb.DuckDBPyConnection], scanned: ScanPaths
) -> RegelateError:
    """Find the file of a corruption whose message names none, by reading the inputs one by one."""
    if not isinstance(fault, DataUnavailable) or fault.details.get("path") is not None:
        return fault
    connection = connect()
    deletes = dict.fromkeys(scanned.deletes, "DELETE_FILE_CORRUPT")
    for path, code in {**deletes, **dict.fromkeys(scanned.data, fault.code)}.items():
        try:
            connection.execute(f"SELECT max(hash(COLUMNS(*))) FROM read_parquet({file_name(path)})").fetchall()
        except duckdb.InterruptException:
            return fault
        except duckdb.Error as error:
            return exhausted(error) or DataUnavailable(code, f"{path}: {fault.message}", path=path)
    return fault


def miscounted(connection: duckdb.DuckDBPyConnection, tasks: Sequence[FileScanTask]) -> DataUnavailable | None:
    """Return the fault of the first data file whose footer has another number of rows than its manifest, if any."""
    for task in tasks:
        path, expected = task.data_file.path, task.data_file.record_count
        found = connection.execute(f"SELECT num_rows FROM parquet_file_metadata({file_name(path)})").fetchone()
        if found is not None and found[0] != expected:
            return DataUnavailable(
                "DATA_FILE_SUSPECT",
                f"{path} holds {found[0]} rows where its manifest says {expected}",
                path=path,
                rows=found[0],
                expected=expected,
            )
    return None


def _names(text: str, path: str) -> bool:
    return path in text or path.removeprefix("file://") in text
