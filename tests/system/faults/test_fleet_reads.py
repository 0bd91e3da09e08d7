"""Reports of readers reach a fleet's memory by the path that REST catalogs of Iceberg have, and change its order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regelate.adapters.records.sqlite_fleet import SqliteFleet
from regelate.errors import Unavailable
from regelate.service.fleet_reads import BUNDLE_SECONDS, FleetReads
from tests.system.faults.stack import LOCAL_CATALOG, Stack, stack_with
from tests.system.faults.test_automatic import foreign
from tests.system.faults.test_fleet_desk import FLEET, JOBS, ill, stack_of, standing, store_of

REPORT = json.loads((Path(__file__).parents[3] / "events" / "report_metrics.json").read_text())["report"]


def scanned(files: int) -> dict[str, Any]:
    return {**REPORT, "metrics": {**REPORT["metrics"], "result-data-files": {"unit": "count", "value": files}}}


def path_of(table: str, namespace: str = "default", prefix: str = "local/") -> str:
    return f"/v1/{prefix}namespaces/{namespace}/tables/{table}/metrics"


def reported(stack: Stack, path: str, report: object, **how: Any) -> tuple[int, str | None]:
    event = {
        "version": "2.0",
        "rawPath": path,
        "headers": {},
        "requestContext": {"http": {"method": "POST", "path": path}, "requestId": "r", "stage": "$default", **how},
        "body": report if isinstance(report, str) else json.dumps(report),
        "isBase64Encoded": False,
    }
    answered = stack.invoke(event)
    error = json.loads(answered["body"])["error"] if answered["body"] else {}
    return answered["statusCode"], error.get("code")


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return stack_of(tmp_path)


@pytest.mark.parametrize("prefix", ["local/", ""])
def test_reports_of_readers_change_what_is_done_first(stack: Stack, prefix: str) -> None:
    ill(stack, "worse", 9)
    ill(stack, "read", 8)
    stack.ok("FLEET_SCAN")
    assert [run["table"] for run in stack.ok("FLEET_PLAN")["runs"]] == ["default.worse", "default.read"]
    uuid = {state.ident: state.table_uuid for state in store_of(stack).states()}
    store_of(stack).change(uuid["default.worse"], lambda state: state.read(1, 9, store_of(stack).now_ms()))  # type: ignore[union-attr]
    store_of(stack).change(uuid["default.read"], lambda state: state.read(99, 99 * 8, store_of(stack).now_ms()))  # type: ignore[union-attr]
    assert reported(stack, path_of("read", prefix=prefix), scanned(8)) == (204, None)
    first, _ = stack.ok("FLEET_PLAN")["runs"]
    assert (first["table"], first["benefit_per_day"] > 0) == ("default.read", True)
    assert "it is read 100.0 times a day" in first["reason"]


def test_a_query_of_the_head_counts_itself_and_one_of_the_past_does_not(stack: Stack) -> None:
    ill(stack, "t", 4)
    stack.ok("QUERY", "t")  # nobody remembers the table yet: the query has its answer all the same
    stack.ok("FLEET_SCAN")
    fresh = stack_of(stack.folder.parent)
    snapshot_id = fresh.ok("TABLE_STATS", "t")["snapshot_id"]
    fresh.ok("QUERY", "t", snapshot_id=snapshot_id)
    assert store_of(fresh).states()[0].reads is None
    fresh.ok("QUERY", "t")
    reads = store_of(fresh).states()[0].reads
    assert reads is not None
    assert (reads.count, reads.files) == (1, 4)


@pytest.mark.parametrize(
    ("report", "code"),
    [
        ({}, "INVALID_FIELD"),
        ({"report-type": "view-report"}, "INVALID_FIELD"),
        ({"report-type": "scan-report"}, "INVALID_FIELD"),
        ({"report-type": "scan-report", "metrics": {"result-data-files": 3}}, "INVALID_FIELD"),
        (scanned(-1), "INVALID_FIELD"),
        (scanned(10**12), "INVALID_FIELD"),
        (scanned(True), "INVALID_FIELD"),
    ],
)
def test_what_is_no_report_counts_nothing(stack: Stack, report: dict[str, Any], code: str) -> None:
    ill(stack, "t", 2)
    stack.ok("FLEET_SCAN")
    assert reported(stack, path_of("t"), report) == (400, code)
    assert store_of(stack).states()[0].reads is None


def test_a_report_with_fields_of_a_later_version_counts_and_one_of_a_megabyte_does_not(stack: Stack) -> None:
    ill(stack, "t", 2)
    stack.ok("FLEET_SCAN")
    assert reported(stack, path_of("t"), {**scanned(2), "later": [1], "filter": True}) == (204, None)
    status, code = reported(stack, path_of("t"), {**scanned(2), "filter": "x" * 2**20})
    assert (status, code) == (413, "PAYLOAD_TOO_LARGE")


def test_a_table_that_the_fleet_does_not_know_and_a_catalog_of_nobody_are_not_found(stack: Stack) -> None:
    assert reported(stack, path_of("nothing"), scanned(1)) == (404, "FLEET_TABLE_NOT_FOUND")
    assert reported(stack, path_of("t", prefix="other/"), scanned(1)) == (404, "CATALOG_NOT_FOUND")


def test_a_commit_report_is_a_notice_of_the_commit(tmp_path: Path) -> None:
    stack = stack_of(tmp_path)
    foreign(stack)
    assert stack.ok("LIST_JOBS")["jobs"] == []
    commit = {"report-type": "commit-report", "operation": "append", "metrics": {}}
    assert reported(stack, path_of("w"), commit) == (204, None)
    (job,) = stack.ok("LIST_JOBS")["jobs"]
    assert job["origin"] == "EVENT"


def test_a_tenant_reports_of_its_own_tables_only_by_its_own_names_or_the_catalogs(tmp_path: Path) -> None:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    section = {
        "auth": "claims",
        "tenants": ["acme", "bolt"],
        "catalogs": {"local": catalog},
        "jobs": JOBS,
        "fleet": FLEET,
    }
    stack = stack_with(tmp_path / "lake", **section)
    claims = {tenant: {"custom:tenant_id": tenant} for tenant in ("acme", "bolt")}
    for tenant, claim in claims.items():
        named = {"tenant_id": tenant, "namespace": "n", "table": "t"}
        schema = {"fields": {"id": {"type": "long"}}}
        stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **named, "schema": schema}, claims=claim)
        stack.accepted("FLEET_SCAN", {"operation": "FLEET_SCAN", "tenant_id": tenant}, claims=claim)

    def sent(namespace: str, who: str) -> tuple[int, str | None]:
        return reported(stack, path_of("t", namespace), scanned(1), authorizer={"jwt": {"claims": claims[who]}})

    assert sent("acme__n", "bolt")[0] in (400, 404)
    assert all(state.reads is None for state in store_of(stack).states())
    assert sent("n", "acme") == (204, None)
    assert sent("bolt__n", "bolt") == (204, None)
    assert all(state.reads is not None for state in store_of(stack).states())
    assert reported(stack, path_of("t", "n"), scanned(1))[0] in (400, 403)


class Hands:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def test_a_hundred_reads_at_once_are_two_writes_to_the_store_and_none_is_lost(stack: Stack) -> None:
    ill(stack, "t", 2)
    stack.ok("FLEET_SCAN")
    store, clock = Counted(store_of(stack)), Hands()
    reads = FleetReads(lambda: store, stack.service.automatic, clock)  # type: ignore[arg-type]  # what it needs of one
    uuid = store_of(stack).states()[0].table_uuid
    for _ in range(99):
        reads.queried(uuid, 2)
    clock.sleep(BUNDLE_SECONDS)
    reads.queried(uuid, 2)
    found = store_of(stack).states()[0].reads
    assert found is not None
    assert store.changes == 2
    assert found.count == pytest.approx(100, rel=1e-4)
    assert standing(stack, "t")["files"] == 2


def test_a_query_is_answered_where_the_fleets_memory_is_out_of_reach(stack: Stack) -> None:
    class Gone:
        def change(self, *_: object) -> None:
            raise Unavailable("FLEET_UNAVAILABLE", "gone")

    FleetReads(Gone, stack.service.automatic, Hands()).queried("uuid", 1)  # type: ignore[arg-type,return-value]


class Counted:
    """A store that counts what is written to it."""

    def __init__(self, store: SqliteFleet) -> None:
        self._store = store
        self.changes = 0

    def change(self, table_uuid: str, change: Any) -> object:
        self.changes += 1
        return self._store.change(table_uuid, change)
