"""What a person sees while a job runs: lines on a stream, nothing that a terminal would obey."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO


class Terminal:
    """Says lines; `to` is standard output unless that is wanted for JSON."""

    def __init__(self, to: TextIO | None = None, *, quiet: bool = False) -> None:
        self._to = sys.stdout if to is None else to
        self._quiet = quiet

    def say(self, line: str) -> None:
        if not self._quiet:
            self._to.write(printable(line) + "\n")
            self._to.flush()

    def show(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table: the first column to the left, the others to the right."""
        lines = [tuple(columns), *(tuple(row) for row in rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        for line in lines:
            first, *rest = line
            cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))]
            self.say("  " + "  ".join(cells).rstrip())


def printable(line: str) -> str:
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
