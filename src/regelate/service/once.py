"""Things that are made when they are needed, once for all threads: for good, or for a moment."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import TypeVar

T = TypeVar("T")


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return what gives the thing that `make` makes: one, however many threads ask first. A fault is kept by nobody.

    `functools.cache` and `cached_property` hold no lock: two threads that ask at once get two things.
    """
    lock, made = Lock(), list[T]()

    def the_one() -> T:
        if not made:  # what is made stays: who sees it needs no lock
            with lock:
                if not made:
                    made.append(make())
        return made[0]

    return the_one


def lately(make: Callable[[], T], seconds: float, *, now: Callable[[], float] = monotonic) -> Callable[[], T]:
    """Return what gives what `make` made within the last `seconds`; who comes while it is made waits for that, however
    many they are. A fault is kept by nobody.
    """
    lock, made = Lock(), list[tuple[float, T]]()

    def the_latest() -> T:
        with lock:
            if not made or now() - made[0][0] >= seconds:
                found = make()
                made[:] = [(now(), found)]
            return made[0][1]

    return the_latest
