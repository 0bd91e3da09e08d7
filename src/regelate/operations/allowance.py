"""How much may still be asked of a catalog and a store: until a time, and so many requests."""

from __future__ import annotations

import threading

from regelate.errors import Unavailable
from regelate.ports.clock import Clock


class UsedUp(Unavailable):
    """Nothing is wrong: what is left is done another time."""


class Allowance:
    """Safe for several threads. `until`: of the monotonic clock; None sets no limit."""

    def __init__(self, clock: Clock, *, until: float | None = None, requests: int | None = None) -> None:
        self._clock = clock
        self._until = until
        self._left = requests
        self._lock = threading.Lock()

    def spend(self, requests: int) -> None:
        """Take so many requests, all or none; 0 only looks at the clock. Errors: UsedUp TIME_CAP_EXCEEDED."""
        if self._until is not None and self._clock.monotonic() >= self._until:
            raise UsedUp("TIME_CAP_EXCEEDED", "the time that was given is used up; the next run goes on")
        with self._lock:
            if self._left is None:
                return
            if requests > self._left:
                message = f"it takes at least {requests} requests, more than a COMPACT makes for this on the side"
                raise UsedUp("TIME_CAP_EXCEEDED", message)
            self._left -= requests
