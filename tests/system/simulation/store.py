"""An object store in memory, and PyIceberg's FileIO over it for one actor: every access is a step and may fail."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from regelate.adapters.iceberg.files.store import CLOCK
from tests.system.simulation.scheduler import Actor, Scheduler
from tests.system.simulation.weather import UPLOAD, StorageFault, Weather


@dataclass(frozen=True)
class StoredObject:
    data: bytes
    mtime_ms: int
    maker: str
    """Who created it: an actor's name, or `server` for the catalog's own metadata files."""


@dataclass
class ObjectStore:
    """Path -> bytes, with a modification time of its own clock. `on_delete` may veto (the auditor does)."""

    objects: dict[str, StoredObject] = field(default_factory=dict)
    undeleted: set[str] = field(default_factory=set)
    """What could not be deleted when somebody tried."""
    uploads: set[str] = field(default_factory=set)
    """Uploads in parts that nobody has completed: no objects, and they cost as much."""
    torn: set[str] = field(default_factory=set)
    """What was left half written at some time."""
    skew_ms: int = 0
    """How far its clock is before ours."""
    on_delete: Callable[[str, str], None] = lambda path, who: None

    def put(self, path: str, data: bytes, now_ms: int, maker: str) -> None:
        self.objects[path] = StoredObject(data, now_ms + self.skew_ms, maker)

    def get(self, path: str) -> bytes:
        if path not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return self.objects[path].data

    def delete(self, path: str, who: str) -> None:
        if path not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        self.on_delete(path, who)
        del self.objects[path]

    def made_by(self, maker: str) -> list[str]:
        return [path for path, stored in self.objects.items() if stored.maker == maker]


class Door:
    """One actor's way to the store."""

    def __init__(self, store: ObjectStore, scheduler: Scheduler, weather: Weather, actor: Actor) -> None:
        self.store = store
        self.scheduler = scheduler
        self.weather = weather
        self.actor = actor

    def _enter(self, what: str, path: str) -> StorageFault:
        fault = self.weather.storage(self.actor, what)
        if fault is StorageFault.SLOW:
            self.scheduler.step(self.actor, f"{what} {path} (slow)", wait_ms=self.actor.rng.randrange(1_000, 60_000))
        self.scheduler.step(self.actor, f"{what} {path}", crashes=fault is StorageFault.CRASH)
        if fault in (StorageFault.ERROR, StorageFault.FULL) and what != "write":
            raise _error(fault, path)
        return fault

    def read(self, path: str) -> bytes:
        self._enter("read", path)
        return self.store.get(path)

    def size(self, path: str) -> int:
        self._enter("size", path)
        return len(self.store.get(path))

    def exists(self, path: str) -> bool:
        self._enter("exists", path)
        return path in self.store.objects

    def list(self, prefix: str) -> list[tuple[str, int, int]]:
        self._enter("list", prefix)
        found = ((path, stored) for path, stored in self.store.objects.items() if path.startswith(prefix))
        return [(path, len(stored.data), stored.mtime_ms) for path, stored in found]

    def write(self, path: str, data: bytes, *, whole: bool) -> None:
        """`whole`: a metadata file, put at once. An output is uploaded in parts, and may stay one that nobody ends."""
        fault = self.weather.storage(self.actor, "write" if whole else UPLOAD)
        crashes = fault is StorageFault.CRASH
        if crashes and self.actor.rng.random() < (0.5 if whole else 0.1):
            self._tear(path, data)
        elif crashes and not whole:  # of an output: its upload was begun
            self.store.uploads.add(path)
            self.weather.events["ran open upload"] += 1
        self.scheduler.step(self.actor, f"write {path}", crashes=crashes)
        if fault in (StorageFault.ERROR, StorageFault.FULL):
            if self.actor.rng.random() < 0.5:  # the answer is lost, or the disk is full halfway
                self._tear(path, data)
            raise _error(fault, path)
        cut = fault is StorageFault.CUT
        self.weather.events["took truncated object"] += cut
        self._put(path, data[: len(data) // 2] if cut else data)

    def delete(self, path: str) -> None:
        self.actor.has_asked_time |= f"/{CLOCK}" in path
        try:
            self._enter("delete", path)
        except OSError:
            self.actor.failed_deletes += 1
            self.store.undeleted.add(path)
            raise
        self.store.delete(path, self.actor.name)

    def abort(self, path: str) -> None:
        if path in self.store.uploads:
            self._enter("abort upload", path)
            self.weather.events["took open upload"] += 1
            self.store.uploads.discard(path)

    def _tear(self, path: str, data: bytes) -> None:
        """Leave a part of an object, over the older one of that name, as a local disk does."""
        self.store.torn.add(path)
        self._put(path, data[: self.actor.rng.randrange(len(data) + 1)])

    def _put(self, path: str, data: bytes) -> None:
        self.store.put(path, data, self.scheduler.now_ms, self.actor.name)


def _error(fault: StorageFault, path: str) -> OSError:
    if fault is StorageFault.FULL:
        return OSError(errno.ENOSPC, "no space left on device", path)
    return OSError(errno.EIO, "503 SlowDown", path)


class _Reading(InputFile):
    def __init__(self, location: str, door: Door) -> None:
        super().__init__(location)
        self._door = door

    def __len__(self) -> int:
        return self._door.size(self.location)

    def exists(self) -> bool:
        return self._door.exists(self.location)

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._door.read(self.location))


class _Sink(io.BytesIO):
    """Collects what is written; the object appears when the stream is closed, as in an object store."""

    def __init__(self, location: str, door: Door) -> None:
        super().__init__()
        self._location = location
        self._door = door

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._door.write(self._location, data, whole=True)

    def __del__(self) -> None:
        """A stream that nobody closed writes nothing, whenever it is collected."""


class _Writing(OutputFile):
    def __init__(self, location: str, door: Door) -> None:
        super().__init__(location)
        self._door = door

    def __len__(self) -> int:
        return self._door.size(self.location)

    def exists(self) -> bool:
        return self._door.exists(self.location)

    def to_input_file(self) -> InputFile:
        return _Reading(self.location, self._door)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Sink(self.location, self._door)


class ActorIO(FileIO):
    """PyIceberg's FileIO for one actor."""

    def __init__(self, door: Door) -> None:
        super().__init__({})
        self.door = door

    def new_input(self, location: str) -> InputFile:
        return _Reading(location, self.door)

    def new_output(self, location: str) -> OutputFile:
        return _Writing(location, self.door)

    def list_prefix(self, location: str) -> list[tuple[str, int, int]]:
        return self.door.list(location)

    def abort_uploads(self, location: str) -> None:
        self.door.abort(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.door.delete(location if isinstance(location, str) else location.location)


class PlainIO(FileIO):
    """The store as it is, without steps and faults: for the auditor, the catalog and the first rows."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__({})
        self._door: Any = _Open(store)

    def new_input(self, location: str) -> InputFile:
        return _Reading(location, self._door)

    def new_output(self, location: str) -> OutputFile:
        return _Writing(location, self._door)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise AssertionError("who looks on deletes nothing")


class _Open:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self, path: str) -> bytes:
        return self._store.get(path)

    def size(self, path: str) -> int:
        return len(self._store.get(path))

    def exists(self, path: str) -> bool:
        return path in self._store.objects

    def write(self, path: str, data: bytes, *, whole: bool) -> None:
        self._store.put(path, data, 0, "setup")
