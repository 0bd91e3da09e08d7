"""Telemetry as CloudWatch metrics: lines in the embedded metric format on standard output, by Powertools.

Every metric is CloudWatch's per `service` and `environment`; a label is one dimension more, and gauges that have one
exist with it only. The table of an occurrence is in each line, for Logs Insights, but is no dimension of counters and
histograms: CloudWatch bills each combination of dimensions as a metric of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

from regelate.core.measures.measures import JobsCounted, Kind, Measurement, Metric, Occurrence, SweepEnded, measurements

NAMESPACE = "regelate"
SERVICE = "regelate"
Dimensions = tuple[tuple[str, str], ...]


class EmbeddedMetrics:
    """POWERTOOLS_METRICS_NAMESPACE changes the namespace, POWERTOOLS_METRICS_DISABLED silences it."""

    def __init__(self, environment: str) -> None:
        self._dimensions: Dimensions = (("service", SERVICE), ("environment", environment))
        self._namespace = os.environ.get("POWERTOOLS_METRICS_NAMESPACE") or NAMESPACE
        self._levels: dict[Metric, float] = {}
        self._lock = threading.Lock()

    def tell(self, occurrence: Occurrence) -> None:
        table = None if isinstance(occurrence, SweepEnded | JobsCounted) else occurrence.table
        by_dimensions: dict[Dimensions, list[Measurement]] = {}
        for measurement in measurements(occurrence):
            for dimensions in self._dimensions_of(measurement):
                by_dimensions.setdefault(dimensions, []).append(measurement)
        with self._lock:
            for dimensions, found in by_dimensions.items():
                self._put(dimensions, found, table)

    def _dimensions_of(self, measurement: Measurement) -> Iterator[Dimensions]:
        metric = measurement.metric
        if metric.label is None or metric.kind is Kind.COUNTER:
            yield self._dimensions
        if metric.label is not None and measurement.label_value is not None:
            yield (*self._dimensions, (metric.label, measurement.label_value))

    def _put(self, dimensions: Dimensions, found: list[Measurement], table: str | None) -> None:
        provider = AmazonCloudWatchEMFProvider(
            metric_set={}, dimension_set=dict(dimensions), metadata_set={}, namespace=self._namespace, service=SERVICE
        )
        if table is not None:
            provider.add_metadata(key="table", value=table)
        for measurement in found:
            metric = measurement.metric
            provider.add_metric(name=metric.name, unit=metric.unit.value, value=self._value(measurement))
        if provider.metric_set:  # Powertools writes a line by itself when one has a hundred values
            provider.flush_metrics()

    def _value(self, measurement: Measurement) -> float:
        if measurement.metric.kind is not Kind.UP_DOWN:
            return measurement.value
        self._levels[measurement.metric] = self._levels.get(measurement.metric, 0) + measurement.value
        return self._levels[measurement.metric]
