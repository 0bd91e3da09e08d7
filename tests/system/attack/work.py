"""Requests that make the service work: WRITE, COMPACT, maintenance, jobs, tokens, keys."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from tests.system.attack.attack import (
    BAD_REQUEST,
    FIELD,
    FORBIDDEN,
    MISMATCH,
    MISSING,
    NAME,
    NO_TABLE,
    OK,
    OPTION,
    RANGE,
    UNKNOWN_FIELD,
    VICTIM,
    Attack,
    asks,
    body_of,
    post,
)
from tests.system.attack.scene import Scene

NO_JOB = "404 JOB_NOT_FOUND"
NO_PLAN = "404 FLEET_PLAN_NOT_FOUND"
NO_FLEET_TABLE = "404 FLEET_TABLE_NOT_FOUND"
NO_FLEET = "501 FLEET_DISABLED"
ZONE = "422 TIMEZONE_MISMATCH"
LARGE = "413 PAYLOAD_TOO_LARGE"
_SCAN: dict[str, Any] = {"report-type": "scan-report", "metrics": {}}
RETENTION = "400 INVALID_RETENTION"
VALUES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a text for a number": ({"id": "x"}, (MISMATCH,)),
    "a text of 5,000 digits for a number": ({"id": "9" * 5000}, (MISMATCH, RANGE)),
    "a number of 4,000 digits": ({"id": 10**4000}, (MISMATCH, RANGE)),
    "2^63 for a long": ({"id": 2**63}, (RANGE,)),
    "2^31 for an int": ({"p": 2**31}, (RANGE,)),
    "1.5 for an int": ({"p": 1.5}, (MISMATCH, RANGE)),
    "true for an int": ({"p": True}, (MISMATCH,)),
    "an object for an int": ({"p": {"$gt": 0}}, (MISMATCH,)),
    "a decimal of 5,000 digits": ({"amount": "9" * 5000}, (MISMATCH, RANGE)),
    "a decimal of 1e999999999": ({"amount": "1e999999999"}, (MISMATCH, RANGE)),
    "a decimal of 1e-999999999": ({"amount": "1e-999999999"}, (MISMATCH, RANGE)),
    "a decimal that is sNaN": ({"amount": "sNaN"}, (MISMATCH, RANGE)),
    "a decimal with underscores": ({"amount": "1_0"}, (MISMATCH, RANGE)),
    "a double that is 1e400": ({"ratio": "1e400"}, (MISMATCH, RANGE)),
    "a double in hexadecimal": ({"ratio": "0x1p3"}, (MISMATCH,)),
    "30 February": ({"day": "2025-02-30"}, (MISMATCH, RANGE)),
    "the year 0": ({"day": "0000-01-01"}, (MISMATCH, RANGE)),
    "the year 99999": ({"day": "99999-01-01"}, (MISMATCH, RANGE)),
    "a date that is a number": ({"day": 20250101}, (MISMATCH,)),
    "a date of 1 MB": ({"day": "2025-01-01" + " " * 1_000_000}, (MISMATCH, RANGE)),
    "a moment without a zone": ({"at": "2025-01-01T00:00:00"}, (ZONE,)),
    "a moment with 99 hours": ({"at": "2025-01-01T00:00:00+99:99"}, (MISMATCH, ZONE, RANGE)),
    "a moment of 25 o'clock": ({"at": "2025-01-01T25:00:00Z"}, (MISMATCH, RANGE)),
    "a moment with 30 digits of a second": ({"at": f"2025-01-01T00:00:00.{'1' * 30}Z"}, (MISMATCH, RANGE)),
    "the last moment, west of all": ({"at": "9999-12-31T23:59:59-14:00"}, (MISMATCH, RANGE)),
    "a leap second": ({"at": "2016-12-31T23:59:60Z"}, (MISMATCH, RANGE)),
    "bytes that are no base64": ({"raw": "\u00e9\u00e9"}, (MISMATCH, RANGE)),
    "base64 of 5 MB": ({"raw": base64.b64encode(b"x" * 3_900_000).decode()}, (OK,)),
    "a list that is a text": ({"tags": "abc"}, (MISMATCH,)),
    "a list of a million nulls": ({"tags": [None] * 1_000_000}, (OK, MISMATCH)),
    "a list of lists": ({"tags": [["a"]]}, (MISMATCH,)),
    "a struct that is a list": ({"who": ["x", 1]}, (MISMATCH,)),
    "a struct with more": ({"who": {"name": "x", "admin": True}}, (MISMATCH,)),
    "a map that is a list of texts": ({"marks": ["a"]}, (MISMATCH,)),
    "a map of pairs with one key twice": (
        {"marks": [{"key": "a", "value": "b"}, {"key": "a", "value": "c"}]},
        (MISMATCH, RANGE, "422 DUPLICATE_KEY"),
    ),
    "a map with a null key": ({"marks": [{"key": None, "value": "b"}]}, (MISMATCH, "422 NULL_IN_REQUIRED")),
    "a map of 100,000 keys": ({"marks": {f"k{i}": "v" for i in range(100_000)}}, (OK,)),
    "a text of 5 MB": ({"name": "x" * 5_000_000}, (OK,)),
    "a text with NUL": ({"name": "a\0b"}, (OK, MISMATCH)),
    "a text of half a surrogate pair": ({"name": "\ud800"}, (MISMATCH, RANGE, "400 INVALID_JSON")),
    "a column of nobody": ({"victim": 1}, (MISMATCH,)),
    "50,000 columns of nobody": ({f"c{i}": 1 for i in range(50_000)}, (MISMATCH,)),
    "an empty column name": ({"": 1}, (MISMATCH,)),
    "__class__ as a column": ({"__class__": "x"}, (MISMATCH,)),
    "a value 50 deep": ({"name": json.loads("[" * 50 + "]" * 50)}, (MISMATCH,)),
}
WRITES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "100,001 records": ({"records": [{}] * 100_001}, (LARGE,)),
    "100,000 empty records": ({"records": [{}] * 100_000}, (OK, MISMATCH)),
    "records that are an object": ({"records": {"id": 1}}, (FIELD,)),
    "records that are texts": ({"records": ["a"]}, (FIELD, MISMATCH)),
    "records that are null": ({"records": [None]}, (FIELD, MISMATCH)),
    "no records": ({}, (MISSING,)),
    "a mode of nobody": ({"records": [], "mode": "drop"}, (FIELD,)),
    "an upsert without a key": ({"records": [{"id": 1}], "mode": "upsert"}, (FIELD, MISSING)),
    "an upsert by nobody's column": ({"records": [{"id": 1}], "mode": "upsert", "key": ["x"]}, (FIELD, MISMATCH)),
    "an upsert by a list": (
        {"records": [{"id": 1, "tags": []}], "mode": "upsert", "key": ["tags"]},
        (FIELD, MISMATCH, "501 UNSUPPORTED_TABLE"),
    ),
    "an upsert by a null": ({"records": [{"id": None}], "mode": "upsert", "key": ["id"]}, ("422 NULL_IN_KEY",)),
    "an upsert of one key twice": (
        {"records": [{"id": 1}, {"id": 1}], "mode": "upsert", "key": ["id"]},
        ("422 DUPLICATE_KEY",),
    ),
    "an upsert by 10,000 keys": (
        {"records": [{"id": 1}], "mode": "upsert", "key": ["id"] * 10_000},
        (FIELD, MISMATCH),
    ),
    "a key that is SQL": ({"records": [{"id": 1}], "mode": "upsert", "key": ['id" OR 1=1 --']}, (FIELD, MISMATCH)),
    "an idempotency key of 1 MB": ({"records": [], "idempotency_key": "k" * 1_000_000}, (FIELD,)),
    "an idempotency key with line breaks": ({"records": [], "idempotency_key": "a\nb"}, (FIELD,)),
    "an idempotency key that is a number": ({"records": [], "idempotency_key": 1}, (FIELD,)),
    "3,000 partitions in one write": (
        {"records": [{"id": i, "p": i} for i in range(100, 3100)], "table": "spare"},
        ("422 TOO_MANY_PARTITIONS",),
    ),
    "the victim's table": ({"records": [{"id": 1}], "table": "orders"}, (NO_TABLE,)),
}
COMPACTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a target of 0": ({"target_file_size_mb": 0}, (FIELD, OPTION)),
    "a target of -1": ({"target_file_size_mb": -1}, (FIELD, OPTION)),
    "a target of 10^30 MB": ({"target_file_size_mb": 10**30}, (FIELD, OPTION)),
    "a target of one byte": ({"options": {"target-file-size-bytes": "1"}, "force": True}, (OPTION, FIELD)),
    "a target that is NaN": ({"options": {"target-file-size-bytes": "NaN"}}, (OPTION, FIELD)),
    "a target of 10^30 bytes": ({"options": {"target-file-size-bytes": 10**30}}, (OPTION, FIELD)),
    "an option of nobody": ({"options": {"shell": "rm -rf /"}}, (OPTION, FIELD)),
    "an option that is a list": ({"options": {"min-input-files": [1]}}, (OPTION, FIELD)),
    "options that are a list": ({"options": []}, (FIELD, OPTION)),
    "100,000 options": ({"options": {f"o{i}": "1" for i in range(100_000)}}, (OPTION, FIELD)),
    "min-input-files of -1": ({"options": {"min-input-files": -1}}, (OPTION, FIELD)),
    "max_files of 0": ({"max_files": 0}, (FIELD, OPTION)),
    "max_files of -5": ({"max_files": -5}, (FIELD, OPTION)),
    "max_cost of -1": ({"max_cost": -1}, (FIELD, "422 COST_LIMIT_EXCEEDED")),
    "max_cost of 0": ({"max_cost": 0, "force": True}, (OK, FIELD, "422 COST_LIMIT_EXCEEDED")),
    "max_cost that is a text": ({"max_cost": "1"}, (FIELD,)),
    "a strategy of nobody": ({"strategy": "shell"}, (FIELD, OPTION)),
    "zorder": ({"strategy": "zorder", "sort_order": [{"column": "id"}]}, ("501 SPARK_DISABLED", FIELD, OPTION)),
    "spark": ({"engine": "spark"}, ("501 SPARK_DISABLED",)),
    "an engine of nobody": ({"engine": "bash"}, (FIELD,)),
    "a selection of nobody": ({"selection": "all; --"}, (FIELD, OPTION)),
    "a sort by nobody": ({"strategy": "sort", "sort_order": [{"column": "victim"}], "force": True}, (FIELD, OPTION)),
    "a sort by a map": ({"strategy": "sort", "sort_order": [{"column": "marks"}], "force": True}, (OK, FIELD, OPTION)),
    "a sort by 10,000 columns": (
        {"strategy": "sort", "sort_order": [{"column": "id"}] * 10_000, "force": True},
        (OK, FIELD, OPTION),
    ),
    "where: 10,001 characters": ({"where": "id = 1 " + " " * 10_000}, (FIELD,)),
    "where: 101 parentheses": ({"where": "(" * 101 + "id = 1" + ")" * 101}, (FIELD,)),
    "where: 100 parentheses": ({"where": "(" * 100 + "id = 1" + ")" * 100, "dry_run": True}, (OK, FIELD)),
    "where: 900 times NOT": ({"where": "NOT " * 900 + "id = 1", "dry_run": True}, (OK, FIELD)),
    "where: 900 times OR": ({"where": " OR ".join(["id = 1"] * 900), "dry_run": True}, (OK, FIELD)),
    "where: a list of 3,000": ({"where": f"id IN ({','.join(['1'] * 3000)})", "dry_run": True}, (OK, FIELD)),
    "where: SQL": ({"where": "id = (SELECT max(id) FROM t)"}, (FIELD,)),
    "where: a call": ({"where": "getenv('CANARY') = 'x'"}, (FIELD,)),
    "where: an unclosed quote": ({"where": "name = 'x"}, (FIELD,)),
    "where: NUL": ({"where": "name = 'a\0b'", "dry_run": True}, (OK, FIELD)),
    "where: a column of nobody": ({"where": "victim = 1"}, (FIELD,)),
    "partition_filter: nobody": ({"partition_filter": {"victim": 1}}, (FIELD, "400 INVALID_PARTITION_FILTER")),
    "partition_filter: 50,000 of them": ({"partition_filter": [{"p": i} for i in range(50_000)], "dry_run": True}, (OK, FIELD)),
    "partition_filter: a list for a value": ({"partition_filter": {"p": [1]}}, (FIELD,)),
    "partition_filter: a text": ({"partition_filter": "p=1"}, (FIELD,)),
    "plan_id of nobody": ({"plan_id": "1-abc"}, (FIELD, "409 PLAN_CHANGED")),
    "plan_id of a path": ({"plan_id": "../../x"}, (FIELD, "409 PLAN_CHANGED")),
    "plan_id of 1 MB": ({"plan_id": "9" * 1_000_000}, (FIELD, "409 PLAN_CHANGED")),
    "time_budget_seconds of 0": ({"time_budget_seconds": 0}, (FIELD,)),
    "time_budget_seconds of 10^300": ({"time_budget_seconds": 1e300}, (OK, FIELD)),
    "snapshot_retention_hours of -1": ({"snapshot_retention_hours": -1}, (FIELD, RETENTION)),
    "snapshot_retention_hours of 10^300": ({"snapshot_retention_hours": 1e300}, (OK, FIELD, RETENTION)),
    "verify of nobody": ({"verify": "never"}, (FIELD,)),
    "async that is a text": ({"async": "true"}, (FIELD,)),
    "async with 100 KB of fields": ({"async": True, "partition_filter": [{"p": i} for i in range(8000)]}, (LARGE, FIELD)),
    "the victim's table": ({"table": "orders", "force": True}, (NO_TABLE,)),
    "a time-series of nothing": ({"selection": "time-series", "dry_run": True}, (OK, FIELD, OPTION)),
}  # fmt: skip
OTHERS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "EXPIRE: -1 hours": ("EXPIRE_SNAPSHOTS", {"retention_hours": -1}, (FIELD, RETENTION)),
    "EXPIRE: keep 0": ("EXPIRE_SNAPSHOTS", {"min_snapshots_to_keep": 0}, (FIELD, RETENTION)),
    "EXPIRE: keep 10^30": ("EXPIRE_SNAPSHOTS", {"min_snapshots_to_keep": 10**30, "dry_run": True}, (OK, FIELD, RETENTION)),
    "EXPIRE: a grace of -1": ("EXPIRE_SNAPSHOTS", {"grace_hours": -1}, (FIELD, RETENTION)),
    "EXPIRE: a grace of 10^300": ("EXPIRE_SNAPSHOTS", {"grace_hours": 1e300, "dry_run": True}, (OK, FIELD, RETENTION)),
    "EXPIRE: undo a path": ("EXPIRE_SNAPSHOTS", {"undo": "../../../etc/passwd"}, ("404 UNDO_NOT_FOUND", FIELD)),
    "EXPIRE: undo the victim's": (
        "EXPIRE_SNAPSHOTS", {"undo": f"../../{VICTIM}__default/orders/x"}, ("404 UNDO_NOT_FOUND", FIELD)
    ),
    "EXPIRE: undo 1 MB": ("EXPIRE_SNAPSHOTS", {"undo": "u" * 1_000_000}, ("404 UNDO_NOT_FOUND", FIELD)),
    "EXPIRE: the victim's": ("EXPIRE_SNAPSHOTS", {"table": "orders"}, (NO_TABLE,)),
    "ORPHANS: younger than now": ("REMOVE_ORPHAN_FILES", {"older_than_hours": -1, "dry_run": False}, (FIELD, RETENTION)),
    "ORPHANS: 0 hours": ("REMOVE_ORPHAN_FILES", {"older_than_hours": 0, "dry_run": False}, (FIELD, RETENTION)),
    "ORPHANS: the victim's": ("REMOVE_ORPHAN_FILES", {"table": "orders"}, (NO_TABLE,)),
    "MAINTAIN: a step of nobody": ("MAINTAIN", {"steps": ["shell"]}, (FIELD,)),
    "MAINTAIN: 50,000 steps": ("MAINTAIN", {"steps": ["expire"] * 50_000, "dry_run": True}, (OK, FIELD)),
    "MAINTAIN: no steps": ("MAINTAIN", {"steps": []}, (OK, FIELD)),
    "MANIFESTS: the victim's": ("REWRITE_MANIFESTS", {"table": "orders"}, (NO_TABLE,)),
    "HEALTH: the victim's": ("TABLE_HEALTH", {"table": "orders", "explain": True}, (NO_TABLE,)),
    "STATS: the victim's": ("TABLE_STATS", {"table": "orders"}, (NO_TABLE,)),
    "NOTICE: of the victim's": ("NOTIFY_COMMIT", {"table": "orders"}, (NO_TABLE,)),
    "REPORT: of the victim's": ("REPORT_METRICS", {"table": "orders", "report": _SCAN}, (NO_FLEET_TABLE, NO_FLEET)),
    "REPORT: of a commit to the victim's": ("REPORT_METRICS", {"table": "orders", "report": {"report-type": "commit-report"}}, (NO_TABLE,)),
    "REPORT: 10^30 files": ("REPORT_METRICS", {"report": {**_SCAN, "metrics": {"result-data-files": {"unit": "count", "value": 10**30}}}}, (FIELD,)),
    "FLEET: the plan of everybody": ("FLEET_PLAN", {"table": None, "tenant_id": None}, (MISSING,)),
    "FLEET: nobody's plan": ("FLEET_APPLY", {"table": None, "plan_id": "fleet-plan-1"}, (NO_PLAN, NO_FLEET)),
    "FLEET: a path for a plan": ("FLEET_APPLY", {"table": None, "plan_id": "../../fleet.db"}, (NO_PLAN, NO_FLEET, FIELD)),
    "FLEET: SQL for a plan": ("FLEET_APPLY", {"table": None, "plan_id": "'OR'1'='1"}, (NO_PLAN, NO_FLEET, FIELD)),
    "FLEET: the victim's table": ("FLEET_STATUS", {"table": "orders"}, (NO_FLEET_TABLE, NO_FLEET)),
    "FLEET: the victim's runs": ("FLEET_HISTORY", {"table": "orders"}, (NO_FLEET_TABLE, NO_FLEET)),
    "FLEET: the victim's namespace": ("FLEET_STATUS", {"table": "orders", "namespace": "victim__default"}, (NAME,)),
    "FLEET: a status of nobody": ("FLEET_STATUS", {"table": None, "status": "' OR 1=1 --"}, (FIELD,)),
    "FLEET: 10^30 tables": ("FLEET_SCAN", {"table": None, "max_tables": 10**30}, (OK, FIELD, NO_FLEET)),
    "FLEET: for -1 seconds": ("FLEET_SCAN", {"table": None, "time_budget_seconds": -1}, (FIELD,)),
    "SWEEP: of everybody": ("SWEEP", {"table": None, "tenant_id": None}, (MISSING,)),
    "SWEEP: the victim's namespace": ("SWEEP", {"table": None, "namespace": "victim__default"}, (NAME,)),
    "SWEEP: 10^30 tables": ("SWEEP", {"table": None, "max_tables": 10**30, "dry_run": True, "max_jobs": 0}, (OK, FIELD)),
    "SWEEP: for -1 seconds": ("SWEEP", {"table": None, "time_budget_seconds": -1}, (FIELD,)),
    "SWEEP: -1 jobs": ("SWEEP", {"table": None, "max_jobs": -1}, (FIELD,)),
    "JOB: nobody's": ("JOB_STATUS", {"table": None, "job_id": "job-1"}, (NO_JOB,)),
    "JOB: a path": ("JOB_STATUS", {"table": None, "job_id": "../../jobs.db"}, (NO_JOB, FIELD)),
    "JOB: SQL": ("JOB_STATUS", {"table": None, "job_id": "x' OR '1'='1"}, (NO_JOB, FIELD)),
    "JOB: 1 MB": ("JOB_STATUS", {"table": None, "job_id": "j" * 1_000_000}, (NO_JOB, FIELD)),
    "JOB: a number": ("JOB_STATUS", {"table": None, "job_id": 1}, (FIELD,)),
    "JOB: NUL": ("JOB_STATUS", {"table": None, "job_id": "a\0b"}, (NO_JOB, FIELD)),
    "JOB: cancel nobody's": ("JOB_CANCEL", {"table": None, "job_id": "job-1"}, (NO_JOB,)),
    "JOBS: 101 of them": ("LIST_JOBS", {"table": None, "limit": 101}, (FIELD,)),
    "JOBS: 0 of them": ("LIST_JOBS", {"table": None, "limit": 0}, (FIELD,)),
    "JOBS: in a state of nobody": ("LIST_JOBS", {"table": None, "state": "' OR 1=1 --"}, (FIELD,)),
    "JOBS: a page of nobody": ("LIST_JOBS", {"table": None, "page_token": "x"}, (FIELD,)),
    "JOBS: a page of 1 MB": ("LIST_JOBS", {"table": None, "page_token": "x" * 1_000_000}, (FIELD,)),
    "NAMESPACES: of a catalog of nobody": ("LIST_NAMESPACES", {"table": None, "catalog": "x"}, ("404 CATALOG_NOT_FOUND",)),
}  # fmt: skip


def _token(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


TOKENS = {
    "a text": "x",
    "1 MB": "A" * 1_000_000,
    "an empty object": _token({}),
    "a list": _token([]),
    "a deep list": base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    "another tenant's": _token({"run": "r", "tenant_id": VICTIM, "table": "orders", "snapshot_id": 1, "request": {}}),
    "a pickle": base64.urlsafe_b64encode(b"\x80\x04cos\nsystem\n(S'true'\ntR.").decode(),
    "a zip bomb's head": base64.urlsafe_b64encode(b"\x1f\x8b\x08" + b"\0" * 5000).decode(),
}


def attacks(_: Scene) -> Iterator[Attack]:
    for name, (value, allowed) in VALUES.items():
        yield asks("WRITE", name, "WRITE", *allowed, records=[{"id": 1, "p": 1} | value])
    for name, (fields, allowed) in WRITES.items():
        yield asks("WRITE", name, "WRITE", *allowed, **fields)
    for name, (fields, allowed) in COMPACTS.items():
        yield asks("COMPACT", name, "COMPACT", *allowed, **fields)
    for name, token in TOKENS.items():
        yield asks("COMPACT", f"a resume token: {name}", "COMPACT", FIELD, resume_token=token)
    for name, (operation, fields, allowed) in OTHERS.items():
        yield post("Maintenance and jobs", name, body_of(operation, **fields), *allowed)
    yield from _wrong_types()


OPERATIONS = [
    "ALTER_TABLE",
    "COMPACT",
    "CREATE_TABLE",
    "CREATE_TAG",
    "DESCRIBE_TABLE",
    "DROP_TABLE",
    "DROP_TAG",
    "EXPIRE_SNAPSHOTS",
    "FLEET_APPLY",
    "FLEET_HISTORY",
    "FLEET_PLAN",
    "FLEET_SCAN",
    "FLEET_STATUS",
    "HEALTH_CHECK",
    "JOB_CANCEL",
    "JOB_STATUS",
    "LIST_JOBS",
    "LIST_NAMESPACES",
    "LIST_TABLES",
    "MAINTAIN",
    "NOTIFY_COMMIT",
    "QUERY",
    "REMOVE_ORPHAN_FILES",
    "REPORT_METRICS",
    "REWRITE_MANIFESTS",
    "ROLLBACK",
    "SWEEP",
    "TABLE_HEALTH",
    "TABLE_STATS",
    "WRITE",
]
FOR_ALL = ("tenant_id", "table", "namespace", "catalog", "request_id")


def _wrong_types() -> Iterator[Attack]:
    """Each operation with every common field of a type that it never has."""
    refused = (FIELD, MISSING, UNKNOWN_FIELD, NAME, FORBIDDEN, BAD_REQUEST)
    for operation in OPERATIONS:
        wrong = {name: [{"a": [1]}] for name in FOR_ALL}
        yield post("Wrong types", f"{operation}: lists for texts", {"operation": operation, **wrong}, *refused)
        many = {"operation": operation, **{f"f{i}": i for i in range(3000)}}
        yield post("Wrong types", f"{operation}: 3,000 fields of nobody", many, *refused)
