"""The tools, one row each: which operation they ask, which of its fields an assistant may say, and which are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from regelate.core.values import dataclass
from regelate.entrypoints.actions import OPERATIONS
from regelate.errors import InvalidRequest

_SHOWN_CHARACTERS = 60
_TABLE = ("catalog", "namespace", "table")
_PLAN = (*_TABLE, "where", "partition_filter", "max_files", "target_file_size_mb", "selection", "options")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """One tool. `takes`: fields of the operation's request that may be said; `needs`: those that must be; `fixed`: what
    is asked in any case. A tool that `writes` exists only where that is allowed.
    """

    name: str
    title: str
    summary: str
    operation: str
    takes: tuple[str, ...]
    needs: tuple[str, ...] = ()
    fixed: Mapping[str, object] = field(default_factory=dict)
    writes: bool = False

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments, drawn from the model of the operation's request."""
        whole = OPERATIONS[self.operation].request.model_json_schema(by_alias=True)
        properties = {name: whole["properties"][name] for name in self.takes}
        made = {"type": "object", "properties": properties, "required": [*self.needs], "additionalProperties": False}
        return {**made, "$defs": whole["$defs"]} if "$defs" in whole else made

    def payload(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the request that the arguments ask for. Errors: InvalidRequest UNKNOWN_FIELD, MISSING_FIELD."""
        for name in arguments:
            if name not in self.takes:
                shown = ascii(name[:_SHOWN_CHARACTERS])
                message = f"{shown}: the tool {self.name} does not take it; it takes {', '.join(self.takes)}"
                raise InvalidRequest("UNKNOWN_FIELD", message, field=name[:_SHOWN_CHARACTERS])
        for name in self.needs:
            if arguments.get(name) is None:
                raise InvalidRequest("MISSING_FIELD", f"{name}: the tool {self.name} needs it", field=name)
        said = {name: value for name, value in arguments.items() if value is not None}
        return {"operation": self.operation, **said, **self.fixed}


TOOLS = (
    McpTool(
        name="tables",
        title="List tables",
        summary="Names of the tables of a namespace.",
        operation="LIST_TABLES",
        takes=("catalog", "namespace"),
    ),
    McpTool(
        name="scan",
        title="Look at the fleet",
        summary="Looks at the tables that nobody has looked at for the longest, and counts where all of them stand. "
        "Changes no table. `status` then lists the ill ones.",
        operation="FLEET_SCAN",
        takes=("catalog", "max_tables", "time_budget_seconds"),
    ),
    McpTool(
        name="status",
        title="Where tables stand",
        summary="Tables of the fleet, those that lost most points first: each with its state, a sentence that says "
        "why, and when it may have its next run. One table by name, or those in one state.",
        operation="FLEET_STATUS",
        takes=(*_TABLE, "status", "limit"),
    ),
    McpTool(
        name="health",
        title="Health of a table",
        summary="The score of one table (100 is healthy), what it lost points for, its counts of files, small files, "
        "deletes, snapshots and manifests, its worst partitions, and a recommendation.",
        operation="TABLE_HEALTH",
        takes=_TABLE,
        needs=("table",),
    ),
    McpTool(
        name="explain",
        title="Why each file would be rewritten, or not",
        summary="The health of a table, with the reason for its data files: those that a compaction would take first. "
        "`reasons` counts all of them.",
        operation="TABLE_HEALTH",
        takes=_TABLE,
        needs=("table",),
        fixed={"explain": True},
    ),
    McpTool(
        name="plan",
        title="Plan a compaction",
        summary="What a compaction of a table would do, in how many groups, at which price in seconds, dollars and "
        "memory. Answers a plan_id. Changes nothing.",
        operation="COMPACT",
        takes=_PLAN,
        needs=("table",),
        fixed={"dry_run": True},
    ),
    McpTool(
        name="plan_fleet",
        title="Plan for all tables",
        summary="What would begin now over all tables, in which order, at which price, within the budgets of the "
        "policy. Answers a plan_id. Changes no table.",
        operation="FLEET_PLAN",
        takes=("catalog",),
    ),
    McpTool(
        name="history",
        title="Runs of the past",
        summary="Runs of the fleet that ended, the newest first: what was predicted, what each took, files before and "
        "after. Those of one table by name.",
        operation="FLEET_HISTORY",
        takes=(*_TABLE, "limit"),
    ),
    McpTool(
        name="jobs",
        title="Background jobs",
        summary="Background jobs, the newest first: of everything, of one table, or in one state.",
        operation="LIST_JOBS",
        takes=(*_TABLE, "state", "limit", "page_token"),
    ),
    McpTool(
        name="compact",
        title="Run a plan",
        summary="Compacts a table exactly as a plan said: give the plan_id that `plan` answered, with the same "
        "arguments. Where the table has changed since, it refuses and changes nothing. Afterwards it expires snapshots "
        "as the table's retention says.",
        operation="COMPACT",
        takes=(*_PLAN, "plan_id", "max_cost", "verify"),
        needs=("table", "plan_id"),
        writes=True,
    ),
    McpTool(
        name="apply",
        title="Run a plan for all tables",
        summary="Begins exactly the runs that `plan_fleet` said, by its plan_id, each with its price as the limit; "
        "what is no longer worth doing, or no longer paid for, is left out and said. Jobs that are kept on this "
        "machine are done before it answers.",
        operation="FLEET_APPLY",
        takes=("catalog", "plan_id", "time_budget_seconds"),
        needs=("plan_id",),
        writes=True,
    ),
)
