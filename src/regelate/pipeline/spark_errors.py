"""What Spark and Iceberg throw -> errors by what the caller should do next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from regelate.errors import (
    CommitStateUnknown,
    Conflict,
    DataUnavailable,
    InvalidRequest,
    NotFound,
    RegelateError,
    Unavailable,
    Unsupported,
)

MAX_TEXT_CHARACTERS = 600
_UNREADABLE = {"NotFoundException", "IllegalArgumentException", "RuntimeIOException", "UncheckedIOException"}
_UNREADABLE |= {"JsonParseException", "JsonEOFException", "NullPointerException"}
_NEWER = re.compile(
    r"Unsupported type: |Cannot convert unknown type|Cannot parse type string|unknown transforms|"
    r"Cannot read unsupported version|multi-argument transform",
    re.IGNORECASE,
)
"""What Iceberg says of a table that a later version wrote, or that Spark has no types for."""
_NO_JAR = (
    "the catalog of {} cannot be opened, {} is not on Spark's class path: give spark-submit Iceberg's jar, "
    "by --packages or, on EMR, by --conf spark.jars=/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"
)
_NO_FILE_IO = (
    "the catalog of {} keeps its tables where only a FileIO can read that is not on Spark's class path ({}): for S3 "
    "bring Iceberg's AWS bundle, by --catalog-property io-impl=org.apache.iceberg.aws.s3.S3FileIO, "
    "or with spark-submit's jars"
)
_PLAN = ";\n'"
"""Begins the plan that Spark prints after the message of an AnalysisException; it names nothing of the caller's."""


@contextmanager
def spark_faults(
    table: str,
    *,
    where: str | None = None,
    query: str | None = None,
    opening: bool = False,
    loading: bool = False,
) -> Iterator[None]:
    """Turn a Java exception into one of our kinds; what is none passes through.

    `where`, `query`: a text of a caller's, where nothing but it can be at fault. `opening`: of the catalog; `loading`:
    of the table's metadata.
    """
    from pyspark.errors.exceptions import captured

    java: Any = captured.Py4JJavaError
    try:
        yield
    except (captured.CapturedException, java) as fault:
        chain = causes(fault)
        if opening:
            raise error_of_opening(chain, table) from fault
        if query is not None:
            message = f"query {query[:200]!a} cannot be run as a query ({_told(chain)})"
            raise InvalidRequest("INVALID_FIELD", message, field="query") from fault
        raise error_of(chain, table, where, loading=loading) from fault


def causes(fault: BaseException) -> list[tuple[str, str]]:
    """Return (class, message) of a Java exception and its causes, outermost first."""
    java: Any = getattr(fault, "java_exception", None) or getattr(fault, "_origin", None)
    found: list[tuple[str, str]] = []
    while java is not None and len(found) < 20:
        found.append((java.getClass().getName(), str(java.getMessage())))
        java = java.getCause()
    return found or [(type(fault).__name__, str(fault))]


def error_of_opening(chain: list[tuple[str, str]], table: str) -> Unavailable:
    """Return what it comes to that a catalog cannot be opened: without Iceberg's jar no later try will help."""
    if any(name.endswith("ClassNotFoundException") for name, _ in chain):
        return Unavailable("SPARK_UNAVAILABLE", _NO_JAR.format(table, _told(chain)), retryable=False)
    if "NoClassDefFoundError" in _told(chain):
        return Unavailable("SPARK_UNAVAILABLE", _NO_FILE_IO.format(table, _told(chain)), retryable=False)
    return Unavailable("CATALOG_UNAVAILABLE", f"the catalog of {table} cannot be opened: {_told(chain)}")


def error_of(chain: list[tuple[str, str]], table: str, where: str | None, *, loading: bool) -> RegelateError:
    """Return what a chain of Java's causes comes to for a caller. `where`, `loading`: as above."""
    if where is not None:
        rule = "is no filter on this table's columns that Iceberg can judge files by"
        return InvalidRequest("INVALID_FIELD", f"where {where[:200]!a} {rule} ({_told(chain)})", field="where")
    names = {name.rpartition(".")[2] for name, _ in chain}
    text = _told(chain)
    if names & {"NoSuchTableException", "NoSuchNamespaceException"} or "TABLE_OR_VIEW_NOT_FOUND" in text:
        return NotFound(
            "TABLE_NOT_FOUND", f"{table} is not in the catalog; check the spelling, and the catalog's flags"
        )
    if _NEWER.search(text):
        return unsupported(table, text)
    if "CommitStateUnknownException" in names:
        return CommitStateUnknown("COMMIT_STATE_UNKNOWN", f"the commit may have landed; look at {table}: {text}")
    if names & {"CommitFailedException", "ValidationException"}:
        return Conflict("COMMIT_CONFLICT", f"another writer changed {table} meanwhile, nothing was rewritten: {text}")
    if loading and names & _UNREADABLE:
        return DataUnavailable("METADATA_CORRUPT", f"the metadata of {table} cannot be read: {text}; restore the file")
    if names & {"NotFoundException", "FileNotFoundException"}:
        return DataUnavailable("DATA_FILE_MISSING", f"a file of {table} is missing: {text}")
    if "BadRecordException" in names or "MALFORMED_RECORD" in text:
        return DataUnavailable("DATA_FILE_CORRUPT", f"a record of the input cannot be read: {text}")
    if chain[0][0].endswith("IllegalArgumentException"):
        return InvalidRequest("INVALID_OPTION", text, option="option")
    return Unavailable("SPARK_FAILED", f"Spark failed: {text}", status=502)


def unsupported(table: str, what: str) -> Unsupported:
    return Unsupported("UNSUPPORTED_TABLE", f"{table} cannot be maintained by this Spark: {what}", reason=what)


def _told(chain: list[tuple[str, str]]) -> str:
    """Return the innermost message that says something, on one line and cut."""
    said = [message.partition(_PLAN)[0] for _, message in chain if message not in ("", "null", "None")]
    line = " ".join((said[-1] if said else chain[-1][0]).split())
    return line if len(line) <= MAX_TEXT_CHARACTERS else f"{line[:MAX_TEXT_CHARACTERS]}..."
