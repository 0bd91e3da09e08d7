"""Is what the service answered true? And is everything in order when all is quiet?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadataUtil

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.errors import RegelateError
from regelate.operations.compact import CompactOutcome, Status
from regelate.operations.write import WriteResult
from tests.simulation.catalog import CatalogKind
from tests.simulation.photograph import Broken, photograph
from tests.simulation.scheduler import State
from tests.simulation.service import PLAIN, Request
from tests.simulation.store import PlainIO

if TYPE_CHECKING:
    from tests.simulation.world import Hand, World

ROUNDS = 4


def judge_answer(hand: Hand) -> None:
    """Success means that the run is in the table; an error, but for COMMIT_STATE_UNKNOWN, that it never will be."""
    actor, world = hand.actor, hand.world
    if actor.state is State.CRASHED:
        return
    if actor.error is not None and not (actor.is_ours and isinstance(actor.error, RegelateError)):
        raise Broken(f"{actor.name} raised {type(actor.error).__name__}: {actor.error}") from actor.error
    if not actor.is_ours:
        world.events[f"answer {'done' if actor.answer else 'nothing to do'} (others)"] += 1
        return
    if isinstance(actor.error, RegelateError):
        world.events[f"answer {actor.error.code} ({world.kind.value})"] += 1
    if actor.kind in ("write", "compact"):
        _judge_commit(hand)
    elif actor.error is None:
        world.events[f"answer {actor.kind} done"] += 1
    _judge_leaks(hand)


def _judge_commit(hand: Hand) -> None:
    actor, auditor = hand.actor, hand.world.auditor
    assert hand.request is not None
    own = auditor.landed.get(actor.name, [])
    run = auditor.landed.get(hand.request.run_id, [])
    if isinstance(actor.error, RegelateError):
        if own and not actor.error.keeps_files:
            raise Broken(f"{actor.name} answered {actor.error}, and landed as {own}") from actor.error
        return
    answer = actor.answer
    assert isinstance(answer, CompactOutcome | WriteResult)
    if isinstance(answer, CompactOutcome):
        hand.world.events[f"answer {answer.status.value} (compact)"] += 1
        hand.world.events["groups dropped"] += sum("was dropped" in w for w in answer.warnings)
        hand.world.events["groups left out"] += sum("was left out" in w for w in answer.warnings)
        hand.world.events["lies refused"] += bool(hand.engine and hand.engine.lied)
    else:
        hand.world.events["answer written"] += 1
    if answer.snapshot_id is None and own:
        raise Broken(f"{actor.name} says that it committed nothing, and landed as {own}")
    if answer.snapshot_id is not None and answer.snapshot_id not in [found.snapshot_id for found in run]:
        raise Broken(f"{actor.name} says that it landed as {answer.snapshot_id}; the table has {run}")


def _judge_leaks(hand: Hand) -> None:
    """What an operation made and did not commit is gone when it answers, unless nobody could know (law 8)."""
    actor = hand.actor
    if actor.failed_deletes or (isinstance(actor.error, RegelateError) and actor.error.keeps_files):
        return
    left = [path for path in hand.world.auditor.unreferenced(actor.name) if "/regelate/" not in path]
    if actor.unknown_attempts:  # metadata files of an attempt of unknown outcome stay
        left = [path for path in left if "/data/" in path]
    if left:
        raise Broken(f"{actor.name} left {left[:3]} behind (answer: {actor.error or actor.answer})")


def judge_end(world: World) -> None:
    """Compact until nothing is left to do (law 11), then read everything again, with PyIceberg's own reader too."""
    for number in range(ROUNDS):
        answer = world.request("compact", Request(f"last-{number}", f"{world.seed}/last", policy=PLAIN))
        assert isinstance(answer, CompactOutcome)
        if answer.status is Status.NOTHING_TO_DO:
            break
    else:
        raise Broken(f"still something to compact after {ROUNDS} rounds: law 11")
    _read_again(world)


def _read_again(world: World) -> None:
    server, auditor, io = world.server, world.auditor, PlainIO(world.store)
    metadata = TableMetadataUtil.parse_raw(world.store.get(server.location).decode())
    if metadata != server.metadata:
        raise Broken("the metadata in the store is not what the catalog says")
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    kept = [s for s in metadata.snapshots if s.snapshot_id in named or server.kind is not CatalogKind.HEAD_ONLY]
    reader = ManifestReader()
    for snapshot in kept:
        again = photograph(metadata, snapshot, world.store, io, reader)
        before = auditor.photographs[snapshot.snapshot_id]
        if again.visible != before.visible or again.paths != before.paths:
            raise Broken(f"snapshot {snapshot.snapshot_id} is not what it was")
    head = metadata.current_snapshot()
    if head is not None:
        seen = auditor.photographs[head.snapshot_id]
        native = {
            (entry.data_file.file_path, entry.sequence_number)
            for manifest in head.manifests(io)
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
        }
        ours = {(f.path, f.sequence_number) for f in (*seen.data_files.values(), *seen.delete_files.values())}
        if native != ours:
            raise Broken(f"PyIceberg reads another table: {sorted(native ^ ours)[:3]}")
