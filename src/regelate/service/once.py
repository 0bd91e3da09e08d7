"""Things that are made when they are needed, once for all threads: for good, or for a moment."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Condition, Lock
from time import monotonic
from typing import Generic, TypeVar

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


@dataclass
class _Line(Generic[T]):
    """Who waits at one thing. `begun`, `ended`: the numbers of the last making of it that began, and that came out."""

    waiting: int = 0
    begun: int = 0
    ended: int = 0
    is_made: bool = False
    found: T | None = None


class Together(Generic[T]):
    """Makes one thing for all who ask for it before its making begins: what they ask about was there by then.

    Who comes while it is made waits for the next one, which all of those share. A fault is kept by nobody.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._lines: dict[Hashable, _Line[T]] = {}

    def made(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make`, or that of another who asked for the same, has made from now on."""
        with self._changed:
            line = self._lines.setdefault(key, _Line())
            line.waiting += 1
            came = line.begun
            self._changed.wait_for(lambda: line.ended > came or not line.is_made)
            if line.ended > came:
                return self._left(key, line)
            line.is_made, line.begun = True, line.begun + 1
        try:
            found = make()
        except BaseException:
            with self._changed:
                line.is_made = False
                self._left(key, line)
            raise
        with self._changed:
            line.is_made, line.ended, line.found = False, line.begun, found
            return self._left(key, line)

    def _left(self, key: Hashable, line: _Line[T]) -> T:
        line.waiting -= 1
        if not line.waiting:
            self._lines.pop(key, None)
        self._changed.notify_all()
        return line.found  # type: ignore[return-value]  # None only where it is not looked at
