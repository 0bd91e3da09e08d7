"""The objects of one table's storage beside those that metadata names: list, read, write, delete, and the store's time.

PyIceberg's FileIO cannot list. Its PyArrow and fsspec implementations hold a file system that can; any other one may
have a method `list_prefix(location)` that yields (location, bytes, milliseconds of the last change).
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from regelate.adapters.iceberg.pyiceberg_errors import storage_faults
from regelate.adapters.iceberg.s3.settings import is_s3
from regelate.core.upkeep.reachability import Place, StoredFile
from regelate.errors import RegelateError, Unavailable, Unsupported

log = logging.getLogger(__name__)
OWN_FOLDER = "regelate"
CLOCK = "clock-"
CLOCK_LIVES_MS = 24 * 60 * 60 * 1000
DELETIONS_AT_ONCE = 16


def own_folder(metadata: TableMetadata) -> str:
    """Return the folder at a table's location where this program keeps its own small objects.

    Whatever `write.metadata.path` says: it may change while something waits there (trap T48: the metadata folder
    moves).
    """
    return f"{metadata.location.rstrip('/')}/metadata/{OWN_FOLDER}"


def own_folders(table: Table) -> tuple[str, ...]:
    """Return our folder, and then those that we may have used before.

    These lie beside the metadata files and manifest lists that the table still names: at a location that it had
    earlier, or where an earlier version followed `write.metadata.path`.
    """
    metadata = table.metadata
    named = (
        table.location_provider().new_metadata_location(OWN_FOLDER),
        table.metadata_location,
        *(entry.metadata_file for entry in metadata.metadata_log),
        *(s.manifest_list for s in metadata.snapshots),
    )
    beside = dict.fromkeys(path.rpartition("/")[0] for path in named)
    found: dict[Place, str] = {}
    for folder in (own_folder(metadata), *(f"{folder}/{OWN_FOLDER}" for folder in beside)):
        found.setdefault(Place.of(folder), folder)
    return tuple(found.values())


class ObjectStore:
    """Implements what FileIO lacks.

    Errors: Unavailable STORAGE_UNAVAILABLE, STORAGE_AUTH, STORAGE_INCONSISTENT; Unsupported UNSUPPORTED_TABLE where it
    cannot be listed.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def files(self, folder: str) -> tuple[StoredFile, ...]:
        """Return every object under a folder, spelled as the folder is; none where it does not exist."""
        root = folder.rstrip("/") + "/"
        with storage_faults():
            return tuple(StoredFile(path=p, size_bytes=s, modified_ms=t) for p, s, t in _listed(self._io, root))

    def read(self, location: str) -> bytes:
        with storage_faults(), self._io.new_input(location).open() as stream:
            return stream.read()

    def write(self, location: str, content: bytes) -> None:
        """Write one object whole, over an older one."""
        with storage_faults(), self._io.new_output(location).create(overwrite=True) as stream:
            stream.write(content)

    def delete(self, location: str) -> None:
        """Delete an object; one that is gone already is no fault."""
        with storage_faults(), contextlib.suppress(FileNotFoundError):
            self._io.delete(location)

    def delete_all(self, files: Iterable[StoredFile]) -> tuple[StoredFile, ...]:
        """Delete many objects and return those that were there; what cannot be deleted is logged and left."""
        listed = tuple(files)
        with ThreadPoolExecutor(DELETIONS_AT_ONCE) as pool:
            gone = tuple(pool.map(self._try_delete, listed))
        return tuple(file for file, done in zip(listed, gone, strict=True) if done)

    def _try_delete(self, file: StoredFile) -> bool:
        try:
            self._io.delete(file.path)
        except FileNotFoundError:
            return False
        except (OSError, RegelateError) as error:
            log.warning("cannot delete %s: %s", file.path, error)
            return False
        return True

    def now_ms(self, folder: str) -> int:
        """Return the store's own time, as it stamps a small object written to `folder` now; ours may be wrong.

        Such objects that a process left behind when it died are deleted a day later, by whoever asks next.
        """
        location = f"{folder.rstrip('/')}/{CLOCK}{uuid.uuid4().hex}"
        try:
            self.write(location, b"")
            found = self.files(folder)
            now_ms = _modified_ms(found, location)
            clocks = (f for f in found if f.path.rpartition("/")[2].startswith(CLOCK))
            self.delete_all(f for f in clocks if now_ms - f.modified_ms > CLOCK_LIVES_MS)
            return now_ms
        finally:
            self.delete(location)


def _modified_ms(files: Iterable[StoredFile], location: str) -> int:
    for file in files:
        if file.path == location:
            return file.modified_ms
    raise Unavailable("STORAGE_INCONSISTENT", f"the storage does not list {location}, which it holds", status=502)


def _listed(io: FileIO, root: str) -> Iterator[tuple[str, int, int]]:
    from regelate.adapters.iceberg.s3.file_io import S3FileIO

    own: Any = getattr(io, "list_prefix", None)
    if isinstance(io, S3FileIO) and is_s3(root):
        yield from io.store.listed(root)
    elif own is not None:
        yield from own(root)
    elif hasattr(io, "fs_by_scheme"):
        yield from _by_pyarrow(io, root)
    elif hasattr(io, "get_fs"):
        yield from _by_fsspec(io, root)
    else:
        raise Unsupported("UNSUPPORTED_TABLE", f"the storage {type(io).__name__} cannot list a folder")


def _by_pyarrow(io: Any, root: str) -> Iterator[tuple[str, int, int]]:
    from pyarrow.fs import FileSelector, FileType

    scheme, authority, path = io.parse_location(root, io.properties)
    system = io.fs_by_scheme(scheme, authority)
    folder = system.normalize_path(path).rstrip("/")
    for found in system.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True)):
        if found.type == FileType.File:
            yield root + found.path[len(folder) :].lstrip("/"), found.size, (found.mtime_ns or 0) // 1_000_000


def _by_fsspec(io: Any, root: str) -> Iterator[tuple[str, int, int]]:
    scheme, _, rest = root.partition("://")
    system = io.get_fs(scheme if rest else "file")
    folder = system._strip_protocol(root).rstrip("/")
    system.invalidate_cache(folder)  # fsspec remembers listings, also of what another client changed since
    for path, found in system.find(folder, detail=True).items():
        changed = found.get("LastModified") or found.get("last_modified") or found.get("mtime") or 0
        seconds = changed.timestamp() if hasattr(changed, "timestamp") else float(changed)
        yield root + path[len(folder) :].lstrip("/"), found["size"], int(seconds * 1000)
