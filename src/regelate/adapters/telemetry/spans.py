"""Telemetry as OpenTelemetry spans; needs the extra `otel`.

Where the program that we run in has set up a tracer provider, that one is used. Otherwise spans go to the collector
that OTEL_EXPORTER_OTLP_ENDPOINT (or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

from regelate.errors import RegelateError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_MILLISECONDS = 2_000
"""How long the end of an outermost span waits for the collector: Lambda freezes the process right after an answer."""


class Spans:
    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._provider = provider or trace.get_tracer_provider()
        self._tracer = self._provider.get_tracer("regelate")

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, str | int | float]) -> Iterator[None]:
        """Open a span under the current one. A fault marks it with its code; no message, which may hold a value."""
        outermost = not trace.get_current_span().get_span_context().is_valid
        given = {f"regelate.{key}": value for key, value in attributes.items()}
        try:
            with self._tracer.start_as_current_span(
                name, attributes=given, record_exception=False, set_status_on_exception=False
            ) as span:
                try:
                    yield
                except BaseException as fault:
                    _mark(span, fault)
                    raise
        finally:
            if outermost:
                self._flush()

    def _flush(self) -> None:
        flush = getattr(self._provider, "force_flush", None)  # of the SDK's provider, not of the API's
        if flush is not None:
            flush(FLUSH_MILLISECONDS)


def _mark(span: Span, fault: BaseException) -> None:
    code = fault.code if isinstance(fault, RegelateError) else type(fault).__name__
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR, code))


def spans_for(environ: Mapping[str, str], *, service: str, version: str) -> Spans:
    """Return the spans of this process. Without a provider and without an endpoint they cost next to nothing."""
    named = any(environ.get(name) for name in ENDPOINTS)
    if not named or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return Spans()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service, "service.version": version}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Spans(provider)
