"""Messages of a queue and events of a rule: each is served, or comes again, for itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from regelate.entrypoints.aws.envelope import keyed
from regelate.entrypoints.dispatch import Unserved, dispatch
from regelate.errors import Unavailable
from tests.entrypoints.fakes import FakeService

TABLE = {"tenant_id": "default", "table": "users"}


def message(number: int, body: object, group: str = "g", deliveries: int = 1) -> dict[str, Any]:
    return {
        "messageId": f"m{number}",
        "receiptHandle": f"r{number}",
        "body": body if isinstance(body, str) else json.dumps(body),
        "attributes": {"MessageGroupId": group, "ApproximateReceiveCount": str(deliveries)},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
    }


@dataclass(frozen=True)
class Context:
    seconds: float = 900.0
    aws_request_id: str = "invocation"

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


def failed(service: FakeService, *messages: dict[str, Any], seconds: float = 900.0) -> list[str]:
    answer = dispatch({"Records": list(messages)}, Context(seconds), lambda: service)
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]]


def test_a_part_of_a_job_is_run_with_the_time_that_the_function_has(service: FakeService) -> None:
    assert failed(service, message(1, {"job_id": "job-1", "part": 2})) == []
    assert service.calls == [("run_job", None, {"job_id": "job-1", "part": 2, "seconds_left": 900.0})]


def test_a_part_that_has_to_wait_is_hidden_for_so_long_and_comes_again(service: FakeService) -> None:
    service.job_comes_again_after = 60.0
    assert failed(service, message(1, {"job_id": "job-1", "part": 1})) == ["m1"]
    assert service.calls[-1] == ("postpone_message", None, {"receipt": "r1", "seconds": 60.0})


def test_no_part_is_begun_when_the_function_is_about_to_end(service: FakeService) -> None:
    assert failed(service, message(1, {"job_id": "job-1", "part": 1}), seconds=19.0) == ["m1"]
    assert [name for name, _, _ in service.calls] == ["postpone_message"]


@pytest.mark.parametrize("body", ["not json", "[]", "7", {}, {"job_id": 7, "part": 1}, {"job_id": "j", "part": True}])
def test_what_is_no_message_of_ours_fails_at_once_so_that_the_queue_sets_it_aside_and_nothing_is_run(
    service: FakeService, body: object
) -> None:
    assert failed(service, message(1, body)) == ["m1"]
    assert put_off(service) == [1.0]


def put_off(service: FakeService) -> list[float]:
    """After how many seconds messages come again; nothing but that was called."""
    assert {name for name, _, _ in service.calls} <= {"postpone_message"}
    return [arguments["seconds"] for _, _, arguments in service.calls]


@pytest.mark.parametrize("fault", [Unavailable("JOBS_UNAVAILABLE", "not now"), RuntimeError("a bug")])
def test_a_message_that_failed_blocks_its_table_for_half_a_minute_and_longer_each_time(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr(service, "run_job", raising(fault))
    for deliveries in (1, 2, 3, 19):
        assert failed(service, message(1, {"job_id": "job-1", "part": 1}, deliveries=deliveries)) == ["m1"]
    assert put_off(service) == [30.0, 60.0, 120.0, 900.0]


def test_a_request_in_a_message_that_may_succeed_later_comes_again_after_half_a_minute(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "compact", raising(Unavailable("CATALOG_UNAVAILABLE", "not now")))
    assert failed(service, message(1, {"operation": "COMPACT", **TABLE})) == ["m1"]
    assert put_off(service) == [30.0]


def test_the_job_of_a_message_that_is_delivered_for_the_last_time_in_vain_is_given_up(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = service.settings.jobs.max_deliveries
    part = {"job_id": "job-1", "part": 1}
    assert failed(service, message(1, part, deliveries=most)) == []
    service.calls.clear()
    monkeypatch.setattr(service, "run_job", raising(Unavailable("JOBS_UNAVAILABLE", "not now")))
    assert failed(service, message(1, part, deliveries=most)) == ["m1"]
    (given_up, _, told), (postponed, _, _) = service.calls
    assert (given_up, told["job_id"], told["part"], postponed) == ("give_up_job", "job-1", 1, "postpone_message")
    assert "delivered 20 times" in told["why"]
    assert "JOBS_UNAVAILABLE: not now" in told["why"]


def test_a_message_that_cannot_be_put_off_fails_with_its_own_fault(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, log_lines: Callable[[], list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(service, "postpone_message", raising(Unavailable("JOBS_UNAVAILABLE", "no queue")))
    assert failed(service, message(1, "bad")) == ["m1"]
    assert [line["message"] for line in log_lines()] == ["message refused", "message could not be put off"]


def raising(fault: Exception) -> Callable[..., None]:
    def fail(*arguments: object, **more: object) -> None:
        raise fault

    return fail


def test_after_a_failure_the_rest_of_the_table_waits_and_other_tables_go_on(service: FakeService) -> None:
    part = {"job_id": "job-1", "part": 1}
    found = failed(service, message(1, "bad", "a"), message(2, part, "a"), message(3, part, "b"))
    assert found == ["m1", "m2"]
    assert [name for name, _, _ in service.calls] == ["postpone_message", "run_job"]


def test_a_fault_of_the_store_brings_the_message_again_and_is_no_fault_of_the_function(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, log_lines: Callable[[], list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(service, "run_job", raising(Unavailable("JOBS_UNAVAILABLE", "not now")))
    assert failed(service, message(1, {"job_id": "job-1", "part": 1})) == ["m1"]
    assert [line["code"] for line in log_lines() if "code" in line] == ["JOBS_UNAVAILABLE"]


def test_a_request_in_a_message_is_answered_once_under_the_messages_own_key(service: FakeService) -> None:
    assert failed(service, message(1, {"operation": "COMPACT", **TABLE})) == []
    operation, address, arguments = service.calls[0]
    assert (operation, address.ident, arguments["request"].idempotency_key) == ("COMPACT", "default.users", "m1")  # type: ignore[union-attr]


def test_a_request_that_is_refused_does_not_come_again(service: FakeService) -> None:
    assert failed(service, message(1, {"operation": "COMPACT", "tenant_id": "default", "table": "nope"})) == []


def test_row_40_a_rule_that_delivers_twice_asks_under_one_key(service: FakeService) -> None:
    event = {"id": "7bf73129", "detail-type": "x", "source": "y", "detail": {"operation": "COMPACT", **TABLE}}
    answers = [dispatch(event, Context(), lambda: service) for _ in range(2)]
    assert [answer["success"] for answer in answers] == [True, True]
    assert [arguments["request"].idempotency_key for _, _, arguments in service.calls] == ["7bf73129"] * 2


def test_a_request_of_a_rule_that_fails_fails_the_invocation_so_that_it_is_tried_again(service: FakeService) -> None:
    event = {"id": "e", "detail-type": "x", "detail": {"operation": "COMPACT", "tenant_id": "default", "table": "nope"}}
    with pytest.raises(Unserved, match="TABLE_NOT_FOUND"):
        dispatch(event, Context(), lambda: service)


def test_only_what_must_not_happen_twice_gets_a_key_and_a_key_of_its_own_stays() -> None:
    for operation in ("COMPACT", "WRITE"):
        assert keyed({"operation": operation}, "e")["idempotency_key"] == "e"
        assert keyed({"operation": operation, "idempotency_key": "own"}, "e")["idempotency_key"] == "own"
    for request in ({"operation": "QUERY"}, {"operation": "COMPACT", "dry_run": True}, {"operation": "SWEEP"}):
        assert keyed(request, "e") == request
