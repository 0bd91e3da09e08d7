"""Every six hours, by the API: is it there, how is the table, compact it as a job, wait for the job, say what it did.

The connection `regelate` (AIRFLOW_CONN_REGELATE=http://host:port) names the API; its password, where there is one, is
sent as a bearer token.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.http.sensors.http import HttpSensor
from airflow.sdk import DAG, task

CONNECTION = "regelate"
TENANT = os.environ.get("REGELATE_TENANT", "default")
NAMESPACE, _, TABLE = os.environ.get("REGELATE_SALES_TABLE", "default.sales").rpartition(".")
RETRIES = int(os.environ.get("REGELATE_RETRIES", "3"))
POLL_SECONDS = float(os.environ.get("REGELATE_POLL_SECONDS", "15"))
HEADERS = {"Content-Type": "application/json"}
if TOKEN := os.environ.get("REGELATE_TOKEN"):
    HEADERS["Authorization"] = f"Bearer {TOKEN}"


def request(operation: str, **fields: Any) -> str:
    """Return the body of one request; Airflow fills in its templates afterwards."""
    return json.dumps({"operation": operation, "tenant_id": TENANT, **fields})


def has_ended(response: Any) -> bool:
    """Say whether a job needs no more waiting. A job that failed ends the sensor with its error at once."""
    job = response.json()
    if job["state"] in ("FAILED", "CANCELLED"):
        raise RuntimeError(f"{job['job_id']} {job['state']}: {job.get('error')}")
    return bool(job["state"] == "SUCCEEDED")


def post(name: str, body: str, **more: Any) -> HttpOperator:
    return HttpOperator(
        task_id=name,
        http_conn_id=CONNECTION,
        endpoint="/database",
        method="POST",
        headers=HEADERS,
        data=body,
        response_filter=lambda response: response.json(),
        log_response=True,
        **more,
    )


with DAG(
    dag_id="regelate_api",
    description="Compact a table by the API, every six hours",
    schedule="0 */6 * * *",
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["maintenance", "compaction"],
    default_args={"owner": "data-platform", "retries": RETRIES, "retry_delay": timedelta(minutes=5)},
) as dag:
    alive = HttpOperator(task_id="health_check", http_conn_id=CONNECTION, endpoint="/health", method="GET")
    before = post("health_before", request("TABLE_HEALTH", namespace=NAMESPACE, table=TABLE))
    # A task that is tried again meets the same job: the key is that of the run, not of the attempt.
    compact = post(
        "compact",
        request(
            "COMPACT",
            namespace=NAMESPACE,
            table=TABLE,
            **{"async": True},
            idempotency_key="airflow-{{ dag_run.run_id | replace(':', '-') | replace('+', '-') }}",
        ),
    )
    job = "{{ ti.xcom_pull(task_ids='compact')['job_id'] }}"
    ended = HttpSensor(
        task_id="wait_for_the_job",
        http_conn_id=CONNECTION,
        endpoint="/database",
        method="POST",
        headers=HEADERS,
        request_params=request("JOB_STATUS", job_id=job),  # type: ignore[arg-type]  # the body of a POST
        response_check=has_ended,
        poke_interval=POLL_SECONDS,
        timeout=3600,
        mode="reschedule",
    )
    result = post("job_status", request("JOB_STATUS", job_id=job))

    @task
    def report(before: dict[str, Any], job: dict[str, Any]) -> str:
        """Return one line for the log, and for whoever pulls it."""
        totals = job["totals"]
        line = (
            f"{NAMESPACE}.{TABLE}: {totals['files_compacted']} files became {totals['files_added']}, "
            f"{totals['rows']} rows, {totals['bytes_saved']} bytes saved; score before {before['score']}"
        )
        logging.getLogger("airflow.task").info(line)
        return line

    alive >> before >> compact >> ended >> result >> report(before.output, result.output)
