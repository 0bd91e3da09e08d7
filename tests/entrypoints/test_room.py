"""Who goes when there are more connections than there may be. Times are passed in."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from regelate.entrypoints.server.room import GRACE_SECONDS, Awaited, Room

MOST = 4
LATER = 10.0 + GRACE_SECONDS
EACH = pytest.mark.parametrize("awaited", [Awaited.NEXT_REQUEST, Awaited.WHOLE_REQUEST])


@dataclass(eq=False)
class Guest:
    name: str
    gone: list[str] = field(repr=False)

    def give_way(self) -> None:
        self.gone.append(self.name)


@pytest.fixture
def gone() -> list[str]:
    return []


def seated(room: Room, gone: list[str], awaited: Awaited | None, *names: str, now: float = 10.0) -> list[Guest]:
    """Let connections come; those that await nothing are at work."""
    guests = [Guest(name, gone) for name in names]
    for guest in guests:
        room.waits(guest, Awaited.WHOLE_REQUEST, now)
        if awaited is None:
            room.works(guest)
        else:
            room.waits(guest, awaited, now)
    return guests


@EACH
def test_the_longest_waiting_go_and_no_more_than_are_too_many(gone: list[str], awaited: Awaited) -> None:
    room = Room(MOST)
    seated(room, gone, awaited, *"abcdef")
    room.thin(LATER)
    assert gone == ["a", "b"]
    room.thin(LATER)
    assert gone == ["a", "b"]


def test_nobody_at_work_goes_however_many_come(gone: list[str]) -> None:
    room = Room(MOST)
    seated(room, gone, None, *"ABCDEFGHIJ")
    seated(room, gone, Awaited.WHOLE_REQUEST, *"abc")
    room.thin(LATER)
    assert gone == ["a", "b", "c"]
    assert room.is_full_of_work


def test_who_has_its_answer_goes_before_who_still_sends(gone: list[str]) -> None:
    room = Room(MOST)
    seated(room, gone, Awaited.WHOLE_REQUEST, *"abc", now=1.0)
    seated(room, gone, Awaited.NEXT_REQUEST, *"xyz", now=2.0)
    room.thin(LATER)
    assert gone == ["x", "y"]


def test_who_takes_an_answer_stays_while_there_are_not_twice_as_many(gone: list[str]) -> None:
    room = Room(MOST)
    seated(room, gone, Awaited.ANSWER_TAKEN, *"ABCDEFGH")
    room.thin(LATER)
    assert gone == []
    seated(room, gone, Awaited.WHOLE_REQUEST, "x")
    seated(room, gone, Awaited.ANSWER_TAKEN, "I")
    room.thin(LATER)
    assert gone == ["x", "A"]


@EACH
def test_nobody_goes_within_the_grace_while_there_are_not_twice_as_many(gone: list[str], awaited: Awaited) -> None:
    room = Room(MOST)
    seated(room, gone, awaited, *"abcdefgh", now=LATER)
    room.thin(LATER)
    assert gone == []
    seated(room, gone, awaited, *"ij", now=LATER)
    room.thin(LATER)
    assert gone == ["a", "b"]


def test_a_place_is_as_old_as_the_first_byte_of_its_request(gone: list[str]) -> None:
    room = Room(MOST)
    first, *_ = seated(room, gone, Awaited.WHOLE_REQUEST, *"abcde", now=1.0)
    room.waits(first, Awaited.WHOLE_REQUEST, 9.0)
    room.thin(LATER)
    assert gone == ["a"]


def test_who_begins_another_request_begins_to_wait_anew(gone: list[str]) -> None:
    room = Room(MOST)
    first, *_ = seated(room, gone, Awaited.WHOLE_REQUEST, *"abcde", now=1.0)
    room.works(first)
    room.waits(first, Awaited.NEXT_REQUEST, 2.0)
    room.waits(first, Awaited.WHOLE_REQUEST, 3.0)
    room.thin(LATER)
    assert gone == ["b"]


def test_who_has_left_is_counted_no_more(gone: list[str]) -> None:
    room = Room(MOST)
    for guest in seated(room, gone, Awaited.WHOLE_REQUEST, *"abc") + seated(room, gone, None, *"de"):
        room.leaves(guest)
    seated(room, gone, Awaited.WHOLE_REQUEST, *"fghi")
    room.thin(LATER)
    assert gone == []
