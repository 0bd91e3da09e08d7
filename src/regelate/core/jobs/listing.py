"""Which jobs a list shows, newest first, and where its next page begins."""

from __future__ import annotations

import base64
import re

from regelate.core.jobs.job import JobRecord, JobState
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

_PLACE = re.compile(r"(\d{15})#([\x21-\x7e]{1,300})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """The jobs of a tenant, of one table (`lock`), in one state; what is None does not matter.

    In the catalogs `shared` tenants are only labels, which hide nothing from each other.
    """

    tenant_id: str | None = None
    shared: tuple[str, ...] = ()
    lock: str | None = None
    state: JobState | None = None

    def shows(self, record: JobRecord) -> bool:
        own = self.tenant_id is None or record.tenant_id == self.tenant_id or record.catalog in self.shared
        return own and self.lock in (None, record.lock) and self.state in (None, record.state)


EVERY_JOB = JobFilter()


def place_of(record: JobRecord) -> str:
    """Return a text that sorts jobs by their age: where a job stands in every list of jobs."""
    return f"{record.created_ms:015d}#{record.job_id}"


def split_place(place: str) -> tuple[int, str]:
    """Return the time in milliseconds and the job id that `place_of` has joined."""
    created_ms, _, job_id = place.partition("#")
    return int(created_ms), job_id


def page_token(last: JobRecord) -> str:
    """Return what asks for the page after this job."""
    return base64.urlsafe_b64encode(place_of(last).encode()).decode().rstrip("=")


def place_in(token: str) -> str:
    """Return the place that a page token names. Errors: InvalidRequest INVALID_FIELD for a text that is no token."""
    try:
        place = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode("ascii")
    except ValueError:
        place = ""
    if not _PLACE.fullmatch(place):
        message = "page_token: send it as the answer before this page had it"
        raise InvalidRequest("INVALID_FIELD", message, field="page_token")
    return place
