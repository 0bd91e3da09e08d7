"""What a fleet does for a table, who asked for it and what came of it: names, no values."""

from __future__ import annotations

from enum import StrEnum

THE_SCHEDULE = "the schedule"
"""Who asks for what nobody asks for."""
BACKLOG_DAYS = 90
"""So long the backlog of each hour is kept."""


class FleetOperation(StrEnum):
    """One kind of work on one table."""

    COMPACT = "compact"
    EXPIRE = "expire-snapshots"
    REWRITE_MANIFESTS = "rewrite-manifests"
    REMOVE_ORPHANS = "remove-orphan-files"
    APPLY_DELETES = "apply-deletes"
    """A COMPACT of the files that deletes apply to, for the deletes' sake."""

    @property
    def rewrites_data(self) -> bool:
        return self in (FleetOperation.COMPACT, FleetOperation.APPLY_DELETES)


class FleetTrigger(StrEnum):
    """What made a run happen."""

    SCHEDULE = "SCHEDULE"
    EVENT = "EVENT"
    DEMAND = "DEMAND"


class FleetOutcome(StrEnum):
    """How a run ended."""

    DONE = "DONE"
    PARTIAL = "PARTIAL"
    """What it did is in the table; the rest did not fit into its time or its dollars."""
    NO_EFFECT = "NO_EFFECT"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class FleetStatus(StrEnum):
    """Where a table stands; every table has exactly one."""

    NOT_YET_OBSERVED = "NOT_YET_OBSERVED"
    HEALTHY = "HEALTHY"
    """Nothing is worth doing, or the policy waits for more."""
    DUE = "DUE"
    """Something is worth doing: it is proposed, or waits for its turn."""
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COOLING = "COOLING"
    """Not yet: it was looked at lately, or a quiet window is on."""
    OVER_BUDGET = "OVER_BUDGET"
    PAUSED = "PAUSED"
    """A circuit breaker is open, or somebody asked for it."""
    DISABLED = "DISABLED"
    """The policy says no, or another manager looks after it."""
    FAILED = "FAILED"
    """Its last run failed, and it is tried again later."""


class PauseKind(StrEnum):
    """Why a table is paused."""

    ASKED = "ASKED"
    LOOP = "LOOP"
    NO_EFFECT = "NO_EFFECT"
    METADATA = "METADATA"
    DAILY_BYTES = "DAILY_BYTES"

    @property
    def ends_by_itself(self) -> bool:
        """Whether no person has to end it."""
        return self is not PauseKind.ASKED
