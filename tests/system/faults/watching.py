"""Sees whether this process opened a file or connected to a port, whichever library did it."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_ACCESS, IN_OPEN = 0x1, 0x20
"""Of Linux's inotify(7)."""


class FileWatch:
    """Counts how often a file was opened or read since it was last asked: what strace would show, for one file.

    An audit hook of Python would not do: it does not see what DuckDB opens.
    """

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK)
        if self._descriptor < 0 or libc.inotify_add_watch(self._descriptor, bytes(path), IN_OPEN | IN_ACCESS) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {path}")

    def touched(self) -> bool:
        try:
            return bool(os.read(self._descriptor, 65_536))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def file_watch(path: Path) -> Iterator[FileWatch]:
    watch = FileWatch(path)
    try:
        yield watch
    finally:
        watch.close()


class PortWatch:
    """A port of this machine that nobody should connect to."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def touched(self) -> bool:
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


@contextmanager
def port_watch() -> Iterator[PortWatch]:
    watch = PortWatch()
    try:
        yield watch
    finally:
        watch.close()
