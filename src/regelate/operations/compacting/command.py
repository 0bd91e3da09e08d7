"""What a COMPACT is asked, what it works with, and what came of it."""

from __future__ import annotations

from dataclasses import field

from regelate.core.answers import Status
from regelate.core.planning.plan import CompactionPlan
from regelate.core.policy.policy import CompactionPolicy, PlacementPolicy, RetentionPolicy, Verify
from regelate.core.requests import CompactRequest
from regelate.core.running.estimate import Estimate
from regelate.core.running.routing import HERE_ALONE, Capabilities, Job
from regelate.core.running.stats import CompactionStats
from regelate.core.values import dataclass
from regelate.operations.compacting.partial_progress import AT_ONCE, PartialProgress, Stop
from regelate.ports.clock import Clock
from regelate.ports.commit import Committer
from regelate.ports.engine import RewriteEngine
from regelate.ports.files import OutputFiles, Reclaimer
from regelate.ports.table import TableReader
from regelate.ports.telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactCommand:
    """What to do. `plan_id` pins the plan of an earlier dry run; `run_id` makes a repeated event land once.

    A later part sets two more: only data files of up to the sequence number `through` are rewritten, and none that its
    `earlier_runs` have made. `request` and `capabilities` say who else may do what does not fit here.
    """

    policy: CompactionPolicy
    run_id: str
    request_digest: str | None = None
    """Of the request that the run is for: the same run id with another one is refused."""
    request: CompactRequest = field(default_factory=CompactRequest)
    capabilities: Capabilities = HERE_ALONE
    dry_run: bool = False
    plan_id: str | None = None
    retention: RetentionPolicy | None = None
    """What to expire afterwards; None expires nothing."""
    verify: Verify = Verify.FAST
    partial_progress: PartialProgress = AT_ONCE
    through: int | None = None
    earlier_runs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOutcome:
    status: Status
    reason: str
    compacted: bool
    plan: CompactionPlan | None = None
    estimate: Estimate | None = None
    """Of the plan, where nothing was done yet."""
    stats: CompactionStats | None = None
    snapshot_id: int | None = None
    warnings: tuple[str, ...] = ()
    left_to: Job | None = None
    """Of one that is DELEGATED."""
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
