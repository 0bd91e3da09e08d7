"""A thing that is made when it is first needed, once for all threads."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
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
