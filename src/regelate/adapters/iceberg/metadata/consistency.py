"""Whether what the catalog shows now can follow what it showed before (row 66 of the fault catalogue: an older state).

Three things look alike to a program that only compares pointers: a table that moved on, one that was dropped and made
again, and a catalog that answers with another table's metadata or with an older state. Nothing is committed on that.
"""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from regelate.errors import Unavailable

SKEW_MS = 60_000
"""Clocks of writers may differ by so much. Iceberg's own tolerance (TableMetadata, ONE_MINUTE)."""


def check_succession(seen: TableMetadata, found: TableMetadata, *, seen_at_ms: int) -> None:
    """Compare two loads of one name, the later one with the earlier one, which was made at `seen_at_ms`.

    Sequence numbers never go back. A table that was made again under the name is younger than our first look at it: one
    with older traces is another table. Errors: Unavailable CATALOG_INCONSISTENT (502).
    """
    if seen.table_uuid != found.table_uuid:
        if _first_trace_ms(found) < seen_at_ms - SKEW_MS:
            raise _inconsistent(f"the metadata of another table (UUID {found.table_uuid}, not {seen.table_uuid})")
        return
    before, now = _sequence_number(seen), _sequence_number(found)
    if now < before:
        raise _inconsistent(f"an older state of the table (sequence number {now} after {before})")
    if not now and found.last_updated_ms < seen.last_updated_ms - SKEW_MS:
        raise _inconsistent(
            f"an older state of the table (last updated at {found.last_updated_ms} ms after {seen.last_updated_ms})"
        )


def _inconsistent(what: str) -> Unavailable:
    return Unavailable(
        "CATALOG_INCONSISTENT",
        f"the catalog answered with {what}; nothing was committed. Check the catalog, then repeat",
        status=502,
    )


def _first_trace_ms(metadata: TableMetadata) -> int:
    traces = [s.timestamp_ms for s in metadata.snapshots]
    traces += [entry.timestamp_ms for entry in metadata.metadata_log]
    return min(traces, default=metadata.last_updated_ms)


def _sequence_number(metadata: TableMetadata) -> int:
    """v1 metadata has none (trap T18: sequence numbers that v1 lacks): there the times decide."""
    return int(getattr(metadata, "last_sequence_number", 0))
