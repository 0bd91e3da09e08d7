"""What the service is asked to do: every request goes through the shipped operations, committer and producer."""

from __future__ import annotations

import random
import uuid
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.session import TableSession
from regelate.core.policy import GB, CompactionPolicy, PlacementPolicy, RetentionPolicy, Verify
from regelate.operations.compact import CompactCommand, CompactionTools, CompactOutcome, compact
from regelate.operations.expire import Expired, Undone, expire_snapshots, undo_expiry
from regelate.operations.write import CheckPolicy, WriteCommand, WriteMode, WriteResult, WriteTools, write
from tests.iceberg_tables import NoLedger
from tests.simulation.auditor import ModelRows
from tests.simulation.engine import SimEngine, SimKeyRewriter, SimOutputs, SimRowWriter, by_partition
from tests.simulation.rows import Row
from tests.simulation.scheduler import HOUR_MS, ActorClock

if TYPE_CHECKING:
    from tests.simulation.world import Hand

TARGET_BYTES = 320
NO_FOLDER = Path("/nonexistent")


class Quiet:
    """Implements Telemetry."""

    def tell(self, occurrence: Any) -> None:
        return None

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True)
class Request:
    """One request. Two with one `run_id` are a repeat; `number` seeds whatever the request chooses."""

    run_id: str
    number: str
    retention: RetentionPolicy | None = None
    policy: CompactionPolicy | None = None

    @property
    def rng(self) -> random.Random:
        return random.Random(self.number)


class Session(TableSession):
    """The shipped session; its outputs upload rows as JSON."""

    def __init__(self, hand: Hand) -> None:
        reader = hand.world.reader if hand.actor.rng.random() < 0.5 else ManifestReader()
        super().__init__(hand.catalog, "lake.t", reader, NO_FOLDER)
        self.__dict__["ledger"] = NoLedger()
        self.__dict__["outputs"] = self.outputs_of(self.table.metadata, token=self.run_token)

    def outputs_of(self, metadata: Any, *, token: str = "") -> SimOutputs:
        run_id = token or f"{self.run_token}-{uuid.uuid4().hex[:8]}"
        return SimOutputs(metadata, self.table.io, self.ledger, run_id=run_id, folder=NO_FOLDER)


PLAIN = CompactionPolicy(
    target_file_size_bytes=TARGET_BYTES,
    min_file_size_bytes=int(TARGET_BYTES * 0.75),
    max_file_size_bytes=int(TARGET_BYTES * 1.8),
    min_input_files=2,
)


def compaction_policy(rng: random.Random) -> CompactionPolicy:
    return replace(
        PLAIN,
        max_file_group_size_bytes=rng.choice((TARGET_BYTES * 2, 100 * TARGET_BYTES)),
        delete_file_threshold=rng.choice((1, 2, 1000)),
        rewrite_all=rng.random() < 0.15,
        max_files=rng.choice((None, None, 4)),
    )


def compaction(hand: Hand, request: Request) -> CompactOutcome:
    session = Session(hand)
    rng = request.rng
    verify = rng.choice((Verify.FAST, Verify.FAST, Verify.STRICT))
    lie = hand.world.weather.lies(hand.actor, strict=verify is Verify.STRICT)
    engine = SimEngine(hand.door, session.__dict__["outputs"], lie)
    hand.engine = engine
    tools = CompactionTools(
        reader=session.reader,
        engine=engine,
        outputs=session.outputs,
        committer=session.committer,
        reclaimer=session.reclaimer,
        telemetry=Quiet(),
        clock=ActorClock(hand.world.scheduler, hand.actor),
        placement=PlacementPolicy(memory_bytes=4 * GB, threads=2),
    )
    policy = request.policy or compaction_policy(rng)
    command = CompactCommand(policy=policy, run_id=request.run_id, retention=request.retention, verify=verify)
    return compact(tools, command)


def writing(hand: Hand, request: Request) -> WriteResult:
    session = Session(hand)
    rng = request.rng
    mode = rng.choices(list(WriteMode), (5, 3, 2))[0]
    metadata = session.table.metadata
    extras = sorted(f for f in metadata.schema().field_ids if f > 3)
    rows = [
        Row(r.id, r.key, r.part, tuple((f, r.id * 10 + f) for f in extras))
        for r in hand.world.rows_of_run(request.run_id, rng)
    ]
    if mode is WriteMode.UPSERT:
        rows = list({r.key: r for r in rows if r.key is not None}.values()) or [Row(rows[0].id, 0, rows[0].part)]
    homes = {row.id: (home.spec_id, home.values) for home, part in by_partition(metadata, rows).items() for row in part}
    spec_homes = set(homes.values())

    def intent(old: ModelRows) -> ModelRows:
        kept = dict(old)
        if mode is WriteMode.UPSERT:
            keys = {r.key for r in rows}
            kept = {i: r for i, r in old.items() if r[0].key not in keys}
        if mode is WriteMode.OVERWRITE_PARTITIONS:
            kept = {i: r for i, r in old.items() if r[1] not in spec_homes}
        return {**kept, **{r.id: (r, homes[r.id]) for r in rows}}

    hand.intend(intent)
    outputs = session.__dict__["outputs"]
    tools = WriteTools(
        table_uuid=str(metadata.table_uuid),
        rows=SimRowWriter(metadata, outputs),
        committer=session.committer,
        clock=ActorClock(hand.world.scheduler, hand.actor),
        check=lambda: CheckPolicy(interval=rng.choice((0, 5)), policy=compaction_policy(rng)),
        fresh_reader=session.fresh_reader,
        keys=lambda: SimKeyRewriter(hand.door, session.outputs_of(session.committer.table.metadata)),
    )
    return write(tools, WriteCommand(rows=rows, run_id=request.run_id, mode=mode, key=("key",)))


def expiry(hand: Hand, request: Request) -> Expired:
    session = Session(hand)
    assert request.retention is not None
    clock = ActorClock(hand.world.scheduler, hand.actor)
    done = expire_snapshots(session.committer, session.reclaimer, clock, request.retention)
    if done.undo_id is not None:
        hand.world.undo_ids.append(done.undo_id)
    return done


def undo(hand: Hand, request: Request) -> Undone:
    session = Session(hand)
    clock = ActorClock(hand.world.scheduler, hand.actor)
    return undo_expiry(session.committer, session.reclaimer, clock, request.rng.choice(hand.world.undo_ids))


def retention(rng: random.Random, *, tiny: bool) -> RetentionPolicy:
    """`tiny`: everything that may go goes at once; else what is older than an hour or two."""
    return RetentionPolicy(
        max_snapshot_age_ms=1 if tiny else rng.choice((1, 2, 6)) * HOUR_MS,
        min_snapshots_to_keep=rng.choice((1, 1, 2, 4)),
        max_ref_age_ms=rng.choice((2**63 - 1, 3 * HOUR_MS)),
        grace_ms=rng.choice((0, 0, HOUR_MS, 8 * HOUR_MS)),
    )
