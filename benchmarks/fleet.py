"""A real fleet, made ill in six ways: whether it is cured in the order and for the price that its plan says."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from benchmarks.history import with_history
from benchmarks.measuring import Promise

TABLES, QUICK_TABLES = 200, 12
SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "part", StringType()), NestedField(3, "text", StringType())
)
PARTITIONED = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
ILLNESSES = ("tiny files", "small files in partitions", "position deletes", "equality deletes", "history", "manifests")


def fleet(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """Does a fleet of 200 ill tables do what its plan says, for the price that it says, within a third of the whole?"""
    tables = QUICK_TABLES if quick else TABLES
    catalog, service = _service(work)
    for number, name in enumerate(_names(tables)):
        _ill(catalog, name, number)
    rows = {name: _rows(service, name) for name in _names(tables)}
    scanned = _timed(lambda: _asked(service, "FLEET_SCAN", time_budget_seconds=3600))
    again = _timed(lambda: _asked(service, "FLEET_SCAN", time_budget_seconds=3600))
    whole = _asked(service, "FLEET_PLAN")
    # The first runs are dear guesses: with a tenth of the money the fleet learns how fast this machine is.
    first, _ = _within(work, whole["dollars"] / 10)
    learnt = _apply(service := first, _asked(first, "FLEET_PLAN")["plan_id"])
    _asked(service, "FLEET_SCAN", time_budget_seconds=3600)
    left = _asked(_service(work)[1], "FLEET_PLAN")
    spent = sum(run["dollars"] for run in learnt)
    service, budget = _within(work, spent + left["dollars"] / 3)
    plan = _asked(service, "FLEET_PLAN")
    ran = _apply(service, plan["plan_id"])
    after = _asked(service, "FLEET_SCAN", time_budget_seconds=3600)
    status = _asked(service, "FLEET_STATUS", limit=10_000)
    bill = status["bills"][0]["day_dollars"]
    kept = sum(_rows(service, name) == count for name, count in rows.items())
    planned = [(run["table"], run["operation"]) for run in plan["runs"]]
    told = sum(len(table["sentence"]) > 20 for table in status["tables"])
    found = {
        "tables": tables,
        "load_at_start": os.getloadavg()[0],
        "first scan": [{"seconds": scanned[1], "observed": scanned[0]["observed"]}],
        "second scan": [{"seconds": again[1], "unchanged": again[0]["unchanged"]}],
        "first runs": [{"runs": len(learnt), "dollars": spent, "median error": _error(learnt)}],
        "plan without a budget": [{"runs": len(left["runs"]), "dollars": left["dollars"]}],
        "plan with a third of it": [{"runs": len(plan["runs"]), "dollars": plan["dollars"]}],
        "what ran": [{"runs": len(ran), "dollars": bill, "seconds": sum(run["seconds"] for run in ran)}],
        "outcomes": dict(Counter(run["outcome"] for run in ran)),
        "statuses after": after["statuses"],
        "median error of predicted dollars": _error(ran),
        "median error of predicted seconds": _error(ran, "seconds"),
    }
    promises = [
        Promise(name="the bill / the budget", ratio=bill / budget, limit=1.0),
        Promise(
            name="runs that were not what the plan said, in its order",
            ratio=float([(r["table"], r["operation"]) for r in ran] != planned),
            limit=0.0,
        ),
        Promise(name="predicted dollars, median error as a share", ratio=_error(ran), limit=0.3),
        Promise(name="tables whose rows changed", ratio=float(tables - kept), limit=0.0),
        Promise(name="tables without a sentence", ratio=float(len(status["tables"]) - told), limit=0.0),
        Promise(
            name="tables of an unchanged fleet that were read again",
            ratio=float(tables - again[0]["unchanged"]),
            limit=0.0,
        ),
    ]
    return found, promises


def _error(ran: list[dict[str, Any]], what: str = "dollars") -> float:
    """Return the median of how far off predictions were, as a share of what was paid, or of the seconds it took."""
    return statistics.median(abs(run[what] - run[f"predicted_{what}"]) / run[what] for run in ran if run[what])


def _names(tables: int) -> list[str]:
    return [f"ill.t{number:03}" for number in range(tables)]


def _service(work: Path, policy: str | None = None) -> tuple[Catalog, Any]:
    """A service with one worker of this process, and its catalog as PyIceberg opens it."""
    from regelate.service.build import build
    from regelate.settings import load_settings

    lake = work / "fleet"
    lake.mkdir(parents=True, exist_ok=True)
    catalog = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}/warehouse"}
    section: dict[str, Any] = {"auth": "none", "tenants": "*", "catalogs": {"lake": catalog}}
    section["jobs"] = {"store": "sqlite", "path": f"{lake}/jobs.db"}
    section["fleet"] = {"store": "sqlite", "path": f"{lake}/fleet.db", "policy": policy, "apply_seconds": 3600}
    section["retention"] = {"minimum_retention_hours": 0}
    section["spark"] = {"run": "none"}
    (lake / "config.json").write_text(json.dumps({"environments": {"development": section}}))
    service = build(load_settings({"REGELATE_CONFIG": str(lake / "config.json"), "REGELATE_HOME": str(lake)}))
    return service.access.survey(), service


def _within(work: Path, budget: float) -> tuple[Any, float]:
    """Return a service whose policy allows so many dollars a day, and those."""
    policy = work / "fleet" / "regelate.yaml"
    policy.write_text(f"budgets: {{dollars-per-day: {budget:.9f}}}\n")
    return _service(work, policy=str(policy))[1], budget


def _asked(service: Any, operation: str, **fields: Any) -> dict[str, Any]:
    """Ask as the command line does, for all tenants, and return the answer as JSON has it."""
    from regelate.core.answers import answer_fields
    from regelate.entrypoints.actions import execute, parse_request
    from regelate.entrypoints.caller import Caller

    request = parse_request({"operation": operation, **fields})
    return answer_fields(execute(service, request, Caller(request_id="benchmark", trusted=True)))


def _apply(service: Any, plan_id: str) -> list[dict[str, Any]]:
    """Begin a plan and work off its jobs, as `regelate fleet apply` does, until all of it has been begun."""
    while True:
        told = _asked(service, "FLEET_APPLY", plan_id=plan_id)
        worked = False
        while service.worker.run_due_job(stopping=threading.Event()):
            worked = True
        if not worked:
            return list(told["runs"])


def _timed(ask: Any) -> tuple[dict[str, Any], float]:
    before = time.perf_counter()
    answer: dict[str, Any] = ask()
    return answer, time.perf_counter() - before


def _ill(catalog: Catalog, name: str, number: int) -> None:
    """Make one table, ill in the way of its number."""
    illness, size = ILLNESSES[number % len(ILLNESSES)], 4 + 3 * (number // len(ILLNESSES) % 12)
    catalog.create_namespace_if_not_exists("ill")
    if illness == "small files in partitions":
        table = catalog.create_table(name, SCHEMA, partition_spec=PARTITIONED)
        for batch in range(size):
            table.append(_batch(batch, 400, parts=5))
    elif illness == "history":
        table = catalog.create_table(name, SCHEMA, properties={"history.expire.max-snapshot-age-ms": "1"})
        with_history(catalog, table, 100 * size, lambda made: made.append(_batch(0, 5_000)))
    elif illness == "manifests":
        table = catalog.create_table(name, SCHEMA, properties={"regelate.compaction.min-input-files": "100000"})
        for batch in range(4 * size):
            table.append(_batch(batch, 10))
    else:
        table = catalog.create_table(name, SCHEMA)
        for batch in range(size):
            table.append(_batch(batch, 2_000))
        _deleted(table, illness)


def _deleted(table: Table, illness: str) -> None:
    from tests.support.deletes_writer import add_equality_deletes, add_position_deletes

    if illness == "position deletes":
        for path in table.inspect.files()["file_path"].to_pylist():
            add_position_deletes(table, {path: [0, 5, 7]})
    if illness == "equality deletes":
        for batch in range(3):
            add_equality_deletes(table, ["id"], [(batch * 2_000,), (batch * 2_000 + 1,)])


def _batch(batch: int, rows: int, *, parts: int = 1) -> pa.Table:
    ids = range(batch * rows, (batch + 1) * rows)
    columns = {
        "id": list(ids),
        "part": [f"p{i % parts}" for i in ids],
        "text": [f"row {i * 7919 % 104729}" for i in ids],
    }
    return pa.table(columns, schema=SCHEMA.as_arrow())


def _rows(service: Any, name: str) -> int:
    """Count the rows that a reader sees."""
    namespace, _, table = name.partition(".")
    fields = {"tenant_id": "default", "namespace": namespace, "table": table, "sql": "SELECT count(*) AS n FROM t"}
    return int(_asked(service, "QUERY", **fields)["rows"][0]["n"])
