"""The requests about jobs, and the one that submits many."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from regelate.core.jobs.job import JobState
from regelate.entrypoints.api.fields import Identifier, Token
from regelate.entrypoints.api.request_base import Request
from regelate.errors import InvalidRequest
from regelate.settings.section import OneOf


class JobRequest(Request):
    """`job_id` as an answer with status 202 named it."""

    tenant_id: str
    job_id: Identifier


class JobStatus(JobRequest):
    operation: Literal["JOB_STATUS"]


class JobCancel(JobRequest):
    """What is committed stays; a running job stops before its next group."""

    operation: Literal["JOB_CANCEL"]


class ListJobs(Request):
    """The tenant's jobs, newest first; those of one table, or in one state. `page_token` goes on after a page."""

    operation: Literal["LIST_JOBS"]
    tenant_id: str
    table: str | None = None
    namespace: str | None = None
    catalog: str | None = None
    state: Annotated[str, OneOf(*JobState)] | None = None
    limit: int = Field(default=20, ge=1, le=100)
    page_token: Token | None = None

    @model_validator(mode="after")
    def _namespace_is_of_a_table(self) -> ListJobs:
        field = "namespace" if self.namespace is not None else "catalog" if self.catalog is not None else None
        if self.table is None and field is not None:
            raise InvalidRequest("MISSING_FIELD", f"table: {field} says where it lies; name it too", field="table")
        return self


class NotifyCommit(Request):
    """Somebody has committed: to this table or, by the location of a file of metadata, to one that keeps it there.

    `tenant_id` may be left out by a rule, a queue or a direct invoke only, where the location says whose it is.
    """

    operation: Literal["NOTIFY_COMMIT"]
    tenant_id: str | None = None
    namespace: str = "default"
    table: str | None = None
    catalog: str | None = None
    metadata_location: Annotated[str, StringConstraints(min_length=1, max_length=2048)] | None = None

    @model_validator(mode="after")
    def _names_a_table(self) -> NotifyCommit:
        if self.table is None and self.metadata_location is None:
            message = "table: name the table that was committed to, or the metadata_location of the commit"
            raise InvalidRequest("MISSING_FIELD", message, field="table")
        if self.table is not None and self.tenant_id is None:
            raise InvalidRequest("MISSING_FIELD", "tenant_id is required with a table", field="tenant_id")
        return self


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
