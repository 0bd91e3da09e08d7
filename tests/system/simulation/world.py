"""One seed: a table, a catalog, a store, a clock, and everybody who works on the table; run to the end and judged."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from regelate.adapters.iceberg.cleanup import dead_runs, neighbours, quarantine, reach
from regelate.adapters.iceberg.files import store as object_store
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.tables.properties import gc_enabled
from regelate.operations.jobs import parts as job_parts
from tests.system.simulation import housekeeping, jobs, others, service
from tests.system.simulation.aftermath import judge_end
from tests.system.simulation.auditor import Auditor, Intent
from tests.system.simulation.catalog import LOCATION, CatalogKind, Server, client
from tests.system.simulation.engine import SimEngine
from tests.system.simulation.foreign import ForeignEngine
from tests.system.simulation.judge import judge_answer
from tests.system.simulation.photograph import Broken
from tests.system.simulation.rows import FIRST_EXTRA, ID, KEY, PART, Row
from tests.system.simulation.scheduler import HOUR_MS, Actor, OneByOne, Scheduler, State
from tests.system.simulation.script import FOREIGN, HOURS, LENGTH, ON_BRANCH, SUSPENSION, THERE_AND_BACK, Action, script
from tests.system.simulation.session import LIVES_SECONDS, Request
from tests.system.simulation.store import ActorIO, Door, ObjectStore
from tests.system.simulation.weather import Weather

OVERSLEPT_MS = 600_000
STRUCK = {SUSPENSION: "job part", HOURS: "undo"}
STRIKES_SHARE = {SUSPENSION: 0.2, HOURS: 0.8}
"""Of the steps that such an actor takes at its job, or once it has asked for the time, while time is to pass next."""
OURS: dict[str, Callable[[Hand, Request], object]] = {
    "write": service.writing,
    "compact": service.compaction,
    "expire": housekeeping.expiry,
    "undo": housekeeping.undo,
    "manifests": housekeeping.manifest_rewrite,
    "dangling": housekeeping.dangling_deletes,
    "orphans": housekeeping.orphan_removal,
    "sweep": housekeeping.sweep,
    "branch write": service.writing,
    "branch compact": service.compaction,
    "job": jobs.post,
    "job part": jobs.working,
}


class Hand:
    """What one actor works with."""

    def __init__(self, world: World, actor: Actor) -> None:
        self.world = world
        self.actor = actor
        self.door = Door(world.store, world.scheduler, world.weather, actor)
        self.catalog = client(world.server, ActorIO(self.door), world.weather, actor)
        self.doing = actor.kind
        self.engine: SimEngine | None = None
        self.request: Request | None = None
        self.hang_ms = 0
        """So long its engine hangs."""

    def intend(self, intent: Intent) -> None:
        self.world.auditor.intents[self.actor.name] = intent


class World:
    """Everything of one seed."""

    keys = 12

    def __init__(self, seed: str, *, length: int = LENGTH, without: frozenset[int] = frozenset()) -> None:
        self.seed = seed
        self.rng = random.Random(f"{seed}/world")
        self.events: Counter[str] = Counter()
        self.weather = Weather.of(self.rng, self.events)
        self.scheduler = Scheduler(seed, switch_share=self.rng.choice((0.15, 0.4, 0.9)))
        self.store = ObjectStore(skew_ms=self.rng.choice((0, 0, -3, 3)) * HOUR_MS)
        self.kind = self.rng.choices(list(CatalogKind), (6, 3, 2))[0]
        self.server = Server(self.kind, self.store, self.scheduler, has_twin=self.rng.random() < 0.05)
        self.auditor = Auditor(self.server, self.store, self.events)
        self.reader = ManifestReader()
        self.at_once = self.rng.choice((1, 2, 3, 4, 6))
        self.pace = self.rng.choice((0.05, 0.2, 0.6, 1.0))
        """How soon the next action follows while others are under way."""
        self.punctual = self.rng.choice((0.005, 0.02, 0.05, 0.2))
        """How soon a late request arrives."""
        self.takes_along = random.Random(f"{seed}/optimized").random() < 0.4
        """Whether the table has `regelate.write.optimized`."""
        self.is_v1 = self.rng.random() < 1 / 7
        drawn = script(self.rng, self.kind, is_v1=self.is_v1, length=length, stories=random.Random(f"{seed}/story"))
        self.script = [a for a in drawn if a.index not in without]
        self.hands: dict[str, Hand] = {}
        self.ours: set[str] = set()
        """Names of all actors of the service there have been."""
        self.open_runs: Counter[str] = Counter()
        """Requests that will be repeated, or are under way: run id -> copies that are not done."""
        self.repeated: set[str] = set()
        self.shelf = jobs.JobShelf(self)
        self.undo_ids: list[str] = []
        self._row_ids = 0
        self._workers = 0
        self._rows_by_run: dict[str, list[Row]] = {}

    @property
    def may_delete(self) -> bool:
        """Say whether files of this table may be deleted at all (law 10)."""
        return gc_enabled(self.server.metadata.properties) and not self.server.has_twin

    # --- rows ---

    def new_rows(self, rng: random.Random, count: int) -> list[Row]:
        first = self._row_ids
        self._row_ids += count
        extras = ((FIRST_EXTRA, first),) if rng.random() < 0.5 else ()
        return [Row(first + n, rng.choice((*range(self.keys), None)), rng.randrange(3), extras) for n in range(count)]

    def rows_of_run(self, run_id: str, rng: random.Random) -> list[Row]:
        if run_id not in self._rows_by_run:
            self._rows_by_run[run_id] = self.new_rows(rng, rng.randrange(1, 7))
        return self._rows_by_run[run_id]

    def outputs_waiting(self) -> set[str]:
        """Return data files that actors of the service have written and nobody has committed."""
        objects = self.store.objects
        return {p for p, o in objects.items() if "/data/" in p and o.maker in self.ours} - self.auditor.ever_referenced

    # --- the run ---

    def run(self) -> None:
        """Errors: Broken, or whatever an actor raised that no caller should ever see."""
        with _virtual(self.seed, self.scheduler):
            try:
                self._create()
                self._play()
                self.weather.is_over = True
                judge_end(self)
            finally:
                self.scheduler.end()
                self.events["steps"] += self.scheduler.steps

    def _create(self) -> None:
        schema = Schema(
            NestedField(ID, "id", LongType(), required=True),
            NestedField(KEY, "key", LongType(), required=False),
            NestedField(PART, "part", IntegerType(), required=True),
            NestedField(FIRST_EXTRA, "extra", LongType(), required=False),
        )
        by_part = PartitionSpec(PartitionField(PART, 1000, IdentityTransform(), "p"), spec_id=0)
        properties = {
            "format-version": "1" if self.is_v1 else "2",
            "commit.manifest.min-count-to-merge": self.rng.choice(("2", "4", "100")),
            "commit.manifest.target-size-bytes": self.rng.choice(("3000", "20000", "8388608")),
        }
        if self.kind is CatalogKind.HEAD_ONLY or self.rng.random() < 0.05:
            properties["gc.enabled"] = "false"
        elif self.rng.random() < 0.25:
            properties["write.metadata.delete-after-commit.enabled"] = "true"
            properties["write.metadata.previous-versions-max"] = "2"
        spec = by_part if self.rng.random() < 0.7 else UNPARTITIONED_PARTITION_SPEC
        self.server.create(new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, LOCATION, properties))
        for n in range(self.rng.choice((0, 1, 3, 5))):
            self._start_foreign(Action(-1 - n, "foreign append", False))
            self._drain()

    def _play(self) -> None:
        waiting = list(self.script)
        repeats: list[Callable[[], Actor]] = []
        while waiting or repeats or self.hands or self.server.late or self.shelf.messages:
            self._judge_finished(repeats)
            busy = [a for a in self.scheduler.running if not a.is_suspended]
            room = not busy or (len(busy) < self.at_once and self.rng.random() < self.pace)
            if room and repeats and self.rng.random() < 0.5:
                repeats.pop(0)()
            elif self.shelf.due() and (room or self._is_asleep()) and self.rng.random() < 0.7:
                self._deliver()
            elif waiting and (self._is_worth_it(waiting[0]) or (room and not self._must_wait(waiting[0]))):
                self._start(waiting.pop(0), repeats)
            alone = not self.scheduler.running and not waiting
            is_due = any(late.is_due for late in self.server.late)
            if is_due or (self.server.late and (self.rng.random() < self.punctual or alone)):
                self._arrive()
            if alone and not repeats and self.shelf.messages and self.shelf.due() is None:
                self.scheduler.now_ms = min(due_ms for _, _, due_ms in self.shelf.messages)
            if not self._reached_message():
                self._turn()
        self._judge_finished(repeats)

    def _deliver(self) -> None:
        """Hand one message to a worker; beside it another one may come at any time."""
        message = self.shelf.due()
        assert message is not None
        self.shelf.messages.remove(message)
        job_id, part, _ = message
        self._workers += 1
        request = Request(job_id, f"{self.seed}/{job_id}", part=part)
        self._start_ours("job part", request, f"{job_id}:worker-{self._workers}")

    def _is_worth_it(self, action: Action) -> bool:
        """Say whether this suspension strikes now, in the middle of what it is dangerous for."""
        if action.kind == THERE_AND_BACK:
            return bool(others.returnable(self.server))
        victims = [a for a in self.scheduler.running if a.kind == STRUCK.get(action.kind) and not a.is_suspended]
        strikes = any(a.has_asked_time or action.kind == SUSPENSION for a in victims)
        return strikes and self.rng.random() < STRIKES_SHARE[action.kind]

    def _reached_message(self) -> bool:
        """While all sleep and one of them is suspended: let the clock reach the message that another is to serve."""
        if not self._is_asleep() or not self.shelf.messages:
            return False
        now_ms, waking_ms = self.scheduler.now_ms, min(a.wake_ms for a in self.scheduler.running)
        due_ms = max(now_ms, min(due_ms for _, _, due_ms in self.shelf.messages))
        if waking_ms <= due_ms:
            return False
        self.scheduler.now_ms = due_ms
        return True

    def _is_asleep(self) -> bool:
        """Say whether somebody is suspended: what he does not serve, another worker does meanwhile."""
        return any(a.is_suspended for a in self.scheduler.running)

    def _must_wait(self, action: Action) -> bool:
        """Say whether the expiry that this undo is for is still under way, or whom to suspend is not so far yet."""
        awake = {a.kind for a in self.scheduler.running if not a.is_suspended}
        if action.kind == SUSPENSION and (self.shelf.due() is not None or "job" in awake):
            return True
        if action.kind in STRUCK:
            return STRUCK[action.kind] in awake
        if action.kind == THERE_AND_BACK:
            return any(a.is_held_up for a in self.scheduler.running)
        return action.kind == "undo" and not self.undo_ids and any(a.kind == "expire" for a in self.scheduler.running)

    def _turn(self, actor: Actor | None = None) -> None:
        actor = actor or self.scheduler.next_actor()
        if actor is not None:
            self.scheduler.resume(actor)
            if isinstance(actor.error, Broken):
                raise actor.error

    def _drain(self) -> None:
        while self.scheduler.running:
            self._turn()
        self._judge_finished([])

    def _arrive(self) -> None:
        late = next((late for late in self.server.late if late.is_due), None)
        if late is None:
            free = [late for late in self.server.late if not late.is_held]
            if not free:
                return
            late = free[self.rng.randrange(len(free))]
        self.server.late.remove(late)
        try:
            late.land()
        except Broken:
            raise
        except Exception:  # noqa: BLE001  refused: nobody is there to hear it
            self.events["late request refused"] += 1
        else:
            self.events["took late request"] += 1

    def _start(self, action: Action, repeats: list[Callable[[], Actor]]) -> None:
        if action.kind == HOURS:
            if not self._promises_open():
                is_undoing = any(a.kind == "undo" for a in self.scheduler.running)
                self.pass_hours(self.rng.choice((2, 9, 30) if is_undoing else (0.5, 1, 2, 5, 30)))
            return
        if action.kind == SUSPENSION:
            self.pass_hours(0.05)
            return
        if action.kind in FOREIGN:
            self._start_foreign(action)
            return
        if action.kind == "undo" and not self.undo_ids:
            return
        rng = random.Random(f"{self.seed}/{action.index}/start")
        expires = action.kind == "expire" or (action.kind == "compact" and rng.random() < 0.2)
        keep = housekeeping.retention(rng, tiny=rng.random() < 0.6 and not self._promises_open()) if expires else None
        ref = others.BRANCH if action.kind in ON_BRANCH else MAIN_BRANCH
        request = Request(f"run-{action.index}", f"{self.seed}/{action.index}", keep, ref=ref)
        name = f"{action.index}:{action.kind}"
        self._start_ours(action.kind, request, name).is_held_up = action.is_held_up
        if action.twin and not self._expires_at_once():
            self.open_runs[request.run_id] += 1
            self.repeated.add(request.run_id)
            self.events["ran repeated request"] += 1
            repeats.append(lambda: self._start_ours(action.kind, request, f"{name}-again", counted=False))

    def pass_hours(self, hours: float) -> None:
        """Let time pass for whoever is at work, as when a machine is suspended; some sleep on while others go to work.

        But a request that is on the wire arrives before, or never does; and other engines look after themselves.
        """
        while busy := [a for a in self.scheduler.running if a.is_committing or not a.is_ours]:
            self._turn(busy[0])
        while self.server.late:
            self._arrive()
        self.shelf.suspend()
        self.events["ran run too old"] += hours * 3600 >= LIVES_SECONDS and bool(self.scheduler.running)
        self.scheduler.now_ms += int(hours * HOUR_MS)
        for actor in self.scheduler.running:
            if self.rng.random() < (0.9 if actor.kind in STRUCK.values() else 0.5):
                actor.wake_ms = self.scheduler.now_ms + OVERSLEPT_MS
                actor.is_suspended = True
                if actor.kind == "job part":  # its queue takes it for dead
                    request = self.hands[actor.name].request
                    assert request is not None
                    self.shelf.post(request.run_id, request.part, 0)
        self.events["hours passed"] += 1

    def repeats_open(self) -> bool:
        """Say whether a request that is sent twice is not done."""
        return any(self.open_runs[run_id] for run_id in self.repeated)

    def _promises_open(self) -> bool:
        """A repeat is promised to be recognised while its snapshot is in the table: no expiry may reach it before.

        A job's part is a repeat of the same part by another worker.
        """
        if any(not record.state.is_final for record in self.shelf.records.values()):
            return True
        return self.repeats_open()

    def _expires_at_once(self) -> bool:
        requests = [h.request for h in self.hands.values() if h.request is not None]
        return any(r.retention is not None and r.retention.max_snapshot_age_ms == 1 for r in requests)

    def _start_foreign(self, action: Action) -> None:
        actor = self._actor(f"{action.index}:{action.kind}", action.kind, is_ours=False)
        hand = self.hands[actor.name]
        engine = ForeignEngine(hand.catalog, hand.door, self._look)
        self.auditor.intents[actor.name] = engine.meant
        act = FOREIGN[action.kind][0]
        self.scheduler.start(actor, lambda: act(self, engine, actor.rng))

    def _look(self, snapshot_id: int | None) -> object:
        return None if snapshot_id is None else self.auditor.photographs.get(snapshot_id)

    def _start_ours(self, kind: str, request: Request, name: str, *, counted: bool = True) -> Actor:
        self.open_runs[request.run_id] += counted
        actor = self._actor(name, kind, is_ours=True)
        hand = self.hands[actor.name]
        hand.request = request
        if request.retention is not None:
            self.auditor.ref_ages_ms[name] = request.retention.max_ref_age_ms
        self.auditor.refs[name] = request.ref
        self.ours.add(name)
        if kind == "compact":
            self.events["ran two compactors"] += any(h.actor.kind == kind for h in self.hands.values() if h is not hand)
            self.events["ran expire after compact"] += request.retention is not None
        act = OURS[kind]
        self.scheduler.start(actor, lambda: act(hand, request))
        return actor

    def _actor(self, name: str, kind: str, *, is_ours: bool) -> Actor:
        actor = Actor(name, kind, random.Random(f"{self.seed}/{name}"), is_ours)
        actor.since_commit = len(self.auditor.heads) - 1
        self.hands[name] = Hand(self, actor)
        self.events[f"ran {kind}"] += 1
        return actor

    def _judge_finished(self, repeats: list[Callable[[], Actor]]) -> None:
        for name, hand in list(self.hands.items()):
            if hand.actor.state is not State.READY:
                del self.hands[name]
                judge_answer(hand)
                if hand.request is not None:
                    self.open_runs[hand.request.run_id] -= 1
                    self.open_runs += Counter()

    def request(self, kind: str, request: Request) -> object:
        """Send one request while nothing else goes on, and return its answer."""
        actor = self._start_ours(kind, request, request.run_id)
        while actor.state is State.READY:
            self._turn()
        self._judge_finished([])
        if actor.error is not None:
            raise Broken(f"in quiet weather {request.run_id} answered {actor.error!r}") from actor.error
        return actor.answer


@contextmanager
def _virtual(seed: str, scheduler: Scheduler) -> Iterator[None]:
    """Give libraries the virtual clock, and identifiers and jitter that follow from the seed."""
    rng = random.Random(f"{seed}/identifiers")

    def identifier() -> uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128), version=4)

    def now() -> float:
        return scheduler.now_ms / 1000

    random.seed(f"{seed}/jitter")
    with (
        mock.patch.object(uuid, "uuid4", identifier),
        mock.patch.object(time, "time", now),
        mock.patch.object(time, "monotonic", now),
        mock.patch.object(object_store, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(neighbours, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(job_parts, "kept", jobs.kept),
        mock.patch.object(dead_runs, "S3FileIO", ActorIO),
        mock.patch.object(dead_runs, "is_s3", return_value=True),
        mock.patch.object(dead_runs, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(reach, "ThreadPoolExecutor", OneByOne),
        mock.patch.object(quarantine, "ThreadPoolExecutor", OneByOne),
    ):
        yield
