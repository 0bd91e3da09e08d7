"""Both DAGs, run by Airflow itself (`airflow dags test`) against the real service and the real spark-submit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.iceberg_tables import live_data_files, live_data_paths
from tests.support.table_model import model_rows
from tests.system.faults.stack import Stack

pytestmark = pytest.mark.airflow
ROOT = Path(__file__).parents[2]
AIRFLOW = ROOT / ".airflow" / "bin" / "airflow"
DAGS = ROOT / "integrations" / "airflow" / "dags"
DAY = date(2025, 1, 17)


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("airflow")
    told = airflow(home, "db", "migrate")
    assert told.returncode == 0, told.stderr[-3000:]
    return home


def airflow(home: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    return subprocess.run(
        [AIRFLOW, *arguments],
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "NO_PROXY": "*",
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def lake_of(folder: Path) -> Stack:
    """Return the embedded lake that a server or Spark will open from another process."""
    folder.mkdir()
    return Stack(folder)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run `regelate serve` on a lake, as a process of its own."""
    command = [sys.executable, "-m", "regelate.entrypoints.cli", "serve", "--port", "0"]
    environment = {**os.environ, "REGELATE_HOME": str(folder)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:
            assert run.stdout is not None
            yield next(m[0] for line in run.stdout if (m := re.search(r"http://[\d.]+:\d+", line)))
        finally:
            run.terminate()
            run.stdout.read()


def test_the_dags_are_read_without_an_error_and_run_when_the_docs_say(airflow_home: Path) -> None:
    assert "No data found" in airflow(airflow_home, "dags", "list-import-errors").stdout
    assert airflow(airflow_home, "dags", "reserialize").returncode == 0
    schedules = {"regelate_api": "0 */6 * * *", "regelate_nightly_spark": "0 2 * * *"}
    for name, schedule in schedules.items():
        details = airflow(airflow_home, "dags", "details", name, "-o", "json")
        (facts,) = json.loads(details.stdout[details.stdout.index("[{") :])
        assert (facts["timetable_summary"], facts["max_active_runs"]) == (schedule, "1")
        following = datetime.fromisoformat(facts["next_dagrun_run_after"])
        assert following > datetime.now(UTC) - timedelta(days=2), "nothing is caught up with"


def test_the_api_dag_compacts_by_a_job_and_says_what_it_did(airflow_home: Path, tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    lake.create("sales", {"id": "long"})
    for number in range(6):
        lake.ok("WRITE", "sales", records=[{"id": number}])
    table = lake.table("default.sales")
    rows = model_rows(table)
    with served(lake.folder) as url:
        environment = {"AIRFLOW_CONN_REGELATE": url, "REGELATE_POLL_SECONDS": "1", "REGELATE_RETRIES": "0"}
        done = airflow(airflow_home, "dags", "test", "regelate_api", str(DAY), environment=environment)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
        with urllib.request.urlopen(f"{url}/health") as health:
            assert json.load(health)["success"]
    assert "default.sales: 6 files became 1, 6 rows" in done.stdout + done.stderr
    assert len(live_data_paths(table.refresh())) == 1
    assert model_rows(table) == rows


def test_the_api_dag_fails_where_the_table_is_not_there(airflow_home: Path, tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    with served(lake.folder) as url:
        environment = {"AIRFLOW_CONN_REGELATE": url, "REGELATE_RETRIES": "0"}
        done = airflow(airflow_home, "dags", "test", "regelate_api", str(DAY), environment=environment)
    assert done.returncode == 1
    assert "404" in done.stdout + done.stderr


def test_the_nightly_dag_compacts_yesterday_and_the_cdc_table_on_spark(airflow_home: Path, tmp_path: Path) -> None:
    import pyspark

    from regelate.pipeline.package import pack
    from regelate.pipeline.session import Launch, embedded_lake, java_home, spark_conf
    from tests.pipeline.conftest import JARS

    lake = lake_of(tmp_path / "lake")
    yesterday = DAY - timedelta(days=1)
    lake.create(
        "events",
        {"id": "long", "event_date": "date"},
        namespace="production",
        partition_spec=[{"source": "event_date", "transform": "identity"}],
    )
    lake.create("cdc_users", {"id": "long"}, namespace="production")
    for number in range(4):
        days = [{"id": number, "event_date": str(yesterday)}, {"id": number, "event_date": str(DAY)}]
        lake.ok("WRITE", "events", namespace="production", records=days)
        lake.ok("WRITE", "cdc_users", namespace="production", records=[{"id": number}])
    pack(tmp_path / "package")
    properties = tmp_path / "spark.properties"
    # The Java of the wheel knows no certificate that was added to this machine: without the store of the system it
    # fetches no jar through a proxy that has one, and calls the jar "not found".
    java, java_options = java_home({"PATH": ""})
    conf = spark_conf(embedded_lake(lake.folder), Launch(driver_memory="1g", conf=JARS), java_options=java_options)
    properties.write_text("".join(f"{key} {value}\n" for key, value in conf.items() if key != "spark.master"))
    spark = Path(pyspark.__file__).parent
    (tmp_path / "results").mkdir()
    done = airflow(
        airflow_home,
        "dags",
        "test",
        "regelate_nightly_spark",
        str(DAY),
        environment={
            "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
            "JAVA_HOME": str(java),
            "SPARK_HOME": str(spark),
            "PATH": f"{spark / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "REGELATE_PIPELINE": str(tmp_path / "package"),
            "REGELATE_RUN_RESULTS": str(tmp_path / "results"),
            "REGELATE_SPARK_PROPERTIES": str(properties),
            "REGELATE_EVENTS_TABLE": "local.production.events",
            "REGELATE_CDC_TABLE": "local.production.cdc_users",
            "REGELATE_RETRIES": "0",
        },
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    files = Counter(f.partition[0] for f in live_data_files(lake.table("production.events")))
    assert sorted(files.values()) == [1, 4], "yesterday only"
    assert len(live_data_paths(lake.table("production.cdc_users"))) == 1
    report = (tmp_path / "results" / f"report-{DAY}.md").read_text().replace("\\_", "_")
    assert "production.events" in report
    assert "production.cdc_users" in report
