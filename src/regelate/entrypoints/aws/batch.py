"""Messages of a queue: parts of jobs, and plain requests. Each is served or reported as failed for itself.

A message that is reported comes again: after a pause that grows, because until then the rest of its table waits behind
it. After `jobs.max_deliveries` times (`maxReceiveCount` in template.yaml) the queue sets it aside, and the job that it
was about is given up. What is no request at all has its way there too, at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from regelate.core.jobs.job import retry_seconds
from regelate.entrypoints.aws.envelope import seconds_left
from regelate.entrypoints.aws.notices import notices_of
from regelate.entrypoints.log import Subject, logger, speak_of, stack_of
from regelate.errors import InvalidRequest, RegelateError
from regelate.service.facade import Provider

LEAST_SECONDS = 20.0
"""With less left a part is not begun: the message comes again, to a process that has more."""
Ask = Callable[[Mapping[str, object], str], Mapping[str, Any]]
"""Answers one request, as of a direct invoke; the text is the envelope's own id."""
NONE_OF_OURS_SECONDS = 1.0
"""It will never be served: nothing need wait for it."""


class ComesAgain(Exception):
    """Nothing is wrong with the message: it is served after so many seconds, or by the count of its deliveries."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


def handle_batch(event: Mapping[str, Any], context: object, provider: Provider, ask: Ask) -> dict[str, Any]:
    """Serve the messages of one batch and report those that must come again, as `ReportBatchItemFailures` has it.

    After a failure the other messages of its group (a table) are left alone, so that their order stays.
    """
    processor = SqsFifoPartialProcessor(skip_group_on_error=True)
    processor.raise_on_entire_batch_failure = False  # a message that has to wait is no fault of the function
    answered: Any = process_partial_response(
        event=dict(event),
        record_handler=lambda record: _served(record, context, provider, ask),
        processor=processor,
        context=None,
    )
    return dict(answered)


def _served(record: SQSRecord, context: object, provider: Provider, ask: Ask) -> None:
    """Serve one message; raises where it must come again."""
    speak_of(Subject.of({"operation": "JOB"}, record.message_id))
    try:
        body = _body(record)
        notices = notices_of(body)
        if "operation" in body or notices is not None:
            for number, asked in enumerate([body] if notices is None else notices):
                _asked(ask(asked, f"{record.message_id}-{number}" if number else record.message_id))
        else:
            _part_of_job(body, record, context, provider)
    except ComesAgain as later:
        logger.info("message comes again", why=str(later))
        _put_off(record, provider, str(later), later.seconds)
        raise
    except RegelateError as fault:
        logger.warning("message refused", code=fault.code, error=fault.message)
        never = fault.code == "UNKNOWN_EVENT"
        _put_off(record, provider, f"{fault.code}: {fault.message}", NONE_OF_OURS_SECONDS if never else None)
        raise
    except Exception as fault:
        logger.error("message failed", stack=stack_of(fault))
        _put_off(record, provider, f"{type(fault).__name__}; the log has more")
        raise


def _put_off(record: SQSRecord, provider: Provider, why: str, seconds: float | None = None) -> None:
    """Say when a message comes again. With this delivery the last one, end its job: nobody would hear of it any more.

    What goes wrong here hides nothing: the message then comes when its invisibility ends.
    """
    try:
        service, deliveries = provider(), int(record.attributes.approximate_receive_count)
        if deliveries >= service.settings.jobs.max_deliveries:
            seconds, named = NONE_OF_OURS_SECONDS, _part_named(_body(record))
            if named is not None:
                service.jobs.give_up_job(*named, f"its message was delivered {deliveries} times, the last time: {why}")
        service.jobs.postpone_message(record.receipt_handle, retry_seconds(deliveries) if seconds is None else seconds)
    except Exception as fault:  # noqa: BLE001  the fault that it is about is raised on
        logger.warning("message could not be put off", stack=stack_of(fault))


def _body(record: SQSRecord) -> Mapping[str, object]:
    try:
        found = json.loads(record.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidRequest("UNKNOWN_EVENT", "a message must be a JSON object: a request, or job_id and part")
    return found


def _part_named(body: Mapping[str, object]) -> tuple[str, int] | None:
    job_id, part = body.get("job_id"), body.get("part")
    if isinstance(job_id, str) and isinstance(part, int) and not isinstance(part, bool):
        return job_id, part
    return None


def _part_of_job(body: Mapping[str, object], record: SQSRecord, context: object, provider: Provider) -> None:
    named = _part_named(body)
    if named is None:
        raise InvalidRequest("UNKNOWN_EVENT", "a message must be a JSON object: a request, or job_id and part")
    job_id, part = named
    speak_of(Subject.of({"operation": "JOB", "request_id": job_id}, record.message_id))
    service, left = provider(), seconds_left(context)
    short = left is not None and left < LEAST_SECONDS
    later = 1.0 if short else service.worker.run_job(job_id, part, seconds_left=left)
    if later is None:
        logger.info("part served", job_id=job_id, part=part)
        return
    raise ComesAgain(f"part {part} of {job_id}, after {later:.0f} s", later)


def _asked(answer: Mapping[str, Any]) -> None:
    """A request that was refused will be refused again: only what may pass is to come again."""
    error = answer.get("error") if answer["success"] is False else None
    if isinstance(error, Mapping) and error["retryable"]:
        raise ComesAgain(f"the request, which failed with {error['code']}")
