"""TABLE_HEALTH: how healthy a table is, and on demand a reason for every data file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regelate.core.planning.health import HealthAssessment, assess
from regelate.core.planning.selection import Reason
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.table import DataFile
from regelate.ports.clock import Clock
from regelate.ports.table import TableReader


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    health: HealthAssessment
    snapshot_id: int | None


def table_health(reader: TableReader, clock: Clock, policy: CompactionPolicy) -> HealthReport:
    """Assess one table from its manifests."""
    snapshot = reader.read(policy)
    return HealthReport(health=assess(snapshot, policy, now_ms=clock.now_ms()), snapshot_id=snapshot.snapshot_id)


def explain(reader: TableReader, policy: CompactionPolicy) -> Iterator[tuple[DataFile, Reason]]:
    """Stream one reason per live data file."""
    return reader.explain(policy)
