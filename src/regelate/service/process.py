"""HEALTH_CHECK and metrics: this process itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from regelate import __version__
from regelate.core.answers import HealthCheckAnswer
from regelate.core.engines import Engine
from regelate.errors import RegelateError
from regelate.service.access import CatalogAccess
from regelate.service.once import lately

if TYPE_CHECKING:
    from regelate.adapters.telemetry import ProcessTelemetry


REACHABLE_SECONDS = 1.0
"""For so long one look at the catalog answers everybody: a crowd that asks how the process is is no crowd there."""


class Process:
    """Says how this process is; `has_spark` whether it can leave a table to Spark. `count_jobs` tells how many wait."""

    def __init__(
        self,
        access: CatalogAccess,
        telemetry: ProcessTelemetry,
        environment: str,
        has_spark: Callable[[], bool],
        count_jobs: Callable[[], None],
    ) -> None:
        self._access = access
        self._reachable = lately(self._asked, REACHABLE_SECONDS)
        self._telemetry = telemetry
        self._environment = environment
        self._has_spark = has_spark
        self._count_jobs = count_jobs

    def health_check(self) -> HealthCheckAnswer:
        return HealthCheckAnswer(
            version=__version__,
            environment=self._environment,
            catalog_reachable=self._reachable(),
            engines=tuple(engine.value for engine in Engine if not engine.is_remote or self._has_spark()),
        )

    def _asked(self) -> bool:
        from regelate.adapters.iceberg.admin import IcebergAdmin

        try:
            return IcebergAdmin(self._access.survey(), defaults={}).reachable()
        except RegelateError:  # some catalogs are already asked when they are opened
            return False

    def metrics_text(self) -> str:
        """Return the metrics of this process since this was first called, in Prometheus' text format."""
        kept = self._telemetry.prometheus
        self._count_jobs()  # another process may have submitted some, or taken them
        return kept.text()
