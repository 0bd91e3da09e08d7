"""`regelate fleet`: look at all tables, plan within budgets, begin, and say where each table stands."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from regelate.core.answers import (
    FleetApplyAnswer,
    FleetHistoryAnswer,
    FleetPlanAnswer,
    FleetScanAnswer,
    FleetStatusAnswer,
)
from regelate.core.answers.fleet import FleetRunAnswer
from regelate.core.fleet.operation import BACKLOG_DAYS, FleetOutcome
from regelate.core.jobs.exit_codes import DONE, FAILED, PARTIAL, SOMETHING_TO_DO
from regelate.core.policy.sizes import size_text
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.door import Door, Told
from regelate.entrypoints.cli.failures import usage
from regelate.report.frames import Frame, plural, seconds_text

FLAGS = {
    "scan": ("max_tables", "time_budget_seconds"),
    "plan": ("exit_code",),
    "apply": ("plan_id", "yes"),
    "status": ("of_table", "status", "limit"),
    "history": ("of_table", "limit"),
    "report": ("output",),
}
"""What each word takes beside --file."""


def fleet(args: argparse.Namespace) -> int:
    for flag in (
        "max_tables",
        "time_budget_seconds",
        "exit_code",
        "plan_id",
        "yes",
        "of_table",
        "status",
        "limit",
        "output",
    ):
        if getattr(args, flag) not in (None, False) and flag not in FLAGS[args.what]:
            told = "NS.TABLE" if flag == "of_table" else f"--{flag.replace('_', '-')}"
            raise usage(told, f"`fleet {args.what}` takes none", "regelate fleet --help")
    words = {"scan": _scan, "plan": _plan, "apply": _apply, "status": _status, "history": _history, "report": _report}
    return words[args.what](args, Door(args))


def _scan(args: argparse.Namespace, door: Door) -> int:
    fields = {"max_tables": args.max_tables, "time_budget_seconds": args.time_budget_seconds}
    told = door.ask("FLEET_SCAN", FleetScanAnswer, (None, None), fields)
    answer = told.answer
    if args.json:
        screen.put_json(told.made)
    else:
        looked = f"{plural(answer.observed, 'table')} observed, {answer.unchanged:,} of them unchanged"
        screen.say(f"{looked}. {_counts(answer.statuses)}")
        if answer.gone:
            screen.say(f"Gone: {', '.join(answer.gone[:10])}{' ...' if len(answer.gone) > 10 else ''}.")
        if answer.backlog:
            screen.say(f"{plural(answer.backlog, 'table')} left to the next scan, which begins with them.")
        for error in answer.errors:
            screen.warn(f"{error.table}: {error.code}: {error.message}")
    return PARTIAL if answer.backlog or answer.errors else DONE


def _plan(args: argparse.Namespace, door: Door) -> int:
    told = door.ask("FLEET_PLAN", FleetPlanAnswer, (None, None), {})
    if args.json:
        screen.put_json(told.made)
    else:
        _show_plan(told.answer)
        if told.answer.plan_id is not None:
            screen.say(f"Nothing was begun. `regelate fleet apply --plan-id {told.answer.plan_id} --yes` begins it.")
    return SOMETHING_TO_DO if args.exit_code and told.answer.runs else DONE


def _show_plan(answer: FleetPlanAnswer) -> None:
    rows = tuple(
        (
            f"{run.rank:,}",
            run.table,
            run.operation.value,
            f"{run.removes:,}",
            size_text(run.bytes),
            seconds_text(run.seconds),
            _dollars(run.dollars),
            run.reason,
        )
        for run in answer.runs
    )
    columns = ("#", "table", "operation", "removes", "reads", "time", "price", "why")
    screen.show(Frame(columns=columns, rows=rows, right=frozenset({0, 3, 4, 5, 6})))
    if rows:
        screen.say("")
    error = "" if answer.pace_error is None else f", predicted times were off by {answer.pace_error:.0%} so far"
    screen.say(f"{plural(len(rows), 'run')} for {_dollars(answer.dollars)}{error}. {_counts(answer.statuses)}")
    if any(run.operation.rewrites_data for run in answer.runs):
        listed = [
            f"{'at least ' * p.is_least}{_dollars(p.dollars)} by {p.service} ({p.as_of})" for p in answer.elsewhere
        ]
        screen.say(f"For the rewrites among them others list {' and '.join(listed)}.")
    for bill in answer.bills:
        if bill.day_budget_dollars is not None:
            whose = "all" if bill.tenant is None else bill.tenant
            spent, budget = _dollars(bill.day_dollars), _dollars(bill.day_budget_dollars)
            screen.say(f"Budget of {whose}: {spent} of {budget} of today spent or set aside.")


def _apply(args: argparse.Namespace, door: Door) -> int:
    if not args.yes:
        if args.plan_id is not None:
            raise usage("--plan-id", "nothing is begun without --yes", "regelate fleet apply --plan-id ID --yes")
        planned = door.ask("FLEET_PLAN", FleetPlanAnswer, (None, None), {})
        if args.json:
            screen.put_json(planned.made)
        else:
            _show_plan(planned.answer)
            screen.say("Nothing was begun: say --yes.")
        return DONE
    told = door.ask("FLEET_APPLY", FleetApplyAnswer, (None, None), {"plan_id": args.plan_id})
    while _worked(door) and told.answer.plan_id is not None:
        before = told.answer
        told = door.ask("FLEET_APPLY", FleetApplyAnswer, (None, None), {"plan_id": before.plan_id})
        if told.answer == before:
            break
    return _applied(args, told)


def _worked(door: Door) -> bool:
    """Work off the jobs here, where they are kept on this machine; false where there was nothing, or it is others'."""
    worker, worked = door.service.worker, False
    if not worker.job_threads:
        return False
    while worker.run_due_job(stopping=threading.Event()):
        worked = True
    return worked


def _applied(args: argparse.Namespace, told: Told[FleetApplyAnswer]) -> int:
    answer = told.answer
    if args.json:
        screen.put_json(told.made)
    else:
        screen.show(_runs(answer.runs))
        paid = sum(run.dollars or 0.0 for run in answer.runs)
        under_way = sum(run.outcome is None for run in answer.runs)
        jobs = f"; {plural(under_way, 'job')} under way" if under_way else ""
        price = f"{_dollars(paid)} of {_dollars(answer.predicted_dollars)} predicted"
        screen.say(f"{plural(len(answer.runs), 'run')}, {price}{jobs}." if answer.runs else "Nothing to do.")
        for left in answer.left:
            screen.say(f"Left: {left.operation.value} of {left.table}: {left.why}")
    if any(run.outcome is FleetOutcome.FAILED for run in answer.runs):
        return FAILED if all(run.outcome is FleetOutcome.FAILED for run in answer.runs) else PARTIAL
    return PARTIAL if answer.left else DONE


def _status(args: argparse.Namespace, door: Door) -> int:
    fields: dict[str, object] = {"status": args.status, "limit": args.limit}
    told = door.ask("FLEET_STATUS", FleetStatusAnswer, args.of_table or (None, None), fields)
    answer = told.answer
    if args.json:
        screen.put_json(told.made)
        return DONE
    if args.of_table is not None:
        for table in answer.tables:
            score = "" if table.score is None else f" Health {table.score:g}."
            screen.say(f"{table.table}: {table.status.value}. {table.sentence}{score}")
            screen.say(f"May run from {table.next_eligible_at}." if table.next_eligible_at else "", style="dim")
        return DONE
    rows = tuple(
        (t.table, t.status.value, "" if t.score is None else f"{t.score:g}", t.next_eligible_at or "", t.sentence)
        for t in answer.tables
    )
    columns = ("table", "status", "health", "may run from", "why")
    screen.show(Frame(columns=columns, rows=rows, right=frozenset({2})))
    more = f" {plural(answer.more, 'table')} more: --limit." if answer.more else ""
    screen.say(f"{_counts(answer.statuses)}{more}")
    return DONE


def _history(args: argparse.Namespace, door: Door) -> int:
    told = door.ask("FLEET_HISTORY", FleetHistoryAnswer, args.of_table or (None, None), {"limit": args.limit})
    if args.json:
        screen.put_json(told.made)
    elif told.answer.runs:
        screen.show(_runs(told.answer.runs))
    else:
        screen.say("No run has ended yet.")
    return DONE


def _report(args: argparse.Namespace, door: Door) -> int:
    """Write the page. It takes what the screens of status, plan and history show, all of it."""
    from regelate.report.fleet.answers import MOST_RUNS, MOST_TABLES, contents_of
    from regelate.report.fleet.page import fleet_page

    status = door.ask("FLEET_STATUS", FleetStatusAnswer, (None, None), {"limit": MOST_TABLES})
    plan = door.ask("FLEET_PLAN", FleetPlanAnswer, (None, None), {})
    history = door.ask(
        "FLEET_HISTORY", FleetHistoryAnswer, (None, None), {"limit": MOST_RUNS, "backlog_days": BACKLOG_DAYS}
    )
    catalog, _ = door.service.settings.catalog(args.catalog)
    now_ms = int(time.time() * 1000)
    contents = contents_of(status.answer, plan.answer, history.answer, catalog=catalog, now_ms=now_ms)
    output = Path(args.output or "fleet.html")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(fleet_page(contents), encoding="utf-8")
    except OSError as fault:
        raise usage("--output", f"cannot write to {output}: {fault.strerror}", "choose another file") from None
    if args.json:
        told = {"output": str(output), "tables": len(contents.tables), "runs": len(contents.runs)}
        screen.put_json({"success": True, **told})
    else:
        screen.say(f"Report: {output} ({plural(len(contents.tables), 'table')}, {plural(len(contents.runs), 'run')})")
    return DONE


def _runs(runs: Sequence[FleetRunAnswer]) -> Frame:
    def files(run: FleetRunAnswer) -> str:
        before, after = run.files_before, run.files_after
        return "" if before is None else f"{before:,}" if after is None else f"{before:,} -> {after:,}"

    rows = tuple(
        (
            run.ended_at or run.queued_at,
            run.table,
            run.operation.value,
            run.outcome.value if run.outcome is not None else "RUNNING",
            files(run),
            f"{_dollars(run.predicted_dollars)} / {'' if run.dollars is None else _dollars(run.dollars)}",
            run.error or run.reason,
        )
        for run in runs
    )
    columns = ("at", "table", "operation", "outcome", "files", "predicted / paid", "why")
    return Frame(columns=columns, rows=rows, right=frozenset({4, 5}))


def _counts(statuses: Mapping[str, int]) -> str:
    told = ", ".join(f"{count:,} {name.lower().replace('_', ' ')}" for name, count in statuses.items())
    return f"Tables: {told}." if told else "No table is known: `regelate fleet scan` looks for them."


def _dollars(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.6f}".rstrip("0").rstrip(".") if dollars else "$0"
