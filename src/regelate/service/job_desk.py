"""Jobs at the desk: submitted, looked at, cancelled, given up. Who works on them is `Worker`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from regelate.core.answers import JobAnswer, ListJobsAnswer
from regelate.core.engines import HERE, Engine
from regelate.core.jobs.job import JobRecord, JobState, Origin, lock_of
from regelate.core.jobs.listing import EVERY_JOB, JobFilter, page_token, place_in
from regelate.core.requests import CompactRequest, request_json
from regelate.core.table.table import key_reused
from regelate.errors import InvalidRequest, NotFound, Unavailable
from regelate.operations import answers
from regelate.operations.compacting.continuing import RunPart
from regelate.operations.jobs.jobs import cancel, give_up, live_job, look_after, running_job, submit, tell_pending
from regelate.service.job_stores import JobStores
from regelate.settings import CatalogSettings
from regelate.tenancy import Address

MAX_STORED_REQUEST_BYTES = 64 * 1024
"""As JSON. They are in the record twice, as given and in the token of the next part; base64 and escapes add to them."""


class JobDesk:
    """Takes jobs for the tables of `catalogs`, and tells how they stand. Errors: Unsupported JOBS_DISABLED."""

    def __init__(self, stores: JobStores, catalogs: Mapping[str, CatalogSettings]) -> None:
        self._stores = stores
        self._catalogs = catalogs

    @property
    def enabled(self) -> bool:
        """Whether this deployment has jobs."""
        return self._stores.tools is not None

    def check_enabled(self) -> None:
        """Raise Unsupported JOBS_DISABLED where this deployment has no jobs."""
        self._stores.needed()

    def submit(
        self,
        address: Address,
        part: RunPart,
        origin: Origin,
        *,
        engine: Engine = HERE,
        why: str = "",
        most_seconds: float | None = None,
    ) -> JobRecord:
        """Store and announce a job for this part and those after it; return it, or the one that the table has.
        `most_seconds`: of work, after which it ends with what is in the table.

        Errors: Unsupported JOBS_DISABLED, Unavailable JOBS_UNAVAILABLE, InvalidRequest PAYLOAD_TOO_LARGE, and
        IDEMPOTENCY_KEY_REUSED where its job does something else; Unavailable JOB_BUSY where it is at another branch.
        """
        tools = self._stores.needed()
        if len(request_json(part.request)) > MAX_STORED_REQUEST_BYTES:
            told = f"a job keeps {MAX_STORED_REQUEST_BYTES} bytes of its request; send less, or compact without a job"
            raise InvalidRequest("PAYLOAD_TOO_LARGE", told, status=413, max_bytes=MAX_STORED_REQUEST_BYTES)
        now = tools.store.now_ms()
        held = submit(
            tools,
            JobRecord(
                job_id=_job_id(address, part.base_run_id),
                tenant_id=address.tenant_id,
                catalog=address.catalog,
                ident=address.ident,
                table=address.table or "",
                run_id=part.base_run_id,
                request=part.request,
                origin=origin,
                created_ms=now,
                updated_ms=now,
                part=part.part,
                resume_token=None if part.token is None else part.token.encoded(),
                engine=engine,
                why=why,
                most_seconds=most_seconds,
            ),
        )
        if held.run_id == part.base_run_id and not _same(held.request, part.request):
            raise key_reused(job_id=held.job_id)
        _check_branch(held, part)
        return held

    def ensured(self, address: Address, part: RunPart, origin: Origin) -> JobRecord:
        """Return the job that a table has, and only where it has none store and announce one for this part.

        A look takes a third of the time of `submit`, and nobody's turn to write. Errors: as `submit`.
        """
        held = self.live(address, announce=True)
        if held is None:
            return self.submit(address, part, origin)
        _check_branch(held, part)
        return held

    def running(self, address: Address) -> JobRecord | None:
        """Return the job that somebody is at on a table; None also where there are no jobs."""
        tools = self._stores.tools
        return None if tools is None else running_job(tools, lock_of(address.catalog, address.ident))

    def live(self, address: Address, *, announce: bool) -> JobRecord | None:
        """Return a table's job that is not at its end; announce it again where its message or its worker is lost."""
        return live_job(self._stores.needed(), lock_of(address.catalog, address.ident), announce=announce)

    def of_run(self, address: Address, run_id: str) -> JobRecord | None:
        """Return the first job that was submitted for a run."""
        return self._stores.needed().store.get(_job_id(address, run_id))

    def job_status(self, tenant_id: str, job_id: str) -> JobAnswer:
        """Tell how a job stands; of one that runs elsewhere a worker is asked to look, where that is due."""
        record = self._known(job_id, tenant_id)
        look_after(self._stores.needed(), record)
        return answers.job_told(record)

    def job_cancel(self, tenant_id: str, job_id: str) -> JobAnswer:
        self._known(job_id, tenant_id)
        return answers.job_told(cancel(self._stores.needed(), job_id))

    def list_jobs(
        self, tenant_id: str, table: Address | None, *, state: JobState | None, limit: int, token: str | None
    ) -> ListJobsAnswer:
        """List the tenant's jobs, newest first, from where `token` says. Errors: InvalidRequest INVALID_FIELD."""
        after = None if token is None else place_in(token)
        lock = None if table is None else lock_of(table.catalog, table.ident)
        wanted = replace(self._visible(tenant_id), lock=lock, state=state)
        found = self._stores.needed().store.listed(wanted, limit + 1, after=after)
        return ListJobsAnswer(
            jobs=tuple(answers.job_listed(record) for record in found[:limit]),
            next_page_token=page_token(found[limit - 1]) if len(found) > limit else None,
        )

    def tell_pending(self) -> None:
        """Tell how many jobs wait, where there are jobs."""
        if self._stores.tools is not None:
            tell_pending(self._stores.tools)

    def recent_jobs(self, limit: int, wanted: JobFilter = EVERY_JOB) -> tuple[JobAnswer, ...]:
        """Return the newest jobs of the store, whoever's they are: for the command line on its machine."""
        return tuple(answers.job_told(record) for record in self._stores.needed().store.listed(wanted, limit))

    def give_up_job(self, job_id: str, part: int, why: str) -> None:
        """End a job of whose present part no worker will hear any more."""
        give_up(self._stores.needed(), job_id, part, why)

    def postpone_message(self, receipt: str, seconds: float) -> None:
        """Make a message that could not be served come again after so many seconds."""
        self._stores.needed().queue.postpone(receipt, seconds)

    def _known(self, job_id: str, tenant_id: str) -> JobRecord:
        """Return a job of this tenant. Another tenant's is not told apart from one that does not exist."""
        record = self._stores.needed().store.get(job_id)
        if record is None or not self._visible(tenant_id).shows(record):
            raise NotFound("JOB_NOT_FOUND", "there is no such job, or it ended long ago", job_id=job_id)
        return record

    def _visible(self, tenant_id: str) -> JobFilter:
        """Where tenants are only labels of one catalog, they hide nothing from each other here either."""
        shared = tuple(name for name, catalog in self._catalogs.items() if not catalog.multi_tenant)
        return JobFilter(tenant_id=tenant_id, shared=shared)


def _check_branch(held: JobRecord, part: RunPart) -> None:
    if held.request.ref != part.request.ref:
        told = f"{held.job_id} is at the branch {held.request.ref[:80]!a} of this table; repeat when it is over"
        raise Unavailable("JOB_BUSY", told, job_id=held.job_id)


def _same(kept: CompactRequest, asked: CompactRequest) -> bool:
    """Compare what two parts of one run were asked; one of them may be a later part, which is asked for the rest."""
    return asked in (kept, kept.rest) or kept == asked.rest


def _job_id(address: Address, run_id: str) -> str:
    """Name a job by its run: the same event asks for the same job, also when that one has ended."""
    text = json.dumps([address.tenant_id, address.catalog, address.ident, run_id])
    return f"job-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
