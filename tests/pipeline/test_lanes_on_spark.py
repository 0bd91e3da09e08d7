"""What a dictionary lane wrote of files of Spark's, as Spark reads it: by both readers, and as the table evolves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from regelate.core.planning import lanes
from tests.support.iceberg_tables import live_data_paths, local_path
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
COLUMNS = {
    "id": "BIGINT NOT NULL", "i": "INT", "f": "FLOAT", "v": "DOUBLE", "s": "STRING", "many": "STRING", "raw": "BINARY",
    "d9": "DECIMAL(9, 2)", "d18": "DECIMAL(18, 2)", "d30": "DECIMAL(30, 3)", "t": "TIMESTAMP", "l": "TIMESTAMP_NTZ",
    "day": "DATE", "b": "BOOLEAN",
}  # fmt: skip
VALUES = (
    "int(id % 50)", "float(id / 4)", "IF(id = 11, -0.0D, id / 3)", "concat('s', id % 9)", "uuid()",
    "encode(concat('r', id % 5), 'utf-8')", "id / 8", "id / 4", "id / 2", "timestamp_seconds(id)",
    "to_timestamp_ntz('2025-01-01 00:00:00') + make_interval(0, 0, 0, 0, 0, 0, id)",
    "date_add(date'2025-01-01', int(id % 400))", "id % 2 = 0",
)  # fmt: skip


def read(spark: SparkSession, name: str, columns: str = "*") -> list[str]:
    return sorted(repr(row.asDict()) for row in spark.sql(f"SELECT {columns} FROM {name}").collect())


@pytest.mark.parametrize("codec", ["zstd", "snappy"])
@pytest.mark.parametrize("pages", ["v1", "v2"])
def test_spark_reads_what_a_lane_made_of_its_files_and_rewrites_and_promotes_it(
    spark: SparkSession, lake: Lake, codec: str, pages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LANE_ROWS", 100)
    ident = f"lanes.{codec}_{pages}"
    name = f"local.{ident}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.lanes")
    spark.sql(
        f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in COLUMNS.items())}) USING iceberg "
        f"TBLPROPERTIES ('write.parquet.compression-codec' = '{codec}', 'write.parquet.page-version' = '{pages}', "
        "'write.distribution-mode' = 'none')"
    )
    values = ", ".join(f"IF(id % 7 = 0, NULL, {value})" for value in VALUES)
    for low in range(0, 3_000, 1_000):
        spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, {values} FROM range({low}, {low + 1_000})")
    before = read(spark, name)
    assert lake.compact(ident, force=True, verify="strict")["status"] == "COMPLETED"
    (path,) = live_data_paths(lake.other_client().load_table(ident))
    assert "parquet-cpp-arrow" in pq.read_metadata(local_path(path)).created_by
    spark.sql(f"REFRESH TABLE {name}")
    for vectorized in ("true", "false"):
        spark.conf.set("spark.sql.iceberg.vectorization.enabled", vectorized)
        assert read(spark, name) == before
        assert len(read(spark, name, "id, s")) == 3_000
        assert spark.sql(f"SELECT id FROM {name} WHERE s = 's4' AND i = 22").count() == len(
            [1 for n in range(3_000) if n % 7 and n % 9 == 4 and n % 50 == 22]
        )
    spark.conf.unset("spark.sql.iceberg.vectorization.enabled")
    for column, kind in {"i": "BIGINT", "f": "DOUBLE", "d9": "DECIMAL(20, 2)", "d18": "DECIMAL(30, 2)"}.items():
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN {column} TYPE {kind}")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN many TO renamed")
    promoted = read(spark, name)
    assert len(promoted) == 3_000
    spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM {name} LIMIT 500")
    wanted = read(spark, name)
    assert lake.compact(ident, force=True, verify="strict")["status"] == "COMPLETED"
    spark.sql(f"REFRESH TABLE {name}")
    assert read(spark, name) == wanted
    spark.sql(f"CALL local.system.rewrite_data_files(table => '{ident}', options => map('rewrite-all', 'true'))")
    assert read(spark, name) == wanted
