"""Partitions of manifest entries and new rows, with the texts that people use for their values."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import UUIDType

from regelate.adapters.iceberg.metadata.byte_cache import ByteCache
from regelate.core.policy.policy import digest
from regelate.core.table.partition_text import value_text
from regelate.core.table.table import Partition
from regelate.core.table.time_ranges import ends_at_ms, partition_ends_at_ms

KEPT_BYTES = 32 * 1024 * 1024
"""Memory for partitions that later loads of a table find again."""
PARTITION_BYTES = 1200
VALUE_BYTES = 300
"""What one partition and one of its values take, besides their texts."""
LONGEST_FOLDER_NAME = 200


def partition_of(spec: PartitionSpec, schema: Schema, record: Record | Sequence[Any]) -> Partition:
    """Return the partition of a manifest entry's record under its spec.

    `schema` is the table's current one: of a source column that was dropped, only the partition field's name is known.
    Values are Iceberg's internal ones (days, months, microseconds as int), UUIDs as `UUID`.
    """
    return Partitions(spec, schema).of(record)


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Say whether a spec has one partition: no field, or only void ones, which is what dropping fields leaves in v1.

    Iceberg's `PartitionSpec.isUnpartitioned` (1.10); PyIceberg's only looks for fields.
    """
    return all(isinstance(f.transform, VoidTransform) for f in spec.fields)


_kept: ByteCache[tuple[str, str], Partition] = ByteCache(KEPT_BYTES)


class Partitions:
    """The partitions of one spec: equal values give the same object.

    They come out of the spec, and of the names and types of its source columns. So those are the key under which the
    process keeps partitions: each load of a table makes new objects of its spec and schema.
    """

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
        named = [(f.field_id, f.name, str(f.transform), f.source_id) for f in spec.fields]
        self._key = digest(repr((spec.spec_id, named, self._sources, [str(t) for t in self._types])))
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
            found = self._known[key] = self._found_or_built(key, values)
        return found

    def _found_or_built(self, key: str, values: tuple[Any, ...]) -> Partition:
        found = _kept.get((self._key, key))
        if found is None:
            found = self._build(values)
            texts = len(found.path) + sum(map(len, found.source_values.values())) + 3 * len(key)
            _kept.put((self._key, key), found, PARTITION_BYTES + VALUE_BYTES * len(values) + 2 * texts)
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
