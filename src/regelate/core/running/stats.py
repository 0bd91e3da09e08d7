"""What the world is told of one COMPACT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from datetime import UTC, datetime
from typing import Any, overload

from regelate.core.engines import HERE
from regelate.core.planning.plan import CompactionPlan
from regelate.core.planning.selection import is_small
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.running.rewrite import RewriteResult
from regelate.core.table.table import TableSnapshot
from regelate.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSeconds:
    """Wall-clock seconds of each phase."""

    plan: float = 0.0
    rewrite: float = 0.0
    verify: float = 0.0
    commit: float = 0.0
    expire: float = 0.0

    @property
    def total(self) -> float:
        return self.plan + self.rewrite + self.verify + self.commit + self.expire


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStats:
    """The `stats` of an answer: exactly these names, in this order.

    `files_before` / `files_after` and `bytes_*`: live data files of the whole table at the plan and after the commit,
    so files_after = files_before - files_removed + files_added + what others did meanwhile. `bytes_saved`: inputs less
    outputs; negative where they grew. `bytes_spliced`: of them copied and not recoded. `row_groups_*`: of the inputs
    and of what became of them; None where nobody counts them. `rows`: rows written. `small_files_remaining`:
    candidates left. `bytes_freed`: deleted for good; `bytes_quarantined`: to be deleted from `deletable_at` (ISO
    8601) on, until then `undo_id` brings the expired snapshots back.
    """

    files_before: int
    files_after: int
    files_compacted: int
    files_removed: int
    files_added: int
    bytes_before: int
    bytes_after: int
    bytes_saved: int
    bytes_spliced: int = 0
    row_groups_before: int | None = None
    row_groups_after: int | None = None
    snapshots_expired: int = 0
    compaction_time_ms: float
    small_files_remaining: int
    engine: str
    groups: int
    groups_deferred: int
    rows: int
    delete_files_removed: int
    manifests_before: int
    manifests_after: int
    bytes_freed: int = 0
    bytes_quarantined: int = 0
    undo_id: str | None = None
    deletable_at: str | None = None
    commit_attempts: int
    dropped_groups: int
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)

    def as_dict(self) -> dict[str, object]:
        """Return the stats as plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def of_dict(cls, found: Mapping[str, Any]) -> CompactionStats:
        """Return what `as_dict` wrote."""
        return cls(**{**found, "seconds": PhaseSeconds(**found["seconds"])})


@overload
def iso_time(at_ms: int) -> str: ...
@overload
def iso_time(at_ms: None) -> None: ...
@overload
def iso_time(at_ms: int | None) -> str | None: ...
def iso_time(at_ms: int | None) -> str | None:
    """Return milliseconds since the epoch as people and JSON write a time: `2026-11-21T19:00:00Z`, to the second."""
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms // 1000, tz=UTC).isoformat().replace("+00:00", "Z")


def summarise(
    before: TableSnapshot,
    plan: CompactionPlan,
    landed: Sequence[RewriteResult],
    policy: CompactionPolicy,
    *,
    files_after: int,
    bytes_after: int,
    manifests_after: int,
    commit_attempts: int,
    dropped_groups: int,
    seconds: PhaseSeconds,
    engine: str = HERE.value,
    row_groups_before: int | None = None,
    delete_files_removed: int = 0,
    snapshots_expired: int = 0,
    bytes_freed: int = 0,
    bytes_quarantined: int = 0,
    undo_id: str | None = None,
    deletable_ms: int | None = None,
) -> CompactionStats:
    """Return the stats of one COMPACT from its plan, the results that landed, and the totals after its commit.

    `small_files_remaining`: candidates at the plan, less those rewritten, plus outputs outside min..max; candidates
    that others added meanwhile are not known here and not counted.
    """
    compacted = sum(len(r.group.tasks) for r in landed)
    bytes_in = sum(r.group.size_bytes for r in landed)
    added = [f for r in landed for f in r.added]
    again = sum(is_small(f.size_bytes, policy) or f.size_bytes > policy.max_file_size_bytes for f in added)
    return CompactionStats(
        files_before=before.file_count,
        files_after=files_after,
        files_compacted=compacted,
        files_removed=compacted,
        files_added=len(added),
        bytes_before=before.size_bytes,
        bytes_after=bytes_after,
        bytes_saved=bytes_in - sum(r.bytes_written for r in landed),
        bytes_spliced=sum(r.spliced_bytes for r in landed),
        row_groups_before=row_groups_before,
        row_groups_after=None if row_groups_before is None else sum(f.row_groups for f in added),
        snapshots_expired=snapshots_expired,
        compaction_time_ms=round(seconds.total * 1000, 2),
        small_files_remaining=len(before.candidates) - compacted + again,
        engine=engine,
        groups=len(landed),
        groups_deferred=len(plan.deferred),
        rows=sum(r.rows_written for r in landed),
        delete_files_removed=delete_files_removed,
        manifests_before=before.manifest_count,
        manifests_after=manifests_after,
        bytes_freed=bytes_freed,
        bytes_quarantined=bytes_quarantined,
        undo_id=undo_id,
        deletable_at=iso_time(deletable_ms),
        commit_attempts=commit_attempts,
        dropped_groups=dropped_groups,
        seconds=seconds,
    )
