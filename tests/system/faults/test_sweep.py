"""SWEEP from outside: every table of a catalog or a tenant, within budgets, and no table stops the others."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from regelate.adapters.iceberg.files.ledger import FOLDER, RunLedger
from tests.support.iceberg_tables import local_path
from tests.system.faults.stack import Stack, request, stack_of_tenants, stack_with

ORPHAN = "data/left-behind.parquet"


def left_behind(stack: Stack, ident: str, *, age_hours: float = 2.0) -> Path:
    """A run that died so long ago after it had written one file into a table."""
    table = stack.table(ident)
    orphan = f"{table.location()}/{ORPHAN}"
    metadata_folder = f"{table.location()}/metadata"
    run = RunLedger(table.io, metadata_folder, table_uuid=str(table.metadata.table_uuid), run=f"dead-{ident}")
    run.record([orphan])
    for entry in (local_path(metadata_folder) / FOLDER).glob("*.json"):
        os.utime(entry, (time.time() - age_hours * 3600,) * 2)
    local_path(orphan).parent.mkdir(parents=True, exist_ok=True)
    local_path(orphan).write_bytes(b"x" * 100)
    return local_path(orphan)


def tables_of(answer: dict[str, Any]) -> dict[str, list[str]]:
    return {t["table"]: [run["reason"] for run in t["runs"]] for t in answer["tables"]}


@pytest.fixture
def orphans(stack: Stack) -> dict[str, Path]:
    """A file of a dead run in each of three tables of two namespaces."""
    made = {}
    for namespace, table in (("default", "a"), ("default", "b"), ("other", "a")):
        stack.ok("CREATE_TABLE", table, namespace=namespace, schema={"fields": {"id": {"type": "long"}}})
        stack.ok("WRITE", table, namespace=namespace, records=[{"id": 1}])
        made[f"{namespace}.{table}"] = left_behind(stack, f"{namespace}.{table}")
    return made


def test_every_table_of_the_catalog_is_swept(stack: Stack, orphans: dict[str, Path]) -> None:
    answer = stack.ok("SWEEP")
    assert tables_of(answer) == {ident: ["DEAD_RUN"] for ident in orphans}
    assert (answer["tables_swept"], answer["files_deleted"], answer["bytes_freed"]) == (3, 3, 300)
    assert (answer["errors"], answer["backlog"]) == (0, 0)
    assert not any(path.exists() for path in orphans.values())
    again = stack.ok("SWEEP")
    assert (again["tables_swept"], again["files_deleted"], again["tables"]) == (3, 0, [])
    assert stack.rows("a") == [{"id": 1}]


def test_a_dry_run_says_the_same_and_touches_nothing(stack: Stack, orphans: dict[str, Path]) -> None:
    with stack.untouched():
        answer = stack.ok("SWEEP", dry_run=True)
    assert (answer["dry_run"], answer["files_deleted"], answer["bytes_freed"]) == (True, 3, 300)
    assert {**stack.ok("SWEEP"), "dry_run": True, "request_id": ""} == {**answer, "request_id": ""}


def test_one_namespace_may_be_swept_alone(stack: Stack, orphans: dict[str, Path]) -> None:
    assert set(tables_of(stack.ok("SWEEP", namespace="other"))) == {"other.a"}
    assert [ident for ident, path in orphans.items() if path.exists()] == ["default.a", "default.b"]


def test_row_23_an_unknown_namespace_is_not_an_empty_one(stack: Stack, orphans: dict[str, Path]) -> None:
    stack.refused(404, "NAMESPACE_NOT_FOUND", ["nowhere"], request("SWEEP", namespace="nowhere"))
    assert all(path.exists() for path in orphans.values())


def test_the_budget_of_tables_leaves_a_backlog_for_the_next(stack: Stack, orphans: dict[str, Path]) -> None:
    answer = stack.ok("SWEEP", max_tables=2)
    assert (answer["tables_swept"], answer["backlog"]) == (2, 1)
    (left,) = answer["backlog_tables"]
    assert [ident for ident, path in orphans.items() if path.exists()] == [left]


def test_the_budget_of_seconds_begins_no_table_after_it(stack: Stack, orphans: dict[str, Path]) -> None:
    answer = stack.ok("SWEEP", time_budget_seconds=1e-9)
    assert (answer["tables_swept"], answer["backlog"]) == (0, 3)
    assert sorted(answer["backlog_tables"]) == sorted(orphans)
    assert all(path.exists() for path in orphans.values())


def test_a_table_that_cannot_be_read_does_not_stop_the_others(stack: Stack, orphans: dict[str, Path]) -> None:
    table = stack.table("default.a")
    local_path(table.metadata_location).write_text("garbage")
    answer = stack.ok("SWEEP")
    assert answer["errors"] == 1
    failed = {t["table"]: t["error"]["code"] for t in answer["tables"] if t["error"] is not None}
    assert failed == {"default.a": "METADATA_CORRUPT"}
    assert [ident for ident, path in orphans.items() if path.exists()] == ["default.a"]


def test_a_tenant_sweeps_its_own_namespaces_only(tmp_path: Path) -> None:
    """`x_` is a tenant too: its `x___ns` begins with the prefix of `x`."""
    stack = stack_of_tenants(tmp_path / "lake", "x", "x_", "y")
    orphans = {}
    for tenant in ("x", "x_", "y"):
        body = request("CREATE_TABLE", "t", schema={"fields": {"id": {"type": "long"}}}, namespace="ns")
        stack.accepted("CREATE_TABLE", {**body, "tenant_id": tenant}, claims={"custom:tenant_id": tenant})
        orphans[tenant] = left_behind(stack, f"{tenant}__ns.t")
    for tenant in ("x", "x_"):
        body = {"operation": "SWEEP", "tenant_id": tenant}
        answer = stack.accepted("SWEEP", body, claims={"custom:tenant_id": tenant})
        assert (answer["tables_swept"], list(tables_of(answer))) == (1, [f"{tenant}__ns.t"])
    assert [tenant for tenant, path in orphans.items() if path.exists()] == ["y"]
    stack.refused(403, "FORBIDDEN", [], {"operation": "SWEEP", "tenant_id": "y"}, claims={"custom:tenant_id": "x"})


def test_a_sweep_for_all_tenants_reaches_each_of_them_and_no_namespace_of_anybody_else(tmp_path: Path) -> None:
    stack = stack_of_tenants(tmp_path / "lake", "x", "y_")
    orphans = {}
    for ident in ("x__ns.t", "y___ns.t", "stranger__ns.t", "plain.t"):
        catalog = stack.built.catalog()
        catalog.create_namespace(ident.partition(".")[0])
        catalog.create_table(ident, Schema(NestedField(1, "id", LongType(), required=False)))
        orphans[ident] = left_behind(stack, ident)
    event = {"detail-type": "Scheduled Request", "id": "sweep-1", "detail": {"operation": "SWEEP"}}
    answer = stack.invoke(event)
    assert (answer["tables_swept"], answer["errors"]) == (2, 0)
    assert sorted(tables_of(answer)) == ["x__ns.t", "y___ns.t"]
    assert [ident for ident, path in orphans.items() if path.exists()] == ["stranger__ns.t", "plain.t"]


def test_a_run_is_dead_after_the_configured_hours(tmp_path: Path) -> None:
    stack = stack_with(
        tmp_path / "lake", sweep={"longest_run_hours": 3}, auth="none", tenants="*", default_catalog="local",
        catalogs={"local": {"type": "sql", "uri": "sqlite:///${REGELATE_HOME}/catalog.db",
                            "warehouse": "${REGELATE_HOME}/warehouse"}},
    )  # fmt: skip
    stack.create("t", {"id": "long"})
    young = left_behind(stack, "default.t", age_hours=2.9)
    assert tables_of(stack.ok("SWEEP")) == {"default.t": ["RUN_MAY_BE_ALIVE"]}
    assert young.exists()
    left_behind(stack, "default.t", age_hours=3.1)
    assert tables_of(stack.ok("SWEEP")) == {"default.t": ["DEAD_RUN"]}
    assert not young.exists()


@pytest.mark.parametrize(("field", "value"), [("max_tables", 0), ("max_tables", "5"), ("time_budget_seconds", 0)])
def test_a_budget_that_is_none_is_refused(stack: Stack, field: str, value: object) -> None:
    stack.refused(400, "INVALID_FIELD", [field], request("SWEEP", **{field: value}))


def test_what_earlier_expiries_left_is_deleted_when_their_grace_is_over(stack: Stack) -> None:
    stack.create("t", {"id": "long"})
    for i in range(3):
        stack.ok("WRITE", "t", records=[{"id": i}])
    stack.ok("COMPACT", "t", force=True, expire_snapshots=False)
    later = time.time_ns() // 1_000_000 + 10 * 3_600_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack.built.clock, "now_ms", lambda: later)
        expired = stack.ok("EXPIRE_SNAPSHOTS", "t", retention_hours=2, grace_hours=24)
    assert (expired["snapshots_expired"], expired["files_deleted"]) == (3, 0)
    (early,) = stack.ok("SWEEP")["tables"]
    assert early["expiry"] == {"finished": 0, "waiting": 1, "files_deleted": 0, "bytes_freed": 0}
    quarantine = local_path(stack.table("default.t").location()) / "metadata" / "regelate" / "quarantine"
    for listed in quarantine.glob("*.json"):
        document = json.loads(listed.read_text())
        listed.write_text(json.dumps({**document, **({"recorded_ms": 0} if "recorded_ms" in document else {})}))
        os.utime(listed, (time.time() - 30 * 3600,) * 2)
    answer = stack.ok("SWEEP")
    (table,) = answer["tables"]
    assert (table["expiry"]["finished"], table["expiry"]["waiting"]) == (1, 0)
    assert answer["files_deleted"] == table["expiry"]["files_deleted"] == expired["files_quarantined"] > 0
    assert answer["bytes_freed"] == expired["bytes_quarantined"]
    assert stack.ok("SWEEP")["tables"] == []
    assert len(stack.rows("t")) == 3
