"""`main`: parse, run one command, and turn every end into an exit code. No stack trace ever reaches a user."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from regelate.core.jobs.exit_codes import USAGE
from regelate.entrypoints.cli.parser import make_parser

OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Importing makes objects that stay: to look for garbage after every 700 of them is a quarter of a short command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; --help lists the codes."""
    parser = make_parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    if args.run is None:
        parser.print_help()
        return 0
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    from regelate.entrypoints.cli.running import run
    from regelate.entrypoints.memory import use_system_memory

    use_system_memory()
    try:
        code = run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _hush()
        return 0
    return code


def _hush() -> None:
    """Let the interpreter flush what is left into nothing; it would complain about the pipe at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
