"""What a rewrite returned, and the proof that it lost and doubled nothing (law 7: rows are conserved)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from regelate.core.planning.plan import FileGroup
from regelate.core.table.bounds import contained
from regelate.core.table.input_metrics import InputMetrics
from regelate.core.table.table import ColumnMetrics, Partition
from regelate.core.values import dataclass
from regelate.errors import DataUnavailable, InvariantViolated


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDataFile:
    """A data file that exists in storage and is not yet part of the table."""

    path: str
    partition: Partition
    record_count: int
    size_bytes: int
    metrics: ColumnMetrics = field(repr=False)
    column_sizes: Mapping[int, int] = field(default_factory=dict, repr=False)
    split_offsets: tuple[int, ...] = field(default=(), repr=False)
    sort_order_id: int | None = None

    @property
    def row_groups(self) -> int:
        return max(len(self.split_offsets), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTarget:
    """Where an output goes: its final location, and the local path to write now (the same file on a local disk)."""

    location: str
    local_path: str
    partition: Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteResult:
    """What one attempt at one group did.

    `rows_read`: rows of the inputs by their own footers' count through the manifests. `rows_deleted`: counted
    INDEPENDENTLY of the read that produced the outputs. `rows_written`: sum over the outputs' footers. `spliced_bytes`:
    of the outputs' row groups that were copied and not recoded.
    """

    group: FileGroup
    added: tuple[NewDataFile, ...]
    rows_deleted: int
    spliced_bytes: int = 0

    @property
    def rows_read(self) -> int:
        return sum(t.data_file.record_count for t in self.group.tasks)

    @property
    def rows_written(self) -> int:
        return sum(f.record_count for f in self.added)

    @property
    def bytes_written(self) -> int:
        return sum(f.size_bytes for f in self.added)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What rows hold, whatever their order: their number and the exact sum of their hashes.

    A sum, not an XOR: a pair of equal rows would cancel out. Fingerprints of parts add up to that of the whole.
    """

    rows: int = 0
    total: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(rows=self.rows + other.rows, total=self.total + other.total)


def verify_content(result: RewriteResult, read: Fingerprint, written: Fingerprint) -> None:
    """Prove that the outputs hold the rows that were read, value by value. Errors: InvariantViolated ROWS_CHANGED."""
    if read == written:
        return
    group = result.group
    what = f"{read.rows} rows read and {written.rows} written" if read.rows != written.rows else "the same number"
    raise InvariantViolated(
        "ROWS_CHANGED",
        f"group {group.index} ({group.partition.path or 'unpartitioned'}): what was written and read back is not what "
        f"was read ({what}); nothing of it was committed",
        rows_read=read.rows,
        rows_written=written.rows,
    )


def verify_rewrite(result: RewriteResult, inputs: InputMetrics) -> None:
    """Prove one rewrite before its commit: rows conserved, null counts conserved, bounds within the inputs' bounds.

    Errors: InvariantViolated ROWS_NOT_CONSERVED; DataUnavailable DATA_FILE_SUSPECT when files disagree with the
    metadata.
    """
    group = result.group
    if result.rows_read - result.rows_deleted != result.rows_written:
        raise InvariantViolated(
            "ROWS_NOT_CONSERVED",
            f"group {group.index} ({group.partition.path or 'unpartitioned'}): {result.rows_read} rows in the "
            f"manifests minus {result.rows_deleted} deleted is not the {result.rows_written} written; "
            "nothing was committed",
            rows_read=result.rows_read,
            rows_deleted=result.rows_deleted,
            rows_written=result.rows_written,
        )
    if inputs.files != len(group.tasks):
        raise InvariantViolated(
            "INPUT_METRICS_MISSING",
            f"group {group.index}: the manifests of {len(group.tasks)} files described {inputs.files} of them",
        )
    outputs = [f.metrics for f in result.added]
    for field_id, type_text in inputs.column_types.items():
        _verify_nulls(result, field_id, inputs, outputs)
        _verify_bounds(result, field_id, type_text, inputs, outputs)


def _verify_nulls(result: RewriteResult, field_id: int, inputs: InputMetrics, outputs: Sequence[ColumnMetrics]) -> None:
    after = [m.null_counts.get(field_id) for m in outputs]
    if None in after:
        return
    least, most = inputs.nulls(field_id)
    least = least if result.rows_deleted == 0 else 0
    written = sum(n for n in after if n is not None)
    if not least <= written <= most:
        raise DataUnavailable(
            "DATA_FILE_SUSPECT",
            f"group {result.group.index}: column {field_id} has {most if written > most else least} nulls in the "
            f"manifests and {written} as written",
            field_id=field_id,
            paths=[t.data_file.path for t in result.group.tasks[:5]],
        )


def _verify_bounds(
    result: RewriteResult,
    field_id: int,
    type_text: str,
    inputs: InputMetrics,
    outputs: Sequence[ColumnMetrics],
) -> None:
    outer = inputs.bounds(field_id)
    if outer is None:
        return
    for metrics in outputs:
        low, high = metrics.lower_bounds.get(field_id), metrics.upper_bounds.get(field_id)
        if low is not None and high is not None and not contained(type_text, (low, high), outer):
            raise DataUnavailable(
                "DATA_FILE_SUSPECT",
                f"group {result.group.index}: values of column {field_id} lie outside the bounds of its input files",
                field_id=field_id,
                paths=[t.data_file.path for t in result.group.tasks[:5]],
            )
