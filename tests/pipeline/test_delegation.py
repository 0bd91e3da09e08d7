"""COMPACT left to Spark, for real: the API, a worker, spark-submit, Iceberg, and back."""

from __future__ import annotations

import importlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from regelate.entrypoints.job_workers import JobWorkers
from regelate.handler import make_handler
from regelate.pipeline.session import ICEBERG_VERSION
from regelate.service.spark_home import environment
from regelate.settings import load_settings
from tests.aws.lake import BUCKET
from tests.aws.test_jobs import Cloud
from tests.entrypoints.fakes import LambdaContext
from tests.pipeline.conftest import JARS
from tests.servers.emr_serverless import APPLICATION, emr_server, spark_submit
from tests.servers.moto_aws import REGION, aws_server, client
from tests.support.built import Built
from tests.system.faults.stack import request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from regelate.pipeline.names import TableName
    from tests.support.lake import Lake

pytestmark = pytest.mark.spark
SECONDS = 120.0
Fields = Mapping[str, Any]


class Service:
    """The service over the lake that Spark shares, with jobs of its own and a thread that works on them."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.spark_folder = folder / "spark"
        section = {
            "auth": "none", "tenants": "*", "default_catalog": "local",
            "catalogs": {"local": dict(lake.service.settings.catalogs["local"].properties)},
            "jobs": {"store": "sqlite", "path": str(folder / "jobs.db")},
            "spark": {
                "run": "local", "folder": str(self.spark_folder), "seconds_between_looks": 0.1,
                "conf": {**JARS, "spark.driver.memory": "1g"},
            },
        }  # fmt: skip
        config = folder / "config.json"
        config.write_text(json.dumps({"environments": {"development": section}}))
        self.built = Built(load_settings({"REGELATE_CONFIG": str(config)}))
        self._handler = make_handler(lambda: self.built.service)
        self.workers = JobWorkers(self.built.service.worker)

    def ask(self, operation: str, **fields: object) -> dict[str, Any]:
        made = self._handler({"operation": operation, "tenant_id": "default", **fields}, LambdaContext())
        assert made["success"], made
        return made

    def until(self, job_id: str, seen: Callable[[Fields], bool]) -> Fields:
        """Ask how a job stands until it is seen as wanted."""
        given_up = time.monotonic() + SECONDS
        while time.monotonic() < given_up:
            told = self.ask("JOB_STATUS", job_id=job_id)
            if seen(told):
                return told
            threading.Event().wait(0.05)
        raise AssertionError(f"it never came to that: {told}")

    def ended(self, job_id: str) -> Fields:
        return self.until(job_id, lambda told: told["state"] in ("SUCCEEDED", "FAILED", "CANCELLED"))


@pytest.fixture
def service(lake: Lake, spark: SparkSession, tmp_path: Path) -> Iterator[Service]:
    made = Service(lake, tmp_path)
    yield made
    made.workers.stop()
    assert made.workers.wait(60) == 0


def rows(spark: SparkSession, name: TableName) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in spark.sql(f"SELECT * FROM {name.sql}").collect())


def test_a_compact_by_spark_is_a_job_that_succeeds_with_stats_and_changes_no_row(
    service: Service, spark: SparkSession, make_events: Callable[..., None], name: TableName
) -> None:
    make_events(name, rounds=4)
    before = rows(spark, name)
    where = {"namespace": "by_spark", "table": name.table}
    every_row = "\"id\" >= 0 or \"kind\" = 'it''s \\'"  # no row of them to Spark, were it sent as it is
    answer = service.ask("COMPACT", engine="spark", verify="strict", where=every_row, **where)
    assert (answer["status"], answer["engine"]) == ("DELEGATED", "spark")
    told = service.ended(answer["job_id"])
    assert (told["state"], told["error"]) == ("SUCCEEDED", None)
    stats = told["result"]["stats"]
    assert (stats["engine"], stats["files_compacted"], stats["files_added"], stats["rows"]) == ("spark", 12, 3, 120)
    assert told["totals"]["snapshot_ids"] == [told["result"]["snapshot_id"]]
    assert rows(spark, name) == before
    assert service.ask("COMPACT", **where)["status"] == "NOTHING_TO_DO"


def test_row_59_spark_killed_while_it_runs_fails_the_job_and_the_next_compact_succeeds(
    service: Service, spark: SparkSession, make_events: Callable[..., None], name: TableName
) -> None:
    make_events(name, rounds=4)
    before = rows(spark, name)
    where = {"namespace": "by_spark", "table": name.table}
    job_id = service.ask("COMPACT", engine="spark", **where)["job_id"]
    run = service.until(job_id, lambda told: told["run"] is not None)["run"]
    pid = int((service.spark_folder / run / "pid").read_text())
    assert service.ask("COMPACT", **where)["reason"] == "JOB_RUNNING"
    os.killpg(pid, signal.SIGKILL)
    told = service.ended(job_id)
    assert (told["state"], told["error"]["code"]) == ("FAILED", "DELEGATION_FAILED")
    tools = service.built.job_stores.tools
    assert tools is not None
    assert tools.store.live(f"local/by_spark.{name.table}") is None
    assert rows(spark, name) == before
    assert service.ask("COMPACT", **where)["stats"]["files_compacted"] == 12
    assert rows(spark, name) == before


def test_row_33_a_v3_table_with_deletion_vectors_goes_to_spark_and_keeps_its_row_ids(
    service: Service, spark: SparkSession, make_events: Callable[..., None], name: TableName
) -> None:
    properties = {"format-version": "3", "write.delete.mode": "merge-on-read"}
    make_events(name, rounds=4, properties=properties)
    spark.sql(f"DELETE FROM {name.sql} WHERE id % 7 = 3")
    with_ids = f"SELECT _row_id, id, kind FROM {name.sql} ORDER BY _row_id"
    before = [tuple(row) for row in spark.sql(with_ids).collect()]
    assert {row["file_format"] for row in spark.sql(f"SELECT file_format FROM {name.sql}.delete_files").collect()} == {
        "PUFFIN"
    }
    answer = service.ask("COMPACT", namespace="by_spark", table=name.table)
    assert (answer["status"], answer["reason"], answer["engine"]) == ("DELEGATED", "UNSUPPORTED_TABLE", "spark")
    assert "format version 3" in answer["explanation"]
    told = service.ended(answer["job_id"])
    assert (told["state"], told["error"]) == ("SUCCEEDED", None)
    assert told["result"]["stats"]["files_added"] == 3
    assert [tuple(row) for row in spark.sql(with_ids).collect()] == before
    assert len(before) == 120 - 17


def test_the_api_leaves_a_table_in_glue_to_emr_which_compacts_it_and_a_worker_takes_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """API, job table, queue, worker, EMR Serverless, Spark, Iceberg in Glue and S3, and JOB_STATUS: one line."""
    jar = f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG_VERSION}"
    runtime = f"org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:{ICEBERG_VERSION}"
    conf = {**JARS, "spark.master": "local[1]", "spark.driver.memory": "1g", "spark.jars.packages": f"{runtime},{jar}"}
    spark_home = Path(str(importlib.import_module("pyspark").__file__)).parent
    with aws_server() as aws, monkeypatch.context() as patched:
        keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing-secret", "AWS_REGION": REGION}
        environ = {**keys, "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}
        client("s3", aws).create_bucket(Bucket=BUCKET)
        runner = spark_submit(
            client("s3", aws), tmp_path / "emr", spark_home, {**os.environ, **environment(spark_home), **environ}, conf
        )
        with emr_server(runner) as (emr, state):
            for name in ("DYNAMODB", "SQS", "S3"):
                patched.setenv(f"AWS_ENDPOINT_URL_{name}", aws)
            patched.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", emr)
            for name, text in environ.items():
                patched.setenv(name, text)
            spark = {
                "run": "emr-serverless", "application_id": APPLICATION, "role_arn": "arn:aws:iam::123456789012:role/s",
                "location": f"s3://{BUCKET}/spark", "seconds_between_looks": 0.5,
            }  # fmt: skip
            cloud = Cloud(tmp_path, aws, spark=spark)
            cloud.lake.users(writes=5)
            before = cloud.lake.count()
            status, answer = cloud.stack.post(request("COMPACT", "users", engine="spark"))
            assert (status, answer["engine"]) == (202, "spark")
            assert cloud.worked(cloud.messages()) == []
            assert next(iter(state.runs.values()))["tags"] == {"regelate:job": answer["job_id"]}
            given_up = time.monotonic() + SECONDS
            told = cloud.stack.ok("JOB_STATUS", job_id=answer["job_id"])
            while told["state"] == "RUNNING" and time.monotonic() < given_up:
                messages = cloud.messages()  # JOB_STATUS asks for a look when one is due
                assert not messages or cloud.worked(messages) == []
                threading.Event().wait(0.2)
                told = cloud.stack.ok("JOB_STATUS", job_id=answer["job_id"])
            log = "\n".join((tmp_path / "emr" / told["run"] / "log.txt").read_text().splitlines()[-20:])
            assert (told["state"], told["error"]) == ("SUCCEEDED", None), log
            assert told["result"]["stats"]["files_compacted"] == 5
            assert cloud.lake.count() == before
            assert len(cloud.lake.table().inspect.data_files()) == 1
