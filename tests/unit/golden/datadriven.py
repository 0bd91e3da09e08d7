"""Golden files that read as a table of cases: a state, a command, `----`, the answer.

A file is a list of paragraphs between blank lines. One without `----` describes a state; one with it is a command and
its answer. Lines that start with `#` are comments. `--rewrite-golden` writes the answers anew: review reads the diff.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

RULE = "----"

Interpreter = Callable[[list[str]], str]
"""Takes the lines of a paragraph (comments and answer left out); returns the answer, or nothing for a state."""


def run(path: Path, interpret: Interpreter, *, rewrite: bool) -> None:
    """Run a golden file from top to bottom and compare every answer, or write the answers anew."""
    text = path.read_text()
    found = "\n\n".join(_answered(paragraph, interpret) for paragraph in text.strip("\n").split("\n\n")) + "\n"
    if rewrite:
        path.write_text(found)
    assert found == (path.read_text() if rewrite else text), f"{path.name}: see `make golden`"


def _answered(paragraph: str, interpret: Interpreter) -> str:
    lines = paragraph.split("\n")
    asked = lines[: lines.index(RULE)] if RULE in lines else lines
    spoken = [line for line in asked if not line.startswith("#")]
    answer = interpret(spoken) if spoken else ""
    if RULE not in lines:
        assert answer == "", f"a command without {RULE}: {spoken[0]}"
        return paragraph
    return "\n".join([*asked, RULE, answer.strip("\n")])


def words(line: str) -> tuple[list[str], dict[str, str]]:
    """Split a line into plain words and `key=value` pairs; a bare `key=` is an empty value."""
    parts = line.split()
    pairs = [part.split("=", 1) for part in parts if "=" in part]
    return [part for part in parts if "=" not in part], dict(pairs)  # type: ignore[arg-type]
