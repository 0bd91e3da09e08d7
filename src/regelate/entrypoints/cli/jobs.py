"""`regelate jobs`: look at them, cancel one, and work them off here."""

from __future__ import annotations

import argparse
import threading
import time

from regelate.core.answers import CompactAnswer, JobAnswer, answer_fields
from regelate.core.engines import Engine
from regelate.core.jobs.exit_codes import DONE, FAILED
from regelate.core.jobs.job import LIVE, JobState, lock_of
from regelate.core.jobs.listing import JobFilter
from regelate.core.policy.sizes import size_text
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.door import Door, Told
from regelate.entrypoints.cli.failures import exit_code, usage
from regelate.report.frames import plural

LISTED = 50
_OVER = {JobState.SUCCEEDED: "Done already, by", JobState.CANCELLED: "Cancelled, as"}


def jobs(args: argparse.Namespace) -> int:
    if args.what != "list" and (args.of_table, args.state) != (None, None):
        flag = "--state" if args.of_table is None else "--table"
        raise usage(flag, f"`jobs {args.what}` takes none", f"regelate jobs list {flag} ...")
    if args.what in ("status", "cancel"):
        if args.job_id is None:
            raise usage(
                "JOB_ID", f"missing: which job? `regelate jobs {args.what} JOB_ID`", "`regelate jobs` lists them"
            )
        operation = "JOB_STATUS" if args.what == "status" else "JOB_CANCEL"
        return _told(args, Door(args).ask(operation, JobAnswer, (None, None), {"job_id": args.job_id}))
    if args.job_id is not None:
        raise usage("JOB_ID", f"`jobs {args.what}` takes no job id", f"regelate jobs status {args.job_id}")
    return _run(args) if args.what == "run" else _list(args)


def submitted(args: argparse.Namespace, told: Told[CompactAnswer]) -> int:
    """Say where a COMPACT went that a job does."""
    answer = told.answer
    if args.json:
        screen.put_json(told.made)
    else:
        over = None if answer.job_state is None else _OVER.get(answer.job_state)
        if over is not None:
            screen.say(f"{over} {answer.job_id}: another --idempotency-key compacts again.")
            return exit_code(answer)
        at_it = answer.reason == "JOB_RUNNING"
        screen.say(f"{'A job is compacting it already' if at_it else 'Submitted'}: {answer.job_id}")
        if answer.engine is Engine.SPARK:
            screen.say(f"Spark does it: {answer.explanation}.")
        screen.say("`regelate serve` runs it if one is started; `regelate jobs run` runs it here.", style="dim")
    return exit_code(answer)


def _told(args: argparse.Namespace, told: Told[JobAnswer]) -> int:
    job = told.answer
    if args.json:
        screen.put_json(told.made)
    else:
        screen.say(_line(job))
        if job.error is not None:
            screen.say(f"  {job.error.code}: {job.error.message}")
    return FAILED if job.state is JobState.FAILED else exit_code(job)


def _list(args: argparse.Namespace) -> int:
    door, lock = Door(args), None
    if args.of_table is not None:
        address = door.address(*args.of_table)
        lock = lock_of(address.catalog, address.ident)
    wanted = JobFilter(lock=lock, state=None if args.state is None else JobState(args.state))
    found = door.service.jobs.recent_jobs(LISTED, wanted)
    if args.json:
        screen.put_json({"jobs": [answer_fields(job) for job in found]})
    elif not found:
        screen.say("No jobs.")
    else:
        for job in found:
            screen.say(_line(job))
    return DONE


def _run(args: argparse.Namespace) -> int:
    """Run what is due, part by part, until nothing is and Spark is at none."""
    service, parts = Door(args).service, 0
    service.jobs.check_enabled()
    while True:
        if service.worker.run_due_job(stopping=threading.Event()):
            parts += 1
        elif any(job.run is not None and job.state in LIVE for job in service.jobs.recent_jobs(LISTED)):
            time.sleep(service.settings.spark.seconds_between_looks)
        else:
            break
    if args.json:
        screen.put_json({"parts_run": parts})
    else:
        screen.say(f"{plural(parts, 'part')} of jobs run; nothing is due." if parts else "No job is due.")
    return DONE


def _line(job: JobAnswer) -> str:
    progress, totals = job.progress, job.totals
    done = f"{progress.groups_done:,} of {progress.groups_all:,} groups" if progress.groups_all else "-"
    saved = f"{plural(totals.files_compacted, 'file')} became {totals.files_added:,}"
    what = f"{saved}, {size_text(totals.bytes_saved)} saved" if totals.snapshot_ids else ""
    return f"{job.job_id}  {job.state:<10}  {job.table}  {done}  {what}".rstrip()
