"""Cuts one file group into contiguous slices, one per output file, at file borders where they are near enough."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from regelate.core.planning.plan import FileGroup
from regelate.core.planning.splicing import is_small
from regelate.core.table.table import FileScanTask
from regelate.core.values import dataclass

BORDER_TOLERANCE = 0.1
"""A cut moves to the nearest file border when that changes the output's size by at most this share of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Whole tasks but for the first, read from `first_row`, and the last, read up to `end_row` (None: to its end).

    `first_task`: where they begin among the group's. A table may list a file twice, so they cannot be looked for there.
    """

    group: FileGroup
    tasks: tuple[FileScanTask, ...]
    first_task: int = 0
    first_row: int = 0
    end_row: int | None = None

    @property
    def size_bytes(self) -> int:
        """Input bytes of this slice, pro rata by rows where a file is cut."""
        total = 0.0
        for index, task in enumerate(self.tasks):
            rows = task.data_file.record_count
            low = self.first_row if index == 0 else 0
            high = rows if index < len(self.tasks) - 1 or self.end_row is None else self.end_row
            total += task.data_file.size_bytes * ((high - low) / rows if rows else 1.0)
        return int(total)

    @property
    def rows(self) -> int:
        whole = sum(t.data_file.record_count for t in self.tasks)
        tail = self.tasks[-1].data_file.record_count
        return whole - self.first_row - (0 if self.end_row is None else tail - self.end_row)

    def size_ratio(self, index: int) -> float:
        """Return what recoding is expected to make of a byte of one of its files."""
        ratios = self.group.size_ratios
        return ratios[self.first_task + index] if ratios else 1.0

    def parted(self, count: int) -> tuple[Slice | None, Slice | None]:
        """Return its part in the first `count` files of the group, and its part in the others."""
        at = min(max(count - self.first_task, 0), len(self.tasks))
        if at == len(self.tasks):
            return self, None
        if at == 0:
            return None, self
        rest = replace(self, tasks=self.tasks[at:], first_task=self.first_task + at, first_row=0)
        return replace(self, tasks=self.tasks[:at], end_row=None), rest

    def pieces(self, max_files: int, wanted: int) -> tuple[Slice, ...]:
        """Cut this slice into consecutive ones of at most `max_files` files each, of which row groups can be made that
        are worth keeping: `wanted` of them, or as many as it takes. One alone where that cannot be.
        """
        least = -(-len(self.tasks) // max_files)
        for count in range(max(least, wanted), max(least, 2) - 1, -1):
            found = self.scans(-(-len(self.tasks) // count))
            if not any(is_small(part.rows, part.size_bytes) for part in found):
                return found
        return (self,)

    def scans(self, max_files: int) -> tuple[Slice, ...]:
        """Cut this slice into consecutive ones of at most `max_files` files each, for reading one after the other."""
        edges = range(0, len(self.tasks), max_files)
        return tuple(
            Slice(
                group=self.group,
                tasks=self.tasks[low : low + max_files],
                first_task=self.first_task + low,
                first_row=self.first_row if low == 0 else 0,
                end_row=self.end_row if low + max_files >= len(self.tasks) else None,
            )
            for low in edges
        )


def group_start(group: FileGroup, size_bytes: float) -> Slice:
    """Return the first files of a group, about `size_bytes` of them; the last one is cut by rows."""
    before = 0
    for number, task in enumerate(group.tasks, start=1):
        size, rows = task.data_file.size_bytes, task.data_file.record_count
        if before + size >= size_bytes:
            end = max(1, int(rows * (size_bytes - before) / size)) if size else rows
            return Slice(group=group, tasks=group.tasks[:number], end_row=min(end, rows))
        before += size
    return Slice(group=group, tasks=group.tasks)


def split(group: FileGroup) -> tuple[Slice, ...]:
    """Return the slices of a group in order; together they hold every row of it exactly once."""
    return _between(group, _cuts(group))


def cut_off(group: FileGroup, sizes: Sequence[int], size_bytes: int) -> tuple[Slice, ...]:
    """Return slices of `size_bytes` in order and one of what is left, by the bytes that each file has in an output.

    As a writer that begins a new file where one is full: at most one of them is smaller, the last.
    """
    borders = [0, *accumulate(sizes)]
    cuts: list[tuple[int, int]] = []
    for at in range(size_bytes, borders[-1], size_bytes):
        index = bisect_right(borders, at) - 1
        rows = group.tasks[index].data_file.record_count
        row = round(rows * (at - borders[index]) / sizes[index])
        cut = (index, row) if row < rows else (index + 1, 0)
        if (0, 0) < cut < (len(group.tasks), 0) and (not cuts or cut > cuts[-1]):
            cuts.append(cut)
    return _between(group, cuts)


def _between(group: FileGroup, cuts: Sequence[tuple[int, int]]) -> tuple[Slice, ...]:
    slices: list[Slice] = []
    edges = [(0, 0), *cuts, (len(group.tasks), 0)]
    for (task, row), (next_task, next_row) in pairwise(edges):
        end = next_task + (1 if next_row else 0)
        slices.append(
            Slice(
                group=group,
                tasks=group.tasks[task:end],
                first_task=task,
                first_row=row,
                end_row=next_row if next_row else None,
            )
        )
    return tuple(slices)


def _cuts(group: FileGroup) -> list[tuple[int, int]]:
    """Return the inner cuts as (task index, row in that task), strictly ascending."""
    sizes = [t.data_file.size_bytes for t in group.tasks]
    borders = [0, *accumulate(sizes)]
    share = borders[-1] / group.expected_output_files
    cuts: list[tuple[int, int]] = []
    for number in range(1, group.expected_output_files):
        cut = _cut(group, borders, number * share, share * BORDER_TOLERANCE)
        if (0, 0) < cut < (len(group.tasks), 0) and (not cuts or cut > cuts[-1]):
            cuts.append(cut)
    return cuts


def _cut(group: FileGroup, borders: list[int], at: float, tolerance: float) -> tuple[int, int]:
    index = min(bisect_right(borders, at) - 1, len(group.tasks) - 1)
    before, after = at - borders[index], borders[index + 1] - at
    if min(before, after) <= tolerance:
        return (index, 0) if before <= after else (index + 1, 0)
    rows = group.tasks[index].data_file.record_count
    row = round(rows * before / (before + after))
    if 0 < row < rows:
        return (index, row)
    return (index, 0) if row <= 0 else (index + 1, 0)


def halves(group: FileGroup, first_index: int) -> tuple[FileGroup, ...]:
    """Return a group as two of about half its bytes each, cut between files and in their order; none for a lone file.

    They are numbered from `first_index` on. Each is expected to become its share of the group's outputs, at least one.
    """
    borders = list(accumulate(t.data_file.size_bytes for t in group.tasks))
    if len(borders) < 2:
        return ()
    middle = min(range(1, len(borders)), key=lambda cut: abs(borders[cut - 1] - borders[-1] / 2))
    return tuple(
        replace(
            group,
            index=first_index + number,
            tasks=group.tasks[half],
            size_ratios=group.size_ratios[half],
            spliced_bytes=round(group.spliced_bytes * len(group.tasks[half]) / len(group.tasks)),
            expected_output_files=max(
                1, round(group.expected_output_files * len(group.tasks[half]) / len(group.tasks))
            ),
        )
        for number, half in enumerate((slice(middle), slice(middle, None)))
    )
