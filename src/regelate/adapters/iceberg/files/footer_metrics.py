"""Metrics of a new data file, from its footer: what PyIceberg collects, with bounds cut as Iceberg cuts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
)
from pyiceberg.schema import Schema

from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.core.table.bounds import raised, truncated
from regelate.core.table.table import ColumnMetrics
from regelate.core.values import dataclass

ZERO_BYTES = {"float": (b"\x00\x00\x00\x80", b"\x00\x00\x00\x00"), "double": (b"\x00" * 7 + b"\x80", b"\x00" * 8)}
"""Bounds of a zero by type: Iceberg orders -0.0 before 0.0, so a lower zero is -0.0 and an upper one 0.0."""
TIMES = ("date", "time", "timestamp", "timestamptz")
WHOLE = MetricsMode(MetricModeTypes.FULL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterMetrics:
    columns: ColumnMetrics
    column_sizes: Mapping[int, int]
    split_offsets: tuple[int, ...]


class MetricsPlan:
    """What the table's properties ask for, column by column. Files hold the leaves of the schema in its order.

    PyIceberg collects whole bounds; they are cut here, because its own cut makes surrogates of U+D7FF (trap T44: bounds
    cut into surrogates).
    """

    def __init__(self, schema: Schema, properties: Mapping[str, str]) -> None:
        plan = compute_statistics_plan(schema, dict(properties))
        self._leaves = [leaf for column in columns_of(schema) for leaf in column.leaves]
        self._times = frozenset(i for i, leaf in enumerate(self._leaves) if leaf.type in TIMES)
        self._types = {leaf.field_id: leaf.type for leaf in self._leaves}
        self._lengths = {i: c.mode.length for i, c in plan.items() if c.mode.length is not None}
        self._plan = {i: replace(c, mode=WHOLE) if i in self._lengths else c for i, c in plan.items()}

    def of(self, footer: pq.FileMetaData) -> FooterMetrics:
        names = {footer.schema.column(i).path: leaf.field_id for i, leaf in enumerate(self._leaves)}
        found = data_file_statistics_from_parquet_metadata(
            cast(pq.FileMetaData, _Footer(footer, self._times)), self._plan, names
        ).to_serialized_dict()
        open_ended = {leaf.field_id for i, leaf in enumerate(self._leaves) if _is_open_ended(footer, i)}
        lower, upper = (
            {
                i: cut
                for i, raw in found[f"{name}_bounds"].items()
                if i not in open_ended and (cut := self._cut(i, raw, side)) is not None
            }
            for side, name in enumerate(("lower", "upper"))
        )
        return FooterMetrics(
            columns=ColumnMetrics(
                value_counts=found["value_counts"],
                null_counts=found["null_value_counts"],
                lower_bounds=lower,
                upper_bounds=upper,
            ),
            column_sizes=found["column_sizes"],
            split_offsets=tuple(found["split_offsets"] or ()),
        )

    def _cut(self, field_id: int, raw: bytes, side: int) -> bytes | None:
        kind, length = self._types[field_id], self._lengths.get(field_id)
        if length is not None:
            return raised(kind, raw, length) if side else truncated(kind, raw, length)
        zeros = ZERO_BYTES.get(kind, ())
        return zeros[side] if raw in zeros else raw


def _is_open_ended(footer: pq.FileMetaData, column: int) -> bool:
    """Say whether a row group has values of a column and no bounds of them: those of the others are not the file's.

    DuckDB leaves out bounds where there is a NaN, and those of long text or bytes that cannot be cut.
    """
    chunks = (footer.row_group(number).column(column) for number in range(footer.num_row_groups))
    return any(not _is_bounded(chunk.statistics, chunk.num_values) for chunk in chunks)


def _is_bounded(statistics: pq.Statistics | None, values: int) -> bool:
    if statistics is None:
        return False
    return bool(statistics.has_min_max or (statistics.has_null_count and statistics.null_count == values))


class _Footer:
    """A footer, or a part of it, whose times are the whole numbers that are stored.

    PyArrow makes dates and datetimes of Python of them, which end with the year 9999 and begin with 0001 (trap T42:
    times outside the years 1 to 9999).
    """

    def __init__(self, part: Any, times: frozenset[int], raw: bool = False) -> None:
        self._part = part
        self._times = times
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        if name == "statistics":
            return _Footer(self._part.statistics, self._times, self._raw)
        return getattr(self._part, f"{name}_raw" if self._raw and name in ("min", "max") else name)

    def row_group(self, number: int) -> _Footer:
        return _Footer(self._part.row_group(number), self._times)

    def column(self, number: int) -> _Footer:
        return _Footer(self._part.column(number), self._times, number in self._times)
