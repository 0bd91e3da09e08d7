"""Which test shows what: the tables of docs/reliability.md that are made from the tests themselves.

`python -m tests.index` (`make index`) writes them anew; `tests/test_docs.py` fails where they are not current. A test
shows a fault row by its name (`test_row_24_...`), a scenario by its name as well, and a trap or a law by its name
(`test_t06_...`) or by a docstring that cites it, its own or its file's.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "docs" / "reliability.md"
TRAPS = ROOT / "docs" / "traps.md"
BEGIN, END = "<!-- made by `make index` -->", "<!-- end of what `make index` made -->"
_ROW = re.compile(r"test_row_(\d+)_")
_TRAP_NAME = re.compile(r"test_t(\d+)_")
_TRAP = re.compile(r"\bT(\d{1,2})\b")
_LAW = re.compile(r"\b[Ll]aws? (\d+)(?: and (\d+))?")

Shown = Mapping[int, set[str]]


@cache
def tests() -> tuple[tuple[str, str, str], ...]:
    """Return (file below tests/, name, docstring) of every test, and the docstring of its file under an empty name."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree, file = ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(ROOT / "tests"))
        found.append((file, "", ast.get_docstring(tree) or ""))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.append((file, node.name, ast.get_docstring(node) or ""))
    return tuple(found)


def by_row() -> Shown:
    """Row of the fault catalogue -> the files that hold a test named after it."""
    found: dict[int, set[str]] = defaultdict(set)
    for file, name, _ in tests():
        if row := _ROW.match(name):
            found[int(row[1])].add(file)
    return found


def by_trap() -> Shown:
    """Trap -> the files that hold a test named after it, or that cite it."""
    found: dict[int, set[str]] = defaultdict(set)
    for file, name, text in tests():
        named = _TRAP_NAME.match(name)
        for number in {*_TRAP.findall(text), *([named[1]] if named else [])}:
            found[int(number)].add(file)
    return found


def by_law() -> Shown:
    """Law -> the files that cite it."""
    found: dict[int, set[str]] = defaultdict(set)
    for file, _, text in tests():
        for number in {number for pair in _LAW.findall(text) for number in pair if number}:
            found[int(number)].add(file)
    return found


def by_scenario() -> Mapping[str, str]:
    """`Group.name` of a scenario of another project -> its file in tests/adapters/scenarios."""
    cited = ((file, re.match(r"(\w+\.\w+):", text)) for file, name, text in tests() if name and "/scenarios/" in file)
    return {match[1]: Path(file).name for file, match in cited if match}


def trap_names() -> Mapping[int, str]:
    """Trap -> its name, as docs/traps.md has it."""
    rows = re.findall(r"^\| T(\d+) \| \*\*(.+?)\.\*\* ", TRAPS.read_text(encoding="utf-8"), re.MULTILINE)
    return {int(number): name for number, name in rows}


def laws() -> Mapping[int, str]:
    """Law -> its name, as docs/traps.md has it."""
    section = TRAPS.read_text(encoding="utf-8").partition("\n## The laws\n")[2]
    return {int(number): text for number, text in re.findall(r"^(\d+)\. \*\*(.+?)\.\*\* ", section, re.MULTILINE)}


def updated(paper: str) -> str:
    """Return docs/reliability.md with every table of tests as the tests are now."""
    rows, scenarios = by_row(), by_scenario()

    def fault(match: re.Match[str]) -> str:
        return f"{match[1]}`test_row_{int(match[2]):02}_*` in {_spans(rows.get(int(match[2]), ()))} |"

    def scenario(match: re.Match[str]) -> str:
        return f"{match[1]}{_spans(filter(None, [scenarios.get(match[2])]))} |"

    paper = re.sub(r"^(\| (\d+) \|[^\n]*\| )`test_row_[^\n|]*\|$", fault, paper, flags=re.MULTILINE)
    paper = re.sub(r"^(\| `(\w+\.\w+)` \|[^\n]*\| )[^\n|]*\|$", scenario, paper, flags=re.MULTILINE)
    before, _, rest = paper.partition(BEGIN)
    return before + BEGIN + "\n\n" + _index() + "\n" + END + rest.partition(END)[2]


def _index() -> str:
    traps, cited = by_trap(), by_law()
    lines = ["| law | cited by |", "| --- | --- |"]
    lines += [f"| {number}: {text} | {_spans(cited.get(number, ()))} |" for number, text in laws().items()]
    lines += ["", "| trap | shown by |", "| --- | --- |"]
    lines += [f"| T{number}: {name} | {_spans(traps.get(number, ()))} |" for number, name in trap_names().items()]
    return "\n".join(lines) + "\n"


def _spans(files: Iterable[str]) -> str:
    return ", ".join(f"`{file}`" for file in sorted(files))


if __name__ == "__main__":
    PAPER.write_text(updated(PAPER.read_text(encoding="utf-8")), encoding="utf-8")
