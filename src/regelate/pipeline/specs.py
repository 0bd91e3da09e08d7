"""Partitions of a table as Spark's metadata tables show them -> core partitions, and predicates that select them.

A filter selects the same partitions as in the service (adapters/iceberg/metadata/partitions.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

from regelate.core.table.partition_text import date_text, float_text, moment, value_text
from regelate.core.table.table import Partition
from regelate.core.table.time_ranges import ends_at_ms, partition_ends_at_ms
from regelate.core.values import dataclass
from regelate.pipeline.names import quoted
from regelate.pipeline.sql import text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIZED = re.compile(r"(bucket|truncate)\[(\d+)\]")
_FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
"""Iceberg's functions in Spark, by transform; their results are what the partition holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecField:
    """One field of a partition spec. `source`: path of names of its column; empty where the column was dropped."""

    field_id: int
    name: str
    transform: str
    source: tuple[str, ...]
    source_type: str

    @property
    def is_void(self) -> bool:
        return self.transform == "void"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    spec_id: int
    fields: tuple[SpecField, ...]

    @property
    def is_unpartitioned(self) -> bool:
        """Whether it has one partition; fields that are all void are what dropping them leaves in v1."""
        return all(f.is_void for f in self.fields)

    def partition(self, values: Sequence[object]) -> Partition:
        """Return the partition of these values, one per field, in Iceberg's internal form (`internal`)."""
        texts = [value_text(f.transform, f.source_type, v) for f, v in zip(self.fields, values, strict=True)]
        used = Counter(f.source for f in self.fields if not f.is_void)
        by_source = {
            ".".join(f.source): shown
            for f, shown in zip(self.fields, texts, strict=True)
            if f.source and not f.is_void and used[f.source] == 1
        }
        path = "/".join(
            f"{quote_plus(f.name)}={quote_plus(shown)}" for f, shown in zip(self.fields, texts, strict=True)
        )
        return Partition(
            spec_id=self.spec_id,
            values=tuple(values),
            path=path,
            source_values={**by_source, **{f.name: shown for f, shown in zip(self.fields, texts, strict=True)}},
            ends_at_ms=self._ends_at_ms(values),
        )

    def _ends_at_ms(self, values: Sequence[object]) -> int | None:
        fields = zip(self.fields, values, strict=True)
        return partition_ends_at_ms((f.source, ends_at_ms(f.transform, f.source_type, v)) for f, v in fields)

    def predicate(self, catalog: str, partition: Partition) -> str | None:
        """Return a row filter of Spark SQL that selects exactly this partition; None where none can be written."""
        parts = [_condition(catalog, f, v) for f, v in zip(self.fields, partition.values, strict=True) if not f.is_void]
        found = [part for part in parts if part is not None]
        return " AND ".join(found) if found and len(found) == len(parts) else None


def specs_of(metadata: Mapping[str, Any]) -> dict[int, Spec]:
    """Return the specs of a table's metadata.json by id, with their columns as the current schema names them."""
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    columns = dict(_columns(schema, ()))
    return {spec["spec-id"]: _spec(spec, columns) for spec in metadata["partition-specs"]}


def _spec(spec: Mapping[str, Any], columns: Mapping[int, tuple[tuple[str, ...], str]]) -> Spec:
    fields = []
    for field in spec["fields"]:
        source, kind = columns.get(field["source-id"], ((), ""))
        fields.append(
            SpecField(
                field_id=field["field-id"],
                name=field["name"],
                transform=field["transform"],
                source=source,
                source_type=kind,
            )
        )
    return Spec(spec_id=spec["spec-id"], fields=tuple(fields))


def _columns(struct: Mapping[str, Any], above: tuple[str, ...]) -> list[tuple[int, tuple[tuple[str, ...], str]]]:
    """Return (field id, (path, type text)) of all columns outside lists and maps."""
    found: list[tuple[int, tuple[tuple[str, ...], str]]] = []
    for field in struct["fields"]:
        path, kind = (*above, field["name"]), field["type"]
        if isinstance(kind, str):
            found.append((field["id"], (path, kind)))
        elif kind["type"] == "struct":
            found += _columns(kind, path)
    return found


def internal(value: object) -> object:
    """Return a partition value that Spark handed out in Iceberg's internal form: days and microseconds as int."""
    if isinstance(value, datetime):
        return round((value.replace(tzinfo=UTC) - _EPOCH) / timedelta(microseconds=1))
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    return bytes(value) if isinstance(value, bytearray) else value


def _condition(catalog: str, field: SpecField, value: Any) -> str | None:
    """Return one field's part of a predicate; None for a transform or a type that Spark SQL has no words for."""
    if not field.source:
        return None
    column, sized = quoted(*field.source), _SIZED.fullmatch(field.transform)
    if field.transform == "identity":
        left, right = column, _literal(field.source_type, value)
    elif field.transform in _FUNCTIONS:
        left = f"{quoted(catalog)}.system.{_FUNCTIONS[field.transform]}({column})"
        right = _literal("date" if field.transform == "day" else "int", value)
    elif sized is not None:
        left = f"{quoted(catalog)}.system.{sized[1]}({sized[2]}, {column})"
        right = _literal("int" if sized[1] == "bucket" else field.source_type, value)
    else:
        return None
    if value is None:
        return f"{left} IS NULL"
    return None if right is None else f"{left} = {right}"


def _literal(kind: str, value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, float):
        return f"CAST({text(float_text(value))} AS DOUBLE)" if kind == "double" else None
    if isinstance(value, Decimal):
        return f"CAST({text(str(value))} AS {kind})"
    try:
        if kind == "date":
            return f"DATE {text(date_text(value))}"
        if kind in ("timestamp", "timestamptz"):
            word = "TIMESTAMP" if kind == "timestamptz" else "TIMESTAMP_NTZ"
            return f"{word} {text(moment(value, zoned=kind == 'timestamptz').isoformat(sep=' '))}"
    except OverflowError:
        return None
    if kind in ("string", "uuid"):
        return text(str(value))
    return str(value) if isinstance(value, int) else None
