"""Tables with a long history, made by writing their metadata instead of committing thousands of times."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.table import Table

MINUTE_MS = 60_000
Change = Callable[[dict[str, Any]], None]


def with_history(catalog: Any, table: Table, snapshots: int, commit: Callable[[Table], None]) -> Table:
    """Give an empty table `snapshots` snapshots, one a minute, and on top of them what `commit` commits; return it.

    Every snapshot of the history has a manifest list of its own with what the first real commit lists, so that whoever
    reads one can. The catalog's pointer moves to metadata files written here: nobody else may be at the table.
    """

    def number(metadata: dict[str, Any]) -> None:
        metadata["last-sequence-number"] = snapshots

    def grow(metadata: dict[str, Any]) -> None:
        real = metadata["snapshots"]
        made = _history(real[0], snapshots)
        if made:
            real[0]["parent-snapshot-id"] = made[-1]["snapshot-id"]
        metadata["snapshots"] = [*made, *real]
        metadata["snapshot-log"] = [
            {"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in metadata["snapshots"]
        ]

    table = _moved(catalog, table, "00001-0", number)
    commit(table)
    return _moved(catalog, table.refresh(), "00099-1", grow)


def _history(first: dict[str, Any], snapshots: int) -> list[dict[str, Any]]:
    folder = first["manifest-list"].rpartition("/")[0]
    content, made = _local(first["manifest-list"]).read_bytes(), []
    for number in range(1, snapshots + 1):
        listed = f"{folder}/snap-{number}-0-history.avro"
        _local(listed).write_bytes(content)
        made.append(
            {
                **first,
                "snapshot-id": number,
                "sequence-number": number,
                "timestamp-ms": first["timestamp-ms"] - (snapshots + 1 - number) * MINUTE_MS,
                "manifest-list": listed,
                **({"parent-snapshot-id": number - 1} if number > 1 else {}),
            }
        )
    return made


def _moved(catalog: Any, table: Table, name: str, change: Change) -> Table:
    """Write the table's metadata anew as `change` leaves it, under a name of its own, and point the catalog there."""
    metadata = json.loads(_local(table.metadata_location).read_text())
    change(metadata)
    location = f"{table.metadata_location.rpartition('/')[0]}/{name}0000000-0000-4000-8000-000000000000.metadata.json"
    _local(location).write_text(json.dumps(metadata))
    ident = table.name()
    catalog.drop_table(ident)
    moved: Table = catalog.register_table(ident, location)
    return moved


def _local(location: str) -> Path:
    return Path(urlsplit(location).path)
