"""Every night at 2, on Spark: yesterday's events, and a CDC table with larger files; one report for both.

What differs between two installations is read from environment variables when the DAG is parsed; README.md beside the
folder lists them.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.smtp.notifications.smtp import send_smtp_notification
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

PACKAGE = Path(os.environ.get("REGELATE_PIPELINE", "/opt/regelate"))
RESULTS = os.environ.get("REGELATE_RUN_RESULTS", "/tmp/regelate-results")
EVENTS = os.environ.get("REGELATE_EVENTS_TABLE", "lakehouse.production.events")
CDC = os.environ.get("REGELATE_CDC_TABLE", "lakehouse.production.cdc_users")
PROPERTIES = os.environ.get("REGELATE_SPARK_PROPERTIES")  # the catalog, and Iceberg's jars
MAIL_TO = os.environ.get("REGELATE_MAIL_TO", "")
RETRIES = int(os.environ.get("REGELATE_RETRIES", "2"))

# `ds` is the day of the run: a cron schedule of Airflow 3 has no data interval of a day before.
YESTERDAY = "{{ macros.ds_add(ds, -1) }}"


def compact(name: str, table: str, *arguments: str) -> SparkSubmitOperator:
    return SparkSubmitOperator(
        task_id=name,
        name=f"{name}-{{{{ ds }}}}",
        application=str(PACKAGE / "compact_table.py"),
        py_files=str(PACKAGE / "regelate.zip"),
        properties_file=PROPERTIES,
        application_args=["--table", table, "--result", f"{RESULTS}/{name}-{{{{ ds }}}}.json", *arguments],
    )


with DAG(
    dag_id="regelate_nightly_spark",
    description="Compact streaming tables on Spark, nightly",
    schedule="0 2 * * *",
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["maintenance", "compaction"],
    default_args={
        "owner": "data-platform",
        "retries": RETRIES,
        "retry_delay": timedelta(minutes=5),
        "on_failure_callback": [send_smtp_notification(to=MAIL_TO)] if MAIL_TO else [],
    },
) as dag:
    events = compact(
        "compact_events",
        EVENTS,
        "--partition",
        f"event_date = DATE '{YESTERDAY}'",
        "--target-size-mb",
        "128",
        "--min-size-mb",
        "10",
    )
    cdc_users = compact("compact_cdc_users", CDC, "--target-size-mb", "256")
    report = BashOperator(
        task_id="report",
        bash_command=f"regelate report {RESULTS}/compact_*-{{{{ ds }}}}.json --output {RESULTS}/report-{{{{ ds }}}}.md",
    )
    [events, cdc_users] >> report
