"""Which groups are rewritten next, between two looks at the clock: as many as fit into the time that is left."""

from __future__ import annotations

from collections.abc import Sequence

from regelate.core.engines import COST_HERE
from regelate.core.planning.plan import FileGroup
from regelate.core.table.storage import is_remote

LEAST_RESERVE_SECONDS = 2.0
MOST_RESERVE_SECONDS = 60.0
SHARE_IN_RESERVE = 0.1
COMMIT_PER_PLAN = 2.0
"""A commit reads what the plan has read, and writes beside it: so many times as long is kept for it."""
MIN_CORRECTION, MAX_CORRECTION = 0.25, 10.0
"""How far what was measured may correct the estimate: a first group that was cached says little about the next."""
SHARE_UNMEASURED, SHARE_MEASURED = 1 / MAX_CORRECTION, 1 / 2
"""Of the time that is left, how much one batch may be thought to take before and after a first one was measured: a
batch is not stopped halfway, and the estimate of many tiny groups is the least sure."""


def usable_seconds(seconds: float) -> float:
    """Return what is left for rewriting of the time until a process is ended: verifying and committing need some too.

    A tenth, at least 2 and at most 60 seconds are kept for them: of Lambda's 900 seconds 840 are used.
    """
    reserve = min(max(seconds * SHARE_IN_RESERVE, LEAST_RESERVE_SECONDS), MOST_RESERVE_SECONDS)
    return max(seconds - reserve, 0.0)


def correction(estimated_seconds: float, measured_seconds: float) -> float:
    """Return how many seconds a second of the estimate really takes, by the groups done so far."""
    if estimated_seconds <= 0 or measured_seconds <= 0:
        return 1.0
    return min(max(measured_seconds / estimated_seconds, MIN_CORRECTION), MAX_CORRECTION)


def group_seconds(group: FileGroup, threads: int) -> float:
    """Return the cautious estimate for one group."""
    return COST_HERE.seconds_per_group + COST_HERE.seconds(
        group.size_bytes, len(group.tasks), threads=threads, spliced_bytes=spliced_here(group)
    )


def spliced_here(group: FileGroup) -> int:
    """Return how many bytes of a group are sure to be on this machine, and so likely to be spliced.

    Of a remote file it is not known before whether there is room for a copy: it is reckoned to be recoded.
    """
    return 0 if is_remote(group.tasks[0].data_file.path) else group.spliced_bytes


def batch_limit(wanted_seconds: float, seconds_left: float | None, *, measured: bool) -> float:
    """Return how long the next batch of several groups may be thought to take; `seconds_left` None is no limit."""
    if seconds_left is None:
        return wanted_seconds
    return min(wanted_seconds, seconds_left * (SHARE_MEASURED if measured else SHARE_UNMEASURED))


def next_batch(
    groups: Sequence[FileGroup],
    *,
    threads: int,
    batch_seconds: float,
    seconds_left: float | None = None,
    bytes_left: int | None = None,
    correction: float = 1.0,
) -> tuple[FileGroup, ...]:
    """Return the groups to rewrite now, in their order: about `batch_seconds` of work, and at least one group.

    A group that fits neither into `seconds_left` nor into `bytes_left` is passed over for one that does; none that fits
    gives an empty batch. None is no limit.
    """
    taken: list[FileGroup] = []
    seconds, size = 0.0, 0
    for group in groups:
        more = group_seconds(group, threads) * correction
        if taken and seconds + more > batch_seconds:
            break
        if seconds_left is not None and seconds + more > seconds_left:
            continue
        if bytes_left is not None and size + group.size_bytes > bytes_left:
            continue
        taken.append(group)
        seconds, size = seconds + more, size + group.size_bytes
    return tuple(taken)
