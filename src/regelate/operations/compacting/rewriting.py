"""The rewrite of a plan's groups; one that was too much for this machine is tried once more in two halves."""

from __future__ import annotations

from collections.abc import Sequence

from regelate.core.planning.plan import FileGroup
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.running.rewrite import RewriteResult
from regelate.core.running.slices import halves
from regelate.errors import InvariantViolated, RegelateError
from regelate.ports.engine import Progress, RewriteEngine

RAN_OUT = ("OUT_OF_MEMORY", "LOCAL_STORAGE_FULL")
"""What may do with less at once. Rows that are too wide (ROW_GROUP_TOO_LARGE) stay so in any half."""
Rewritten = tuple[list[RewriteResult], list[tuple[FileGroup, RegelateError]]]


def rewrite_groups(
    engine: RewriteEngine,
    groups: Sequence[FileGroup],
    policy: CompactionPolicy,
    progress: Progress | None = None,
    *,
    first_free_index: int | None = None,
) -> Rewritten:
    """Return the results, and the groups that failed with their errors; nothing is left of those.

    A group that ran out of memory or of local disk is cut in half by its files, and the halves are rewritten one after
    the other, each alone: once, and only where there is more than one file (rows 54 and 55 of the fault catalogue: the
    disk is full, DuckDB runs out of memory). The halves are numbered from `first_free_index` on, by default after the
    groups that are given.
    """
    found, spoiled = engine.rewrite(groups, policy, progress=progress)
    results, failed = list(found), [(group, as_error(error)) for group, error in spoiled]
    next_index = first_free_index or max((group.index for group in groups), default=0) + 1
    for group, error in [f for f in failed if f[1].code in RAN_OUT]:
        smaller = halves(group, next_index)
        if not smaller:
            continue
        next_index += len(smaller)
        failed.remove((group, error))
        for half in smaller:
            try:
                again, spoiled = engine.rewrite([half], policy)
            except Exception as fault:  # noqa: BLE001  outputs of other groups exist: only their caller knows their end
                failed.append((half, as_error(fault)))
                continue
            results += again
            failed += [(left, as_error(error)) for left, error in spoiled]
    return results, failed


def as_error(error: Exception) -> RegelateError:
    """Return an error of ours for any other; what has no name of its own is a bug."""
    if isinstance(error, RegelateError):
        return error
    return InvariantViolated("ENGINE_FAULT", f"{type(error).__name__}: {error}")
