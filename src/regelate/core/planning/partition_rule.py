"""Which partitions a scheduled run takes: the newest closed ones, those with enough small files, or both. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from regelate.core.planning.plan import CompactionPlan, GroupSkip, PlanReason, SkipReason
from regelate.core.table.table import Partition, PartitionTotals
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRule:
    """`newest_closed`: so many of the last time ranges that have ended (1: yesterday, by day).

    `min_small_files`, `min_small_share` (0 to 1, of the partition's files): one of the two is enough.
    """

    newest_closed: int | None = None
    min_small_files: int | None = None
    min_small_share: float | None = None

    def __post_init__(self) -> None:
        for name, count in (("last-partitions", self.newest_closed), ("min-small-files", self.min_small_files)):
            if count is not None and count < 1:
                raise InvalidRequest("INVALID_OPTION", f"{name} = {count}: must be at least 1", option=name)
        share = self.min_small_share
        if share is not None and not 0 < share <= 1:
            rule = "must be above 0 and at most 1"
            raise InvalidRequest("INVALID_OPTION", f"min-small-share = {share}: {rule}", option="min-small-share")

    @property
    def takes_all(self) -> bool:
        return self == PartitionRule()

    def taken(self, totals: Iterable[PartitionTotals], *, now_ms: int) -> frozenset[Partition]:
        """Return the partitions to take. One without a time range is never closed; its range ends exclusively."""
        found = tuple(totals)
        if self.newest_closed is not None:
            ends = {t.partition.ends_at_ms for t in found}
            closed = sorted((end for end in ends if end is not None and end <= now_ms), reverse=True)
            newest = frozenset(closed[: self.newest_closed])
            found = tuple(t for t in found if t.partition.ends_at_ms in newest)
        return frozenset(t.partition for t in found if self._is_small(t))

    def _is_small(self, totals: PartitionTotals) -> bool:
        count, share = self.min_small_files, self.min_small_share
        if count is None and share is None:
            return True
        enough = count is not None and totals.small_files >= count
        return enough or (share is not None and totals.files > 0 and totals.small_files >= share * totals.files)


def narrowed(plan: CompactionPlan, taken: frozenset[Partition]) -> CompactionPlan:
    """Return the plan without the groups of other partitions; each of those is a skip with its reason."""
    left = tuple(g for g in plan.groups if g.partition not in taken)
    if not left:
        return plan
    kept = tuple(g for g in plan.groups if g.partition in taken)
    skips = tuple(
        GroupSkip(partition=g.partition, tasks=g.tasks, reason=SkipReason.PARTITION_BELOW_THRESHOLD) for g in left
    )
    reason = plan.reason if kept else PlanReason.BELOW_THRESHOLD
    return replace(plan, groups=kept, skipped=(*plan.skipped, *skips), reason=reason)
