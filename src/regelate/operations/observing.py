"""What the world is told around an operation, whichever way it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from regelate.core.measures.measures import CompactionEnded, CompactionStarted
from regelate.errors import InvalidRequest, NotAllowed, NotFound, RegelateError, Unsupported
from regelate.ports.telemetry import Telemetry

NOT_OURS = (InvalidRequest, NotAllowed, NotFound, Unsupported)
"""Errors that the caller has to put right: they are answers, no failures of a compaction."""


@contextmanager
def observed_compaction(telemetry: Telemetry, *, table: str) -> Iterator[None]:
    """Tell when a COMPACT starts and how it ends; what happens meanwhile is in one span."""
    failed_with: str | None = None
    telemetry.tell(CompactionStarted(table=table))
    try:
        with telemetry.span("compact", table=table):
            yield
    except NOT_OURS:
        raise
    except BaseException as fault:
        failed_with = fault.code if isinstance(fault, RegelateError) else type(fault).__name__
        raise
    finally:
        telemetry.tell(CompactionEnded(table=table, failed_with=failed_with))
