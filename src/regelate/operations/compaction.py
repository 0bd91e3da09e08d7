"""What a COMPACT is asked, what it works with, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from regelate.core.plan import CompactionPlan
from regelate.core.policy import CompactionPolicy, Engine, PlacementPolicy, RetentionPolicy, Verify
from regelate.core.stats import CompactionStats
from regelate.operations.pacing import AT_ONCE, Pacing, Stop
from regelate.ports import Clock, Committer, OutputFiles, Reclaimer, RewriteEngine, TableReader, Telemetry


class Status(StrEnum):
    COMPLETED = "COMPLETED"
    PARTIAL = "PARTIAL"
    NOTHING_TO_DO = "NOTHING_TO_DO"
    ALREADY_DONE = "ALREADY_DONE"
    PLANNED = "PLANNED"
    DELEGATED = "DELEGATED"
    """A job does it, or is at it already."""
    CANCELLED = "CANCELLED"
    """Of a job: it was cancelled before this part was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactCommand:
    """What to do. `plan_id` pins the plan of an earlier dry run; `run_id` makes a repeated event land once.

    A later part sets two more: only data files of up to the sequence number `through` are rewritten, and none that its
    `earlier_runs` have made. `delegate_to`: a plan that does not fit here is left to a job, on a worker of this size.
    """

    policy: CompactionPolicy
    run_id: str
    dry_run: bool = False
    plan_id: str | None = None
    retention: RetentionPolicy | None = None
    """What to expire afterwards; None expires nothing."""
    max_cost_dollars: float | None = None
    verify: Verify = Verify.FAST
    pacing: Pacing = AT_ONCE
    through: int | None = None
    earlier_runs: frozenset[str] = frozenset()
    delegate_to: PlacementPolicy | None = None
    larger_worker: bool = False
    """Whether that worker is another machine, which may have more memory and disk than this one."""
    spark: bool = False
    """Whether a plan that does not fit may be left to Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOutcome:
    status: Status
    reason: str
    compacted: bool
    plan: CompactionPlan | None = None
    stats: CompactionStats | None = None
    snapshot_id: int | None = None
    warnings: tuple[str, ...] = ()
    engine: Engine = Engine.DUCKDB
    """Of one that is DELEGATED: what does it; `explanation` says why in a sentence."""
    explanation: str | None = None
    stopped: Stop | None = None
    """Groups of the plan are left over, because the run was stopped between two of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTools:
    """The ports of one table, for one run."""

    reader: TableReader
    engine: RewriteEngine
    outputs: OutputFiles
    committer: Committer
    reclaimer: Reclaimer
    telemetry: Telemetry
    clock: Clock
    placement: PlacementPolicy
