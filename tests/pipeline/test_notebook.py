"""The notebook runs with other parameters than it is shown with; what is shown is small and speaks of no machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.conftest import JARS

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "file_compaction.ipynb"
MOST_BYTES = 250_000


def text_of(notebook: Any) -> str:
    """What the cells printed."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return "".join("".join(output.get("text", "")) for output in outputs)


def test_the_notebook_is_kept_with_its_outputs_and_without_traces_of_a_machine() -> None:
    shown = NOTEBOOK.read_text(encoding="utf-8")
    notebook = json.loads(shown)
    assert len(shown) < MOST_BYTES
    assert "COMPACTION IMPACT SUMMARY" in text_of(notebook)
    assert "[passed] rows: 10,000 rows" in text_of(notebook)
    assert '"image/png"' in shown
    without_pictures = re.sub(r'"image/png": "[^"]*"', "", shown)
    assert re.findall(r"/(?:tmp|home|root|work|var|Users)/", without_pictures) == []
    assert "ename" not in shown


def test_the_notebook_has_the_parameters_of_the_pattern_in_a_tagged_cell() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    (tagged,) = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
    names = re.findall(r"^(\w+) = ", "".join(tagged["source"]), re.MULTILINE)
    assert names[:10] == [
        "execution_date", "environment", "database_name", "table_name", "target_file_size_mb", "min_file_size_mb",
        "num_events", "num_batches", "enable_validation", "enable_cleanup",
    ]  # fmt: skip


@pytest.mark.spark
def test_papermill_runs_the_notebook_with_parameters_of_its_own(tmp_path: Path) -> None:
    import papermill

    made = tmp_path / "out.ipynb"
    given = {"num_events": 60, "num_batches": 3, "enable_cleanup": True, "table_name": "other"}
    given |= {"lake_home": str(tmp_path / "lake"), "jars": JARS["spark.jars.ivy"]}
    papermill.execute_notebook(str(NOTEBOOK), str(made), given, progress_bar=False, cwd=str(tmp_path))
    said = text_of(json.loads(made.read_text(encoding="utf-8")))
    assert "local.maintenance_demo.other: 60 rows in 3 commits" in said
    assert "[passed] rows: 60 rows, and their content, are the same" in said
