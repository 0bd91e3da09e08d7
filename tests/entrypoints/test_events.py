"""Every file of events/ through the real handler: each has a route, and an answer that openapi.json promises."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from regelate.entrypoints.actions import OPERATIONS
from regelate.entrypoints.aws.http import ROUTES
from regelate.handler import make_handler
from tests.entrypoints.fakes import REPOSITORY, FakeService, LambdaContext
from tests.support.answers import check_answer

EVENTS = sorted((REPOSITORY / "events").glob("*.json"))
BATCHES = ("sqs_job", "sqs_s3_notice")
RUNS = ("emr_run_ended",)
REPORTS = ("apigw_v2_report", "apigw_v2_report_of_catalog")
PAGES = {"apigw_v2_openapi": "application/json", "function_url_docs": "text/html; charset=utf-8"}
PLAIN = [path for path in EVENTS if path.stem not in (*PAGES, *BATCHES, *RUNS, *REPORTS)]


def answered(path: Path, service: FakeService) -> Any:
    return make_handler(lambda: service)(json.loads(path.read_text()), LambdaContext())


@pytest.mark.parametrize(
    "path", [p for p in EVENTS if p.stem not in (*PAGES, *BATCHES, *RUNS, *REPORTS)], ids=lambda p: p.stem
)
def test_an_event_is_answered_with_success_in_the_promised_shape(path: Path, service: FakeService) -> None:
    answer = answered(path, service)
    if "statusCode" in answer:
        assert answer["statusCode"] == 200
        answer = json.loads(answer["body"])
    assert len(service.calls) == 1
    check_answer(service.calls[0][0], answer)


def test_a_message_of_the_queue_runs_its_part_and_fails_none(service: FakeService) -> None:
    event = json.loads((REPOSITORY / "events" / "sqs_job.json").read_text())
    assert answered(REPOSITORY / "events" / "sqs_job.json", service) == {"batchItemFailures": []}
    ((called, _, arguments),) = service.calls
    assert called == "run_job"
    assert {"job_id": arguments["job_id"], "part": arguments["part"]} == json.loads(event["Records"][0]["body"])


def test_a_notice_of_s3_in_a_queue_is_one_of_a_commit(service: FakeService) -> None:
    path = REPOSITORY / "events" / "sqs_s3_notice.json"
    assert answered(path, service) == {"batchItemFailures": []}
    ((called, _, arguments),) = service.calls
    assert (called, arguments["location"][:15]) == ("NOTIFY_COMMIT", "s3://example-la")


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_of_a_reader_is_taken_as_a_rest_catalog_takes_it(name: str, service: FakeService) -> None:
    answer = answered(REPOSITORY / "events" / f"{name}.json", service)
    assert (answer["statusCode"], answer["body"]) == (204, "")
    ((called, address, arguments),) = service.calls
    assert (called, arguments["report"]["report-type"]) == ("REPORT_METRICS", "scan-report")
    assert address is not None
    assert (address.told, address.table) == ("default", "users")


def test_the_end_of_a_run_in_spark_is_told_to_who_looks_after_its_job(service: FakeService) -> None:
    event = json.loads((REPOSITORY / "events" / "emr_run_ended.json").read_text())
    assert answered(REPOSITORY / "events" / "emr_run_ended.json", service) == {"success": True, "job_id": "job-1"}
    assert service.calls == [("spark_run_changed", None, {"run_id": event["detail"]["jobRunId"]})]


@pytest.mark.parametrize(("name", "kind"), PAGES.items())
def test_a_page_is_served_without_calling_an_operation(name: str, kind: str, service: FakeService) -> None:
    answer = answered(REPOSITORY / "events" / f"{name}.json", service)
    assert (answer["statusCode"], answer["headers"]["Content-Type"]) == (200, kind)
    assert service.calls == []


def test_there_is_an_event_for_every_operation_and_for_every_source() -> None:
    events = {path.stem: json.loads(path.read_text()) for path in EVENTS}
    assert {event["operation"] for event in events.values() if "operation" in event} == set(OPERATIONS)
    for source in (
        "apigw_v1_",
        "apigw_v2_",
        "function_url_",
        "emulator_seed_",
        "scheduler_",
        "short_form_",
        "sqs_",
        "rule_",
        "emr_",
    ):
        assert any(name.startswith(source) for name in events), source


def test_there_is_an_event_for_every_route_and_for_every_proof_of_who_calls() -> None:
    events = [json.loads(path.read_text()) for path in EVENTS]
    contexts = [event.get("requestContext", {}) for event in events]
    sent = {(event["httpMethod"], event["path"]) for event in events if "httpMethod" in event}
    both = zip(events, contexts, strict=True)
    sent |= {(context["http"]["method"], event["rawPath"]) for event, context in both if "http" in context}
    for method, path in ROUTES:
        pattern = re.sub(r"<\w+>", "[^/]+", path)
        assert any(method == by and re.fullmatch(pattern, to) for by, to in sent), path
    proofs = {proof for context in contexts for proof in context.get("authorizer", {})}
    assert {"claims", "jwt", "iam"} <= proofs
