"""Groups that other writers changed, and those whose files they took away while these were read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from regelate.core.planning.plan import CompactionPlan, FileGroup
from regelate.core.running.conflict import DroppedGroup, judge
from regelate.core.table.table import TableSnapshot
from regelate.errors import Conflict, DataUnavailable, RegelateError
from regelate.operations.compacting.planning import plan_changed
from regelate.ports.commit import HeadReader

log = logging.getLogger(__name__)
Failed = list[tuple[FileGroup, RegelateError]]


def taken_away(
    heads: HeadReader, snapshot: TableSnapshot, failed: Sequence[tuple[FileGroup, RegelateError]]
) -> tuple[tuple[DroppedGroup, ...], Failed]:
    """Look at the head, where files could not be read: return the groups that are in conflict with it, and the others.

    A file that the table no longer has is nobody's fault: its group is dropped like any that another writer changed.

    Errors: Conflict where the head does not follow from the planning snapshot any more.
    """
    groups = [group for group, error in failed if isinstance(error, DataUnavailable)]
    if not groups:
        return (), list(failed)
    try:
        heads.head()
        verdict = judge(groups, heads.window(snapshot, groups))
    except Conflict:
        raise
    except RegelateError as error:  # whoever commits next says so, where anything is left to commit
        log.warning("cannot see whether files that could not be read are still in the table: %s", error)
        return (), list(failed)
    indexes = {dropped.group.index for dropped in verdict.dropped}
    return verdict.dropped, [(group, error) for group, error in failed if group.index not in indexes]


def still_standing(
    heads: HeadReader, snapshot: TableSnapshot, plan: CompactionPlan
) -> tuple[CompactionPlan, tuple[DroppedGroup, ...]]:
    """Return an earlier plan without the groups that the head last seen has changed, and those. Nothing is rewritten.

    Errors: Conflict PLAN_CHANGED where no group is left; where the head does not follow from the plan's snapshot.
    """
    verdict = judge(plan.groups, heads.window(snapshot, plan.groups))
    if not verdict.kept:
        raise plan_changed(f"other commits changed all {len(plan.groups)} groups of {plan.plan_id} since it was made")
    return replace(plan, groups=verdict.kept), verdict.dropped


def all_changed(dropped: Sequence[DroppedGroup]) -> Conflict:
    return Conflict(
        "COMMIT_CONFLICT",
        f"other writers changed all {len(dropped)} groups meanwhile; plan again",
        dropped=[dropped_text(d) for d in dropped[:10]],
    )


def dropped_text(dropped: DroppedGroup) -> str:
    where = dropped.group.partition.path or "unpartitioned"
    return f"group {dropped.group.index} ({where}) was dropped: {dropped.code.value} ({dropped.path})"
