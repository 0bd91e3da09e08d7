"""The commands that keep tables small beside compaction: of one table, and the sweep over all of a catalog."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from regelate.core.jobs.exit_codes import DONE, PARTIAL
from regelate.core.policy.sizes import size_text
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.commands import name_of, tell_undo, warn
from regelate.entrypoints.cli.door import Answer, Door
from regelate.entrypoints.cli.failures import exit_code
from regelate.report import frames
from regelate.report.frames import plural


def expire(args: argparse.Namespace) -> int:
    fields = {
        "retention_hours": args.retention_hours,
        "min_snapshots_to_keep": args.min_snapshots_to_keep,
        "grace_hours": args.grace_hours,
        "dry_run": args.dry_run or None,
        "undo": args.undo,
    }
    answer = Door(args).ask("EXPIRE_SNAPSHOTS", args.table, fields)
    if args.json:
        screen.put_json(answer)
        return exit_code(answer)
    if answer["dry_run"]:
        screen.say(f"{plural(answer['snapshots_expired'], 'snapshot')} of {name_of(args)} would expire.")
    elif args.undo is not None:
        tags = "; each has a tag, undo-<snapshot id>" if answer["snapshot_ids"] else ""
        screen.say(f"{plural(answer['snapshots_restored'], 'snapshot')} of {name_of(args)} restored{tags}.")
    else:
        freed = f"{plural(answer['files_deleted'], 'file')} deleted, {size_text(answer['bytes_freed'])} freed"
        screen.say(f"{plural(answer['snapshots_expired'], 'snapshot')} of {name_of(args)} expired; {freed}.")
        tell_undo(args, answer)
    warn(answer)
    return exit_code(answer)


def orphans(args: argparse.Namespace) -> int:
    fields = {"older_than_hours": args.older_than_hours, "dry_run": not args.delete}
    answer = Door(args).ask("REMOVE_ORPHAN_FILES", args.table, fields)
    if args.json:
        screen.put_json(answer)
        return exit_code(answer)
    for found in answer["orphans"]:
        path = screen.printable_line(found["path"])
        screen.say(f"{size_text(found['size_bytes']):>10}  {found['modified_at']}  {path}")
    more = answer["orphan_files"] - len(answer["orphans"])
    if more:
        screen.say(f"... and {plural(more, 'more file')}")
    found_text = f"{plural(answer['orphan_files'], 'orphan file')} of {name_of(args)}"
    if args.delete:
        screen.say(f"{found_text}; {answer['files_deleted']:,} deleted, {size_text(answer['bytes_freed'])} freed.")
    else:
        hint = "; --delete deletes them" if answer["orphan_files"] else ""
        screen.say(f"{found_text}, {size_text(answer['orphan_bytes'])}{hint}.")
    return exit_code(answer)


def manifests(args: argparse.Namespace) -> int:
    answer = Door(args).ask("REWRITE_MANIFESTS", args.table, {"dry_run": args.dry_run or None})
    if args.json:
        screen.put_json(answer)
    elif not answer["manifests_replaced"]:
        screen.say(f"Nothing to do for {name_of(args)}: {plural(answer['manifests_before'], 'manifest')}.")
    else:
        verb = "would become" if args.dry_run else "became"
        replaced, made = plural(answer["manifests_replaced"], "manifest"), f"{answer['manifests_created']:,}"
        screen.say(f"{replaced} of {name_of(args)} {verb} {made}; the table has {answer['manifests_after']:,}.")
    return exit_code(answer)


def maintain(args: argparse.Namespace) -> int:
    fields = {
        "steps": args.steps,
        "force": args.force or None,
        "retention_hours": args.retention_hours,
        "min_snapshots_to_keep": args.min_snapshots_to_keep,
        "grace_hours": args.grace_hours,
        "older_than_hours": args.older_than_hours,
        "dry_run": args.dry_run or None,
    }
    answer = Door(args).ask("MAINTAIN", args.table, fields)
    if args.json:
        screen.put_json(answer)
        return exit_code(answer)
    for step in answer["steps"]:
        told = step["error"]["code"] if step["error"] is not None else _summary(step)
        screen.say(f"{step['step']:<17} {step['status'].lower().replace('_', ' '):<14} {told}".rstrip())
    expired = next((s["result"] for s in answer["steps"] if s["step"] == "expire" and s["result"]), None)
    if expired is not None:
        tell_undo(args, expired)
    warn(answer)
    return exit_code(answer)


def _summary(step: Mapping[str, Any]) -> str:
    """Return a few words on what a step did, or would do."""
    result = step["result"]
    if step["status"] == "NOTHING_TO_DO":
        return ""
    if step["step"] == "compact":
        stats = result["stats"]
        if stats is None:
            return f"{plural(result['plan']['files'], 'file')} to rewrite"
        return f"{plural(stats['files_compacted'], 'file')} became {plural(stats['files_added'], 'file')}"
    if step["step"] == "dangling_deletes":
        return plural(result["delete_files_removed"], "delete file")
    if step["step"] == "manifests":
        return f"{plural(result['manifests_replaced'], 'manifest')} became {result['manifests_created']:,}"
    if step["step"] == "expire":
        return f"{plural(result['snapshots_expired'], 'snapshot')} expired, {size_text(result['bytes_freed'])} freed"
    if step["step"] == "orphans":
        return f"{plural(result['orphan_files'], 'orphan file')}, {size_text(result['bytes_freed'])} freed"
    return f"{plural(result['files_deleted'], 'file')} deleted, {size_text(result['bytes_freed'])} freed"


def sweep(args: argparse.Namespace) -> int:
    fields = {
        "max_tables": args.max_tables,
        "time_budget_seconds": args.time_budget_seconds,
        "health_below": args.health_below,
        "max_jobs": args.max_jobs,
        "dry_run": args.dry_run or None,
    }
    answer = Door(args).ask("SWEEP", (args.namespace, None), fields)
    if args.json:
        screen.put_json(answer)
        return _exit_code(answer)
    frame = frames.swept(answer)
    if frame.rows:
        screen.show(frame)
        screen.say("")
    would = "would be " if answer["dry_run"] else ""
    what = f"{plural(answer['files_deleted'], 'file')} {would}deleted, {size_text(answer['bytes_freed'])} {would}freed"
    screen.say(f"{plural(answer['tables_swept'], 'table')} swept: {what}.")
    for table in answer["ranking"]:
        job = f" {table['job_id']}" if table["job_id"] is not None else ""
        told = f"{table['table']}: health {table['score']:g}, {table['rank'].lower().replace('_', ' ')}{job}"
        screen.say(screen.printable_line(told))
    if answer["jobs_submitted"]:
        screen.say(f"{plural(answer['jobs_submitted'], 'job')} submitted; `regelate jobs run` runs them here.")
    if answer["jobs_backlog"]:
        screen.say(f"{plural(answer['jobs_backlog'], 'unhealthy table')} left to the next sweep by --max-jobs.")
    if answer["backlog"]:
        screen.say(
            f"{plural(answer['backlog'], 'table')} left to the next sweep: the limits on time and tables were reached."
        )
    for table in answer["tables"]:
        if table["error"] is not None:
            screen.warn(f"{table['table']}: {table['error']['code']}: {table['error']['message']}")
    return _exit_code(answer)


def _exit_code(answer: Answer) -> int:
    return PARTIAL if answer["errors"] or answer["backlog"] else DONE
