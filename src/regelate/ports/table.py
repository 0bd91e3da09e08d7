"""Tables as names in a catalog, and one table's metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from regelate.core.planning.plan import FileGroup
from regelate.core.planning.selection import Reason
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.evolution import NO_EVOLUTION, Evolution
from regelate.core.table.input_metrics import InputMetrics
from regelate.core.table.schema import TableDefinition, TableDescription
from regelate.core.table.table import DataFile, SnapshotEntry, SnapshotRef, TableSnapshot


class TableAdmin(Protocol):
    """Tables as names in one catalog. Idents are `namespace.table`, after the namespace template."""

    def create(
        self, ident: str, definition: TableDefinition, *, if_not_exists: bool
    ) -> tuple[bool, TableDescription]: ...
    def alter(
        self,
        ident: str,
        *,
        set_properties: Mapping[str, str],
        unset_properties: Sequence[str],
        evolution: Evolution = NO_EVOLUTION,
    ) -> tuple[bool, TableDescription]: ...
    def describe(self, ident: str) -> TableDescription: ...
    def list_tables(self, namespace: str) -> tuple[str, ...]: ...
    def drop(self, ident: str, *, purge: bool) -> None: ...
    def reachable(self) -> bool: ...


class TableReader(Protocol):
    """Reads one table's metadata; never a data file. `metadata_bytes` is the size of metadata.json, None where nobody
    can tell; `history` the snapshots and refs that it names."""

    def properties(self) -> Mapping[str, str]: ...
    def metadata_bytes(self) -> int | None: ...
    def history(self) -> tuple[tuple[SnapshotEntry, ...], tuple[SnapshotRef, ...]]: ...
    def read(
        self, policy: CompactionPolicy, *, snapshot_id: int | None = None, deadline: float | None = None
    ) -> TableSnapshot: ...
    def explain(self, policy: CompactionPolicy) -> Iterator[tuple[DataFile, Reason]]: ...
    def input_metrics(self, snapshot: TableSnapshot, groups: Sequence[FileGroup]) -> Mapping[int, InputMetrics]: ...
