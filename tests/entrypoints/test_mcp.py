"""The tools for AI assistants without a protocol around them: what each may ask and may not, and what is answered."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regelate.entrypoints.actions import OPERATIONS
from regelate.entrypoints.cli import main
from regelate.entrypoints.mcp.calls import MOST_ANSWER_BYTES, MOST_EXPLAINED, Called, Calls
from regelate.entrypoints.mcp.tools import TOOLS, McpTool
from regelate.service.build import build_service
from regelate.service.facade import Service

READING = {"LIST_TABLES", "TABLE_HEALTH", "LIST_JOBS", "FLEET_SCAN", "FLEET_PLAN", "FLEET_STATUS", "FLEET_HISTORY"}
"""Operations that change no table, whatever their fields say."""
NAMES = [tool.name for tool in TOOLS]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A lake with a table `sales.orders` of six files that want to be one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGELATE_HOME", str(tmp_path / "lake"))
    assert main(["create", "sales.orders", "--schema", "id:long!,word:string"]) == 0
    for number in range(6):
        (tmp_path / "rows.jsonl").write_text(json.dumps({"id": number, "word": "x"}) + "\n")
        assert main(["write", "sales.orders", "rows.jsonl"]) == 0
    capsys.readouterr()
    return tmp_path / "lake"


@pytest.fixture
def calls(lake: Path) -> Callable[..., Calls]:
    service = build_service({"REGELATE_HOME": str(lake)})

    def made(*, tenant: str | None = None, allow_write: bool = False) -> Calls:
        return Calls(lambda: service, tenant=tenant, catalog=None, allow_write=allow_write)

    return made


def made(called: Called) -> Any:
    """The answer of a call that did what it was asked."""
    assert not called.failed, called.text
    assert json.loads(called.text) == called.made
    return called.made


def refusal(called: Called) -> str:
    assert called.failed
    code: str = called.made["error"]["code"]
    assert called.text.startswith(f"{code}: ")
    assert "Traceback" not in called.text
    return code


@pytest.mark.parametrize("tool", TOOLS, ids=NAMES)
def test_what_a_tool_takes_are_fields_of_its_operation_and_what_is_fixed_cannot_be_said(tool: McpTool) -> None:
    properties = OPERATIONS[tool.operation].request.model_json_schema(by_alias=True)["properties"]
    assert {*tool.takes, *tool.fixed} <= set(properties)
    assert set(tool.needs) <= set(tool.takes)
    assert not set(tool.fixed) & set(tool.takes)
    assert not {"tenant_id", "operation", "request_id"} & set(tool.takes)
    schema = tool.schema()
    assert list(schema["properties"]) == list(tool.takes)
    assert schema["additionalProperties"] is False
    assert set(json.dumps(schema).split('"#/$defs/')[1:]) == set() or "$defs" in schema


def test_a_tool_that_is_offered_without_the_flag_can_change_nothing() -> None:
    for tool in Calls(pytest.fail, tenant=None, catalog=None, allow_write=False).tools:
        assert not tool.writes
        assert tool.operation in READING or tool.fixed.get("dry_run") is True


def test_every_tool_is_documented_with_its_operation() -> None:
    paper = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([A-Z_]+)", paper[paper.index("## Tools for AI") :], re.MULTILINE)
    assert sorted(rows) == sorted((tool.name, tool.operation) for tool in TOOLS)


def test_what_writes_runs_a_plan_and_nothing_without_its_id() -> None:
    writing = [tool for tool in TOOLS if tool.writes]
    assert [tool.name for tool in writing] == ["compact", "apply"]
    assert all("plan_id" in tool.needs for tool in writing)


def test_scan_finds_the_ill_table_and_changes_nothing(calls: Callable[..., Calls]) -> None:
    before = made(calls().call("health", {"namespace": "sales", "table": "orders"}))
    assert made(calls().call("scan", {}))["observed"] == 1
    (found,) = made(calls().call("status", {}))["tables"]
    assert (found["table"], found["status"], found["grade"]) == ("sales.orders", "DUE", "WARNING")
    assert made(calls().call("plan_fleet", {}))["plan_id"]
    after = made(calls().call("health", {"namespace": "sales", "table": "orders"}))
    assert (after["files"], after["snapshot_count"]) == (before["files"], before["snapshot_count"]) == (6, 6)


def test_a_plan_runs_by_its_id_where_writing_is_allowed_and_once(calls: Callable[..., Calls]) -> None:
    writing, table = calls(allow_write=True), {"namespace": "sales", "table": "orders"}
    plan = made(writing.call("plan", {**table, "max_files": 5}))["plan"]
    assert plan["files"] == 5
    assert refusal(writing.call("compact", table)) == "MISSING_FIELD"
    assert refusal(writing.call("compact", {**table, "plan_id": None})) == "MISSING_FIELD"
    done = made(writing.call("compact", {**table, "max_files": 5, "plan_id": plan["plan_id"]}))
    assert (done["status"], done["stats"]["files_after"]) == ("PARTIAL", 2)
    again = made(writing.call("compact", {**table, "max_files": 5, "plan_id": plan["plan_id"]}))
    assert again["status"] == "ALREADY_DONE"
    assert refusal(writing.call("compact", {**table, "plan_id": "1-a"})) == "PLAN_CHANGED"


def test_without_the_flag_the_tool_that_writes_does_not_exist_and_the_refusal_says_how_it_would(
    calls: Callable[..., Calls],
) -> None:
    reading = calls()
    assert "compact" not in {tool.name for tool in reading.tools}
    called = reading.call("compact", {"namespace": "sales", "table": "orders", "plan_id": "1-a"})
    assert refusal(called) == "UNKNOWN_OPERATION"
    assert "--allow-write" in called.text
    assert made(reading.call("health", {"namespace": "sales", "table": "orders"}))["files"] == 6


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("plan", {"table": "orders", "dry_run": False}, "UNKNOWN_FIELD"),
        ("scan", {"max_tables": 0}, "INVALID_FIELD"),
        ("scan", {"dry_run": False}, "UNKNOWN_FIELD"),
        ("health", {"table": "orders", "tenant_id": "another"}, "UNKNOWN_FIELD"),
        ("health", {"table": "orders", "operation": "DROP_TABLE"}, "UNKNOWN_FIELD"),
        ("health", {}, "MISSING_FIELD"),
        ("health", {"table": 5}, "INVALID_FIELD"),
        ("health", {"table": ["orders"]}, "INVALID_FIELD"),
        ("health", {"table": "orders", "namespace": {}}, "INVALID_FIELD"),
        ("health", {"table": "missing", "namespace": "sales"}, "TABLE_NOT_FOUND"),
        ("health", {"table": "../etc", "namespace": "sales"}, "INVALID_IDENTIFIER"),
        ("plan", {"table": "orders", "namespace": "sales", "max_files": "5"}, "INVALID_OPTION"),
        ("plan", {"table": "orders", "namespace": "sales", "options": {"x": 1}}, "INVALID_OPTION"),
        ("status", {"namespace": "sales", "table": "none"}, "FLEET_TABLE_NOT_FOUND"),
        ("history", {"limit": 0}, "INVALID_FIELD"),
        ("drop", {"table": "orders"}, "UNKNOWN_OPERATION"),
        ("x" * 10_000, {}, "UNKNOWN_OPERATION"),
    ],
)
def test_what_is_wrong_is_said_by_its_code(
    calls: Callable[..., Calls], name: str, arguments: dict[str, object], code: str
) -> None:
    called = calls().call(name, arguments)
    assert refusal(called) == code
    assert len(called.text) < 1000


def test_a_bug_tells_its_code_and_no_stack(calls: Callable[..., Calls]) -> None:
    def broken() -> Service:
        raise ZeroDivisionError("swordfish")

    called = Calls(broken, tenant=None, catalog=None, allow_write=False).call("scan", {})
    assert refusal(called) == "INTERNAL_ERROR"
    assert "swordfish" not in json.dumps(called.made)


def test_a_tenant_sees_its_own_tables_and_only_who_names_none_scans_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = {
        "type": "sql",
        "uri": "sqlite:///${REGELATE_HOME}/catalog.db",
        "warehouse": "${REGELATE_HOME}/warehouse",
        "namespace_template": "{tenant_id}__{namespace}",
    }
    fleet = {"store": "sqlite", "path": "${REGELATE_HOME}/fleet.db"}
    chosen = {"auth": "none", "tenants": ["acme", "other"], "fleet": fleet, "catalogs": {"shared": catalog}}
    (tmp_path / "config.json").write_text(json.dumps({"environments": {"development": chosen}}))
    environ = {"REGELATE_CONFIG": str(tmp_path / "config.json"), "REGELATE_HOME": str(tmp_path / "lake")}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for tenant in ("acme", "other"):
        assert main(["--tenant", tenant, "create", "sales.orders", "--schema", "id:long!"]) == 0
    service = build_service(environ)

    def of(tenant: str | None) -> Calls:
        return Calls(lambda: service, tenant=tenant, catalog=None, allow_write=False)

    table = {"namespace": "sales", "table": "orders"}
    assert made(of(None).call("scan", {}))["observed"] == 2
    assert made(of("acme").call("scan", {}))["observed"] == 1
    assert [told["table"] for told in made(of("acme").call("status", {}))["tables"]] == ["acme__sales.orders"]
    assert made(of("other").call("health", table))["files"] == 0
    assert refusal(of("acme").call("health", {"namespace": "other__sales", "table": "orders"})) == "INVALID_IDENTIFIER"
    assert refusal(of("nobody").call("scan", {})) == "FORBIDDEN"
    unnamed = of(None).call("health", table)
    assert refusal(unnamed) == "MISSING_FIELD"
    assert "--tenant" in unnamed.text


def test_an_explanation_counts_all_reasons_and_lists_the_files_that_would_go_first(calls: Callable[..., Calls]) -> None:
    found = made(calls().call("explain", {"namespace": "sales", "table": "orders"}))
    assert found["reasons"] == {"small": 6}
    assert [file["selected"] for file in found["explained"]] == [True] * 6
    assert "explained" not in made(calls().call("health", {"namespace": "sales", "table": "orders"}))


def test_a_long_explanation_is_cut_to_what_would_be_rewritten_and_a_long_answer_refused(
    calls: Callable[..., Calls], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regelate.entrypoints.mcp.calls.MOST_EXPLAINED", 4)
    found = made(calls().call("explain", {"namespace": "sales", "table": "orders"}))
    assert len(found["explained"]) == 4 < MOST_EXPLAINED
    assert sum(found["reasons"].values()) == 6
    monkeypatch.setattr("regelate.entrypoints.mcp.calls.MOST_ANSWER_BYTES", 100)
    assert refusal(calls().call("scan", {})) == "RESULT_TOO_LARGE"
    assert MOST_ANSWER_BYTES > 100


def test_history_and_tables_are_told(calls: Callable[..., Calls]) -> None:
    assert made(calls().call("tables", {"namespace": "sales"}))["tables"] == ["orders"]
    assert made(calls().call("jobs", {"namespace": "sales", "table": "orders"}))["jobs"] == []
    assert made(calls().call("history", {}))["runs"] == []


def test_a_plan_for_the_fleet_runs_by_its_id_to_its_end(calls: Callable[..., Calls]) -> None:
    writing = calls(allow_write=True)
    made(writing.call("scan", {}))
    plan = made(writing.call("plan_fleet", {}))
    assert ("sales.orders", "compact") in {(run["table"], run["operation"]) for run in plan["runs"]}
    assert refusal(writing.call("apply", {})) == "MISSING_FIELD"
    assert refusal(writing.call("apply", {"plan_id": "fleet-plan-x"})) == "FLEET_PLAN_NOT_FOUND"
    applied = made(writing.call("apply", {"plan_id": plan["plan_id"]}))
    assert {run["outcome"] for run in applied["runs"]} == {"DONE"}
    assert made(writing.call("health", {"namespace": "sales", "table": "orders"}))["files"] == 1
    (told,) = made(writing.call("history", {"namespace": "sales", "table": "orders"}))["runs"][-1:]
    assert (told["operation"], told["outcome"]) == ("compact", "DONE")


def test_without_the_extra_the_command_names_it(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "regelate.entrypoints.mcp.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["mcp"]) == 1
    told = capsys.readouterr().err
    assert "pip install 'regelate[mcp]'" in told
    assert "report it" not in told
