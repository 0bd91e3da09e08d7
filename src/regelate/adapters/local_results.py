"""Large results in a folder of this machine, for a server without an object store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from uuid import uuid4

from regelate.core.query.results import StoredResult, result_key


class FolderResults:
    """One tenant's results below a folder. A result is deleted by the first later one that comes after its time.

    A `file:` URL is of use to callers on this machine only; files are readable by their owner alone.
    """

    def __init__(self, folder: Path, tenant: str, *, lives_seconds: int) -> None:
        self._folder = folder.absolute()
        self._tenant = tenant
        self._lives_seconds = lives_seconds

    def keep(self, path: str, *, now_ms: int) -> StoredResult:
        """Take the file at `path` over and say where it is now."""
        self._forget_old(now_ms)
        target = self._folder / result_key(self._tenant, now_ms, uuid4().hex)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        Path(path).chmod(0o600)
        size = Path(path).stat().st_size
        shutil.move(path, target)
        os.utime(target, (now_ms / 1000, now_ms / 1000))
        return StoredResult(url=target.as_uri(), expires_ms=now_ms + self._lives_seconds * 1000, size_bytes=size)

    def _forget_old(self, now_ms: int) -> None:
        for old in self._folder.rglob("*.ndjson"):
            if old.stat().st_mtime * 1000 < now_ms - self._lives_seconds * 1000:
                old.unlink(missing_ok=True)
