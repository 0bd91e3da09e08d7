"""A fault as two lines, what was wrong and what to do, and the exit code that a script can act on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from regelate.core.answers import Answer, CompactAnswer, MaintainAnswer, Status
from regelate.core.jobs.exit_codes import DONE, FAILED, LATER, PARTIAL, USAGE
from regelate.entrypoints.api.responses import Outcome, outcome_of
from regelate.report.frames import printable

_MOST_LINE_CHARACTERS = 600

HINTS: Mapping[str, str] = {
    "TABLE_NOT_FOUND": "check the spelling; REGELATE_HOME, REGELATE_CONFIG and --catalog say where to look; "
    "an SQL catalog must have the name in config.json that its tables were written under",
    "NAMESPACE_NOT_FOUND": "`regelate list` shows the namespaces; check the spelling, and --catalog",
    "TABLE_EXISTS": "choose another name, or accept the same table with --if-not-exists",
    "CATALOG_NOT_FOUND": "compare --catalog with `catalogs` in config.json",
    "INVALID_CONFIG": "correct the key or the variable that is named",
    "FORBIDDEN": "name a tenant that config.json lists, with --tenant",
    "SNAPSHOT_NOT_FOUND": "`regelate describe NS.TABLE` shows the current snapshot; expired ones are gone",
    "INVALID_JSON": "correct the JSON",
    "QUERY_TIMEOUT": "filter more rows, read fewer columns, or raise limits.query_seconds in config.json",
    "RESULT_TOO_LARGE": "read fewer rows or columns (--limit, --columns), or aggregate",
    "COMMIT_CONFLICT": "other writers were faster each time; run the same command again",
    "PLAN_CHANGED": "make a new plan: `regelate plan NS.TABLE`",
    "IDEMPOTENCY_KEY_REUSED": "send the request that this --idempotency-key was made for, or choose another key",
    "COMMIT_STATE_UNKNOWN": "look at the table before you repeat it; repeating with --idempotency-key is safe",
    "COST_LIMIT_EXCEEDED": "narrow it with --partition or --max-files, or raise --max-cost",
    "DEMO_DATA_MISSING": "install it: pip install 'regelate[demo]'",
    "ENGINE_UNAVAILABLE": "install what the message names",
    "JOB_NOT_FOUND": "`regelate jobs` lists the jobs that exist",
    "JOBS_DISABLED": "set jobs.store in config.json, or compact without --async",
    "UNSUPPORTED_TABLE": "`regelate compact NS.TABLE --engine spark` compacts it on Spark, where Spark is set up; "
    "nothing was changed",
    "SPARK_DISABLED": "`make setup-spark`, or pip install 'regelate[spark]', and spark.run in config.json",
    "GC_DISABLED": "the table says gc.enabled=false: its files may be shared with other tables or branches",
    "CATALOG_UNAVAILABLE": "check that the catalog of config.json can be reached, then run the command again",
    "CATALOG_AUTH": "check the credentials of the catalog in config.json",
    "STORAGE_AUTH": "check the permissions on the table's location",
    "WEBHOOK_FAILED": "run the same command again later; the report itself was written",
    "WEBHOOK_REFUSED": "check the address in --webhook or REGELATE_REPORT_WEBHOOK; the report itself was written",
    "LOCAL_STORAGE_FULL": "free some disk, or rewrite fewer files at once with --max-files",
    "TOO_LARGE": "narrow it with --partition or --where, or set --max-files and repeat",
    "TOO_LONG": "narrow it with --partition or --where, or set --max-files and repeat",
    "OUT_OF_MEMORY": "rewrite fewer files at once with --max-files, or raise placement.memory_mb in config.json",
}
_BY_STATUS: Mapping[int, str] = {
    400: "correct the command; `regelate COMMAND --help` shows its flags",
    403: "ask for access",
    404: "check the name",
    409: "look at the table as it is now, then plan again",
    413: "split it into smaller parts",
    422: "correct the values and send them again; nothing was written",
    424: "repair the table or its storage first: a file is missing or damaged",
    501: "use another engine for this table; it was left as it is",
    507: "take a smaller part of the table, or a larger machine",
}
_RETRY = "run the same command again later"
BUG = "please report it, with the output of the same command and --verbose"

FLAGS: Mapping[str, str] = {
    "async": "--async",
    "job_id": "JOB_ID",
    "resume_token": "--resume-token",
    "aggregates": "--aggregate",
    "as_of": "--as-of",
    "catalog": "--catalog",
    "columns": "--columns",
    "expire_snapshots": "--no-expire",
    "filter": "--filter",
    "group_by": "--group-by",
    "idempotency_key": "--idempotency-key",
    "key": "--key",
    "limit": "--limit",
    "max_cost": "--max-cost",
    "max_files": "--max-files",
    "health_below": "--health-below",
    "max_jobs": "--max-jobs",
    "max_tables": "--max-tables",
    "min_snapshots_to_keep": "--min-snapshots-to-keep",
    "missing_columns": "--missing-columns",
    "mode": "--mode",
    "namespace": "NS.TABLE",
    "offset": "--offset",
    "options": "--option",
    "order_by": "--order-by",
    "partition_filter": "--partition",
    "partition_spec": "--partition",
    "plan_id": "--plan-id",
    "properties": "--property",
    "retention_hours": "--retention-hours",
    "schema": "--schema",
    "selection": "--selection",
    "snapshot_id": "--snapshot-id",
    "snapshot_retention_hours": "--retention-hours",
    "sort_order": "--sort",
    "sql": "--sql",
    "strategy": "--strategy",
    "engine": "--engine",
    "table": "NS.TABLE",
    "target_file_size_mb": "--target-file-size-mb",
    "tenant_id": "--tenant",
    "time_budget_seconds": "--time-budget-seconds",
    "verify": "--verify",
    "webhook": "--webhook",
    "where": "--where",
}
"""Fields of requests, and the flags that fill them."""
_BY_CODE: Mapping[str, str] = {
    "CATALOG_NOT_FOUND": "--catalog",
    "INVALID_RETENTION": "--retention-hours",
    "INVALID_PARTITION_SPEC": "--partition",
    "INVALID_SCHEMA": "--schema",
}


_OF_OUTCOME: Mapping[Outcome, int] = {
    Outcome.DONE: DONE,
    Outcome.PARTIAL: PARTIAL,
    Outcome.FAILED: FAILED,
    Outcome.RETRYABLE: LATER,
}


class Failed(Exception):
    """A command that came to nothing: two lines, an exit code, and the API's answer where there is one."""

    def __init__(self, what: str, todo: str, code: int, answer: Mapping[str, Any] | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.todo = todo
        self.code = code
        self.answer = answer

    @property
    def lines(self) -> str:
        return f"error: {_line(self.what)}\nhelp: {_line(self.todo)}"


def usage(flag: str, rule: str, todo: str) -> Failed:
    """Make the fault of a command line that is wrong."""
    return Failed(f"{flag}: {rule}", todo, USAGE)


def refused(answer: Mapping[str, Any], status: int, sent: Collection[str]) -> Failed:
    """Make the fault of an answer that says `success: false`. `sent`: the fields of its request."""
    error = answer["error"]
    code, message = error["code"], error["message"]
    field, flag = _field_and_flag(error, sent)
    if flag is not None and flag not in message:
        message = _naming(flag, field, message)
    todo = HINTS.get(code) or (_RETRY if error["retryable"] else _BY_STATUS.get(status, BUG))
    return Failed(f"{code}: {message}", todo, _exit_code(error, flag), answer)


def _naming(flag: str, field: str, message: str) -> str:
    """Put the flag in the place of the field's name, or before a message that does not begin with it."""
    top, dot, _ = field.partition(".")
    if message.startswith(f"{top}{dot}") and field:
        rest = message.removeprefix(f"{top}{dot}")
        return f"{flag} {rest}" if dot else f"{flag}{rest}"
    return f"{flag}: {message}"


def exit_code(answer: Answer) -> int:
    """Return the exit code of what an operation answers."""
    partial = isinstance(answer, CompactAnswer | MaintainAnswer) and answer.status == Status.PARTIAL
    return PARTIAL if partial else DONE


def exit_code_of(made: Mapping[str, Any]) -> int:
    """Return the exit code of the JSON of an answer that no flag was involved in."""
    return _OF_OUTCOME[outcome_of(made)]


def _exit_code(error: Mapping[str, Any], flag: str | None) -> int:
    if error["retryable"]:
        return LATER
    return FAILED if flag is None else USAGE


def _field_and_flag(error: Mapping[str, Any], sent: Collection[str]) -> tuple[str, str | None]:
    """Return the field that a fault is about, and its flag; a field that no flag filled has none."""
    details, code = error["details"], error["code"]
    field = str(details.get("field", details.get("option", "")))
    named = field.partition(".")[0].partition("[")[0]
    if named in sent or code == "MISSING_FIELD":
        return field, FLAGS.get(named)
    return field, _BY_CODE.get(code)


def _line(text: str) -> str:
    shown = " ".join(text.split())
    shown = "".join(c if c.isprintable() else printable(c) for c in shown)
    return shown if len(shown) <= _MOST_LINE_CHARACTERS else shown[:_MOST_LINE_CHARACTERS] + "..."
