"""Which row groups of inputs are copied into an output as they are, and which are recoded: one rule, one reason each.

Splicing is some thirty times cheaper than decoding and encoding, but it leaves a row group as it is: so the small ones
are recoded, and those of which much would be saved.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum

from regelate.core.policy.policy import CompactionPolicy, Splice, Strategy
from regelate.core.table.table import FileScanTask
from regelate.core.values import dataclass

WHOLE_ROWS, WHOLE_BYTES = 100_000, 8 * 1024 * 1024
"""A row group of as many rows, or bytes, reads as fast as a larger one; many smaller ones take up to twice as long."""
LEAST_RATIO = 0.8
"""Bytes out per byte in: where recoding is expected to make less of a file, it is worth its price."""


class Fate(StrEnum):
    """What becomes of a row group, and why."""

    SPLICED = "spliced"
    NEVER = "never"
    """`splice: never`."""
    SORTED = "sorted"
    """Its rows are to be in another order."""
    DELETES = "deletes"
    """Deletes apply to its file."""
    NOT_HERE = "not-here"
    """Its file is not on this machine, or its footer was not looked at."""
    SHAPE = "shape"
    """Its file is not stored as the table's columns are, or is in doubt."""
    CODEC = "codec"
    """It is compressed by another codec than the table's."""
    SMALL = "small"
    GAIN = "gain"
    """Recoding is expected to make much less of it."""
    CUT = "cut"
    """An output ends within it."""
    OTHER_SHAPE = "other-shape"
    """It is stored as the table's columns may be, but not as the rest of the output is."""
    NEIGHBOUR = "neighbour"
    """It keeps company to a small one beside it, which would be a small row group in the middle of the output."""


MIXED = -1
"""In the place of how many values a dictionary has, by which some pages are not encoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """One row group, as a footer tells. `codecs`: of its column chunks, by Iceberg's names; `uncompressed_bytes`: of
    its pages; `dictionaries`: how many values those of its texts have, by the places of the leaf columns, MIXED where
    not all pages are encoded by one."""

    rows: int
    size_bytes: int
    codecs: frozenset[str]
    uncompressed_bytes: int = 0
    dictionaries: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """Where the pages of one column of one row group lie in a file, as its footer tells."""

    name: str
    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """What the footer of an input says. Files of one `shape` may be one file; `doubt`: why it must be recoded."""

    shape: Hashable = None
    groups: tuple[RowGroup, ...] = ()
    doubt: str | None = None


def fate(
    group: RowGroup, file: StoredFile | None, task: FileScanTask, policy: CompactionPolicy, size_ratio: float
) -> Fate:
    """Say what becomes of a row group by itself. `file`: None where nobody looked; `size_ratio`: what recoding is
    expected to make of a byte of it."""
    if policy.splice is Splice.NEVER:
        return Fate.NEVER
    if policy.strategy is Strategy.SORT:
        return Fate.SORTED
    if task.deletes:
        return Fate.DELETES
    if file is None:
        return Fate.NOT_HERE
    if file.doubt is not None:
        return Fate.SHAPE
    if group.codecs != {policy.compression_codec}:
        return Fate.CODEC
    if policy.splice is Splice.ALWAYS:
        return Fate.SPLICED
    if is_small(group.rows, group.size_bytes):
        return Fate.SMALL
    return Fate.GAIN if size_ratio < LEAST_RATIO else Fate.SPLICED


def is_small(rows: int, size_bytes: int) -> bool:
    """Say whether a row group of so many rows and bytes reads slower than a larger one."""
    return rows < WHOLE_ROWS and size_bytes < WHOLE_BYTES


def likely_fate(task: FileScanTask, policy: CompactionPolicy, size_ratio: float) -> Fate:
    """Say what becomes of a file by its manifest alone, as if it were one row group without a doubt."""
    file = task.data_file
    codecs = frozenset((policy.compression_codec,))
    whole = RowGroup(rows=file.record_count, size_bytes=file.size_bytes, codecs=codecs)
    return fate(whole, StoredFile(groups=(whole,)), task, policy, size_ratio)
