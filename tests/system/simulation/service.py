"""What the service is asked to write and to compact, through the shipped operations, committer and producer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regelate.core.policy.policy import GB, CompactionPolicy, PlacementPolicy, Verify
from regelate.core.policy.write_options import OptimizedWrite
from regelate.core.requests import MissingColumns, WriteMode
from regelate.core.table.table import MAIN_BRANCH
from regelate.operations.compacting.compact import CompactCommand, CompactionTools, CompactOutcome, compact
from regelate.operations.write import SmallFileCheck, WriteCommand, WriteResult, WriteTools, write
from tests.system.simulation.auditor import ModelRows
from tests.system.simulation.engine import TARGET_BYTES, SimEngine, SimKeyRewriter, SimRowWriter, by_partition
from tests.system.simulation.photograph import Broken
from tests.system.simulation.rows import Row
from tests.system.simulation.scheduler import ActorClock
from tests.system.simulation.session import Request, Session

if TYPE_CHECKING:
    from tests.system.simulation.world import Hand


class Quiet:
    """Implements Telemetry."""

    def tell(self, occurrence: Any) -> None:
        return None

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[None]:
        return nullcontext()


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
    session = Session(hand, request.ref)
    rng = request.rng
    verify = rng.choice((Verify.FAST, Verify.FAST, Verify.STRICT))
    lie = hand.world.weather.lies(hand.actor, strict=verify is Verify.STRICT)
    engine = SimEngine(hand.door, session.uploads, lie)
    engine.hang_ms = hand.hang_ms
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
    with session.run():
        return compact(tools, command)


def writing(hand: Hand, request: Request) -> WriteResult:
    session = Session(hand, request.ref)
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
    keeps = mode is WriteMode.UPSERT and rows[0].id % 2 == 0
    if keeps:  # few of them: a key that the table has twice refuses all
        rows = [Row(r.id, r.key, r.part) for r in rows[:2]]
    if request.ref == MAIN_BRANCH:
        hand.doing = "write keeping upsert" if keeps else f"write {mode.value}"
        hand.world.events[f"ran {hand.doing}"] += 1
    homes = {row.id: (home.spec_id, home.values) for home, part in by_partition(metadata, rows).items() for row in part}
    spec_homes = set(homes.values())

    def intent(old: ModelRows) -> ModelRows:
        kept = dict(old)
        if mode is WriteMode.UPSERT:
            keys = {r.key for r in rows}
            kept = {i: r for i, r in old.items() if r[0].key not in keys}
        if keeps:
            return {**kept, **{r.id: (_keeping(r, old, extras), homes[r.id]) for r in rows}}
        if mode is WriteMode.OVERWRITE_PARTITIONS:
            kept = {i: r for i, r in old.items() if r[1] not in spec_homes}
        return {**kept, **{r.id: (r, homes[r.id]) for r in rows}}

    hand.intend(intent)
    tools = WriteTools(
        table_uuid=str(metadata.table_uuid),
        rows=SimRowWriter(metadata, session.uploads),
        committer=session.committer,
        clock=ActorClock(hand.world.scheduler, hand.actor),
        check=lambda: SmallFileCheck(interval=rng.choice((0, 5)), policy=compaction_policy(rng)),
        fresh_reader=session.fresh_reader,
        keys=lambda: SimKeyRewriter(hand.door, session.outputs_of(session.committer.table.metadata)),
        optimized=lambda: OptimizedWrite() if hand.world.takes_along else None,
    )
    missing = MissingColumns.KEEP if keeps else MissingColumns.NULL
    hand.world.events["ran optimized write"] += hand.world.takes_along
    with session.run():
        done = write(tools, WriteCommand(rows=rows, run_id=request.run_id, mode=mode, key=("key",), missing=missing))
    hand.world.events["took optimized write"] += bool(done.files_taken_along)
    return done


def _keeping(row: Row, old: ModelRows, extras: Sequence[int]) -> Row:
    """Return what an upsert must make of a row that names no extra column, on a head with these rows. Where there is
    none the row is whole, and replaces all that have its key."""
    if not extras:
        return row
    stored = [found for found, _ in old.values() if found.key == row.key]
    if len(stored) > 1:
        raise Broken(f"an upsert kept values for the key {row.key}, which the table has {len(stored)} times")
    kept = stored[0].within(extras).extras if stored else ()
    return Row(row.id, row.key, row.part, kept)
