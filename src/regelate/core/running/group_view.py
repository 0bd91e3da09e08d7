"""What an engine reads a group of files through: a tiny table on local disk that names exactly these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from regelate.core.table.schema import Column
from regelate.core.values import dataclass


def name_in_view(field_id: int) -> str:
    """Return how a view calls a top-level column: no name of the table can then hide a virtual column of the scan."""
    return f"c{field_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDeletes:
    """Equality deletes on one key, as a view of their own that names the delete files as if they were data.

    `sequence_numbers`: data sequence number by delete file path.
    """

    metadata_path: str
    key: tuple[Column, ...]
    sequence_numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A tiny table on local disk that names exactly some files, for `iceberg_scan`: several of them, where the columns
    of files are found by several name mappings.

    Its columns are called `name_in_view`. Position deletes are part of it; equality deletes are not (trap T22: nulls
    under equality deletes): whoever reads it applies `key_deletes` to the data files with lower `sequence_numbers` (by
    data file path). A file may hold the columns `promoted` (field ids) in another type: no comparison with them may go
    down into the scan (trap T38: constants are cast to the file's type).
    """

    metadata_paths: tuple[str, ...]
    columns: tuple[Column, ...]
    key_deletes: tuple[KeyDeletes, ...] = ()
    sequence_numbers: Mapping[str, int] = field(default_factory=dict)
    promoted: frozenset[int] = frozenset()
