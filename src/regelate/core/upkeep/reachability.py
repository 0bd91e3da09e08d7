"""Which stored files nothing reaches any more: after an expiry, and lying about in a table's folder. Pure.

Locations are compared in one spelling, because engines write them in several: `s3a` and `s3n` are `s3`, `file:/x`,
`file:///x` and `/x` are one file, and slashes may be doubled. Rules of orphan files: Iceberg 1.10,
`DeleteOrphanFilesSparkAction`; where it has an option to guess (`prefix-mismatch-mode`), we refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from urllib.parse import unquote_plus

from regelate.core.table.storage import store_of
from regelate.core.values import dataclass

_LOCAL = "file"
_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """An object of the store; `modified_ms` is the store's own time of its last change."""

    path: str
    size_bytes: int
    modified_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A location in one spelling. An empty `authority` says nothing about where, as in `hdfs:///x`."""

    store: str
    authority: str
    path: str

    @classmethod
    def of(cls, location: str) -> Place:
        """Read a location: scheme and authority in small letters, slashes single, none at the end."""
        scheme, colon, rest = location.partition(":")
        if not colon or "/" in scheme:
            scheme, rest = "", location
        store = store_of(scheme)
        authority = ""
        if rest.startswith("//") and scheme:
            authority, _, rest = rest[2:].partition("/")
        if store == _LOCAL and authority == "localhost":
            authority = ""
        path = "/" + "/".join(part for part in rest.split("/") if part)
        return cls(store=store, authority=authority.lower(), path=path)

    def holds(self, other: Place) -> bool:
        """Say whether `other` is this place or lies in it; a store or authority left open may be the same."""
        same_store = (self.store, self.authority) == (other.store, other.authority) or self._open(other)
        return same_store and (other.path == self.path or other.path.startswith(self.path.rstrip("/") + "/"))

    def _open(self, other: Place) -> bool:
        return self.store == other.store and not (self.authority and other.authority)


def overlapping(mine: Iterable[str], theirs: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two folders of which one lies in the other or is the other; None where all are apart."""
    others = [(location, Place.of(location)) for location in theirs]
    for location in mine:
        place = Place.of(location)
        for other, there in others:
            if place.holds(there) or there.holds(place):
                return location, other
    return None


def of_other_tables(paths: Iterable[str], mine: Iterable[str], theirs: Iterable[str]) -> frozenset[str]:
    """Return the paths that lie in a folder of another table, and not in one of ours that is as deep or deeper.

    A table may name such files (Iceberg's `add_files`), but they are the other one's to delete. Doubt keeps a file:
    store and authority are not compared.
    """
    own = {loose(folder) for folder in mine}
    other = {loose(folder) for folder in theirs} - own
    return frozenset(path for path in paths if _nearest(loose(path), own | other) in other)


def _nearest(path: str, folders: Collection[str]) -> str | None:
    """Return the deepest of these folders that the path lies in."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in folders:
            return path
    return None


def plan_reclaim(before: Mapping[str, int], after: Iterable[str]) -> tuple[StoredFile, ...]:
    """Return what was reached before (path -> size in bytes) and is not any more, in the order of `before`.

    `after` may be long and is read once, no further than needed. Doubt keeps a file: store and authority are not
    compared, and names are as they read without URL encoding.
    """
    left: dict[str, list[str]] = {}
    for path in before:
        left.setdefault(loose(path), []).append(path)
    for path in after:
        left.pop(loose(path), None)
        if not left:
            break
    gone = {path for paths in left.values() for path in paths}
    return tuple(StoredFile(path=path, size_bytes=size) for path, size in before.items() if path in gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanPlan:
    """`mismatches`: (stored, reachable) paths that may or may not name one file; with any, nothing may be deleted."""

    orphans: tuple[StoredFile, ...]
    young: int
    kept: int
    mismatches: tuple[tuple[str, str], ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(f.size_bytes for f in self.orphans)


def plan_orphans(
    listing: Sequence[StoredFile],
    reachable: Iterable[str],
    now_ms: int,
    *,
    older_than_ms: int,
    root: str,
    partition_names: Iterable[str] = (),
) -> OrphanPlan:
    """Decide which files of a listing of `root` nothing reaches; both times are the store's.

    Kept are files that were changed less than `older_than_ms` ago (a writer may be about to commit them), and hidden
    ones: a name or folder that begins with `_` or `.`, unless the folder is one of a partition field so named. A
    stored file that differs from a reachable one only by scheme, authority or URL encoding is a mismatch.
    """
    known = _Reachable(reachable)
    base = Place.of(root).path
    hidden_but_partitions = tuple(f"{name}=" for name in partition_names if name.startswith(_HIDDEN))
    orphans: list[StoredFile] = []
    mismatches: list[tuple[str, str]] = []
    young = kept = 0
    for stored in listing:
        place = Place.of(stored.path)
        if known.has(place) or _is_hidden(place.path.removeprefix(base), hidden_but_partitions):
            kept += 1
        elif stored.modified_ms > now_ms - older_than_ms:
            young += 1
        elif (twin := known.like(place)) is not None:
            mismatches.append((stored.path, twin))
        else:
            orphans.append(stored)
    return OrphanPlan(orphans=tuple(orphans), young=young, kept=kept, mismatches=tuple(mismatches))


class _Reachable:
    """What metadata names, to be asked for by place."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_path: dict[str, set[tuple[str, str]]] = {}
        self._decoded: dict[str, str] = {}
        for path in paths:
            place = Place.of(path)
            self._by_path.setdefault(place.path, set()).add((place.store, place.authority))
            self._decoded.setdefault(unquote_plus(place.path), path)

    def has(self, place: Place) -> bool:
        """A reachable path without authority names the file wherever it lies, as in Iceberg's `uriComponentMatch`."""
        stores = self._by_path.get(place.path, ())
        return any(s == place.store and a in ("", place.authority) for s, a in stores)

    def like(self, place: Place) -> str | None:
        return self._decoded.get(unquote_plus(place.path))


def _is_hidden(path: str, partitions: tuple[str, ...]) -> bool:
    return any(part.startswith(_HIDDEN) and not part.startswith(partitions) for part in path.split("/") if part)


def loose(path: str) -> str:
    """Return what all spellings of a location share: its path without store and authority, URL encoding resolved."""
    return unquote_plus(Place.of(path).path)
