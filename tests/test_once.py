"""What is made when it is needed is made once, whoever asks first: for good, or for a moment."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError, Event, Lock
from types import TracebackType

import pytest

from regelate.service.once import Together, lately, once


class TellingLock:
    """A lock that breaks a meeting up when somebody has to wait for it: the other one will never come there."""

    def __init__(self, meeting: Barrier) -> None:
        self._lock = Lock()
        self._meeting = meeting

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._meeting.abort()
            self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, fault: object, trace: TracebackType | None) -> None:
        self._lock.release()


def test_two_threads_that_ask_first_at_once_get_one_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes it waits inside for the other one, who comes in as well or has to wait for the lock."""
    meeting = Barrier(2)
    monkeypatch.setattr("regelate.service.once.Lock", lambda: TellingLock(meeting))
    made: list[object] = []

    def make() -> object:
        thing = object()
        made.append(thing)
        with contextlib.suppress(BrokenBarrierError):
            meeting.wait()
        return thing

    ask = once(make)
    with ThreadPoolExecutor(2) as threads:
        one, other = [future.result() for future in (threads.submit(ask), threads.submit(ask))]
    assert one is other is made[0]
    assert len(made) == 1


def test_a_fault_is_kept_by_nobody_and_nothing_is_a_thing_too() -> None:
    results = iter([OSError("not yet"), None])
    asked = 0

    def make() -> None:
        nonlocal asked
        asked += 1
        if (fault := next(results)) is not None:
            raise fault

    ask = once(make)
    with pytest.raises(OSError, match="not yet"):
        ask()
    assert (ask(), ask(), asked) == (None, None, 2)


def test_what_was_made_lately_is_taken_and_what_is_older_is_made_again() -> None:
    times, made = iter([0.0, 0.9, 1.0, 1.5, 1.7]), iter("ab")
    ask = lately(lambda: next(made), 1.0, now=lambda: next(times))
    assert [ask(), ask(), ask(), ask()] == ["a", "a", "b", "b"]


def test_a_crowd_that_asks_at_once_has_it_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Barrier(2)
    monkeypatch.setattr("regelate.service.once.Lock", lambda: TellingLock(meeting))
    made: list[object] = []

    def make() -> object:
        made.append(object())
        with contextlib.suppress(BrokenBarrierError):
            meeting.wait()
        return made[-1]

    ask = lately(make, 1.0, now=lambda: 0.0)
    with ThreadPoolExecutor(2) as threads:
        one, other = [future.result() for future in (threads.submit(ask), threads.submit(ask))]
    assert one is other is made[0]
    assert len(made) == 1


def test_who_comes_while_something_is_made_shares_what_is_made_from_then_on() -> None:
    together, begun, end = Together[int](), Event(), Event()
    state, made = [1], list[int]()

    def make() -> int:
        found = state[0]
        begun.set()
        end.wait()
        made.append(found)
        return found

    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(together.made, "t", make)
        begun.wait()
        state[0] = 2
        later = [threads.submit(together.made, "t", make) for _ in range(8)]
        while together._lines["t"].waiting < 9:
            pass
        end.set()
        assert first.result() == 1
        assert [one.result() for one in later] == [2] * 8
    assert made == [1, 2]
    assert not together._lines


def test_a_fault_of_something_made_together_is_kept_by_nobody() -> None:
    together = Together[int]()
    with pytest.raises(ZeroDivisionError):
        together.made("t", lambda: 1 // 0)
    assert together.made("t", lambda: 3) == 3
