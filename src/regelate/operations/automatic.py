"""NOTIFY_COMMIT: somebody has committed to a table; whether an automatic run of it is due, by the rule of WRITE's."""

from __future__ import annotations

from enum import StrEnum

from regelate.core.planning.plan import plan_compaction
from regelate.core.planning.trigger import has_enough_files
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.values import dataclass
from regelate.errors import Unavailable
from regelate.ports.clock import Clock
from regelate.ports.table import TableReader

LOOK_SECONDS = 10.0
"""Time cap of a look at a table's manifests; a table that takes longer is left to a SWEEP."""


class AutoStatus(StrEnum):
    """What came of a notice, or of a look."""

    SUBMITTED = "SUBMITTED"
    """A job was submitted, or somebody else had submitted one meanwhile."""
    COMPACTED = "COMPACTED"
    """Where there are no jobs and who looks compacts: it was compacted."""
    JOB_RUNNING = "JOB_RUNNING"
    """The table has a job that is not at its end."""
    ALREADY_DONE = "ALREADY_DONE"
    """The job of this very state of the table has ended: it is not tried again before the next commit."""
    NOT_DUE = "NOT_DUE"
    OFF = "OFF"
    """Automatic runs are not on for this table."""
    NO_JOBS = "NO_JOBS"
    """A run is due, and this deployment has no jobs."""
    UNKNOWN_LOCATION = "UNKNOWN_LOCATION"
    """No table of the caller's keeps its metadata there."""
    INVALID_TABLE_PROPERTY = "INVALID_TABLE_PROPERTY"
    """Somebody set a property that cannot be used: nothing is done before it is put right."""
    TIME_CAP_EXCEEDED = "TIME_CAP_EXCEEDED"
    """The look took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyCommitAnswer:
    """`table`: which it was, null where it is not known. `small_files`: of a look that came to its end."""

    table: str | None
    status: AutoStatus
    explanation: str | None = None
    small_files: int | None = None
    job_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at one state of a table found. `status` None: a run is due."""

    snapshot_id: int | None
    status: AutoStatus | None
    small_files: int | None = None


def look(
    reader: TableReader, policy: CompactionPolicy, clock: Clock, *, snapshot_id: int | None, files: int | None
) -> Look:
    """Look at the head of a table as a WRITE does after its commit. `files`: what its summary says that there are.

    No manifest is read where they are too few. Errors: as reading a table's metadata has.
    """
    if snapshot_id is None or not has_enough_files(files, policy.min_input_files):
        return Look(snapshot_id=snapshot_id, status=AutoStatus.NOT_DUE)
    try:
        snapshot = reader.read(policy, deadline=clock.monotonic() + LOOK_SECONDS)
    except Unavailable as fault:
        if fault.code != "TIME_CAP_EXCEEDED":
            raise
        return Look(snapshot_id=snapshot_id, status=AutoStatus.TIME_CAP_EXCEEDED)
    due = bool(plan_compaction(snapshot, policy).groups)
    small_files = sum(totals.small_files for totals in snapshot.totals)
    status = None if due else AutoStatus.NOT_DUE
    return Look(snapshot_id=snapshot_id, status=status, small_files=small_files)
