"""The HTTP routes, on Powertools' resolvers: API Gateway REST (v1), HTTP API and function URL (v2).

A resolver is made per request. Powertools keeps the current event on a class that all threads share, and the context
on the resolver: with one resolver for all, sixteen requests at once would read each other's bodies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import ApiGatewayResolver
from aws_lambda_powertools.utilities.data_classes.common import BaseProxyEvent

from regelate.core.table.names import SEPARATOR
from regelate.core.values import dataclass
from regelate.entrypoints.actions import parse_request
from regelate.entrypoints.answering import ACCEPTED, Answered, Parser, answer, refusal
from regelate.entrypoints.api.requests import AnyRequest, Compact
from regelate.entrypoints.api.short_form import ShortCompact, parse_short_form, split_table
from regelate.entrypoints.aws.body import parse_body, turn
from regelate.entrypoints.aws.envelope import Envelope, Event, query_of, raw_body
from regelate.entrypoints.aws.notices import MAX_NOTICE_BYTES, notice_sent
from regelate.entrypoints.caller import Caller
from regelate.errors import InvalidRequest, NotFound, RegelateError
from regelate.service.facade import Provider, Service
from regelate.settings import Settings

JSON = "application/json"
DEVELOPMENT = "development"
_LEVEL = "\x1f"
"""Between the levels of a namespace, in a path of Iceberg's REST catalogs."""


class _RestResolver(APIGatewayRestResolver):
    def _to_proxy_event(self, event: dict[str, Any]) -> BaseProxyEvent:
        self.current_event = super()._to_proxy_event(event)  # type: ignore[assignment]  # hides the one all threads share
        return self.current_event


class _HttpResolver(APIGatewayHttpResolver):
    def _to_proxy_event(self, event: dict[str, Any]) -> BaseProxyEvent:
        self.current_event = super()._to_proxy_event(event)  # type: ignore[assignment]  # hides the one all threads share
        return self.current_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One HTTP request on its way to its route."""

    event: Event
    caller: Caller
    provider: Provider
    max_answer_bytes: int | None
    path: Mapping[str, str] = field(default_factory=dict)
    """The variable parts of the path, by name."""


Act = Callable[[Asked], Response[str]]


def resolve(asked: Asked, context: object, envelope: Envelope) -> dict[str, Any]:
    """Return the answer to an HTTP event in the shape of its own envelope; `headers` and a string `body` in both."""
    kind = _RestResolver if envelope is Envelope.V1 else _HttpResolver
    event = dict(asked.event)
    app = _with_routes(kind(), replace(asked, event=event))
    try:
        answered = app.resolve(event, context)  # type: ignore[arg-type]  # the context is only handed through
    finally:
        event.clear()  # the resolver and its routes hold each other, and with them each body, until a full collection
    if "headers" not in answered:  # Powertools answers v1 with multiValueHeaders alone
        answered["headers"] = {name: values[-1] for name, values in answered["multiValueHeaders"].items()}
    return answered


def _with_routes(app: ApiGatewayResolver, asked: Asked) -> ApiGatewayResolver:
    for (method, path), act in ROUTES.items():
        app.route(re.escape(path), method)(_handler(act, asked))
    app.not_found(partial(_no_route, app, asked))
    return app


def _handler(act: Act, asked: Asked) -> Callable[[], Response[str]]:
    def handler(**path: str) -> Response[str]:
        return act(replace(asked, path=path))

    return handler


def _no_route(app: ApiGatewayResolver, asked: Asked, _: Exception) -> Response[str]:
    path = app.current_event.path.rstrip("/")
    shapes = [(method, re.sub("<[a-z_]+>", "[^/]+", re.escape(known))) for method, known in ROUTES]
    allowed = sorted(method for method, shape in shapes if re.fullmatch(shape, path))
    if allowed:
        message = f"this path takes {', '.join(allowed)}"
        fault = InvalidRequest("METHOD_NOT_ALLOWED", message, status=405, allowed=allowed)
        return _json(refusal(fault, asked.caller), {"Allow": ", ".join(allowed)})
    known = sorted({path for _, path in ROUTES if path != DOCS_PATH})
    return _json(
        refusal(NotFound("NOT_FOUND", f"there is no such path; the paths are {', '.join(known)}"), asked.caller)
    )


def _json(answered: Answered, headers: Mapping[str, str | list[str]] | None = None) -> Response[str]:
    return Response(answered.status, JSON, answered.text, headers=dict(headers or {}))


def _posted(asked: Asked, parse: Parser, *, max_bytes: int | None = None) -> Response[str]:
    sent: dict[str, object] = {}
    body = asked.event.get("body")
    size = len(body) if isinstance(body, str) else 0

    def load(settings: Settings) -> Mapping[str, object]:
        limits = settings.limits
        most = min(limits.max_request_bytes, max_bytes or limits.max_request_bytes)
        with turn(size):
            sent.update(parse_body(raw_body(asked.event, most), max_bytes=most, max_nesting=limits.max_nesting))
        return sent

    def judged(payload: Mapping[str, object], service: Service, caller: Caller) -> AnyRequest:
        with turn(size):
            return parse(payload, service, caller)

    answered = answer(asked.provider, load, judged, asked.caller)
    fitting = answered.fitting(asked.max_answer_bytes, asked.caller, in_body=True)
    return _json(fitting, _location(fitting, sent.get("tenant_id"), asked.caller))


def _location(answered: Answered, tenant: object, caller: Caller) -> dict[str, str | list[str]]:
    """Say where the job can be asked for that will complete a request. Who has a claim need not name the tenant."""
    job_id = answered.made.get("job_id")
    if answered.status != ACCEPTED or job_id is None:
        return {}
    named = f"?tenant_id={quote(tenant)}" if not caller.claims and isinstance(tenant, str) else ""
    return {"Location": f"/jobs/{job_id}{named}"}


def _database(asked: Asked) -> Response[str]:
    return _posted(asked, lambda payload, service, caller: parse_request(payload))


def _compact(asked: Asked) -> Response[str]:
    return _posted(asked, _short_form)


def _short_form(payload: Mapping[str, object], service: Service, caller: Caller) -> Compact:
    def tenant_of(short: ShortCompact) -> str:
        namespace, table = split_table(short.table)
        address = service.tenancy.resolve(
            caller.claim_tenant,
            short.tenant_id,
            short.catalog,
            namespace,
            table,
            trusted=caller.is_trusted(service.settings),
        )
        return address.tenant_id

    return parse_short_form(payload, tenant_of)


def _committed(asked: Asked) -> Response[str]:
    """NOTIFY_COMMIT of the caller's own tenant: of its claim, named in the body, or the only one possible."""

    def parse(payload: Mapping[str, object], service: Service, caller: Caller) -> AnyRequest:
        notice = notice_sent(payload)
        named, trusted = notice.get("tenant_id"), caller.is_trusted(service.settings)
        if not isinstance(named, str | None):
            return parse_request(notice)  # which refuses it
        return parse_request(
            {**notice, "tenant_id": service.tenancy.tenant(caller.claim_tenant, named, trusted=trusted)}
        )

    return _posted(asked, parse, max_bytes=MAX_NOTICE_BYTES)


def _reported(asked: Asked) -> Response[str]:
    """REPORT_METRICS where a REST catalog of Iceberg takes it: 204, and no body. The prefix is a catalog of ours; the
    namespace may be named as the catalog has it, with its tenant. The tenant is as for one job.
    """

    def parse(payload: Mapping[str, object], service: Service, caller: Caller) -> AnyRequest:
        named = {name: unquote(value) for name, value in asked.path.items()}
        trusted, catalog = caller.is_trusted(service.settings), named.get("prefix")
        told = query_of(asked.event).get("tenant_id")
        scope = service.tenancy.scope(caller.claim_tenant, told, catalog, None, trusted=trusted)
        namespace = named["namespace"].replace(_LEVEL, SEPARATOR)
        if scope.holds(namespace):
            namespace = scope.asked_as(namespace)
        return parse_request(
            {
                "operation": "REPORT_METRICS",
                "tenant_id": scope.tenants[0],
                "catalog": catalog,
                "namespace": namespace,
                "table": named["table"],
                "report": payload,
            }
        )

    answered = _posted(asked, parse, max_bytes=MAX_NOTICE_BYTES)
    return Response(204, JSON, "") if answered.status_code == 200 else answered


def _health(asked: Asked) -> Response[str]:
    operation = {"operation": "HEALTH_CHECK"}
    return _json(answer(asked.provider, lambda _: operation, lambda payload, *_: parse_request(payload), asked.caller))


def _job(asked: Asked) -> Response[str]:
    """JOB_STATUS; the tenant is the claim's, named in the query, or the only one possible."""
    named = {name: value for name, value in query_of(asked.event).items() if name == "tenant_id"}
    return _looked_up(asked, {"operation": "JOB_STATUS", "job_id": asked.path["job_id"], **named})


def _jobs(asked: Asked) -> Response[str]:
    """LIST_JOBS, whose fields are the parameters of the query; the tenant as for one job."""
    given: dict[str, object] = {**query_of(asked.event), "operation": "LIST_JOBS"}
    limit = str(given.get("limit", ""))
    return _looked_up(asked, {**given, "limit": int(limit)} if re.fullmatch("[0-9]{1,9}", limit) else given)


def _looked_up(asked: Asked, request: Mapping[str, object]) -> Response[str]:
    def parse(payload: Mapping[str, object], service: Service, caller: Caller) -> AnyRequest:
        trusted, named = caller.is_trusted(service.settings), request.get("tenant_id")
        tenant = service.tenancy.tenant(caller.claim_tenant, None if named is None else str(named), trusted=trusted)
        return parse_request({**payload, "tenant_id": tenant})

    answered = answer(asked.provider, lambda _: request, parse, asked.caller)
    return _json(answered.fitting(asked.max_answer_bytes, asked.caller, in_body=True))


def _openapi(asked: Asked) -> Response[str]:
    from regelate.entrypoints.openapi import openapi_text

    return Response(200, JSON, openapi_text())


def _docs(asked: Asked) -> Response[str]:
    from regelate.entrypoints.openapi import swagger_page

    try:
        environment = asked.provider().settings.environment
    except RegelateError as fault:
        return _json(refusal(fault, asked.caller))
    if environment != DEVELOPMENT:
        return _json(refusal(NotFound("NOT_FOUND", "the Swagger page is served in development only"), asked.caller))
    return Response(200, "text/html; charset=utf-8", swagger_page())


DOCS_PATH = "/docs"
ROUTES: Mapping[tuple[str, str], Act] = {
    ("POST", "/database"): _database,
    ("POST", "/api/v1/compact"): _compact,
    ("POST", "/events/commit"): _committed,
    ("POST", "/v1/namespaces/<namespace>/tables/<table>/metrics"): _reported,
    ("POST", "/v1/<prefix>/namespaces/<namespace>/tables/<table>/metrics"): _reported,
    ("GET", "/health"): _health,
    ("GET", "/jobs"): _jobs,
    ("GET", "/jobs/<job_id>"): _job,
    ("GET", "/openapi.json"): _openapi,
    ("GET", DOCS_PATH): _docs,
}
