"""Partitions of manifest entries and new rows, with the texts that people use for their values."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import UUIDType

from regelate.core.partition_text import value_text
from regelate.core.table import Partition
from regelate.core.time_ranges import ends_at_ms, partition_ends_at_ms

TABLES_KEPT = 64
"""Specs whose partitions stay cached; each holds at most PARTITIONS_KEPT of them."""
PARTITIONS_KEPT = 20_000
LONGEST_FOLDER_NAME = 200


def partition_of(spec: PartitionSpec, schema: Schema, record: Record | Sequence[Any]) -> Partition:
    """Return the partition of a manifest entry's record under its spec.

    `schema` is the table's current one: of a source column that was dropped, only the partition field's name is known.
    Values are Iceberg's internal ones (days, months, microseconds as int), UUIDs as `UUID`. Cached per spec and values;
    specs and schemas are told apart by identity, so that two tables with like specs never share a partition.
    """
    return _partitions(_Same(spec), _Same(schema)).of(record)


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Say whether a spec has one partition: no field, or only void ones, which is what dropping fields leaves in v1.

    Iceberg's `PartitionSpec.isUnpartitioned` (1.10); PyIceberg's only looks for fields.
    """
    return all(isinstance(f.transform, VoidTransform) for f in spec.fields)


class _Same:
    """A cache key that is equal only to a wrapper of the very same object, and keeps it alive."""

    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item

    def __hash__(self) -> int:
        return id(self.item)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.item is other.item


@lru_cache(maxsize=TABLES_KEPT)
def _partitions(spec: _Same, schema: _Same) -> _Partitions:
    return _Partitions(spec.item, schema.item)


class _Partitions:
    """The partitions of one spec."""

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._spec = spec
        self._schema = schema
        self._sources = [schema.find_column_name(f.source_id) for f in spec.fields]
        self._types = [
            None if name is None else schema.find_type(f.source_id)
            for f, name in zip(spec.fields, self._sources, strict=True)
        ]
        self._uuids = frozenset(
            i
            for i, (kind, field) in enumerate(zip(self._types, spec.fields, strict=True))
            if isinstance(kind, UUIDType) and isinstance(field.transform, IdentityTransform)
        )
        used = Counter(f.source_id for f in spec.fields if not isinstance(f.transform, VoidTransform))
        self._named_by_source = [used[f.source_id] == 1 for f in spec.fields]
        self._known: dict[str, Partition] = {}

    def of(self, record: Record | Sequence[Any]) -> Partition:
        values = tuple(record[i] for i in range(len(record)))
        if self._uuids:
            values = tuple(
                UUID(bytes=v) if i in self._uuids and isinstance(v, bytes) else v for i, v in enumerate(values)
            )
        key = repr(values)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= PARTITIONS_KEPT:
                self._known.clear()
            found = self._known[key] = self._build(values)
        return found

    def _build(self, values: tuple[Any, ...]) -> Partition:
        fields = self._spec.fields
        texts = [
            value_text(str(f.transform), "" if t is None else str(t), v)
            for f, t, v in zip(fields, self._types, values, strict=False)
        ]
        by_source = {
            source: text
            for source, text, unique, field in zip(self._sources, texts, self._named_by_source, fields, strict=False)
            if source is not None and unique and not isinstance(field.transform, VoidTransform)
        }
        return Partition(
            spec_id=self._spec.spec_id,
            values=values,
            path=self._path(values, texts),
            source_values={**by_source, **{f.name: text for f, text in zip(fields, texts, strict=False)}},
            ends_at_ms=self._ends_at_ms(values),
        )

    def _path(self, values: tuple[Any, ...], texts: list[str]) -> str:
        if not values:
            return ""
        try:
            path = self._spec.partition_to_path(Record(*values), self._schema)
        except (OverflowError, ValueError):  # a date beyond year 9999
            pairs = zip(self._spec.fields, texts, strict=False)
            path = "/".join(f"{quote_plus(f.name)}={quote_plus(text)}" for f, text in pairs)
        return "/".join(_folder_name(part) for part in path.split("/"))

    def _ends_at_ms(self, values: tuple[Any, ...]) -> int | None:
        fields = zip(self._spec.fields, self._types, values, strict=False)
        return partition_ends_at_ms((f.source_id, ends_at_ms(str(f.transform), str(kind), v)) for f, kind, v in fields)


def _folder_name(part: str) -> str:
    """Cut a name that no file system takes (255 bytes), and keep it apart from others that begin alike."""
    if len(part) <= LONGEST_FOLDER_NAME:
        return part
    return f"{part[:LONGEST_FOLDER_NAME]}-{hashlib.sha256(part.encode()).hexdigest()[:16]}"
