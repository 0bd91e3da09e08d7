"""Who goes when there are more connections than there may be.

A connection is at work from the last byte of a request until its answer is made, and is then never ended for another.
All others wait for their client, and some of them can go: first who has its answer, then who is slowest to ask. So
clients that send a request in halves push out each other, and nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import Protocol

GRACE_SECONDS = 0.5
"""Nobody goes before that, unless there are twice as many as there may be: a request is on its way for a while."""


class Guest(Protocol):
    """A connection, as far as its place is concerned."""

    def give_way(self) -> None:
        """End now."""


class Awaited(IntEnum):
    """What a connection waits for; the lower, the sooner it goes."""

    NEXT_REQUEST = 0
    WHOLE_REQUEST = 1
    ANSWER_TAKEN = 2


class Room:
    """The connections of one server: `most`, and for GRACE_SECONDS up to twice as many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._at_work: set[Guest] = set()
        self._waiting: dict[Awaited, dict[Guest, float]] = {what: {} for what in Awaited}  # each longest first

    @property
    def is_full_of_work(self) -> bool:
        return len(self._at_work) >= self._most

    @property
    def _crowd(self) -> int:
        return len(self._at_work) + sum(map(len, self._waiting.values()))

    def waits(self, guest: Guest, awaited: Awaited, now: float) -> None:
        """Note that a connection waits for its client from `now`, or longer, if it has for the same."""
        if guest not in self._waiting[awaited]:
            self.leaves(guest)
            self._waiting[awaited][guest] = now

    def works(self, guest: Guest) -> None:
        """Note that a connection has its whole request."""
        self.leaves(guest)
        self._at_work.add(guest)

    def leaves(self, guest: Guest) -> None:
        self._at_work.discard(guest)
        for waiting in self._waiting.values():
            waiting.pop(guest, None)

    def thin(self, now: float) -> None:
        """End as many as are too many, of those that can go."""
        too_many = max(self._crowd - self._most, 0)
        leaving = dict.fromkeys(islice(self._overdue(now - GRACE_SECONDS), too_many))
        far_too_many = max(too_many - self._most - len(leaving), 0)
        if far_too_many:
            others = (guest for waiting in self._waiting.values() for guest in waiting if guest not in leaving)
            leaving |= dict.fromkeys(islice(others, far_too_many))
        for guest in leaving:
            self.leaves(guest)
            guest.give_way()

    def _overdue(self, since: float) -> Iterator[Guest]:
        for awaited in (Awaited.NEXT_REQUEST, Awaited.WHOLE_REQUEST):
            for guest, begun in self._waiting[awaited].items():
                if begun > since:
                    break
                yield guest
