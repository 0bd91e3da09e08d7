"""What Spark is sent: a job's request and its catalog, in Spark's words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from regelate.core.access import spark_policy
from regelate.core.catalogs import CatalogKind
from regelate.core.engines import Engine
from regelate.core.jobs.job import JobRecord
from regelate.core.jobs.spark_job import SparkJobSpec, SparkRequest, in_spark_sql
from regelate.errors import Unsupported

if TYPE_CHECKING:
    from regelate.pipeline.session import Lake
    from regelate.settings import CatalogSettings, Settings

_FAMILIES = ("client.", "glue.", "header.", "rest.", "s3.")
_PLAIN = ("credential", "oauth2-server-uri", "prefix", "scope", "token")
"""Properties of a catalog that PyIceberg and Iceberg's Java call by the same name."""


def spec_of(settings: Settings, record: JobRecord) -> SparkJobSpec:
    """Return what Spark is sent for a job. Errors: Unsupported SPARK_DISABLED."""
    found, catalog, asked = settings.spark, settings.catalogs[record.catalog], record.request
    where = None if asked.where is None else in_spark_sql(asked.where)
    request = SparkRequest(
        compact=replace(asked, where=where),
        defaults=replace(settings.compaction_defaults, max_files=None),
        config_verify=settings.verify,
        retention=settings.retention_defaults,
    )
    name, policy = f"{record.job_id}-{record.created_ms}", None
    if found.run == "emr-serverless" and catalog.multi_tenant:
        warehouse, partition = catalog.properties["warehouse"], settings.tenancy.partition
        policy = spark_policy(record.tenant_id, warehouse, found.location or "", name, partition=partition)
    return SparkJobSpec(
        name=name,
        job_id=record.job_id,
        created_ms=record.created_ms,
        table=f"{record.catalog}.{record.ident}",
        request=request.as_json(),
        conf=_conf(settings, record.catalog, catalog),
        timeout_seconds=found.timeout_minutes * 60,
        policy=policy,
    )


def _conf(settings: Settings, name: str, catalog: CatalogSettings) -> dict[str, str]:
    """Return Spark's configuration for a catalog of ours. Errors: Unsupported SPARK_DISABLED."""
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
            told = f"Spark cannot reach the catalog {name!r}: of SQL catalogs it can use SQLite only"
            raise Unsupported("SPARK_DISABLED", told, engine=Engine.SPARK.value)
        uri = str(Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute())
        if warehouse is not None and warehouse.startswith("s3"):
            same["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    return Lake(name=name, kind=catalog.kind, uri=uri, warehouse=warehouse, properties=same)
