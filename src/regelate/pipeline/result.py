"""What a job of the pipeline answers: JSON with COMPACT's names, and an exit code that a scheduler can act on.

The JSON goes to a local file, or to any URI by the session's own means.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.core.jobs.exit_codes import DONE, FAILED, LATER, PARTIAL, USAGE
from regelate.core.planning.plan import CompactionPlan
from regelate.core.planning.plan_report import planned
from regelate.core.running.stats import CompactionStats
from regelate.core.values import dataclass
from regelate.errors import ErrorDetail, InvalidRequest, RegelateError
from regelate.pipeline.spark_errors import spark_faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Status(StrEnum):
    COMPLETED = "COMPLETED"
    PARTIAL = "PARTIAL"
    NOTHING_TO_DO = "NOTHING_TO_DO"
    PLANNED = "PLANNED"
    """A dry run: nothing was touched."""
    FAILED = "FAILED"
    """Of one step, or of a whole job whose validation failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a job. `found`: what its procedure said; `statements`: the SQL that ran, or would run."""

    step: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    found: Mapping[str, object] = field(default_factory=dict)
    statements: tuple[str, ...] = ()
    error: ErrorDetail | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One job on one table. `snapshot_before` is the one to go back to; None for a table without a snapshot.

    `snapshot_ids`: what the rewrite committed, oldest first. `snapshot_after` is the head, which may be another's.
    """

    job: str
    table: str
    status: Status
    reason: str
    dry_run: bool
    started_at_ms: int
    snapshot_before: int | None
    snapshot_after: int | None
    snapshot_ids: tuple[int, ...] = ()
    plan: CompactionPlan | None = None
    stats: CompactionStats | None = None
    steps: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    impact: Mapping[str, object] | None = None
    error: RegelateError | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the answer; `compacted`, `status`, `reason`, `stats`, `plan` and `warnings` are COMPACT's."""
        return {
            "success": self.status is not Status.FAILED,
            "job": self.job,
            "table": self.table,
            "compacted": self.stats is not None and self.stats.files_compacted > 0,
            "status": self.status.value,
            "reason": self.reason,
            "dry_run": self.dry_run,
            "started_at_ms": self.started_at_ms,
            "snapshot_before": self.snapshot_before,
            "snapshot_after": self.snapshot_after,
            "snapshot_ids": list(self.snapshot_ids),
            "stats": None if self.stats is None else self.stats.as_dict(),
            "plan": None if self.plan is None else planned(self.plan),
            "steps": [asdict(step) for step in self.steps],
            "warnings": list(self.warnings),
            "versions": dict(self.versions),
            "impact": self.impact,
            **({} if self.error is None else {"error": self.error.as_error().as_dict()}),
        }

    @property
    def exit_code(self) -> int:
        return {Status.PARTIAL: PARTIAL, Status.FAILED: FAILED}.get(self.status, DONE)


def failure(fault: RegelateError, *, job: str, table: str | None, started_at_ms: int) -> dict[str, object]:
    """Return the answer of a job that came to nothing."""
    return {
        "success": False,
        "job": job,
        "table": table,
        "started_at_ms": started_at_ms,
        "error": fault.as_error().as_dict(),
    }


def exit_code(fault: RegelateError) -> int:
    """Return the exit code of a fault; a wrong flag is told apart from what will fail however it is written."""
    if fault.retryable:
        return LATER
    return USAGE if isinstance(fault, InvalidRequest) else FAILED


def as_text(answer: Mapping[str, object]) -> str:
    return json.dumps(answer, indent=2, ensure_ascii=False, default=str) + "\n"


def write_file(path: Path, text: str) -> None:
    """Write a result so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def write_object(spark: SparkSession, catalog: str, uri: str, content: str) -> None:
    """Write a text to a URI: S3 by Iceberg's S3FileIO with the catalog's own properties, the rest by Hadoop."""
    jvm: Any = spark._jvm
    prefix = f"spark.sql.catalog.{catalog}."
    given = {key.removeprefix(prefix): value for key, value in spark.sparkContext.getConf().getAll() if prefix in key}
    properties = jvm.java.util.HashMap()
    for key, value in given.items():
        properties.put(key, value)
    hadoop = spark._jsc.hadoopConfiguration()
    with spark_faults(uri):
        io = jvm.org.apache.iceberg.CatalogUtil.loadFileIO("org.apache.iceberg.io.ResolvingFileIO", properties, hadoop)
        stream = io.newOutputFile(uri).createOrOverwrite()
        try:
            stream.write(bytearray(content.encode()))
        finally:
            stream.close()
            io.close()
