"""Who compacts: COMPACT of our service, or Spark's own procedure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from regelate.core.policy.options import AUTOMATIC
from regelate.core.requests import CompactRequest
from regelate.pipeline.names import TableName
from regelate.pipeline.sql import Argument, call
from regelate.service.build import build
from regelate.settings import load_settings
from regelate.tenancy import Address
from studies.small_files.arms import MAX_FILE_BYTES, MIN_NUM_FILES, SMALL_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from regelate.service.facade import Service


class EngineName(StrEnum):
    REGELATE = "regelate"
    SPARK = "spark"


class Compactor(Protocol):
    def automatic(self, table: TableName) -> None:
        """Ask the rule of automatic runs, and compact where one is due."""

    def scheduled(self, table: TableName) -> None:
        """Compact by hand."""


class Regelate:
    """Our service, as a process that runs beside Spark has it: open, with its caches. History is the study's."""

    def __init__(self, home: Path) -> None:
        self._service: Service = build(load_settings({"REGELATE_HOME": str(home), "REGELATE_SPARK": "none"}))

    def automatic(self, table: TableName) -> None:
        """The plan of `selection: size-tiered` is the rule: it is empty where no run is due."""
        self._compact(table, AUTOMATIC)

    def scheduled(self, table: TableName) -> None:
        self._compact(table, CompactRequest())

    def _compact(self, table: TableName, request: CompactRequest) -> None:
        namespace = ".".join(table.namespace)
        address = Address(
            tenant_id="default", catalog=table.catalog, ident=f"{namespace}.{table.table}", table=table.table
        )
        self._service.compactions.compact(address, replace(request, expire_snapshots=False))


class BySpark:
    """`rewrite_data_files`. Its planner has no tiers: an automatic run takes all small files when there are enough."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def automatic(self, table: TableName) -> None:
        self._rewrite(table, {"min-input-files": str(MIN_NUM_FILES)})

    def scheduled(self, table: TableName) -> None:
        self._rewrite(table, {"min-input-files": "2"})

    def _rewrite(self, table: TableName, options: Mapping[str, str]) -> None:
        sizes = {"target-file-size-bytes": str(MAX_FILE_BYTES), "min-file-size-bytes": str(SMALL_BYTES)}
        # Deletes of older sequence numbers would be lost on new files that keep the old one.
        safe = {"use-starting-sequence-number": "false"}
        arguments: dict[str, Argument | None] = {"table": table.within_catalog, "options": {**sizes, **safe, **options}}
        self._spark.sql(call(table.catalog, "rewrite_data_files", arguments)).collect()


def compactor(engine: EngineName, spark: SparkSession, home: Path) -> Compactor:
    return Regelate(home) if engine is EngineName.REGELATE else BySpark(spark)
