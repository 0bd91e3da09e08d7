"""Runs one parsed command: every end of it becomes an exit code, every fault two lines on standard error."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Mapping

from regelate.core.jobs.exit_codes import FAILED, INTERRUPTED
from regelate.entrypoints.api.responses import failed
from regelate.entrypoints.cli import commands, fleet, jobs, maintenance, mcp, pipeline, reporting, watching, writing
from regelate.entrypoints.cli.door import voice
from regelate.entrypoints.cli.failures import BUG, Failed, refused
from regelate.entrypoints.cli.screen import put_json
from regelate.entrypoints.log import redacted
from regelate.errors import RegelateError
from regelate.report.frames import printable

Command = Callable[[argparse.Namespace], int]
COMMANDS: Mapping[str, Command] = {
    "create": commands.create,
    "describe": commands.describe,
    "list": commands.list_tables,
    "drop": commands.drop,
    "write": writing.write,
    "query": commands.query,
    "health": commands.health,
    "plan": commands.plan,
    "compact": commands.compact,
    "jobs": jobs.jobs,
    "expire": maintenance.expire,
    "orphans": maintenance.orphans,
    "manifests": maintenance.manifests,
    "maintain": maintenance.maintain,
    "sweep": maintenance.sweep,
    "fleet": fleet.fleet,
    "watch": watching.watch,
    "serve": commands.serve,
    "invoke": commands.invoke,
    "mcp": mcp.mcp,
    "demo": commands.demo,
    "demo-spark": pipeline.demo_spark,
    "pipeline": pipeline.pipeline,
    "report": reporting.report,
}


def run(args: argparse.Namespace) -> int:
    """Run the command that `args.run` names and return its exit code."""
    with voice(verbose=args.verbose or args.run == "serve"):
        try:
            return COMMANDS[args.run](args)
        except Failed as fault:
            return _told(fault, args)
        except RegelateError as fault:
            return _told(refused(failed(fault, ""), fault.status, ()), args)
        except KeyboardInterrupt:
            print("error: interrupted\nhelp: what was committed stays; run the command again", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as fault:  # noqa: BLE001  the last wall: a user gets two lines, --verbose the stack
            if args.verbose:
                traceback.print_exc()
            what = f"INTERNAL_ERROR: {type(fault).__name__}: {redacted(str(fault))}"
            return _told(Failed(what, BUG, FAILED), args)


def _told(fault: Failed, args: argparse.Namespace) -> int:
    if fault.answer is not None and args.json:
        put_json(fault.answer)
    table = printable(".".join(getattr(args, "table", ("NS", "TABLE"))))
    lines = fault.lines.replace("regelate COMMAND", f"regelate {args.run}").replace(" NS.TABLE`", f" {table}`")
    print(lines, file=sys.stderr)
    return fault.code
