"""What a manifest list says of the partitions of one manifest: nulls, NaN and bounds of each field."""

from __future__ import annotations

import math
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import PartitionFieldSummary
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, PrimitiveType, StructType, UUIDType


class PartitionBounds:
    """Collects the partitions of a manifest's files, as Iceberg's `PartitionSummary` (1.10) does."""

    def __init__(self, partition: StructType) -> None:
        self._fields = [_Field(f) for f in partition.fields]

    def add(self, partition: Record) -> None:
        for i, field in enumerate(self._fields):
            field.add(partition[i])

    def summaries(self) -> list[PartitionFieldSummary] | None:
        """Return nothing where bounds of uuids would hide files from one reader or another; then none prunes."""
        if any(field.is_ordered_two_ways for field in self._fields):
            return None
        return [field.summary() for field in self._fields]


class _Field:
    """What a manifest list says of one partition field of a manifest."""

    def __init__(self, field: NestedField) -> None:
        assert isinstance(field.field_type, PrimitiveType)
        self._type = field.field_type
        self._null = self._nan = False
        self._least: tuple[Any, Any] | None = None
        self._greatest: tuple[Any, Any] | None = None
        self._signs: set[tuple[bool, bool]] = set()

    @property
    def is_ordered_two_ways(self) -> bool:
        """Whether readers disagree on the least of the values: Java (1.10) compares the halves of uuids as signed
        numbers, others compare bytes (trap T34: two orders of uuids)."""
        return len(self._signs) > 1

    def add(self, value: Any) -> None:
        if value is None:
            self._null = True
            return
        if isinstance(value, float):
            if math.isnan(value):
                self._nan = True
                return
            key: Any = (value, math.copysign(1.0, value))  # -0.0 is less than 0.0, by Java's order
        elif isinstance(self._type, UUIDType):
            key = value if isinstance(value, bytes) else value.bytes
            self._signs.add((key[0] > 127, key[8] > 127))
        else:
            key = value
        if self._least is None or key < self._least[0]:
            self._least = (key, value)
        if self._greatest is None or key > self._greatest[0]:
            self._greatest = (key, value)

    def summary(self) -> PartitionFieldSummary:
        return PartitionFieldSummary(self._null, self._nan, self._bytes(self._least), self._bytes(self._greatest))

    def _bytes(self, bound: tuple[Any, Any] | None) -> bytes | None:
        return None if bound is None else to_bytes(self._type, bound[1])
