"""What the service is asked to clean up: expiry and its undo, orphan files, manifests, dangling deletes, the sweep."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from regelate.adapters.iceberg.cleanup.dead_runs import TableLedgers
from regelate.core.policy.policy import RetentionPolicy
from regelate.operations.upkeep.cleaning import (
    DanglingRemoved,
    ManifestsRewritten,
    OrphansRemoved,
    remove_dangling_deletes,
    remove_orphan_files,
    rewrite_manifests,
)
from regelate.operations.upkeep.expire import Expired, ExpiryTools, Undone, expire_snapshots, undo_expiry
from regelate.operations.upkeep.sweep import SweptTable, sweep_table
from tests.system.simulation.scheduler import HOUR_MS, ActorClock
from tests.system.simulation.session import IDENT, LIVES_SECONDS, Request, Session

if TYPE_CHECKING:
    from tests.system.simulation.world import Hand

ORPHAN_AGE_MS = 24 * HOUR_MS
"""Older than any run of a seed gets: hours pass one by one, or thirty at once, which ends whoever holds files."""
LAST_ORPHAN_AGE_MS = 1


def expiry(hand: Hand, request: Request) -> Expired:
    session = Session(hand)
    assert request.retention is not None
    clock = ActorClock(hand.world.scheduler, hand.actor)
    with session.run():
        done = expire_snapshots(_tools(session, clock), request.retention)
    if done.undo_id is not None:
        hand.world.undo_ids.append(done.undo_id)
    if done.undo_until_ms is not None:
        hand.world.auditor.promise(done.snapshot_ids, done.undo_until_ms)
    return done


def _tools(session: Session, clock: ActorClock) -> ExpiryTools:
    return ExpiryTools(committer=session.committer, reclaimer=session.reclaimer, clock=clock)


def undo(hand: Hand, request: Request) -> Undone:
    session = Session(hand)
    clock = ActorClock(hand.world.scheduler, hand.actor)
    with session.run():
        return undo_expiry(_tools(session, clock), request.rng.choice(hand.world.undo_ids))


def orphan_removal(hand: Hand, request: Request) -> OrphansRemoved:
    session = Session(hand)
    age = LAST_ORPHAN_AGE_MS if hand.world.weather.is_over else ORPHAN_AGE_MS
    with session.run():
        return remove_orphan_files(session.orphans, older_than_ms=age, dry_run=request.rng.random() < 0.1)


def manifest_rewrite(hand: Hand, request: Request) -> ManifestsRewritten:
    session = Session(hand)
    clock = ActorClock(hand.world.scheduler, hand.actor)
    target = session.manifest_target_bytes
    with session.run():
        return rewrite_manifests(session.committer, clock, target_size_bytes=target, run_id=request.run_id)


def dangling_deletes(hand: Hand, request: Request) -> DanglingRemoved:
    session = Session(hand)
    clock = ActorClock(hand.world.scheduler, hand.actor)
    with session.run():
        return remove_dangling_deletes(session.committer, clock, run_id=request.run_id)


def sweep(hand: Hand, request: Request) -> SweptTable:
    session = Session(hand)
    ledgers = TableLedgers(hand.catalog, IDENT, session.manifest_reader)
    with session.run():
        return sweep_table(IDENT, ledgers, session.reclaimer, longest_run_seconds=LIVES_SECONDS)


def retention(rng: random.Random, *, tiny: bool) -> RetentionPolicy:
    """`tiny`: everything that may go goes at once; else what is older than an hour or two."""
    return RetentionPolicy(
        max_snapshot_age_ms=1 if tiny else rng.choice((1, 2, 6)) * HOUR_MS,
        min_snapshots_to_keep=rng.choice((1, 1, 1, 3)),
        max_ref_age_ms=rng.choice((2**63 - 1, 3 * HOUR_MS)),
        grace_ms=rng.choice((0, HOUR_MS, 8 * HOUR_MS, 8 * HOUR_MS)),
    )
