"""Deletes orphan files that a dry run has listed, and only those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from regelate.pipeline.spark_errors import spark_faults
from regelate.pipeline.sql import Argument
from regelate.pipeline.steps import StepName
from regelate.pipeline.tables import SparkTable

_VIEW = "regelate_orphans"


def remove_orphans(table: SparkTable, listed: Sequence[str], older_than: datetime) -> Mapping[str, object]:
    """Run remove_orphan_files over the listed files alone, judged anew: what a commit needs by now stays.

    `older_than` is what the listing was made with, and every listed file is older.
    """
    from pyspark.sql.types import StringType, StructField, StructType, TimestampType

    fields = [StructField("file_path", StringType()), StructField("last_modified", TimestampType())]
    location = str(table.metadata["location"])
    old = older_than - timedelta(days=1)
    with spark_faults(str(table.name)):
        frame = table.spark.createDataFrame([(_under(location, path), old) for path in listed], StructType(fields))
        frame.createOrReplaceTempView(_VIEW)
        try:
            arguments: dict[str, Argument | None] = {
                "older_than": older_than,
                "dry_run": False,
                "file_list_view": _VIEW,
            }
            rows = table.run(table.statement(StepName.ORPHANS, arguments))
        finally:
            table.spark.catalog.dropTempView(_VIEW)
    return {"deleted_files_count": len(rows)}


def _under(location: str, path: str) -> str:
    """Spell a local file as the table spells its location: Iceberg passes over what does not begin with it."""
    if path.startswith(location) or not path.startswith("file:"):
        return path
    plain = "/" + path.removeprefix("file:").lstrip("/")
    return plain if location.startswith("/") else f"file:{'//' if location.startswith('file://') else ''}{plain}"
