"""Whoever wants to know what happened."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from regelate.core.measures.measures import Occurrence


class Telemetry(Protocol):
    """Is told what happened, and where time went. Neither ever fails."""

    def tell(self, occurrence: Occurrence) -> None: ...
    def span(self, name: str, **attributes: str | int | float) -> AbstractContextManager[None]: ...
