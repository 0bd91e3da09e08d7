"""Which small files of a partition a WRITE takes along into its own commit (`regelate.write.optimized`).

A rule that took every small file would write what it took again at each request: the bytes grow with the number of
requests. So a file joins only while what is written anyway has grown near to its size (ADR 0019 measures this rule
beside others).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from regelate.core.policy.targets import reached_its_target
from regelate.core.table.table import FileScanTask, Partition
from regelate.core.values import dataclass

GROWTH = 2
"""A file joins while it has at most so many times the bytes of what is written before it. So what stays behind is more
than twice as large as what was made, and a byte is not written again before half as much has come to it."""
SMALL_SHARE = 0.75
"""Of the target: larger files are no small ones, as in Iceberg's planner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One partition that a request writes to. `own_bytes`: what it writes there anyway; `others`: live files that it
    does not touch."""

    partition: Partition
    own_bytes: int
    others: tuple[FileScanTask, ...]


def is_takable(task: FileScanTask, target_bytes: int) -> bool:
    """Say whether a file may be taken along at all.

    Not one that is large enough, for the target that it was made for or for this one; nor one with deletes, which a
    COMPACT reads through; nor one that declares an order of its rows, which the file that it became would not have.
    """
    file = task.data_file
    small = file.size_bytes < SMALL_SHARE * target_bytes and not reached_its_target(file.path, file.size_bytes)
    return small and not task.deletes and not file.sort_order_id and file.file_format == "PARQUET"


def taken_along(
    places: Sequence[Place], *, spec_id: int, target_bytes: int, max_bytes: int
) -> dict[Partition, tuple[FileScanTask, ...]]:
    """Return the files to take along, by partition: smallest first, until the output would be more than the target.

    `max_bytes` bounds them all; partitions with fewer bytes to take come first, so that as many as may be have theirs.
    Partitions of another spec than `spec_id` have none, nor has a file that the table lists twice.
    """
    wanted = [
        (place, _joining(place, target_bytes))
        for place in places
        if place.partition.spec_id == spec_id and place.own_bytes < target_bytes
    ]
    wanted.sort(key=lambda found: (sum(map(_size, found[1])), found[0].partition.key))
    taken: dict[Partition, tuple[FileScanTask, ...]] = {}
    left = max_bytes
    for place, files in wanted:
        fitting: list[FileScanTask] = []
        for task in files:
            if _size(task) > left:
                break
            left -= _size(task)
            fitting.append(task)
        if fitting:
            taken[place.partition] = tuple(fitting)
    return taken


def _joining(place: Place, target_bytes: int) -> tuple[FileScanTask, ...]:
    listed = Counter(task.data_file.path for task in place.others)
    takable = [t for t in place.others if is_takable(t, target_bytes) and listed[t.data_file.path] == 1]
    joined: list[FileScanTask] = []
    written = place.own_bytes
    for task in sorted(takable, key=lambda t: (_size(t), t.data_file.path)):
        if _size(task) > GROWTH * written or written + _size(task) > target_bytes:
            break
        written += _size(task)
        joined.append(task)
    return tuple(joined)


def _size(task: FileScanTask) -> int:
    return task.data_file.size_bytes
