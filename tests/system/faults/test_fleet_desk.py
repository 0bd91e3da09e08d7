"""A fleet from door to door: seen, planned, begun, settled, explained; within its budgets, and each plan once."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regelate.adapters.records.sqlite_fleet import SqliteFleet
from regelate.core.fleet.cadence import orphans_due
from regelate.core.fleet.dealing import LEAST_SECONDS
from regelate.core.jobs.job import JobRecord
from regelate.errors import Unavailable
from regelate.handler import make_handler
from regelate.service.job_desk import JobDesk
from tests.entrypoints.fakes import LambdaContext
from tests.support.deletes_writer import add_position_deletes
from tests.system.faults.stack import LOCAL_CATALOG, Answer, Stack, request, schema, stack_with

JOBS = {"store": "sqlite", "path": "${REGELATE_HOME}/jobs.db"}
FLEET = {"store": "sqlite", "path": "${REGELATE_HOME}/fleet.db"}


def stack_of(folder: Path, policy: str | None = None, **more: object) -> Stack:
    fleet: dict[str, object] = dict(FLEET)
    if policy is not None:
        (folder / "regelate.yaml").write_text(policy)
        fleet["policy"] = str(folder / "regelate.yaml")
    section: dict[str, object] = {"auth": "none", "tenants": "*", "catalogs": {"local": LOCAL_CATALOG}, "jobs": JOBS}
    return stack_with(folder / "lake", **{**section, "fleet": fleet, **more})


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return stack_of(tmp_path)


def ill(stack: Stack, table: str, files: int, **fields: Any) -> None:
    stack.create(table, {"id": "long!"}, **fields)
    for number in range(files):
        stack.ok("WRITE", table, records=[{"id": number}])


def work(stack: Stack) -> None:
    while stack.service.worker.run_due_job(stopping=threading.Event()):
        pass


def files_of(stack: Stack, table: str) -> int:
    return int(stack.ok("TABLE_STATS", table)["files"])


def standing(stack: Stack, table: str) -> Answer:
    (found,) = stack.ok("FLEET_STATUS", table)["tables"]
    return dict(found)


def store_of(stack: Stack) -> SqliteFleet:
    return SqliteFleet(stack.folder / "fleet.db")


def test_a_fleet_is_seen_planned_and_compacted_and_says_what_it_did(stack: Stack) -> None:
    ill(stack, "worse", 12)
    ill(stack, "bad", 6)
    ill(stack, "well", 1)
    seen = stack.ok("FLEET_SCAN")
    assert (seen["observed"], seen["unchanged"], seen["errors"]) == (3, 0, [])
    assert seen["statuses"] == {"DUE": 2, "HEALTHY": 1}
    plan = stack.ok("FLEET_PLAN")
    assert [(run["table"], run["operation"], run["removes"]) for run in plan["runs"]] == [
        ("default.worse", "compact", 11),
        ("default.bad", "compact", 5),
    ]
    assert plan["dollars"] == pytest.approx(sum(run["dollars"] for run in plan["runs"]), abs=1e-5)
    assert files_of(stack, "worse") == 12
    begun = stack.ok("FLEET_APPLY", plan_id=plan["plan_id"])
    tools = stack.built.job_stores.tools
    assert tools is not None
    jobs = [tools.store.get(run["job_id"]) for run in begun["runs"]]
    assert [job.most_seconds for job in jobs if job is not None] == [LEAST_SECONDS] * 2
    assert [run["table"] for run in begun["runs"]] == ["default.worse", "default.bad"]
    assert {run["outcome"] for run in begun["runs"]} == {None}
    assert standing(stack, "worse")["status"] == "RUNNING"
    work(stack)
    assert (files_of(stack, "worse"), files_of(stack, "bad")) == (1, 1)
    history = stack.ok("FLEET_HISTORY")["runs"]
    assert {(run["table"], run["outcome"], run["files_before"], run["files_after"]) for run in history} == {
        ("default.worse", "DONE", 12, 1),
        ("default.bad", "DONE", 6, 1),
    }
    assert all(run["dollars"] > 0 and run["seconds"] > 0 for run in history)
    assert standing(stack, "worse")["status"] == "COOLING"
    assert stack.ok("FLEET_PLAN")["runs"] == []


def test_the_same_plan_again_does_its_work_once_and_tells_how_it_stands(stack: Stack) -> None:
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    plan_id = stack.ok("FLEET_PLAN")["plan_id"]
    first = stack.ok("FLEET_APPLY", plan_id=plan_id)["runs"][0]
    again = stack.ok("FLEET_APPLY", plan_id=plan_id)["runs"][0]
    assert (again["run_id"], again["job_id"]) == (first["run_id"], first["job_id"])
    work(stack)
    after = stack.ok("FLEET_APPLY", plan_id=plan_id)["runs"][0]
    assert (after["run_id"], after["outcome"]) == (first["run_id"], "DONE")
    assert len(stack.ok("LIST_JOBS")["jobs"]) == 1


def test_of_two_plans_of_one_state_the_second_begins_nothing_twice_and_says_why(stack: Stack) -> None:
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    first, second = (stack.ok("FLEET_PLAN")["plan_id"] for _ in range(2))
    assert len(stack.ok("FLEET_APPLY", plan_id=first)["runs"]) == 1
    left = stack.ok("FLEET_APPLY", plan_id=second)
    assert left["runs"] == []
    assert [item["table"] for item in left["left"]] == ["default.t"]
    assert "compact" in left["left"][0]["why"].lower()


def test_no_more_is_begun_than_the_budget_of_the_day_pays_and_who_waits_is_told_until_when(tmp_path: Path) -> None:
    unlimited = stack_of(tmp_path)
    for number in range(4):
        ill(unlimited, f"t{number}", 6)
    unlimited.ok("FLEET_SCAN")
    price = unlimited.ok("FLEET_PLAN")["dollars"]
    budget = price / 2
    stack = stack_of(tmp_path, f"budgets: {{dollars-per-day: {budget:.6f}}}\n")
    plan = stack.ok("FLEET_PLAN")
    assert 0 < len(plan["runs"]) < 4
    assert plan["bills"][0]["day_budget_dollars"] == pytest.approx(budget, abs=1e-6)
    stack.ok("FLEET_APPLY", plan_id=plan["plan_id"])
    work(stack)
    stack.ok("FLEET_SCAN")
    after = stack.ok("FLEET_STATUS")
    assert after["bills"][0]["day_dollars"] <= budget
    waiting = [table for table in after["tables"] if table["status"] == "OVER_BUDGET"]
    assert waiting
    assert all("is missing" in table["sentence"] and table["next_eligible_at"] for table in waiting)


def test_a_line_of_the_policy_that_switches_a_table_off_is_named(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, 'tables:\n  "default.mine":\n    enabled: off\n')
    ill(stack, "mine", 8)
    stack.ok("FLEET_SCAN")
    found = standing(stack, "mine")
    assert found["status"] == "DISABLED"
    assert "regelate.yaml line 3" in found["sentence"]
    assert stack.ok("FLEET_PLAN")["runs"] == []


def test_a_wrong_policy_is_refused_with_its_line_and_nothing_is_begun(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, "budgets:\n  dollars-per-day: -1\n")
    ill(stack, "t", 8)
    for operation in ("FLEET_SCAN", "FLEET_PLAN", "FLEET_APPLY"):
        error = stack.refused(400, "FLEET_POLICY_INVALID", [], {"operation": operation, "tenant_id": "default"})
        assert error["details"]["faults"][0]["line"] == 2
    assert files_of(stack, "t") == 8
    assert stack.ok("LIST_JOBS")["jobs"] == []


def test_a_table_whose_head_has_not_moved_is_known_by_its_metadata_alone(stack: Stack) -> None:
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    folder = stack.folder / "warehouse" / "default" / "t" / "metadata"
    for manifest in folder.glob("*-m*.avro"):
        manifest.unlink()  # whoever reads one fails
    again = stack.ok("FLEET_SCAN")
    assert (again["observed"], again["unchanged"], again["errors"]) == (1, 1, [])


def test_a_table_that_cannot_be_seen_is_told_and_keeps_no_other_from_being_seen(stack: Stack) -> None:
    ill(stack, "a", 3)
    ill(stack, "b", 3)
    folder = stack.folder / "warehouse" / "default" / "a" / "metadata"
    for manifest in folder.glob("*-m*.avro"):
        manifest.write_bytes(b"no Avro")
    seen = stack.ok("FLEET_SCAN")
    assert [error["table"] for error in seen["errors"]] == ["default.a"]
    assert standing(stack, "b")["observed_at"] is not None


def test_a_scan_goes_on_where_the_one_before_was_ended(stack: Stack) -> None:
    for number in range(3):
        ill(stack, f"t{number}", 1)
    assert stack.ok("FLEET_SCAN", max_tables=2)["backlog"] == 1
    assert stack.ok("FLEET_SCAN", max_tables=1)["backlog"] == 2
    assert {table["table"] for table in stack.ok("FLEET_STATUS")["tables"]} == {
        "default.t0",
        "default.t1",
        "default.t2",
    }


def test_a_renamed_table_keeps_its_history_and_a_dropped_one_is_gone(stack: Stack) -> None:
    ill(stack, "old", 8)
    ill(stack, "dropped", 1)
    stack.ok("FLEET_SCAN")
    stack.ok("FLEET_APPLY")
    work(stack)
    stack.built.catalog().rename_table("default.old", "default.new")
    stack.ok("DROP_TABLE", "dropped")
    seen = stack.ok("FLEET_SCAN")
    assert seen["gone"] == ["default.dropped"]
    assert [run["table"] for run in stack.ok("FLEET_HISTORY", "new")["runs"]] == ["default.new"]
    assert {table["table"] for table in stack.ok("FLEET_STATUS")["tables"]} == {"default.new"}
    stack.refused(
        404, "FLEET_TABLE_NOT_FOUND", [], {"operation": "FLEET_STATUS", "tenant_id": "default", "table": "old"}
    )


def test_snapshots_are_expired_before_the_answer(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, "defaults:\n  rewrite-manifests: off\n", retention={"minimum_retention_hours": 0})
    stack.create("t", {"id": "long!"}, properties={"history.expire.max-snapshot-age-ms": "1"})
    for number in range(40):
        stack.ok("WRITE", "t", records=[{"id": number}])
    stack.ok("COMPACT", "t", force=True, expire_snapshots=False)
    stack.ok("FLEET_SCAN")
    begun = stack.ok("FLEET_APPLY")
    assert [(run["operation"], run["outcome"]) for run in begun["runs"]] == [("expire-snapshots", "DONE")]
    assert len(stack.table("default.t").snapshots()) == 1


def test_a_run_whose_job_fails_rests_the_table_and_says_of_what(stack: Stack) -> None:
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    stack.ok("FLEET_APPLY")
    folder = stack.folder / "warehouse" / "default" / "t" / "data"
    for data_file in folder.rglob("*.parquet"):
        data_file.write_bytes(b"no Parquet")
    work(stack)
    found = standing(stack, "t")
    assert found["status"] == "FAILED"
    assert found["last_run"]["error"].split(":")[0] in found["sentence"]
    assert found["next_eligible_at"] is not None


def test_a_table_that_has_a_job_of_somebody_else_s_is_left_to_it(stack: Stack) -> None:
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    plan_id = stack.ok("FLEET_PLAN")["plan_id"]
    status, other = stack.post(request("COMPACT", "t", **{"async": True}))
    assert status == 202
    left = stack.ok("FLEET_APPLY", plan_id=plan_id)
    assert (left["runs"], other["job_id"] in left["left"][0]["why"]) == ([], True)
    assert standing(stack, "t")["status"] == "DUE"
    work(stack)
    assert stack.ok("FLEET_HISTORY")["runs"] == []


def test_a_run_whose_job_was_never_made_ends_after_a_quarter_of_an_hour(stack: Stack) -> None:
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    kept = store_of(stack)
    plan_id = stack.ok("FLEET_PLAN")["plan_id"]
    body = json.loads(kept.recall(f"local/('default',)/{plan_id}") or "[]")
    from regelate.core.fleet.state_json import run_of_json

    run = run_of_json(body[0]["run"])
    kept.change(body[0]["table_uuid"], lambda state: state.queued(run))  # type: ignore[union-attr]
    assert standing(stack, "t")["status"] == "QUEUED"
    old = replace(run, queued_ms=run.queued_ms - 16 * 60 * 1000)
    kept.change(body[0]["table_uuid"], lambda state: replace(state, live=old))  # type: ignore[type-var]
    found = standing(stack, "t")
    assert (found["status"], found["last_run"]["outcome"]) == ("FAILED", "FAILED")


def test_a_plan_is_its_tenant_s_own(tmp_path: Path) -> None:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    stack = stack_of(tmp_path, tenants=["acme", "globex"], catalogs={"shared": catalog})
    for tenant in ("acme", "globex"):
        fields = {"tenant_id": tenant, "table": "t"}
        stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
        for number in range(6):
            stack.accepted("WRITE", {"operation": "WRITE", **fields, "records": [{"id": number}]})
        stack.accepted("FLEET_SCAN", {"operation": "FLEET_SCAN", "tenant_id": tenant})
    plan = stack.accepted("FLEET_PLAN", {"operation": "FLEET_PLAN", "tenant_id": "acme"})
    assert [run["table"] for run in plan["runs"]] == ["acme__default.t"]
    assert {bill["tenant"] for bill in plan["bills"]} == {"acme"}
    asked = {"operation": "FLEET_APPLY", "plan_id": plan["plan_id"]}
    stack.refused(404, "FLEET_PLAN_NOT_FOUND", [], {**asked, "tenant_id": "globex"})
    seen = stack.accepted("FLEET_STATUS", {"operation": "FLEET_STATUS", "tenant_id": "globex"})
    assert [table["table"] for table in seen["tables"]] == ["globex__default.t"]
    assert len(stack.accepted("FLEET_APPLY", {**asked, "tenant_id": "acme"})["runs"]) == 1


def test_without_a_place_to_remember_them_there_are_no_fleets(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, fleet={"store": "none"})
    for operation in ("FLEET_SCAN", "FLEET_PLAN", "FLEET_STATUS", "FLEET_HISTORY"):
        stack.refused(501, "FLEET_DISABLED", [], {"operation": operation, "tenant_id": "default"})


def test_a_glob_that_names_no_table_is_refused_when_somebody_plans_and_not_by_the_schedule(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, 'tables:\n  "default.typo": off\n'.replace(": off", ":\n    enabled: off"))
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    refused = stack.invoke({"operation": "FLEET_PLAN"})["error"]
    assert refused["code"] == "FLEET_POLICY_INVALID"
    assert "matches nothing" in refused["details"]["faults"][0]["message"]
    assert len(stack.ok("FLEET_PLAN")["runs"]) == 1  # a tenant can do nothing about it
    stack.service.fleet_desk().turn(stack.service.tenancy.everybody(None), ended=lambda: False)
    work(stack)
    assert files_of(stack, "t") == 1


def test_a_turn_of_the_schedule_scans_and_begins_and_stops_where_it_is_told_to(stack: Stack) -> None:
    ill(stack, "t", 8)
    everybody = stack.service.tenancy.everybody(None)
    stack.service.fleet_desk().turn(everybody, ended=lambda: True)
    assert stack.ok("FLEET_STATUS")["statuses"] == {"NOT_YET_OBSERVED": 1}
    stack.service.fleet_desk().turn(everybody, ended=lambda: False)
    work(stack)
    (run,) = stack.ok("FLEET_HISTORY")["runs"]
    assert (run["trigger"], run["asked_by"], run["outcome"]) == ("SCHEDULE", "the schedule", "DONE")


def test_a_turn_whose_news_nobody_takes_does_its_work_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = "https://127.0.0.1:1/T000/secret"
    stack = stack_of(tmp_path, fleet={**FLEET, "slack_webhook": nobody})
    ill(stack, "t", 8)
    stack.service.fleet_desk().turn(stack.service.tenancy.everybody(None), ended=lambda: False)
    work(stack)
    assert files_of(stack, "t") == 1
    assert "the news of the fleet were not sent: WEBHOOK_FAILED: the webhook at 127.0.0.1 cannot" in caplog.text
    assert "secret" not in caplog.text


def test_what_a_schedule_began_is_followed_by_its_news_and_what_somebody_asks_for_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stack = stack_of(tmp_path, fleet={**FLEET, "slack_webhook": "https://127.0.0.1:1/T000/secret"})
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    stack.ok("FLEET_APPLY")
    assert "news" not in caplog.text
    detail = {"operation": "FLEET_APPLY", "catalog": "*"}
    event = {"version": "0", "id": "1", "source": "regelate.schedule", "detail-type": "Scheduled Request"}
    make_handler(lambda: stack.service)({**event, "detail": detail}, LambdaContext())
    assert "the news of the fleet were not sent: WEBHOOK_FAILED: the webhook at 127.0.0.1 cannot" in caplog.text


def test_the_budget_is_of_all_catalogs_together(tmp_path: Path) -> None:
    other = {**LOCAL_CATALOG, "uri": "sqlite:///${REGELATE_HOME}/other.db", "warehouse": "${REGELATE_HOME}/elsewhere"}
    catalogs = {"local": LOCAL_CATALOG, "other": other}
    stack = stack_of(tmp_path, "budgets: {dollars-per-day: 0.0006}\n", catalogs=catalogs, default_catalog="local")
    for catalog in catalogs:
        fields = {"tenant_id": "default", "catalog": catalog, "table": "t"}
        stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
        for number in range(6):
            stack.accepted("WRITE", {"operation": "WRITE", **fields, "records": [{"id": number}]})
        stack.ok("FLEET_SCAN", catalog=catalog)
    begun = [len(stack.ok("FLEET_APPLY", catalog=catalog)["runs"]) for catalog in catalogs]
    assert sorted(begun) == [0, 1]


def test_deletes_are_applied_and_nothing_else_is_compacted_where_the_policy_says_so(tmp_path: Path) -> None:
    off = "defaults:\n  compact: off\n  rewrite-manifests: off\n  apply-deletes: on\n"
    stack = stack_of(tmp_path, off)
    ill(stack, "t", 12)
    first = stack.table("default.t").inspect.files()["file_path"].to_pylist()[0]
    add_position_deletes(stack.table("default.t"), {first: [0]})
    rows = stack.rows("t")
    stack.ok("FLEET_SCAN")
    begun = stack.ok("FLEET_APPLY")
    assert [run["operation"] for run in begun["runs"]] == ["apply-deletes"]
    work(stack)
    found = stack.ok("TABLE_STATS", "t")
    assert (found["files"], found["delete_files"]) == (11, 0)  # of one row, which is deleted, nothing is left
    assert stack.rows("t") == rows


def test_a_plan_is_for_the_table_that_it_was_made_for_and_not_for_one_of_its_name(stack: Stack) -> None:
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    plan_id = stack.ok("FLEET_PLAN")["plan_id"]
    stack.ok("DROP_TABLE", "t", purge=True)
    ill(stack, "t", 3)
    left = stack.ok("FLEET_APPLY", plan_id=plan_id)
    assert (left["runs"], left["left"][0]["why"]) == ([], "another table has its name now: scan again")
    work(stack)
    assert files_of(stack, "t") == 3


def test_a_plan_follows_a_table_that_was_renamed(stack: Stack) -> None:
    ill(stack, "old", 8)
    stack.ok("FLEET_SCAN")
    plan_id = stack.ok("FLEET_PLAN")["plan_id"]
    stack.built.catalog().rename_table("default.old", "default.new")
    stack.ok("FLEET_SCAN")
    assert [run["table"] for run in stack.ok("FLEET_APPLY", plan_id=plan_id)["runs"]] == ["default.new"]
    work(stack)
    assert files_of(stack, "new") == 1


def test_no_more_runs_are_under_way_at_once_than_the_policy_says_whoever_asks(tmp_path: Path) -> None:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    one = "limits: {max-running: 1}\n"
    stack = stack_of(tmp_path, one, tenants=["acme", "globex"], catalogs={"shared": catalog})
    begun = []
    for tenant in ("acme", "globex"):
        fields = {"tenant_id": tenant, "table": "t"}
        stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
        for number in range(6):
            stack.accepted("WRITE", {"operation": "WRITE", **fields, "records": [{"id": number}]})
        stack.accepted("FLEET_SCAN", {"operation": "FLEET_SCAN", "tenant_id": tenant})
        begun.append(stack.accepted("FLEET_APPLY", {"operation": "FLEET_APPLY", "tenant_id": tenant}))
    assert [len(answer["runs"]) for answer in begun] == [1, 0]
    assert "the most at once" in begun[1]["left"][0]["why"]


def test_a_table_with_the_uuid_of_another_tenant_s_is_refused_and_takes_nothing_of_it(tmp_path: Path) -> None:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    stack = stack_of(tmp_path, tenants=["acme", "globex"], catalogs={"shared": catalog})
    fields = {"tenant_id": "acme", "table": "t"}
    stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
    stack.accepted("WRITE", {"operation": "WRITE", **fields, "records": [{"id": 1}]})
    stack.accepted("FLEET_SCAN", {"operation": "FLEET_SCAN", "tenant_id": "acme"})
    opened = stack.built.catalog()
    opened.create_namespace("globex__default")
    opened.register_table("globex__default.copy", stack.table("acme__default.t").metadata_location)
    seen = stack.accepted("FLEET_SCAN", {"operation": "FLEET_SCAN", "tenant_id": "globex"})
    assert [error["code"] for error in seen["errors"]] == ["TABLE_KNOWN_ELSEWHERE"]
    mine = stack.accepted("FLEET_STATUS", {"operation": "FLEET_STATUS", "tenant_id": "acme"})
    assert [table["table"] for table in mine["tables"]] == ["acme__default.t"]
    (copy,) = stack.accepted("FLEET_STATUS", {"operation": "FLEET_STATUS", "tenant_id": "globex"})["tables"]
    assert (copy["table"], copy["status"]) == ("globex__default.copy", "NOT_YET_OBSERVED")


def test_tables_that_cannot_be_seen_keep_nobody_waiting(stack: Stack) -> None:
    for number in range(3):
        ill(stack, f"bad{number}", 1)
        for manifest in (stack.folder / "warehouse" / "default" / f"bad{number}" / "metadata").glob("*-m*.avro"):
            manifest.write_bytes(b"no Avro")
    ill(stack, "good", 1)
    while not stack.ok("FLEET_STATUS")["tables"]:
        stack.ok("FLEET_SCAN")
    stack.ok("WRITE", "good", records=[{"id": 9}])
    stack.ok("FLEET_SCAN", max_tables=2)
    assert standing(stack, "good")["files"] == 2


def test_a_policy_that_was_changed_holds_at_once(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, "defaults: {enabled: on}\n")
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    assert len(stack.ok("FLEET_PLAN")["runs"]) == 1
    (tmp_path / "regelate.yaml").write_text("defaults: {enabled: off}\n")
    os.utime(tmp_path / "regelate.yaml", ns=(1, 1))
    assert stack.ok("FLEET_PLAN")["runs"] == []
    assert standing(stack, "t")["status"] == "DISABLED"


def test_the_fleet_is_read_once_to_plan_and_to_begin(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    ill(stack, "t", 8)
    stack.ok("FLEET_SCAN")
    reads, read = [], SqliteFleet.states

    def counted(store: SqliteFleet) -> Any:
        reads.append(store)
        return read(store)

    monkeypatch.setattr(SqliteFleet, "states", counted)
    plan_id = stack.ok("FLEET_PLAN")["plan_id"]
    assert len(reads) == 1
    assert len(stack.ok("FLEET_APPLY", plan_id=plan_id)["runs"]) == 1
    assert len(reads) == 2
    work(stack)
    assert standing(stack, "t")["status"] == "COOLING"  # the end of the run is seen by a second look
    assert len(reads) == 4


def test_a_run_whose_job_nobody_noted_is_found_in_a_catalog_that_tenants_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = stack_of(tmp_path, tenants=["acme"])
    fields = {"tenant_id": "acme", "table": "t"}
    stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
    for number in range(6):
        stack.accepted("WRITE", {"operation": "WRITE", **fields, "records": [{"id": number}]})
    stack.accepted("FLEET_SCAN", {"operation": "FLEET_SCAN", "tenant_id": "acme"})
    submit = JobDesk.submit

    def lost(*args: Any, **more: Any) -> JobRecord:
        submit(*args, **more)
        raise Unavailable("JOBS_UNAVAILABLE", "the reply was lost")

    monkeypatch.setattr(JobDesk, "submit", lost)
    begun = stack.accepted("FLEET_APPLY", {"operation": "FLEET_APPLY", "tenant_id": "acme"})
    assert [run["outcome"] for run in begun["runs"]] == [None]
    work(stack)
    told = stack.accepted("FLEET_HISTORY", {"operation": "FLEET_HISTORY", "tenant_id": "acme"})
    assert [(run["outcome"], run["files_after"]) for run in told["runs"]] == [("DONE", 1)]
    jobs = stack.accepted("LIST_JOBS", {"operation": "LIST_JOBS", "tenant_id": "acme"})["jobs"]
    assert [job["job_id"] for job in jobs] == [told["runs"][0]["job_id"]]


def test_a_tenant_is_told_no_amount_of_what_all_tenants_spend_from(tmp_path: Path) -> None:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    policy = "budgets: {dollars-per-day: 0.00001}\n"
    stack = stack_of(tmp_path, policy, tenants=["acme", "globex"], catalogs={"shared": catalog})
    fields = {"tenant_id": "acme", "table": "t"}
    stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
    for number in range(6):
        stack.accepted("WRITE", {"operation": "WRITE", **fields, "records": [{"id": number}]})
    stack.accepted("FLEET_SCAN", {"operation": "FLEET_SCAN", "tenant_id": "acme"})
    (mine,) = stack.accepted("FLEET_STATUS", {"operation": "FLEET_STATUS", "tenant_id": "acme"})["tables"]
    (known,) = stack.invoke({"operation": "FLEET_STATUS"})["tables"]
    assert "not enough is left of the day of the fleet" in mine["sentence"]
    assert "is missing" in known["sentence"]
    assert "is missing" not in mine["sentence"]


def test_a_tenant_is_told_the_broken_lines_of_a_policy_that_are_about_itself(tmp_path: Path) -> None:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    stack = stack_of(tmp_path, "version: 1\n", tenants=["acme", "globex", "new"], catalogs={"shared": catalog})
    for tenant in ("acme", "globex"):
        fields = {"tenant_id": tenant, "table": "t"}
        stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
        stack.accepted("FLEET_SCAN", {"operation": "FLEET_SCAN", "tenant_id": tenant})
    (tmp_path / "regelate.yaml").write_text(
        "limits: {max-running: -7}\n"
        "tenants: {budgets: {acme: {dollars-per-day: -1}}}\n"
        "namespaces:\n"
        "  acme__*: {enabled: maybe}\n"
        "tables:\n"
        "  globex__default.t: {merger-with-initech: on}\n"
    )
    os.utime(tmp_path / "regelate.yaml", ns=(1, 1))

    def told(**who: str) -> tuple[list[int], str]:
        error = stack.invoke({"operation": "FLEET_STATUS", **who})["error"]
        assert error["code"] == "FLEET_POLICY_INVALID"
        return [fault["line"] for fault in error["details"]["faults"]], json.dumps(error)

    assert told()[0] == [1, 2, 4, 6]
    acme, globex, new = (told(tenant_id=tenant) for tenant in ("acme", "globex", "new"))
    assert (acme[0], globex[0], new[0]) == ([2, 4], [6], [])
    assert "globex" not in acme[1]
    assert "acme" not in globex[1]
    assert "operators have to mend it" in new[1]
    assert all(word not in new[1] for word in ("acme", "globex", "initech", "-7"))


def schedule(stack: Stack, operation: str) -> Answer:
    event = json.loads(Path(f"events/scheduler_{operation.lower()}.json").read_text())
    assert event["detail"]["operation"] == operation
    return stack.invoke(event)


def test_the_schedule_looks_after_every_catalog_and_history_says_so(tmp_path: Path) -> None:
    other = {**LOCAL_CATALOG, "uri": "sqlite:///${REGELATE_HOME}/other.db", "warehouse": "${REGELATE_HOME}/elsewhere"}
    broken = {**LOCAL_CATALOG, "uri": "sqlite:///${REGELATE_HOME}"}
    catalogs = {"local": LOCAL_CATALOG, "broken": broken, "other": other}
    stack = stack_of(tmp_path, catalogs=catalogs, default_catalog="local")
    for catalog in ("local", "other"):
        fields = {"tenant_id": "default", "catalog": catalog, "table": "t"}
        stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
        for number in range(6):
            stack.accepted("WRITE", {"operation": "WRITE", **fields, "records": [{"id": number}]})
    seen = schedule(stack, "FLEET_SCAN")
    assert (seen["observed"], seen["statuses"]) == (2, {"DUE": 2})
    assert [error["table"] for error in seen["errors"]] == ["broken/*"]
    begun = schedule(stack, "FLEET_APPLY")
    assert sorted(run["table"] for run in begun["runs"]) == ["local/default.t", "other/default.t"]
    work(stack)
    for catalog in ("local", "other"):
        (run,) = stack.ok("FLEET_HISTORY", catalog=catalog)["runs"]
        assert (run["trigger"], run["asked_by"], run["files_after"]) == ("SCHEDULE", "the schedule", 1)
    assert [error["table"] for error in schedule(stack, "FLEET_SCAN")["errors"]] == ["broken/*"]


def test_all_catalogs_at_once_are_for_who_may_act_for_every_tenant(stack: Stack) -> None:
    for operation in ("FLEET_SCAN", "FLEET_APPLY"):
        body = {"operation": operation, "tenant_id": "default", "catalog": "*"}
        stack.refused(400, "INVALID_FIELD", ["catalog"], body)
        stack.refused(400, "MISSING_FIELD", [], {"operation": operation, "catalog": "*"})
    asked = stack.invoke({"operation": "FLEET_PLAN", "catalog": "*"})
    assert asked["error"]["code"] == "CATALOG_NOT_FOUND"


def test_each_scan_notes_what_is_left_to_do_and_a_tenant_is_told_its_own(tmp_path: Path) -> None:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    stack = stack_of(tmp_path, tenants=["acme", "globex"], catalogs={"shared": catalog})
    for tenant, files in (("acme", 6), ("globex", 9)):
        fields = {"tenant_id": tenant, "table": "t"}
        stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
        for number in range(files):
            stack.accepted("WRITE", {"operation": "WRITE", **fields, "records": [{"id": number}]})
    stack.invoke({"operation": "FLEET_SCAN"})
    asked = {"operation": "FLEET_HISTORY", "backlog_days": 1}
    (every,) = stack.invoke(asked)["backlog"][-1:]
    (mine,) = stack.accepted("FLEET_HISTORY", {**asked, "tenant_id": "acme"})["backlog"][-1:]
    assert (every["tables"], every["files"]) == (2, 5 + 8)
    assert (mine["tables"], mine["files"]) == (1, 5)
    assert 0 < mine["dollars"] < every["dollars"]
    begun = stack.accepted("FLEET_APPLY", {"operation": "FLEET_APPLY", "tenant_id": "acme"})
    assert len(begun["runs"]) == 1
    work(stack)
    stack.invoke({"operation": "FLEET_SCAN"})
    assert stack.invoke(asked)["backlog"][-1]["files"] == 8
    assert stack.accepted("FLEET_HISTORY", {"operation": "FLEET_HISTORY", "tenant_id": "acme"})["backlog"] == []


def test_a_table_says_itself_what_is_done_for_it_where_the_policy_lets_it(tmp_path: Path) -> None:
    off = "defaults: {rewrite-manifests: off}\n"
    stack = stack_of(tmp_path, f"{off}tables:\n  default.own: {{overrides: allowed}}\n")
    asked = {"regelate.fleet.compact.enabled": "false"}
    ill(stack, "own", 8, properties=asked)
    ill(stack, "other", 8, properties=asked)
    stack.ok("FLEET_SCAN")
    assert standing(stack, "own")["status"] == "DISABLED"
    assert "the table's property regelate.fleet.compact.enabled" in standing(stack, "own")["sentence"]
    told = standing(stack, "other")
    assert (told["status"], "compact.enabled of the table is not obeyed" in told["sentence"]) == ("DUE", True)
    stack.ok("ALTER_TABLE", "own", set_properties={"regelate.fleet.compact.enabled": "true"})
    stack.ok("FLEET_SCAN")
    assert {run["table"] for run in stack.ok("FLEET_PLAN")["runs"]} == {"default.other", "default.own"}


def test_a_target_that_a_table_names_for_its_fleet_is_that_of_its_runs(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, "defaults: {overrides: allowed, compact-options: {target-file-size-bytes: 64MB}}\n")
    ill(stack, "t", 8, properties={"regelate.fleet.target-file-size-bytes": "33554432"})
    stack.ok("FLEET_SCAN")
    (run,) = stack.ok("FLEET_APPLY")["runs"]
    tools = stack.built.job_stores.tools
    job = None if tools is None else tools.store.get(run["job_id"])
    assert job is not None
    assert job.request.options == {"target-file-size-bytes": 32 * 1024 * 1024}
    work(stack)
    assert files_of(stack, "t") == 1


def test_a_property_of_a_fleet_that_is_wrong_is_refused_or_told_and_not_obeyed(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, "defaults: {overrides: allowed}\n")
    ill(stack, "t", 8)
    for name, value in (
        ("compact.enabled", "maybe"),
        ("target-file-size-bytes", "0"),
        ("remove-orphan-files.enabled", "true"),
    ):
        body = request("ALTER_TABLE", "t", set_properties={f"regelate.fleet.{name}": value})
        stack.refused(400, "INVALID_OPTION", [name], body)
    with stack.table("default.t").transaction() as change:  # another engine's doing
        change.set_properties({"regelate.fleet.enabled": "maybe", "regelate.fleet.sleep": "1"})
    stack.ok("FLEET_SCAN")
    found = standing(stack, "t")
    assert found["status"] == "DUE"
    assert all(
        word in found["sentence"] for word in ("is not obeyed", "regelate.fleet.enabled", "regelate.fleet.sleep")
    )


def test_a_table_that_no_scan_has_come_to_stands_there_too_and_says_so(stack: Stack) -> None:
    for number in range(3):
        ill(stack, f"t{number}", 1)
    assert stack.ok("FLEET_SCAN", max_tables=1)["statuses"] == {"HEALTHY": 1, "NOT_YET_OBSERVED": 2}
    told = stack.ok("FLEET_STATUS", status="NOT_YET_OBSERVED")["tables"]
    assert len(told) == 2
    assert all("not looked at yet" in table["sentence"] and table["observed_at"] is None for table in told)
    assert stack.ok("FLEET_SCAN")["statuses"] == {"HEALTHY": 3}
    ill(stack, "new", 1)  # no scan has listed it
    assert standing(stack, "new")["status"] == "NOT_YET_OBSERVED"
    body = {"operation": "FLEET_STATUS", "tenant_id": "default", "table": "none"}
    stack.refused(404, "FLEET_TABLE_NOT_FOUND", [], body)


def test_a_tenant_is_told_of_its_own_tables_alone_that_nobody_looked_at(tmp_path: Path) -> None:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    stack = stack_of(tmp_path, tenants=["acme", "globex"], catalogs={"shared": catalog})
    for tenant in ("acme", "globex"):
        for name in ("a", "b"):
            fields = {"tenant_id": tenant, "table": name}
            stack.accepted("CREATE_TABLE", {"operation": "CREATE_TABLE", **fields, "schema": schema({"id": "long"})})
    for tenant in ("acme", "globex"):
        stack.accepted("FLEET_SCAN", {"operation": "FLEET_SCAN", "tenant_id": tenant, "max_tables": 1})
    for tenant in ("acme", "globex"):
        seen = stack.accepted("FLEET_STATUS", {"operation": "FLEET_STATUS", "tenant_id": tenant})
        assert seen["statuses"] == {"HEALTHY": 1, "NOT_YET_OBSERVED": 1}
        assert {table["table"].split("__")[0] for table in seen["tables"]} == {tenant}
    assert stack.invoke({"operation": "FLEET_STATUS"})["statuses"] == {"HEALTHY": 2, "NOT_YET_OBSERVED": 2}


def test_orphans_are_sought_where_the_policy_says_so_once_a_week_and_nowhere_else(tmp_path: Path) -> None:
    only = "defaults: {compact: off, expire-snapshots: off, rewrite-manifests: off}\n"
    stack = stack_of(tmp_path, f"{only}tables:\n  default.mine: {{remove-orphan-files: on}}\n", retention={})
    for table in ("mine", "other"):
        ill(stack, table, 1)
    orphan = stack.folder / "warehouse" / "default" / "mine" / "data" / "nobody.parquet"
    orphan.write_bytes(b"left behind")
    os.utime(orphan, (1, 1))
    stack.ok("FLEET_SCAN")
    assert "remove-orphan-files would look, as it does every week" in standing(stack, "mine")["sentence"].lower()
    assert standing(stack, "other")["status"] == "HEALTHY"
    begun = stack.ok("FLEET_APPLY")["runs"]
    assert [(run["table"], run["operation"], run["outcome"]) for run in begun] == [
        ("default.mine", "remove-orphan-files", "DONE")
    ]
    assert not orphan.exists()
    (state,) = [state for state in store_of(stack).states() if state.ident == "default.mine"]
    assert state.orphans_sought_ms > 0
    day = 24 * 3600 * 1000
    for days, due in ((6, False), (8, True)):
        seen = replace(state, observation=replace(state.observation, observed_ms=state.orphans_sought_ms + days * day))  # type: ignore[type-var]
        assert orphans_due(seen, state.orphans_sought_ms + days * day) == due
