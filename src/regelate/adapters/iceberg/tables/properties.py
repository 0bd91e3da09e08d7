"""Which properties a caller may give a table; and where a table may live."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyiceberg.table import TableProperties

from regelate.core.policy.table_properties import Use, belongs_to_catalog, refuse_malformed, refuse_unusable
from regelate.core.table.names import LOCATION_PROPERTIES
from regelate.core.table.storage import store_of
from regelate.errors import InvalidRequest, Unsupported

LOCATION = "location"
FORMAT_VERSION = TableProperties.FORMAT_VERSION
WRITTEN_VERSIONS = ("1", "2")
_STATE = frozenset(
    {"uuid", "snapshot-count", "current-snapshot-summary", "current-snapshot-id", "current-snapshot-timestamp-ms"}
    | {"current-schema", "default-partition-spec", "default-sort-order"}
)
"""Reserved by Iceberg: names of the table's own state (TableProperties.RESERVED_PROPERTIES, 1.10)."""
_DOUBTFUL = frozenset("%\\?#*")
MAX_LOCATION_BYTES = 512
MAX_FOLDER_BYTES = 255
"""S3 takes keys of 1,024 bytes, and folders of partitions and names of files go below; a folder's limit is Linux's."""


def check_new_table(properties: Mapping[str, str], defaults: Mapping[str, str], warehouse: str | None) -> None:
    """Refuse what a new table may not be given; it has the `defaults` too, where the properties do not name them.

    Errors: InvalidRequest INVALID_LOCATION, INVALID_OPTION; Unsupported UNSUPPORTED_TABLE for format version 3.
    """
    version = properties.get(FORMAT_VERSION, WRITTEN_VERSIONS[-1])
    if version.isascii() and version.isdigit() and int(version) > int(WRITTEN_VERSIONS[-1]):
        raise Unsupported(
            "UNSUPPORTED_TABLE",
            f"format-version {version[:20]} cannot be written here; use 1 or 2",
            reason=FORMAT_VERSION,
        )
    if version not in WRITTEN_VERSIONS:
        raise _invalid(FORMAT_VERSION, f"must be 1 or 2, not {version[:20]!r}")
    _check({name: value for name, value in properties.items() if name != FORMAT_VERSION}, defaults, warehouse)


def check_changes(to_set: Mapping[str, str], to_unset: Iterable[str], warehouse: str | None) -> None:
    """Refuse what no table may be changed to. Whatever another engine has set can be unset.

    Errors: InvalidRequest INVALID_LOCATION, INVALID_OPTION, or INVALID_FIELD for a name both set and unset.
    """
    unset = list(to_unset)
    for name in unset:
        if name in to_set:
            raise InvalidRequest("INVALID_FIELD", f"property {name!r} is both set and unset", field=name)
    for name in (*to_set, *unset):
        if name in (FORMAT_VERSION, LOCATION):
            raise _invalid(name, "cannot be changed once the table exists")
    _check(to_set, {}, warehouse)
    for name in unset:
        _check_name(name)


Judge = Callable[[Mapping[str, str]], None]
"""Raises InvalidRequest for properties that clash, of a table's all."""


def check_outcome(found: Mapping[str, str], to_set: Mapping[str, str], to_unset: Iterable[str], judge: Judge) -> None:
    """Refuse a change of these properties that leaves the table with some that nobody can use, or that clash.

    A clash that was there before, and that the change has no part in, is left to whoever made it. Errors:
    InvalidRequest INVALID_OPTION, INVALID_RETENTION; INVALID_TABLE_PROPERTY, 422, where nothing could be committed.
    """
    gone = set(to_unset)
    result = {name: value for name, value in {**found, **to_set}.items() if name not in gone}
    refuse_malformed(to_set, result)
    refuse_unusable(result, Use.COMMIT)
    clash = _clash(judge, result)
    if clash is not None and (_clash(judge, found) is None or _parties(clash) & to_set.keys()):
        details: dict[str, Any] = dict(clash.details)
        raise InvalidRequest(clash.code, f"the table that results cannot be compacted: {clash.message}", **details)


def _clash(judge: Judge, properties: Mapping[str, str]) -> InvalidRequest | None:
    try:
        judge(properties)
    except InvalidRequest as fault:
        return fault
    return None


def _parties(clash: InvalidRequest) -> set[str]:
    sources = clash.details.get("sources")
    named = sources.values() if isinstance(sources, Mapping) else ()
    return {str(name) for name in (*named, clash.details.get("option"))}


def is_inside(location: str, folder: str) -> bool:
    """Say whether a location lies strictly inside a folder, whichever spelling of scheme and slashes each has.

    A text that two programs could read as two places (dot segments, escapes, wildcards, control characters) is nowhere.
    """
    inner, outer = _parts(location), _parts(folder)
    return inner is not None and outer is not None and len(inner) > len(outer) and inner[: len(outer)] == outer


def _check(properties: Mapping[str, str], beside: Mapping[str, str], warehouse: str | None) -> None:
    for name in properties:
        _check_name(name)
        if belongs_to_catalog(name):
            raise _invalid(name, "belongs to the catalog's configuration, not to a table")
    for name in LOCATION_PROPERTIES:
        if name in properties and not (warehouse and is_inside(properties[name], warehouse)):
            where = "inside the catalog's warehouse" if warehouse else "left out: this catalog has no known warehouse"
            raise InvalidRequest("INVALID_LOCATION", f"property {name!r} must be {where}", field=name)
        _check_length(name, properties.get(name, ""))
    refuse_malformed(properties, beside)


def _check_length(name: str, location: str) -> None:
    longest = max(len(part.encode()) for part in location.split("/"))
    if longest > MAX_FOLDER_BYTES or len(location.encode()) > MAX_LOCATION_BYTES:
        told = f"property {name!r} may have {MAX_LOCATION_BYTES} bytes, and {MAX_FOLDER_BYTES} between two slashes"
        raise InvalidRequest("INVALID_LOCATION", f"{told}; name a shorter place", field=name)


def _check_name(name: str) -> None:
    if not name or not name.isprintable():
        raise _invalid(name, "is no name of a property")
    if name in _STATE:
        raise _invalid(name, "is reserved by Iceberg for the table's own state")


def gc_enabled(properties: Mapping[str, str]) -> bool:
    """Say whether a table lets its files be deleted.

    As Iceberg's `PropertyUtil.propertyAsBoolean` (1.10) reads it: anything but `true` forbids it.
    """
    return properties.get("gc.enabled", "true").lower() == "true"


def _parts(location: str) -> tuple[str, ...] | None:
    """Return store, authority and path segments in one spelling, or None for a doubtful one."""
    if not location.isprintable() or _DOUBTFUL & set(location):
        return None
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "", location
    store = store_of(scheme)
    authority = ""
    if rest.startswith("//") and scheme:
        authority, _, rest = rest[2:].partition("/")
    elif not rest.startswith("/"):
        return None
    if store == "file" and authority not in ("", "localhost"):
        return None
    segments = [s for s in rest.split("/") if s]
    if {".", ".."} & set(segments):
        return None
    return (store, "" if store == "file" else authority, *segments)


def _invalid(name: str, why: str) -> InvalidRequest:
    return InvalidRequest("INVALID_OPTION", f"property {name[:80]!a} {why}", field=name[:80])
