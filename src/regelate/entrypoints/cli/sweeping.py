"""`regelate sweep`: every table of the catalog, and what dead runs left behind in it."""

from __future__ import annotations

import argparse

from regelate.core.exit_codes import DONE, PARTIAL
from regelate.core.sizes import size_text
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.door import Answer, Door
from regelate.report import frames
from regelate.report.frames import plural


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
        screen.say(f"{plural(answer['jobs_submitted'], 'job')} submitted; `regelate jobs run` works them off here.")
    if answer["jobs_backlog"]:
        screen.say(f"{plural(answer['jobs_backlog'], 'ill table')} left to the next sweep by --max-jobs.")
    if answer["backlog"]:
        screen.say(f"{plural(answer['backlog'], 'table')} left to the next sweep by the budgets.")
    for table in answer["tables"]:
        if table["error"] is not None:
            screen.warn(f"{table['table']}: {table['error']['code']}: {table['error']['message']}")
    return _exit_code(answer)


def _exit_code(answer: Answer) -> int:
    return PARTIAL if answer["errors"] or answer["backlog"] else DONE
