"""What reads data files and writes others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import BinaryIO, Protocol

from regelate.core.planning.plan import FileGroup
from regelate.core.planning.splicing import StoredColumn, StoredFile
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.running.group_view import GroupView
from regelate.core.running.merging import Merge, TouchedFile
from regelate.core.running.parts import Source
from regelate.core.running.rewrite import Fingerprint, NewDataFile, RewriteResult
from regelate.core.table.schema import Column
from regelate.core.table.table import FileScanTask


class GroupViews(Protocol):
    @property
    def columns(self) -> tuple[Column, ...]: ...
    def write(self, tasks: Sequence[FileScanTask], *, with_deletes: bool = True) -> GroupView: ...


class Progress(Protocol):
    """Is told how many pieces of the work are done, of how many: groups, or the calls of the engine for them."""

    def __call__(self, done: int, total: int, /) -> None: ...


class RewriteEngine(Protocol):
    """Reads groups and writes right-sized files; returns results that WE commit."""

    def achieved_ratio(self, group: FileGroup, policy: CompactionPolicy) -> float: ...
    def rewrite(
        self, groups: Sequence[FileGroup], policy: CompactionPolicy, *, progress: Progress | None = None
    ) -> tuple[tuple[RewriteResult, ...], tuple[tuple[FileGroup, Exception], ...]]: ...
    def fingerprints(self, result: RewriteResult) -> tuple[Fingerprint, Fingerprint]: ...


class Splicer(Protocol):
    """Looks at Parquet files, and joins row groups of them as they are.

    `by_duckdb`: the shape of what DuckDB writes for the table's columns. `by_arrow`: the columns of which PyArrow makes
    a file of a shape, None where it makes none."""

    @property
    def by_duckdb(self) -> Hashable: ...
    def by_arrow(self, shape: Hashable) -> tuple[Column, ...] | None: ...
    def look(self, path: str) -> StoredFile: ...
    def join(self, sources: Sequence[Source], target: str) -> bool: ...


class DamageCheck(Protocol):
    """Returns the column of an open file that fails the checksums of its pages, None where they hold or there are none.
    `columns` reads its footer, where that is needed."""

    def __call__(self, source: BinaryIO, columns: Callable[[], Sequence[StoredColumn]], /) -> str | None: ...


class KeyRewriter(Protocol):
    """Copy-on-write of a WRITE: which tasks hold the keys, and as few new files as hold what each merge leaves.
    `stored` returns what the tasks store for the keys in some columns, by field id (Arrow: RECORD, and each by its
    `name_in_view`)."""

    def touched(self, tasks: Sequence[FileScanTask], rows: object, key: Sequence[str]) -> tuple[TouchedFile, ...]: ...
    def merge(
        self, merges: Sequence[Merge], rows: object, key: Sequence[str], *, target_bytes: int
    ) -> tuple[tuple[NewDataFile, ...], ...]: ...
    def stored(
        self, tasks: Sequence[FileScanTask], rows: object, key: Sequence[str], fields: Collection[int]
    ) -> object: ...
