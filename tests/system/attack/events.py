"""Events for the Lambda handler: of no source, of a source that lies, of callers who claim to be somebody else."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from tests.system.attack.attack import (
    ATTACKER,
    BAD_JSON,
    BAD_REQUEST,
    CRASHED,
    FORBIDDEN,
    MEMORY,
    MISSING,
    NO_TABLE,
    NOT_ALLOWED,
    OK,
    OTHER_SECONDS,
    QUERY_SECONDS,
    TIMEOUT,
    VICTIM,
    Attack,
    Door,
)
from tests.system.attack.scene import Scene
from tests.system.attack.sql import DEEP_VALUES, FILLS, HOLDS

UNKNOWN = "direct UNKNOWN_EVENT"
NO_EVENT = "raised UNKNOWN_EVENT"
NONE_FAILED, ONE_FAILED = "0 of a batch failed", "1 of a batch failed"
LARGE = "413 PAYLOAD_TOO_LARGE"
SMALL = {"operation": "QUERY", "tenant_id": ATTACKER, "table": "events", "columns": ["id"], "limit": 1}
FOREIGN = {"operation": "QUERY", "tenant_id": VICTIM, "table": "orders"}
CLAIM = "custom:tenant_id"


def v2(body: Any, claims: Any = None, **more: Any) -> dict[str, Any]:
    """Return an event of an HTTP API; `claims` are what its authorizer has proved."""
    authorizer = {} if claims is None else {"authorizer": {"jwt": {"claims": claims}}}
    context = {"http": {"method": "POST", "path": "/database"}, "requestId": "r", "stage": "$default", **authorizer}
    text = body if isinstance(body, str) else json.dumps(body)
    return {"version": "2.0", "rawPath": "/database", "headers": {}, "requestContext": context, "body": text, **more}


def v1(body: Any, claims: Any = None, **more: Any) -> dict[str, Any]:
    """Return an event of a REST API."""
    authorizer = {} if claims is None else {"authorizer": {"claims": claims}}
    text = body if isinstance(body, str) else json.dumps(body)
    return {
        "httpMethod": "POST", "path": "/database", "headers": {}, "requestContext": {"requestId": "r", **authorizer},
        "body": text, **more,
    }  # fmt: skip


def rule(detail: Any, **more: Any) -> dict[str, Any]:
    return {"version": "0", "id": "e", "detail-type": "Ask", "source": "mallory", "detail": detail, **more}


def batch(*bodies: Any, **more: Any) -> dict[str, Any]:
    records = [
        {
            "messageId": f"m{n}", "receiptHandle": "h", "body": body if isinstance(body, str) else json.dumps(body),
            "attributes": {"ApproximateReceiveCount": "1", "MessageGroupId": f"g{n}"}, "messageAttributes": {},
            "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:jobs.fifo", **more,
        }
        for n, body in enumerate(bodies)
    ]  # fmt: skip
    return {"Records": records}


ME = {CLAIM: ATTACKER}
CLAIMS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "no claims": (v2(SMALL), (FORBIDDEN,)),
    "claims of nobody": (v2(SMALL, {}), (FORBIDDEN,)),
    "an empty claim": (v2(SMALL, {CLAIM: ""}), (FORBIDDEN,)),
    "a claim that is null": (v2(SMALL, {CLAIM: None}), (FORBIDDEN,)),
    "a claim that is a list": (v2(SMALL, {CLAIM: [ATTACKER]}), (FORBIDDEN,)),
    "a claim that is an object": (v2(SMALL, {CLAIM: {"a": ATTACKER}}), (FORBIDDEN,)),
    "a claim in upper case": (v2(SMALL, {CLAIM: "MALLORY"}), (FORBIDDEN,)),
    "a claim with a space": (v2(SMALL, {CLAIM: "mallory "}), (FORBIDDEN,)),
    "another claim": (v2(SMALL, {"tenant_id": ATTACKER, "sub": ATTACKER}), (FORBIDDEN,)),
    "claims that are a list": (v2(SMALL, [CLAIM, ATTACKER]), (FORBIDDEN,)),
    "claims that are a text": (v2(SMALL, ATTACKER), (FORBIDDEN,)),
    "the victim's rows by one's own claim": (v2(FOREIGN, ME), (FORBIDDEN,)),
    "the victim's rows by one's own claim, REST": (v1(FOREIGN, ME), (FORBIDDEN,)),
    "claims of REST in an event of HTTP": (v2(SMALL, None, requestContext={"http": {"method": "POST", "path": "/database"}, "authorizer": {"claims": ME}}), (FORBIDDEN,)),
    "claims in the body": (v2({**SMALL, "claims": ME}), ("400 UNKNOWN_FIELD", FORBIDDEN)),
    "claims in the headers": (v2(SMALL, None, headers={CLAIM: ATTACKER, "x-amzn-oidc-data": "x"}), (FORBIDDEN,)),
    "a role in the body's context": (v1(SMALL, None, requestContext={"identity": {"userArn": "arn:aws:iam::1:root"}}), (FORBIDDEN,)),
    "one's own rows by one's own claim": (v2(SMALL, ME), (OK,)),
    "SWEEP of everybody": (v2({"operation": "SWEEP"}, ME), (MISSING, FORBIDDEN)),
    "the victim's table as one's own": (v2({**SMALL, "table": "orders"}, ME), (NO_TABLE,)),
    "a job of nobody": (v2("", ME, rawPath="/jobs/x", requestContext={**v2("", ME)["requestContext"], "http": {"method": "GET", "path": "/jobs/x"}}), ("404 JOB_NOT_FOUND", MISSING)),
}  # fmt: skip
BODIES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a body that is an object": ({**v2("", ME), "body": SMALL}, (BAD_REQUEST,)),
    "a body that is a list": ({**v1("", ME), "body": [1]}, (BAD_REQUEST,)),
    "no body": ({**v2("", ME), "body": None}, (BAD_JSON,)),
    "base64 that is none": (v2("***", ME, isBase64Encoded=True), (BAD_REQUEST,)),
    "base64 of a bomb": (v2(base64.b64encode(b"[" * 3_000_000).decode(), ME, isBase64Encoded=True), (BAD_REQUEST,)),
    "base64 of 7 MB": (v2(base64.b64encode(b" " * 7_000_000).decode(), ME, isBase64Encoded=True), (LARGE,)),
    "7 MB": (v2(" " * 7_000_000, ME), (LARGE,)),
    "three million levels": (v1("[" * 3_000_000, ME), (BAD_REQUEST,)),
    "half a million keys": (
        v2("{" + '"operation": "HEALTH_CHECK",' + ",".join(f'"{i:x}":1' for i in range(500_000)) + "}", ME),
        ("400 UNKNOWN_FIELD", "400 INVALID_FIELD"),
    ),
    "a path of nobody": (v1("{}", ME, path="/../etc/passwd"), ("404 NOT_FOUND",)),
    "a method of nobody": (v1("{}", ME, httpMethod="BREW"), ("405 METHOD_NOT_ALLOWED", "404 NOT_FOUND")),
    "a path that is a number": (v1("{}", ME, path=1), (UNKNOWN, NO_EVENT)),
    "a method that is null": (v1("{}", ME, httpMethod=None), (UNKNOWN, NO_EVENT)),
    "headers that are a list": (v1(SMALL, ME, headers=["a"]), (OK, BAD_REQUEST, UNKNOWN, NO_EVENT)),
    "headers that are null": (v2(SMALL, ME, headers=None), (OK, BAD_REQUEST)),
    "cookies that are a text": (v2(SMALL, ME, cookies="a=b"), (OK, BAD_REQUEST)),
    "a stage that is a list": (
        v2(SMALL, ME, requestContext={**v2("", ME)["requestContext"], "stage": ["a"]}), (OK, BAD_REQUEST, UNKNOWN, NO_EVENT)
    ),
    "a request id of line breaks": (
        v2(SMALL, ME, requestContext={**v2("", ME)["requestContext"], "requestId": "a\nb"}), (OK, BAD_REQUEST)
    ),
    "parameters that are a list": (v1(SMALL, ME, queryStringParameters=["a"]), (OK, BAD_REQUEST)),
}  # fmt: skip
SHAPES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "null": (None, (UNKNOWN, NO_EVENT)),
    "a number": (1, (UNKNOWN, NO_EVENT)),
    "a text": ("HEALTH_CHECK", (UNKNOWN, NO_EVENT)),
    "a list": ([SMALL], (UNKNOWN, NO_EVENT)),
    "an empty object": ({}, (UNKNOWN, NO_EVENT, "direct MISSING_FIELD")),
    "an event of S3 about no new object": ({"Records": [{"eventSource": "aws:s3", "s3": {}}]}, ("direct success",)),
    "an event of SNS": ({"Records": [{"EventSource": "aws:sns", "Sns": {"Message": json.dumps(SMALL)}}]}, (UNKNOWN, NO_EVENT)),
    "no records": ({"Records": []}, (UNKNOWN, NO_EVENT)),
    "records that are null": ({"Records": None}, (UNKNOWN, NO_EVENT)),
    "records of two sources": ({"Records": [batch(SMALL)["Records"][0], {"eventSource": "aws:s3"}]}, (UNKNOWN, NO_EVENT)),
    "records that are texts": ({"Records": ["a"]}, (UNKNOWN, NO_EVENT)),
    "a rule without a request": (rule({}), (UNKNOWN, NO_EVENT)),
    "a rule whose detail is a text": (rule("x"), (UNKNOWN, NO_EVENT)),
    "a rule whose operation is a list": (rule({"operation": ["WRITE"]}), (UNKNOWN, NO_EVENT)),
    "a rule of nobody's operation": (rule({"operation": "SHELL"}), ("raised UNKNOWN_OPERATION",)),
    "a rule for a tenant of nobody": (rule({**SMALL, "tenant_id": "nobody"}), ("raised FORBIDDEN",)),
    "a rule whose id is a list": (rule({"operation": "HEALTH_CHECK"}, id=["e"]), ("direct success",)),
    "a rule of a deep request": (rule({**SMALL, "filter": json.loads("[" * 400 + "]" * 400)}), ("raised QUERY_ERROR", "raised INVALID_FIELD", "raised INVALID_REQUEST")),
    "EMR's event without a run": ({"detail-type": "x", "source": "aws.emr-serverless", "detail": {}}, (UNKNOWN, NO_EVENT)),
    "EMR's event of a run of nobody": (
        {"detail-type": "x", "source": "aws.emr-serverless", "detail": {"jobRunId": "../x", "state": "SUCCESS"}},
        ("direct success",),
    ),
    "EMR's event of a run of 1 MB": (
        {"detail-type": "x", "source": "aws.emr-serverless", "detail": {"jobRunId": "r" * 1_000_000}}, ("direct success",)
    ),
    "a direct invoke of a deep filter": (
        {**SMALL, "filter": json.loads("[" * 450 + "]" * 450)}, ("direct QUERY_ERROR", "direct INVALID_FIELD", "direct INVALID_REQUEST")
    ),
    "a direct invoke by a path": ({**SMALL, "table": "../../x"}, ("direct INVALID_IDENTIFIER",)),
    "a direct invoke of two envelopes": ({**v1(FOREIGN, ME), **SMALL}, (FORBIDDEN,)),
    "both envelopes of HTTP": ({**v1(FOREIGN, ME), **v2(FOREIGN, ME)}, (FORBIDDEN,)),
    "a rule in an envelope of HTTP": ({**v2(FOREIGN, ME), "detail-type": 1, "detail": None}, (UNKNOWN, NO_EVENT)),
    "a message that is no JSON": (batch("x"), (ONE_FAILED,)),
    "a message that is a list": (batch("[]"), (ONE_FAILED,)),
    "a message of a deep list": (batch("[" * 100_000), (ONE_FAILED,)),
    "a message of a job of nobody": (batch({"job_id": "x", "part": 1}), (NONE_FAILED, ONE_FAILED)),
    "a message of a job by a path": (batch({"job_id": "../../x", "part": 1}), (NONE_FAILED, ONE_FAILED)),
    "a message whose part is a text": (batch({"job_id": "x", "part": "1"}), (ONE_FAILED,)),
    "a message whose part is true": (batch({"job_id": "x", "part": True}), (ONE_FAILED,)),
    "a message of part 10^300": (batch({"job_id": "x", "part": 10**300}), (NONE_FAILED, ONE_FAILED)),
    "a message of nobody's operation": (batch({"operation": "SHELL"}), (NONE_FAILED, ONE_FAILED)),
    "a message whose count is a text": (batch("x", attributes={"ApproximateReceiveCount": "x"}), (ONE_FAILED,)),
    "a message without attributes": (batch("x", attributes=None), (UNKNOWN, NO_EVENT)),
    "500 messages that are none": (batch(*["x"] * 500), ("500 of a batch failed",)),
}  # fmt: skip
KILLERS = {
    "json_structure of 100,000 levels": DEEP_VALUES["json_structure of 100,000 levels"],
    "a cast to VARIANT": DEEP_VALUES["a cast to VARIANT"],
    "levenshtein of 100,000 characters": HOLDS["levenshtein of 100,000 characters"],
    "a count of 10^15 rows": HOLDS["a count of 10^15 rows"],
    "repeat of repeat of repeat": FILLS["repeat of repeat of repeat"],
    "error of a hundred megabytes": FILLS["error of a hundred megabytes"],
}


def attacks(_: Scene) -> Iterator[Attack]:
    for part, found in (("Handler: who asks", CLAIMS), ("Handler: bodies", BODIES), ("Handler: events", SHAPES)):
        for name, (event, allowed) in found.items():
            yield _event(part, name, event, *allowed)
    for name, sql in KILLERS.items():
        event = v2({"operation": "QUERY", "tenant_id": ATTACKER, "table": "events", "sql": sql}, ME)
        yield _event("Handler: SQL", name, event, CRASHED, MEMORY, TIMEOUT, limit=QUERY_SECONDS)
    reading = v1({"operation": "QUERY", "tenant_id": ATTACKER, "table": "events", "sql": "SELECT getenv('CANARY')"}, ME)
    yield _event("Handler: SQL", "getenv", reading, NOT_ALLOWED)


def _event(part: str, name: str, event: Any, *allowed: str, limit: float = OTHER_SECONDS) -> Attack:
    return Attack(part=part, name=name, door=Door.HANDLER, request=event, allowed=frozenset(allowed), limit=limit)
