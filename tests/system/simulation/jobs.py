"""A job that workers share: messages that come twice or late, leases, workers that hang, are suspended or die.

The shipped `run_part` runs it; the store of records and leases, and the time that leases take, are simulated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regelate.core.jobs.job import LIVE, JobRecord, JobState, Lease, Origin
from regelate.core.requests import CompactRequest
from regelate.errors import RegelateError, Unavailable
from regelate.operations import answers
from regelate.operations.compacting.partial_progress import Watcher
from regelate.operations.jobs.jobs import JobTools, submit
from regelate.operations.jobs.leasing import Held
from regelate.operations.jobs.parts import Later, PartDone, run_part
from tests.system.simulation.photograph import Broken
from tests.system.simulation.scheduler import Actor, State
from tests.system.simulation.service import Quiet, compaction
from tests.system.simulation.session import LIVES_SECONDS, Request

if TYPE_CHECKING:
    from tests.system.simulation.world import Hand, World

LEASE_SECONDS = 60.0
MAX_ATTEMPTS = 4
LOCK_IDENT = "lake.t"


@dataclass
class _Grant:
    """Who holds the table's lease. It is renewed while its holder is alive and awake, for the longest run at most."""

    actor: Actor
    fence: int
    since_ms: int
    until_ms: int


@dataclass
class JobShelf:
    """The truth about jobs: records, the lease of the one table, and messages that have not been delivered."""

    world: World
    records: dict[str, JobRecord] = field(default_factory=dict)
    grant: _Grant | None = None
    fence: int = 0
    messages: list[tuple[str, int, int]] = field(default_factory=list)
    """Job id, part, and the time before which it does not come."""

    def now_ms(self) -> int:
        return self.world.scheduler.now_ms

    def held_now(self) -> bool:
        grant = self.grant
        if grant is None:
            return False
        awake = grant.actor.state is State.READY and not grant.actor.is_suspended
        renewed = awake and self.now_ms() < grant.since_ms + LIVES_SECONDS * 1000
        return renewed or self.now_ms() < grant.until_ms

    def suspend(self) -> None:
        """A machine stops, and time goes on: what was renewed last is good for one lease from now."""
        if self.grant is not None and self.held_now():
            self.grant.until_ms = self.now_ms() + int(LEASE_SECONDS * 1000)

    def post(self, job_id: str, part: int, seconds: float) -> None:
        self.messages.append((job_id, part, self.now_ms() + int(seconds * 1000)))

    def due(self) -> tuple[str, int, int] | None:
        return next((m for m in self.messages if m[2] <= self.now_ms()), None)


class _Store:
    """Implements JobStore and JobQueue for one worker: every call is a step, and may find no store."""

    def __init__(self, shelf: JobShelf, hand: Hand) -> None:
        self._shelf = shelf
        self.hand = hand
        self.lease: Lease | None = None

    def _step(self, what: str) -> None:
        world, actor = self.hand.world, self.hand.actor
        fault = world.weather.storage(actor, "job store")
        world.scheduler.step(actor, f"job store: {what}", crashes=fault.value == "crash")
        if fault.value not in ("none", "slow", "crash"):
            raise Unavailable("JOB_STORE_UNAVAILABLE", "the job store does not answer")

    def now_ms(self) -> int:
        return self._shelf.now_ms()

    def add(self, record: JobRecord) -> JobRecord:
        live = [r for r in self._shelf.records.values() if r.state in LIVE or r.job_id == record.job_id]
        return live[0] if live else self._shelf.records.setdefault(record.job_id, record)

    def get(self, job_id: str) -> JobRecord | None:
        self._step("get")
        return self._shelf.records.get(job_id)

    def save(self, before: JobRecord, after: JobRecord) -> bool:
        self._step("save")
        if self._shelf.records[before.job_id].version != before.version:
            return False
        stale = self.lease is not None and self.lease.fence < self._shelf.records[before.job_id].fence
        if stale:
            raise Broken(f"{self.hand.actor.name} changed {before.job_id} after another worker had taken it over")
        self._shelf.records[before.job_id] = after
        return True

    def acquire(self, lock: str, holder: str, seconds: float) -> Lease | None:
        self._step("acquire")
        shelf = self._shelf
        if shelf.held_now():
            self.hand.world.events["ran lease in another's hands"] += 1
            self.hand.world.events["took lease in another's hands"] += 1
            return None
        shelf.fence += 1
        now_ms = self.now_ms()
        shelf.grant = _Grant(self.hand.actor, shelf.fence, now_ms, now_ms + int(seconds * 1000))
        self.lease = Lease(lock=lock, holder=holder, fence=shelf.fence)
        return self.lease

    def held(self, lock: str) -> bool:
        return self._shelf.held_now()

    def renew(self, lease: Lease, seconds: float) -> bool:
        grant = self._shelf.grant
        if grant is None or grant.fence != lease.fence:
            return False
        grant.until_ms = self.now_ms() + int(seconds * 1000)
        return True

    def release(self, lease: Lease) -> None:
        if self._shelf.grant is not None and self._shelf.grant.fence == lease.fence:
            self._shelf.grant = None

    def send(self, record: JobRecord) -> None:
        self._shelf.messages.append((record.job_id, record.part, record.not_before_ms))

    def postpone(self, receipt: str, seconds: float) -> None:
        return None

    def _never(self, *arguments: Any) -> Any:
        raise AssertionError("no worker asks for that")

    live = due = listed = _never

    def waiting(self) -> int:
        """For a metric: no step of the story."""
        return sum(record.state is JobState.QUEUED for record in self._shelf.records.values())


@contextmanager
def kept(store: _Store, lease: Lease, seconds: float, *, longest_seconds: float) -> Iterator[Held]:
    """In the place of `leasing.kept`, whose thread lives by the real clock: whoever wakes up learns of his loss."""
    held, actor = Held(lease), store.hand.actor

    def wake() -> None:
        lost = not store.renew(lease, seconds)
        events = store.hand.world.events
        events["ran lost lease"] += 1
        events["took lost lease"] += lost
        if lost:
            held.lost.set()

    actor.on_wake = wake
    try:
        yield held
    finally:
        actor.on_wake = None
        if not actor.closed:
            store.release(lease)


def post(hand: Hand, request: Request) -> None:
    """Submit a job; it may find the table's other job. Its message may be doubled."""
    world = hand.world
    now_ms = world.shelf.now_ms()
    record = JobRecord(
        job_id=f"job-{request.run_id}",
        tenant_id="t",
        catalog="sim",
        ident=LOCK_IDENT,
        table=LOCK_IDENT,
        run_id=request.run_id,
        request=CompactRequest(),
        origin=Origin.REQUEST,
        created_ms=now_ms,
        updated_ms=now_ms,
    )
    told = submit(_tools(_Store(world.shelf, hand)), record)
    if request.rng.random() < 0.5:
        world.shelf.post(told.job_id, told.part, 0)


def _tools(store: _Store) -> JobTools:
    return JobTools(
        store=store,  # type: ignore[arg-type]
        queue=store,
        telemetry=Quiet(),
        lease_seconds=LEASE_SECONDS,
        max_attempts=MAX_ATTEMPTS,
    )


def working(hand: Hand, request: Request) -> JobRecord | None:
    """One worker, one message: what comes of it stands in the record."""
    shelf, job_id = hand.world.shelf, request.run_id
    store = _Store(shelf, hand)

    def work(record: JobRecord, watcher: Watcher) -> PartDone:
        watcher.passed(0, 1)
        if hand.world.weather.hangs(hand.actor) and not hand.world.repeats_open():
            hand.hang_ms = request.rng.randrange(5, 55) * 60_000
        try:
            outcome = compaction(hand, Request(record.run_id, request.number))
        except RegelateError as error:
            hand.actor.fault = error
            raise
        watcher.passed(1, 1)
        return PartDone(answer=answers.compacted(outcome, with_plan=False))

    later: Later | None = Later(seconds=LEASE_SECONDS)
    try:
        later = run_part(_tools(store), job_id, request.part, work, longest_seconds=LIVES_SECONDS)
    except RegelateError as error:  # the store did not answer, or the lease is lost: the message comes again
        hand.world.events[f"job part: {error.code}"] += 1
    if later is not None:
        shelf.post(job_id, request.part, later.seconds)
    return shelf.records.get(job_id)


def judge_jobs(world: World) -> None:
    """When all is quiet and every message was served, each job is at its end, and what it says is in the table."""
    for record in world.shelf.records.values():
        if not record.state.is_final:
            raise Broken(f"{record.job_id} is {record.state} and nobody will look at it again")
        landed = [found.snapshot_id for found in world.auditor.landed.get(record.run_id, [])]
        if record.state is JobState.SUCCEEDED:
            said = json.loads(record.result or "{}")["snapshot_id"]
            if said is not None and said not in landed:
                raise Broken(f"{record.job_id} says that it landed as {said}; the table has {landed}")
        world.events[f"job {record.state.value}"] += 1
