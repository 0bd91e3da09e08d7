"""Which files are recoded by a dictionary lane: read as they are stored, texts as dictionaries, and written back so."""

from __future__ import annotations

from collections.abc import Sequence

from regelate.core.planning.splicing import StoredFile
from regelate.core.policy.policy import CompactionPolicy, Strategy
from regelate.core.table.schema import Column
from regelate.core.table.table import FileScanTask
from regelate.core.values import dataclass

LANE_ROWS = 8_000
"""Rows a file, on average, from which a lane pays: opening one takes it as long as reading 5,000 rows."""
LANE_CODECS = frozenset(("zstd", "snappy", "uncompressed"))
"""Of these both writers make as much of the same rows; gzip has other levels."""
TEXTS = frozenset(("string", "binary"))
DICTIONARY_SHARE = 5
"""A column is written as a dictionary where it has at most a fifth as many values as rows, as DuckDB does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """How files of one shape are recoded. `columns`: what they hold, required or not as they have it; `texts`: the
    places of those that are read as dictionaries."""

    columns: tuple[Column, ...]
    texts: tuple[int, ...]


def lane_of(files: Sequence[StoredFile], columns: Sequence[Column], memory_bytes: int) -> Lane | None:
    """Return the lane of files that hold these columns; None where a row group, decoded, may take more memory.

    A value takes eight bytes beside the pages at most: numbers of a dictionary, and where texts begin.
    """
    groups = [group for file in files for group in file.groups]
    if any(group.uncompressed_bytes + 8 * group.rows * len(columns) > memory_bytes for group in groups):
        return None
    stored = groups[0].dictionaries if groups else frozenset[int]()
    texts = tuple(place for place, c in enumerate(columns) if c.type in TEXTS and place in stored)
    return Lane(columns=tuple(columns), texts=texts)


def takes_lane(tasks: Sequence[FileScanTask], columns: Sequence[Column], policy: CompactionPolicy) -> bool:
    """Say, by the manifests alone, whether a lane may recode these files and pays: nothing is deleted or sorted, and no
    column is nested, of whose leaves nobody counts the values."""
    if policy.strategy is Strategy.SORT or policy.compression_codec not in LANE_CODECS:
        return False
    if any(column.children for column in columns):
        return False
    if any(task.deletes for task in tasks):
        return False
    return sum(task.data_file.record_count for task in tasks) >= LANE_ROWS * len(tasks)
