"""The one Telemetry and all who listen: lines for CloudWatch, text for Prometheus, spans for OpenTelemetry."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families

from regelate.adapters.telemetry import ProcessTelemetry, Telemetries
from regelate.adapters.telemetry.emf import EmbeddedMetrics
from regelate.adapters.telemetry.prometheus import Prometheus, prometheus_name
from regelate.adapters.telemetry.spans import Spans, spans_for
from regelate.core.measures.measures import (
    METRICS,
    Assessed,
    CompactionEnded,
    CompactionStarted,
    JobsCounted,
    Kind,
    Occurrence,
    Queried,
    Wrote,
)
from regelate.core.requests import CompactRequest
from regelate.errors import Conflict
from regelate.service.build import build
from regelate.service.facade import Service
from regelate.settings import load_settings
from regelate.tenancy import Address
from tests.unit.core.test_measures import COMPACTED

Line = dict[str, Any]


def lines_of(capsys: pytest.CaptureFixture[str], *occurrences: Occurrence) -> list[Line]:
    """What CloudWatch's agent reads of these occurrences."""
    sink = EmbeddedMetrics("production")
    for occurrence in occurrences:
        sink.tell(occurrence)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def series_of(lines: list[Line]) -> dict[tuple[str, tuple[str, ...]], list[float]]:
    """(metric, values of its dimensions) -> values, as the specification of the format reads a line."""
    found: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    for line in lines:
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert directive["Namespace"] == "regelate"
        assert isinstance(line["_aws"]["Timestamp"], int)
        for dimensions in directive["Dimensions"]:
            for metric in directive["Metrics"]:
                key = (metric["Name"], tuple(line[name] for name in dimensions))
                found.setdefault(key, []).extend(line[metric["Name"]])
    return found


ALL = ("regelate", "production")


def test_a_compaction_becomes_cloudwatch_metrics_in_their_units(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, COMPACTED)
    found = series_of(lines)
    assert found["files_compacted", ALL] == [14]
    assert found["bytes_read", ALL] == [4000]
    assert found["compaction_duration", ALL] == [2.5]
    assert found["file_size_distribution", ALL] == [1500, 500]
    assert found["files_before_after_ratio", ALL] == [7.5]
    assert found["last_compaction_timestamp", (*ALL, "default.users")] == [1_737_090_000.5]
    assert found["small_files", (*ALL, "default.users")] == [1]
    units = {m["Name"]: m["Unit"] for line in lines for m in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]}
    assert (units["bytes_read"], units["compaction_duration"], units["files_compacted"]) == (
        "Bytes",
        "Seconds",
        "Count",
    )
    assert {line["table"] for line in lines} == {"default.users"}


def test_failures_can_be_alarmed_on_in_sum_and_told_apart_by_code(capsys: pytest.CaptureFixture[str]) -> None:
    ended = [CompactionEnded(table="t", failed_with=code) for code in ("COMMIT_CONFLICT", "OUT_OF_MEMORY")]
    found = series_of(lines_of(capsys, *ended))
    assert found["compactions_failed", ALL] == [1, 1]
    assert found["compactions_failed", (*ALL, "OUT_OF_MEMORY")] == [1]


def test_a_level_is_sent_as_the_level_that_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    started, ended = CompactionStarted(table="t"), CompactionEnded(table="t")
    found = series_of(lines_of(capsys, started, started, ended, ended))
    assert found["active_compactions", ALL] == [1, 2, 1, 0]


def test_the_jobs_that_wait_are_a_level_of_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, JobsCounted(pending=3), JobsCounted(pending=0))
    assert series_of(lines)["pending_compactions", ALL] == [3, 0]
    assert [line.get("table") for line in lines] == [None, None]


def test_more_than_a_hundred_outputs_are_all_sent(capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    for count in (99, 100, 250):
        found = series_of(lines_of(capsys, replace(COMPACTED, output_bytes=tuple(range(count)))))
        assert found["file_size_distribution", ALL] == list(range(count))
        assert found["files_compacted", ALL] == [14]


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_counters_gauges_and_histograms() -> None:
    sink = Prometheus()
    for occurrence in (
        CompactionStarted(table="default.users"),
        COMPACTED,
        CompactionEnded(table="default.users"),
        CompactionEnded(table="default.users", failed_with="COMMIT_CONFLICT"),
        Wrote(table="default.users", compaction_recommended=True, small_files=5),
        Queried(table="default.users", seconds=0.02),
        Assessed(table='odd"\n', small_files=3),
    ):
        sink.tell(occurrence)
    found = parsed(sink.text())
    assert found["regelate_files_compacted_total", ()] == 14
    assert found["regelate_bytes_written_total", ()] == 2000
    assert found["regelate_compactions_failed_total", (("code", "COMMIT_CONFLICT"),)] == 1
    assert found["regelate_compaction_duration_seconds_bucket", (("le", "3.0"),)] == 1
    assert found["regelate_compaction_duration_seconds_bucket", (("le", "1.0"),)] == 0
    assert found["regelate_file_size_distribution_bytes_count", ()] == 2
    assert found["regelate_small_files", (("table", "default.users"),)] == 5
    assert found["regelate_small_files", (("table", 'odd"\n'),)] == 3
    assert found["regelate_compaction_recommended_total", ()] == 1
    assert found["regelate_query_time_seconds_sum", ()] == 0.02


def test_every_metric_is_shown_under_its_kind_with_its_help() -> None:
    families = {family.name: family for family in text_string_to_metric_families(Prometheus().text())}
    kinds = {Kind.UP_DOWN: "gauge"}
    for metric in METRICS:
        family = families[prometheus_name(metric)]
        assert (family.type, family.documentation) == (kinds.get(metric.kind, metric.kind.value), metric.help)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider)


def address() -> Address:
    return Address(tenant_id="t", catalog="local", ident="default.users", table="users")


def write_five(service: Service) -> None:
    from regelate.core.table.schema import Column, TableDefinition

    column = Column(name="a", type="long", required=False)
    service.tables.create_table(address(), TableDefinition(columns=(column,)), if_not_exists=False)
    for number in range(5):
        service.writes.write(address(), [{"a": number}], mode="append", key=(), idempotency_key=None)


def test_a_real_compaction_is_traced_as_plan_execute_and_commit(
    tmp_path: Path, spans: Spans, exporter: InMemorySpanExporter
) -> None:
    service = build(load_settings({"REGELATE_HOME": str(tmp_path)}), telemetry=Telemetries((), spans))
    write_five(service)
    service.compactions.compact(address(), CompactRequest())
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert list(found) == ["plan", "execute", "commit", "expire", "compact"]
    root = found["compact"].context
    assert root is not None
    for name in ("plan", "execute", "commit", "expire"):
        parent = found[name].parent
        assert parent is not None
        assert (parent.span_id, found[name].status.status_code) == (root.span_id, StatusCode.UNSET)
    assert found["compact"].attributes == {"regelate.table": "default.users"}
    assert found["execute"].attributes == {"regelate.groups": 1, "regelate.files": 5}


def test_a_fault_marks_its_spans_with_the_code_and_without_its_message(
    spans: Spans, exporter: InMemorySpanExporter
) -> None:
    with pytest.raises(Conflict), spans.span("compact", {}), spans.span("commit", {}):
        raise Conflict("COMMIT_CONFLICT", "secret=hunter2")
    for span in exporter.get_finished_spans():
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "COMMIT_CONFLICT")
        assert (span.attributes, span.events) == ({"error.type": "COMMIT_CONFLICT"}, ())


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An OTLP collector on a free port: what was posted to it."""
    posted: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is http.server's
            """Keep the test's output to the test."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", posted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_spans_have_reached_the_collector_when_the_outermost_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (url, posted):
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        spans = spans_for(environ, service="regelate", version="1.2.3")
        with spans.span("compact", {"table": "t"}):
            with spans.span("plan", {}):
                pass
            assert posted == []
        ((path, body),) = posted
    assert path == "/v1/traces"
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    named = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert (named["service.name"], named["service.version"]) == ("regelate", "1.2.3")
    assert sorted(span.name for span in resource.scope_spans[0].spans) == ["compact", "plan"]


def test_without_an_endpoint_spans_are_left_to_the_program_that_we_run_in() -> None:
    with spans_for({}, service="regelate", version="1").span("compact", {"table": "t"}):
        pass


def test_a_sink_that_fails_is_logged_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def tell(self, occurrence: Occurrence) -> None:
            raise OSError("disk full")

    kept = Prometheus()
    logging.getLogger("regelate").propagate = True
    try:
        Telemetries((Broken(), kept)).tell(Queried(table="t", seconds=1))
    finally:
        logging.getLogger("regelate").propagate = False
    assert "disk full" in caplog.text
    assert parsed(kept.text())["regelate_query_time_seconds_count", ()] == 1


def test_lambda_gets_cloudwatch_lines_and_other_processes_none(capsys: pytest.CaptureFixture[str]) -> None:
    ProcessTelemetry({}, "development").tell(Queried(table="t", seconds=1))
    assert capsys.readouterr().out == ""
    ProcessTelemetry({"AWS_LAMBDA_FUNCTION_NAME": "regelate"}, "production").tell(Queried(table="t", seconds=1))
    assert series_of([json.loads(capsys.readouterr().out)]) == {("query_time", ALL): [1.0]}


def test_metrics_are_kept_from_the_moment_that_somebody_asks_for_them() -> None:
    telemetry = ProcessTelemetry({}, "development")
    telemetry.tell(Queried(table="t", seconds=1))
    first = parsed(telemetry.prometheus.text())
    telemetry.tell(Queried(table="t", seconds=1))
    again = parsed(telemetry.prometheus.text())
    name = "regelate_query_time_seconds_count"
    assert (first[name, ()], again[name, ()]) == (0, 1)
