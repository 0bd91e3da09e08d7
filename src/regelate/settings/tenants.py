"""The keys of config.json about tenants: how much they may ask for, where large results go, what keeps them apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StringConstraints

from regelate.core.policy.policy import MB
from regelate.settings.section import Positive, Section

Seconds = Annotated[float, Field(gt=0, le=900)]
LEAST_QUERY_MB = 256
"""Of which a process takes 110 for itself."""
_ON_LAMBDA = "AWS_LAMBDA_FUNCTION_NAME"
Place = Annotated[str, StringConstraints(pattern=r"^$|^/.+|^s3://[a-z0-9][a-z0-9.-]*[a-z0-9](/.*)?$")]


class TenantLimits(Section):
    """The limits of one tenant that differ from everybody's; null, or left out: as everybody's."""

    max_concurrent_operations: Positive | None = None
    max_records: Positive | None = None
    max_partitions_per_write: Positive | None = None
    max_result_rows: Positive | None = None
    max_result_bytes: Positive | None = None
    max_stored_result_bytes: Positive | None = None
    query_seconds: Seconds | None = None


class LimitSettings(Section):
    """What one request may ask for, one answer hold, and one tenant do at once. A Lambda request or answer ends at
    about 6 MB.
    """

    max_request_bytes: Positive = 6 * MB
    max_records: Positive = 100_000
    max_partitions_per_write: Positive = 1_000
    max_nesting: Annotated[int, Field(ge=1, le=500)] = 64
    max_result_rows: Positive = 10_000
    max_result_bytes: Positive = 4 * MB
    max_stored_result_bytes: Positive = 128 * MB
    query_seconds: Seconds = 25.0
    query_processes: Annotated[int, Field(ge=1, le=64)] | None = None
    query_memory_mb: Annotated[int, Field(ge=LEAST_QUERY_MB, le=1024 * 1024)] | None = None
    max_concurrent_operations: Positive = 64
    tenants: Mapping[str, TenantLimits] = Field(default_factory=dict)

    def of(self, tenant: str) -> LimitSettings:
        """Return the limits that hold for a tenant."""
        own = self.tenants.get(tenant)
        return self if own is None else self.model_copy(update=own.model_dump(exclude_none=True))

    @property
    def most_of_one_tenant(self) -> int:
        """Return how many operations the tenant with the highest limit may run at once."""
        return max(limits.max_concurrent_operations for limits in (self, *map(self.of, self.tenants)))

    def query_process_count(self, environ: Mapping[str, str], processors: int) -> int:
        """Return how many processes answer queries: on Lambda, where requests come one by one, one."""
        if self.query_processes is not None:
            return self.query_processes
        return 1 if environ.get(_ON_LAMBDA) else min(max(processors, 2), 8)

    def query_memory_bytes(self, memory_bytes: int, processes: int) -> int:
        """Return what one such process may take, of what all of them may."""
        if self.query_memory_mb is not None:
            return self.query_memory_mb * MB
        return max(memory_bytes // processes, LEAST_QUERY_MB * MB)


class ResultSettings(Section):
    """Where the results of QUERY go that are too large for an answer: `s3://bucket/prefix`, or a folder. Empty or null:
    nowhere, they are refused.
    """

    location: Annotated[str, StringConstraints(pattern=r"^$|^/.+|^s3://[a-z0-9][a-z0-9.-]*[a-z0-9](/.*)?$")] | None = (
        None
    )
    url_seconds: Annotated[int, Field(ge=60, le=43_200)] = 900

    @property
    def is_bucket(self) -> bool:
        return (self.location or "").startswith("s3://")


class TenancySettings(Section):
    """`claim`: the one claim of a caller's token that names the tenant. `role_arn`: the role that is taken for every
    tenant anew, with a policy that lets it touch that tenant's files alone. Empty or null: the process's own
    credentials serve everybody.
    """

    claim: Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,128}$")] = "custom:tenant_id"
    role_arn: Annotated[str, StringConstraints(pattern=r"^$|^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$")] | None = None
    session_seconds: Annotated[int, Field(ge=900, le=3600)] = 1800

    @property
    def partition(self) -> str:
        return (self.role_arn or "arn:aws").split(":")[1]
