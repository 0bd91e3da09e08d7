"""Which files a query reads: one snapshot, manifests streamed, files pruned by partition and bounds, deletes joined.

The tasks come back grouped for views: one view per spec for files that no partition's equality delete touches, and one
per partition for the others, because a view's deletes apply to all of its files (trap T2: deletes reach other
partitions).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotIn,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, UUIDType

from regelate.adapters.iceberg.files.view import GroupViewWriter
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.pruning import FilePruner
from regelate.adapters.iceberg.metadata.snapshot import ref_of, snapshot_of
from regelate.adapters.iceberg.metadata.tasks import Entries, check_format, check_readable
from regelate.adapters.iceberg.tables.schema import check_size, columns_of
from regelate.core.query.predicate import Condition, Every, Op, Predicate
from regelate.core.table.deletes import DeleteIndex
from regelate.core.table.schema import Column
from regelate.core.table.table import DeleteContent, DeleteFile, FileScanTask, Partition, RefKind
from regelate.errors import NotFound, Unsupported

ALL_ROWS = Every()
COMPARISONS: dict[Op, Callable[..., BooleanExpression]] = {
    Op.LESS: LessThan,
    Op.LESS_EQUAL: LessThanOrEqual,
    Op.GREATER: GreaterThan,
    Op.GREATER_EQUAL: GreaterThanOrEqual,
    Op.STARTS_WITH: StartsWith,
}


class SnapshotScan:
    """One loaded table at its head with its current schema, or at a snapshot or a time with the schema of then.

    At a `ref` it is as Iceberg reads refs (1.10, `SnapshotUtil.schemaFor`): a branch has the table's current schema,
    like `main`, and a tag that of its snapshot.

    `views` writes the views of its files below `folder`, which is private to one query and removed by its owner.

    Errors: NotFound SNAPSHOT_NOT_FOUND, REF_NOT_FOUND; Unsupported UNSUPPORTED_TABLE, UNSUPPORTED_DELETES;
    DataUnavailable METADATA_CORRUPT.
    """

    def __init__(
        self,
        table: Table,
        manifests: ManifestReader,
        folder: Path,
        *,
        snapshot_id: int | None = None,
        as_of_ms: int | None = None,
        ref: str | None = None,
    ) -> None:
        self._table = table
        self._manifests = manifests
        named = None if ref is None else ref_of(table.metadata, ref)
        at = snapshot_id if named is None else named.snapshot_id
        self._snapshot = (
            snapshot_of(table.metadata, at) if as_of_ms is None else snapshot_as_of(table.metadata, as_of_ms)
        )
        self._schema = table.schema()
        is_tag = named is not None and named.kind is RefKind.TAG
        travels = snapshot_id is not None or as_of_ms is not None or is_tag
        if travels and self._snapshot is not None and self._snapshot.schema_id is not None:
            self._schema = table.schemas()[self._snapshot.schema_id]
        check_size(self._schema)
        self.columns: tuple[Column, ...] = columns_of(self._schema)
        with _worded_for_queries():
            check_format(table.metadata)
            self.views = GroupViewWriter(table.metadata, table.io, folder, schema=self._schema)

    @property
    def snapshot_id(self) -> int | None:
        return None if self._snapshot is None else self._snapshot.snapshot_id

    def filter_of(self, text: str) -> object:
        """Return a row filter, such as `day >= '2025-01-17' and id < 7`, as a filter in JSON. Errors: INVALID_FIELD."""
        from regelate.adapters.iceberg.metadata.row_filter import filter_of_text  # with a parser, which few need

        return filter_of_text(text)

    def files(self, predicate: Predicate = ALL_ROWS) -> tuple[tuple[FileScanTask, ...], ...]:
        """Return the files that may hold matching rows with their deletes, one group of tasks per view."""
        if self._snapshot is None:
            return ()
        with _worded_for_queries():
            return grouped(self._tasks(self._snapshot, predicate))

    def _tasks(self, snapshot: Snapshot, predicate: Predicate) -> Iterator[FileScanTask]:
        metadata, io = self._table.metadata, self._table.io
        manifests = self._manifests.manifests(io, snapshot.manifest_list)
        entries = Entries(metadata, io, self._manifests)
        index = DeleteIndex(entries.delete_files(manifests))
        pruner = FilePruner(expression_of(predicate, _unordered(metadata)), metadata, self._schema)
        for manifest in manifests:
            if manifest.content != ManifestContent.DATA or not pruner.manifest_may_match(manifest):
                continue
            for entry, data_file in entries.data_files((manifest,)):
                if pruner.may_match(entry.data_file):
                    check_readable(data_file)
                    yield FileScanTask(data_file=data_file, deletes=index.applicable(data_file))


def snapshot_as_of(metadata: TableMetadata, as_of_ms: int) -> Snapshot:
    """Return the snapshot that was the head at a time, by the table's log, so that a rollback counts as it happened."""
    for entry in reversed(metadata.snapshot_log):
        if entry.timestamp_ms <= as_of_ms:
            return _present(metadata, entry.snapshot_id, as_of_ms)
    return _present(metadata, None, as_of_ms)


def _present(metadata: TableMetadata, snapshot_id: int | None, as_of_ms: int) -> Snapshot:
    found = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
    if found is None:
        raise NotFound(
            "SNAPSHOT_NOT_FOUND", f"the table had no snapshot at {as_of_ms} ms since the epoch, or it has expired"
        )
    return found


def grouped(tasks: Iterable[FileScanTask]) -> tuple[tuple[FileScanTask, ...], ...]:
    """Split tasks so that each group may become one view: one spec, the equality deletes of at most one partition."""
    groups: dict[tuple[int, Partition | None], list[FileScanTask]] = {}
    for task in tasks:
        partition = task.data_file.partition
        alone = any(_is_of_partition(d) for d in task.deletes)
        groups.setdefault((partition.spec_id, partition if alone else None), []).append(task)
    return tuple(tuple(group) for group in groups.values())


def _is_of_partition(delete: DeleteFile) -> bool:
    return delete.content is DeleteContent.EQUALITY and not delete.is_global


def expression_of(predicate: Predicate, unordered: frozenset[int] = frozenset()) -> BooleanExpression:
    """Return an Iceberg expression that is true wherever the predicate is, for pruning only.

    What bounds cannot decide becomes AlwaysTrue: fields in `unordered`, infinities, negated prefixes.
    """
    if isinstance(predicate, Condition):
        return _leaf(predicate) if predicate.path.column.field_id not in unordered else AlwaysTrue()
    parts = [expression_of(p, unordered) for p in predicate.parts]
    if len(parts) == 1:
        return parts[0]
    if isinstance(predicate, Every):
        return And(*parts) if parts else AlwaysTrue()
    return Or(*parts) if parts else AlwaysFalse()


def _leaf(condition: Condition) -> BooleanExpression:
    term, op, values = Reference(condition.path.name), condition.op, condition.values
    numbers = [v for v in values if isinstance(v, float)]
    if any(math.isinf(v) for v in numbers) or condition.path.column.children:
        return AlwaysTrue()
    if op is Op.IS_NULL:  # a required field of a null struct is null as well, and PyIceberg denies it
        return IsNull(term=term) if len(condition.path.lineage) == 1 else AlwaysTrue()
    if op is Op.IS_NOT_NULL:
        return NotNull(term=term)
    if op in COMPARISONS:
        return COMPARISONS[op](term=term, value=values[0])
    if op in (Op.EQUAL, Op.IN):
        plain = [v for v in values if v == v]
        among = In(term=term, literals=set(plain)) if plain else AlwaysFalse()
        return Or(among, IsNaN(term=term)) if len(plain) < len(values) else among
    if op in (Op.NOT_EQUAL, Op.NOT_IN) and not numbers:
        return NotIn(term=term, literals=set(values)) if values else AlwaysTrue()
    return AlwaysTrue()


def _unordered(metadata: TableMetadata) -> frozenset[int]:
    """Return columns whose partition values cannot be compared, when files are partitioned by them as they are.

    Writers differ in the order of UUIDs; PyIceberg 0.12.0 reads doubles in Avro files with the precision of floats.
    """
    fields: dict[int, Any] = metadata.schema()._lazy_id_to_field
    sources = (f.source_id for s in metadata.partition_specs for f in s.fields if f.transform == IdentityTransform())
    return frozenset(i for i in sources if i in fields and isinstance(fields[i].field_type, UUIDType | DoubleType))


@contextmanager
def _worded_for_queries() -> Iterator[None]:
    """Advise a reader, where the adapter's own refusals advise who compacts."""
    try:
        yield
    except Unsupported as error:
        what = str(error.details.get("reason", error.message))
        message = f"this table holds {what}; query it with Spark"
        raise Unsupported("UNSUPPORTED_TABLE", message, reason=what) from error
