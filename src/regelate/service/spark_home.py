"""Where Spark's jobs run: nowhere, on this machine, or on EMR Serverless."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from regelate.core.engines import Engine
from regelate.core.running.routing import no_spark
from regelate.service.job_stores import JobStores
from regelate.service.once import once

if TYPE_CHECKING:
    from regelate.ports.jobs import SparkJobs
    from regelate.settings import Settings


class SparkHome:
    """The deployment's Spark; its jobs are kept in `stores`, and without those there is none."""

    def __init__(self, settings: Settings, stores: JobStores, jobs: SparkJobs | None = None) -> None:
        """`jobs` stands in for what config.json names."""
        self._settings = settings
        self._stores = stores
        self._jobs = once(lambda: jobs or self._configured())

    def available(self) -> bool:
        """Say whether this deployment can leave a table to Spark."""
        settings = self._settings
        if Engine.SPARK not in settings.engines or settings.spark.run == "none" or self._stores.tools is None:
            return False
        return settings.spark.run != "local" or importlib.util.find_spec("pyspark") is not None

    @property
    def jobs(self) -> SparkJobs:
        """What runs them. Errors: Unsupported SPARK_DISABLED."""
        return self._jobs()

    def _configured(self) -> SparkJobs:
        from regelate.pipeline.package import pack

        found = self._settings.spark
        if found.run == "emr-serverless":
            from regelate.adapters.spark.emr_serverless import EmrServerless

            return EmrServerless(
                found.application_id or "",
                found.role_arn or "",
                found.location or "",
                pack=pack,
                timeouts=self._settings.network.timeouts,
            )
        from regelate.adapters.spark.local import LocalSpark

        home = importlib.util.find_spec("pyspark")
        if home is None or home.origin is None:
            raise no_spark()
        return LocalSpark(
            Path(found.folder or "").absolute(),  # the jobs have working directories of their own
            spark_home=Path(home.origin).parent,
            environ=environment(Path(home.origin).parent),
            pack=pack,
            kept_seconds=self._settings.jobs.retention_hours * 3600,
        )


def environment(spark_home: Path) -> dict[str, str]:
    """Return what spark-submit gets: this Python for the driver, and a Java that Spark runs on."""
    from regelate.pipeline.session import java_home

    java, options = java_home(os.environ)
    told = {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if java is not None:
        told["JAVA_HOME"] = java
    if options:
        told["SPARK_SUBMIT_OPTS"] = options
    return {**os.environ, **told}
