"""Catalogs opened, and the credentials that they are opened with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from regelate.core.access import StorageSession


class StorageSessions(Protocol):
    """Hands out credentials that can do no more than a policy says, for at least so many seconds."""

    def session(self, policy: str, *, name: str, least_seconds: float) -> StorageSession: ...


class OpenCatalogs(Protocol):
    """Opens catalogs by PyIceberg's properties; `folders` are made first, `session` names the credentials."""

    def open(
        self, name: str, properties: Mapping[str, str], folders: tuple[Path, ...] = (), *, session: str = ""
    ) -> Any: ...
