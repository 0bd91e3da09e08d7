"""The commands and their flags. Standard library only: `regelate --help` imports nothing else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from regelate import __version__
from regelate.core.fleet.operation import FleetStatus
from regelate.core.jobs.exit_codes import EXIT_CODES, USAGE
from regelate.core.jobs.job import JobState
from regelate.core.jobs.spark_job import STRATEGIES
from regelate.core.policy.policy import Selection, Verify
from regelate.core.requests import ENGINES_ASKED_FOR, MissingColumns, WriteMode
from regelate.entrypoints.cli import texts

EPILOG = f"""\
{EXIT_CODES}
REGELATE_HOME (default ./lake) is the folder of the embedded lake; REGELATE_CONFIG names another config.json.
"""
NS_TABLE = "NS.TABLE"
_FLAG = "table_flag"


class Parser(argparse.ArgumentParser):
    """Says what was wrong and what to do, in two lines."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; a command on a table is given one, as an argument or by the flag, not by both."""
        found, rest = super().parse_known_args(args, namespace)
        if hasattr(found, _FLAG):
            flag = getattr(found, _FLAG)
            delattr(found, _FLAG)
            if (flag is None) == (found.table is None):
                self.error(f"{NS_TABLE}: missing" if flag is None else f"--table: not allowed with {NS_TABLE}")
            found.table = flag or found.table
        return found, rest

    def error(self, message: str) -> NoReturn:
        print(f"error: {message.removeprefix('argument ')}\nhelp: {self.prog} --help", file=sys.stderr)
        sys.exit(USAGE)


def reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type for argparse whose refusal says the rule; argparse itself would only say `invalid value`."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as fault:
            raise argparse.ArgumentTypeError(str(fault)) from None

    return convert


def make_parser() -> Parser:
    """Return the parser of the whole command line; `run` names the command."""
    parser = Parser(
        prog="regelate",
        description="Compaction for Apache Iceberg tables: many small files become few, and no row changes.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"regelate {__version__}")
    _add_global(parser, top=True)
    commands = parser.add_subparsers(dest="run", metavar="COMMAND", parser_class=Parser)
    compaction = (_compaction, _jobs, _expiry, _upkeep)
    for add in (_tables, _rows, _health, *compaction, _fleet, _watch, _doors, _demo, _demo_spark, _pipeline, _report):
        add(commands)
    return parser


def _add_global(parser: argparse.ArgumentParser, *, top: bool = False) -> None:
    """Add the flags that may stand before and after the command; only the first ones have defaults."""
    group = parser.add_argument_group("for every command")
    none: Any = None if top else argparse.SUPPRESS
    no: Any = False if top else argparse.SUPPRESS
    group.add_argument("--tenant", default=none, metavar="NAME", help="tenant; default: the only one there is")
    group.add_argument("--catalog", default=none, metavar="NAME", help="a catalog of config.json")
    group.add_argument(
        "--catalog-uri", default=none, metavar="URI", help="a catalog instead of the default one: http(s): or sqlite:"
    )
    group.add_argument("--json", action="store_true", default=no, help="print the API's answer as JSON, nothing else")
    group.add_argument("--verbose", action="store_true", default=no, help="log lines on standard error")


def _command(commands: Any, name: str, summary: str, *, table: bool = True, more: str = "") -> Parser:
    made: Parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.\n{more}")
    if table:
        made.add_argument(
            "table", nargs="?", metavar=NS_TABLE, type=reader(texts.table), help="for example sales.orders"
        )
        made.add_argument("--table", dest=_FLAG, type=reader(texts.table), metavar=NS_TABLE, help="the same as a flag")
    _add_global(made)
    return made


def _tables(commands: Any) -> None:
    create = _command(commands, "create", "create a table")
    create.add_argument(
        "--schema",
        required=True,
        type=reader(texts.schema),
        metavar="COLUMNS",
        help="name:type,... with ! after the type of a required column, or a JSON file as CREATE_TABLE takes it",
    )
    _append(create, "--partition", "FIELD", texts.partition_field, "month(day), bucket[16](id) or a column")
    _append(create, "--sort", "ORDER", texts.sort_field, "'column [desc] [nulls last]'")
    _append(create, "--property", "K=V", texts.pair, "a table property, key=value")
    create.add_argument("--if-not-exists", action="store_true", help="accept the same table that is already there")
    _command(commands, "describe", "show a table's columns, partitions and properties")
    listed = _command(commands, "list", "list the tables of a namespace, or all namespaces", table=False)
    listed.add_argument("namespace", metavar="NS", nargs="?", help="for example sales; without it the namespaces")
    drop = _command(commands, "drop", "drop a table")
    drop.add_argument("--purge", action="store_true", help="delete its files too")
    drop.add_argument("--yes", action="store_true", help="really drop it; without this nothing happens")


def _rows(commands: Any) -> None:
    write = _command(
        commands,
        "write",
        "write the rows of a file",
        more="JSON lines go in batches, each committed for itself; any other file, and every file with --mode\n"
        "overwrite_partitions, is one commit: all of its rows or none.",
    )
    write.add_argument("file", metavar="FILE", help=".jsonl, .json, .csv or .parquet; - reads JSON lines from stdin")
    modes = [mode.value for mode in WriteMode]
    write.add_argument("--mode", choices=modes, default=WriteMode.APPEND.value, help="default: append")
    write.add_argument("--key", type=reader(texts.names), metavar="A,B", help="columns that identify a row for upsert")
    write.add_argument(
        "--missing-columns",
        choices=[choice.value for choice in MissingColumns],
        help="in an upsert, what a row lacks becomes null, or keeps the value stored for its key; default: null",
    )
    write.add_argument("--format", choices=("jsonl", "json", "csv", "parquet"), help="when the name does not say it")
    write.add_argument("--null", action="append", metavar="TEXT", help="text of a null in CSV; default: an empty field")
    write.add_argument("--idempotency-key", metavar="KEY", help="repeating the command with it writes no row twice")
    write.add_argument("--ref", metavar="BRANCH", help="write to this branch; main does not move")
    query = _command(commands, "query", "ask a table")
    query.add_argument("--sql", metavar="SELECT", help="one SELECT; the table is named t, and by its own name")
    query.add_argument("--columns", type=reader(texts.names), metavar="A,B")
    query.add_argument(
        "--filter",
        type=reader(texts.row_filter),
        metavar="FILTER",
        help="age >= 18 and name like 'A%%', or the API's JSON",
    )
    _append(query, "--aggregate", "CALL", texts.aggregate, "avg(price) as mean, count(*)")
    query.add_argument("--group-by", type=reader(texts.names), metavar="A,B")
    _append(query, "--order-by", "ORDER", texts.order_field, "'column [desc] [nulls last]'")
    query.add_argument("--limit", type=reader(texts.whole()), metavar="N", help="default: 1000")
    query.add_argument("--offset", type=reader(texts.whole()), metavar="N")
    query.add_argument("--snapshot-id", type=reader(texts.whole()), metavar="ID", help="read this snapshot")
    query.add_argument("--ref", metavar="NAME", help="read this branch or tag")
    query.add_argument("--as-of", metavar="TIME", help="read the table as it was: ISO timestamp, or milliseconds")


def _health(commands: Any) -> None:
    health = _command(commands, "health", "score a table's health, and say why")
    health.add_argument("--explain", action="store_true", help="list a reason for every data file")


def _compaction(commands: Any) -> None:
    compact = _command(
        commands,
        "compact",
        "merge a table's small files",
        more="Settings that are left out come from the table, then from config.json.",
    )
    compact.add_argument("--dry-run", action="store_true", help="plan only")
    compact.add_argument("--plan-id", metavar="ID", help="run exactly this plan, or refuse")
    compact.add_argument(
        "--verify",
        choices=[v.value for v in Verify],
        help="strict compares every value before the commit; up to twice the time",
    )
    compact.add_argument("--no-expire", action="store_true", help="expire no snapshots afterwards")
    compact.add_argument("--retention-hours", type=reader(texts.hours), metavar="H", help="age of snapshots to expire")
    compact.add_argument("--idempotency-key", metavar="KEY", help="repeating the command with it compacts once")
    compact.add_argument(
        "--async", dest="run_async", action="store_true", help="leave it to a background job, and print the job's id"
    )
    compact.add_argument(
        "--time-budget-seconds",
        type=reader(float),
        metavar="S",
        help="stop after so long, and commit what is done by then",
    )
    compact.add_argument("--engine", choices=ENGINES_ASKED_FOR, help="spark: leave it to a job on Spark")
    compact.add_argument("--resume-token", metavar="TOKEN", help="go on where an earlier run stopped for lack of time")
    plan = _command(commands, "plan", "show what compact would do, and change nothing")
    for parser in (compact, plan):
        parser.add_argument("--ref", metavar="BRANCH", help="compact this branch; main does not move")
        _add_policy(parser)


def _add_policy(parser: Parser) -> None:
    parser.add_argument("--force", action="store_true", help="merge any 2 small files, whatever the thresholds")
    parser.add_argument("--target-file-size-mb", type=reader(texts.whole(1)), metavar="MB")
    parser.add_argument("--max-files", type=reader(texts.whole(1)), metavar="N", help="rewrite at most N files")
    _append(parser, "--partition", "K=V", texts.partition_values, "month=2025-01[,region=eu]")
    parser.add_argument(
        "--where", metavar="FILTER", help='only files that may hold matching rows, for example "id > 5"'
    )
    selections = [s.value for s in Selection]
    either = (*STRATEGIES, *selections)
    parser.add_argument("--strategy", choices=either, help="how to rewrite (zorder: on Spark only), or a --selection")
    parser.add_argument("--selection", choices=selections, help="which files")
    _append(parser, "--sort", "ORDER", texts.sort_field, "'column [desc] [nulls last]', for sort and zorder")
    _append(parser, "--option", "K=V", texts.pair, "one of Iceberg's options, such as min-input-files=2")
    parser.add_argument(
        "--max-cost",
        type=reader(float),
        metavar="DOLLARS",
        help="refuse a run whose estimated cost on Lambda is higher",
    )


def _jobs(commands: Any) -> None:
    jobs = _command(
        commands,
        "jobs",
        "list jobs, look at one, cancel it, or run those that are due",
        table=False,
        more="WHAT is list (newest first), status JOB_ID, cancel JOB_ID, or run (all that are due, one by one).",
    )
    jobs.add_argument("what", nargs="?", choices=("list", "status", "cancel", "run"), default="list", metavar="WHAT")
    jobs.add_argument("job_id", nargs="?", metavar="JOB_ID")
    jobs.add_argument("--table", dest="of_table", type=reader(texts.table), metavar=NS_TABLE, help="list only its jobs")
    jobs.add_argument("--state", choices=[s.value for s in JobState], help="list only jobs in this state")


def _expiry(commands: Any) -> None:
    expire = _command(
        commands,
        "expire",
        "expire old snapshots",
        more="Files that only they need are deleted after a grace period; until then --undo brings the snapshots back.",
    )
    _add_retention(expire)
    expire.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    expire.add_argument("--undo", metavar="ID", help="bring the snapshots of an earlier expiry back")
    sweep = _command(
        commands,
        "sweep",
        "delete what crashed runs left behind, and submit jobs for unhealthy tables",
        table=False,
        more="Deletes files that no snapshot names, of runs that crashed longer ago than the longest run may take.\n"
        "Without --tenant and NS: the tables of all tenants.",
    )
    sweep.add_argument("namespace", metavar="NS", nargs="?", help="only this namespace")
    sweep.add_argument("--max-tables", type=reader(texts.whole(1)), metavar="N", help="look at no more than N tables")
    sweep.add_argument(
        "--time-budget-seconds", type=reader(float), metavar="S", help="start no further table after S seconds"
    )
    sweep.add_argument(
        "--health-below",
        type=reader(float),
        metavar="SCORE",
        help="submit jobs for tables with a lower score, 0 to 100",
    )
    sweep.add_argument(
        "--max-jobs", type=reader(texts.whole()), metavar="N", help="submit at most N jobs; 0 submits none"
    )
    sweep.add_argument("--dry-run", action="store_true", help="only say what would be deleted")


def _fleet(commands: Any) -> None:
    fleet = _command(
        commands,
        "fleet",
        "look after all tables: scan them, plan within budgets, apply the plan, say where each one stands",
        table=False,
        more="WHAT is scan (look at the tables), plan (what would begin now, in which order, at which price), apply\n"
        "(begin it, with --yes), status (where tables stand, and why), history (runs that ended) or report (all of it\n"
        "as one HTML page).\n"
        "Without --tenant: the tables of all tenants.",
    )
    fleet.add_argument("what", choices=("scan", "plan", "apply", "status", "history", "report"), metavar="WHAT")
    fleet.add_argument("of_table", nargs="?", metavar=NS_TABLE, type=reader(texts.table), help="of status and history")
    fleet.add_argument("-f", "--file", metavar="FILE", help="the policy: budgets, and what may be done to which table")
    fleet.add_argument("--plan-id", metavar="ID", help="apply exactly this plan")
    fleet.add_argument("--yes", action="store_true", help="really begin it; without this the plan is only shown")
    fleet.add_argument("--exit-code", action="store_true", help="of plan: end with 10 where there is something to do")
    fleet.add_argument("--status", choices=[s.value for s in FleetStatus], help="only tables that stand there")
    fleet.add_argument("--limit", type=reader(texts.whole(1)), metavar="N", help="show no more than N (100)")
    fleet.add_argument("--output", metavar="FILE", help="of report: the page; default: fleet.html")
    fleet.add_argument("--max-tables", type=reader(texts.whole(1)), metavar="N", help="scan no more than N tables")
    fleet.add_argument(
        "--time-budget-seconds", type=reader(float), metavar="S", help="look at no further table after S seconds"
    )


def _add_retention(parser: Parser) -> None:
    parser.add_argument("--retention-hours", type=reader(texts.hours), metavar="H", help="keep younger snapshots")
    parser.add_argument("--min-snapshots-to-keep", type=reader(texts.whole()), metavar="N")
    parser.add_argument(
        "--grace-hours",
        type=reader(texts.hours),
        metavar="H",
        help="how long an undo is possible; 0 deletes the files at once",
    )


def _upkeep(commands: Any) -> None:
    orphans = _command(
        commands,
        "orphans",
        "list files in a table's folder that the table does not need",
        more="Younger files may belong to a commit in progress and are left out.",
    )
    orphans.add_argument("--older-than-hours", type=reader(texts.hours), metavar="H", help="default and least: 72")
    orphans.add_argument("--delete", action="store_true", help="delete them; without this they are only listed")
    manifests = _command(commands, "manifests", "merge a table's small manifests, clustered by partition")
    manifests.add_argument("--dry-run", action="store_true", help="only say what would be rewritten")
    maintain = _command(
        commands,
        "maintain",
        "run all maintenance steps of a table",
        more="In this order: compact, dangling_deletes, manifests, expire, orphans, reclaim (files whose grace is\n"
        "over). If one step fails, the others still run.",
    )
    maintain.add_argument("--steps", type=reader(texts.names), metavar="A,B", help="only these")
    maintain.add_argument("--force", action="store_true", help="merge any 2 small files, whatever the thresholds")
    _add_retention(maintain)
    maintain.add_argument("--older-than-hours", type=reader(texts.hours), metavar="H", help="age of orphan files")
    maintain.add_argument("--dry-run", action="store_true", help="only say what would be done")


def _doors(commands: Any) -> None:
    serve = _command(commands, "serve", "serve the API on this machine", table=False)
    serve.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    serve.add_argument("--port", type=reader(_port), default=8080, help="default: 8080; 0 takes a free one")
    names = "answer to this name in `Host` too, beside localhost, --host and serve.hosts of config.json; repeatable"
    serve.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=names)
    invoke = _command(commands, "invoke", "send one event through the door that Lambda uses", table=False)
    invoke.add_argument("file", metavar="EVENT.json", help="an API Gateway event or a plain request; - reads stdin")
    mcp = _command(
        commands,
        "mcp",
        "serve tools for AI assistants by the Model Context Protocol",
        table=False,
        more="Speaks on standard input and output, and needs the extra mcp.\n"
        "Without --allow-write no tool changes anything.",
    )
    mcp.add_argument(
        "--allow-write", action="store_true", help="offer compact and apply too, which run a plan by its id"
    )


def _watch(commands: Any) -> None:
    watch = _command(
        commands,
        "watch",
        "compact tables by themselves, whoever writes them, by polling a catalog",
        table=False,
        more="Looks at each table whose head has moved. Where regelate.auto.enabled is on and a run is due, submits\n"
        "its job (and does it here, where jobs are kept in SQLite), or without jobs compacts it.\n"
        "Without --tenant: the tables of all tenants. Stops at SIGINT and SIGTERM.",
    )
    watch.add_argument(
        "watched", metavar="CATALOG", nargs="?", help="a catalog of config.json; default: the default one"
    )
    watch.add_argument(
        "--interval", type=reader(_interval), default=30.0, metavar="S", help="seconds between two rounds; default: 30"
    )
    watch.add_argument(
        "--once", action="store_true", help="one round, then end; the exit code is 4 where a table failed"
    )


def _interval(text: str) -> float:
    found = float(text)
    if not 0 < found <= 86_400:
        raise ValueError(f"{text!r} is not a number of seconds above 0, a day at most")
    return found


def _port(text: str) -> int:
    port = texts.whole()(text)
    if port > 65_535:
        raise ValueError(f"{text!r} is not a port from 0 to 65535")
    return port


def _demo(commands: Any) -> None:
    demo = _command(commands, "demo", "heal a table of 336,776 real flights before your eyes", table=False)
    demo.add_argument("--home", default="demo-lake", metavar="DIR", help="a folder for it; default: ./demo-lake")
    demo.add_argument("--rows", type=reader(texts.whole(1)), metavar="N", help="only the first N flights: a quick look")


def _demo_spark(commands: Any) -> None:
    demo = _command(commands, "demo-spark", "the same on Spark: small files made, shown and healed", table=False)
    demo.add_argument("--home", default="demo-lake-spark", metavar="DIR", help="a folder for it; ./demo-lake-spark")
    demo.add_argument("--jars", metavar="DIR", help="where Iceberg's jars are kept; default: ~/.ivy2")
    demo.add_argument("--batches", type=reader(texts.whole(1)), default=50, metavar="N", help="default: 50")


def _pipeline(commands: Any) -> None:
    pipeline = _command(commands, "pipeline", "pack the Spark pipeline for a cluster", table=False)
    jobs = pipeline.add_subparsers(dest="job", metavar="WHAT", parser_class=Parser, required=True)
    package = jobs.add_parser("package", help="write regelate.zip and the programs that spark-submit starts")
    package.add_argument("--output", default="dist", metavar="DIR", help="default: ./dist")


def _report(commands: Any) -> None:
    report = _command(
        commands,
        "report",
        "render the results of jobs, and send them",
        table=False,
        more="Takes what a Spark job's --result, or `compact --json`, has written.",
    )
    report.add_argument("files", metavar="RESULT.json", nargs="+", help="one or many, as one report")
    report.add_argument("--title", default="Table maintenance")
    report.add_argument(
        "--format", choices=("markdown", "html"), help="default: by the name of --output, else markdown"
    )
    report.add_argument("--output", metavar="FILE", help="default: standard output; pictures of Markdown go beside it")
    report.add_argument("--webhook", metavar="URL", help="post it (Slack's format); also REGELATE_REPORT_WEBHOOK")


def _append(parser: Parser, flag: str, metavar: str, read: Callable[[str], Any], text: str) -> None:
    parser.add_argument(flag, action="append", type=reader(read), metavar=metavar, help=f"{text}; repeat for more")
