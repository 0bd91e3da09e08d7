"""The commands that keep tables small beside compaction: of one table, and the sweep over all of a catalog."""

from __future__ import annotations

import argparse

from regelate.core.answers import (
    ExpireSnapshotsAnswer,
    MaintainAnswer,
    RemoveOrphanFilesAnswer,
    RewriteManifestsAnswer,
    Step,
    StepAnswer,
    StepStatus,
    SweepAnswer,
)
from regelate.core.jobs.exit_codes import DONE, PARTIAL
from regelate.core.policy.sizes import size_text
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.commands import name_of, tell_undo, warn
from regelate.entrypoints.cli.door import Door
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
    told = Door(args).ask("EXPIRE_SNAPSHOTS", ExpireSnapshotsAnswer, args.table, fields)
    answer = told.answer
    if args.json:
        screen.put_json(told.made)
        return exit_code(answer)
    if answer.dry_run:
        screen.say(f"{plural(answer.snapshots_expired, 'snapshot')} of {name_of(args)} would expire.")
    elif args.undo is not None:
        tags = "; each has a tag, undo-<snapshot id>" if answer.snapshot_ids else ""
        screen.say(f"{plural(answer.snapshots_restored, 'snapshot')} of {name_of(args)} restored{tags}.")
    else:
        freed = f"{plural(answer.files_deleted, 'file')} deleted, {size_text(answer.bytes_freed)} freed"
        screen.say(f"{plural(answer.snapshots_expired, 'snapshot')} of {name_of(args)} expired; {freed}.")
        tell_undo(args, answer.undo_id, answer.bytes_quarantined, answer.deletable_at)
    warn(answer.warnings)
    return exit_code(answer)


def orphans(args: argparse.Namespace) -> int:
    fields = {"older_than_hours": args.older_than_hours, "dry_run": not args.delete}
    told = Door(args).ask("REMOVE_ORPHAN_FILES", RemoveOrphanFilesAnswer, args.table, fields)
    answer = told.answer
    if args.json:
        screen.put_json(told.made)
        return exit_code(answer)
    for found in answer.orphans:
        path = screen.printable_line(found.path)
        screen.say(f"{size_text(found.size_bytes):>10}  {found.modified_at}  {path}")
    more = answer.orphan_files - len(answer.orphans)
    if more:
        screen.say(f"... and {plural(more, 'more file')}")
    found_text = f"{plural(answer.orphan_files, 'orphan file')} of {name_of(args)}"
    if args.delete:
        screen.say(f"{found_text}; {answer.files_deleted:,} deleted, {size_text(answer.bytes_freed)} freed.")
    else:
        hint = "; --delete deletes them" if answer.orphan_files else ""
        screen.say(f"{found_text}, {size_text(answer.orphan_bytes)}{hint}.")
    return exit_code(answer)


def manifests(args: argparse.Namespace) -> int:
    told = Door(args).ask("REWRITE_MANIFESTS", RewriteManifestsAnswer, args.table, {"dry_run": args.dry_run or None})
    answer = told.answer
    if args.json:
        screen.put_json(told.made)
    elif not answer.manifests_replaced:
        screen.say(f"Nothing to do for {name_of(args)}: {plural(answer.manifests_before, 'manifest')}.")
    else:
        verb = "would become" if args.dry_run else "became"
        replaced, made = plural(answer.manifests_replaced, "manifest"), f"{answer.manifests_created:,}"
        screen.say(f"{replaced} of {name_of(args)} {verb} {made}; the table has {answer.manifests_after:,}.")
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
    told = Door(args).ask("MAINTAIN", MaintainAnswer, args.table, fields)
    answer = told.answer
    if args.json:
        screen.put_json(told.made)
        return exit_code(answer)
    for step in answer.steps:
        said = step.error.code if step.error is not None else _summary(step, answer.dry_run)
        screen.say(f"{step.step:<17} {_status(step, answer.dry_run):<14} {said}".rstrip())
    expired = next((s.result for s in answer.steps if s.step is Step.EXPIRE and s.result), None)
    if expired is not None:
        tell_undo(args, expired["undo_id"], expired["bytes_quarantined"], expired["deletable_at"])
    warn(answer.warnings)
    return exit_code(answer)


def _status(step: StepAnswer, dry_run: bool) -> str:
    return "would do" if dry_run and step.status is StepStatus.DONE else step.status.lower().replace("_", " ")


def _summary(step: StepAnswer, dry_run: bool) -> str:
    """Return a few words on what a step did, or would do."""
    result = step.result
    if step.status is StepStatus.NOTHING_TO_DO or result is None:
        return ""
    become, be, expire = ("would become", "would be ", "would expire") if dry_run else ("became", "", "expired")
    if step.step is Step.COMPACT:
        stats = result["stats"]
        if stats is None:
            files, made = (result["plan"][name] for name in ("files", "expected_output_files"))
        else:
            files, made = (stats[name] for name in ("files_compacted", "files_added"))
        return f"{plural(files, 'file')} {become} {plural(made, 'file')}"
    if step.step is Step.DANGLING_DELETES:
        return f"{plural(result['delete_files_removed'], 'delete file')} {be}removed"
    if step.step is Step.MANIFESTS:
        return f"{plural(result['manifests_replaced'], 'manifest')} {become} {result['manifests_created']:,}"
    if step.step is Step.EXPIRE:
        freed = "" if dry_run else f", {size_text(result['bytes_freed'])} freed"
        return f"{plural(result['snapshots_expired'], 'snapshot')} {expire}{freed}"
    if step.step is Step.ORPHANS:
        size = size_text(result["orphan_bytes"] if dry_run else result["bytes_freed"])
        return f"{plural(result['orphan_files'], 'orphan file')} {be}deleted, {size} {be}freed"
    return f"{plural(result['files_deleted'], 'file')} {be}deleted, {size_text(result['bytes_freed'])} {be}freed"


def sweep(args: argparse.Namespace) -> int:
    fields = {
        "max_tables": args.max_tables,
        "time_budget_seconds": args.time_budget_seconds,
        "health_below": args.health_below,
        "max_jobs": args.max_jobs,
        "dry_run": args.dry_run or None,
    }
    told = Door(args).ask("SWEEP", SweepAnswer, (args.namespace, None), fields)
    answer = told.answer
    if args.json:
        screen.put_json(told.made)
        return _exit_code(answer)
    frame = frames.swept(told.made)
    if frame.rows:
        screen.show(frame)
        screen.say("")
    would = "would be " if answer.dry_run else ""
    what = f"{plural(answer.files_deleted, 'file')} {would}deleted, {size_text(answer.bytes_freed)} {would}freed"
    screen.say(f"{plural(answer.tables_swept, 'table')} swept: {what}.")
    for ranked in answer.ranking:
        job = f" {ranked.job_id}" if ranked.job_id is not None else ""
        said = f"{ranked.table}: health {ranked.score:g}, {ranked.rank.lower().replace('_', ' ')}{job}"
        screen.say(screen.printable_line(said))
    if answer.jobs_submitted:
        screen.say(f"{plural(answer.jobs_submitted, 'job')} submitted; `regelate jobs run` runs them here.")
    if answer.jobs_backlog:
        screen.say(f"{plural(answer.jobs_backlog, 'unhealthy table')} left to the next sweep by --max-jobs.")
    if answer.backlog:
        screen.say(
            f"{plural(answer.backlog, 'table')} left to the next sweep: the limits on time and tables were reached."
        )
    for table in answer.tables:
        if table.error is not None:
            screen.warn(f"{table.table}: {table.error.code}: {table.error.message}")
    return _exit_code(answer)


def _exit_code(answer: SweepAnswer) -> int:
    return PARTIAL if answer.errors or answer.backlog else DONE
