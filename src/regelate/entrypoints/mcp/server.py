"""The tools on standard input and output, by the official SDK of the Model Context Protocol."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from regelate import __version__
from regelate.entrypoints.mcp.calls import Called, Calls
from regelate.entrypoints.mcp.tools import McpTool

INSTRUCTIONS = (
    "Looks after Apache Iceberg tables. Begin with `scan`, then `status` lists the ill ones; ask `health` or `explain` "
    "about one. `plan` (one table) and `plan_fleet` (all) tell the price before anything is changed. A table is named "
    "by `namespace` and `table`."
)


def serve(calls: Calls) -> None:
    """Serve one client until it closes standard input. A compaction that is under way then is finished first."""
    asyncio.run(_serve(calls))


async def _serve(calls: Calls) -> None:
    async def listed(_context: Any, _parameters: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_told(tool) for tool in calls.tools])

    async def called(_context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        # In a thread: another call, or a ping, is answered while a table is compacted.
        return _result(await asyncio.to_thread(calls.call, parameters.name, parameters.arguments or {}))

    server = Server(
        "regelate", version=__version__, instructions=INSTRUCTIONS, on_list_tools=listed, on_call_tool=called
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _told(tool: McpTool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=not tool.writes, destructive_hint=tool.writes, idempotent_hint=True, open_world_hint=False
    )
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.summary,
        input_schema=tool.schema(),
        annotations=hints,
    )


def _result(called: Called) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=called.text)],
        structured_content=dict(called.made),
        is_error=called.failed,
    )
