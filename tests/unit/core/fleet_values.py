"""Tables of a fleet as tests need them: healthy unless told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regelate.core.fleet.observation import TableObservation
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetTrigger
from regelate.core.fleet.state import FleetRun, TableState
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS

MB = 2**20
NOW_MS = 20_000 * DAY_MS + 12 * HOUR_MS
"""Noon of a day, so that an hour earlier or later is the same day."""


def observed(name: str = "t", **seen: Any) -> TableObservation:
    """A table of eight right-sized files that was looked at a moment ago."""
    found = TableObservation(
        table_uuid=f"uuid-{name}",
        catalog="lake",
        ident=f"db.{name}",
        tenant="acme",
        observed_ms=NOW_MS,
        metadata_location=f"s3://lake/db/{name}/metadata/1.json",
        snapshot_id=1,
        files=8,
        files_after=8,
        size_bytes=8 * 128 * MB,
        snapshots=3,
        manifests=2,
        manifests_after=2,
        metadata_bytes=8_192,
        partitions=1,
    )
    return replace(found, **seen)


def ill(name: str = "t", files: int = 400, **seen: Any) -> TableObservation:
    """A table of many files of one megabyte, which become as many of 128 MB as they fill."""
    small = {
        "files": files,
        "small_files": files,
        "candidate_files": files,
        "candidate_bytes": files * MB,
        "size_bytes": files * MB,
        "files_after": -(-files // 128),
        "commits_per_hour": 1.0,
        "files_per_hour": 10.0,
    }
    return observed(name, **{**small, **seen})


def table(observation: TableObservation, **known: Any) -> TableState:
    found = TableState(
        table_uuid=observation.table_uuid,
        catalog=observation.catalog,
        ident=observation.ident,
        tenant=observation.tenant,
        observation=observation,
    )
    return replace(found, **known)


def live_run(name: str = "run-1", **told: Any) -> FleetRun:
    found = FleetRun(
        run_id=name,
        operation=FleetOperation.COMPACT,
        trigger=FleetTrigger.SCHEDULE,
        asked_by="fleet",
        reason="400 files become 4",
        queued_ms=NOW_MS,
        predicted_seconds=10.0,
        predicted_dollars=0.001,
        predicted_gb_seconds=30.0,
        predicted_bytes=400 * MB,
        model_seconds=10.0,
        max_dollars=0.0015,
        read_files=400,
    )
    return replace(found, **told)


def ended(run: FleetRun, outcome: FleetOutcome = FleetOutcome.DONE, *, ended_ms: int = NOW_MS, **told: Any) -> FleetRun:
    known = {
        "started_ms": run.queued_ms,
        "ended_ms": ended_ms,
        "actual_seconds": run.predicted_seconds,
        "actual_dollars": run.predicted_dollars,
        "actual_gb_seconds": run.predicted_gb_seconds,
        "actual_bytes": run.predicted_bytes,
        "files_before": 400,
        "files_after": 4 if outcome is FleetOutcome.DONE else 400,
    }
    return replace(run, outcome=outcome, **{**known, **told})
