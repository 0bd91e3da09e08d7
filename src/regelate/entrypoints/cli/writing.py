"""`regelate write`: JSON lines batch by batch, any other file in one commit."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from regelate.core.answers import DescribeTableAnswer, WriteAnswer
from regelate.core.jobs.exit_codes import PARTIAL
from regelate.core.policy.policy import MB
from regelate.core.requests import WriteMode
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.commands import branch_of
from regelate.entrypoints.cli.door import Door
from regelate.entrypoints.cli.failures import Failed, usage
from regelate.entrypoints.cli.rows import (
    csv_table,
    format_of,
    json_array,
    json_lines,
    opened,
    parquet_table,
    size_of,
)
from regelate.report.frames import plural, printable

WHOLE = WriteMode.OVERWRITE_PARTITIONS
"""A second batch would overwrite what the first one wrote, so these rows go together."""
_LINES_OF_A_TARGET = 4
"""JSON lines take so many times the bytes of the Parquet file that holds them, or more: a batch makes a file or two."""
_NO_LIMIT = 2**62


@dataclass
class _Sum:
    """What the WRITEs of one command came to."""

    rows: int = 0
    requests: int = 0
    commits: int = 0
    small_files: int | None = None
    recommended: bool = False

    def add(self, answer: WriteAnswer) -> None:
        self.requests += 1
        self.rows += answer.records_written
        self.commits += 1 if answer.records_written else 0
        self.recommended = self.recommended or answer.compaction_recommended
        self.small_files = answer.small_files_count or self.small_files


def write(args: argparse.Namespace) -> int:
    form = format_of(args.file, args.format)
    if args.null and form != "csv":
        raise usage("--null", f"a {form} file has nulls of its own", "leave --null out")
    door, done = Door(args), _Sum()
    if form == "jsonl" and args.mode != WHOLE:
        _in_batches(args, door, done)
    else:
        _at_once(args, door, form, done)
    if not args.json:
        _told(args, done)
    return 0


def _at_once(args: argparse.Namespace, door: Door, form: str, done: _Sum) -> None:
    rows: Any
    with opened(args.file) as source, screen.progress("reading") as shown:
        if form == "jsonl":
            rows = next(json_lines(source, args.file, _NO_LIMIT), [])
        elif form == "json":
            rows = json_array(source, args.file)
        elif form == "parquet":
            rows = parquet_table(source, args.file)
        else:
            fields = door.ask("DESCRIBE_TABLE", DescribeTableAnswer, args.table, {}).answer.schema.fields
            rows = csv_table(source, args.file, fields, args.null or [""])
        shown(0, None, f"writing: {plural(len(rows), 'row')}")
        _write(args, door, rows, args.idempotency_key, done)


def _in_batches(args: argparse.Namespace, door: Door, done: _Sum) -> None:
    """Write batch after batch, each committed for itself. A batch of a repeated command is found by its own key."""
    most = _LINES_OF_A_TARGET * door.service.settings.iceberg.write.target_file_size_mb * MB
    key = args.idempotency_key
    with opened(args.file) as source, screen.progress("reading") as shown:
        total = size_of(args.file)
        try:
            for number, batch in enumerate(json_lines(source, args.file, most)):
                _write(args, door, batch, None if key is None else f"{key}/{number}", done)
                shown(batch.read_bytes, total, f"writing: {plural(done.rows, 'row')}")
            if not done.requests:  # no rows: the table is looked at all the same
                _write(args, door, [], key, done)
        except Failed as fault:
            if not done.rows:
                raise
            before = plural(done.rows, "row")
            what = f"{fault.what} (of this batch; {before} of earlier batches are in the table)"
            raise Failed(
                what, f"correct it, then write what follows the first {before}", PARTIAL, fault.answer
            ) from None


def _write(args: argparse.Namespace, door: Door, rows: Any, idempotency_key: str | None, done: _Sum) -> None:
    fields = {
        "records": [],
        "mode": args.mode,
        "key": args.key,
        "missing_columns": args.missing_columns,
        "idempotency_key": idempotency_key,
        "ref": args.ref,
    }
    told = door.ask("WRITE", WriteAnswer, args.table, fields, rows=rows)
    done.add(told.answer)
    if args.json:
        screen.put_json(told.made)


def _told(args: argparse.Namespace, done: _Sum) -> None:
    table = printable(".".join(args.table))
    screen.say(f"Wrote {plural(done.rows, 'row')} to {table} in {plural(done.commits, 'commit')}.")
    if done.recommended:
        small = plural(done.small_files or 0, "small file")
        screen.say(f"Compaction is recommended ({small}): regelate compact {branch_of(args)}")
