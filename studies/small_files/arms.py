"""The arms of the study: a row each. What differs between two of them is what is in their rows, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

SCHEDULE = 20
"""A scheduled compaction runs in every iteration that is a multiple of it."""
MIN_NUM_FILES, MAX_FILE_BYTES = 50, 128 << 20
"""When an automatic run is due and what files it makes: the defaults of `regelate.auto.*`, and Delta's."""
SMALL_BYTES = MAX_FILE_BYTES // 2
"""Files below this are small: they want compaction."""

ORDER = "id"
"""Every table is written in this order, by `range`: the rows of a batch stay together, as where nothing shuffles them.

By hash, which Spark's join leaves behind, every file has rows that the next batch updates, and a copy-on-write MERGE
writes the whole table and there are never more files than tasks."""
BY_RANGE = {"write.distribution-mode": "range", "write.merge.distribution-mode": "range"}
ADVISORY_PROPERTY = "write.spark.advisory-partition-size-bytes"


class Compaction(StrEnum):
    """When a table is compacted."""

    NEVER = "never"
    SCHEDULED = "scheduled"
    AUTOMATIC = "automatic"

    def is_scheduled(self, iteration: int) -> bool:
        return self is Compaction.SCHEDULED and iteration % SCHEDULE == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """How a MERGE writes: properties of the table, and settings of the session while it runs.

    `bytes_per_row`: what one write task takes, in bytes of shuffled rows for each row of a batch; None: as it comes.
    """

    properties: Mapping[str, str]
    settings: Mapping[str, str]
    bytes_per_row: int | None = None

    def table_properties(self, rows: int) -> dict[str, str]:
        """Return the properties of a table that gets batches of so many rows."""
        task = {} if self.bytes_per_row is None else {ADVISORY_PROPERTY: str(self.bytes_per_row * rows)}
        return {**self.properties, **task}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to keep a table. `key` names its table and its picture; `colour`: of its lines; `properties`: of its
    table, besides its writer's."""

    key: str
    title: str
    colour: str
    compaction: Compaction
    writer: Writer
    properties: Mapping[str, str] = field(default_factory=dict)


PLAIN = Writer(
    properties=BY_RANGE,
    settings={"spark.sql.adaptive.coalescePartitions.enabled": "false"},
)
OPTIMIZED = Writer(
    properties=BY_RANGE,
    settings={
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1",
    },
    bytes_per_row=40,
)
"""Tasks are joined until each has a batch: 40 bytes are what a row of the workload takes in Spark's shuffle. Iceberg's
own 128 MB would let a copy-on-write MERGE put the whole table into one file, each time anew."""
ARMS: Sequence[Arm] = (
    Arm(key="none", title="No compaction", colour="#c8553d", compaction=Compaction.NEVER, writer=PLAIN),
    Arm(
        key="scheduled",
        title="Scheduled compaction",
        colour="#e0a030",
        compaction=Compaction.SCHEDULED,
        writer=PLAIN,
    ),
    Arm(
        key="auto",
        title="Automatic compaction",
        colour="#588b4a",
        compaction=Compaction.AUTOMATIC,
        writer=PLAIN,
    ),
    Arm(
        key="optimized",
        title="Optimized write",
        colour="#7a5195",
        compaction=Compaction.NEVER,
        writer=OPTIMIZED,
    ),
    Arm(
        key="auto_optimized",
        title="Automatic compaction and optimized write",
        colour="#2a6f97",
        compaction=Compaction.AUTOMATIC,
        writer=OPTIMIZED,
    ),
    Arm(
        key="adaptive",
        title="Both, with adaptive targets",
        colour="#7f7f7f",
        compaction=Compaction.AUTOMATIC,
        writer=OPTIMIZED,
        properties={"regelate.compaction.target-file-size-bytes": "adaptive"},
    ),
)
