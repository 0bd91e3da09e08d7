"""Seconds per phase of an operation, from the clock that it was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from regelate.ports.clock import Clock


class Stopwatch:
    """Adds up the seconds of named phases; phases may be entered again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = self._clock.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + self._clock.monotonic() - start

    @property
    def seconds(self) -> Mapping[str, float]:
        return dict(self._seconds)
