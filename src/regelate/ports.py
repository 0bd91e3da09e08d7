"""What operations need of the outside, as Protocols. Adapters implement them; `wiring` joins them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, Protocol

from regelate.core.conflict import CommitWindow
from regelate.core.head import Head
from regelate.core.input_metrics import InputMetrics
from regelate.core.ledger import LedgerEntry, TableFacts
from regelate.core.manifests import ManifestGroup, ManifestSummary
from regelate.core.measures import Occurrence
from regelate.core.plan import FileGroup
from regelate.core.policy import CompactionPolicy, SortField
from regelate.core.quarantine import Quarantine, Restoration
from regelate.core.reachability import StoredFile
from regelate.core.rewrite import Fingerprint, NewDataFile, RewriteResult
from regelate.core.schema import Column, TableDefinition
from regelate.core.selection import Reason
from regelate.core.table import DataFile, FileScanTask, Partition, SnapshotRef, TableSnapshot
from regelate.errors import RegelateError


class Clock(Protocol):
    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
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


class TableAdmin(Protocol):
    """Tables as names in one catalog. Idents are `namespace.table`, after the namespace template."""

    def create(
        self, ident: str, definition: TableDefinition, *, if_not_exists: bool
    ) -> tuple[bool, TableDescription]: ...
    def alter(
        self, ident: str, *, set_properties: Mapping[str, str], unset_properties: Sequence[str]
    ) -> Mapping[str, str]: ...
    def describe(self, ident: str) -> TableDescription: ...
    def list_tables(self, namespace: str) -> tuple[str, ...]: ...
    def drop(self, ident: str, *, purge: bool) -> None: ...
    def reachable(self) -> bool: ...


class TableReader(Protocol):
    """Reads one table's metadata; never a data file."""

    def properties(self) -> Mapping[str, str]: ...
    def read(
        self, policy: CompactionPolicy, *, snapshot_id: int | None = None, deadline: float | None = None
    ) -> TableSnapshot: ...
    def explain(self, policy: CompactionPolicy) -> Iterator[tuple[DataFile, Reason]]: ...
    def input_metrics(self, snapshot: TableSnapshot, groups: Sequence[FileGroup]) -> Mapping[int, InputMetrics]: ...


class Outcome(StrEnum):
    LANDED = "landed"
    LOST = "lost"
    """By a conflict. One that the head does not show may be with another sending of the same request."""
    UNDONE = "undone"
    """By a conflict or a lock of the database that keeps the catalog, which was asked once: nothing of it was done."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Refused:
    """The catalog said no to the request as such. Of an earlier sending of the same request that says nothing."""

    error: RegelateError


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTotals:
    """Live data files, their bytes, and manifests at the head last seen."""

    files: int
    size_bytes: int
    manifests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChange:
    """One snapshot to commit on top of a head. Removed data files (path -> the manifest that listed it at planning)
    must be live there, in exactly `removed_entries` manifest entries; `base_manifests` are the manifests known at
    planning to hold none of them, which need no second look.

    `data_sequence_number` is set for rewrites (law 4): the added files then carry it; None inherits the new one.
    `restored` comes back in the same commit.
    """

    operation: str
    snapshot_id: int
    summary: Mapping[str, str]
    added: tuple[NewDataFile, ...] = ()
    removed: Mapping[str, str] = field(default_factory=dict)
    removed_entries: int = 0
    base_manifests: frozenset[str] = frozenset()
    dropped_delete_paths: frozenset[str] = frozenset()
    data_sequence_number: int | None = None
    restored: Restoration | None = None
    manifest_groups: tuple[ManifestGroup, ...] = ()
    """Manifests of the head to write anew. Such a change adds and removes no file."""

    def __post_init__(self) -> None:
        if self.operation == "replace" and self.added and not self.removed:
            raise ValueError(f"a replace that adds {len(self.added)} files and removes none would add rows (law 2)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryChange:
    """Snapshots and refs to remove; every ref seen at planning must still be what it was."""

    snapshot_ids: tuple[int, ...]
    ref_names: tuple[str, ...] = ()
    expected_refs: tuple[SnapshotRef, ...] = ()


Change = SnapshotChange | ExpiryChange
Progress = Callable[[int, int], None]


class Committer(Protocol):
    """The catalog's compare-and-swap on one table's branch."""

    def new_snapshot_id(self) -> int: ...
    def head(self) -> Head: ...
    def totals(self) -> TableTotals: ...
    def adder(self, paths: Sequence[str]) -> int | None: ...
    def bearer(self, sequence_number: int) -> int | None: ...
    def lost_refs(self, change: ExpiryChange, made_on: str) -> tuple[str, ...] | None: ...
    def manifests(self) -> tuple[ManifestSummary, ...]: ...
    def dangling_deletes(self) -> frozenset[str]: ...
    def live_tasks(self, rows: object | None = None, key: Sequence[str] = ()) -> tuple[FileScanTask, ...]: ...
    def window(self, base: TableSnapshot, groups: Sequence[FileGroup]) -> CommitWindow: ...
    def try_commit(self, head: Head, change: Change) -> Outcome | Refused: ...
    def forget_lost(self, landed: int | None = None) -> None: ...
    def leave_lost(self) -> None: ...


class RowWriter(Protocol):
    """JSON records or Arrow batches -> Parquet data files of one table, not yet committed."""

    def encode(self, records: Sequence[Mapping[str, object]]) -> object: ...
    def coerce(self, arrow_table: object) -> object: ...
    def check_key(self, rows: object, key: Sequence[str]) -> None: ...
    def write(self, rows: object) -> tuple[NewDataFile, ...]: ...
    def discard(self, locations: Sequence[str]) -> None: ...


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

    Its columns are called `name_in_view`. Position deletes are part of it; equality deletes are not (trap T22): whoever
    reads it applies `key_deletes` to the data files with lower `sequence_numbers` (by data file path). A file may hold
    the columns `promoted` (field ids) in another type: no comparison with them may go down into the scan (trap T38).
    """

    metadata_paths: tuple[str, ...]
    columns: tuple[Column, ...]
    key_deletes: tuple[KeyDeletes, ...] = ()
    sequence_numbers: Mapping[str, int] = field(default_factory=dict)
    promoted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTarget:
    """Where an output goes: its final location, and the local path to write now (the same file on a local disk)."""

    location: str
    local_path: str
    partition: Partition


class GroupViews(Protocol):
    @property
    def columns(self) -> tuple[Column, ...]: ...
    def write(self, tasks: Sequence[FileScanTask], *, with_deletes: bool = True) -> GroupView: ...


class Ledger(Protocol):
    """What one run is about to create, written down beside the table before it exists (law 9).

    `record` returns once the names are stored. `keep_alive` precedes whatever relies on files of the run: it renews
    what grows old and raises Unavailable RUN_TOO_OLD where a sweep may have taken the run for dead. `close` removes the
    entries of a run that knows what became of its files, unless it had to `owe` the clean-up of some.
    """

    def record(self, paths: Iterable[str]) -> None: ...
    def keep_alive(self) -> None: ...
    def owe(self) -> None: ...
    def close(self) -> None: ...


class Ledgers(Protocol):
    """The ledger entries of every run of one table, and what has become of the files that they name.

    `facts` looks at the table anew, `referenced` speaks of what it last saw. `delete` returns the paths that are gone.
    `abort_uploads` ends uploads to these paths that nobody has completed.
    """

    def entries(self) -> tuple[LedgerEntry, ...]: ...
    def facts(self) -> TableFacts: ...
    def existing(self, paths: Collection[str]) -> Mapping[str, int]: ...
    def referenced(self, paths: Collection[str]) -> frozenset[str]: ...
    def delete(self, paths: Collection[str]) -> frozenset[str]: ...
    def abort_uploads(self, paths: Collection[str]) -> None: ...
    def drop(self, entry: LedgerEntry) -> None: ...


class Fleet(Protocol):
    """The tables of one catalog, by namespace. An ident is `namespace.table`."""

    def namespaces(self) -> tuple[str, ...]: ...
    def list_tables(self, namespace: str) -> tuple[str, ...]: ...


class OutputFiles(Protocol):
    """Outputs of a rewrite: in the ledger before they exist, described from their footers, discarded by path."""

    def reserve(self, partitions: Sequence[Partition]) -> tuple[OutputTarget, ...]: ...
    def publish(self, target: OutputTarget, *, sort_order_id: int | None) -> NewDataFile: ...
    def open(self, location: str) -> BinaryIO: ...
    def discard(self, locations: Sequence[str]) -> None: ...
    def sort_order_id(self, fields: Sequence[SortField]) -> int | None: ...


class RewriteEngine(Protocol):
    """Reads groups and writes right-sized files; returns results that WE commit."""

    def achieved_ratio(self, group: FileGroup, policy: CompactionPolicy) -> float: ...
    def rewrite(
        self, groups: Sequence[FileGroup], policy: CompactionPolicy, *, progress: Progress | None = None
    ) -> tuple[tuple[RewriteResult, ...], tuple[tuple[FileGroup, Exception], ...]]: ...
    def fingerprints(self, result: RewriteResult) -> tuple[Fingerprint, Fingerprint]: ...


class KeyRewriter(Protocol):
    """Copy-on-write of an upsert: which tasks hold the keys, and new files with their other rows."""

    def without(
        self, tasks: Sequence[FileScanTask], rows: object, key: Sequence[str]
    ) -> tuple[tuple[FileScanTask, ...], tuple[NewDataFile, ...]]: ...


class Reclaimer(Protocol):
    """What an expiry makes unreachable: set down in a quarantine list, deleted after its grace, or brought back.

    Reachability counts over all snapshots of the latest metadata, so over every ref (law 10). `now_ms` is the store's
    time. `record` writes the list of an expiry on the head last seen, before its commit; `list_files` completes it
    afterwards: a crash leaves no file without a list. `needed`: which of these paths undoing takes. `oldest`: how many
    lists there are, and the first. `within`: the same, telling `spend` before so many requests; what it raises ends it.
    """

    def within(self, spend: Callable[[int], None]) -> Reclaimer: ...

    def check_allowed(self) -> None: ...
    def check_unshared(self) -> None: ...
    def record(self, undo_id: str, change: ExpiryChange, *, grace_ms: int, created_ms: int) -> None: ...
    def list_files(self, undo_id: str) -> Quarantine: ...
    def drop(self, undo_id: str) -> None: ...
    def quarantines(self) -> tuple[Quarantine, ...]: ...
    def now_ms(self) -> int: ...
    def oldest(self) -> tuple[int, Quarantine | None]: ...
    def unreachable(self, lists: Sequence[Quarantine]) -> tuple[tuple[StoredFile, ...], ...]: ...
    def needed(self, lists: Sequence[Quarantine], paths: Collection[str]) -> frozenset[str]: ...
    def delete(self, files: Sequence[StoredFile]) -> tuple[StoredFile, ...]: ...
    def restoration(self, undo_id: str) -> Restoration: ...


class OrphanFiles(Protocol):
    """The files in one table's folder, beside what its metadata reaches; `now_ms` is the store's time.

    `reachable` covers all snapshots, older metadata files, statistics and quarantine lists of the metadata that
    `refresh` loaded; `refresh` returns that metadata's location.
    """

    @property
    def root(self) -> str: ...
    @property
    def partition_names(self) -> tuple[str, ...]: ...
    def check_allowed(self) -> None: ...
    def listing(self) -> tuple[StoredFile, ...]: ...
    def now_ms(self) -> int: ...
    def refresh(self) -> str: ...
    def reachable(self) -> Iterator[str]: ...
    def delete(self, files: Sequence[StoredFile]) -> tuple[StoredFile, ...]: ...


class Telemetry(Protocol):
    """Is told what happened, and where time went. Neither ever fails."""

    def tell(self, occurrence: Occurrence) -> None: ...
    def span(self, name: str, **attributes: str | int | float) -> AbstractContextManager[None]: ...
