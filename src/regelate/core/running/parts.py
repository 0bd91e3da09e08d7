"""What one output is made of: row groups of the inputs as they are, and slices between them that are recoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from regelate.core.planning.splicing import Fate, StoredFile, fate, is_small, likely_fate
from regelate.core.policy.policy import CompactionPolicy, Splice
from regelate.core.running.slices import Slice
from regelate.core.table.table import FileScanTask
from regelate.core.values import dataclass
from regelate.errors import InvariantViolated


@dataclass(frozen=True, slots=True, kw_only=True)
class Spliced:
    """Row groups of one file, by their numbers in it, and its rows that they are. `task`: which file of the slice."""

    task: int
    numbers: tuple[int, ...]
    first_row: int
    end_row: int


Part = Slice | Spliced


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file here of which an output is made: an input's row groups by their numbers, in their order; None: a piece
    that was written for this output, as a whole."""

    path: str
    numbers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Makeup:
    """The parts of one output in the order of its rows, the shape that all of them must have, and what became of the
    bytes and why."""

    parts: tuple[Part, ...]
    shape: Hashable
    fates: Mapping[Fate, int]

    @property
    def spliced_bytes(self) -> int:
        return self.fates.get(Fate.SPLICED, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """Rows of one file that have one fate: a row group or what a cut leaves of it, or all that is not looked at."""

    task: int
    first_row: int
    end_row: int
    size_bytes: int
    fate: Fate
    number: int = -1
    shape: Hashable = None

    @property
    def rows(self) -> int:
        return self.end_row - self.first_row

    @property
    def is_spliced(self) -> bool:
        return self.fate is Fate.SPLICED


def makeup(
    whole: Slice,
    files: Sequence[StoredFile | None],
    policy: CompactionPolicy,
    recodable: Sequence[Hashable],
) -> Makeup | None:
    """Say what an output is made of; None where all of it is recoded.

    `files`: what the footers of the slice's files say, None for those that were not looked at. `recodable`: the shapes
    that recoded parts can have, the cheapest first. Rows keep their order, and but for the last no row group comes out
    small, unless `splice: always` or deletes make it so.
    """
    units = [unit for index, file in enumerate(files) for unit in _units(whole, index, file, policy)]
    shapes: Counter[Hashable] = Counter()
    for unit in units:
        if unit.is_spliced:
            shapes[unit.shape] += unit.size_bytes
    if not shapes:
        return None
    shape = next(iter(shapes))
    if len(shapes) > 1 or not all(unit.is_spliced for unit in units):
        shape = max(recodable, key=lambda known: shapes[known], default=None)
        units = [
            replace(unit, fate=Fate.OTHER_SHAPE) if unit.is_spliced and unit.shape != shape else unit for unit in units
        ]
        if policy.splice is not Splice.ALWAYS:
            _absorb(units)
    fates: Counter[Fate] = Counter()
    for unit in units:
        fates[unit.fate] += unit.size_bytes
    if not fates[Fate.SPLICED]:
        return None
    parts = tuple(_parts(whole, units))
    _check(whole, parts)
    return Makeup(parts=parts, shape=shape, fates=dict(fates))


def _units(whole: Slice, index: int, file: StoredFile | None, policy: CompactionPolicy) -> list[_Unit]:
    """Return the units of one file of a slice; none where it has no rows."""
    task = whole.tasks[index]
    rows, size = task.data_file.record_count, task.data_file.size_bytes
    low = whole.first_row if index == 0 else 0
    high = rows if index < len(whole.tasks) - 1 or whole.end_row is None else whole.end_row
    if low >= high:
        return []
    ratio = whole.size_ratio(index)
    if file is not None and file.doubt is None and sum(group.rows for group in file.groups) != rows:
        file = StoredFile(doubt="its footer counts other rows than its manifest")
    if file is None or file.doubt is not None:
        why = likely_fate(task, policy, ratio)
        if why is Fate.SPLICED:
            why = Fate.NOT_HERE if file is None else Fate.SHAPE
        return [_Unit(task=index, first_row=low, end_row=high, size_bytes=size * (high - low) // rows, fate=why)]
    found: list[_Unit] = []
    start = 0
    for number, group in enumerate(file.groups):
        end = start + group.rows
        first, last = max(start, low), min(end, high)
        if first < last:
            why = fate(group, file, task, policy, ratio)
            if why is Fate.SPLICED and (first, last) != (start, end):
                why = Fate.CUT
            found.append(
                _Unit(
                    task=index,
                    first_row=first,
                    end_row=last,
                    size_bytes=group.size_bytes * (last - first) // group.rows,
                    fate=why,
                    number=number,
                    shape=file.shape,
                )
            )
        start = end
    return found


def _absorb(units: list[_Unit]) -> None:
    """Recode the smaller neighbour of every small run between or before spliced row groups along with it."""
    rows = size = 0
    start = 0
    for at, unit in enumerate(units):
        if not unit.is_spliced:
            if rows == size == 0:
                start = at
            rows, size = rows + unit.rows, size + unit.size_bytes
            continue
        if (rows or size) and is_small(rows, size):
            before = units[start - 1] if start and units[start - 1].is_spliced else None
            if before is None or before.size_bytes >= unit.size_bytes:
                units[at] = replace(unit, fate=Fate.NEIGHBOUR)
                rows, size = rows + unit.rows, size + unit.size_bytes
                continue
            units[start - 1] = replace(before, fate=Fate.NEIGHBOUR)
        rows = size = 0


def _parts(whole: Slice, units: Sequence[_Unit]) -> list[Part]:
    found: list[Part] = []
    for spliced, run in groupby(units, key=lambda unit: unit.is_spliced):
        members = list(run)
        if spliced:
            found += [_spliced(index, list(own)) for index, own in groupby(members, key=lambda unit: unit.task)]
        else:
            found.append(_recoded(whole, members[0], members[-1]))
    return found


def _check(whole: Slice, parts: Sequence[Part]) -> None:
    """Prove that parts hold every row of a slice exactly once and in order (law 7: rows are conserved).

    Errors: InvariantViolated SPLICE_DISAGREES.
    """
    at = (0, whole.first_row)
    for part in parts:
        if isinstance(part, Spliced):
            first, last = (part.task, part.first_row), (part.task, part.end_row)
            sound = all(number < later for number, later in pairwise(part.numbers))
        else:
            start = part.first_task - whole.first_task
            first = (start, part.first_row)
            last = (start + len(part.tasks) - 1, _rows(part.tasks, -1) if part.end_row is None else part.end_row)
            sound = part.tasks == whole.tasks[start : last[0] + 1]
        if not sound or first != _next_row(whole, at) or last <= first:
            break
        at = last
    else:
        end = _rows(whole.tasks, -1) if whole.end_row is None else whole.end_row
        if _next_row(whole, at) == _next_row(whole, (len(whole.tasks) - 1, end)):
            return
    raise InvariantViolated(
        "SPLICE_DISAGREES", f"group {whole.group.index}: the parts of an output are not its rows; use splice: never"
    )


def _rows(tasks: Sequence[FileScanTask], index: int) -> int:
    return tasks[index].data_file.record_count


def _next_row(whole: Slice, at: tuple[int, int]) -> tuple[int, int]:
    """Return where the next row lies that there is: at this place, or at the beginning of a later file."""
    task, row = at
    while task < len(whole.tasks) - 1 and row >= _rows(whole.tasks, task):
        task, row = task + 1, 0
    return task, row


def _spliced(index: int, members: Sequence[_Unit]) -> Spliced:
    return Spliced(
        task=index,
        numbers=tuple(unit.number for unit in members),
        first_row=members[0].first_row,
        end_row=members[-1].end_row,
    )


def _recoded(whole: Slice, first: _Unit, last: _Unit) -> Slice:
    end = last.end_row if last.end_row < whole.tasks[last.task].data_file.record_count else None
    return replace(
        whole,
        tasks=whole.tasks[first.task : last.task + 1],
        first_task=whole.first_task + first.task,
        first_row=first.first_row,
        end_row=end,
    )
