"""What the manifests say of the inputs of one group, column by column, all files taken together. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from regelate.core.table.bounds import order_key
from regelate.core.table.table import ColumnMetrics


class InputMetrics:
    """Adds up column metrics file by file, so that a group takes as much memory with a million files as with one.

    `column_types`: Iceberg type text by field id, for the columns that are compared.
    """

    def __init__(self, column_types: Mapping[int, str]) -> None:
        self.column_types = column_types
        self.files = 0
        self.row_groups = 0
        self._nulls = dict.fromkeys(column_types, 0)
        self._rows_of_unknown_nulls = dict.fromkeys(column_types, 0)
        self._lower: dict[int, bytes] = {}
        self._upper: dict[int, bytes] = {}
        self._unbounded: set[int] = set()

    def add(self, metrics: ColumnMetrics | None, record_count: int, row_groups: int = 1) -> None:
        """Take in one file; None for one whose metrics are not known."""
        self.files += 1
        self.row_groups += row_groups
        if metrics is None:
            self._unbounded.update(self.column_types)
        for field_id, type_text in self.column_types.items():
            nulls = None if metrics is None else metrics.null_counts.get(field_id)
            if nulls is None:
                self._rows_of_unknown_nulls[field_id] += record_count
            else:
                self._nulls[field_id] += nulls
            if metrics is not None and field_id not in self._unbounded and not _only_nulls(metrics, field_id):
                self._widen(field_id, type_text, metrics)

    def nulls(self, field_id: int) -> tuple[int, int]:
        """Return the least and the most nulls that the files can hold: one without a count may hold 0 to all its
        rows."""
        known = self._nulls[field_id]
        return known, known + self._rows_of_unknown_nulls[field_id]

    def bounds(self, field_id: int) -> tuple[bytes, bytes] | None:
        """Return the outer bounds of a column; None where a file with values has none, or no file has values."""
        if field_id in self._unbounded or field_id not in self._lower:
            return None
        return self._lower[field_id], self._upper[field_id]

    def _widen(self, field_id: int, type_text: str, metrics: ColumnMetrics) -> None:
        low, high = metrics.lower_bounds.get(field_id), metrics.upper_bounds.get(field_id)
        if low is None or high is None:
            self._unbounded.add(field_id)
            return
        least, most = self._lower.setdefault(field_id, low), self._upper.setdefault(field_id, high)
        if low != least and order_key(type_text, low) < order_key(type_text, least):
            self._lower[field_id] = low
        if high != most and order_key(type_text, high) > order_key(type_text, most):
            self._upper[field_id] = high


def _only_nulls(metrics: ColumnMetrics, field_id: int) -> bool:
    """A file in which a column is absent or null throughout has no bounds and constrains nothing."""
    values, nulls = metrics.value_counts.get(field_id), metrics.null_counts.get(field_id)
    return values is not None and values == nulls
