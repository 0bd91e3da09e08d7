"""Spark as a reader of `bench.events`: one JVM for all lakes, on this machine or in a store, each lake a session."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import ROOT
from benchmarks.s3 import BUCKET
from regelate.pipeline import sqlite_catalog
from regelate.pipeline.session import Lake, Launch, embedded_lake, open_session, spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAUNCH = Launch(
    master="local[2]",
    driver_memory="2g",
    conf={"spark.jars.ivy": str(ROOT / ".servers" / "ivy"), "spark.sql.shuffle.partitions": "2"},
)
CATALOG = "spark.sql.catalog.local"
IN_STORE = {
    "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "s3.path-style-access": "true",
    "s3.access-key-id": "bench",
    "s3.secret-access-key": "bench",
    "client.region": "us-east-1",
}


def is_installed() -> bool:
    return importlib.util.find_spec("pyspark") is not None


class SparkReader:
    """A catalog is loaded once for each session and keeps its settings: so there is one for each lake.

    Its cache of tables is off, as in the pipeline; that of delete files is on, as Spark has it.
    """

    def __init__(self, home: Path) -> None:
        first = lake_of(home, f"s3://{BUCKET}")  # so that the jars for S3 are there, whichever lake comes first
        self._spark: SparkSession = open_session(first, LAUNCH, app_name="reader")

    def session(self, home: Path, store: str) -> SparkSession:
        """Return a session whose catalog `local` is that of a lake; `store` is empty where it lies on this machine."""
        sqlite_catalog.prepare(home / "catalog.db")
        session = self._spark.newSession()
        for key in [*IN_STORE, "s3.endpoint"]:
            session.conf.unset(f"{CATALOG}.{key}")
        for key, value in spark_conf(lake_of(home, store), LAUNCH).items():
            if key.startswith(f"{CATALOG}."):
                session.conf.set(key, value)
        return session

    def stop(self) -> None:
        self._spark.stop()


def lake_of(home: Path, store: str) -> Lake:
    if not store:
        return embedded_lake(home)
    properties = {**IN_STORE, "s3.endpoint": store}
    return Lake(uri=str(home / "catalog.db"), warehouse=f"s3://{BUCKET}/warehouse", properties=properties)
