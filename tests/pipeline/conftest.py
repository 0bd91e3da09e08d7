"""One Spark session for the whole run, on a lake that the service shares; its jars are kept in .servers."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from regelate.pipeline.names import TableName
from regelate.pipeline.session import Launch, embedded_lake, open_session, spark_conf
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = {"spark.jars.ivy": str(Path(__file__).parents[2] / ".servers" / "ivy"), "spark.sql.shuffle.partitions": "2"}
LAUNCH = Launch(driver_memory="1g", conf=JARS)
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A test is over before the second compiler pays: it took more than half of the processor time."""
os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)
NONE: Mapping[str, str] = {}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The service's built and the catalog that Spark shares with it."""
    return Lake(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="session")
def spark(lake: Lake) -> Iterator[SparkSession]:
    session = open_session(embedded_lake(lake.folder), LAUNCH, app_name="tests")
    yield session
    session.stop()


@pytest.fixture
def name(spark: SparkSession) -> TableName:
    """The name of a table that does not exist yet, in a namespace of Spark's own."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.by_spark")
    return TableName.parse(f"local.by_spark.t{next(_numbers)}")


@pytest.fixture
def make_events(spark: SparkSession) -> Callable[..., None]:
    """Return a maker of tables with three partitions and one small file in each per round."""

    def make(name: TableName, *, rounds: int = 4, properties: Mapping[str, str] = NONE) -> None:
        listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        kinds = "element_at(array('click', 'view', 'it\\'s'), cast(id % 3 + 1 AS int))"
        spark.sql(
            f"CREATE TABLE {name.sql} (id bigint, kind string, at timestamp) USING iceberg PARTITIONED BY (kind)"
            + (f" TBLPROPERTIES ({listed})" if listed else "")
        )
        for start in range(0, rounds * 30, 30):
            spark.sql(
                f"INSERT INTO {name.sql} SELECT /*+ COALESCE(1) */ id, {kinds}, TIMESTAMP '2025-01-17 05:00:00' "
                f"FROM range({start}, {start + 30})"
            )

    return make


@pytest.fixture(scope="session")
def lake_conf(lake: Lake) -> dict[str, str]:
    """What spark-submit is told on its command line to find the same lake."""
    conf = spark_conf(embedded_lake(lake.folder), LAUNCH)
    return {key: value for key, value in conf.items() if key != "spark.master"}
