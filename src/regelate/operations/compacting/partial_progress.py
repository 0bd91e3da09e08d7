"""A rewrite that looks up between its groups: is there time for another one, and does anybody want it to stop?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from regelate.core.jobs.job import PAID_UP
from regelate.core.planning.plan import FileGroup
from regelate.core.policy.policy import CompactionPolicy, PlacementPolicy
from regelate.core.running.batches import (
    COMMIT_PER_PLAN,
    batch_limit,
    correction,
    group_seconds,
    next_batch,
    usable_seconds,
)
from regelate.core.running.rewrite import RewriteResult
from regelate.errors import RegelateError
from regelate.operations.compacting.rewriting import rewrite_groups
from regelate.ports.clock import Clock
from regelate.ports.engine import Progress, RewriteEngine

BATCH_SECONDS = 5.0
LEAST_TO_EXPIRE_SECONDS = 1.0


class Stop(StrEnum):
    """Why groups were not begun."""

    TIME_BUDGET = "TIME_BUDGET"
    """They would not have ended in time; a resume token takes them up."""
    STOPPING = "STOPPING"
    """The worker is being shut down; likewise."""
    PRICE = PAID_UP
    """The job has taken the seconds that were paid for; nothing takes them up."""
    CANCELLED = "CANCELLED"
    """Somebody cancelled the job: nothing more of it is committed."""


class Watcher(Protocol):
    """Is told how many of all groups are done, before the first batch and after each; may want the run to stop.

    Raises where the run must not commit any more.
    """

    def passed(self, done: int, total: int) -> Stop | None: ...


class NobodyWatches:
    """Implements Watcher."""

    def passed(self, done: int, total: int) -> Stop | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialProgress:
    """How far a run gets with its groups, and who may stop it between two. Times are seconds of the monotonic clock.

    `until`: rewriting must have ended by then; `ends_at`: so must everything, because the process does. `enabled`
    (Iceberg's `partial-progress.enabled`): a plan that does not fit as a whole is begun all the same, and ends with
    groups left over.
    """

    until: float | None = None
    ends_at: float | None = None
    enabled: bool = False
    batch_seconds: float = BATCH_SECONDS
    watcher: Watcher | None = None

    def within(self, seconds: float, now: float) -> PartialProgress:
        """Return the same with so many seconds from now on; a part of them is kept for verifying and committing."""
        return replace(self, until=now + usable_seconds(seconds), ends_at=now + seconds)

    def after_plan(self, plan_seconds: float, now: float, *, read_again: bool = False) -> PartialProgress:
        """Return the same with time kept for the commit by how long the plan took, as both read the same metadata.

        `read_again`: what is rewritten will be read once more to verify it, which takes about as long.
        """
        if self.until is None or self.ends_at is None:
            return self
        until = min(self.until, self.ends_at - plan_seconds * COMMIT_PER_PLAN)
        return replace(self, until=now + (until - now) / 2 if read_again else until)

    def patience_seconds(self, wanted: float, now: float) -> float:
        """Return how long a commit may go on losing races: as long as wanted, but not to the end of the process."""
        return wanted if self.ends_at is None else max(min(wanted, (self.ends_at - now) / 2), 0.0)

    def expire_until(self, commit_seconds: float) -> float | None:
        """Return when to look up for the last time while expiring.

        What is under way then is a commit at most, with a list before it and a look after it: twice a commit's time.
        """
        return None if self.ends_at is None else self.ends_at - max(2 * commit_seconds, LEAST_TO_EXPIRE_SECONDS)

    @property
    def looks_up(self) -> bool:
        return self.until is not None or self.watcher is not None


AT_ONCE = PartialProgress()
"""Without a look up."""


@dataclass
class BatchesDone:
    """What became of the groups. Those `left` were never begun, and `stopped` says why."""

    results: list[RewriteResult] = field(default_factory=list)
    failed: list[tuple[FileGroup, RegelateError]] = field(default_factory=list)
    left: tuple[FileGroup, ...] = ()
    stopped: Stop | None = None


def rewrite_in_batches(
    batches: BatchesDone,
    engine: RewriteEngine,
    groups: Sequence[FileGroup],
    policy: CompactionPolicy,
    placement: PlacementPolicy,
    clock: Clock,
    partial_progress: PartialProgress,
    progress: Progress | None = None,
) -> None:
    """Rewrite groups in batches while they fit into the time, all at once where nobody looks up.

    With partial progress it also keeps to `max_in_process_bytes` for all of its batches. Where nothing fits, not even
    the first group, all are `left`. What is done is in `batches` also when the watcher raises: its files are the
    caller's.
    """
    if not partial_progress.looks_up:
        batches.results, batches.failed = rewrite_groups(engine, groups, policy, progress)
        return
    watcher = partial_progress.watcher or NobodyWatches()
    waiting, started, estimated = list(groups), clock.monotonic(), 0.0
    bytes_left = placement.max_in_process_bytes if partial_progress.enabled else None
    next_index = max((group.index for group in groups), default=0) + 1
    while True:
        batches.left = tuple(waiting)
        asked = watcher.passed(len(groups) - len(waiting), len(groups))
        if not waiting and asked is not Stop.CANCELLED:
            return
        if asked is not None:
            batches.stopped = asked
            return
        now = clock.monotonic()
        seconds_left = None if partial_progress.until is None else partial_progress.until - now
        batch = next_batch(
            waiting,
            threads=placement.threads,
            batch_seconds=batch_limit(partial_progress.batch_seconds, seconds_left, measured=estimated > 0),
            seconds_left=seconds_left,
            bytes_left=bytes_left,
            correction=correction(estimated, now - started),
        )
        if not batch:
            batches.stopped = Stop.TIME_BUDGET
            return
        results, failed = rewrite_groups(engine, batch, policy, first_free_index=next_index)
        next_index += 2 * len(batch)
        batches.results += results
        batches.failed += failed
        taken = {group.index for group in batch}
        waiting = [group for group in waiting if group.index not in taken]
        estimated += sum(group_seconds(group, placement.threads) for group in batch)
        bytes_left = None if bytes_left is None else bytes_left - sum(group.size_bytes for group in batch)
        if progress is not None:
            progress(len(groups) - len(waiting), len(groups))
