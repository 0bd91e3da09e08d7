"""What is left to Spark, wired: where its jobs run, how it finds the catalog, and what its answer becomes."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from regelate.core.catalogs import CatalogKind
from regelate.core.engines import Engine
from regelate.core.job import JobRecord
from regelate.core.measures import Compacted, JobGivenUp
from regelate.core.policy import RetentionPolicy
from regelate.core.routing import no_spark
from regelate.core.session_policy import spark_policy
from regelate.core.spark_job import SparkJobSpec, SparkRequest, in_spark_sql
from regelate.core.stats import CompactionStats, iso_time
from regelate.errors import Unavailable, Unsupported
from regelate.operations.delegating import Answer, Patience, spark_part
from regelate.operations.job_parts import Elsewhere, PartDone
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.adapters.iceberg.session import TableSession
    from regelate.operations.jobs import JobTools
    from regelate.pipeline.session import Lake
    from regelate.ports.clock import Clock
    from regelate.ports.jobs import SparkJobs
    from regelate.ports.telemetry import Telemetry
    from regelate.settings import CatalogSettings, Settings

log = logging.getLogger(__name__)
_FAMILIES = ("client.", "glue.", "header.", "rest.", "s3.")
_PLAIN = ("credential", "oauth2-server-uri", "prefix", "scope", "token")
"""Properties of a catalog that PyIceberg and Iceberg's Java call by the same name."""


class Parts(Protocol):
    """What delegation takes from the Application."""

    settings: Settings

    @property
    def clock(self) -> Clock: ...
    @property
    def telemetry(self) -> Telemetry: ...
    @property
    def jobs(self) -> JobTools | None: ...
    @property
    def spark(self) -> SparkJobs: ...
    @property
    def has_spark(self) -> bool: ...
    def _jobs_or_refuse(self) -> JobTools: ...
    def run_job(self, job_id: str, part: int, *, at_once: bool = False) -> float | None: ...
    def _spark_spec(self, record: JobRecord) -> SparkJobSpec: ...
    def _settle(self, record: JobRecord, answer: Answer) -> None: ...
    def _session(self, address: Address) -> AbstractContextManager[TableSession]: ...
    def _retention(self, session: TableSession, hours: object, *, hours_field: str) -> RetentionPolicy: ...


class Delegating:
    """Mixed into `wiring.Application`."""

    @property
    def has_spark(self: Parts) -> bool:
        """Say whether this deployment can leave a table to Spark."""
        if "spark" not in self.settings.engines or self.settings.spark.run == "none" or self.jobs is None:
            return False
        return self.settings.spark.run != "local" or importlib.util.find_spec("pyspark") is not None

    @property
    def engines(self: Parts) -> tuple[str, ...]:
        """Return the engines that a COMPACT may be given to here."""
        return tuple(e.value for e in Engine if not e.is_remote or self.has_spark)

    @cached_property
    def spark(self: Parts) -> SparkJobs:
        """Where Spark's jobs run."""
        from regelate.pipeline.package import pack

        found = self.settings.spark
        if found.run == "emr-serverless":
            from regelate.adapters.spark.emr_serverless import EmrServerless

            return EmrServerless(
                found.application_id or "",
                found.role_arn or "",
                found.location or "",
                pack=pack,
                timeouts=self.settings.network.timeouts,
            )
        from regelate.adapters.spark.local import LocalSpark

        home = importlib.util.find_spec("pyspark")
        if home is None or home.origin is None:
            raise no_spark()
        return LocalSpark(
            Path(found.folder or "").absolute(),  # the jobs have working directories of their own
            spark_home=Path(home.origin).parent,
            environ=_environment(Path(home.origin).parent),
            pack=pack,
            kept_seconds=self.settings.jobs.retention_hours * 3600,
        )

    def spark_part(self: Parts, record: JobRecord, why: str) -> PartDone | Elsewhere:
        """Do what is next for a job that Spark runs."""
        if not self.has_spark:  # the configuration has changed since the job was made
            raise no_spark()
        found = self.settings.spark
        done = spark_part(
            self.spark,
            record,
            lambda: self._spark_spec(record),
            Patience(
                start_seconds=found.start_minutes * 60,
                run_seconds=found.timeout_minutes * 60,
                look_again_seconds=found.seconds_between_looks,
            ),
            now_ms=self.clock.now_ms() if self.jobs is None else self.jobs.store.now_ms(),
            why=why,
            settle=lambda answer: self._settle(record, answer),
        )
        if isinstance(done, PartDone) and done.failed is not None:
            self.telemetry.tell(JobGivenUp(table=record.ident, code=done.failed.code))
        return done

    def spark_run_changed(self: Parts, run_id: str) -> str | None:
        """Look after the job of a run that has another state; return its id, None for a run that is none of ours.

        Errors: Unavailable JOB_BUSY where somebody else is looking just now, and may have seen the state before; where
        the run is not noted yet; and where Spark could not be asked.
        """
        if not self.has_spark:
            return None
        tools = self._jobs_or_refuse()
        job_id = self.spark.job_of(run_id)
        record = None if job_id is None else tools.store.get(job_id)
        if record is None or record.state.is_final or record.remote not in (None, run_id):
            return None
        if record.remote is None or self.run_job(record.job_id, record.part, at_once=True) is not None:
            raise Unavailable("JOB_BUSY", f"{job_id} cannot be looked after just now; ask again")
        return job_id

    def _spark_spec(self: Parts, record: JobRecord) -> SparkJobSpec:
        found, catalog, asked = self.settings.spark, self.settings.catalogs[record.catalog], record.request
        where = None if asked.where is None else in_spark_sql(asked.where)
        request = SparkRequest(
            compact=replace(asked, where=where),
            defaults=replace(self.settings.compaction_defaults, max_files=None),
            config_verify=self.settings.verify,
            retention=self.settings.retention_defaults,
        )
        name, policy = f"{record.job_id}-{record.created_ms}", None
        if found.run == "emr-serverless" and catalog.multi_tenant:
            policy = spark_policy(
                record.tenant_id, catalog.properties["warehouse"], found.location or "", name,
                partition=self.settings.tenancy.partition,
            )  # fmt: skip
        return SparkJobSpec(
            name=name,
            job_id=record.job_id,
            created_ms=record.created_ms,
            table=f"{record.catalog}.{record.ident}",
            request=request.as_json(),
            conf=_conf(self.settings, record.catalog, catalog),
            timeout_seconds=found.timeout_minutes * 60,
            policy=policy,
        )

    def _settle(self: Parts, record: JobRecord, answer: Answer) -> None:
        """Expire snapshots as after a COMPACT of our own; the rewrite has landed, so nothing here may fail it."""
        if not answer["compacted"]:
            return
        stats = CompactionStats.of_dict(answer["stats"])
        self.telemetry.tell(Compacted.of(record.ident, stats, (), at_ms=self.clock.now_ms()))
        if not record.request.expire_snapshots:
            return
        from regelate.operations.expire import expire_after_commit
        from regelate.operations.rewriting import as_error

        address = Address(tenant_id=record.tenant_id, catalog=record.catalog, ident=record.ident, table=record.table)
        try:
            with self._session(address) as session:
                hours = record.request.snapshot_retention_hours
                retention = self._retention(session, hours, hours_field="snapshot_retention_hours")
                uuid = session.committer.head().uuid
                done = expire_after_commit(session.committer, session.reclaimer, self.clock, retention, table_uuid=uuid)
        except Unsupported:  # format version 3: the job has expired them itself
            return
        except Exception as error:  # noqa: BLE001  as after a COMPACT of our own
            answer["warnings"].append(f"snapshots were not expired: {as_error(error)}")
            return
        answer["warnings"] += done.warnings
        answer["stats"] |= {
            "snapshots_expired": len(done.snapshot_ids),
            "bytes_freed": done.bytes_freed,
            "bytes_quarantined": done.bytes_quarantined,
            "undo_id": done.undo_id,
            "deletable_at": iso_time(done.deletable_ms),
        }


def _environment(spark_home: Path) -> dict[str, str]:
    """Return what spark-submit gets: this Python for the driver, and a Java that Spark runs on."""
    from regelate.pipeline.session import java_home

    java, options = java_home(os.environ)
    told = {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if java is not None:
        told["JAVA_HOME"] = java
    if options:
        told["SPARK_SUBMIT_OPTS"] = options
    return {**os.environ, **told}


def _conf(settings: Settings, name: str, catalog: CatalogSettings) -> dict[str, str]:
    """Return Spark's configuration for a catalog of ours."""
    from regelate.pipeline.session import Launch, Target, spark_conf

    found = settings.spark
    conf = dict(found.conf)
    if found.run == "emr-serverless":
        conf = {
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": found.python,
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": found.python,
            "spark.executorEnv.PYSPARK_PYTHON": found.python,
            **conf,
        }
    target = Target.EMR if found.run == "emr-serverless" else Target.LOCAL
    return spark_conf(lake_of(name, catalog), Launch(target=target, conf=conf))


def lake_of(name: str, catalog: CatalogSettings) -> Lake:
    """Return a catalog of config.json as the pipeline names it. Errors: Unsupported SPARK_DISABLED."""
    from regelate.pipeline.session import Lake

    given = dict(catalog.properties)
    uri, warehouse = given.get("uri"), given.get("warehouse")
    same = {key: value for key, value in given.items() if key in _PLAIN or key.startswith(_FAMILIES)}
    region = given.get("client.region") or given.get("s3.region") or given.get("glue.region")
    if region is not None:
        same["client.region"] = region
    if "s3.endpoint" in same:
        same["s3.path-style-access"] = "true"
    if warehouse is not None and ":/" not in warehouse:
        warehouse = Path(warehouse).absolute().as_uri()
    if catalog.kind is CatalogKind.SQL:
        if uri is None or not uri.startswith("sqlite:///"):
            told = f"Spark cannot reach the catalog {name!r}: of catalogs in a database it is given SQLite only"
            raise Unsupported("SPARK_DISABLED", told, engine="spark")
        uri = str(Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute())
        if warehouse is not None and warehouse.startswith("s3"):
            same["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    return Lake(name=name, kind=catalog.kind, uri=uri, warehouse=warehouse, properties=same)
