"""What the world is told of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from regelate.core.job import JobRecord
from regelate.core.plan_report import LISTED_GROUPS
from regelate.core.ranking import Rank
from regelate.core.stats import iso_time
from regelate.operations.fleet import FleetTable

Fields = Mapping[str, object]


def told(record: JobRecord) -> Fields:
    """Return the fields of JOB_STATUS."""
    totals = record.totals
    return {
        "job_id": record.job_id,
        "state": record.state.value,
        "operation": "COMPACT",
        "table": record.ident,
        "catalog": record.catalog,
        "origin": record.origin.value,
        "engine": record.engine.value,
        "explanation": record.why or None,
        "run": record.remote,
        "progress": {"groups_done": record.groups_done, "groups_all": record.groups_all},
        "part": record.part,
        "attempts": record.attempts,
        "created_at": iso_time(record.created_ms),
        "updated_at": iso_time(record.updated_ms),
        "totals": {
            "files_compacted": totals.files_compacted,
            "files_added": totals.files_added,
            "bytes_saved": totals.bytes_saved,
            "rows": totals.rows,
            "snapshot_ids": list(totals.snapshot_ids),
        },
        "result": None if record.result is None else json.loads(record.result),
        "error": None if record.error is None else json.loads(record.error),
    }


def ranked(tables: Sequence[FleetTable]) -> Fields:
    """Return the part of SWEEP's answer that is about jobs: counts over all tables, a list of the unhealthiest."""
    told = [table for table in tables if table.ranked.health.score < 100 or table.job is not None]
    return {
        "jobs_submitted": sum(table.job is not None and not table.was_there for table in tables),
        "jobs_backlog": sum(table.ranked.rank is Rank.OVER_BUDGET for table in tables),
        "ranking": [
            {
                "table": table.ranked.ident,
                "score": round(table.ranked.health.score, 1),
                "rank": "JOB_RUNNING" if table.was_there else table.ranked.rank.value,
                "reason": table.ranked.health.recommendation if table.error is None else str(table.error),
                "job_id": None if table.job is None else table.job.job_id,
            }
            for table in told[:LISTED_GROUPS]
        ],
    }
