"""One function per command: flags -> request -> answer -> a few lines for a person, or the answer itself."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from regelate.core.answers import (
    CompactAnswer,
    CreateTableAnswer,
    DescribeTableAnswer,
    DropTableAnswer,
    ListNamespacesAnswer,
    ListTablesAnswer,
    QueryAnswer,
    Status,
    TableHealthAnswer,
)
from regelate.core.jobs.exit_codes import FAILED
from regelate.core.policy.policy import Selection
from regelate.core.policy.sizes import size_text
from regelate.core.running.stats import CompactionStats
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.door import Door, Told
from regelate.entrypoints.cli.failures import Failed, exit_code, exit_code_of, usage
from regelate.entrypoints.cli.jobs import submitted
from regelate.entrypoints.cli.rows import opened
from regelate.report import frames
from regelate.report.frames import count_text, plural, seconds_text

WHY_NOTHING = {
    "NO_SNAPSHOT": "the table is empty",
    "NO_PARTITION": "no partition matches the filter or the selection",
    "NO_CANDIDATE": "no files could be merged, split or freed of deletes",
    "NO_GROUPS": "rewriting the selected files would not leave fewer or better ones",
    "BELOW_THRESHOLD": "too few files for the thresholds; --force merges them",
}


def name_of(args: argparse.Namespace) -> str:
    return frames.printable(".".join(args.table))


def branch_of(args: argparse.Namespace) -> str:
    """Return the table, and the branch that was named, as a command takes them."""
    return name_of(args) + ("" if args.ref is None else f" --ref {frames.printable(args.ref)}")


def create(args: argparse.Namespace) -> int:
    fields = {
        "schema": args.schema,
        "partition_spec": args.partition,
        "sort_order": args.sort,
        "properties": _mapping("--property", args.property),
        "if_not_exists": args.if_not_exists or None,
    }
    told = Door(args).ask("CREATE_TABLE", CreateTableAnswer, args.table, fields)
    if args.json:
        screen.put_json(told.made)
    elif told.answer.created:
        screen.say(f"Created {name_of(args)} in {told.answer.location}")
    else:
        screen.say(f"{name_of(args)} is there already, with the same columns and partitions.")
    return exit_code(told.answer)


def describe(args: argparse.Namespace) -> int:
    told = Door(args).ask("DESCRIBE_TABLE", DescribeTableAnswer, args.table, {})
    if args.json:
        screen.put_json(told.made)
    else:
        screen.show(frames.columns(told.made))
        screen.say("")
        screen.show(frames.table_facts(told.made))
    return exit_code(told.answer)


def list_tables(args: argparse.Namespace) -> int:
    if args.namespace is None:
        return _list_namespaces(args)
    told = Door(args).ask("LIST_TABLES", ListTablesAnswer, (args.namespace, None), {})
    if args.json:
        screen.put_json(told.made)
    else:
        for table in told.answer.tables:
            screen.say(f"{args.namespace}.{table}")
    return exit_code(told.answer)


def _list_namespaces(args: argparse.Namespace) -> int:
    told = Door(args).ask("LIST_NAMESPACES", ListNamespacesAnswer, (None, None), {})
    if args.json:
        screen.put_json(told.made)
    else:
        for namespace in told.answer.namespaces:
            screen.say(namespace)
    return exit_code(told.answer)


def drop(args: argparse.Namespace) -> int:
    if not args.yes:
        raise usage("--yes", f"missing; nothing was dropped, not even {name_of(args)}", "add --yes to drop the table")
    told = Door(args).ask("DROP_TABLE", DropTableAnswer, args.table, {"purge": args.purge or None})
    if args.json:
        screen.put_json(told.made)
    else:
        screen.say(f"Dropped {name_of(args)}" + (" and deleted its files." if args.purge else "; its files stay."))
    return exit_code(told.answer)


def query(args: argparse.Namespace) -> int:
    fields = {
        "sql": args.sql,
        "columns": args.columns,
        "filter": args.filter,
        "aggregates": args.aggregate,
        "group_by": args.group_by,
        "order_by": args.order_by,
        "limit": args.limit,
        "offset": args.offset,
        "snapshot_id": args.snapshot_id,
        "as_of": args.as_of,
        "ref": args.ref,
    }
    told = Door(args).ask("QUERY", QueryAnswer, args.table, fields)
    if args.json:
        screen.put_json(told.made)
        return exit_code(told.answer)
    answer = told.answer
    if answer.result_url is not None:
        screen.say(f"The result is too large to show. Until {answer.result_expires_at} its lines of JSON are at")
        screen.say(answer.result_url)
    else:
        screen.show(frames.result(told.made))
    more = " (there are more; see --limit and --offset)" if answer.truncated else ""
    took = seconds_text(answer.query_time_ms / 1000)
    screen.say(f"{plural(answer.row_count, 'row')}{more} in {took}", style="dim")
    return exit_code(told.answer)


def health(args: argparse.Namespace) -> int:
    door = Door(args)
    if args.json:
        told = door.ask("TABLE_HEALTH", TableHealthAnswer, args.table, {"explain": args.explain or None})
        screen.put_json(told.made)
        return exit_code(told.answer)
    told = door.ask("TABLE_HEALTH", TableHealthAnswer, args.table, {})
    screen.show(frames.health(told.made))
    for frame in (frames.histogram(told.made), frames.worst_partitions(told.made)):
        if frame.rows:
            screen.say("")
            screen.show(frame)
    unreadable = told.answer.unreadable_manifests
    if unreadable:
        screen.say("\n" + "\n".join(f"unreadable in Spark, Trino and Flink: {p}" for p in unreadable))
    screen.say(f"\n{told.answer.recommendation}")
    if args.explain:
        _explain(door, args.table)
    return exit_code(told.answer)


def _explain(door: Door, table: tuple[str, str]) -> None:
    """Print one line per data file as it is found: a table may have a million."""
    screen.say(f"\n{'size':>10}  {'rows':>12}  {'reason':<22}  file")
    for found in door.service.health.explain_files(door.address(*table)):
        size, rows = size_text(cast(int, found["size_bytes"])), count_text(cast(int, found["rows"]))
        print(f"{size:>10}  {rows:>12}  {found['reason']:<22}  {screen.printable_line(str(found['path']))}")


def plan(args: argparse.Namespace) -> int:
    return _planned(args, Door(args).ask("COMPACT", CompactAnswer, args.table, {**_policy(args), "dry_run": True}))


def _planned(args: argparse.Namespace, told: Told[CompactAnswer]) -> int:
    found = told.made["plan"]
    if args.json:
        screen.put_json(told.made)
        return exit_code(told.answer)
    if not found["groups"]:
        screen.say(f"Nothing to do for {name_of(args)} ({found['reason']}): {WHY_NOTHING.get(found['reason'], '')}.")
    else:
        what = f"{plural(found['files'], 'file')} ({size_text(found['bytes'])}, {plural(found['rows'], 'row')})"
        screen.say(f"{what} would become {plural(found['expected_output_files'], 'file')}.\n")
        if found["bytes_spliced"]:
            screen.say(f"Of them {size_text(found['bytes_spliced'])} would be copied as they are (splice).\n")
        screen.show(frames.plan_groups(found))
        if found["groups"] > len(found["file_groups"]):
            screen.say(f"... and {plural(found['groups'] - len(found['file_groups']), 'more group')}")
        screen.say(f"\n{_estimated(found['estimate'])}")
    if found["groups_deferred"]:
        screen.say(f"\n{plural(found['groups_deferred'], 'group')} left for another run by --max-files.")
    if found["skipped"]:
        screen.say("")
        screen.show(frames.plan_skips(found))
    if found["groups"]:
        screen.say(f"\nplan id {found['plan_id']}\nNothing was changed; regelate compact {branch_of(args)} does it.")
    warn(told.answer.warnings)
    return exit_code(told.answer)


def compact(args: argparse.Namespace) -> int:
    fields = {
        **_policy(args),
        "dry_run": args.dry_run or None,
        "plan_id": args.plan_id,
        "verify": args.verify,
        "expire_snapshots": False if args.no_expire else None,
        "snapshot_retention_hours": args.retention_hours,
        "idempotency_key": args.idempotency_key,
        "async": args.run_async or None,
        "engine": args.engine,
        "time_budget_seconds": args.time_budget_seconds,
        "resume_token": args.resume_token,
    }
    door = Door(args)
    with screen.progress("planning") as shown:

        def progress(done: int, total: int) -> None:
            shown(done, total, f"rewriting: {done:,} of {total:,} pieces")

        told = door.ask("COMPACT", CompactAnswer, args.table, fields, progress=progress)
    if args.dry_run:
        return _planned(args, told)
    if told.answer.status is Status.DELEGATED:
        return submitted(args, told)
    if args.json:
        screen.put_json(told.made)
    else:
        _compacted(args, told)
    return exit_code(told.answer)


def _compacted(args: argparse.Namespace, told: Told[CompactAnswer]) -> None:
    answer = told.answer
    table, stats, reason = name_of(args), answer.stats, answer.reason
    if answer.status is Status.ALREADY_DONE:
        what = "--plan-id" if reason == "PLAN_ALREADY_COMMITTED" else "--idempotency-key"
        screen.say(f"{table} was compacted by this {what} before; nothing was done now.")
    elif stats is None or not answer.compacted:
        screen.say(f"Nothing to do for {table} ({reason}): {WHY_NOTHING.get(reason or '', 'nothing was changed')}.")
        _tell_expired(args, stats)
    else:
        took = seconds_text(stats.compaction_time_ms / 1000)
        partly = f", in part ({reason})" if answer.status is Status.PARTIAL else ""
        screen.say(f"Compacted {table}{partly}: {_rewritten(stats)} in {took}.\n")
        screen.show(frames.compaction(told.made["stats"]))
        resumable = answer.resume_token is not None
        if stats.groups_deferred:
            why = "--resume-token takes them up" if resumable else "left out by --max-files"
            screen.say(f"\n{plural(stats.groups_deferred, 'group')} left for another run; {why}.")
        if resumable:
            screen.say(f"resume token {answer.resume_token}")
        _tell_expired(args, stats)
    warn(told.answer.warnings)


def _tell_expired(args: argparse.Namespace, stats: CompactionStats | None) -> None:
    if stats is not None and stats.snapshots_expired:
        freed = size_text(stats.bytes_freed)
        screen.say(f"\n{plural(stats.snapshots_expired, 'snapshot')} expired, {freed} freed.")
        tell_undo(args, stats.undo_id, stats.bytes_quarantined, stats.deletable_at)


def _estimated(estimate: Mapping[str, Any]) -> str:
    """Say what a plan takes, in one line."""
    requests = estimate["get_requests"] + estimate["put_requests"]
    return (
        f"It takes about {seconds_text(estimate['seconds'])} and {estimate['dollars']:.6f} dollars on Lambda "
        f"({estimate['compute_dollars']:.6f} of compute, {estimate['request_dollars']:.6f} for {requests} requests), "
        f"up to {estimate['peak_memory_mb']} MB here; a function needs {estimate['recommended_memory_mb']} MB."
    )


def _rewritten(stats: CompactionStats) -> str:
    return f"{plural(stats.files_compacted, 'file')} became {plural(stats.files_added, 'file')}"


def _policy(args: argparse.Namespace) -> dict[str, object]:
    """Return the fields that shape a plan. A selection is taken for a strategy too, as in the API's short form."""
    strategy, selection = args.strategy, args.selection
    if strategy in list(Selection):
        if selection not in (None, strategy):
            raise usage("--strategy", f"{strategy} is a selection, and --selection names another", "leave one out")
        strategy, selection = None, strategy
    return {
        "force": args.force or None,
        "target_file_size_mb": args.target_file_size_mb,
        "max_files": args.max_files,
        "partition_filter": args.partition,
        "where": args.where,
        "strategy": strategy,
        "selection": selection,
        "sort_order": args.sort,
        "options": _mapping("--option", args.option),
        "max_cost": args.max_cost,
        "ref": args.ref,
    }


def tell_undo(args: argparse.Namespace, undo_id: str | None, size_bytes: int, deletable_at: str | None) -> None:
    """Say what waits in quarantine and how to get it back; nothing where nothing waits."""
    if undo_id is not None:
        size = size_text(size_bytes)
        screen.say(f"{size} will be free after {deletable_at}. Until then, to get the snapshots back:")
        screen.say(f"  regelate expire {name_of(args)} --undo {undo_id}")


def serve(args: argparse.Namespace) -> int:
    from regelate.entrypoints.serve import serve as serve_http
    from regelate.settings import SettingsError

    service = Door(args).service
    name, _ = service.settings.catalog(args.catalog)

    def ready(url: str) -> None:
        docs = f"; the manual is {url}/docs" if service.settings.environment == "development" else ""
        told = f"serving catalog {name} ({service.settings.environment}) on {url}{docs}; stop with Ctrl-C"
        print(told, flush=True)

    try:
        serve_http(args.host, args.port, service, allowed=args.allow_host, on_ready=ready, jobs=service.worker)
    except SettingsError as fault:
        raise usage(
            "--host", fault.message, "leave --host out, or give an address of this machine's loopback"
        ) from None
    except OSError as fault:
        what = f"cannot listen on {args.host} port {args.port}: {fault.strerror or fault}"
        raise Failed(what, "choose another --port or --host; --port 0 takes a free one", FAILED) from None
    return 0


def invoke(args: argparse.Namespace) -> int:
    from regelate.entrypoints.aws.body import parse_body
    from regelate.entrypoints.dispatch import Unserved, dispatch

    with opened(args.file) as source:
        data = source.read()
    event = parse_body(data, max_bytes=max(len(data), 1))
    try:
        door = Door(args)
        made = dispatch(event, None, lambda: door.service)
    except Unserved as fault:
        made = fault.answer
    screen.put_json(made, indent=None if args.json else 2)
    return exit_code_of(_inner(made))


def _inner(made: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an HTTP envelope holds; a page that is not JSON stands for itself."""
    if "statusCode" not in made:
        return made
    kind = str(made.get("headers", {}).get("Content-Type", ""))
    inner = json.loads(made["body"]) if kind.startswith("application/json") else {}
    return inner if isinstance(inner, dict) else {}


def demo(args: argparse.Namespace) -> int:
    from regelate.entrypoints.demo.healing import run_demo

    return run_demo(args.home, rows=args.rows, as_json=args.json)


def _mapping(flag: str, pairs: Sequence[tuple[str, str]] | None) -> dict[str, str] | None:
    if pairs is None:
        return None
    if len(dict(pairs)) != len(pairs):
        raise usage(flag, "the same name appears twice", "name each only once")
    return dict(pairs)


def warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        screen.warn(warning)
