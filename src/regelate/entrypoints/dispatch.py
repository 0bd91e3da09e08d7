"""The one door: which envelope is this? Then one call."""

from __future__ import annotations

from typing import Any

from regelate.entrypoints import http
from regelate.entrypoints.actions import Caller, Payload, answer
from regelate.entrypoints.envelope import Envelope, caller_of, recognise
from regelate.entrypoints.requests import AnyRequest, parse_request
from regelate.entrypoints.service import Provider, Service


def dispatch(
    event: object, context: object, provider: Provider, *, max_answer_bytes: int | None = None
) -> dict[str, Any]:
    """Return the answer to one event: in the HTTP envelope that it came in, or plain for a direct invoke.

    Everything that can go wrong is in the answer; only an event that is no request at all raises (UNKNOWN_EVENT).
    `provider` gives the service; it is called once per request that needs it. An answer that would be larger than
    `max_answer_bytes` becomes 413 RESULT_TOO_LARGE.
    """
    envelope, request = recognise(event)
    caller = caller_of(request, context, envelope)
    if envelope is Envelope.DIRECT:
        return answer(provider, lambda _: request, _parse, caller).fitting(max_answer_bytes, caller).made
    asked = http.Asked(event=request, caller=caller, provider=provider, max_answer_bytes=max_answer_bytes)
    return http.resolve(asked, context, envelope)


def _parse(payload: Payload, service: Service, caller: Caller) -> AnyRequest:
    return parse_request(payload)
