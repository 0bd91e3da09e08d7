"""What a writer on Spark leaves of a table with a few large partitions and a long tail of small ones, by its settings.

The case of apache/iceberg#16854 in small: two large partitions, sixty of 500 rows, written by one append from 16 tasks;
files shall be 4 MB, and the two tasks at work have some 70 MB for their sorts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measuring import ROOT, Promise, interleaved
from regelate.core.policy.policy import MB
from regelate.pipeline.ingest import WHOLE_PARTITIONS
from regelate.pipeline.session import Launch, embedded_lake, open_session

LARGE, SMALL, SMALL_ROWS, TASKS = 2, 60, 500, 16
TARGET = 4 * MB
CONF = {
    "spark.jars.ivy": str(ROOT / ".servers" / "ivy"),
    "spark.sql.shuffle.partitions": "8",
    "spark.memory.fraction": "0.1",
}
ADVISORY = "write.spark.advisory-partition-size-bytes"
SOURCE = "long_tail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """`order`: the column that the table is `WRITE ORDERED BY`, none without."""

    mode: str
    advisory: int | None = None
    order: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        found = {"write.target-file-size-bytes": str(TARGET), "write.distribution-mode": self.mode}
        return found | ({} if self.advisory is None else {ADVISORY: str(self.advisory)})


RECIPE = "hash, advisory 4 MB, no splits of a task's rows"
SETTINGS = {
    "none": Setting(mode="none"),
    "hash, Iceberg's advisory size": Setting(mode="hash"),
    "hash, advisory 4 MB": Setting(mode="hash", advisory=TARGET),
    "hash, advisory 16 MB": Setting(mode="hash", advisory=4 * TARGET),
    RECIPE: Setting(mode="hash", advisory=TARGET, conf=WHOLE_PARTITIONS),
    "range, advisory 4 MB": Setting(mode="range", advisory=TARGET),
    "range, advisory 4 MB, ordered by id": Setting(mode="range", advisory=TARGET, order="id"),
    "range, advisory 16 MB, ordered by id": Setting(mode="range", advisory=4 * TARGET, order="id"),
}


def long_tail(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What does a writer on Spark leave of a table with a long tail of small partitions, by its settings?"""
    rows = 60_000 if quick else 600_000
    spark = open_session(embedded_lake(work / "lake"), Launch(driver_memory="1g", conf=CONF), app_name="long_tail")
    spark.sql("CREATE NAMESPACE local.bench")
    _write_source(spark, work / "source", rows)
    written(spark, "warm", Setting(mode="range", order="id"))
    found = interleaved(
        runs, {name: lambda setting=setting: written(spark, "t", setting) for name, setting in SETTINGS.items()}
    )
    spark.stop()
    (recipe, *_) = found[RECIPE]
    return {"large": LARGE, "rows_of_large": rows, "small": SMALL, "rows_of_small": SMALL_ROWS, **found}, [
        Promise(name="files of a small partition, at most, with the recipe", ratio=recipe["small_most"], limit=1),
        Promise(name="largest file / target, with the recipe", ratio=recipe["largest_mb"] * MB / TARGET, limit=1.25),
    ]


def _write_source(spark: Any, folder: Path, rows: int) -> None:
    """Write the rows as Parquet, and name what reads them in so many tasks, each with rows of every partition."""
    large = spark.range(LARGE * rows).selectExpr(
        "id", f"concat('large-', id % {LARGE}) AS kind", "md5(cast(id AS string)) AS text"
    )
    small = spark.range(SMALL * SMALL_ROWS).selectExpr(
        "-id AS id", f"concat('tail-', id % {SMALL})", "md5(cast(id AS string))"
    )
    large.unionAll(small).repartition(TASKS).write.parquet(str(folder))
    spark.conf.set("spark.sql.files.openCostInBytes", str(TARGET * 1000))  # a file a task
    spark.read.parquet(str(folder)).createOrReplaceTempView(SOURCE)


def written(spark: Any, table: str, setting: Setting) -> dict[str, Any]:
    """Append the source to a new table, and return what became of it."""
    name = f"local.bench.{table}"
    spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in setting.properties().items())
    spark.sql(
        f"CREATE TABLE {name} (id bigint, kind string, text string) USING iceberg PARTITIONED BY (kind) "
        f"TBLPROPERTIES ({listed})"
    )
    if setting.order:
        spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY {setting.order}")
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.distribution-mode' = '{setting.mode}')")
    for key, value in setting.conf.items():
        spark.conf.set(key, value)
    spilled, before = _spilled(spark), time.perf_counter()
    spark.table(SOURCE).writeTo(name).append()
    seconds, spilled = time.perf_counter() - before, _spilled(spark) - spilled
    for key in setting.conf:
        spark.conf.unset(key)
    files = spark.sql(
        f"SELECT partition.kind LIKE 'large%' AS large, count(*) AS files, max(file_size_in_bytes) AS largest "
        f"FROM {name}.files GROUP BY partition.kind"
    ).collect()
    return {
        "seconds": seconds,
        "output_files": sum(row.files for row in files),
        "small_most": max(row.files for row in files if not row.large),
        "large_files": sum(row.files for row in files if row.large) / LARGE,
        "largest_mb": max(row.largest for row in files) / MB,
        "spilled_mb": spilled / MB,
    }


def _spilled(spark: Any) -> int:
    """Return the bytes that all tasks so far have spilled to disk."""
    context = spark.sparkContext
    nothing, quantiles = context._jvm.java.util.ArrayList(), context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(nothing, False, False, quantiles, nothing)
    return sum(stages.apply(number).diskBytesSpilled() for number in range(stages.size()))
