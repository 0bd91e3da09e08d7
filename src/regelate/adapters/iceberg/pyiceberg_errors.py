"""What catalogs and their storage raise, as the kinds of `regelate.errors`."""

from __future__ import annotations

import errno
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pydantic
from pyiceberg import exceptions as native

from regelate.core.table.schema import MAX_DEPTH
from regelate.errors import (
    CommitStateUnknown,
    Conflict,
    DataUnavailable,
    InvalidRequest,
    NotFound,
    RegelateError,
    ResourceExhausted,
    Unavailable,
    Unsupported,
)

SHOWN_CHARACTERS = 300
_MISSING = (
    native.NoSuchTableError,
    native.NoSuchIdentifierError,
    native.NoSuchViewError,
)
_AUTH = (
    native.UnauthorizedError,
    native.ForbiddenError,
    native.AuthorizationExpiredError,
    native.OAuthError,
    native.SignError,
)
_UNREADABLE_METADATA = (
    FileNotFoundError,
    pydantic.ValidationError,
    native.ValidationError,
    UnicodeDecodeError,
    EOFError,
    zlib.error,
)
_REFUSED_CREDENTIALS = ("CATALOG_AUTH", "STORAGE_AUTH")
_TRY_AGAIN = (408, 409, 412, 421, 423, 425, 429, 499)
"""Statuses below 500 that speak of this moment, not of the request."""
_METADATA = ("metadata",)
"""Where a REST catalog's answer holds a table's metadata."""
_REMOTE_LIBRARIES = ("sqlalchemy", "requests", "urllib3", "botocore", "sqlite3")
"""By name: a catalog's client is imported only where that catalog is configured."""
_DENIED = re.compile(r"access.?denied|forbidden|invalid.?access.?key|signature.?does.?not.?match|expired.?token", re.I)
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@|(?i:(?<=password=)|(?<=secret=)|(?<=token=))[^&\s]+")


@contextmanager
def catalog_faults() -> Iterator[None]:
    """Turn what a catalog call raises into our errors; what is no fault of catalog or storage passes unchanged."""
    try:
        yield
    except Exception as error:
        known = translate(error)
        if known is None or known is error:
            raise
        raise known from error


@contextmanager
def storage_faults() -> Iterator[None]:
    """Turn what reading or writing files raises into our errors; a missing file or folder is a fault of the storage."""
    try:
        yield
    except OSError as error:
        raise storage_fault(error) from error


def storage_fault(error: OSError) -> RegelateError:
    """Return our error for what reading or writing a file raised."""
    return _of_storage(error, _text(error))


def translate(error: BaseException) -> RegelateError | None:
    """Return our error for one that PyIceberg, its catalog's client or the storage raised; None for any other.

    Texts are cut and hold no credentials.
    """
    if isinstance(error, RegelateError):
        return error
    text = _text(error)
    if isinstance(error, native.NoSuchNamespaceError):
        return namespace_not_found(text)
    if isinstance(error, _MISSING):
        return NotFound("TABLE_NOT_FOUND", f"{text}; check the namespace and the table's name")
    if isinstance(error, native.TableAlreadyExistsError):
        return Conflict("TABLE_EXISTS", text, retryable=False)
    if isinstance(error, native.CommitFailedException):
        return Conflict("COMMIT_CONFLICT", f"{text}; plan again")
    if isinstance(error, native.CommitStateUnknownException):
        return CommitStateUnknown("COMMIT_STATE_UNKNOWN", f"{text}; look at the table before retrying")
    if isinstance(error, _AUTH):
        return Unavailable("CATALOG_AUTH", f"the catalog refused our credentials: {text}", status=502, retryable=False)
    if isinstance(error, native.BadRequestError):
        return InvalidRequest("CATALOG_REFUSED", f"the catalog refused the request: {text}")
    if isinstance(error, native.RESTError):
        return Unavailable("CATALOG_UNAVAILABLE", f"the catalog failed: {text}")
    return _of_libraries(error, text)


def namespace_not_found(text: str) -> NotFound:
    """Return our error for a namespace that is not there."""
    return NotFound("NAMESPACE_NOT_FOUND", f"{text}; check the namespace (CREATE_TABLE makes it with its first table)")


def refusal(error: BaseException) -> RegelateError | None:
    """Return our error where a commit was answered with a no to the request as such; None for every other answer.

    That is 400 and the other statuses of a client's fault, but for those that ask it to try again.
    """
    known, status = translate(error), _status(error)
    if isinstance(known, NotFound | InvalidRequest) or (known is not None and known.code in _REFUSED_CREDENTIALS):
        return known
    if status == HTTPStatus.NOT_FOUND:
        return NotFound("TABLE_NOT_FOUND", f"{_text(error)}; check the namespace and the table's name")
    if status is not None and 400 <= status < 500 and status not in _TRY_AGAIN:
        return InvalidRequest("CATALOG_REFUSED", f"the catalog refused the request: {_text(error)}")
    return None


def _status(error: BaseException) -> int | None:
    """Return the HTTP status behind an error of PyIceberg's REST client, which has classes for few of them."""
    status = getattr(getattr(error.__cause__, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def is_locked(error: BaseException) -> bool:
    """Say whether SQLite gave up waiting for another client's lock: then nothing of the transaction is in the file."""
    cause = getattr(error, "orig", None) or error
    return type(cause).__module__ == "sqlite3" and "is locked" in str(cause)


def is_overtaken(error: BaseException) -> bool:
    """Say whether PyIceberg would not build a commit because its snapshot's sequence number is taken by now.

    It says so before it writes or sends anything: a commit to another branch fails no requirement.
    """
    return isinstance(error, ValueError) and "older than last sequence number" in str(error)


def _of_libraries(error: BaseException, text: str) -> RegelateError | None:
    library = type(error).__module__.partition(".")[0]
    if library in _REMOTE_LIBRARIES:
        if _DENIED.search(text):
            return Unavailable(
                "CATALOG_AUTH", f"the catalog refused our credentials: {text}", status=502, retryable=False
            )
        return Unavailable("CATALOG_UNAVAILABLE", f"the catalog cannot be reached: {text}")
    if _is_too_deep(error):
        told = (
            f"the metadata of this table is nested too deep: at most {MAX_DEPTH} columns in columns; use Spark for it"
        )
        return InvalidRequest("SCHEMA_TOO_LARGE", told, status=422, maximum_depth=MAX_DEPTH)
    newer = _newer(error)
    if newer is not None:
        return Unsupported("UNSUPPORTED_TABLE", f"this table holds {newer}; use Spark for it", reason=newer)
    if _is_no_answer(error):
        told = "the catalog's address answered, and not as a REST catalog of Iceberg does; repeat, or check the address"
        return Unavailable("CATALOG_UNAVAILABLE", told)
    if isinstance(error, _UNREADABLE_METADATA):
        return DataUnavailable("METADATA_CORRUPT", f"the table's metadata cannot be read: {text}; restore the file")
    if isinstance(error, OSError):
        return _of_storage(error, text)
    return None


def _is_too_deep(error: BaseException) -> bool:
    """Say whether reading metadata recursed to its end: in Python, or in pydantic, which counts 200 levels of JSON."""
    cause = error.__cause__ if isinstance(error, native.ValidationError) else error
    faults = cause.errors(include_url=False) if isinstance(cause, pydantic.ValidationError) else ()
    deep = any(fault["type"] == "json_invalid" and "recursion limit" in fault["msg"] for fault in faults)
    return deep or isinstance(error, RecursionError)


def _is_no_answer(error: BaseException) -> bool:
    """Say whether a REST catalog's answer is the fault, not the metadata in it: a page of a proxy, or one cut short.

    PyIceberg names the models of its answers so.
    """
    if not isinstance(error, pydantic.ValidationError) or not error.title.endswith("Response"):
        return False
    return any(fault["loc"][:1] != _METADATA for fault in error.errors(include_url=False))


def _newer(error: BaseException) -> str | None:
    """Name what metadata holds that this program is too old for; None where the metadata is damaged."""
    cause = error.__cause__ if isinstance(error, native.ValidationError) else error
    for fault in cause.errors(include_url=False) if isinstance(cause, pydantic.ValidationError) else ():
        tag, where, given = str(fault.get("ctx", {}).get("tag", "")), fault["loc"], fault["input"]
        if fault["type"] == "union_tag_invalid" and where in ((), _METADATA) and tag.isdecimal():
            return f"format version {tag}"
        if fault["type"] == "value_error" and "schemas" in where and isinstance(given, str):
            return f"columns of type {given[:60]!a}"
        if fault["type"] == "value_error" and isinstance(given, dict) and "source-ids" in given:
            return "a transform of several columns"
    return None


def _of_storage(error: OSError, text: str) -> RegelateError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ResourceExhausted("LOCAL_STORAGE_FULL", f"the disk is full: {text}")
    if isinstance(error, PermissionError) or _DENIED.search(text):
        return Unavailable("STORAGE_AUTH", f"the storage refused access: {text}", status=502, retryable=False)
    return Unavailable("STORAGE_UNAVAILABLE", f"the storage failed: {text}")


def _text(error: BaseException) -> str:
    """Return one cut line: an SQL error's own cause without statement and parameters, and no credentials of a URL."""
    cause = getattr(error, "orig", None) or error
    line = " ".join(str(cause).split()) or type(error).__name__
    return _CREDENTIALS.sub("***", line)[:SHOWN_CHARACTERS]
