"""Telemetry as Prometheus metrics of this process, in its text format."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from regelate.core.measures.measures import METRICS, Kind, Measurement, Metric, Occurrence, Unit, measurements

Made = Counter | Gauge | Histogram
_SUFFIXES = {Unit.BYTES: "bytes", Unit.SECONDS: "seconds"}


class Prometheus:
    """A registry of its own: what others in this process register is not ours to show."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._made: Mapping[Metric, Made] = {metric: _made(metric, self._registry) for metric in METRICS}

    def tell(self, occurrence: Occurrence) -> None:
        for measurement in measurements(occurrence):
            self._add(measurement)

    def _add(self, measurement: Measurement) -> None:
        series = self._made[measurement.metric]
        if measurement.label_value is not None:
            series = series.labels(measurement.label_value)
        if isinstance(series, Histogram):
            series.observe(measurement.value)
        elif isinstance(series, Gauge) and measurement.metric.kind is Kind.GAUGE:
            series.set(measurement.value)
        else:
            series.inc(measurement.value)

    def text(self) -> str:
        """Return all metrics in the text format 0.0.4."""
        return generate_latest(self._registry).decode()


def prometheus_name(metric: Metric) -> str:
    """Return a metric's name as Prometheus wants it: ours in front, its unit behind; counters also get `_total`."""
    suffix = _SUFFIXES.get(metric.unit)
    unit = f"_{suffix}" if suffix is not None and suffix not in metric.name.split("_") else ""
    return f"regelate_{metric.name}{unit}"


def _made(metric: Metric, registry: CollectorRegistry) -> Made:
    name, labels = prometheus_name(metric), () if metric.label is None else (metric.label,)
    if metric.kind is Kind.COUNTER:
        return Counter(name, metric.help, labels, registry=registry)
    if metric.kind is Kind.HISTOGRAM:
        return Histogram(name, metric.help, labels, buckets=metric.buckets, registry=registry)
    return Gauge(name, metric.help, labels, registry=registry)
