"""What a page token names, and what is refused for one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.jobs.job import JobRecord, Origin
from regelate.core.jobs.listing import page_token, place_in, place_of, split_place
from regelate.core.requests import CompactRequest
from regelate.errors import InvalidRequest


def job(created_ms: int, job_id: str) -> JobRecord:
    texts = dict.fromkeys(("tenant_id", "catalog", "ident", "table", "run_id"), "t")
    return JobRecord(
        job_id=job_id,
        request=CompactRequest(),
        origin=Origin.REQUEST,
        created_ms=created_ms,
        updated_ms=created_ms,
        **texts,
    )


@given(st.integers(0, 10**14), st.from_regex(r"\Ajob-[0-9a-f#-]{1,40}\Z"))
def test_a_page_token_names_the_place_of_its_job(created_ms: int, job_id: str) -> None:
    record = job(created_ms, job_id)
    assert place_in(page_token(record)) == place_of(record)
    assert split_place(place_of(record)) == (created_ms, job_id)


def test_places_sort_as_the_times_of_their_jobs() -> None:
    records = [job(9, "job-b"), job(10, "job-a"), job(10, "job-b"), job(1_700_000_000_000, "job-a")]
    assert sorted(records, key=place_of) == records


@pytest.mark.parametrize("text", ["x", "job-1", "====", base64.urlsafe_b64encode(b"12#job").decode(), "\u0661"])
def test_what_is_no_token_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        place_in(text)
    assert (caught.value.code, caught.value.details["field"]) == ("INVALID_FIELD", "page_token")
