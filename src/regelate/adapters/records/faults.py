"""What the faults of a store are called: those of the jobs, and those of a fleet."""

from __future__ import annotations

from typing import Any, Protocol

from regelate.errors import Unavailable


class Fault(Protocol):
    """Makes the error of a store, of what is told."""

    def __call__(self, told: str, **details: Any) -> Unavailable: ...


def of_jobs(told: str, **details: Any) -> Unavailable:
    return Unavailable("JOBS_UNAVAILABLE", told, **details)


def of_fleet(told: str, **details: Any) -> Unavailable:
    return Unavailable("FLEET_UNAVAILABLE", told, **details)
