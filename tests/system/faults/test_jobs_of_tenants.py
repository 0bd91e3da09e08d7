"""A job belongs to its tenant: to another one it is as if it did not exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regelate.handler import make_handler
from tests.entrypoints.fakes import LambdaContext
from tests.support.answers import check_answer
from tests.system.faults.jobs import JOBS
from tests.system.faults.stack import LOCAL_CATALOG, Stack, schema, stack_with

ACME, GLOBEX = {"custom:tenant_id": "acme"}, {"custom:tenant_id": "globex"}


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    made = stack_with(
        tmp_path / "lake",
        environment="production",
        auth="claims",
        tenants=["acme", "globex"],
        catalogs={"shared": catalog},
        jobs=JOBS,
    )
    body = {"tenant_id": "acme", "table": "t"}
    made.accepted("CREATE_TABLE", {**body, "operation": "CREATE_TABLE", "schema": schema({"id": "long!"})}, claims=ACME)
    for number in range(3):
        made.accepted("WRITE", {**body, "operation": "WRITE", "records": [{"id": number}]}, claims=ACME)
    return made


def submitted(stack: Stack) -> tuple[str, str]:
    """Return the id of acme's job, and where its answer says that it is."""
    body = {"operation": "COMPACT", "tenant_id": "acme", "table": "t", "async": True, "options": {"min-input-files": 2}}
    answered = sent(stack, "POST", "/database", ACME, body)
    assert answered["statusCode"] == 202
    return json.loads(answered["body"])["job_id"], answered["headers"]["Location"]


def sent(stack: Stack, method: str, path: str, claims: dict[str, str], body: Any = None) -> dict[str, Any]:
    path, _, asked = path.partition("?")
    event = {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": asked,
        "requestContext": {
            "http": {"method": method, "path": path},
            "requestId": "gateway",
            "authorizer": {"jwt": {"claims": claims}},
        },
        "body": None if body is None else json.dumps(body),
    }
    return make_handler(lambda: stack.service)(event, LambdaContext())  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", ["JOB_STATUS", "JOB_CANCEL"])
def test_a_job_of_another_tenant_is_not_told_apart_from_none(stack: Stack, operation: str) -> None:
    job_id, _ = submitted(stack)
    answers = []
    for wanted in (job_id, "job-0"):
        body = {"operation": operation, "tenant_id": "globex", "job_id": wanted}
        error = stack.refused(404, "JOB_NOT_FOUND", [], body, claims=GLOBEX)
        answers.append({**error, "details": {}})
    assert answers[0] == answers[1]
    stack.refused(403, "FORBIDDEN", [], {"operation": operation, "tenant_id": "acme", "job_id": job_id}, claims=GLOBEX)
    told = stack.accepted("JOB_STATUS", {"operation": "JOB_STATUS", "tenant_id": "acme", "job_id": job_id}, claims=ACME)
    assert told["state"] == "QUEUED"


def test_the_location_of_a_202_leads_its_tenant_to_the_job_and_nobody_else(stack: Stack) -> None:
    job_id, location = submitted(stack)
    assert location == f"/jobs/{job_id}"
    own = sent(stack, "GET", location, ACME)
    answer = json.loads(own["body"])
    check_answer("JOB_STATUS", answer)
    assert (own["statusCode"], answer["job_id"], answer["table"]) == (200, job_id, "acme__default.t")
    assert sent(stack, "GET", location, GLOBEX)["statusCode"] == 404
    assert sent(stack, "GET", location, {})["statusCode"] == 403
    wrong = sent(stack, "DELETE", location, ACME)
    assert (wrong["statusCode"], wrong["headers"]["Allow"]) == (405, "GET")


def test_two_tenants_with_one_idempotency_key_have_two_jobs(stack: Stack) -> None:
    body = {"tenant_id": "globex", "table": "t"}
    create = {**body, "operation": "CREATE_TABLE", "schema": schema({"id": "long!"})}
    stack.accepted("CREATE_TABLE", create, claims=GLOBEX)
    ids = set()
    for tenant, claims in (("acme", ACME), ("globex", GLOBEX)):
        asked = {"operation": "COMPACT", "tenant_id": tenant, "table": "t", "async": True, "idempotency_key": "night"}
        ids.add(json.loads(sent(stack, "POST", "/database", claims, asked)["body"])["job_id"])
    assert len(ids) == 2


def listed(stack: Stack, path: str, claims: dict[str, str]) -> dict[str, Any]:
    """Return what GET /jobs answers, which is what openapi.json promises."""
    answered = sent(stack, "GET", path, claims)
    answer: dict[str, Any] = json.loads(answered["body"])
    assert answered["statusCode"] == 200, answer
    check_answer("LIST_JOBS", answer)
    return answer


def test_a_list_shows_a_tenant_its_own_jobs_page_by_page_and_newest_first(stack: Stack) -> None:
    made = []
    for table in ("t", "u", "v"):
        for tenant, claims in (("acme", ACME), ("globex", GLOBEX)):
            body = {"tenant_id": tenant, "table": table}
            create = {**body, "operation": "CREATE_TABLE", "schema": schema({"id": "long"}), "if_not_exists": True}
            if (tenant, table) != ("acme", "t"):
                stack.accepted("CREATE_TABLE", create, claims=claims)
            asked = {**body, "operation": "COMPACT", "async": True}
            job_id = json.loads(sent(stack, "POST", "/database", claims, asked)["body"])["job_id"]
            made += [job_id] if tenant == "acme" else []
    found, path = [], "/jobs?limit=2"
    while path:
        page = listed(stack, path, ACME)
        found += [job["job_id"] for job in page["jobs"]]
        path = f"/jobs?limit=2&page_token={page['next_page_token']}" if page["next_page_token"] else ""
    assert sorted(found) == sorted(made)
    ages = [listed(stack, "/jobs", ACME)["jobs"][i]["created_at"] for i in range(3)]
    assert ages == sorted(ages, reverse=True)
    (of_table,) = listed(stack, "/jobs?table=u&state=QUEUED", ACME)["jobs"]
    assert of_table["table"] == "acme__default.u"
    assert listed(stack, "/jobs?state=RUNNING", ACME)["jobs"] == []


@pytest.mark.parametrize(
    ("asked", "code", "field"),
    [
        ("limit=0", "INVALID_FIELD", "limit"),
        ("limit=many", "INVALID_FIELD", "limit"),
        ("limit=101", "INVALID_FIELD", "limit"),
        ("state=running", "INVALID_FIELD", "state"),
        ("page_token=abc", "INVALID_FIELD", "page_token"),
        ("namespace=default", "MISSING_FIELD", "table"),
        ("color=red", "UNKNOWN_FIELD", "color"),
    ],
)
def test_a_list_refuses_what_it_cannot_do_by_the_fields_name(stack: Stack, asked: str, code: str, field: str) -> None:
    answered = sent(stack, "GET", f"/jobs?{asked}", ACME)
    error = json.loads(answered["body"])["error"]
    assert (answered["statusCode"], error["code"], error["details"]["field"]) == (400, code, field)
