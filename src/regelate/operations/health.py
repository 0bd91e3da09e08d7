"""TABLE_HEALTH: how healthy a table is, and on demand a reason for every data file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from regelate.core.planning.health import HealthAssessment, assess
from regelate.core.planning.plan import SkipReason, plan_compaction
from regelate.core.planning.selection import Reason
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.table import DataFile, TableSnapshot
from regelate.core.values import dataclass
from regelate.ports.clock import Clock
from regelate.ports.table import TableReader


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """How healthy a table is, and what of it was read to say so."""

    health: HealthAssessment
    snapshot: TableSnapshot


def table_health(reader: TableReader, clock: Clock, policy: CompactionPolicy) -> HealthReport:
    """Assess one table from its manifests."""
    snapshot = reader.read(policy)
    found = assess(snapshot, policy, now_ms=clock.now_ms(), metadata_bytes=reader.metadata_bytes())
    return HealthReport(health=found, snapshot=snapshot)


def explain(
    reader: TableReader, snapshot: TableSnapshot, policy: CompactionPolicy
) -> Iterator[tuple[DataFile, Reason | SkipReason]]:
    """Stream the reason that decides for every live data file: a file that is selected may still be left alone by the
    plan of its partition, which is judged without a budget of files. `snapshot`: as the reader read it by the policy.
    """
    plan = plan_compaction(snapshot, replace(policy, max_files=None))
    left = {task.data_file.path: skip.reason for skip in plan.skipped for task in skip.tasks}
    for data_file, reason in reader.explain(policy):
        yield data_file, left.get(data_file.path, reason)
