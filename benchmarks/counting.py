"""A FileIO that counts its requests by kind, as an object store would bill them, and may answer slowly by a fake clock.

Set the catalog's property `py-io-impl` to `IMPLEMENTATION`. Data files that DuckDB or PyArrow read by themselves are
not counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

IMPLEMENTATION = f"{__name__}.CountingFileIO"


class Requests:
    """What was asked of the store: (verb, kind) -> times, and every path in order. Safe for several threads."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[str, str]] = Counter()
        self.paths: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda verb, path: None
        self._lock = threading.Lock()

    def note(self, verb: str, path: str) -> None:
        with self._lock:
            self.counted[verb, kind_of(path)] += 1
            self.paths.append((verb, path))
        self.before(verb, path)

    def of(self, verb: str, *kinds: str) -> int:
        """Return how often a verb was used on these kinds of objects; on all where none is named."""
        return sum(n for (v, kind), n in self.counted.items() if v == verb and (not kinds or kind in kinds))

    def on_tables(self) -> int:
        """Return the requests for all but data files and metadata.json, of every verb."""
        return sum(n for (_, kind), n in self.counted.items() if kind not in ("data", "metadata.json"))


_COUNTERS = [Requests()]
"""Of this process; the last one counts."""


@contextmanager
def counting(before: Callable[[str, str], None] | None = None) -> Iterator[Requests]:
    """Count from here on; `before` is told of each request (verb, path) before it is answered."""
    asked = Requests()
    if before is not None:
        asked.before = before
    _COUNTERS.append(asked)
    try:
        yield asked
    finally:
        _COUNTERS.remove(asked)


def kind_of(path: str) -> str:
    """Return what an object is, by its path."""
    name = path.rstrip("/").rpartition("/")[2]
    for folder in ("ledger", "quarantine"):
        if f"/regelate/{folder}" in path:
            return folder
    if name.endswith(".metadata.json"):
        return "metadata.json"
    if name.endswith(".avro"):
        return "manifest list" if name.startswith("snap-") else "manifest"
    return "data" if name.endswith(".parquet") else "other"


class CountingFileIO(PyArrowFileIO):
    """A listing is one request, whatever it finds; only of folders on this machine."""

    def new_input(self, location: str) -> InputFile:
        return _counted(super().new_input(location))

    def new_output(self, location: str) -> OutputFile:
        return _counted(super().new_output(location))

    def delete(self, location: Any) -> None:
        _COUNTERS[-1].note("DELETE", location if isinstance(location, str) else location.location)
        super().delete(location)

    def list_prefix(self, location: str) -> Iterator[tuple[str, int, int]]:
        _COUNTERS[-1].note("LIST", location)
        root = Path(urlsplit(location).path)
        for path in sorted(root.rglob("*")):
            if path.is_file():
                found = path.stat()
                yield location + str(path.relative_to(root)), found.st_size, found.st_mtime_ns // 1_000_000


class _Counted(PyArrowFile):
    def open(self, seekable: bool = True) -> Any:
        _COUNTERS[-1].note("GET", self.location)
        return super().open(seekable)

    def create(self, overwrite: bool = False) -> Any:
        _COUNTERS[-1].note("PUT", self.location)
        return super().create(overwrite)

    def exists(self) -> bool:
        _COUNTERS[-1].note("HEAD", self.location)
        return super().exists()

    def __len__(self) -> int:
        _COUNTERS[-1].note("HEAD", self.location)
        return super().__len__()


def _counted(file: PyArrowFile) -> PyArrowFile:
    file.__class__ = _Counted
    return file
