"""A job record <-> the JSON text that both stores keep."""

from __future__ import annotations

import json
from dataclasses import asdict

from regelate.core.engines import Engine
from regelate.core.jobs.job import JobRecord, JobState, JobTotals, Origin
from regelate.core.requests import CompactRequest, request_json, request_of_json
from regelate.errors import InvariantViolated

REQUEST = "options"
"""The key that holds the COMPACT, as JSON in a text: workers of an earlier version read it so."""


def to_json(record: JobRecord) -> str:
    found = asdict(record)
    del found["request"]
    return json.dumps({**found, REQUEST: request_json(record.request)}, separators=(",", ":"))


def from_json(text: str) -> JobRecord:
    """Read a record. Fields of the record that a later version may have added are passed over, those of its request
    are not: they may say what must not be rewritten.

    Errors: InvariantViolated JOB_UNREADABLE.
    """
    found = json.loads(text)
    totals = JobTotals(**{**found["totals"], "snapshot_ids": tuple(found["totals"]["snapshot_ids"])})
    known = {name: found[name] for name in JobRecord.__dataclass_fields__ if name in found}
    kinds = {"state": JobState(found["state"]), "origin": Origin(found["origin"])}
    request, engine = _request(found), Engine(found.get("engine", Engine.DUCKDB))
    return JobRecord(**{**known, **kinds, "totals": totals, "request": request, "engine": engine})


def _request(found: dict[str, str]) -> CompactRequest:
    try:
        return request_of_json(found[REQUEST])
    except ValueError as error:
        told = f"the stored request of {found['job_id']} {error}: it was made by a later version; cancel the job"
        raise InvariantViolated("JOB_UNREADABLE", told, job_id=found["job_id"]) from error
