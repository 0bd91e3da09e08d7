"""`regelate mcp` as assistants meet it: the official SDK's client, a process of its own, standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from regelate.entrypoints.cli import main

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = "import sys; from regelate.entrypoints.cli import main; sys.exit(main())"
TABLE = {"namespace": "sales", "table": "orders"}

pytestmark = pytest.mark.mcp


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake with an ill table of six files and a healthy one of one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGELATE_HOME", str(tmp_path / "lake"))
    rows = tmp_path / "rows.jsonl"
    for name, files in (("sales.orders", 6), ("sales.well", 1)):
        assert main(["create", name, "--schema", "id:long!"]) == 0
        for number in range(files):
            rows.write_text(json.dumps({"id": number}) + "\n")
            assert main(["write", name, str(rows)]) == 0
    return tmp_path


def talk(lake: Path, conversation: Callable[[Any], Awaitable[None]], *flags: str) -> None:
    """Start the server, shake hands, and talk."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"REGELATE_HOME": str(lake / "lake"), "PYTHONPATH": os.pathsep.join(paths)}
    server = StdioServerParameters(
        command=sys.executable, args=["-c", PROGRAM, "mcp", *flags], env=environment, cwd=lake
    )

    async def main_of() -> None:
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            told = await session.initialize()
            assert told.server_info.name == "regelate"
            assert "scan" in (told.instructions or "")
            await conversation(session)

    asyncio.run(main_of())


async def made(session: Any, name: str, **arguments: object) -> dict[str, Any]:
    """The answer of a tool, which is the same as an object and as text."""
    found = await session.call_tool(name, arguments)
    assert not found.is_error, found.content[0].text
    assert json.loads(found.content[0].text) == found.structured_content
    answer: dict[str, Any] = found.structured_content
    return answer


async def refusal(session: Any, name: str, **arguments: object) -> str:
    found = await session.call_tool(name, arguments)
    assert found.is_error
    assert "Traceback" not in found.content[0].text
    code: str = found.structured_content["error"]["code"]
    assert found.content[0].text.startswith(f"{code}: ")
    return code


def test_a_client_finds_the_ill_table_and_why_and_what_it_would_cost(lake: Path) -> None:
    async def conversation(session: Any) -> None:
        assert (await made(session, "scan"))["observed"] == 2
        tables = (await made(session, "status"))["tables"]
        assert [(found["table"], found["status"]) for found in tables] == [
            ("sales.orders", "DUE"),
            ("sales.well", "HEALTHY"),
        ]
        assert tables[0]["sentence"]
        assert (await made(session, "health", **TABLE))["grade"] == "WARNING"
        assert (await made(session, "explain", **TABLE))["reasons"] == {"small": 6}
        plan = (await made(session, "plan", **TABLE))["plan"]
        assert (plan["files"], plan["expected_output_files"]) == (6, 1)
        assert plan["estimate"]["dollars"] > 0
        planned = await made(session, "plan_fleet")
        assert planned["runs"][0]["table"] == "sales.orders"
        assert (await made(session, "history"))["runs"] == []
        assert await refusal(session, "status", namespace="sales", table="none") == "FLEET_TABLE_NOT_FOUND"

    talk(lake, conversation)


def test_without_the_flag_no_tool_writes_and_none_can_be_talked_into_it(lake: Path) -> None:
    async def conversation(session: Any) -> None:
        tools = (await session.list_tools()).tools
        assert not {"compact", "apply"} & {tool.name for tool in tools}
        assert all(tool.annotations.read_only_hint for tool in tools)
        plan = (await made(session, "plan", **TABLE))["plan"]
        assert await refusal(session, "compact", **TABLE, plan_id=plan["plan_id"]) == "UNKNOWN_OPERATION"
        assert await refusal(session, "apply", plan_id="fleet-plan-x") == "UNKNOWN_OPERATION"
        assert await refusal(session, "plan", **TABLE, dry_run=False) == "UNKNOWN_FIELD"
        assert (await made(session, "health", **TABLE))["snapshot_count"] == 6

    talk(lake, conversation)


def test_with_the_flag_a_plan_runs_by_its_id(lake: Path) -> None:
    async def conversation(session: Any) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert tools["compact"].annotations.read_only_hint is False
        assert "plan_id" in tools["compact"].input_schema["required"]
        assert await refusal(session, "compact", **TABLE) == "MISSING_FIELD"
        plan = (await made(session, "plan", **TABLE))["plan"]
        done = await made(session, "compact", **TABLE, plan_id=plan["plan_id"])
        assert (done["status"], done["stats"]["files_after"]) == ("COMPLETED", 1)
        assert (await made(session, "health", **TABLE))["files"] == 1
        assert (await made(session, "compact", **TABLE, plan_id=plan["plan_id"]))["status"] == "ALREADY_DONE"

    talk(lake, conversation, "--allow-write")


def test_with_the_flag_a_plan_for_the_fleet_runs_by_its_id(lake: Path) -> None:
    async def conversation(session: Any) -> None:
        await made(session, "scan")
        plan_id = (await made(session, "plan_fleet"))["plan_id"]
        applied = await made(session, "apply", plan_id=plan_id)
        assert {(run["table"], run["outcome"]) for run in applied["runs"]} == {("sales.orders", "DONE")}
        assert (await made(session, "health", **TABLE))["files"] == 1

    talk(lake, conversation, "--allow-write")


def test_two_calls_at_once_are_both_answered(lake: Path) -> None:
    async def conversation(session: Any) -> None:
        found = await asyncio.gather(*(made(session, "health", **TABLE) for _ in range(4)), made(session, "jobs"))
        assert [answer.get("files") for answer in found] == [6, 6, 6, 6, None]

    talk(lake, conversation)


def test_log_lines_do_not_disturb_the_protocol(lake: Path) -> None:
    async def conversation(session: Any) -> None:
        assert (await made(session, "health", **TABLE))["files"] == 6

    talk(lake, conversation, "--verbose")
