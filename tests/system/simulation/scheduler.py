"""One thing at a time, in an order that a seed chooses: actors hand over control before everything they do outside.

Every actor is a thread, and exactly one runs. `Scheduler.step` is the only place where control changes hands. A crash
is a thread that is never resumed: nothing of it runs again, neither `except` nor `finally`, until the run is over; what
runs then finds its storage closed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Killed(BaseException):
    """Ends the thread of a crashed actor after the run. No shipped code may catch it and go on."""


class State(Enum):
    READY = "ready"
    DONE = "done"
    CRASHED = "crashed"


@dataclass
class Actor:
    """One request to the service, or one thing that another engine does."""

    name: str
    kind: str
    rng: random.Random
    is_ours: bool
    """Faults and crashes strike only the service; other engines do their things, interleaved with it."""
    state: State = State.READY
    wake_ms: int = 0
    started_ms: int = 0
    since_commit: int = 0
    """The last commit that it may have seen when it began."""
    closed: bool = False
    has_ended: bool = False
    """Its thread does nothing any more, though it may still be alive for a moment."""
    failed_deletes: int = 0
    unknown_attempts: int = 0
    unreachable_looks: int = 0
    """So many of its next calls to the catalog find no route."""
    may_return: bool = False
    """An attempt of unknown outcome can land whenever main is rolled back to its base: for all that its sender knew of
    the table when it sent it, nothing in it is used up."""
    was_turned_away: bool = False
    """It was told of a conflict with a commit that nobody made."""
    refused_on: tuple[str, int | None, int] | None = None
    """Branch, its snapshot and the last sequence number of a conflict over REST about a snapshot: where it finds the
    branch elsewhere and no other number, only a rollback stands against that snapshot, and put back it fits again."""
    is_unanswered: bool = False
    """An attempt of it got no answer that says what became of it."""
    is_held_up: bool = False
    """The first request of its to commit arrives late, and nobody answers it for seconds."""
    is_committing: bool = False
    """Its request is on the wire."""
    sent_on: str = ""
    sent_here: int = 0
    """Attempts to commit on one head, the metadata file `sent_on`."""
    has_asked_time: bool = False
    """It has looked at the store's clock, and goes by what it read."""
    is_suspended: bool = False
    """It slept through the time that passed, and has not noticed yet."""
    on_wake: Callable[[], None] | None = None
    is_in_storm: bool | None = None
    is_counted: bool = False
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    error: BaseException | None = None
    fault: BaseException | None = None
    """What its work ended with, where that is not its own answer but a job's."""
    answer: object = None


class Scheduler:
    """Runs actors, and owns the virtual clock: it moves with every step, with sleeps, and when nobody can run."""

    def __init__(self, seed: str, *, switch_share: float) -> None:
        self.rng = random.Random(f"{seed}/schedule")
        self.now_ms = START_MS
        self.steps = 0
        self.trace: list[str] = []
        self._switch_share = switch_share
        self._back = threading.Semaphore(0)
        self._actors: list[Actor] = []

    def start(self, actor: Actor, act: Callable[[], object]) -> None:
        def run() -> None:
            actor.turn.acquire()
            try:
                if not actor.closed:
                    actor.answer = act()
            except BaseException as error:  # noqa: BLE001  judged by the world, on the main thread
                actor.error = error
            finally:
                if actor.state is State.READY:
                    actor.state = State.DONE
                actor.has_ended = True
                self._back.release()

        actor.thread = threading.Thread(target=run, name=actor.name, daemon=True)
        actor.thread.start()
        self._actors.append(actor)
        actor.started_ms = self.now_ms

    @property
    def running(self) -> list[Actor]:
        return [a for a in self._actors if a.state is State.READY]

    def next_actor(self) -> Actor | None:
        """Choose who goes on; when all of them sleep, let the clock reach the first."""
        waiting = self.running
        if not waiting:
            return None
        awake = [a for a in waiting if a.wake_ms <= self.now_ms]
        if not awake:
            self.now_ms = min(a.wake_ms for a in waiting)
            awake = [a for a in waiting if a.wake_ms <= self.now_ms]
        return self.rng.choice(awake)

    def resume(self, actor: Actor) -> None:
        """Let an actor run until it hands over, ends or crashes."""
        actor.turn.release()
        self._back.acquire()

    def step(self, actor: Actor, what: str, *, crashes: bool = False, wait_ms: int = 0) -> None:
        """Called by the actor before it does something outside: others may run now, and it may be its last step."""
        if actor.closed:
            raise Killed
        self.steps += 1
        self.now_ms += self.rng.randrange(1, 40)
        self.trace.append(f"{actor.name} {what}{' CRASH' if crashes else ''}")
        if crashes:
            actor.state = State.CRASHED
            actor.closed = True
        actor.wake_ms = self.now_ms + wait_ms
        if not crashes and not wait_ms and self.rng.random() >= self._switch_share:
            return
        self._back.release()
        actor.turn.acquire()
        if actor.closed:
            raise Killed
        if actor.is_suspended:
            actor.is_suspended = False
            if actor.on_wake is not None:
                actor.on_wake()

    def end(self) -> None:
        """Unwind the threads that are left; their storage is closed."""
        for actor in self._actors:
            if actor.thread is None:
                continue
            if not actor.has_ended:
                actor.closed = True
                self.resume(actor)
            actor.thread.join(10)
        self._actors.clear()


class OneByOne:
    """Stands in for a pool of threads: an actor does one thing at a time."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> OneByOne:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [work(item) for item in items]


class ActorClock:
    """Implements Clock for one actor."""

    def __init__(self, scheduler: Scheduler, actor: Actor) -> None:
        self._scheduler = scheduler
        self._actor = actor

    def now_ms(self) -> int:
        return self._scheduler.now_ms

    def monotonic(self) -> float:
        return self._scheduler.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self._scheduler.step(self._actor, "sleep", wait_ms=int(seconds * 1000))
