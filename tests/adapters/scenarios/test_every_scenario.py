"""No scenario is left out in silence: each has a test of its name here, and a row in docs/reliability.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.adapters.scenarios.upstream import SCENARIOS, test_name

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NAMED = [(group, name) for group, names in SCENARIOS.items() for name in names]


def scenarios_here() -> dict[str, str]:
    """The first line of every test's docstring, by the test's name."""
    found: dict[str, str] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert node.name not in found, node.name
                found[node.name] = (ast.get_docstring(node) or "").split("\n")[0]
    return found


def test_every_scenario_has_a_test_of_its_name_that_cites_it() -> None:
    found = scenarios_here()
    assert len(found) > len(NAMED)
    silent = [f"{group}.{name}" for group, name in NAMED if f"{group}.{name}:" not in found.get(test_name(name), "")]
    assert silent == []


def test_every_scenario_has_a_row_in_the_reliability_document_and_no_other_has() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    section = text.partition("\n## Scenarios\n")[2].partition("\n## ")[0]
    rows = [(group, name) for group, name in re.findall(r"^\| `(\w+)\.(\w+)` \|", section, re.MULTILINE)]
    assert sorted(rows) == sorted(NAMED)


def test_every_scenario_that_a_golden_table_names_exists() -> None:
    books = sorted((ROOT / "tests" / "unit" / "golden").glob("conflict_*.txt"))
    comments = [line for book in books for line in book.read_text().split("\n") if line.startswith("#")]
    named = {name for line in comments for name in re.findall(r"\btest[A-Z]\w+", line)}
    assert len(named) > 20
    assert named <= {name for _, name in NAMED}
