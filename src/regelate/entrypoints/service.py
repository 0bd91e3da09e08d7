"""What the doors need behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from regelate.core.requests import CompactRequest, MaintainRequest, QueryRequest
from regelate.core.schema import TableDefinition
from regelate.settings import Settings
from regelate.tenancy import Address, Scope, Tenancy

Fields = Mapping[str, object]


class Service(Protocol):
    """What the doors need behind them. Every operation returns the fields of its answer (responses.py), ready for JSON,
    without `success` and `request_id`, or raises a RegelateError. It is called by many threads at once.
    """

    @property
    def settings(self) -> Settings: ...
    @property
    def tenancy(self) -> Tenancy: ...
    def health_check(self) -> Fields: ...
    def metrics_text(self) -> str: ...
    def create_table(self, address: Address, definition: TableDefinition, *, if_not_exists: bool) -> Fields: ...
    def alter_table(
        self, address: Address, *, set_properties: Mapping[str, str], unset_properties: Sequence[str]
    ) -> Fields: ...
    def describe_table(self, address: Address) -> Fields: ...
    def list_tables(self, address: Address) -> Fields: ...
    def drop_table(self, address: Address, *, purge: bool) -> Fields: ...
    def write(
        self,
        address: Address,
        records: Sequence[Mapping[str, Any]],
        *,
        mode: str,
        key: Sequence[str],
        idempotency_key: str | None,
        request_id: str,
        seconds_left: float | None = None,
    ) -> Fields: ...
    def query(self, address: Address, request: QueryRequest) -> Fields: ...
    def compact(
        self,
        address: Address,
        request: CompactRequest,
        *,
        seconds_left: float | None = None,
    ) -> Fields: ...
    def table_health(self, address: Address, *, explain: bool) -> Fields: ...
    def expire_snapshots(
        self,
        address: Address,
        *,
        retention_hours: float | None,
        min_snapshots_to_keep: int | None,
        grace_hours: float | None,
        dry_run: bool,
    ) -> Fields: ...
    def remove_orphan_files(self, address: Address, *, older_than_hours: float | None, dry_run: bool) -> Fields: ...
    def rewrite_manifests(self, address: Address, *, dry_run: bool) -> Fields: ...
    def maintain(self, address: Address, request: MaintainRequest) -> Fields: ...
    def undo_expiry(self, address: Address, undo_id: str) -> Fields: ...
    def sweep(
        self,
        scope: Scope,
        *,
        max_tables: int | None,
        time_budget_seconds: float | None,
        health_below: float | None,
        max_jobs: int | None,
        dry_run: bool,
        seconds_left: float | None = None,
    ) -> Fields: ...
    def job_status(self, tenant_id: str, job_id: str) -> Fields: ...
    def job_cancel(self, tenant_id: str, job_id: str) -> Fields: ...
    def run_job(self, job_id: str, part: int, *, seconds_left: float | None = None) -> float | None: ...
    def give_up_job(self, job_id: str, part: int, why: str) -> None: ...
    def spark_run_changed(self, run_id: str) -> str | None: ...
    def postpone_message(self, receipt: str, seconds: float) -> None: ...


Provider = Callable[[], Service]
"""Makes the service when a request first needs it: what it costs to open is not paid by a cold start."""
