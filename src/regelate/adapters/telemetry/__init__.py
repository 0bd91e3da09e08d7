"""One Telemetry for all who listen: log lines, CloudWatch metrics, Prometheus metrics, OpenTelemetry spans."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from regelate import __version__
from regelate.core.measures.measures import Compacted, Occurrence

if TYPE_CHECKING:
    from regelate.adapters.telemetry.prometheus import Prometheus
    from regelate.adapters.telemetry.spans import Spans

__all__ = ["ProcessTelemetry"]

log = logging.getLogger("regelate.telemetry")
compactions = logging.getLogger("regelate.compaction")
ON_LAMBDA = "AWS_LAMBDA_FUNCTION_NAME"


class Sink(Protocol):
    def tell(self, occurrence: Occurrence) -> None: ...


class Telemetries:
    """Implements Telemetry. A sink that fails is logged: a compaction that landed must not look failed for it."""

    def __init__(self, sinks: Sequence[Sink], spans: Spans | None = None) -> None:
        self._sinks = tuple(sinks)
        self._spans = spans

    def add(self, sink: Sink) -> None:
        """Let one more sink hear what happens from now on."""
        self._sinks = (*self._sinks, sink)

    def tell(self, occurrence: Occurrence) -> None:
        for sink in self._sinks:
            try:
                sink.tell(occurrence)
            except Exception as fault:  # noqa: BLE001  whatever is wrong with a metric, the operation is not to blame
                log.warning("telemetry failed: %s: %s", type(fault).__name__, fault)

    def span(self, name: str, **attributes: str | int | float) -> AbstractContextManager[None]:
        return nullcontext() if self._spans is None else self._spans.span(name, attributes)


class ProcessTelemetry:
    """Implements Telemetry for one process, by its environment: CloudWatch's format on Lambda; spans where the extra
    `otel` is installed; Prometheus metrics once somebody has asked for them.
    """

    def __init__(self, environ: Mapping[str, str], environment: str) -> None:
        sinks: list[Sink] = [Lines()]
        if environ.get(ON_LAMBDA):
            from regelate.adapters.telemetry.emf import EmbeddedMetrics

            sinks.append(EmbeddedMetrics(environment))
        self._all = Telemetries(sinks, _spans(environ))

    def tell(self, occurrence: Occurrence) -> None:
        self._all.tell(occurrence)

    def span(self, name: str, **attributes: str | int | float) -> AbstractContextManager[None]:
        return self._all.span(name, **attributes)

    @cached_property
    def prometheus(self) -> Prometheus:
        """Metrics of this process since this was first asked for: a command that runs once keeps none."""
        from regelate.adapters.telemetry.prometheus import Prometheus

        kept = Prometheus()
        self._all.add(kept)
        return kept


def _spans(environ: Mapping[str, str]) -> Spans | None:
    try:
        from regelate.adapters.telemetry.spans import spans_for

        return spans_for(environ, service="regelate", version=__version__)
    except ImportError:  # the extra `otel` is not installed
        return None


class Lines:
    """One structured log line per COMPACT that landed."""

    def tell(self, occurrence: Occurrence) -> None:
        if isinstance(occurrence, Compacted):
            compactions.info("compacted", extra={"table": occurrence.table, "stats": occurrence.stats.as_dict()})
