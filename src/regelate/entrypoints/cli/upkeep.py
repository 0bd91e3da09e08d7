"""The commands that keep a table small beside compaction."""

from __future__ import annotations

import argparse

from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.commands import name_of, tell_undo, warn
from regelate.entrypoints.cli.door import Door
from regelate.entrypoints.cli.faults import exit_code
from regelate.report.frames import plural, size_text


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
