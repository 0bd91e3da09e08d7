"""Which files are recoded by a dictionary lane: read as they are stored, texts as dictionaries, and written back so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regelate.core.planning.splicing import MIXED, StoredFile
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
    places of those that are read as dictionaries; `dictionaries`: how many values each of these has in each row group,
    by the file's path and the column's place. What is stored without one is not in it."""

    columns: tuple[Column, ...]
    texts: tuple[int, ...]
    dictionaries: Mapping[str, tuple[Mapping[int, int], ...]]


def lane_of(files: Mapping[str, StoredFile], columns: Sequence[Column], memory_bytes: int) -> Lane | None:
    """Return the lane of files that hold these columns, by their paths; None where a row group, decoded, may take more
    memory.

    A value takes eight bytes beside the pages at most: numbers of a dictionary, and where texts begin. A text is read
    as dictionaries where the first row group is stored so, and none is by halves.
    """
    groups = [group for file in files.values() for group in file.groups]
    if any(group.uncompressed_bytes + 8 * group.rows * len(columns) > memory_bytes for group in groups):
        return None
    mixed = {place for group in groups for place, entries in group.dictionaries if entries == MIXED}
    first = dict(groups[0].dictionaries) if groups else {}
    texts = tuple(
        place for place, column in enumerate(columns) if column.type in TEXTS and place in first.keys() - mixed
    )
    dictionaries = {path: tuple(dict(group.dictionaries) for group in file.groups) for path, file in files.items()}
    return Lane(columns=tuple(columns), texts=texts, dictionaries=dictionaries)


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
