"""Notices of commits as others send them: S3's events, by EventBridge or as records, and CloudEvents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from regelate.errors import InvalidRequest

MAX_NOTICE_BYTES = 256 * 1024
"""What SQS and EventBridge carry at most; a notice has some hundred bytes."""
S3_SOURCE = "aws.s3"
_S3_RECORDS = "aws:s3"
_S3_TEST = "s3:TestEvent"
"""S3 sends it once, when somebody configures a notification: it is about no object."""

Notice = Mapping[str, object]


def notices_of(event: Mapping[str, Any]) -> list[Notice] | None:
    """Return the notices that an event of S3, or a CloudEvent, holds; None for an event of another kind.

    Of S3's events those about new objects count. Errors: InvalidRequest UNKNOWN_EVENT for one that names no object, or
    has no `data`.
    """
    if event.get("source") == S3_SOURCE and "detail-type" in event:
        detail = event.get("detail")
        return [_of_object(detail)] if event["detail-type"] == "Object Created" else []
    if event.get("Event") == _S3_TEST:
        return []
    if is_of_s3(event.get("Records")):
        found = (record for record in event["Records"] if str(record.get("eventName")).startswith("ObjectCreated"))
        return [_of_object(record.get("s3"), quoted=True) for record in found]
    return [_of_cloud_event(event)] if "specversion" in event else None


def notice_sent(body: Mapping[str, Any]) -> Notice:
    """Return the one notice that the body of POST /events/commit is: plain fields, a CloudEvent, or an event of S3."""
    found = notices_of(body)
    if found is None:
        return {**body, "operation": "NOTIFY_COMMIT"}
    if len(found) != 1:
        raise InvalidRequest("UNKNOWN_EVENT", f"the event tells of {len(found)} new objects; send one at a time")
    return found[0]


def is_of_s3(records: object) -> bool:
    """Say whether these are the records of S3's own notification."""
    if not isinstance(records, list) or not records:
        return False
    return all(isinstance(record, Mapping) and record.get("eventSource") == _S3_RECORDS for record in records)


def _of_object(told: object, *, quoted: bool = False) -> Notice:
    """Name an object by its location. Keys are quoted as in a URL's query in records, and plain in EventBridge."""
    bucket = _text_at(told, "bucket", "name")
    key = _text_at(told, "object", "key")
    return {"operation": "NOTIFY_COMMIT", "metadata_location": f"s3://{bucket}/{unquote_plus(key) if quoted else key}"}


def _of_cloud_event(event: Mapping[str, Any]) -> Notice:
    data = event.get("data")
    if not isinstance(data, Mapping):
        raise InvalidRequest("UNKNOWN_EVENT", "the `data` of a CloudEvent must be an object that names a table")
    return {**data, "operation": "NOTIFY_COMMIT"}


def _text_at(told: object, *steps: str) -> str:
    here: Any = told
    for step in steps:
        here = here.get(step) if isinstance(here, Mapping) else None
    if not isinstance(here, str) or not here:
        raise InvalidRequest("UNKNOWN_EVENT", f"an event of S3 must name its {'.'.join(steps)}")
    return here
