"""Envelopes, claims, limits, routes: what the one door makes of an event."""

from __future__ import annotations

import base64
import gc
import json
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from regelate.core.requests import CompactRequest, QueryRequest
from regelate.entrypoints.aws.body import LARGE_BODY_BYTES, turn
from regelate.entrypoints.dispatch import dispatch
from regelate.errors import InvalidRequest
from regelate.settings import SettingsError
from tests.entrypoints.fakes import FakeService, LambdaContext, settings_for
from tests.support.answers import check_error

QUERY = {"operation": "QUERY", "tenant_id": "test-tenant", "table": "users"}
Claims = Mapping[str, object] | None


def v1(method: str, path: str, body: object = None, *, claims: Claims = None) -> dict[str, Any]:
    authorizer = {} if claims is None else {"authorizer": {"claims": claims}}
    context = {"stage": "prod", "path": f"/prod{path}", "requestId": "gateway-1", **authorizer}
    return {"httpMethod": method, "path": path, "headers": {}, "requestContext": context, "body": body}


def v2(method: str, path: str, body: object = None, *, claims: Claims = None, encoded: bool = False) -> dict[str, Any]:
    authorizer = {} if claims is None else {"authorizer": {"jwt": {"claims": claims, "scopes": None}}}
    context = {"stage": "$default", "http": {"method": method, "path": path}, "requestId": "gateway-2", **authorizer}
    return {
        "version": "2.0",
        "rawPath": path,
        "headers": {},
        "requestContext": context,
        "body": body,
        "isBase64Encoded": encoded,
    }


def three_keys(method: str, path: str, body: object = None) -> dict[str, Any]:
    return {"httpMethod": method, "path": path, "body": body}


HTTP = [v1, v2, three_keys]


def sent(service: FakeService, event: object) -> dict[str, Any]:
    return dispatch(event, LambdaContext(), lambda: service)


def body_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    assert isinstance(answer["body"], str)
    assert answer["headers"]["Content-Type"] == "application/json"
    body: dict[str, Any] = json.loads(answer["body"])
    return body


def error_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    body = body_of(answer) if "body" in answer else dict(answer)
    check_error(body)
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize("make", HTTP)
def test_every_http_envelope_is_answered_with_status_headers_and_a_text_body(
    service: FakeService, make: Callable[..., dict[str, Any]]
) -> None:
    answer = sent(service, make("POST", "/database", json.dumps(QUERY)))
    assert answer["statusCode"] == 200
    assert body_of(answer)["row_count"] == 0
    assert body_of(answer)["request_id"] in ("gateway-1", "gateway-2", LambdaContext().aws_request_id)


def test_a_direct_invoke_is_answered_with_the_plain_object(service: FakeService) -> None:
    answer = sent(service, QUERY)
    assert answer["success"] is True
    assert answer["request_id"] == LambdaContext().aws_request_id


def test_a_request_id_of_the_callers_comes_back_also_with_a_refusal(service: FakeService) -> None:
    assert sent(service, {**QUERY, "request_id": "mine-1"})["request_id"] == "mine-1"
    assert sent(service, {**QUERY, "request_id": "mine-1", "limit": "x"})["request_id"] == "mine-1"
    assert sent(service, {**QUERY, "request_id": "new\nline"})["request_id"] == LambdaContext().aws_request_id


def test_a_base64_body_is_read_as_the_bytes_it_stands_for(service: FakeService) -> None:
    text = json.dumps({**QUERY, "filter": {"name": "Zoë"}}, ensure_ascii=False)
    answer = sent(service, v2("POST", "/database", base64.b64encode(text.encode()).decode(), encoded=True))
    assert answer["statusCode"] == 200
    assert service.calls[-1][2]["request"] == QueryRequest(filter={"name": "Zoë"})


@pytest.mark.parametrize(
    ("body", "encoded", "code", "status"),
    [
        (None, False, "INVALID_JSON", 400),
        ('{"operation": "QUERY"', False, "INVALID_JSON", 400),
        ("[]", False, "INVALID_REQUEST", 400),
        (QUERY, False, "INVALID_REQUEST", 400),
        ("%%%", True, "INVALID_REQUEST", 400),
        (base64.b64encode(json.dumps(QUERY).encode("utf-16")).decode(), True, "INVALID_JSON", 400),
        ('{"a": "' + "x" * 6_291_456 + '"}', False, "PAYLOAD_TOO_LARGE", 413),
        (base64.b64encode(b" " * 6_291_457).decode(), True, "PAYLOAD_TOO_LARGE", 413),
        ('{"operation": "QUERY", "tenant_id": "t", "table": "u", "limit": NaN}', False, "INVALID_FIELD", 400),
        ("{}", False, "MISSING_FIELD", 400),
    ],
)
def test_a_bad_body_is_refused_before_any_operation_is_called(
    service: FakeService, body: object, encoded: bool, code: str, status: int
) -> None:
    answer = sent(service, v2("POST", "/database", body, encoded=encoded))
    assert (error_of(answer)["code"], answer["statusCode"]) == (code, status)
    assert service.calls == []


def test_more_records_than_the_limit_are_413_and_the_limit_itself_passes(service: FakeService) -> None:
    write = {"operation": "WRITE", "tenant_id": "t", "table": "users"}
    limit = service.settings.limits.max_records
    assert sent(service, {**write, "records": [{}] * limit})["records_written"] == limit
    answer = error_of(sent(service, {**write, "records": [{}] * (limit + 1)}))
    assert (answer["code"], answer["details"]["max_records"]) == ("PAYLOAD_TOO_LARGE", limit)
    assert len(service.calls) == 1


def test_a_large_body_waits_for_the_one_before_it_and_a_small_one_does_not(service: FakeService) -> None:
    answers: list[dict[str, Any]] = []
    large = v2("POST", "/database", json.dumps({"operation": "HEALTH_CHECK", "x": "x" * LARGE_BODY_BYTES}))
    waiting = threading.Thread(target=lambda: answers.append(sent(service, large)))
    with turn(LARGE_BODY_BYTES):
        waiting.start()
        assert sent(service, v2("POST", "/database", '{"operation": "HEALTH_CHECK"}'))["statusCode"] == 200
        waiting.join(0.3)
        assert not answers
    waiting.join()
    assert error_of(answers[0])["code"] == "UNKNOWN_FIELD"


def test_zero_records_reach_the_service(service: FakeService) -> None:
    answer = sent(service, {"operation": "WRITE", "tenant_id": "t", "table": "users", "records": []})
    assert (answer["success"], answer["records_written"]) == (True, 0)


@pytest.mark.parametrize("make", HTTP)
def test_an_unknown_path_is_404_and_a_wrong_method_405_in_the_houses_shape(
    service: FakeService, make: Callable[..., dict[str, Any]]
) -> None:
    missing = sent(service, make("GET", "/nowhere"))
    assert (missing["statusCode"], error_of(missing)["code"]) == (404, "NOT_FOUND")
    wrong = sent(service, make("GET", "/database"))
    assert (wrong["statusCode"], error_of(wrong)["code"], wrong["headers"]["Allow"]) == (
        405,
        "METHOD_NOT_ALLOWED",
        "POST",
    )
    assert sent(service, make("GET", "/openapiXjson"))["statusCode"] == 404
    assert service.calls == []


def test_health_and_the_document_need_no_body_and_the_document_no_service(service: FakeService) -> None:
    assert body_of(sent(service, v1("GET", "/health")))["catalog_reachable"] is True

    def broken() -> FakeService:
        raise SettingsError("INVALID_CONFIG", "limits.max_records: must be a number")

    assert body_of(dispatch(v2("GET", "/openapi.json"), None, broken))["openapi"] == "3.1.0"
    for event in (v2("GET", "/health"), v2("GET", "/docs"), QUERY):
        assert error_of(dispatch(event, None, broken))["code"] == "INVALID_CONFIG"


def test_the_swagger_page_is_whole_and_served_in_development_only(service: FakeService) -> None:
    page = sent(service, v2("GET", "/docs"))
    assert page["headers"]["Content-Type"].startswith("text/html")
    assert '"title": "regelate"' in page["body"]
    assert "<script src=" not in page["body"]
    assert sent(FakeService(settings_of_claims("acme")), v2("GET", "/docs"))["statusCode"] == 404


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "text",
        {"Records": [{"body": "{}"}]},
        {"detail-type": "x", "detail": {}},
        {"httpMethod": "GET"},
        {"requestContext": {"http": {"method": "GET"}}},
        {**v1("GET", "/health"), "headers": ["a"]},
        {**v2("GET", "/health"), "headers": "a: b"},
        {"rawPath": "/health", "requestContext": {"http": {"method": "GET"}, "stage": ["$default"]}},
        {"Records": [{"eventSource": "aws:sqs", "body": "{}", "attributes": None}]},
    ],
)
def test_what_is_no_request_fails_the_invocation_so_that_no_queue_takes_it_for_done(
    service: FakeService, event: object
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sent(service, event)
    assert caught.value.code == "UNKNOWN_EVENT"


@pytest.mark.parametrize("make", [v1, v2])
@pytest.mark.parametrize("name", ["custom:tenant_id", "https://lake.example.com/tenant"])
def test_the_tenant_comes_from_the_claim_and_the_body_must_equal_it(
    make: Callable[..., dict[str, Any]], name: str
) -> None:
    service = FakeService(settings_of_claims("acme", "other", claim=name), preset=["acme__default.users"])
    query = json.dumps({**QUERY, "tenant_id": "acme"})
    assert sent(service, make("POST", "/database", query, claims={name: "acme"}))["statusCode"] == 200
    assert service.calls[-1][1] is not None
    assert service.calls[-1][1].ident == "acme__default.users"
    for claims in (None, {}, {name: "other"}, {name: ["acme"]}, {name: ""}, {"sub": "acme"}):
        answer = sent(service, make("POST", "/database", query, claims=claims))
        assert (answer["statusCode"], error_of(answer)["code"]) == (403, "FORBIDDEN")
    assert len(service.calls) == 1


def settings_of_claims(*tenants: str, claim: str = "custom:tenant_id") -> Any:
    settings = settings_for("production", REGELATE_CONFIG="", REGELATE_TENANT_CLAIM=claim)
    return settings.model_copy(update={"tenants": tenants})


@pytest.mark.parametrize("empty", ["", None, [], ["acme"], 5])
def test_a_claim_of_another_name_is_no_proof_even_where_the_configured_one_says_nothing(empty: object) -> None:
    service = FakeService(settings_of_claims("acme"), preset=["acme__default.users"])
    for claims in ({"tenant_id": "acme"}, {"tenant_id": "acme", "custom:tenant_id": empty}):
        answer = sent(service, v2("POST", "/database", json.dumps({**QUERY, "tenant_id": "acme"}), claims=claims))
        assert (answer["statusCode"], error_of(answer)["code"]) == (403, "FORBIDDEN")
    assert service.calls == []


def test_only_a_direct_invoke_is_believed_about_its_tenant() -> None:
    service = FakeService(settings_of_claims("acme", "other"), preset=["acme__default.users"])
    query = {**QUERY, "tenant_id": "acme"}
    assert sent(service, query)["success"] is True
    assert sent(service, three_keys("POST", "/database", json.dumps(query)))["statusCode"] == 403
    assert sent(service, v2("POST", "/database", json.dumps(query)))["statusCode"] == 403


SIGNED = "arn:aws:iam::123456789012:user/scheduler"


def signed_v1(body: str) -> dict[str, Any]:
    event = v1("POST", "/database", body)
    return {**event, "requestContext": {**event["requestContext"], "identity": {"userArn": SIGNED}}}


def signed_v2(body: str) -> dict[str, Any]:
    event = v2("POST", "/database", body)
    return {**event, "requestContext": {**event["requestContext"], "authorizer": {"iam": {"userArn": SIGNED}}}}


@pytest.mark.parametrize("make", [signed_v1, signed_v2])
def test_a_signature_that_the_gateway_checked_is_believed_where_auth_is_iam_and_nowhere_else(make: Any) -> None:
    settings = settings_of_claims("acme")
    query = json.dumps({**QUERY, "tenant_id": "acme"})
    believed = FakeService(settings.model_copy(update={"auth": "iam"}), preset=["acme__default.users"])
    assert sent(believed, make(query))["statusCode"] == 200
    short = {**make(json.dumps({"table": "users", "tenant_id": "acme"}))}
    short["path" if "path" in short else "rawPath"] = "/api/v1/compact"
    short["requestContext"].get("http", {})["path"] = "/api/v1/compact"
    assert sent(believed, short)["statusCode"] == 200
    stranger = json.dumps({**QUERY, "tenant_id": "globex"})
    assert sent(believed, make(stranger))["statusCode"] == 403
    for unsigned in (
        v1("POST", "/database", query),
        v2("POST", "/database", query),
        three_keys("POST", "/database", query),
    ):
        assert sent(believed, unsigned)["statusCode"] == 403
    assert sent(FakeService(settings, preset=["acme__default.users"]), make(query))["statusCode"] == 403


def test_the_short_form_takes_its_tenant_from_the_claim_else_the_body_else_the_only_one(service: FakeService) -> None:
    short = {"table": "sales", "strategy": "small-files"}
    assert sent(service, v2("POST", "/api/v1/compact", json.dumps(short)))["statusCode"] == 200
    assert service.calls[-1][1] is not None
    assert (service.calls[-1][1].tenant_id, service.calls[-1][1].ident) == ("default", "default.sales")
    claimed = FakeService(settings_of_claims("acme", "other"), preset=["acme__default.sales"])
    event = v2("POST", "/api/v1/compact", json.dumps(short), claims={"custom:tenant_id": "acme"})
    assert sent(claimed, event)["statusCode"] == 200
    assert sent(claimed, v2("POST", "/api/v1/compact", json.dumps(short)))["statusCode"] == 403
    other = v2(
        "POST", "/api/v1/compact", json.dumps({**short, "tenant_id": "other"}), claims={"custom:tenant_id": "acme"}
    )
    assert sent(claimed, other)["statusCode"] == 403


def test_what_compact_is_asked_reaches_the_service_under_its_own_names(service: FakeService) -> None:
    asked = {"force": True, "where": "age > 3", "partition_filter": {"month": None}, "max_cost": 2, "plan_id": "7-ab"}
    sent(service, {**QUERY, "operation": "COMPACT", **asked, "request_id": "r", "idempotency_key": "k"})
    operation, _, arguments = service.calls[-1]
    assert operation == "COMPACT"
    here = {"progress": None, "seconds_left": None, "may_delegate": True}
    assert arguments == {"request": CompactRequest(**asked, idempotency_key="k"), **here}


@pytest.mark.parametrize("path", ["/database", "/api/v1/compact", "/nowhere"])
@pytest.mark.parametrize("make", HTTP)
def test_the_body_of_an_event_is_held_by_nothing_once_it_is_answered(
    make: Callable[..., dict[str, Any]], path: str, service: FakeService
) -> None:
    """Many of 6 MB would otherwise wait together for a full collection of garbage."""

    class Body(str):
        """Text that can be referred to weakly."""

    gc.disable()
    try:
        event = make("POST", path)
        event["body"] = Body('{"operation": "QUERY", "tenant_id": "t", "table": "users"}')
        held = weakref.ref(event["body"])
        dispatch(event, LambdaContext(), lambda: service)
        del event
        assert held() is None
    finally:
        gc.enable()


def test_two_requests_at_once_never_see_each_others_events(service: FakeService) -> None:
    """Powertools keeps the current event on a class: each request waits inside its operation until the other is in."""
    together = threading.Barrier(2, timeout=30)
    service.before_query = lambda spec: together.wait()
    answers: dict[str, dict[str, Any]] = {}

    def ask(name: str, event: dict[str, Any]) -> None:
        answers[name] = sent(service, event)

    wanted = {name: json.dumps({**QUERY, "request_id": name}) for name in ("first", "second")}
    threads = [
        threading.Thread(target=ask, args=("first", v1("POST", "/database", wanted["first"]))),
        threading.Thread(target=ask, args=("second", v2("POST", "/database", wanted["second"]))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: body_of(answer)["request_id"] for name, answer in answers.items()} == {n: n for n in wanted}
    assert {name: "multiValueHeaders" in answer for name, answer in answers.items()} == {"first": True, "second": False}
