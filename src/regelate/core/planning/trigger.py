"""When a write looks for small files: every Nth position of the table, by its metadata, never by a counter."""

from __future__ import annotations

from collections.abc import Sequence

from regelate.core.table.table import SnapshotEntry


def due(position_now: int, last_own_position: int, interval: int) -> bool:
    """Say whether a multiple of `interval` lies in (last_own_position, position_now].

    So commits of other engines in between hide no multiple, and each is seen by one of our commits only.
    """
    if interval < 1:
        raise ValueError(f"interval {interval}: must be at least 1")
    return position_now // interval > last_own_position // interval


def has_enough_files(files: int | None, least: int) -> bool:
    """Say whether a table that has so many data files may hold `least` small ones; None, which nobody knows, may."""
    return files is None or files >= least


def position(snapshots: Sequence[SnapshotEntry], format_version: int, snapshot_id: int | None = None) -> int:
    """Return the position of a snapshot in its table, of the newest one by default; 0 where there is none.

    Its sequence number; in v1 tables, where all are 0, its place in the snapshot log, from 1.
    """
    found = _positions(snapshots, format_version)
    if snapshot_id is None:
        return max(found.values(), default=0)
    return found.get(snapshot_id, 0)


def last_own_position(snapshots: Sequence[SnapshotEntry], format_version: int, before: int | None = None) -> int:
    """Return the newest position that this service wrote, below `before` if given.

    Where the log shows none, what came before the log may be ours: then the last position that it does not show (a
    catalog that shows only the head must not make every write look).
    """
    found = _positions(snapshots, format_version)
    ours = [found[s.snapshot_id] for s in snapshots if s.run_id is not None]
    own = [number for number in ours if before is None or number < before]
    return max(own, default=max(min(found.values(), default=1) - 1, 0))


def check_is_due(snapshots: Sequence[SnapshotEntry], format_version: int, snapshot_id: int, interval: int) -> bool:
    """Say whether the commit of `snapshot_id` is one of ours that looks for small files.

    A rewrite never does: a compaction triggers no compaction. Nor does a snapshot that is not ours, or not in the log.
    """
    entry = next((s for s in snapshots if s.snapshot_id == snapshot_id), None)
    if entry is None or entry.run_id is None or entry.operation == "replace":
        return False
    now = position(snapshots, format_version, snapshot_id)
    return due(now, last_own_position(snapshots, format_version, now), interval)


def _positions(snapshots: Sequence[SnapshotEntry], format_version: int) -> dict[int, int]:
    if format_version == 1:
        return {s.snapshot_id: number for number, s in enumerate(snapshots, start=1)}
    return {s.snapshot_id: s.sequence_number for s in snapshots}
