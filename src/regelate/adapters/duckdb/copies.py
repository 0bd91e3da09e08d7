"""Remote inputs of a rewrite, fetched whole and ahead: many small files cost one request each, side by side.

A scan of remote files asks for footers and columns one after the other, so it waits where it could read. A copy may
stand in for a file only where no position delete names it, for those match by path (trap T19: position deletes match
paths as text).
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from regelate.adapters.duckdb.inputs import local_file
from regelate.core.planning.plan import FileGroup
from regelate.core.table.table import DeleteContent, DeleteFile, FileScanTask
from regelate.errors import DataUnavailable, RegelateError, Unavailable

Fetch = Callable[[str, Path, int], None]
"""Copies the file at a location to a path here, whole; it ought to have so many bytes. FileNotFoundError where it is
gone, Unavailable of the storage."""


@dataclass
class _Fetched:
    """One group on its way: `admitted` once there is room for it, then one future per file."""

    size_bytes: int
    admitted: threading.Event = field(default_factory=threading.Event)
    files: dict[str, Future[Path]] = field(default_factory=dict)


class LocalCopies:
    """Fetches groups in the order given, as far ahead as the budget allows; safe for several threads.

    Room is given back in that order too, or there would be no telling who waits for whom: whoever asks for a group must
    work on the earlier ones meanwhile. A group that is larger than the budget is not fetched.
    """

    def __init__(self, fetch: Fetch, folder: Path, *, connections: int, budget_bytes: int) -> None:
        self._fetch = fetch
        self._folder = folder / f"copies-{uuid4().hex}"
        self._budget_bytes = self._room = budget_bytes
        self._changed = threading.Condition()
        self._closed = False
        self._groups: dict[tuple[int, str], _Fetched] = {}
        self._deletes: dict[str, Future[Path]] = {}
        self._names: dict[str, str] = {}
        self._copy = re.compile(re.escape(str(self._folder)) + r"/[0-9a-f]{32}\.parquet")
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="fetch")

    def begin(self, groups: Sequence[FileGroup]) -> None:
        """Start to fetch what of these may be fetched; `of` waits for one of them."""
        waiting = [(g, _Fetched(size_bytes=g.size_bytes)) for g in groups if self._may_be_copied(g)]
        if waiting:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._groups |= {_key(group): fetched for group, fetched in waiting}
            threading.Thread(target=self._fetch_all, args=(waiting,), name="fetch-ahead", daemon=True).start()

    def of(self, group: FileGroup) -> FileGroup:
        """Return a group as it can be read here: its files' paths are those of the copies, where it was fetched.

        Errors: DataUnavailable DATA_FILE_MISSING, DELETE_FILE_CORRUPT for what is gone; Unavailable of the storage.
        """
        fetched = self._groups.get(_key(group))
        if fetched is None:
            return group
        fetched.admitted.wait()
        places = {location: _arrived(location, file) for location, file in fetched.files.items()}
        deletes = {location: _arrived(location, file, delete=True) for location, file in self._shared(group).items()}
        return replace(group, tasks=tuple(_moved(task, places, deletes) for task in group.tasks))

    def release(self, group: FileGroup) -> None:
        """Delete the copies of a group that nobody reads any more; deletes stay, others may need them."""
        fetched = self._groups.pop(_key(group), None)
        if fetched is None:
            return
        fetched.admitted.wait()
        for file in fetched.files.values():
            if not file.cancel() and file.exception() is None:
                file.result().unlink(missing_ok=True)
        self._give_back(fetched)

    def named(self, fault: Exception) -> Exception:
        """Put a fault in terms of the table's files, where it speaks of a copy."""
        if isinstance(fault, RegelateError):
            fault.message = self._real(fault.message)
            fault.details = {k: self._real(v) if isinstance(v, str) else v for k, v in fault.details.items()}
        return fault

    def _real(self, text: str) -> str:
        return self._copy.sub(lambda found: self._names.get(found[0], found[0]), text)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._pool.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _may_be_copied(self, group: FileGroup) -> bool:
        deletes = (d.content is DeleteContent.POSITION for t in group.tasks for d in t.deletes)
        remote = all(local_file(t.data_file.path) is None for t in group.tasks)
        return remote and group.size_bytes <= self._budget_bytes and not any(deletes)

    def _fetch_all(self, waiting: Sequence[tuple[FileGroup, _Fetched]]) -> None:
        for group, fetched in waiting:
            try:
                self._take_room(fetched)
                for task in group.tasks:
                    file = task.data_file
                    fetched.files[file.path] = self._submit(file.path, file.size_bytes)
                self._share(group)
            except RuntimeError as error:  # closed meanwhile
                broken: Future[Path] = Future()
                broken.set_exception(Unavailable("STORAGE_UNAVAILABLE", f"the run ended: {error}"))
                fetched.files[""] = broken
            finally:
                fetched.admitted.set()

    def _take_room(self, fetched: _Fetched) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._room >= fetched.size_bytes)
            if self._closed:
                raise RuntimeError("no more copies are made")
            self._room -= fetched.size_bytes

    def _give_back(self, fetched: _Fetched) -> None:
        with self._changed:
            self._room += fetched.size_bytes
            self._changed.notify_all()

    def _share(self, group: FileGroup) -> None:
        for delete in _deletes(group):
            if delete.path not in self._deletes:
                self._deletes[delete.path] = self._submit(delete.path, delete.size_bytes)

    def _shared(self, group: FileGroup) -> dict[str, Future[Path]]:
        return {delete.path: self._deletes[delete.path] for delete in _deletes(group)}

    def _submit(self, location: str, size_bytes: int) -> Future[Path]:
        path = self._folder / f"{uuid4().hex}.parquet"
        self._names[str(path)] = location
        return self._pool.submit(self._fetched, location, path, size_bytes)

    def _fetched(self, location: str, path: Path, size_bytes: int) -> Path:
        self._fetch(location, path, size_bytes)
        return path


def _key(group: FileGroup) -> tuple[int, str]:
    return group.index, group.tasks[0].data_file.path


def _deletes(group: FileGroup) -> Sequence[DeleteFile]:
    return list({d.path: d for t in group.tasks for d in t.deletes}.values())


def _arrived(location: str, file: Future[Path], *, delete: bool = False) -> Path:
    try:
        return file.result()
    except FileNotFoundError as error:
        if delete:
            raise DataUnavailable("DELETE_FILE_CORRUPT", f"{location} is missing", path=location) from error
        raise DataUnavailable("DATA_FILE_MISSING", f"{location} is missing", path=location) from error


def _moved(task: FileScanTask, places: dict[str, Path], deletes: dict[str, Path]) -> FileScanTask:
    return replace(
        task,
        data_file=replace(task.data_file, path=str(places[task.data_file.path])),
        deletes=tuple(replace(d, path=str(deletes[d.path])) for d in task.deletes),
    )
