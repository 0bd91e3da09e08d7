"""What a person sees: tables on standard output, progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from regelate.report.frames import Frame, printable

PIPED_COLUMNS = 200
"""Width of a table that goes into a pipe or a file: there nobody sees an edge."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`: whoever reads the pipe has read enough, which is no failure."""
        raise BrokenPipeError


def stdout() -> Console:
    """Return the console of now: a test, or a caller, may have put another stream there."""
    wide = None if sys.stdout.isatty() else PIPED_COLUMNS
    return _Console(file=sys.stdout, width=wide, highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    return _Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


def say(text: str, *, style: str | None = None) -> None:
    """Print one paragraph; what a terminal would obey is shown, not obeyed."""
    safe = "\n".join(printable_line(line) for line in text.split("\n"))
    stdout().print(Text(safe, style=style or ""), soft_wrap=True)


def printable_line(line: str) -> str:
    """Return a line of any length without control characters."""
    return line if line.isprintable() else "".join(c if c.isprintable() else printable(c) for c in line)


def show(frame: Frame, *, title: str | None = None) -> None:
    """Print a table; one without column names is a list of facts."""
    if not frame.rows:
        return
    headed = any(frame.columns)
    table = Table(box=box.SIMPLE_HEAD if headed else None, show_header=headed, pad_edge=False, show_edge=False)
    for position, name in enumerate(frame.columns):
        table.add_column(Text(name), justify="right" if position in frame.right else "left", overflow="fold")
    for row in frame.rows:
        table.add_row(*(Text(text) for text in row))
    console = stdout()
    if title is not None:
        console.print(Text(title, style="bold"))
    console.print(table)


def put_json(answer: Any, *, indent: int | None = None) -> None:
    """Print an answer as the API gives it, on one line unless it is meant for eyes."""
    separators = (",", ":") if indent is None else None
    sys.stdout.write(json.dumps(answer, ensure_ascii=False, separators=separators, indent=indent) + "\n")
    sys.stdout.flush()


def warn(text: str) -> None:
    """Print one line on standard error."""
    stderr().print(Text(f"warning: {printable_line(' '.join(text.split()))}"), soft_wrap=True)


Shown = Callable[[int, int | None, str], None]


@contextmanager
def progress(what: str) -> Iterator[Shown]:
    """Show a bar on standard error while that is a terminal. Yields `shown(done, total, what)`."""
    console = stderr()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def shown(done: int, total: int | None, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield shown
