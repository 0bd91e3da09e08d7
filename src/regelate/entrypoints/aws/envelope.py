"""Which envelope an event came in, and what it says itself: who asks, under which request id, with which body."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from enum import Enum
from typing import Any
from urllib.parse import parse_qsl

from regelate.entrypoints.answering import new_request_id
from regelate.entrypoints.aws.body import too_large
from regelate.entrypoints.aws.notices import notices_of
from regelate.entrypoints.caller import Caller
from regelate.errors import InvalidRequest

Event = Mapping[str, Any]
_EMR = "aws.emr-serverless"


class Envelope(Enum):
    """`V1`: API Gateway REST, and the three keys {httpMethod, path, body}; `V2`: HTTP API and function URL. `RULE`: an
    EventBridge event whose `detail` is a request; `BATCH`: messages of SQS; `SPARK`: EventBridge says that a run of EMR
    Serverless has another state; `NOTICE`: an event of S3, or a CloudEvent, that tells of a commit.
    """

    V1 = "v1"
    V2 = "v2"
    DIRECT = "direct"
    RULE = "rule"
    BATCH = "batch"
    SPARK = "spark"
    NOTICE = "notice"


def recognise(event: object) -> tuple[Envelope, Event]:
    """Return the envelope of an event, and the event as the object it is.

    Errors: InvalidRequest UNKNOWN_EVENT for one that is none of ours. A queue or a rule takes any returned answer for
    success, so what they send and is none is refused by an error that fails the invocation.
    """
    if not isinstance(event, Mapping):
        raise _unknown("the event must be a JSON object")
    if notices_of(event) is not None:
        return Envelope.NOTICE, event
    if "Records" in event:
        if not _of_sqs(event["Records"]):
            raise _unknown("only the records of SQS and S3 are served")
        return Envelope.BATCH, event
    if "detail-type" in event:
        detail = event.get("detail")
        if event.get("source") == _EMR:
            if not isinstance(_at(event, "detail", "jobRunId"), str):
                raise _unknown("the `detail` of EMR's event must name a job run")
            return Envelope.SPARK, event
        if not isinstance(detail, Mapping) or not isinstance(detail.get("operation"), str):
            raise _unknown("the `detail` of a rule's event must be a request")
        return Envelope.RULE, event
    http = _at(event, "requestContext", "http")
    if isinstance(http, Mapping):
        context = {"stage": "$default", **event["requestContext"]}  # Powertools raises where a hand-made event has none
        if not all(isinstance(text, str) for text in (http.get("method"), event.get("rawPath"), context["stage"])):
            raise _unknown("requestContext.http without method, no rawPath, or a stage that is no text")
        _check_headers(event)
        return Envelope.V2, {**event, "requestContext": context}
    if "httpMethod" in event:
        if not isinstance(event["httpMethod"], str) or not isinstance(event.get("path"), str):
            raise _unknown("httpMethod and path must be strings")
        _check_headers(event)
        return Envelope.V1, event
    return Envelope.DIRECT, event


def _of_sqs(records: object) -> bool:
    if not isinstance(records, list) or not records:
        return False
    return all(
        isinstance(record, Mapping)
        and record.get("eventSource") == "aws:sqs"
        and isinstance(record.get("attributes"), Mapping)
        for record in records
    )


def _check_headers(event: Event) -> None:
    if not isinstance(event.get("headers") or {}, Mapping):
        raise _unknown("headers must be an object")


def keyed(request: Mapping[str, object], envelope_id: str) -> Mapping[str, object]:
    """Return a request that may come twice with a key of its own: what its envelope is called, if it names none."""
    repeats = request.get("operation") == "WRITE" or (
        request.get("operation") == "COMPACT" and not request.get("dry_run") and "resume_token" not in request
    )
    if not repeats or "idempotency_key" in request:
        return request
    return {**request, "idempotency_key": envelope_id}


def caller_of(event: Event, context: object, envelope: Envelope) -> Caller:
    """Return who asks. Only a direct invoke is trusted with the tenant in its payload: IAM let its principal in."""
    invoked = getattr(context, "aws_request_id", None)
    if envelope in (Envelope.DIRECT, Envelope.RULE):
        return Caller(request_id=invoked or new_request_id(), trusted=True, seconds_left=seconds_left(context))
    gateway = _at(event, "requestContext", "requestId")
    request_id = gateway if isinstance(gateway, str) and gateway else invoked or new_request_id()
    steps = ("jwt", "claims") if envelope is Envelope.V2 else ("claims",)
    claims = _at(event, "requestContext", "authorizer", *steps)
    return Caller(
        request_id=request_id,
        claims=claims if isinstance(claims, Mapping) else {},
        signed=_signed(event, envelope),
        seconds_left=seconds_left(context),
    )


def seconds_left(context: object) -> float | None:
    """Return until when Lambda lets this process live; None where nobody ends it."""
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    return None if remaining is None else remaining() / 1000


def query_of(event: Event) -> Mapping[str, str]:
    """Return the parameters of an HTTP event's query; of one that stands twice, the last."""
    given = event.get("queryStringParameters")
    if isinstance(given, Mapping):
        return {name: value for name, value in given.items() if isinstance(value, str)}
    raw = event.get("rawQueryString")
    return dict(parse_qsl(raw)) if isinstance(raw, str) else {}


def _signed(event: Event, envelope: Envelope) -> bool:
    """Say whether the gateway names an IAM principal: it does so only after it has checked the signature."""
    steps = ("authorizer", "iam", "userArn") if envelope is Envelope.V2 else ("identity", "userArn")
    arn = _at(event, "requestContext", *steps)
    return isinstance(arn, str) and arn.startswith("arn:")


def raw_body(event: Event, max_bytes: int) -> str | bytes | None:
    """Return the body of an HTTP event as it was sent. Errors: InvalidRequest."""
    body = event.get("body")
    if body is not None and not isinstance(body, str):
        message = "the event's `body` must be a string that holds JSON, not the JSON itself"
        raise InvalidRequest("INVALID_REQUEST", message, field="body")
    if body is None or event.get("isBase64Encoded") is not True:
        return body
    if len(body) > max_bytes * 4 // 3 + 4:
        raise too_large(max_bytes)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        message = "the event says isBase64Encoded, but its body is not base64"
        raise InvalidRequest("INVALID_REQUEST", message, field="body") from None


def _at(event: Event, *steps: str) -> Any:
    here: Any = event
    for step in steps:
        if not isinstance(here, Mapping):
            return None
        here = here.get(step)
    return here


def _unknown(why: str) -> InvalidRequest:
    return InvalidRequest("UNKNOWN_EVENT", f"{why}; send an HTTP event or an object with `operation`")
