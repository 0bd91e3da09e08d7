"""A part of the corpus on a catalog server: Iceberg's own REST catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from regelate.pipeline.session import open_session
from tests.catalogs.lakes import rest
from tests.catalogs.served import stack_on
from tests.external.bench import Bench
from tests.external.tables import TABLES
from tests.external.trial import run
from tests.pipeline.conftest import LAUNCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.catalogs


@pytest.mark.parametrize("name", ["equality_deletes", "position_deletes_by_file", "branches_tags_and_history"])
def test_spark_reads_the_same_before_and_after_on_icebergs_own_rest_catalog(
    spark: SparkSession, iceberg_rest: str, folder: Path, name: str
) -> None:
    shared = rest(f"corpus_{name}", iceberg_rest)
    open_session(shared.spark, LAUNCH, app_name="catalogs")
    outcome = run(Bench(spark=spark, stack=stack_on(folder, shared.service), catalog=shared.spark.name), TABLES[name])
    assert outcome.faults == []
