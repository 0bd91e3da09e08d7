"""How many files come out, and how candidates are cut into groups without changing their order.

Two rules are Iceberg's, number by number (1.10: `SizeBasedFileRewritePlanner`, `BinPacking.ListPacker`); the others
build on them so that what a rewrite leaves behind is not rewritten again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

from regelate.core.planning.selection import Reason
from regelate.core.planning.splicing import Fate
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.table import FileScanTask
from regelate.core.values import dataclass

T = TypeVar("T")

SIZE_ERROR = 0.1
"""An output may turn out this much smaller or larger than predicted and must still not be a candidate again."""
CUT_ERROR = 0.2
"""Outputs of one group are even only to this share: cuts between them move to file borders that are near enough."""
MAX_OVER_CAP = 200
"""A group of tiny files may hold so many times the file cap, when that spares it from leaving a small file behind.

The cap bounds what one scan binds (trap T13: memory for every input file); the engine reads a larger group in several
scans, so memory is bounded.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One selected file, what it is likely to weigh after the rewrite, and whether it is work even when alone.

    `size_ratio`: what recoding is expected to make of a byte of it; `likely_fate`: whether it is recoded at all.
    """

    task: FileScanTask
    reason: Reason
    predicted_bytes: int
    required: bool
    size_ratio: float = 1.0
    likely_fate: Fate = Fate.NOT_HERE

    @property
    def size_bytes(self) -> int:
        return self.task.data_file.size_bytes


def write_max_file_size(policy: CompactionPolicy) -> int:
    """Return the size in bytes up to which a writer may go: target + half of the way to max, as Iceberg has it.

    It keeps a group of 500 MB that comes out as 530 MB from becoming one file of 512 MB and one of 18 MB.
    """
    return int(policy.target_file_size_bytes + (policy.max_file_size_bytes - policy.target_file_size_bytes) * 0.5)


def expected_output_files(total_bytes: int, policy: CompactionPolicy) -> int:
    """Return into how many files Iceberg would write this many bytes.

    A remainder above `min` is a file of its own; a smaller one is spread over the others while they stay below 1.1 x
    target (10.1 GB become ten files of 1.01 GB, not eleven).
    """
    target = policy.target_file_size_bytes
    if total_bytes < target:
        return 1
    whole, remainder = divmod(total_bytes, target)
    if remainder > policy.min_file_size_bytes:
        return whole + 1
    if total_bytes // whole < min(1.1 * target, float(write_max_file_size(policy))):
        return whole
    return whole + (1 if remainder else 0)


def output_files(predicted_bytes: int, policy: CompactionPolicy) -> int:
    """Return into how many files a group is written: Iceberg's count, or one less where its pieces came out small.

    Iceberg writes 1.2 x target as two files of 0.6 x target, both candidates again. One file fewer is taken when the
    pieces would lie within `CUT_ERROR` of `min`, and the larger ones lie farther inside min..max and stay below max
    even if the prediction is off: two files that come out small stay as they are, a large one is split again.
    """
    count = expected_output_files(predicted_bytes, policy)
    piece = predicted_bytes / count
    if count == 1 or piece * (1 - CUT_ERROR) >= policy.min_file_size_bytes:
        return count
    larger = predicted_bytes / (count - 1)
    safe = larger * (1 + SIZE_ERROR) <= policy.max_file_size_bytes
    return count - 1 if safe and _slack(larger, policy) > _slack(piece, policy) else count


def _slack(size: float, policy: CompactionPolicy) -> float:
    """Return by which factor a size may be wrong, up or down, before it leaves min..max."""
    return min(size / max(policy.min_file_size_bytes, 1), policy.max_file_size_bytes / max(size, 1.0))


def right_sized(predicted_bytes: int, policy: CompactionPolicy) -> bool:
    """Say whether a group of this predicted size leaves only right-sized files, even if the prediction is off."""
    piece = predicted_bytes / output_files(predicted_bytes, policy)
    low = min(policy.min_file_size_bytes / (1 - SIZE_ERROR), float(policy.target_file_size_bytes))
    return low <= piece <= max(policy.max_file_size_bytes / (1 + SIZE_ERROR), float(policy.target_file_size_bytes))


def pack(
    items: Sequence[T],
    weight: Callable[[T], int],
    *,
    max_weight: int,
    max_items: int,
    complete: Callable[[int, int], bool] = lambda start, stop: True,
) -> tuple[tuple[T, ...], ...]:
    """Pack items in their order into bins of at most `max_weight` and `max_items`; a heavier item has its own bin.

    Iceberg's `ListPacker` with a lookback of 1 and `largestBinFirst` false: an item that does not fit closes the bin,
    so neighbours stay neighbours. A bin full by items stays open until `complete(start, stop)` says yes for its range.
    """
    edges = [0]
    total = 0
    for index, item in enumerate(items):
        size, start = weight(item), edges[-1]
        if index > start and (total + size > max_weight or (index - start >= max_items and complete(start, index))):
            edges.append(index)
            total = 0
        total += size
    return tuple(tuple(items[a:b]) for a, b in pairwise((*edges, len(items))) if a < b)


def cut_groups(candidates: Sequence[Candidate], policy: CompactionPolicy) -> tuple[tuple[Candidate, ...], ...]:
    """Cut one partition's candidates, in their order, into groups, so that at most the last one leaves a small file.

    Within the byte cap always; above the file cap (up to `MAX_OVER_CAP` times) only while the group would come out
    small. A small last group is evened out with the one before it, or joins it.
    """
    sums = (0, *accumulate(c.predicted_bytes for c in candidates))

    def complete(start: int, stop: int) -> bool:
        limit = policy.max_files_per_group * MAX_OVER_CAP
        return stop - start >= limit or right_sized(sums[stop] - sums[start], policy)

    groups = pack(
        candidates,
        lambda c: c.size_bytes,
        max_weight=policy.max_file_group_size_bytes,
        max_items=policy.max_files_per_group,
        complete=complete,
    )
    if len(groups) < 2 or right_sized(predicted(groups[-1]), policy):
        return groups
    return (*groups[:-2], *_even_out(groups[-2], groups[-1], policy))


def predicted(group: Iterable[Candidate]) -> int:
    return sum(c.predicted_bytes for c in group)


def _even_out(
    before: tuple[Candidate, ...], last: tuple[Candidate, ...], policy: CompactionPolicy
) -> tuple[tuple[Candidate, ...], ...]:
    """Turn the last two groups into two that come out right, or into one, or leave them."""
    both = before + last
    half = predicted(both) / 2
    sums = tuple(accumulate(c.predicted_bytes for c in both))
    middle = 1 + min(range(len(both) - 1), key=lambda i: abs(sums[i] - half))
    left, right = both[:middle], both[middle:]
    if all(_fits(part, policy, 1) and right_sized(predicted(part), policy) for part in (left, right)):
        return left, right
    if _fits(both, policy, MAX_OVER_CAP) and output_files(predicted(both), policy) == 1:
        return (both,)
    return before, last


def _fits(group: Sequence[Candidate], policy: CompactionPolicy, times: int) -> bool:
    size = sum(c.size_bytes for c in group)
    return size <= policy.max_file_group_size_bytes and len(group) <= policy.max_files_per_group * times
