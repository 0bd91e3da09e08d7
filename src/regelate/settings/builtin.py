"""The overlays of the shipped config.json, for a process that finds no file; a test holds the two together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CLAIMS: Mapping[str, Any] = {
    "jobs": {
        "store": "${REGELATE_JOBS_STORE:-none}",
        "table": "${REGELATE_JOBS_TABLE:-}",
        "queue_url": "${REGELATE_JOBS_QUEUE:-}",
    },
    "fleet": {
        "store": "${REGELATE_FLEET_STORE:-none}",
        "table": "${REGELATE_FLEET_TABLE:-}",
        "slack_webhook": "${REGELATE_SLACK_WEBHOOK:-}",
    },
    "spark": {
        "run": "${REGELATE_SPARK:-none}",
        "application_id": "${REGELATE_SPARK_APPLICATION:-}",
        "role_arn": "${REGELATE_SPARK_ROLE_ARN:-}",
        "location": "${REGELATE_SPARK_LOCATION:-}",
        "seconds_between_looks": 60,
    },
    "auth": "${REGELATE_AUTH:-claims}",
    "tenancy": {
        "claim": "${REGELATE_TENANT_CLAIM:-custom:tenant_id}",
        "role_arn": "${REGELATE_TENANT_ROLE_ARN:-}",
    },
    "results": {"location": "${REGELATE_RESULTS:-}"},
    "default_catalog": "glue",
    "catalogs": {
        "glue": {
            "type": "glue",
            "warehouse": "${REGELATE_WAREHOUSE}",
            "namespace_template": "{tenant_id}__{namespace}",
        }
    },
}

ENVIRONMENTS: Mapping[str, Mapping[str, Any]] = {
    "development": {
        "iceberg": {"compaction": {"min_files_to_compact": 3, "opportunistic_check_interval": 5}},
        "retention": {"minimum_retention_hours": 0},
        "jobs": {"store": "sqlite", "path": "${REGELATE_HOME}/jobs.db"},
        "fleet": {"store": "sqlite", "path": "${REGELATE_HOME}/fleet.db"},
        "spark": {"run": "${REGELATE_SPARK:-local}", "folder": "${REGELATE_HOME}/spark"},
        "auth": "none",
        "tenants": "*",
        "default_catalog": "local",
        "catalogs": {
            "local": {
                "type": "sql",
                "uri": "sqlite:///${REGELATE_HOME}/catalog.db?timeout=30",
                "warehouse": "${REGELATE_HOME}/warehouse",
                "namespace_template": "{namespace}",
            }
        },
    },
    "staging": {
        "iceberg": {"compaction": {"min_files_to_compact": 15, "opportunistic_check_interval": 75}},
        **_CLAIMS,
    },
    "production": {
        "iceberg": {"compaction": {"min_files_to_compact": 20, "opportunistic_check_interval": 100}},
        **_CLAIMS,
    },
}
