"""The keys of config.json about `regelate serve`: what its server lets a client take, and for how long."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from regelate.settings.section import Section
from regelate.settings.tenants import LimitSettings

HostName = Annotated[str, StringConstraints(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]{0,252}))$")]
Seconds = Annotated[float, Field(gt=0, le=3600)]
_THREADS_FOR_OTHERS = 32


class ServeSettings(Section):
    """`hosts`: names it answers to beside those of this machine's loopback. `threads`: null, so many as one tenant may
    take and some for the others.
    """

    hosts: tuple[HostName, ...] = ()
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    max_connections: Annotated[int, Field(ge=1, le=65_536)] = 512
    max_header_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024)] = 32 * 1024
    max_headers: Annotated[int, Field(ge=1, le=10_000)] = 100
    header_seconds: Seconds = 10.0
    body_seconds: Seconds = 60.0
    answer_seconds: Seconds = 60.0
    idle_seconds: Annotated[int, Field(ge=1, le=3600)] = 60

    def threads_for(self, limits: LimitSettings) -> int:
        """Return how many requests are worked on at once."""
        return limits.most_of_one_tenant + _THREADS_FOR_OTHERS if self.threads is None else self.threads
