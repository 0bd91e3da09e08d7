"""The one door: which envelope is this? Then one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regelate.entrypoints.actions import Payload, parse_request
from regelate.entrypoints.answering import answer, new_request_id
from regelate.entrypoints.api.requests import AnyRequest
from regelate.entrypoints.aws import http
from regelate.entrypoints.aws.envelope import Envelope, Event, caller_of, keyed, recognise, seconds_left
from regelate.entrypoints.aws.notices import notices_of
from regelate.entrypoints.caller import Caller
from regelate.service.facade import Provider, Service


def dispatch(
    event: object, context: object, provider: Provider, *, max_answer_bytes: int | None = None
) -> dict[str, Any]:
    """Return the answer to one event: in the HTTP envelope that it came in, or plain for a direct invoke.

    Everything that can go wrong is in the answer; only an event that is no request at all raises (UNKNOWN_EVENT), and
    what a rule sent that failed (`Unserved`). The answer to a batch of messages names those that must come again.
    `provider` gives the service; it is called once per request that needs it. An answer that would be larger than
    `max_answer_bytes` becomes 413 RESULT_TOO_LARGE.
    """
    envelope, request = recognise(event)
    if envelope is Envelope.BATCH:
        from regelate.entrypoints.aws.batch import handle_batch  # the API's function never needs it

        return handle_batch(request, context, provider, lambda body, name: _asked(body, name, context, provider))
    if envelope is Envelope.RULE:
        return _of_rule(request, context, provider)
    if envelope is Envelope.SPARK:
        return _spark_run_changed(request, provider)
    if envelope is Envelope.NOTICE:
        return _noticed(request, context, provider)
    caller = caller_of(request, context, envelope)
    if envelope is Envelope.DIRECT:
        return answer(provider, lambda _: request, _parse, caller).fitting(max_answer_bytes, caller).made
    asked = http.Asked(event=request, caller=caller, provider=provider, max_answer_bytes=max_answer_bytes)
    return http.resolve(asked, context, envelope)


class Unserved(Exception):
    """A rule's request was refused or failed. Lambda tries it again, then hands it to the function's destination."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['error']['code']}: {answer['error']['message']}")
        self.answer = answer


def _of_rule(event: Event, context: object, provider: Provider) -> dict[str, Any]:
    name = event.get("id")
    known = name if isinstance(name, str) and name else new_request_id()
    made = _asked(event["detail"], known, context, provider, scheduled=True)
    if made["success"] is False:
        raise Unserved(made)
    return made


def _noticed(event: Event, context: object, provider: Provider) -> dict[str, Any]:
    """Answer notices of commits. What was refused once will be again: only what may pass fails the invocation, so that
    no notice is sent for ever."""
    made = [_asked(notice, new_request_id(), context, provider) for notice in notices_of(event) or ()]
    for answered in made:
        if answered["success"] is False and answered["error"]["retryable"]:
            raise Unserved(answered)
    return made[0] if len(made) == 1 else {"success": True, "notices": made}


def _spark_run_changed(event: Event, provider: Provider) -> dict[str, Any]:
    """Look after the job that a Spark run was started for; a run of somebody else's is passed over."""
    job_id = provider().worker.spark_run_changed(event["detail"]["jobRunId"])
    return {"success": True, "job_id": job_id}


def _asked(
    request: Mapping[str, object], name: str, context: object, provider: Provider, *, scheduled: bool = False
) -> dict[str, Any]:
    """Answer a request that came by a queue or a rule, and so may come twice; only IAM principals send these."""
    caller = Caller(request_id=name, trusted=True, scheduled=scheduled, seconds_left=seconds_left(context))
    return answer(provider, lambda _: keyed(request, name), _parse, caller).made


def _parse(payload: Payload, service: Service, caller: Caller) -> AnyRequest:
    return parse_request(payload)
