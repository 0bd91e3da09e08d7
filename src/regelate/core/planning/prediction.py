"""How large outputs will be: what earlier rewrites achieved, and what each candidate is likely to weigh."""

from __future__ import annotations

from collections.abc import Iterable

from regelate.core.planning.packing import Candidate, output_files
from regelate.core.planning.selection import Reason, deleted_share, is_small
from regelate.core.planning.splicing import Fate, likely_fate
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.table import SPLICED_BYTES, FileScanTask, SnapshotEntry

MIN_RATIO, MAX_RATIO = 0.1, 4.0
"""A ratio outside is taken for noise. Footers can be nine tenths of a file of a few rows, hardly more; and
four is about what Parquet loses between zstd and no codec. Believing more would make a file ten times too large."""
RATIO_MIN_BYTES = 1024 * 1024
"""A rewrite of less input says nothing about the table: it is footers, not pages."""
RATIO_SNAPSHOTS = 5
"""Codec and layout change over time, so only the newest few rewrites count."""


def achieved_ratio(snapshots: Iterable[SnapshotEntry]) -> float | None:
    """Return bytes out per byte in of this service's newest rewrites, weighted by bytes; None without a telling one.

    From the summaries' `added-files-size` and `removed-files-size`. The latter counts delete files dropped in the same
    commit too, so the ratio errs a little to the low side where there are deletes. What was only copied tells nothing,
    and is not counted.
    """
    removed = added = counted = 0
    for entry in sorted(snapshots, key=lambda s: (s.sequence_number, s.timestamp_ms), reverse=True):
        gone, new = _size(entry, "removed-files-size"), _size(entry, "added-files-size")
        if not written_by_us(entry) or gone is None or new is None:
            continue
        spliced = _size(entry, SPLICED_BYTES) or 0
        gone, new = gone - spliced, max(new - spliced, 0)
        if gone >= RATIO_MIN_BYTES:
            removed, added, counted = removed + gone, added + new, counted + 1
        if counted == RATIO_SNAPSHOTS:
            break
    return clamped(added / removed) if removed else None


def written_by_us(entry: SnapshotEntry) -> bool:
    """Say whether a snapshot is a rewrite that this service committed."""
    return entry.operation == "replace" and entry.run_id is not None


def clamped(ratio: float) -> float:
    return min(max(ratio, MIN_RATIO), MAX_RATIO)


def _size(entry: SnapshotEntry, key: str) -> int | None:
    text = entry.summary.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else None


def weighed(task: FileScanTask, reason: Reason, policy: CompactionPolicy, ratio: float, *, own: bool) -> Candidate:
    """Return a selected file as a candidate, given the ratio to expect; `own`: one of our rewrites wrote it.

    What rewrites save is mostly the overhead of small files: a larger file is not expected to shrink, a file that we
    wrote comes out as it is, and so does one that is copied.
    """
    data_file = task.data_file
    if own:
        ratio = 1.0
    elif not is_small(data_file.size_bytes, policy):
        ratio = max(ratio, 1.0)
    likely = likely_fate(task, policy, ratio)
    kept = 1.0 if likely is Fate.SPLICED else ratio
    size = round(data_file.size_bytes * (1.0 - deleted_share(data_file, task.deletes)) * kept)
    return Candidate(
        task=task,
        reason=reason,
        predicted_bytes=size,
        required=_required(reason, size, policy),
        size_ratio=ratio,
        likely_fate=likely,
    )


def _required(reason: Reason, predicted_bytes: int, policy: CompactionPolicy) -> bool:
    """Say whether a file is work even when alone: it has deletes to apply, or splits into pieces that are not small."""
    if reason is Reason.LARGE:
        pieces = output_files(predicted_bytes, policy)
        return pieces > 1 and predicted_bytes / pieces >= policy.min_file_size_bytes
    return reason is not Reason.SMALL
