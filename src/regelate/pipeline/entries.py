"""Rows of a table's `entries` metadata table, as Spark selects them -> entries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from regelate.pipeline.metadata import POSITION_PATH_FIELD, Entry

LIVE = "status < 2"
"""Of `entries`: 0 existing, 1 added, 2 deleted."""
COLUMNS = (
    "data_file.file_path AS path",
    "data_file.content AS content",
    "data_file.file_format AS file_format",
    "data_file.spec_id AS spec_id",
    "data_file.record_count AS record_count",
    "data_file.file_size_in_bytes AS size_bytes",
    "coalesce(sequence_number, 0L) AS sequence_number",
    "coalesce(snapshot_id, 0L) AS snapshot_id",
    "data_file.sort_order_id AS sort_order_id",
)
DELETE_COLUMNS = (
    "data_file.equality_ids AS equality_ids",
    f"data_file.lower_bounds[{POSITION_PATH_FIELD}] AS lower",
    f"data_file.upper_bounds[{POSITION_PATH_FIELD}] AS upper",
)


def watched(entries: Iterator[Entry], watch: frozenset[str], seen: set[str] | None) -> Iterator[Entry]:
    for entry in entries:
        if seen is not None and entry.path in watch:
            seen.add(entry.path)
        yield entry


def entry_of(row: Mapping[str, Any], field_ids: list[int]) -> Entry:
    referenced = row.get("referenced")
    return Entry(
        path=row["path"],
        content=row["content"],
        file_format=row["file_format"],
        spec_id=row["spec_id"],
        partition={number: row[f"p{number}"] for number in field_ids},
        record_count=row["record_count"],
        size_bytes=row["size_bytes"],
        sequence_number=row["sequence_number"],
        snapshot_id=row["snapshot_id"],
        sort_order_id=row["sort_order_id"],
        equality_ids=tuple(row.get("equality_ids") or ()),
        referenced_lower=referenced or _path(row.get("lower")),
        referenced_upper=referenced or _path(row.get("upper")),
    )


def _path(bound: bytearray | None) -> str | None:
    return None if bound is None else bytes(bound).decode()
