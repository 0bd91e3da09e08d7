"""Columns as every door and engine sees them: names, Iceberg type texts, field ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import TypeVar

from regelate.core.table.table import SnapshotRef
from regelate.core.values import dataclass

MAX_COLUMNS = 2_000
"""Of a table, the fields in its columns counted: every file's footer and every manifest entry speaks of each."""
MAX_ORDERED_FIELDS = 64
"""Of a partition spec or a sort order. Iceberg has no limit; tables have one to four, and each field of a spec is a
folder in the path of every file and a value in every entry of a manifest."""
MAX_DEPTH = 64
"""Of columns in columns: whoever reads a schema recurses."""
Nested = TypeVar("Nested")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One field. `type` is Iceberg's text (`long`, `decimal(9,2)`, `fixed[16]`) or `struct` / `list` / `map`.

    `children`: the fields of a struct; one `element`; or `key` and `value`. `field_id` is 0 before a table assigns it.
    """

    name: str
    type: str
    required: bool = False
    doc: str | None = None
    field_id: int = 0
    children: tuple[Column, ...] = ()

    def walk(self) -> Iterator[Column]:
        """Yield this column and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def leaves(self) -> tuple[Column, ...]:
        """The primitive fields in the order in which Parquet stores their columns."""
        return tuple(c for c in self.walk() if not c.children)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionField:
    """One field of a partition spec as a user writes it: `{source, transform, name?}`."""

    source: str
    transform: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SortSpec:
    column: str
    direction: str = "asc"
    nulls: str = "nulls-first"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """What CREATE_TABLE asks for."""

    columns: tuple[Column, ...]
    partition_spec: tuple[PartitionField, ...] = ()
    sort_order: tuple[SortSpec, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """A table as it is: what DESCRIBE_TABLE tells."""

    ident: str
    table_uuid: str
    location: str
    format_version: int
    columns: tuple[Column, ...]
    partition_spec: tuple[Mapping[str, object], ...]
    sort_order: tuple[Mapping[str, object], ...]
    properties: Mapping[str, str]
    snapshot_id: int | None
    snapshot_count: int
    refs: tuple[SnapshotRef, ...]


def too_large(columns: Iterable[Nested], below: Callable[[Nested], Iterable[Nested]]) -> str | None:
    """Return why a schema is larger than this program takes, None where it is not. `below`: what a column holds."""
    level = list(columns)
    depth = count = 0
    while level:
        depth, count = depth + 1, count + len(level)
        if depth > MAX_DEPTH:
            return f"its columns are nested more than {MAX_DEPTH} deep"
        level = [inner for column in level for inner in below(column)]
    if count > MAX_COLUMNS:
        return f"it has {count:,} columns, the fields in them counted; at most {MAX_COLUMNS:,} are allowed"
    return None
