"""A rewrite that looks up between its groups: is there time for another one, and does anybody want it to stop?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from regelate.core.planning.plan import FileGroup
from regelate.core.policy.policy import CompactionPolicy, PlacementPolicy
from regelate.core.running.rewrite import RewriteResult
from regelate.core.running.waves import COMMIT_PER_PLAN, group_seconds, next_wave, pace, usable_seconds, wave_limit
from regelate.errors import RegelateError
from regelate.operations.compacting.rewriting import rewrite_groups
from regelate.ports.clock import Clock
from regelate.ports.engine import Progress, RewriteEngine

WAVE_SECONDS = 5.0
LEAST_TO_EXPIRE_SECONDS = 1.0


class Stop(StrEnum):
    """Why groups were not begun."""

    TIME_BUDGET = "TIME_BUDGET"
    """They would not have ended in time; a resume token takes them up."""
    STOPPING = "STOPPING"
    """The worker is being shut down; likewise."""
    CANCELLED = "CANCELLED"
    """Somebody cancelled the job: nothing more of it is committed."""


class Watcher(Protocol):
    """Is told how many of all groups are done, before the first wave and after each; may want the run to stop.

    Raises where the run must not commit any more.
    """

    def passed(self, done: int, total: int) -> Stop | None: ...


class NobodyWatches:
    """Implements Watcher."""

    def passed(self, done: int, total: int) -> Stop | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """How a run is cut between groups. Times are seconds of the monotonic clock.

    `until`: rewriting must have ended by then; `ends_at`: so must everything, because the process does. `in_parts`: a
    plan that does not fit as a whole is begun all the same, and ends with groups left over.
    """

    until: float | None = None
    ends_at: float | None = None
    in_parts: bool = False
    wave_seconds: float = WAVE_SECONDS
    watcher: Watcher | None = None

    def within(self, seconds: float, now: float) -> Pacing:
        """Return the same with so many seconds from now on; a part of them is kept for verifying and committing."""
        return replace(self, until=now + usable_seconds(seconds), ends_at=now + seconds)

    def after_plan(self, plan_seconds: float, now: float, *, read_again: bool = False) -> Pacing:
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


AT_ONCE = Pacing()
"""Without a look up."""


@dataclass
class Paced:
    """What became of the groups. Those `left` were never begun, and `stopped` says why."""

    results: list[RewriteResult] = field(default_factory=list)
    failed: list[tuple[FileGroup, RegelateError]] = field(default_factory=list)
    left: tuple[FileGroup, ...] = ()
    stopped: Stop | None = None


def rewrite_paced(
    paced: Paced,
    engine: RewriteEngine,
    groups: Sequence[FileGroup],
    policy: CompactionPolicy,
    placement: PlacementPolicy,
    clock: Clock,
    pacing: Pacing,
    progress: Progress | None = None,
) -> None:
    """Rewrite groups in waves while they fit into the time, all at once where nobody looks up.

    A run in parts also keeps to `max_in_process_bytes` for all of its waves. Where nothing fits, not even the first
    group, all are `left`. What is done is in `paced` also when the watcher raises: its files are the caller's.
    """
    if not pacing.looks_up:
        paced.results, paced.failed = rewrite_groups(engine, groups, policy, progress)
        return
    watcher = pacing.watcher or NobodyWatches()
    waiting, started, estimated = list(groups), clock.monotonic(), 0.0
    bytes_left = placement.max_in_process_bytes if pacing.in_parts else None
    next_index = max((group.index for group in groups), default=0) + 1
    while True:
        paced.left = tuple(waiting)
        asked = watcher.passed(len(groups) - len(waiting), len(groups))
        if not waiting and asked is not Stop.CANCELLED:
            return
        if asked is not None:
            paced.stopped = asked
            return
        now = clock.monotonic()
        seconds_left = None if pacing.until is None else pacing.until - now
        wave = next_wave(
            waiting,
            threads=placement.threads,
            wave_seconds=wave_limit(pacing.wave_seconds, seconds_left, measured=estimated > 0),
            seconds_left=seconds_left,
            bytes_left=bytes_left,
            pace=pace(estimated, now - started),
        )
        if not wave:
            paced.stopped = Stop.TIME_BUDGET
            return
        results, failed = rewrite_groups(engine, wave, policy, first_free_index=next_index)
        next_index += 2 * len(wave)
        paced.results += results
        paced.failed += failed
        taken = {group.index for group in wave}
        waiting = [group for group in waiting if group.index not in taken]
        estimated += sum(group_seconds(group, placement.threads) for group in wave)
        bytes_left = None if bytes_left is None else bytes_left - sum(group.size_bytes for group in wave)
        if progress is not None:
            progress(len(groups) - len(waiting), len(groups))
