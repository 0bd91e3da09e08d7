"""A job record <-> the JSON text that both stores keep."""

from __future__ import annotations

import json
from dataclasses import asdict

from regelate.core.job import JobRecord, JobState, JobTotals, Origin
from regelate.core.policy import Engine


def to_json(record: JobRecord) -> str:
    return json.dumps(asdict(record), separators=(",", ":"))


def from_json(text: str) -> JobRecord:
    """Read a record. Fields that a later version may have added are passed over."""
    found = json.loads(text)
    totals = JobTotals(**{**found["totals"], "snapshot_ids": tuple(found["totals"]["snapshot_ids"])})
    known = {name: found[name] for name in JobRecord.__dataclass_fields__ if name in found}
    kinds = {"state": JobState(found["state"]), "origin": Origin(found["origin"])}
    return JobRecord(**{**known, **kinds, "totals": totals, "engine": Engine(found.get("engine", Engine.DUCKDB))})
