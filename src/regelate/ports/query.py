"""What a query reads, who answers it, and who keeps an answer that is too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from regelate.core.query.predicate import Predicate, StructuredQuery
from regelate.core.query.results import StoredResult
from regelate.core.table.schema import Column
from regelate.core.table.table import FileScanTask
from regelate.ports.engine import GroupViews


class TableScan(Protocol):
    """One table at one snapshot, read with that snapshot's schema. `snapshot_id` None: a table without any."""

    @property
    def snapshot_id(self) -> int | None: ...
    @property
    def columns(self) -> tuple[Column, ...]: ...
    @property
    def views(self) -> GroupViews: ...
    def filter_of(self, text: str) -> object:
        """Return a row filter that is text as a filter in JSON. Errors: InvalidRequest INVALID_FIELD."""
        ...

    def files(self, predicate: Predicate) -> tuple[tuple[FileScanTask, ...], ...]: ...


class ResultColumn(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...


class QueryResult(Protocol):
    """`stored`: the local file that holds the rows, where they are too large for an answer."""

    @property
    def columns(self) -> Sequence[ResultColumn]: ...
    @property
    def rows(self) -> Sequence[dict[str, Any]]: ...
    @property
    def row_count(self) -> int: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def stored(self) -> str | None: ...


class QueryEngine(Protocol):
    """Answers over groups of files, one view per group; enforces the limits."""

    def select(
        self,
        query: StructuredQuery,
        groups: Sequence[Sequence[FileScanTask]],
        views: GroupViews,
        *,
        max_bytes: int,
        seconds: float,
    ) -> QueryResult: ...
    def sql(
        self,
        text: str,
        table_name: str,
        groups: Sequence[Sequence[FileScanTask]],
        views: GroupViews,
        *,
        max_rows: int,
        max_bytes: int,
        seconds: float,
    ) -> QueryResult: ...


class ResultStore(Protocol):
    """Takes one tenant's large results over, file by file, and says where they can be fetched."""

    def keep(self, path: str, *, now_ms: int) -> StoredResult: ...
