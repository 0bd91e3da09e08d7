"""What other engines do beside rows: statistics files, and the upgrade of a v1 table."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AssertTableUUID,
    SetPartitionStatisticsUpdate,
    SetStatisticsUpdate,
    UpgradeFormatVersionUpdate,
)

from tests.system.simulation.foreign import ForeignEngine, Updates

if TYPE_CHECKING:
    from tests.system.simulation.world import World


def statistics(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Compute statistics of a snapshot, of its table or of its partitions; a second time they replace the first."""
    of_table = rng.random() < 0.5

    def make(table: Table) -> Updates | None:
        metadata = table.metadata
        if not metadata.snapshots:
            return None
        chosen = rng.choice(metadata.snapshots[-3:]).snapshot_id
        data = b"PFA1" + rng.randbytes(8)
        path = engine.put(table, "stats.puffin" if of_table else "partitions.stats", data, folder="metadata")
        asserted = (AssertTableUUID(uuid=metadata.table_uuid),)
        common = {"snapshot-id": chosen, "statistics-path": path, "file-size-in-bytes": len(data)}
        if of_table:
            more = {"file-footer-size-in-bytes": 4, "blob-metadata": []}
            return asserted, (SetStatisticsUpdate(statistics=StatisticsFile(**common, **more)),)
        return asserted, (SetPartitionStatisticsUpdate(partition_statistics=PartitionStatisticsFile(**common)),)

    return engine.update(make)


def upgrade(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Make a v1 table a v2 table: files that it has keep sequence number 0."""

    def make(table: Table) -> Updates | None:
        if table.metadata.format_version > 1:
            return None
        return (AssertTableUUID(uuid=table.metadata.table_uuid),), (UpgradeFormatVersionUpdate(format_version=2),)

    return engine.update(make)
