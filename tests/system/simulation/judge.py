"""Is what the service answered true, and is nothing left of what it did not commit?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regelate.adapters.iceberg.files.ledger import FOLDER as LEDGER
from regelate.errors import RegelateError
from regelate.operations.compacting.compact import CompactOutcome, Status
from regelate.operations.upkeep.cleaning import DanglingRemoved, ManifestsRewritten, OrphansRemoved
from regelate.operations.upkeep.expire import Expired
from regelate.operations.upkeep.sweep import SweptTable
from regelate.operations.write import WriteResult
from tests.system.simulation.jobs import LEASE_SECONDS
from tests.system.simulation.photograph import Broken
from tests.system.simulation.scheduler import Actor, State

if TYPE_CHECKING:
    from tests.system.simulation.world import Hand


def judge_answer(hand: Hand) -> None:
    """Success means that the run is in the table; an error, but for COMMIT_STATE_UNKNOWN, that it never will be."""
    actor, world = hand.actor, hand.world
    if actor.kind in ("job", "job part"):
        _announce_again(hand)
    if actor.state is State.CRASHED:
        world.events["took crash"] += bool(world.store.made_by(actor.name))
        return
    if actor.error is not None and not (actor.is_ours and isinstance(actor.error, RegelateError)):
        raise Broken(f"{actor.name} raised {type(actor.error).__name__}: {actor.error}") from actor.error
    if not actor.is_ours:
        world.events[f"took {actor.kind}"] += bool(actor.answer)
        return
    if isinstance(actor.error, RegelateError):
        world.events[f"answer {actor.error.code} ({world.kind.value})"] += 1
        world.events["took run too old"] += actor.error.code == "RUN_TOO_OLD"
    if actor.kind in ("write", "compact", "branch write", "branch compact"):
        _judge_commit(hand)
    hand.world.events["took job part"] += actor.kind == "job part" and actor.name in hand.world.auditor.landed
    hand.world.events["took hanging worker"] += bool(hand.hang_ms)
    _judge_refs(hand)
    _count_effect(hand)
    _judge_leaks(hand)


def _count_effect(hand: Hand) -> None:
    events, answer = hand.world.events, hand.actor.answer
    events["took lying engine"] += bool(hand.engine and hand.engine.lied)
    match answer:
        case ManifestsRewritten():
            _judge_landed(hand, answer.snapshot_id)
            events["took manifests"] += answer.commits > 0
        case DanglingRemoved():
            _judge_landed(hand, answer.snapshot_id)
            events["took dangling"] += answer.delete_files > 0
        case OrphansRemoved():
            events["took orphans"] += bool(answer.deleted)
        case SweptTable():
            events["took sweep"] += any(e.files_deleted for e in answer.entries)
            events["ran sweep: second phase of an expiry"] += answer.expired.lists + answer.expired.waiting > 0
            events["took sweep: second phase of an expiry"] += answer.expired.files_deleted > 0
            if answer.error is not None:
                events[f"answer {answer.error.code} (sweep)"] += 1


def _judge_landed(hand: Hand, snapshot_id: int | None) -> None:
    own = [found.snapshot_id for found in hand.world.auditor.landed.get(hand.actor.name, [])]
    if own[-1:] != ([snapshot_id] if snapshot_id is not None else []):
        raise Broken(f"{hand.actor.name} says that it landed as {snapshot_id}; the table has {own}")


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
        hand.world.events["took run too old"] += any("RUN_TOO_OLD" in w for w in answer.warnings)
        hand.world.events["took repeated request"] += answer.status is Status.ALREADY_DONE
    else:
        hand.world.events["took repeated request"] += answer.already_done
    hand.world.events[f"took {hand.doing}"] += bool(own)
    if answer.snapshot_id is None and own:
        raise Broken(f"{actor.name} says that it committed nothing, and landed as {own}")
    if answer.snapshot_id is not None and answer.snapshot_id not in [found.snapshot_id for found in run]:
        raise Broken(f"{actor.name} says that it landed as {answer.snapshot_id}; the table has {run}")
    if answer.snapshot_id is not None and not auditor.was_in(hand.request.ref, answer.snapshot_id, actor.since_commit):
        raise Broken(f"{actor.name} says that it landed as {answer.snapshot_id}, which had been rolled back before")


def _announce_again(hand: Hand) -> None:
    """A worker died, and its message comes again; or whoever submitted a job, and somebody submits it again."""
    shelf, request = hand.world.shelf, hand.request
    assert request is not None
    job_id = request.run_id if hand.actor.kind == "job part" else f"job-{request.run_id}"
    record = shelf.records.get(job_id)
    dead = hand.actor.state is State.CRASHED or (hand.actor.kind == "job" and hand.actor.error is not None)
    if dead and record is not None and not record.state.is_final:
        shelf.post(job_id, record.part, LEASE_SECONDS)


def _judge_refs(hand: Hand) -> None:
    """A ref that an expiry took from somebody is named, or the answer says that nobody knows what became of it (T8)."""
    actor = hand.actor
    taken = hand.world.auditor.taken_refs.get(actor.name, set())
    if not taken:
        return
    told = [str(actor.error)] if actor.error is not None else list(getattr(actor.answer, "warnings", ()))
    changed = [text for text in told if "REFS_CHANGED" in text]
    known = any("nobody can say" in text or all(name in text for name in taken) for text in changed)
    hand.world.events["refs taken, and told"] += known
    if not known and not any("COMMIT_STATE_UNKNOWN" in text for text in told):
        raise Broken(f"{actor.name} took {sorted(taken)} and did not say so: {told or actor.answer}")


def _gave_up_its_expiry(actor: Actor) -> bool:
    """After a conflict that no head explained, the run being too old for another attempt, or nothing being left to
    expire: the answer is the compaction's, and what may still be under way is left to a sweep."""
    answer = actor.answer
    if actor.was_turned_away and isinstance(answer, Expired):
        return not answer.snapshot_ids
    if not actor.was_turned_away or not isinstance(answer, CompactOutcome):
        return False
    nothing_left = answer.stats is None or not answer.stats.snapshots_expired
    return nothing_left or any("not expired" in text for text in answer.warnings)


def _judge_leaks(hand: Hand) -> None:
    """What an operation made and did not commit is gone when it answers, unless nobody could know (law 8)."""
    actor = hand.actor
    error = actor.fault or actor.error
    if actor.failed_deletes or (isinstance(error, RegelateError) and error.keeps_files):
        return
    left = hand.world.auditor.unreferenced(actor.name)
    if actor.may_return:  # a conflict that nothing explains is one more who might be under way
        return
    if actor.unknown_attempts:  # metadata files of an attempt of unknown outcome stay
        left = [path for path in left if "/data/" in path]
    if not actor.is_unanswered and not _gave_up_its_expiry(actor):
        left += [path for path in hand.world.store.made_by(actor.name) if LEDGER in path]
    if left:
        raise Broken(f"{actor.name} left {left[:3]} behind (answer: {actor.error or actor.answer})")
