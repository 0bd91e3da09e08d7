"""One request, one codec: what a door, a job record, a token and Spark carry is the same value."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.adapters.records.record_json import from_json
from regelate.core.policy.options import CompactionDefaults, resolve_policy
from regelate.core.requests import (
    CompactRequest,
    MaintainRequest,
    QueryRequest,
    fields_of,
    request_json,
    request_of,
    request_of_json,
)
from regelate.entrypoints.api.request_base import TableRequest
from regelate.entrypoints.api.requests import Compact, Maintain, Query, asked
from regelate.errors import InvariantViolated

NAMES = st.text(max_size=8)
ODD = {"force": True, "max_files": 7, "expire_snapshots": False, "options": {"rewrite-all": "true"}, "max_cost": 1}
EARLIER_RECORD = (
    '{"job_id":"job-1","tenant_id":"t","catalog":"local","ident":"db.t","table":"t","run_id":"compact:k","options":'
    '"{\\"force\\": true, \\"expire_snapshots\\": true, \\"dry_run\\": false, \\"partition_filter\\": '
    '[{\\"month\\": \\"2025-01\\"}], \\"sort_order\\": [{\\"column\\": \\"a\\", \\"direction\\": \\"asc\\"}]}",'
    '"origin":"REQUEST","created_ms":1,"updated_ms":2,"not_before_ms":0,"state":"QUEUED","version":1,"part":1,'
    '"attempts":0,"fence":0,"groups_before":0,"totals":{"files_compacted":0,"files_added":0,"bytes_saved":0,"rows":0,'
    '"snapshot_ids":[]},"resume_token":null}'
)
"""As a store holds it that an earlier version wrote: before jobs had engines, with every default spelled out."""


@given(
    st.builds(
        CompactRequest,
        force=st.booleans(),
        max_files=st.none() | st.integers(1),
        where=st.none() | NAMES,
        partition_filter=st.none() | st.dictionaries(NAMES, NAMES) | st.lists(st.dictionaries(NAMES, NAMES)),
        sort_order=st.none() | st.lists(st.fixed_dictionaries({"column": NAMES}), min_size=1),
        options=st.none() | st.dictionaries(NAMES, NAMES | st.booleans() | st.integers()),
        time_budget_seconds=st.none() | st.floats(0.1, 1e6),
        expire_snapshots=st.booleans(),
    )
)
def test_a_request_is_read_as_it_was_written(request: CompactRequest) -> None:
    assert request_of_json(request_json(request)) == request


def test_a_number_with_more_digits_than_a_double_is_written_and_read_as_the_same_knob() -> None:
    exact = Decimal("0.30000000000000000001")
    request = CompactRequest(options={"delete-ratio-threshold": exact}, partition_filter=[{"price": exact}])
    again = request_of_json(request_json(request))
    assert again.partition_filter == [{"price": "0.30000000000000000001"}]
    first, second = (
        resolve_policy(request=r, config=CompactionDefaults(), now_ms=0, table_bytes=0) for r in (request, again)
    )
    assert first == second


def test_what_is_left_at_its_default_is_not_written() -> None:
    assert fields_of(CompactRequest()) == {}
    assert fields_of(request_of(CompactRequest, ODD)) == ODD


@pytest.mark.parametrize(
    ("given", "name"),
    [({"sudo": 1}, "sudo"), ({"dry_run": "no"}, "dry_run"), ({"max_files": True}, "max_files"),
     ({"options": []}, "options"), ({"sort_order": {}}, "sort_order"), ({"where": 7}, "where")],
)  # fmt: skip
def test_a_field_that_it_does_not_have_and_a_value_of_another_type_are_refused(
    given: dict[str, object], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        request_of(CompactRequest, given)


def test_a_job_record_of_an_earlier_version_asks_for_the_same() -> None:
    order = [{"column": "a", "direction": "asc"}]
    wanted = CompactRequest(force=True, partition_filter=[{"month": "2025-01"}], sort_order=order)
    assert from_json(EARLIER_RECORD).request == wanted


def test_a_job_of_a_later_version_is_not_run_as_if_it_asked_for_less() -> None:
    with pytest.raises(InvariantViolated, match="JOB_UNREADABLE"):
        from_json(EARLIER_RECORD.replace("force", "only_before"))


@pytest.mark.parametrize(
    ("model", "kind"), [(Compact, CompactRequest), (Maintain, MaintainRequest), (Query, QueryRequest)]
)
def test_every_field_of_the_door_has_its_place_in_the_request(model: type, kind: type) -> None:
    of_the_door = set(model.model_fields) - {*TableRequest.model_fields, "operation"}
    assert {f.name for f in fields(kind)} == of_the_door


def test_the_door_hands_on_plain_json() -> None:
    model = Compact.model_validate(
        {"operation": "COMPACT", "tenant_id": "t", "table": "t", "sort_order": [{"column": "a", "nulls": "nulls-last"}],
         "async": True, "partition_filter": {"p": None}}
    )  # fmt: skip
    assert asked(model, CompactRequest) == CompactRequest(
        sort_order=[{"column": "a", "direction": "asc", "nulls": "nulls-last"}], run_async=True,
        partition_filter={"p": None},
    )  # fmt: skip


def test_work_and_rest_leave_out_how_a_run_is_made_and_what_was_judged_at_its_beginning() -> None:
    whole = CompactRequest(
        force=True, max_files=3, plan_id="1-a", max_cost=1.0, run_async=True, time_budget_seconds=2.0,
        idempotency_key="k",
    )  # fmt: skip
    assert whole.work == CompactRequest(force=True, max_files=3, plan_id="1-a", max_cost=1.0)
    assert whole.rest == CompactRequest(force=True, max_files=3)
