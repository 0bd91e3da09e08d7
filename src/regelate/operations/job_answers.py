"""What the world is told of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping

from regelate.core.job import JobRecord
from regelate.core.stats import iso_time

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
