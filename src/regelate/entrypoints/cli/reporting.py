"""`regelate report`: the results of jobs as one document, and a message about it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regelate.core.jobs.exit_codes import DONE, FAILED
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.failures import usage
from regelate.report import documents, plots
from regelate.report.jobs import Report, report_of
from regelate.report.webhook import post

WEBHOOK = "REGELATE_REPORT_WEBHOOK"
Answer = Mapping[str, Any]


def report(args: argparse.Namespace) -> int:
    """Write the report, send it where that was asked for, and return 1 where a job in it had failed."""
    results = [_read(Path(name)) for name in args.files]
    try:
        made = report_of(results, args.title)
        pictures = [plots.of_result(result) for result in results]
        message = documents.message(made)
    except (KeyError, TypeError, AttributeError) as fault:
        todo = "take what --result or `compact --json` wrote"
        raise usage("RESULT.json", f"is not the result of a job ({type(fault).__name__}: {fault})", todo) from None
    if args.json:
        screen.put_json({"success": True, "failures": made.failures, "message": message})
    else:
        _write(args, made, pictures)
    url = args.webhook or os.environ.get(WEBHOOK)
    if url:
        post(url, message)
    return FAILED if made.failures else DONE


def _read(path: Path) -> Answer:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or "is not JSON"
        raise usage("RESULT.json", f"{path}: {why}", "name files that --result has written") from None
    if not isinstance(found, dict):
        raise usage("RESULT.json", f"{path} does not hold a JSON object", "name files that --result has written")
    return found


def _write(args: argparse.Namespace, made: Report, pictures: Sequence[bytes]) -> None:
    output = None if args.output is None else Path(args.output)
    as_page = args.format == "html" or (args.format is None and output is not None and output.suffix == ".html")
    try:
        if as_page:
            text = documents.page(made, pictures)
        else:
            text = documents.markdown(made, [] if output is None else _beside(output, pictures))
        if output is None:
            sys.stdout.write(text)
        else:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text, encoding="utf-8")
    except OSError as fault:
        raise usage("--output", f"cannot write to {output}: {fault.strerror}", "choose another file") from None
    if output is not None:
        screen.say(f"Report: {output}")


def _beside(output: Path, pictures: Sequence[bytes]) -> list[str]:
    """Write the pictures beside a Markdown file and return their links."""
    names = [f"{output.stem}-{number}.png" if data else "" for number, data in enumerate(pictures, start=1)]
    for name, data in zip(names, pictures, strict=True):
        if name:
            output.parent.mkdir(parents=True, exist_ok=True)
            (output.parent / name).write_bytes(data)
    return names
