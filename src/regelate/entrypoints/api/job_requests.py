"""The requests about jobs, and the one that submits many."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from regelate.entrypoints.api.fields import Identifier
from regelate.entrypoints.api.request_base import Request


class JobRequest(Request):
    """`job_id` as an answer with status 202 named it."""

    tenant_id: str
    job_id: Identifier


class JobStatus(JobRequest):
    operation: Literal["JOB_STATUS"]


class JobCancel(JobRequest):
    """What is committed stays; a running job stops before its next group."""

    operation: Literal["JOB_CANCEL"]


class Sweep(Request):
    """Every table of the tenant, or of one namespace. What is unset comes from config.json.

    `tenant_id` may be left out by a schedule, a queue or a direct invoke only: it is then about all tenants.
    """

    operation: Literal["SWEEP"]
    tenant_id: str | None = None
    catalog: str | None = None
    namespace: str | None = None
    max_tables: int | None = Field(default=None, ge=1)
    time_budget_seconds: float | None = Field(default=None, gt=0)
    health_below: float | None = Field(default=None, ge=0, le=100)
    max_jobs: int | None = Field(default=None, ge=0)
    dry_run: bool = False
